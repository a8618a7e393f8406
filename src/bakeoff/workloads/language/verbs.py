"""The verb of this workload on the command line, found through an entry point. Imports nothing."""

from __future__ import annotations

VERBS: dict[str, tuple[str, str]] = {
    "language": ("bakeoff.workloads.language.command", "Train small language models by reinforcement learning."),
}
