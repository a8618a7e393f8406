"""Artifacts: what leaves the agent's box, and what a separate verifier finds at the same places."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.face import Box
from bakeoff.workloads.tasks.model import Artifact, Step, Task
from bakeoff.workloads.tasks.start import remove

ALWAYS = Artifact("/logs/artifacts")


@dataclass(frozen=True, slots=True)
class Taken:
    artifact: Artifact
    place: Path | None
    """Where it lies now; None where the box had no such thing."""


def collect(box: Box, task: Task, step: Step, target: Path) -> list[Taken]:
    """Run the collect hooks, then copy every artifact of the task and the step below `target`."""
    for hook in step.verifier.collect:
        ended = box.run(["bash", "-c", hook.command], timeout=hook.timeout, user=hook.user)
        if not ended.ok:
            raise InfraError(f"verifier.collect: {hook.command!r} ended with {ended.code}")
    target.mkdir(parents=True, exist_ok=True)
    wanted = (ALWAYS, *task.artifacts, *step.artifacts)
    return [_take(box, artifact, target / str(number)) for number, artifact in enumerate(wanted)]


def hand_over(box: Box, taken: list[Taken]) -> None:
    """Put artifacts where they were."""
    for one in taken:
        if one.place is not None:
            box.put(one.place, one.artifact.source)


def _take(box: Box, artifact: Artifact, place: Path) -> Taken:
    try:
        box.get(artifact.source, place)
    except UsageError:  # the agent did not make it; its tests will see
        return Taken(artifact, None)
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            relative = Path(folder, name).relative_to(place).as_posix()
            if any(
                fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(name, pattern) for pattern in artifact.exclude
            ):
                remove(Path(folder, name))
    return Taken(artifact, place)
