"""Verbs of the market on the command line, as the entry-point group `bakeoff.commands` reads them. Imports nothing."""

VERBS: dict[str, tuple[str, str]] = {
    "market": ("bakeoff.workloads.market.cli", "Generate, play, serve and train on worlds of markets."),
}
"""Each verb's module, which has a click command called `command`, and its line in `bakeoff --help`."""
