"""A core install runs experiments; whatever needs an extra says which one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from bakeoff.errors import EXTRAS, install, missing_extra
from bakeoff.results.columns import Sheet

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DEVELOPMENT = {"all", "bench", "site", "test"}
"""Extras that no code in `src` imports: bundles, and tools for working on the project."""

# Python imports sitecustomize at every start, so the packages are also missing in worker processes.
SITECUSTOMIZE = """
import os
from importlib.machinery import PathFinder

missing = os.environ["MISSING_PACKAGES"].split()
find_spec = PathFinder.find_spec

def find_present(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in missing else find_spec(name, path, target)

PathFinder.find_spec = classmethod(find_present)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_without(tmp_path: Path) -> Run:
    """`run_without(packages, *argv)` runs Python with `argv`; importing one of `packages` fails, also in its children."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)

    def run(packages: tuple[str, ...], *argv: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "MISSING_PACKAGES": " ".join(packages), **variables}
        return subprocess.run([sys.executable, *map(str, argv)], cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


def test_every_extra_of_pyproject_is_known_to_the_command_line() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - DEVELOPMENT


@pytest.mark.slow
def test_a_core_install_runs_compares_plots_and_reports(run_without: Run) -> None:
    packages = tuple({package for extra in EXTRAS.values() for package in extra})
    for argv in (
        ["run", EXAMPLES / "quickstart.toml"],
        ["compare", "quickstart"],
        ["report", "quickstart"],
        ["plot", "curves", "quickstart", "-o", "curves.svg"],
        ["collect", "quickstart"],
        ["validate", EXAMPLES / "sweep/smoke.json"],
        ["schedsim", "--help"],
        ["sandbox", "check", "--help"],
    ):
        done = run_without(packages, "-m", "bakeoff", *argv)
        assert done.returncode == 0, f"{argv}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "argv"),
    [
        ("market", ["market", "run", "--agent", "null", "--duration", "2"]),
        ("market", ["run", EXAMPLES / "market.toml"]),
        ("gridworld", ["gridworld", "play"]),
        ("agents", ["market", "serve", "--port", "0"]),
        ("agents", ["market", "mcp"]),
        ("wandb", ["variance", "wandb:team/project", "--metric", "score"]),
        pytest.param("tasks", ["run", EXAMPLES / "smollm2.toml"], marks=pytest.mark.apt),  # bubblewrap
    ],
    ids=["market run", "run market", "gridworld play", "market serve", "market mcp", "variance of W&B", "run tasks"],
)
def test_a_verb_without_its_extra_names_it(run_without: Run, extra: str, argv: list[str | Path]) -> None:
    done = run_without(EXTRAS[extra], "-m", "bakeoff", *argv)
    assert install(extra) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    "argv",
    [
        ["compare", "t.csv"],
        ["compare", "t.jsonl"],
        ["rank", "t.csv"],
        ["gate", "t.csv", "--max-regression", "score=0.1"],
        ["report", "t.csv", "--out-dir", "report"],
        ["plot", "differences", "t.csv", "-o", "differences.svg"],
        ["summarize", "t.csv"],
    ],
    ids=" ".join,
)
def test_tables_are_read_without_polars(run_without: Run, tmp_path: Path, argv: list[str]) -> None:
    rows = [{"arm": arm, "seed": seed, "score": seed / 7 + (arm == "b")} for arm in "ab" for seed in range(9)]
    (tmp_path / "t.csv").write_text(Sheet.of(rows).to_csv())
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run_without(EXTRAS["frames"], "-m", "bakeoff", *argv)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "bakeoff.compare('t.parquet')",
        f"bakeoff.load({str(EXAMPLES / 'quickstart.toml')!r}).table()",
        "from bakeoff.cli import main; main(['query', 'SELECT * FROM runs', 'quickstart'])",
    ],
    ids=["parquet", "table", "query"],
)
def test_frames_without_polars_name_their_extra(run_without: Run, tmp_path: Path, code: str) -> None:
    pl.DataFrame({"arm": ["a", "b"], "score": [1, 2]}).write_parquet(tmp_path / "t.parquet")
    assert run_without(EXTRAS["frames"], "-m", "bakeoff", "run", EXAMPLES / "quickstart.toml").returncode == 0
    done = run_without(EXTRAS["frames"], "-c", f"import bakeoff; {code}")
    assert done.stderr.splitlines()[-1].endswith("needs Polars: " + install("frames")), done.stderr


def test_collect_without_polars_writes_csv_and_says_what_is_missing(run_without: Run, tmp_path: Path) -> None:
    assert run_without(EXTRAS["frames"], "-m", "bakeoff", "run", EXAMPLES / "quickstart.toml").returncode == 0
    done = run_without(EXTRAS["frames"], "-m", "bakeoff", "collect", "quickstart", "--out-csv", tmp_path / "runs.csv")
    assert (done.returncode, (tmp_path / "runs.csv").exists(), (tmp_path / "runs.parquet").exists()) == (0, True, False)
    assert install("frames") in done.stderr
    assert run_without(EXTRAS["frames"], "-m", "bakeoff", "summarize", "runs.csv").returncode == 0


def test_a_database_url_without_its_extra_names_it(run_without: Run) -> None:
    url = "postgresql://127.0.0.1:1/nowhere"
    done = run_without(
        EXTRAS["postgres"], "-m", "bakeoff", "run", EXAMPLES / "quickstart.toml", BAKEOFF_DATABASE_URL=url
    )
    assert (done.returncode, install("postgres") in done.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["docker", "modal"])
def test_a_sandbox_without_its_extra_names_it(run_without: Run, sandbox: str) -> None:
    done = run_without(EXTRAS[sandbox], "-m", "bakeoff", "sandbox", "check")
    assert install(sandbox) in done.stdout + done.stderr


@pytest.mark.parametrize("workload", ["market", "gridworld"])
def test_environments_without_their_extra_name_it(run_without: Run, workload: str) -> None:
    done = run_without(EXTRAS["environments"], "-c", f"import bakeoff.workloads.{workload}.envs")
    assert install("environments") in done.stderr


@pytest.mark.parametrize(
    ("module", "extra"), [("bakeoff.workloads.tasks.proxy", "tasks"), ("bakeoff.workloads.market.serve", "agents")]
)
def test_a_package_of_two_extras_is_explained_by_the_workload_that_imports_it(module: str, extra: str) -> None:
    try:
        exec("raise ModuleNotFoundError('No module named httpx', name='httpx')", {"__name__": module})
    except ModuleNotFoundError as error:
        assert missing_extra(error) == extra


def test_a_package_that_no_extra_brings_is_not_explained() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'typo'", name="typo")) is None
