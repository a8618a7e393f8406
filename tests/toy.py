"""A toy experiment that is never run: two arms, three seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakeoff.records.edition import Edition
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import Experiment
from bakeoff.spec.plan import Plan

SETTINGS = frozenset({"function"})
Begin = Callable[..., Edition]
"""`begin(plan, runs=True)` makes an edition; a fixture of tests/records."""


def make_plan(**content: Any) -> Plan:
    given = {"name": "toy", "workload": "python", "matrix": {"lr": [1, 2]}, "seeds": 3, **content}
    given["params"] = {"function": "m:f", **content.get("params", {})}
    return expand(Experiment.model_validate(given), base=Path("/nowhere"))
