"""A plan of 100,000 runs is made in seconds, whatever its shape, and iterating holds no runs."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bakeoff.spec import registry
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import Experiment

pytestmark = pytest.mark.slow
SECONDS = 2.0
BUSY = 3.0
"""How much slower a machine may be that does other things at the same time."""

HUNDRED = list(range(100))
SHAPES: dict[str, dict[str, Any]] = {
    "4 cells x 25,000 seeds": {"matrix": {"a": [1, 2, 3, 4]}, "seeds": 25_000},
    "1,000 cells x 100 seeds": {"matrix": {"a": HUNDRED, "b": HUNDRED[:10]}, "seeds": 100},
    "10,000 cells x 10 seeds": {"matrix": {"a": HUNDRED, "b": HUNDRED}, "seeds": 10},
    "100,000 cells x 1 seed": {"matrix": {"a": HUNDRED, "b": HUNDRED, "c": HUNDRED[:10]}, "seeds": 1},
}


def experiment(workload: str, **shape: Any) -> Experiment:
    params = {"command": ["prog", "{a}", "{flags}"]} if workload == "command" else {"function": "m:f"}
    return Experiment.model_validate({"name": "x", "workload": workload, "params": {**params, "lr": 0.1}, **shape})


@pytest.mark.usefixtures("untraced")  # counting lines takes four times as long as running them
@pytest.mark.parametrize(
    ("workload", "shape"), [*(("command", shape) for shape in SHAPES), ("python", "100,000 cells x 1 seed")]
)
def test_a_plan_of_100000_runs_is_made_in_two_seconds(workload: str, shape: str) -> None:
    registry.workload(workload)  # importing it is no part of this
    begun = time.process_time()
    plan = expand(experiment(workload, **SHAPES[shape]), base=Path("/"))
    found = sum(1 for _ in plan)
    took = time.process_time() - begun
    assert found == len(plan) == 100_000
    assert took < SECONDS * BUSY, f"{took:.2f} s"


def test_iterating_over_a_plan_holds_no_runs() -> None:
    plan = expand(experiment("python", matrix={"a": HUNDRED}, seeds=300), base=Path("/"))
    for _ in plan:
        pass  # ids and the like are cached by now
    tracemalloc.start()
    try:
        for _ in plan:
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000, f"{peak} bytes for {len(plan)} runs"


def test_rules_about_seeds_keep_big_plans_quick() -> None:
    begun = time.process_time()
    plan = expand(
        experiment("python", matrix={"a": HUNDRED}, seeds=200, exclude=["seed == 3 and a < 5"]), base=Path("/")
    )
    assert len(plan) == 20_000 - 5
    assert time.process_time() - begun < SECONDS * BUSY
