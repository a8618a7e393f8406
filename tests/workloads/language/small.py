"""Parameters of a run that takes less than a second after its warm start, and a context to run it in."""

from __future__ import annotations

from pathlib import Path

from bakeoff.engine.node.context import Context
from bakeoff.records.run import Attempt

SMALL = {
    "task": "strings", "width": 32, "warm_steps": 120, "steps": 12, "batch_size": 4, "group_size": 8, "eval_every": 6,
    "eval_prompts": 32, "eval_samples": 4, "save_every": 3, "learning_rate": 5e-4,
}  # fmt: skip


def context(place: Path, attempt: int = 1) -> Context:
    """A run's context as the engine makes it; its directory is `place / "run"`."""
    order = Attempt(position=0, run_id="run", cell=0, arm="a", task="default", seed=0, rollout=0, number=attempt)
    return Context(order, place, place / "run")
