"""`bakeoff calibrate` as users call it: a wrong unit is found and named, a right one passes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import bakeoff as package
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.verdicts.questions.gate import policy as checked

Bakeoff = Callable[..., Result]
FEW = ("--replicates", "400")


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    """A CSV file with two arms; effects differ by task and by seed as much as asked for."""

    def write(
        tasks: int = 12, seeds: int = 8, by_task: float = 0.0, by_seed: float = 0.0, *, draw: int = 1,
        column: str = "seed", binary: bool = False,
    ) -> str:  # fmt: skip
        rng = np.random.default_rng(draw)
        of_task, of_seed = by_task * rng.normal(size=tasks), by_seed * rng.normal(size=seeds)
        path = tmp_path / "runs.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["arm", "task", column, "score"])
            for arm in ("base", "new"):
                for task in range(tasks):
                    for seed in range(seeds):
                        value = rng.normal() + (arm == "new") * (of_task[task] + of_seed[seed])
                        rows.writerow([arm, f"t{task}", seed, int(value > 0) if binary else round(value, 6)])
        return str(path)

    return write


def facts(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)


def rates(result: Result) -> dict[str, float]:
    return {each["block"]: each["false_positives"] for each in facts(result)["exchanged"]}


@pytest.mark.slow
def test_crossed_seeds_that_are_declared_nested_are_found(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    """One seed is good or bad on every task, so exchanging whole seeds shows what the task as unit overlooks."""
    runs = table(by_task=0.5, by_seed=1.5)
    wrong = bakeoff("calibrate", runs, "--seeds", "nested", "--json", *FEW)
    assert wrong.exit_code == 1
    assert rates(wrong)["seed"] > 0.2 > 0.08 > rates(wrong)["task"]
    assert facts(wrong)["advice"]["flags"] == "--seeds crossed"
    assert facts(wrong)["advice"]["false_positives"] < 0.08
    assert "--seeds crossed" in bakeoff("calibrate", runs, "--seeds", "nested", *FEW).stdout
    assert bakeoff("calibrate", runs, "--seeds", "crossed", *FEW).exit_code == 0


@pytest.mark.slow
def test_runs_of_one_task_that_are_treated_as_units_are_found(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table(tasks=15, seeds=10, by_task=2.0, column="rollout")
    wrong = bakeoff("calibrate", runs, "--tasks", "fixed", "--json", *FEW)
    assert wrong.exit_code == 1
    assert rates(wrong)["task"] > 0.3 and rates(wrong)["run"] < 0.09
    assert facts(wrong)["advice"]["flags"] == "--tasks sample"
    assert any("--blocks run" in line for line in facts(wrong)["what_to_do"])
    for own_unit in (("--tasks", "fixed", "--blocks", "run"), ()):
        tautology = bakeoff("calibrate", runs, *own_unit, *FEW)
        assert tautology.exit_code == 3 and "holds by construction" in tautology.stdout


@pytest.mark.parametrize("draw", [2, 3, 4, 5])
def test_well_designed_runs_pass(draw: int, bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    """Nested seeds that have nothing in common, although effects differ by task; 16 of them are enough to see that."""
    result = bakeoff("calibrate", table(seeds=16, by_task=1.0, draw=draw), "--seeds", "nested", *FEW)
    assert result.exit_code == 0, result.stdout
    assert "Alpha holds" in result.stdout


@pytest.mark.parametrize("absent", [0.0, 0.2])
def test_nested_seeds_that_are_really_crossed_never_pass(
    absent: float, bakeoff: Bakeoff, table: Callable[..., str]
) -> None:
    """The seed as the block shows it, whether or not every seed is on every task."""
    runs = Path(table(by_task=1.0, by_seed=1.5))
    header, *rows = runs.read_text().splitlines()
    rng = np.random.default_rng(4)
    kept = {(f"t{task}", str(seed)) for task in range(12) for seed in range(8) if rng.random() >= absent}
    runs.write_text("\n".join([header, *(row for row in rows if tuple(row.split(",")[1:3]) in kept)]) + "\n")
    result = bakeoff("calibrate", str(runs), "--seeds", "nested", *FEW)
    assert result.exit_code == 1 and "Alpha does not hold" in result.stdout
    few = bakeoff("calibrate", table(seeds=5, by_task=1.0, by_seed=4.0), "--seeds", "nested", *FEW)
    assert few.exit_code == 3 and "it takes 6 seeds" in few.stdout
    assert "runs of one seed have something in common" in few.stdout


def test_a_few_seeds_that_could_hide_what_they_share_are_not_vouched_for(
    bakeoff: Bakeoff, table: Callable[..., str]
) -> None:
    """True rates of 10 to 29 %, too weak for an F test of 8 seeds: most of these tables were said to hold."""
    tables = [(0.7, draw) for draw in range(4)] + [(0.4, draw) for draw in (2, 4, 5, 6)]
    states = [
        facts(bakeoff("calibrate", table(by_seed=by_seed, draw=draw), "--seeds", "nested", "--json", *FEW))["state"]
        for by_seed, draw in tables
    ]
    assert states.count("holds") <= 1, f"the bound has a confidence of 80 %: {states}"
    shown = bakeoff("calibrate", table(by_task=1.0, draw=2), "--seeds", "nested", *FEW)
    assert shown.exit_code == 3 and "8 seeds are so few that they could hide a rate of" in " ".join(
        shown.stdout.split()
    )


@pytest.mark.parametrize("columns", [{}, {"column": "rollout"}])
def test_exchanging_the_tests_own_units_is_no_evidence(
    columns: dict[str, str], bakeoff: Bakeoff, table: Callable[..., str]
) -> None:
    result = bakeoff("calibrate", table(tasks=1, seeds=12, **columns), *FEW)
    assert result.exit_code == 3
    assert "Alpha holds" not in result.stdout and "holds by construction" in result.stdout


@pytest.mark.parametrize("tasks", [["--tasks", "sample"], ["--tasks", "fixed"]])
def test_runs_of_one_arm_that_are_declared_nested_are_found(tasks: list[str], bakeoff: Bakeoff, tmp_path: Path) -> None:
    """Each checkpoint is good or bad on every task; dealing whole checkpoints anew shows it."""
    rng = np.random.default_rng(2)
    level = {f"{arm}{run}": rng.normal() for arm in "ab" for run in range(6)}
    rows = [f"{name[0]},t{t},{name},{level[name] + rng.normal():.6f}" for name in level for t in range(10)]
    (tmp_path / "runs.csv").write_text("arm,task,checkpoint,score\n" + "\n".join(rows) + "\n")
    asked = ("calibrate", "runs.csv", "--seed-from", "checkpoint", "--unpaired", *tasks, "--json", *FEW)
    wrong = bakeoff(*asked, "--seeds", "nested")
    assert wrong.exit_code == 1 and rates(wrong)["seed"] > 0.2
    assert facts(wrong)["advice"]["flags"] == "--seeds crossed"
    assert bakeoff(*asked, "--seeds", "crossed").exit_code == (0 if "sample" in tasks else 3)


def test_copies_that_somebody_keeps_are_found(bakeoff: Bakeoff, tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(2, 8))
    rows = [f"{arm},{seed},{values[a, seed % 8]:.9f}" for a, arm in enumerate("ab") for seed in range(24)]
    (tmp_path / "runs.csv").write_text("arm,seed,score\n" + "\n".join(rows) + "\n")
    assert bakeoff("calibrate", "runs.csv").exit_code == 2
    kept = bakeoff("calibrate", "runs.csv", "--copies", "keep", *FEW)
    assert kept.exit_code == 1 and "remove the copies: only 8 distinct seeds" in " ".join(kept.stdout.split())


def test_few_blocks_are_too_little_to_tell(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    result = bakeoff("calibrate", table(tasks=1, seeds=4))
    assert result.exit_code == 3
    assert "4 seeds can be exchanged in only 16 ways" in result.stdout and "more seeds" in result.stdout
    assert bakeoff("calibrate", table(tasks=1, seeds=2)).exit_code == 3


def test_runs_that_have_not_finished_are_too_little_to_tell(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("arm,seed,score\n" + "".join(f"A,{n},0.{n}\nB,{n},\n" for n in range(8)))
    result = bakeoff("calibrate", "runs.csv", "--relative-margin", "0.1")
    assert result.exit_code == 3 and "no task and seed has finished runs of both" in result.stdout
    assert "8 missing runs are left out" in result.stdout


def test_power_and_false_equivalence_are_measured_at_the_margin(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    """All 1,024 ways of exchanging 10 seeds, so there is no error of the simulation."""
    runs = table(tasks=1, seeds=10)
    (seeds,) = facts(bakeoff("calibrate", runs, "--margin", "1.5", "--json"))["exchanged"]
    assert (seeds["blocks"], seeds["replicates"], seeds["every"]) == (10, 1024, True)
    assert seeds["false_positives"] <= 0.05 and seeds["coverage"] == pytest.approx(1 - seeds["false_positives"])
    assert seeds["false_equivalent"] <= 0.06 and seeds["power"] > 0.5
    assert seeds["errors"] == {"false_positives": 0, "coverage": 0, "power": 0, "false_equivalent": 0}
    (without,) = facts(bakeoff("calibrate", runs, "--json"))["exchanged"]
    assert without["power"] is None and without["false_equivalent"] is None


def test_a_real_effect_does_not_change_the_rates(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    """Arms are centred, so calibration shows nothing about the effect and may be asked before the end."""
    runs = Path(table(tasks=1, seeds=9))
    before = bakeoff("calibrate", str(runs), "--json")
    lines = [line.split(",") for line in runs.read_text().splitlines()]
    moved = [",".join([*line[:3], str(float(line[3]) + 5)]) if line[0] == "new" else ",".join(line) for line in lines]
    runs.write_text("\n".join(moved) + "\n")
    assert rates(bakeoff("calibrate", str(runs), "--json")) == rates(before)


@pytest.mark.slow
def test_outcomes_and_independent_runs_are_calibrated_too(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    outcomes = bakeoff("calibrate", table(tasks=1, seeds=20, binary=True), "--margin", "0.1", "--json", *FEW)
    assert outcomes.exit_code == 3 and rates(outcomes)["seed"] < 0.08
    assert any("0 and 1" in note for note in facts(outcomes)["notes"])
    independent = bakeoff("calibrate", table(tasks=1, seeds=9, column="rollout"), "--margin", "1", "--json", *FEW)
    assert independent.exit_code == 3 and rates(independent)["run"] < 0.09
    strict = bakeoff("calibrate", table(tasks=1, seeds=9), "--strict", "--json", *FEW)
    assert strict.exit_code == 3 and "ties in full" in facts(strict)["test"]


def test_blocks_that_the_runs_do_not_have_are_refused(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    refused = bakeoff("calibrate", table(tasks=1, seeds=9), "--blocks", "task")
    assert refused.exit_code == 2 and "--blocks task" in refused.stderr and "seed" in refused.stderr


def test_the_answer_is_written_in_every_form(bakeoff: Bakeoff, table: Callable[..., str], tmp_path: Path) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "markdown", "json")}
    result = bakeoff(
        "calibrate", table(tasks=1, seeds=8), "--csv", files["csv"], "--markdown", files["markdown"], "--output", files["json"]
    )  # fmt: skip
    assert result.exit_code == 3
    assert files["csv"].read_text().startswith("labels exchanged for,better or worse")
    assert files["markdown"].read_text().startswith("# Calibration")
    assert json.loads(files["json"].read_text())["state"] == "own unit"
    assert "columns: arm from arm" in result.stdout


def test_python_gives_the_same_answer(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table(tasks=1, seeds=8)
    answer = package.calibrate(runs, margin=1.0)
    assert answer.state == "own unit" and answer.exit_code == 3
    assert (
        answer.exchanged[0].power
        == facts(bakeoff("calibrate", runs, "--margin", "1", "--json"))["exchanged"][0]["power"]
    )
    with pytest.raises(UsageError, match="replicate"):
        package.calibrate(runs, replicas=3)


FILE = """\
name = "sorting"
seeds = "1..9"
[params]
command = ["true"]
[[arms]]
name = "old"
[[arms]]
name = "new"
[[arms]]
name = "same"
[analysis]
metric = "score"
primary = ["speed"]
margin = 0.5
"""


def outcome(arm: str, seed: int) -> dict[str, Any]:
    score = float(np.random.default_rng([seed, *arm.encode()]).normal()) + (arm == "new")
    return {"status": "succeeded", "metrics": {"score": score, "speed": score**3}}


@pytest.mark.slow
def test_an_edition_is_calibrated_as_a_family_and_its_report_has_a_page(
    bakeoff: Bakeoff, make_edition: Callable[..., Edition]
) -> None:
    """Three arms and two metrics: any false verdict among four counts."""
    edition = make_edition("sorting", outcome, text=FILE, files=False)
    name = str(edition.paths.directory)
    result = bakeoff("calibrate", name, "--json", *FEW)
    assert result.exit_code == 3 and rates(result)["seed"] < 0.09
    assert facts(result)["settings"]["margins"] == {"score": 0.5, "speed": 0.5}
    bakeoff("report", name)
    pages = edition.paths.directory / "report"
    assert not (pages / "calibration.html").exists()
    bakeoff("report", name, "--calibrate")
    assert "holds by construction" in (pages / "calibration.html").read_text()
    assert 'href="calibration.html"' in (pages / "index.html").read_text()


def rows_of(rng: np.random.Generator, seeds: int = 12) -> list[dict[str, Any]]:
    return [
        {"arm": arm, "seed": seed, "score": float(rng.normal())} for arm in ("main", "branch") for seed in range(seeds)
    ]


@pytest.mark.slow
def test_the_rates_of_a_gate_are_those_of_the_gate_on_fresh_runs_without_an_effect() -> None:
    rng = np.random.default_rng(3)
    policy = {"metrics": {"score": {"max_regression": 0.6}}}
    codes = [package.gate(rows_of(rng), policy=policy).exit_code for _ in range(150)]
    known = [
        package.calibrate(rows_of(rng), policy=checked(policy), replicates=300).exchanged[0].gate_undecided
        for _ in range(12)
    ]
    undecided = float(np.mean([rate for rate in known if rate is not None]))
    assert 0.2 < undecided < 0.95 and abs(undecided - codes.count(3) / len(codes)) < 0.15


def test_a_gate_that_asks_for_an_improvement_does_not_pass_on_identical_inputs(
    bakeoff: Bakeoff, table: Callable[..., str]
) -> None:
    path = table(tasks=12, seeds=1)
    told = json.loads(bakeoff("calibrate", path, "--must-improve", "score", "--json", *FEW).stdout)
    assert told["gate_sentence"].startswith("On identical inputs this gate would fail ")
    (exchanged,) = told["exchanged"]
    assert exchanged["gate_fails"] + exchanged["gate_undecided"] > 0.9
    assert "gate would fail" in bakeoff("calibrate", path, "--max-regression", "score=0.5", *FEW).stdout
    without = json.loads(bakeoff("calibrate", path, "--metric", "score", "--json", *FEW).stdout)
    assert without["gate_sentence"] == "" and without["exchanged"][0]["gate_fails"] is None


def test_too_few_units_cannot_say_how_often_a_gate_fails(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    told = bakeoff("calibrate", table(tasks=4, seeds=1), "--max-regression", "score=0.5", *FEW)
    assert told.exit_code == 3 and "Too little data to tell how often this gate would fail" in told.stdout


def test_a_policy_names_the_arms_and_the_direction(bakeoff: Bakeoff, table: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'control = "new"\n[metrics.score]\ndirection = "minimize"\nmax_regression = 0.5\n'
    )
    told = json.loads(bakeoff("calibrate", table(), "--policy", "policy.toml", "--json", *FEW).stdout)
    assert told["exchanged"][0]["gate_fails"] is not None
