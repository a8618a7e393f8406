"""Parameters of a run that takes less than a second, and a context to run it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bakeoff.engine.node.context import Context
from bakeoff.records.run import Attempt

SMALL: dict[str, Any] = {
    "width": 40, "envs": 8, "unroll": 8, "steps": 512, "minibatches": 2, "held_out": 4, "eval_every": 4, "save_every": 3,
}  # fmt: skip


def context(place: Path, attempt: int = 1, arm: str = "a") -> Context:
    """A run's context as the engine makes it; its directory is `place / "run"`."""
    order = Attempt(position=0, run_id="run", cell=0, arm=arm, task="default", seed=0, rollout=0, number=attempt)
    return Context(order, place, place / "run")
