"""The example that `bakeoff init` writes for this workload, found through an entry point."""

from pathlib import Path

from bakeoff.spec.starters import Starter

STARTER = Starter(
    "policies with and without memory, trained in a gridworld",
    Path(__file__).parent / "starter", "gridworld.toml", extra="gridworld",
)  # fmt: skip
