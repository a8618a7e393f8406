"""The example that `bakeoff init` writes for this workload, found through an entry point."""

from pathlib import Path

from bakeoff.spec.starters import Starter

STARTER = Starter(
    "coding agents on two tasks with hidden tests, in a sandbox",
    Path(__file__).parent / "starter", "tasks.toml", extra="tasks",
)  # fmt: skip
