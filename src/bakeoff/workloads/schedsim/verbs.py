"""The verb that this workload adds to the command line (entry-point group `bakeoff.commands`). Imports nothing."""

from __future__ import annotations

VERBS: dict[str, tuple[str, str]] = {
    "schedsim": ("bakeoff.workloads.schedsim.command", "Simulate agent workflows under a scheduling policy."),
}
