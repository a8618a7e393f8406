"""Every message on the page about refusals is what the command line says about such data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result

PAGE = (Path(__file__).parents[2] / "docs/refusals.md").read_text(encoding="utf-8")
ARMS = ("old", "new")
Rows = list[dict[str, Any]]


def noise(number: int) -> float:
    return float(np.random.default_rng(number).normal())


def rows(**levels: int) -> Rows:
    """One row for each arm and each combination of the levels, such as task=3, seed=8."""
    found: Rows = [{"arm": arm} for arm in ARMS]
    for name, size in levels.items():
        found = [{**row, name: number} for row in found for number in range(size)]
    return [{**row, "score": noise(number)} for number, row in enumerate(found)]


def renamed(table: Rows, **names: str) -> Rows:
    return [{names.get(name, name): value for name, value in row.items()} for row in table]


def grouped() -> Rows:
    """Forty tasks in eight groups that share an effect."""
    return [
        {"arm": arm, "task": task, "repo": f"r{task // 5}", "score": (arm == "new") * (1.0 + 4 * noise(task // 5)) + 0.1 * noise(100 * task + (arm == "new"))}
        for arm in ARMS
        for task in range(40)
    ]  # fmt: skip


def copied() -> Rows:
    return [{**row, "score": noise(7 * (row["seed"] // 2) + (row["arm"] == "new"))} for row in rows(seed=8)]


@dataclass(frozen=True)
class Case:
    """A table, a call, and what is said about it."""

    table: Rows
    code: int
    arguments: tuple[str, ...] = ()


def curved() -> Rows:
    """Trials of six seeds that are steps of a random walk."""
    table, values = rows(seed=6, trial=30), {}
    for row in table:
        walk = values.setdefault((row["arm"], row["seed"]), [0.0])
        walk.append(walk[-1] + row["score"])
        row["score"] = walk[-1]
    return table


def lucky() -> Rows:
    """Trials of which each is one policy: good or bad on every task."""
    return [
        {**row, "score": 3 * noise(row["trial"] + 50 * (row["arm"] == "new")) + 0.3 * row["score"]}
        for row in rows(task=10, trial=5)
    ]


def ranked() -> Rows:
    """Rows that got their seeds after they were sorted by score."""
    return [
        {"arm": arm, "seed": rank, "score": score}
        for arm in ARMS
        for rank, score in enumerate(sorted(row["score"] for row in rows(seed=9) if row["arm"] == arm))
    ]


def with_average() -> Rows:
    table = [{**row, "task": f"t{row['task']}"} for row in rows(task=9)]
    means = [
        {"arm": arm, "task": "average", "score": float(np.mean([r["score"] for r in table if r["arm"] == arm]))}
        for arm in ARMS
    ]
    return [*table, *means]


CASES = {
    "task-seed combinations were not run": Case(
        [row for row in rows(task=6, seed=5) if (row["task"], row["seed"]) != (3, 2)], 3
    ),
    "2 tasks leave 1 degree of freedom": Case(rows(task=2, seed=8), 3),
    "falls apart into 2 blocks": Case(
        [row for row in rows(task=4, seed=10) if row["task"] // 2 == row["seed"] // 5], 3
    ),
    "step from epoch": Case(rows(seed=6, epoch=10), 3),
    "counts the rows of every run up": Case(
        [{**row, "progress": row["progress"] * 0.5} for row in rows(seed=6, progress=10)], 2
    ),
    "names runs": Case([{**row, "checkpoint": f"{row['arm']}-{row.pop('k')}"} for row in rows(task=6, k=3)], 2),
    "by groups of tasks it is open": Case(grouped(), 3),
    "fewer than 6 groups": Case([{**row, "repo": f"r{row['task'] // 10}"} for row in rows(task=40)], 3),
    "than independent ones could have": Case(curved(), 2),
    "as if each were one run": Case(lucky(), 2),
    "each value equally often": Case(
        [{**row, "split": ("train", "test")[row.pop("half")]} for row in rows(task=8, half=2)], 2
    ),
    "it equals the mean of the other rows": Case(with_average(), 2),
    "tells the rows apart": Case([*rows(seed=8), {"arm": "old", "seed": 3, "score": 0.123}], 2),
    "share training data": Case(renamed(rows(seed=8), seed="fold"), 3, ("--seed-from", "fold")),
    "not used as a weight": Case([{**row, "n_samples": 10 + 3 * row["task"]} for row in rows(task=9)], 3),
    "have equal values in every arm, task and metric": Case(copied(), 2),
    "is sorted along the seeds in every arm": Case(ranked(), 2),
    "looks like an identifier": Case(renamed(rows(task=5, question=4), question="question_id"), 2),
    "is more 'loss' better, or less?": Case(renamed(rows(seed=8), score="loss"), 2),
    "fewer than 8 units cannot tell": Case(
        [{**row, "score": 0.1 * noise(row["seed"] + 10 * (row["arm"] == "new"))} for row in rows(seed=5)],
        3,
        ("--margin", "0.12"),
    ),
    "nothing says what a failure counts": Case(
        [{**row, "score": float("nan") if row["seed"] == 1 else row["score"]} for row in rows(seed=8)], 2
    ),
}


@pytest.mark.parametrize("message", CASES)
def test_the_page_says_what_the_command_says(message: str, bakeoff: Callable[..., Result], tmp_path: Path) -> None:
    assert f"`{message}`" in PAGE
    case = CASES[message]
    pl.DataFrame(case.table).write_csv(tmp_path / "table.csv")
    result = bakeoff("compare", "table.csv", *case.arguments)
    assert message in " ".join(result.output.split()), result.output
    assert result.exit_code == case.code, result.output
