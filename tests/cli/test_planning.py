"""variance and power, on experiments that really ran and on other people's directories."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]


@pytest.fixture
def root(laboratory_root: Path) -> Path:
    return laboratory_root


def facts(result: Result, code: int = 0) -> dict:
    assert result.exit_code == code, result.output + result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """run1 .. run15 as a trainer leaves them: a curve that rises, and levels that differ by a tenth."""
    for number in range(1, 16):
        random.seed(number)
        level = random.gauss(1, 0.1)
        directory = tmp_path / f"run{number}"
        directory.mkdir()
        lines = [
            json.dumps({"step": step, "overview/reward": level * (1 - math.exp(-step / 50))})
            for step in range(0, 400, 20)
        ]
        (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return [f"run{number}" for number in range(1, 16)]


@pytest.mark.slow
def test_the_command_of_the_benchmark_guide_works_as_it_is_written(
    bakeoff: Bakeoff, runs: list[str], tmp_path: Path
) -> None:
    arguments = ["--metric", "overview/reward", "--threshold", "0.05", "--output", "variance_plot.png"]
    result = bakeoff("variance", *runs, *arguments)
    assert result.exit_code == 0
    for statistic in ("AUC", "Derivative"):
        assert f"{statistic}: for a relative standard error of the mean of at most 5 %: N = " in result.stdout
        assert f"{statistic}: to detect differences of 5 % of the mean or more" in result.stdout
    assert (tmp_path / "variance_plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_order_of_runs_does_not_matter(bakeoff: Bakeoff, runs: list[str]) -> None:
    first = facts(bakeoff("variance", *runs, "--json"))
    second = facts(bakeoff("variance", *reversed(runs), "--json"))
    assert first["statistics"] == second["statistics"]


def test_a_run_that_cannot_be_read_is_an_error_that_names_it(bakeoff: Bakeoff, runs: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text('{"step": 0, "loss": 1.0}\n')
    for wrong in ("empty", "other", "nowhere"):
        result = bakeoff("variance", *runs, wrong)
        assert result.exit_code == 2 and wrong in result.stderr
    assert "named twice" in bakeoff("variance", "run1", "run2", "run1").stderr
    assert "no spread" in bakeoff("variance", "run1").stderr


def test_a_slope_after_convergence_is_undefined_and_the_area_is_not(bakeoff: Bakeoff, runs: list[str]) -> None:
    for number, name in enumerate(runs):
        lines = [
            json.dumps({"step": s, "overview/reward": 1 + number / 100 + random.Random(31 * number + s).gauss(0, 0.1)})
            for s in range(50)
        ]
        Path(name, "metrics.jsonl").write_text("\n".join(lines))
    found = facts(bakeoff("variance", *runs, "--json"))
    area, slope = found["statistics"]
    assert not area["undefined"] and slope["undefined"] and slope["n_for_mde"]["estimate"] is None
    assert "undefined" in slope["sentences"][0]


@pytest.mark.slow
def test_one_arm_of_an_experiment_or_all_of_them(bakeoff: Bakeoff, root: Path) -> None:
    one = facts(bakeoff("variance", "train:new", "--json", "--root", root))
    (found,) = one["statistics"]
    assert (found["arm"], found["statistic"], found["unit"], found["n"]) == ("new", "final", "seed", 10)
    every = facts(bakeoff("variance", "train", "--metric", "overview/reward", "--json", "--root", root))
    assert [(s["arm"], s["statistic"]) for s in every["statistics"]] == [
        ("old", "AUC"), ("old", "Derivative"), ("new", "AUC"), ("new", "Derivative"),
    ]  # fmt: skip
    assert every["settings"]["threshold"] == 0.05 and every["version"]
    assert "no arm called 'newest'" in bakeoff("variance", "train:newest", "--root", root).stderr


def test_a_declared_range_is_not_taken_for_that_of_another_metric(bakeoff: Bakeoff, root: Path) -> None:
    """bench declares 0 to 1 for `solved`; `top` lies far above."""
    assert bakeoff("variance", "bench:strong", "--metric", "top", "--root", root).exit_code == 0
    assert bakeoff("power", "bench", "--metric", "score", "--effect", "0.1", "--root", root).exit_code == 0
    ranked = facts(bakeoff("rank", "bench", "--metric", "score", "--json", "--root", root))
    assert ranked["arms"][0]["optimality_gap"] is None
    compared = bakeoff("compare", "bench", "--metric", "top", "--json", "--root", root)
    assert compared.exit_code in (0, 3) and json.loads(compared.stdout)["settings"]["bounds"] is None
    assert bakeoff("gate", "bench", "--must-improve", "top", "--arms", "strong", "--root", root).exit_code in (0, 1, 3)
    given = bakeoff("compare", "bench", "--metric", "top", "--bounds", "0", "1", "--root", root)
    assert given.exit_code == 2 and "outside the declared bounds" in given.stderr


def test_a_mean_that_may_be_zero_is_too_little_evidence(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(
        "arm,seed,score\n" + "".join(f"a,{s},{v}\n" for s, v in enumerate((-1, 1, 2, -2)))
    )
    result = bakeoff("variance", "table.csv")
    assert result.exit_code == 3 and "may be 0" in result.stdout


def test_power_from_numbers(bakeoff: Bakeoff) -> None:
    result = bakeoff("power", "--sd", "1", "--effect", "0.5", "--n", "15")
    assert result.exit_code == 0
    assert "To detect 0.5 (80 % power): 34 units." in result.stdout
    unpaired = facts(bakeoff("power", "--sd", "1", "--effect", "0.5", "--unpaired", "--json"))
    assert unpaired["needed"]["seen"] == 64 and unpaired["settings"]["sd"] == 1


def test_power_for_success_rates(bakeoff: Bakeoff) -> None:
    assert facts(bakeoff("power", "--rate", "0.01875", "--effect", "0.0126", "--json"))["needed"] == 2414
    paired = facts(bakeoff("power", "--rate", "0.5", "--effect", "0.1", "--paired", "--discordant", "0.2", "--json"))
    assert paired["needed"] == 155
    assert "cannot detect any rise" in bakeoff("power", "--rate", "0.95", "--n", "3").stdout


def test_earlier_runs_on_five_tasks_say_that_rollouts_cannot_help(bakeoff: Bakeoff, root: Path) -> None:
    arguments = ["power", "bench", "--control", "weak", "--candidate", "middle", "--effect", "0.05", "--root", root]
    result = bakeoff(*arguments)
    assert result.exit_code == 0
    assert "5 tasks are N = 5, whatever the number of rollouts" in result.stdout
    found = facts(bakeoff(*arguments, "--json"))
    assert found["unit"] == "task" and found["pilot"]["rollouts"] == 4
    assert found["more_rollouts"]["tasks_needed"]["seen"] == found["needed"]["seen"] > 5
    assert found["sd_upper"] > found["sd"]


def test_a_budget_is_divided_by_what_earlier_runs_show(bakeoff: Bakeoff, root: Path) -> None:
    arguments = ["power", "bench", "--budget", "60", "--cost-task", "2", "--root", root]
    found = facts(bakeoff(*arguments, "--json"))["allocation"]
    assert found["now"]["tasks"] == 5 and found["best"]["cost"] <= 60 and found["best"]["tasks"] >= 3
    fixed = facts(bakeoff(*arguments, "--most-tasks", "5", "--json"))["allocation"]
    assert fixed["best"]["tasks"] == 5


def test_simulation_agrees_with_computation_and_repeats_itself(bakeoff: Bakeoff, root: Path) -> None:
    arguments = ["power", "--sd", "1", "--effect", "1", "--n", "12", "--simulate", "t", "--replicates", "400", "--json"]
    first, second = facts(bakeoff(*arguments)), facts(bakeoff(*arguments))
    assert first["simulated"] == second["simulated"]
    assert first["simulated"]["tried"][0]["low"] <= first["power"]["seen"] <= first["simulated"]["tried"][0]["high"]
    drawn = bakeoff("power", "train", "--effect", "0.02", "--simulate", "median", "--replicates", "200", "--root", root)
    assert drawn.exit_code == 0 and "the values of the earlier runs, moved" in drawn.stdout


def test_runs_without_spread_are_not_answerable(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "same.csv").write_text("arm,seed,score\n" + "".join(f"{a},{s},1\n" for a in "ab" for s in range(4)))
    result = bakeoff("power", "same.csv", "--effect", "1")
    assert result.exit_code == 3 and "no spread" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "plan from one of these"),
        (("--sd", "1", "--rate", "0.5"), "plan from one of these"),
        (("--sd", "1"), "say --effect"),
        (("--rate", "0.9", "--effect", "0.5"), "between 0 and 1"),
        (("--sd", "1", "--effect", "1", "--budget", "5"), "--budget divides"),
        (("--sd", "1", "--n", "5", "--simulate", "t"), "needs the effect"),
        (("--sd", "1", "--effect", "1", "--simulate", "guess"), "no statistic called 'guess'"),
    ],
)
def test_questions_that_make_no_sense_are_told_what_is_missing(
    bakeoff: Bakeoff, arguments: tuple[str, ...], told: str
) -> None:
    result = bakeoff("power", *arguments)
    assert result.exit_code == 2 and told in result.stderr


def test_power_draws_its_curve(bakeoff: Bakeoff, tmp_path: Path) -> None:
    assert bakeoff("power", "--sd", "1", "--effect", "1", "--n", "8", "--plot", "power.svg").exit_code == 0
    assert "<svg" in (tmp_path / "power.svg").read_text()


def test_power_counts_every_comparison_that_shares_alpha(bakeoff: Bakeoff, root: Path) -> None:
    """bench has three arms: two comparisons, unless somebody plans otherwise."""
    arguments = ["power", "bench", "--control", "weak", "--candidate", "middle", "--effect", "0.1", "--root", root]
    both = facts(bakeoff(*arguments, "--json"))
    alone = facts(bakeoff(*arguments, "--comparisons", "1", "--json"))
    assert (both["settings"]["comparisons"], alone["settings"]["comparisons"]) == (2, 1)
    assert both["mde"]["seen"] > alone["mde"]["seen"] and both["needed"]["seen"] > alone["needed"]["seen"]
    assert "one particular comparison of 2 that share alpha 0.05" in bakeoff(*arguments).stdout
    compared = json.loads(bakeoff("compare", "bench", "--control", "weak", "--json", "--root", root).stdout)
    figures = {each["candidate"]: each["mde"] for each in compared["comparisons"]}
    assert figures["middle"] == pytest.approx(both["mde"]["seen"])


def test_power_for_any_or_all_of_the_arms(bakeoff: Bakeoff) -> None:
    plan = ["power", "--sd", "1", "--n", "12", "--comparisons", "4"]
    each, any_, all_ = (
        facts(bakeoff(*plan, "--detect", what, "--json"))["mde"]["seen"] for what in ("each", "any", "all")
    )
    assert any_ < min(each, all_)
    assert "at least one of 4 comparisons" in bakeoff(*plan, "--detect", "any").stdout
    rates = facts(bakeoff("power", "--rate", "0.5", "--effect", "0.1", "--comparisons", "5", "--json"))
    assert (
        rates["needed"]
        == facts(bakeoff("power", "--rate", "0.5", "--effect", "0.1", "--alpha", "0.01", "--json"))["needed"]
    )
    for wrong in (["--rate", "0.5", "--detect", "any"], ["--sd", "1", "--comparisons", "101", "--detect", "all"]):
        assert bakeoff("power", *wrong, "--effect", "0.1").exit_code == 2
    assert "can detect nothing: a verdict needs at least 3" in bakeoff("power", "--sd", "1", "--n", "2").stdout


def test_an_undecided_verdict_does_not_promise_to_detect_less_than_was_seen(bakeoff: Bakeoff, tmp_path: Path) -> None:
    """Nine clear wins, and three lost runs that could undo them: the spread of the nine says little."""
    lines = ["arm,seed,score,status"]
    lines += [f"a,{s},0,scored" for s in range(12)] + [f"b,{s},{1 + s / 100},scored" for s in range(9)]
    lines += [f"b,{s},,lost" for s in range(9, 12)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    found = json.loads(bakeoff("compare", "table.csv", "--bounds", "-9", "9", "--json").stdout)["comparisons"][0]
    assert found["verdict"] == "undecided" and abs(found["effect"]) > 0.5
    assert found["mde"] is None or found["mde"] > abs(found["effect"])
    assert "can detect" not in found["sentence"]
