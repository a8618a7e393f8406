"""Tasks in groups (`repo`): a declared group is the unit and is named as such, and what cannot use it says so."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    """Two arms on tasks in groups of these sizes; one effect for each group, and as much noise as asked for."""

    def write(sizes: Sequence[int], effects: Sequence[float], noise: float = 0.3, seeds: int = 0) -> str:
        rng = np.random.default_rng(3)
        group = np.repeat(np.arange(len(sizes)), sizes)
        path = tmp_path / "runs.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["arm", "task", "repo", *(["seed"] if seeds else []), "score"])
            for arm in "ab":
                for task, g in enumerate(group):
                    for seed in range(seeds or 1):
                        score = effects[g] * (arm == "b") + noise * float(rng.normal())
                        rows.writerow([arm, f"t{task:02}", f"r{g}", *([seed] if seeds else []), f"{score:.5f}"])
        return str(path)

    return write


def test_declared_groups_are_the_units_and_are_named(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table([8, 6, 6, 5, 5, 4, 4, 2], [1.0, 0.8, 1.1, 0.9, 1.2, 0.7, 1.0, 0.9])
    shown = bakeoff("compare", runs, "--cluster", "repo", "--verbose")
    assert shown.exit_code == 0 and "unit: repo, N = 8" in shown.stdout
    assert "unit: task" not in shown.stdout
    assert "8 groups of tasks by 'repo' are the units" in shown.stdout
    (fact,) = json.loads(bakeoff("compare", runs, "--cluster", "repo", "--json").stdout)["comparisons"]
    assert fact["units"] == 8 and fact["p"] == pytest.approx(2 / 2**8), "every pattern of signs of 8 groups"
    gate = bakeoff("gate", runs, "--cluster", "repo", "--max-regression", "score=0.1", "--json")
    assert gate.exit_code == 0 and "unit: repo, N = 8" in gate.stdout


def test_what_can_be_detected_is_said_of_the_units_that_decide(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table([5] * 8, [1.0, -0.8, 0.6, -0.9, 0.7, -0.5, 0.9, -0.6])
    open_by_both = bakeoff("compare", runs, "--verbose").stdout
    assert "unit: task, N = 40" in open_by_both and "units can detect" not in open_by_both
    declared = bakeoff("compare", runs, "--cluster", "repo", "--verbose").stdout
    assert "unit: repo, N = 8" in declared and "8 units can detect" in declared


def test_too_few_groups_decide_nothing(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    for sizes in ([20, 20], [39, 1]):
        result = bakeoff("compare", table(sizes, [1.0, 1.0]), "--cluster", "repo")
        assert result.exit_code == 3 and "at least 3 independent units" in result.stdout
    result = bakeoff("compare", table([20], [1.0]), "--cluster", "repo")
    assert result.exit_code in (2, 3) and "better" not in result.stdout.lower()


def test_crossed_seeds_ask_groups_and_cannot_take_them_as_units(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table([3] * 8, [1.0] * 8, seeds=4)
    undeclared = bakeoff("compare", runs, "--seeds", "crossed", "--verbose")
    assert "tasks fall into 8 groups by 'repo'" in " ".join(undeclared.stdout.split())
    refused = bakeoff("compare", runs, "--seeds", "crossed", "--cluster", "repo")
    assert refused.exit_code == 2 and "--seeds fixed" in refused.stderr
    assert bakeoff("compare", runs, "--seeds", "fixed", "--cluster", "repo").exit_code == 0


def test_calibrate_says_how_often_tasks_as_units_are_wrong_where_groups_share_their_effect(
    bakeoff: Bakeoff, table: Callable[..., str]
) -> None:
    runs = table([5] * 8, [1.5, -1.5, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5], seeds=1)
    few = ("--replicates", "200")
    wrong = bakeoff("calibrate", runs, "--cluster", "none", *few)
    text = " ".join(wrong.stdout.split())
    assert wrong.exit_code == 1 and "exchanged for whole groups of tasks by 'repo'" in text, text
    assert "change the unit: --cluster repo" in text
    declared = bakeoff("calibrate", runs, "--cluster", "repo", *few)
    assert declared.exit_code == 3 and "8 groups of tasks by 'repo'" in declared.stdout


def test_calibrate_does_not_vouch_for_few_groups(bakeoff: Bakeoff, table: Callable[..., str]) -> None:
    runs = table([6] * 4, [1.5, -1.5, 1.0, -1.0], seeds=1)
    for said in ((), ("--cluster", "none")):
        result = bakeoff("calibrate", runs, *said, "--replicates", "200")
        text = " ".join(result.stdout.split())
        assert result.exit_code == 3 and "it takes 6 groups" in text and "--cluster repo would know of it" in text
