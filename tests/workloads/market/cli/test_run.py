"""`bakeoff market generate` and `bakeoff market run`: the files that they write, and mistakes in the call."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.workloads.market import snapshot
from bakeoff.workloads.market.cli import MARKET_VERBS
from bakeoff.workloads.market.scenario import scenario

FILES = {
    "actions.csv", "equity.csv", "markets.csv", "messages.csv", "metrics.json", "posts.csv", "prices.csv", "result.json",
    "trades.csv", "truth.json",
}  # fmt: skip
PAGES = {
    f"{name}.html"
    for name in (
        "index",
        "summary",
        "equity",
        "prices",
        "timeline",
        "detailed",
        "social",
        "table-equity",
        "table-prices-0",
        "table-timeline",
    )
}


@pytest.fixture
def benchmark() -> str:
    small = scenario(duration_minutes=10, markets=3, perpetuals=2, agents=4)
    return str(snapshot.generate(small, 5, Path("bench.json"), secret="test").public)


def market(*words: str) -> Result:
    return CliRunner().invoke(main, ["market", *words], prog_name="bakeoff")


def names(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


@pytest.mark.slow
def test_five_runs_have_five_directories_and_a_comparison_with_spread_and_interval(benchmark: str) -> None:
    result = market(
        "run", "--benchmark", benchmark, "--agent", "random", "--runs", "5", "--save-trajectories", "--output", "out"
    )
    assert result.exit_code == 0, result.output
    tables = {"comparison.json", "metrics.csv", "actions.csv", "equity.csv"}
    assert names("out") == tables | PAGES | {"assets", *(f"run-{number}" for number in range(1, 6))}
    assert names("out/run-3") == FILES | {"trajectory.json"}
    told = json.loads(Path("out/comparison.json").read_text())["agents"]["random"]
    pnl = told["metrics"]["total_pnl"]
    assert told["runs"] == 5 and not told["deterministic"] and pnl["low"] < pnl["mean"] < pnl["high"] and pnl["sd"] > 0
    rows = list(csv.DictReader(Path("out/metrics.csv").read_text().splitlines()))
    earned = {int(row["run"]): float(row["total_pnl"]) for row in rows}
    assert max(earned, key=earned.__getitem__) == told["bestRun"]
    assert min(earned, key=earned.__getitem__) == told["worstRun"]


@pytest.mark.slow
def test_result_and_trajectory_tell_the_same_story_and_the_truth_is_only_in_its_own_file(benchmark: str) -> None:
    market("run", "--benchmark", benchmark, "--agent", "follow-the-news", "--save-trajectories", "--output", "out")
    result = json.loads(Path("out/result.json").read_text())
    steps = json.loads(Path("out/trajectory.json").read_text())["steps"]
    assert result["ticksProcessed"] == len(steps) == 10
    assert sum(len(step.get("action", [])) for step in steps) == len(result["actions"])
    assert result["pnlHistory"][-1]["pnl"] == pytest.approx(result["metrics"]["total_pnl"])
    assert all("truth" not in step for step in steps)
    assert "theta" not in Path("out/trajectory.json").read_text() + Path("out/result.json").read_text()
    assert result["benchmarkId"] == json.loads(Path(benchmark).read_text())["id"]


@pytest.mark.slow
def test_the_same_call_gives_the_same_bytes_but_for_the_clock(benchmark: str) -> None:
    for out in ("a", "b"):
        market("run", "--benchmark", benchmark, "--agent", "random", "--seed", "3", "--output", out)
    for name in ("equity.csv", "trades.csv", "prices.csv", "truth.json"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()


def test_identical_runs_of_a_deterministic_agent_are_told_to_be_one(benchmark: str) -> None:
    result = market("run", "--benchmark", benchmark, "--agent", "buy-and-hold", "--runs", "3", "--output", "out")
    assert "3 identical runs" in result.stdout
    told = json.loads(Path("out/comparison.json").read_text())["agents"]["buy-and-hold"]
    assert told["deterministic"] and told["metrics"]["total_pnl"]["low"] is None
    assert (told["bestRun"], told["worstRun"]) == (None, None), "one result is neither the best nor the worst"


@pytest.mark.slow
def test_several_agents_get_a_verdict_about_this_world(benchmark: str) -> None:
    words = ("--agent", "random", "--agent", "null", "--runs", "4", "--margin", "5000", "--output", "out", "--json")
    result = market("run", "--benchmark", benchmark, *words)
    told = json.loads(result.stdout)
    assert [(one["agent"], one["control"], one["verdict"]) for one in told["verdicts"]] == [
        ("null", "random", "equivalent")
    ]
    assert names("out/null/run-1") == FILES


@pytest.mark.slow
def test_without_a_file_the_options_draw_a_world() -> None:
    result = market(
        "run", "--duration", "6", "--markets", "2", "--perpetuals", "1", "--agent", "null", "--output", "out"
    )
    assert result.exit_code == 0 and json.loads(Path("out/result.json").read_text())["ticksProcessed"] == 6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--agent", "momentun"), "did you mean 'momentum'"),
        (("--agent", "null", "--agent", "momentun"), "did you mean 'momentum'"),
        (("--agent", "null", "--agent", "null"), "given twice"),
        (("--benchmark", "absent.json"), "does not exist"),
        (("--markets", "0", "--perpetuals", "0"), "nothing to trade"),
    ],
)
def test_mistakes_in_the_call_end_with_2_and_say_what_to_do(words: tuple[str, ...], told: str) -> None:
    result = market("run", *words)
    assert result.exit_code == 2 and told in result.stderr


@pytest.mark.parametrize("more", [("--duration", "60"), ("--regime", "calm"), ("--secret-file", "bench.json")])
def test_a_benchmark_file_brings_its_own_scenario(benchmark: str, more: tuple[str, str]) -> None:
    result = market("run", "--benchmark", benchmark, "--agent", "null", *more)
    assert result.exit_code == 2 and "brings its own scenario" in result.stderr


@pytest.mark.slow
def test_an_agent_that_cannot_start_ends_with_1_and_its_reason_is_in_the_result() -> None:
    Path("broken.py").write_text(
        "class Broken:\n    name = 'broken'\n    def reset(self, brief): raise ValueError('no idea')\n    def act(self, seat): ...\n"
    )
    result = market("run", "--duration", "5", "--agent", "broken.py:Broken", "--output", "out")
    assert result.exit_code == 1
    assert "no idea" in json.loads(Path("out/result.json").read_text())["errors"][0]
    assert "never acted in 1 of 1 runs" in result.stderr and "no idea" in result.stderr
    assert "no idea" in Path("out/index.html").read_text()


@pytest.mark.slow
def test_a_second_call_leaves_nothing_of_the_first_but_what_is_not_its_own(benchmark: str) -> None:
    words = ("--benchmark", benchmark, "--output", "out")
    market("run", *words, "--agent", "random", "--agent", "null", "--save-trajectories")
    Path("out/null/notes.txt").write_text("mine")
    market("run", *words, "--agent", "null", "--runs", "2")
    assert "random" not in names("out") and names("out/null") == {"notes.txt"} and names("out/run-2") == FILES


# -- generate


def test_without_any_option_the_files_lie_in_benchmarks(tmp_path: Path) -> None:
    done = market("generate")
    assert done.exit_code == 0, done.output
    (public,) = [file for file in (tmp_path / "benchmarks").iterdir() if "private" not in file.name]
    assert json.loads(public.read_text())["id"] in public.name and public.name in done.output
    assert public.with_name(public.name.replace(".json", ".private.json")).exists()


def test_both_spellings_of_options_mean_the_same_and_the_defaults_are_these() -> None:
    spaced = [
        "--duration",
        "30",
        "--interval",
        "60",
        "--markets",
        "5",
        "--perpetuals",
        "3",
        "--agents",
        "8",
        "--seed",
        "12345",
    ]
    equal = [f"{name}={value}" for name, value in zip(spaced[::2], spaced[1::2], strict=True)]
    ids = {json.loads(market("generate", *args, "--demo", "--json").stdout)["id"] for args in (spaced, equal, [])}
    assert len(ids) == 1


def test_a_second_generate_finds_the_files_there() -> None:
    assert json.loads(market("generate", "--demo", "--json").stdout)["fresh"] is True
    assert json.loads(market("generate", "--demo", "--json").stdout)["fresh"] is False


def test_a_secret_of_one_s_own_draws_another_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("our contest\n")
    published = json.loads(market("generate", "--json").stdout)["id"]
    own = json.loads(market("generate", "--json", "--secret-file", "secret").stdout)["id"]
    monkeypatch.setenv("BAKEOFF_MARKET_SECRET", "our contest")
    assert json.loads(market("generate", "--json").stdout)["id"] == own != published


def test_an_output_of_one_s_own_is_replaced_by_force_only() -> None:
    assert market("generate", "--output", "a.json").exit_code == 0
    refused = market("generate", "--output", "a.json", "--seed", "9")
    assert refused.exit_code == 2 and "--force" in refused.output
    assert market("generate", "--output", "a.json", "--seed", "9", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--markets", "0", "--perpetuals", "0"], "nothing to trade"),
        (["--duration", "1", "--interval", "90"], "no tick"),
        (["--duration", "-3"], "duration"),
        (["--markets", "1000"], "markets"),
        (["--agents", "many"], "many"),
        (["--seed", "-1"], "-1"),
        (["--regime", "boom"], "regime"),
        (["--tier", "brutal"], "tier"),
        (["--secret-file", "absent"], "absent"),
    ],
)
def test_a_wrong_call_is_told_and_ends_with_2(args: list[str], said: str) -> None:
    done = market("generate", *args)
    assert done.exit_code == 2
    assert said in done.output


def test_help_of_the_group_imports_no_verb() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom bakeoff.cli import main\n"
        "done = CliRunner().invoke(main, ['market', '--help'])\nassert done.exit_code == 0\n"
        "assert not {'numba', 'numpy', 'bakeoff.workloads.market.cli.run'} & set(sys.modules)\nprint(done.output)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(name in said for name in MARKET_VERBS)


def test_a_misspelt_verb_gets_a_suggestion() -> None:
    done = market("genrate")
    assert done.exit_code == 2 and "generate" in done.output
