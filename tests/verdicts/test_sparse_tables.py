"""Tables from which runs, seeds or all noise are gone get an answer or one line that says why not."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from bakeoff.cli import main

Rows = list[dict[str, object]]


def ask(rows: Rows, directory: Path, *command: str) -> str:
    """Return what a command says about a table; an exception that is no exit fails the test."""
    path = directory / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    result = CliRunner().invoke(main, [command[0], str(path), *command[1:]])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.output


def table(tasks: int, seeds: int, noise: float = 1.0, key: str = "seed") -> Rows:
    """Return crossed seeds, or runs of each arm, with B better by 1."""
    rng = random.Random(0)
    of_task, of_seed = ([rng.gauss(0, 1) for _ in range(n)] for n in (tasks, seeds))
    return [
        {
            "arm": arm,
            "task": f"t{t}",
            key: s if key == "seed" else f"{arm}{s}",
            "status": "succeeded",
            "score": of_task[t] + of_seed[s] + (arm == "B") + noise * rng.gauss(0, 1),
        }
        for arm in "AB"
        for t in range(tasks)
        for s in range(seeds)
    ]


def lose(row: dict[str, object]) -> None:
    row |= {"status": "infra_error", "score": ""}


RUNS = ("--seed-from", "run_id", "--seeds", "crossed", "--unpaired")


def test_arms_that_differ_by_a_constant_leave_nothing_to_plan_with(tmp_path: Path) -> None:
    rows = table(6, 5, noise=0.0)
    assert "no spread at all" in ask(rows, tmp_path, "power", "--effect", "0.5")
    assert "0.062" in ask(rows, tmp_path, "compare", "--margin", "0.5")  # 2 / 2^5: five units, all equal


def test_one_task_that_is_left_is_no_table_to_plan_with(tmp_path: Path) -> None:
    rows = table(2, 6)
    for row in rows:
        if (row["arm"], row["task"]) == ("B", "t0"):
            lose(row)
    assert "undecided" in ask(rows, tmp_path, "compare", "--margin", "0.5")


def test_a_task_with_one_known_run_of_an_arm_is_no_table_to_plan_with(tmp_path: Path) -> None:
    rows = table(6, 2, key="run_id")
    lose(rows[-1])
    assert "undecided" in ask(rows, tmp_path, "compare", *RUNS)


@pytest.mark.parametrize("tasks", ["sample", "fixed"])
def test_a_share_of_the_control_is_known_where_cells_are_absent(tasks: str, tmp_path: Path) -> None:
    rows = [row for row in table(6, 6) if (int(str(row["seed"])) + int(str(row["task"])[1])) % 5]
    told = ask(rows, tmp_path, "calibrate", "--relative-margin", "0.5", "--tasks", tasks, "--replicates", "100")
    assert "called equivalent" in told and "nan" not in told


def test_runs_with_absent_cells_are_dealt_so_that_they_can_be_tested(tmp_path: Path) -> None:
    rows = [row for n, row in enumerate(table(5, 4, key="run_id")) if n % 7]
    assert "alpha holds" in ask(rows, tmp_path, "calibrate", *RUNS, "--replicates", "100")


def test_calibration_says_when_what_all_arms_share_is_too_little(tmp_path: Path) -> None:
    rows = table(4, 2)
    rows += [{**row, "arm": "C"} for row in rows[:8]]
    for row in rows:
        if (row["arm"] == "B" and row["seed"] == 0) or (row["arm"] == "C" and row["seed"] == 1 and row["task"] == "t1"):
            lose(row)
    told = ask(rows, tmp_path, "calibrate", "--seeds", "crossed", "--copies", "keep")
    assert "too few" in told


@pytest.mark.parametrize("verb", ["power", "calibrate"])
def test_an_arm_without_finished_runs_is_named(verb: str, tmp_path: Path) -> None:
    rows = table(4, 1)
    for row in rows:
        if row["arm"] == "B":
            lose(row)
    told = " ".join(ask(rows, tmp_path, verb).split())
    assert "every run of 'B' is missing" in told or "B against A: no task and seed has finished runs" in told


def test_runs_without_seeds_are_named_without_them(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "seed"} for row in table(5, 1)]
    lose(rows[0])
    told = ask(rows, tmp_path, "variance")
    assert "task t0, rollout 0" in " ".join(told.split()) and "None" not in told
