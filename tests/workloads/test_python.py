"""The `python` workload: how a function is called and what its answer becomes."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from bakeoff.spec.workload import Outcome
from bakeoff.workloads.python import PythonParams, PythonWorkload, as_outcome

CONTEXT: Any = SimpleNamespace(seed=7)

SOURCE = """
import functools
def plain(lr, steps=10): return {"lr": lr, "steps": steps}
def with_ctx(ctx, lr): return {"seed": ctx.seed, "lr": lr}
def with_context(context): return context.seed
def with_seed(seed, **others): return {"seed": seed, "others": len(others)}
def rest(**all): return {"n": len(all)}
class Trainer:
    @staticmethod
    def train(seed): return seed
partial = functools.partial(plain, 0.5)
smallest = min
"""


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("code")
    (directory / "toy_experiment.py").write_text(SOURCE)
    sys.path.insert(0, str(directory))
    yield
    sys.path.remove(str(directory))
    sys.modules.pop("toy_experiment", None)


def run(function: str, **params: Any) -> Outcome:
    return PythonWorkload().run(
        PythonParams.model_validate({"function": f"toy_experiment:{function}", **params}), CONTEXT
    )


@pytest.mark.parametrize(
    ("function", "params", "metrics"),
    [
        ("plain", {"lr": 0.1}, {"lr": 0.1, "steps": 10}),
        ("with_ctx", {"lr": 0.1}, {"seed": 7, "lr": 0.1}),
        ("with_context", {}, {"value": 7}),
        ("with_seed", {"a": 1, "b": 2}, {"seed": 7, "others": 2}),
        ("rest", {"a": 1}, {"n": 1}),
        ("Trainer.train", {}, {"value": 7}),
        ("partial", {"steps": 3}, {"lr": 0.5, "steps": 3}),
    ],
)
def test_a_function_gets_the_parameters_and_what_it_asks_for(
    function: str, params: dict[str, Any], metrics: Any
) -> None:
    assert run(function, **params) == Outcome(metrics)


def test_wrong_parameters_and_missing_functions_are_errors_of_the_call() -> None:
    with pytest.raises(TypeError):
        run("plain", learning_rate=1)
    with pytest.raises(AttributeError):
        run("missing")
    with pytest.raises(TypeError):
        run("smallest")


@pytest.mark.parametrize("name", ["f", "module", "module:", ":f", "a b:f", "a:f()", "a:1", "os;x:f", ""])
def test_what_is_no_function_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"package\.module:function"):
        PythonParams.model_validate({"function": name})


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, Outcome()),
        (3, Outcome({"value": 3})),
        (0.5, Outcome({"value": 0.5})),
        (True, Outcome({"value": True})),
        ("text", Outcome({"value": "text"})),
        ({}, Outcome()),
        ({"a": 1, "b": None}, Outcome({"a": 1, "b": None})),
        ({"a": {"b": 1}, 2: 3}, Outcome({"a.b": 1, "2": 3})),
        (np.float64(1.5), Outcome({"value": 1.5})),
        ({"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.array(2.0), "e": np.array([4])},
         Outcome({"a": 0.5, "b": 3, "c": True, "d": 2.0, "e": 4})),
        (Outcome({"a": np.float64(1)}, "failed", "why"), Outcome({"a": 1.0}, "failed", "why")),
    ],
)  # fmt: skip
def test_answers_become_metrics_of_plain_types(value: Any, outcome: Outcome) -> None:
    found = as_outcome(value)
    assert found == outcome
    for metric in found.metrics.values():
        assert type(metric) in (bool, int, float, str, type(None))


def test_not_a_number_stays_not_a_number() -> None:
    assert math.isnan(as_outcome({"a": np.nan}).metrics["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[1, 2], {"a": [1]}, {"a": np.zeros(3)}, {"a": 1j}, object(), {"a": Path("x")}])
def test_what_is_no_metric_is_told_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"metrics are numbers, and series go through ctx\.log"):
        as_outcome(value)
