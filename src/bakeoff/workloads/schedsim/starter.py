"""The example that `bakeoff init` writes for this workload, found through an entry point."""

from pathlib import Path

from bakeoff.spec.starters import Starter

STARTER = Starter(
    "a sweep of scheduling policies and ablations, in the sweep runner's format",
    Path(__file__).parent / "starter", "sweep.json",
)  # fmt: skip
