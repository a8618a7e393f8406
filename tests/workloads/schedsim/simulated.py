"""A short way to a finished simulation, and to the same model in SimPy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bakeoff.workloads.schedsim.engine import Engine
from bakeoff.workloads.schedsim.workload import SchedsimParams, simulate

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "peers"))
from simpy_schedsim import SimpyModel

__all__ = ["HARSH", "SimpyModel", "run"]

HARSH = Path(__file__).with_name("harsh.toml")
"""Scarce tokens, frequent failures, early timeouts."""


def run(seed: int = 1, trace: bool = True, **given: Any) -> Engine:
    """Small, routed and traced unless told otherwise."""
    params = {"workflows": 4, "pdfs": 4, "subqueries": 2, "enable_model_routing": True, **given}
    return simulate(SchedsimParams.model_validate(params), seed, Path.cwd(), trace=trace)
