"""Which arm goes first in a block is drawn by a recorded seed: no arm alone pays for what the first run leaves behind."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bakeoff.engine.queue import Order
from bakeoff.records.run import RunRecord
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import ExperimentFile
from support.process_pilots import install
from support.processes import Lab

CACHE = """
[params]
command = '''
echo {arm} {task} {seed} {rollout} >> order
if mkdir cache-{task}-{seed} 2> cache-error; then cost=77; else cost=15; fi
echo "{{\\"cost\\": $cost}}"
'''
[[arms]]
name = "first"
[[arms]]
name = "second"
[analysis]
metric = "cost"
direction = "minimize"
"""
TASKS = "".join(f'[[tasks]]\nname = "t{number:02}"\n' for number in range(40))
PILOTS = """
[executor]
kind = "processes"
pilots = 1
slots = 1
"""


def executed(lab: Lab) -> list[tuple[str, ...]]:
    """(arm, task, seed, rollout) of each run in the order in which they were executed."""
    return [tuple(line.split()) for line in (lab.place / "order").read_text().splitlines()]


def leaders(lab: Lab) -> Counter[str]:
    """How often each arm was the first of its (task, seed, rollout). Arms of a block run one after the other."""
    runs = executed(lab)
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    assert all(one[1:] == other[1:] and one[0] != other[0] for one, other in pairs)
    return Counter(one[0] for one, _ in pairs)


@pytest.mark.slow
def test_equal_arms_that_share_a_cache_are_not_told_apart(lab: Lab) -> None:
    lab.experiment(CACHE + TASKS)
    lab.cli("run", "trial.toml", "-j1")
    first = leaders(lab)["first"]
    assert 6 <= first <= 34  # fails once in 10^6 fair draws
    verdict = json.loads(lab.cli("compare", "trial", "--json", code=3).stdout)
    assert verdict["comparisons"][0]["verdict"] not in ("better", "worse")
    seed = json.loads(lab.look("status", "trial", "--json").stdout)["order_seed"]
    assert isinstance(seed, int)
    assert f"order seed  {seed}" in lab.look("status", "trial").stdout


@pytest.mark.slow
def test_the_seed_of_the_file_gives_the_same_order_on_every_executor_and_after_a_stop(lab: Lab) -> None:
    install(lab)
    text = "order_seed = 11\nrollouts = 2\nseeds = 12\n" + CACHE
    lab.experiment(text)
    lab.cli("run", "trial.toml", "-j1")
    at_once = executed(lab)
    assert len(at_once) == 48 and 1 <= leaders(lab)["first"] <= 23

    (lab.place / "order").unlink()
    lab.experiment(text + "[budget]\nruns = 7\n", "stopped")
    lab.cli("run", "stopped.toml", "-j1", code=None)
    lab.experiment(text, "stopped")
    lab.cli("run", "stopped.toml", "-j1")
    assert executed(lab) == at_once

    (lab.place / "order").unlink()
    lab.experiment(text + PILOTS, "piloted")
    lab.cli("run", "piloted.toml")
    assert executed(lab) == at_once


@pytest.mark.slow
def test_an_edition_keeps_the_order_that_it_was_begun_with(lab: Lab) -> None:
    lab.experiment("seeds = 30\n" + CACHE + "[budget]\nruns = 21\n")
    lab.cli("run", "trial.toml", "-j1", code=None)
    seed = json.loads(lab.look("status", "trial", "--json").stdout)["order_seed"]
    lab.experiment("seeds = 30\n" + CACHE)
    lab.cli("run", "trial.toml", "-j1")
    assert json.loads(lab.look("status", "trial", "--json").stdout)["order_seed"] == seed
    interrupted = executed(lab)
    (lab.place / "order").unlink()
    lab.experiment(f"order_seed = {seed}\nseeds = 30\n" + CACHE, "again")
    lab.cli("run", "again.toml", "-j1")
    assert executed(lab) == interrupted


@pytest.mark.slow
def test_blocks_of_a_sequential_test_are_drawn_too(lab: Lab) -> None:
    lab.experiment("seeds = 24\norder_seed = 3\n" + CACHE.replace("cost=15", "cost=77") + "[sequential]\nblock = 8\n")
    lab.cli("run", "trial.toml", "-j1", code=None)
    assert 2 <= leaders(lab)["first"] <= 22
    assert [row["seed"] for row in lab.rows()] == sorted(row["seed"] for row in lab.rows()), "positions follow the plan"


def record(position: int, cell: int, task: str, seed: int, arm: str) -> RunRecord:
    return RunRecord(
        position, f"{arm}-{task}-{seed}", cell, arm, task, seed, 0, "planned", 0, None, None, None, None, None, {}
    )


def test_cells_that_list_one_arm_after_the_other_are_executed_task_by_task(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Otherwise whatever changes over time would be a difference between arms."""
    experiment = ExperimentFile.model_validate(
        {
            "name": "trial",
            "params": {"command": "true"},
            "arms": [{"name": "a"}, {"name": "b"}],
            "tasks": [{"name": name} for name in "xyz"],
            "cells": [{"arm": arm, "task": task} for arm in "ab" for task in "xyz"],
        }
    )
    cells = expand(experiment, base=tmp_path_factory.getbasetemp()).cells
    runs = [record(cell.index, cell.index, cell.task.name, 0, cell.arm.name) for cell in cells]
    (block,) = Order(cells, 1).blocks(runs)
    assert [run.task for run in block] == ["x", "x", "y", "y", "z", "z"]
    first = {Order(cells, seed).blocks(runs).__next__()[0].arm for seed in range(20)}
    assert first == {"a", "b"}
