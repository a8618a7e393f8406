"""The example that `bakeoff init` writes for this workload, found through an entry point."""

from pathlib import Path

from bakeoff.spec.starters import Starter

STARTER = Starter(
    "traders in a simulated market world, one of them yours",
    Path(__file__).parent / "starter", "market.toml", extra="market",
)  # fmt: skip
