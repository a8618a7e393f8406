# The first target that you run creates .venv.
BIN := .venv/bin
# Two workers for each core, because tests spend about half of their time waiting for processes.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $$(nproc) \* 2) --dist worksteal
FIGURES := overhead collect startup plan compare schedsim market market_http market_latency rollouts
BENCHMARKS := $(filter-out benchmarks/table.py benchmarks/calibration.py benchmarks/cluster_faults.py,$(wildcard benchmarks/*.py))
.DEFAULT_GOAL := help
# Selects the tests that need only Python; pyproject.toml explains the markers.
ANYWHERE := not (slow or root or apt or npm or trainers or launchers or browser or daemon)
.PHONY: help demo check test what-it-needs install-and-lint all-tests for-tests coverage lint docs site structure bench figures calibration release clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-11s %s\n", $$1, $$2 }'

demo: ## install into .venv, run the example experiment, show its verdicts and write its report
	@scripts/install.sh market
	$(BIN)/bakeoff run examples/market.toml
	$(BIN)/bakeoff compare market || [ $$? -eq 3 ] # 3: some arms are undecided, which is a valid result
	$(BIN)/bakeoff report market

check: lint ## run lint, type checks, and the quick tests that need only Python: no root, apt, npm, browser or daemon
	$(PYTEST) -n $(shell nproc) -m "$(ANYWHERE)" # quick tests hardly wait, and each worker takes its time to start

# Parts are targets of their own, in this order, so that make's last line names the one that failed.
test: what-it-needs install-and-lint all-tests ## say what is needed, install it, run every check and every test

what-it-needs:
	@scripts/test-needs.sh

install-and-lint:
	@[ -x $(BIN)/python ] || scripts/create-venv.sh # both of the following use it
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target for-tests lint

all-tests: install-and-lint
	$(PYTEST)

for-tests:
	@scripts/install-for-tests.sh

coverage: ## run the same tests and print the lines that no test reaches
	@scripts/install.sh test
	@scripts/install-for-tests.sh
	$(PYTEST) --cov

lint: ## check style, types and the import rules
	@scripts/install.sh test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@! command -v node >/dev/null || for script in $$(find src -name '*.js' -path '*/static/*'); do node --input-type=module --check - <$$script || exit 1; done

docs: ## regenerate docs/cli.md from --help
	@scripts/install.sh all
	$(BIN)/python scripts/cli_reference.py docs/cli.md

site: ## build the documentation site in site/, with the API reference
	@scripts/install.sh site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

structure: ## print files, lines and functions of every package, and how many of them one verdict passes through
	@scripts/install.sh
	$(BIN)/python scripts/structure.py

bench: ## measure the hot paths; print one JSON object for each benchmark
	@scripts/install.sh bench
	@command -v parallel >/dev/null || scripts/apt-install.sh parallel
	@set -e; for script in $(BENCHMARKS); do echo "== $$script" >&2; $(BIN)/python $$script; done

figures: ## measure, store the results in benchmarks/results/ and write them into docs/benchmarks.md
	@scripts/install.sh bench
	@command -v parallel >/dev/null || scripts/apt-install.sh parallel
	@set -e; for name in $(FIGURES); do echo "== $$name" >&2; \
		$(BIN)/python benchmarks/$$name.py --out benchmarks/results/$$name.json >/dev/null; done
	$(BIN)/python benchmarks/table.py

calibration: ## simulate error rates, coverage and power; write them into docs/calibration.md (ten minutes on two cores; resumes)
	@scripts/install.sh
	$(BIN)/python benchmarks/calibration.py

release: ## check version and changelog, build sdist and wheel, test the wheel in a fresh venv; publish nothing
	@scripts/install.sh
	@scripts/pip-install.sh $(BIN)/python build
	$(BIN)/python scripts/release.py

clean: ## remove .venv, agents, trainers, launchers, caches and build output; keep results in bakeoff-runs/
	rm -rf .venv .agents .trainers .launchers build dist site .coverage .coverage.* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
