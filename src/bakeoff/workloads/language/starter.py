"""The example that `bakeoff init` writes for this workload, found through an entry point."""

from pathlib import Path

from bakeoff.spec.starters import Starter

STARTER = Starter(
    "recipes of reinforcement learning on a small language model",
    Path(__file__).parent / "starter", "language.toml", extra="train",
)  # fmt: skip
