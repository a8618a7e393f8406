"""The tasks that ship as examples hold what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.check import check
from bakeoff.workloads.tasks.loading import find_tasks, load_task
from support.processes import Lab

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

TASKS = find_tasks(Path(__file__).parents[3] / "examples" / "tasks")


def test_there_are_some_of_each_kind() -> None:
    tasks = [load_task(place) for place in TASKS]
    assert {"bug-fix", "refactor", "algorithm", "docs", "data"} <= {tag for task in tasks for tag in task.tags}
    assert sorted(task.format for task in tasks) == ["harbor"] * 3 + ["prepared"] * 3
    assert [task.notes for task in tasks] == [()] * 6


@pytest.mark.parametrize("place", TASKS, ids=lambda place: place.name)
def test_the_reference_passes_and_nothing_fails(place: Path, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    before = directory_digest(place)
    findings = list(check(load_task(place), bubblewrap, tmp_path))
    assert [finding for finding in findings if finding.ok is not True] == []
    assert {"reference passes", "doing nothing fails"} <= {finding.name for finding in findings}
    assert directory_digest(place) == before


def test_every_run_of_the_example_file_can_be_scored_again(lab: Lab) -> None:
    lab.cli("run", TASKS[0].parents[1] / "rollouts.toml", "--set", "rollouts=1")
    rescored = json.loads(lab.cli("eval", "rollouts", "--json").stdout)
    assert rescored["failed"] == 0
    assert {(row["before"], row["after"]) for row in rescored["results"]} == {(0.0, 0.0), (1.0, 1.0)}
    assert len(rescored["results"]) == 12
