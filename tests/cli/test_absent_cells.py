"""Tables of tasks x seeds in which combinations are absent, and equivalence of few units, as `compare` answers them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]
Table = Callable[..., str]
Place = tuple[int, int]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A CSV file without an average effect, in which one seed is good or bad on every task."""

    def write(
        tasks: int, seeds: int, absent: Iterable[Place] = (), absent_in_b: Iterable[Place] = (), *,
        by_seed: float = 1.0, effect: float = 0.0, noise: float = 0.3, draw: int = 0,
    ) -> str:  # fmt: skip
        rng = np.random.default_rng(draw)
        of_seed, of_task = by_seed * rng.normal(size=seeds), 0.3 * rng.normal(size=tasks)
        path = tmp_path / "runs.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["arm", "task", "seed", "score"])
            for task in range(tasks):
                for seed in range(seeds):
                    base = rng.normal()
                    better = base + effect + of_task[task] + of_seed[seed] + noise * rng.normal()
                    if (task, seed) not in set(absent):
                        rows.writerow(["a", f"t{task:02}", seed, round(base, 6)])
                        if (task, seed) not in set(absent_in_b):
                            rows.writerow(["b", f"t{task:02}", seed, round(better, 6)])
        return str(path)

    return write


def verdict(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)["comparisons"][0]


def decided(bakeoff: Bakeoff, table: Table, tasks: int, seeds: int, absent: Iterable[Place]) -> int:
    """In how many of 12 tables without an effect the verdict is better or worse."""
    words = [
        verdict(bakeoff("compare", table(tasks, seeds, absent, draw=draw), "--json"))["verdict"] for draw in range(12)
    ]
    return sum(word in ("better", "worse") for word in words)


@pytest.mark.parametrize("absent", [[(3, 2)], [(29, seed) for seed in range(1, 8)]], ids=["one cell", "one task"])
def test_an_absent_cell_does_not_make_the_task_the_unit(bakeoff: Bakeoff, table: Table, absent: list[Place]) -> None:
    """With the task as the unit 9 or 10 of these 12 tables without an effect get a verdict."""
    assert decided(bakeoff, table, 30, 8, absent) <= 2
    result = bakeoff("compare", table(30, 8, absent))
    assert f"units: both; {len(absent)} of 240 task-seed combinations were not run" in result.stdout


def test_a_cell_that_one_arm_lacks_is_missing_and_one_that_both_lack_is_not(bakeoff: Bakeoff, table: Table) -> None:
    both = verdict(bakeoff("compare", table(8, 6, [(0, 0)]), "--json"))
    one = verdict(bakeoff("compare", table(8, 6, [], [(0, 0)]), "--json"))
    assert (both["missing"], one["missing"]) == (0, 1)
    assert one["interval"]["high"] - one["interval"]["low"] > both["interval"]["high"] - both["interval"]["low"]


def test_a_large_effect_is_still_found_with_absent_cells(bakeoff: Bakeoff, table: Table) -> None:
    absent = [(task, seed) for task in range(10) for seed in range(6) if (task + seed) % 5 == 0]
    runs = table(10, 6, absent, effect=5.0, by_seed=0.5)
    for population in ((), ("--tasks", "fixed")):
        result = bakeoff("compare", runs, *population, "--verbose", "--method", "t", "--method", "hierarchical")
        assert "12 of 60 task-seed combinations" in result.stdout and "Better" in result.stdout
    fixed = verdict(bakeoff("compare", runs, "--tasks", "fixed", "--json"))
    assert fixed["verdict"] == "better" and "on these 10 tasks only (unit: seed, N = 6; 12 of 60" in fixed["sentence"]


def test_two_tasks_as_a_sample_are_undecided_as_a_table_and_on_these_tasks_only_they_are_not(
    bakeoff: Bakeoff, table: Table
) -> None:
    runs = table(2, 8, effect=1.0, by_seed=0.1)
    sample, fixed = bakeoff("compare", runs), bakeoff("compare", runs, "--tasks", "fixed")
    assert (sample.exit_code, fixed.exit_code) == (3, 0)
    assert "2 tasks leave 1 degree of freedom" in sample.stdout


def test_nested_seeds_look_crossed_whatever_is_absent(bakeoff: Bakeoff, table: Table) -> None:
    result = bakeoff("compare", table(12, 6, [(0, 0), (5, 3)]), "--seeds", "nested")
    assert "look crossed" in result.stdout


def test_two_blocks_that_share_nothing_are_two_units(bakeoff: Bakeoff, table: Table) -> None:
    absent = [(task, seed) for task in range(6) for seed in range(10) if (task < 3) != (seed < 5)]
    result = bakeoff("compare", table(6, 10, absent, effect=9.0))
    assert result.exit_code == 3
    assert "2 blocks that share neither tasks nor seeds" in result.stdout
    assert "run some seeds of each block on tasks of the other" in result.stdout
    absent = [(task, seed) for task in range(16) for seed in range(16) if task // 2 != seed // 2]
    many = bakeoff("compare", table(16, 16, absent, effect=9.0))
    assert many.exit_code == 0 and "units: 8 blocks that share neither" in many.stdout


def test_one_seed_with_most_of_the_weight_is_named(bakeoff: Bakeoff, table: Table) -> None:
    absent = [(task, seed) for task in range(3, 20) for seed in range(1, 5)]
    result = bakeoff("compare", table(20, 5, absent, effect=1.0))
    assert result.exit_code == 3 and "seed 0 has 88 % of the weight" in result.stdout


@pytest.mark.parametrize("command", ["variance", "rank", "summarize", "power", "calibrate"])
def test_the_other_questions_answer_about_absent_cells_too(bakeoff: Bakeoff, table: Table, command: str) -> None:
    options = ("--replicates", "100") if command == "calibrate" else ()
    result = bakeoff(command, table(10, 7, [(0, 0), (4, 2)]), *options)
    assert result.exit_code in (0, 1, 3), result.stderr


def test_few_units_are_equivalent_only_well_inside_the_margin(bakeoff: Bakeoff, tmp_path: Path) -> None:
    differences = (0.1, -0.2, 0.3, 0.0, 0.15)
    rows = [f"{arm},{seed},{seed + (d if arm == 'b' else 0)}" for arm in "ab" for seed, d in enumerate(differences)]
    (tmp_path / "runs.csv").write_text("arm,seed,score\n" + "\n".join(rows) + "\n")
    near, far = (bakeoff("compare", "runs.csv", "--margin", margin) for margin in ("0.3", "0.4"))
    assert (near.exit_code, far.exit_code) == (3, 0)
    assert "8 units would decide" in near.stdout
    assert verdict(bakeoff("compare", "runs.csv", "--margin", "0.3", "--json"))["reason"] == "too_few_for_equivalence"
    assert "the interval is widened" in far.stdout
    relative = bakeoff("compare", "runs.csv", "--relative-margin", "0.3", "--json")
    assert verdict(relative)["reason"] == "too_few_for_equivalence"


def test_one_task_of_a_mistyped_name_leaves_a_verdict_and_no_plan(bakeoff: Callable[..., Result]) -> None:
    scores = [(arm, "maze", seed, 0.1 * seed + (arm == "b")) for arm in "ab" for seed in range(3)]
    rows = [*scores, ("a", "maze", 3, 0.4), ("b", "maez", 3, 1.4)]
    Path("runs.csv").write_text("arm,task,seed,score\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    answered = bakeoff("compare", "runs.csv", "--metric", "score")
    assert answered.exit_code == 3, answered.stderr
    assert "such as task 'maez', seed 3" in answered.stdout or "such as task 'maze', seed 3" in answered.stdout


def test_power_of_an_arm_whose_runs_are_all_missing_is_one_line(bakeoff: Callable[..., Result]) -> None:
    Path("runs.csv").write_text("arm,task,status,score\na,t,infra_error,\nb,t,succeeded,0\nb,t,succeeded,1\n")
    refused = bakeoff("power", "runs.csv", "--metric", "score")
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert "every run of 'a' is missing" in refused.stderr
