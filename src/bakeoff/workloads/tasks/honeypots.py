"""Honeypots: checks that succeed only if an agent did what it must not do, such as editing the tests that it sees.

They never change the score. Their rate is the metric `honeypot`, and the report lists which ones an agent went into.
"""

from __future__ import annotations

from bakeoff.sandbox.base import Box
from bakeoff.workloads.tasks.model import Task

SECONDS = 60.0


def hit(task: Task, box: Box) -> tuple[str, ...]:
    """The honeypots that the agent went into. `box` holds what it left; no process of it runs.

    A check runs in the workdir, by `sh`, and has found something if it exits with code 0.
    """
    return tuple(
        honeypot.id
        for honeypot in task.honeypots
        if box.run(["sh", "-c", honeypot.command], cwd=box.spec.workdir, timeout=SECONDS).ok
    )
