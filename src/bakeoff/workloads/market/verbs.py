"""Verbs and run options of the market on the command line, found through entry points. Imports nothing."""

VERBS: dict[str, tuple[str, str]] = {
    "market": ("bakeoff.workloads.market.cli", "Generate, play, serve and train on worlds of markets."),
}
"""Each verb's module, which has a click command called `command`, and its line in `bakeoff --help`."""

RUN_OPTIONS: dict[str, tuple[str, str]] = {
    "sandbox": ("NAME", "For tasks: bubblewrap, docker, podman, modal or none (default: SANDBOX_BACKEND)."),
}
"""Options of `bakeoff run` for this workload, the same as that of tasks. `MarketWorkload.configure` gets their values."""
