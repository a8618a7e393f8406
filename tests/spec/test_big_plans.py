"""The work for a big plan grows with its runs and not faster, whatever its shape, and iterating holds no runs."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import ExperimentFile

pytestmark = pytest.mark.slow
HUNDRED = list(range(100))
SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "few cells, many seeds": lambda times: {"matrix": {"a": [1, 2, 3, 4]}, "seeds": 500 * times},
    "many cells, few seeds": lambda times: {"matrix": {"a": HUNDRED[:20], "b": HUNDRED[: 4 * times]}, "seeds": 25},
    "many cells, one seed": lambda times: {
        "matrix": {"a": HUNDRED, "b": HUNDRED[: 2 * times], "c": HUNDRED[:10]},
        "seeds": 1,
    },
    "many cells, a rule about seeds": lambda times: {
        "matrix": {"a": HUNDRED[:50], "b": HUNDRED[: 2 * times]},
        "seeds": 20,
        "exclude": ["seed == 3 and a < 5"],
    },
}
"""Plans of 2,000 runs, so many times."""


def experiment(workload: str, **shape: Any) -> ExperimentFile:
    params = {"command": ["prog", "{a}", "{flags}"]} if workload == "command" else {"function": "m:f"}
    return ExperimentFile.model_validate({"name": "x", "workload": workload, "params": {**params, "lr": 0.1}, **shape})


@pytest.mark.usefixtures("untraced")  # counting lines takes four times as long as running them
@pytest.mark.parametrize(
    ("workload", "shape"), [*(("command", shape) for shape in SHAPES), ("python", "many cells, one seed")]
)
def test_a_plan_takes_no_more_than_linear_time(workload: str, shape: str) -> None:
    """benchmarks/plan.py measures how long it takes."""

    def seconds(times: int) -> float:
        begun = time.process_time()
        plan = expand(experiment(workload, **SHAPES[shape](times)), base=Path("/"))
        found = sum(1 for _ in plan)
        assert found == len(plan) and 0.98 * 2000 * times < found <= 2000 * times
        return time.process_time() - begun

    seconds(1)  # imports and caches are no part of this
    short, long = seconds(1), seconds(20)
    assert long < 80 * short, (short, long)  # linear is 20 times, quadratic is 400 times


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
