"""The verb of the gridworld on the command line, found through entry points. Imports nothing."""

VERBS: dict[str, tuple[str, str]] = {
    "gridworld": ("bakeoff.workloads.gridworld.command", "Watch agents in rooms of the gridworld; measure its speed."),
}
"""Each verb's module, which has a click command called `command`, and its line in `bakeoff --help`."""
