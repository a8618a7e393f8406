"""Tasks that are a sample are added until it is decided; tasks and seeds that are both samples are looked at S, 2 S, 4 S."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.results.editions import edition_results
from bakeoff.verdicts.sequential import evidence_path
from bakeoff.verdicts.sequential.evidence_path import path_of, task_order
from support.processes import Lab, eventually

WORK = """
import time
def play(ctx, shift=0.0, slow=0.0):
    time.sleep(slow)
    return {"score": shift + float(ctx.rng("noise", own=True).normal())}
"""
FILE = """
name = "trial"
workload = "python"
jobs = 2
seeds = [0, 1]
params = {{ function = "work:play", slow = {slow} }}
tasks = [{tasks}]
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ shift = {shift} }}
[analysis]
metric = "score"
{analysis}
[sequential]
block = 4
"""


def experiment(lab: Lab, *, tasks: int = 30, **changes: Any) -> Path:
    names = ", ".join(f"{{ name = 'task-{number:02}' }}" for number in range(tasks))
    values = {"slow": 0.0, "shift": 1.5, "analysis": "", **changes}
    return lab.experiment(FILE.format(tasks=names, **values), work=WORK)


def told(lab: Lab) -> dict[str, Any]:
    with closing(lab.edition()) as edition:
        (one,) = evidence_path.report(edition_results(edition)).comparisons
    path = path_of(one)
    return {"verdict": one.verdict, "at": path.decided_at, "tasks": path.seeds, "e": path.paths.better.tolist()}


def test_tasks_are_added_in_an_order_that_says_nothing_about_them_until_it_is_decided(lab: Lab) -> None:
    experiment(lab)
    lab.run()
    found = told(lab)
    assert found["verdict"] == "better" and 7 <= len(found["tasks"]) < 30 and len(found["tasks"]) % 4 == 0
    every = sorted((f"task-{number:02}" for number in range(30)), key=task_order)
    assert list(found["tasks"]) == every[: len(found["tasks"])]
    # Two seeds of a task are one pair: they narrow it and never make one.
    assert lab.statuses()["succeeded"] == 2 * 2 * len(found["tasks"])
    (comparison,) = json.loads(lab.cli("compare", "trial", "--json").stdout)["sequential"]["comparisons"]
    assert comparison["verdict"] == "better"
    assert comparison["e_better"] == pytest.approx(np.exp(found["e"]))
    assert f"for tasks like these {len(found['tasks'])}" in comparison["sentence"]


def test_at_the_last_task_of_the_file_it_is_undecided(lab: Lab) -> None:
    experiment(lab, tasks=8, shift=0.0)
    told_by_run = json.loads(lab.cli("run", "trial.toml", "--json", code=3).stdout)
    assert told_by_run["sequential"]["max_tasks"] == 8
    assert told_by_run["sequential"]["comparisons"][0]["reason"] in ("max_seeds", "futility")


@pytest.mark.slow
def test_killed_and_started_again_it_takes_the_same_tasks_and_decides_the_same(lab: Lab) -> None:
    experiment(lab, slow=0.05)
    lab.run(jobs=2)
    undisturbed = told(lab)
    lab.root = lab.place / "disturbed"
    process = lab.start("run", "trial.toml")
    eventually(lambda: lab.statuses()["succeeded"] >= 5 or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    lab.cli("run", "trial.toml")
    assert told(lab) == undisturbed


def test_a_task_more_in_the_file_would_come_between_those_that_were_run(lab: Lab) -> None:
    file = experiment(lab, tasks=8, shift=0.0)
    lab.run()
    first = min((f"more-{number}" for number in range(100)), key=task_order)
    file.write_text(file.read_text().replace("tasks = [", f"tasks = [{{ name = '{first}' }}, "))
    with pytest.raises(UsageError, match="not the first of the file"):
        lab.run()


@pytest.mark.parametrize(
    ("tasks", "analysis", "more", "message"),
    [
        (6, "", "", "6 tasks can never decide"),
        (9, "", "max_seeds = 20", "the unit is the task"),
        (9, "", "goal = 'best'", "is for seeds"),
        (9, "seeds = 'crossed'", "", "2 S and 4 S"),
    ],
)
def test_what_could_never_give_a_valid_verdict_is_refused_before_anything_runs(
    lab: Lab, tasks: int, analysis: str, more: str, message: str
) -> None:
    file = experiment(lab, tasks=tasks, analysis=analysis)
    file.write_text(file.read_text() + more)
    with pytest.raises(UsageError, match=message):
        lab.run()
    assert not lab.root.exists()


def test_tasks_and_seeds_that_are_both_samples_are_looked_at_with_a_quarter_of_the_level_each_time(lab: Lab) -> None:
    file = experiment(lab, tasks=6, shift=0.4, analysis="seeds = 'crossed'")
    file.write_text(file.read_text().replace("[sequential]\nblock = 4\n", ""))
    levels = []
    for seeds in (3, 6, 12):
        lab.cli("run", "trial.toml", "--set", f"seeds=0..{seeds - 1}")
        shown = lab.cli("compare", "trial", "--json", code=None)
        (comparison,) = json.loads(shown.stdout)["comparisons"]
        levels.append(1.0 - comparison["decision_interval"]["level"])
    assert levels == pytest.approx([0.05, 0.05 / 4, 0.05 / 16])
