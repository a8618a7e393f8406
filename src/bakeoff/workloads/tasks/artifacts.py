"""Artifacts: what leaves the agent's box and is kept, and what a separate verifier finds at the same places."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Box
from bakeoff.workloads.tasks.model import Artifact, Step, Task
from bakeoff.workloads.tasks.start import remove

ALWAYS = Artifact("/logs/artifacts")
LARGEST_MB = 1024
"""More than this of a step is not kept: rollout by rollout, an agent could fill the disk."""


@dataclass(frozen=True, slots=True)
class Taken:
    source: str
    """Where it lay in the box."""
    place: Path
    """Where it lies now."""


def run_hooks(box: Box, step: Step) -> Iterator[str]:
    """Run the collect hooks; what became of those that failed, in words.

    None of them stops anything: the agent had this box for itself, and must not get out of its verification.
    """
    for hook in step.verifier.collect:
        ended = box.run(["bash", "-c", hook.command], timeout=hook.timeout, user=hook.user)
        if not ended.ok:
            why = f"took longer than {hook.timeout:g} s" if ended.timed_out else f"ended with code {ended.code}"
            yield f"verifier.collect: {hook.command!r} {why}"


def collect(box: Box, task: Task, step: Step, target: Path) -> list[Taken]:
    """Copy every artifact of the task and the step below `target`, by its destination or else its path in the box.

    What the agent did not make is left out; its tests will see.
    """
    remove(target)  # of a try before this one
    wanted = (ALWAYS, *task.artifacts, *step.artifacts)
    return [taken for artifact in wanted if (taken := _take(box, artifact, target)) is not None]


def hand_over(box: Box, taken: list[Taken]) -> None:
    """Put artifacts where they were."""
    for one in taken:
        box.put(one.place, one.source)


def keep(target: Path) -> str:
    """Leave what was collected where it is, unless it is too large, which is told."""
    size = sum(file.lstat().st_size for file in target.rglob("*")) >> 20
    if size <= LARGEST_MB:
        return ""
    remove(target)
    return f"{size} MB of artifacts are not kept; at most {LARGEST_MB} MB are"


def _take(box: Box, artifact: Artifact, target: Path) -> Taken | None:
    source = posixpath.normpath(posixpath.join("/", box.spec.workdir, artifact.source))
    place = target / (artifact.destination or source.lstrip("/"))
    remove(place)  # where one artifact lies in another, each is taken as it says
    try:
        box.get(source, place)
    except UsageError:
        return None
    if artifact is ALWAYS and place.is_dir() and not any(place.iterdir()):  # nobody asked for it and it is empty
        remove(target)
        return None
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            relative = Path(folder, name).relative_to(place).as_posix()
            if any(
                fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(name, pattern) for pattern in artifact.exclude
            ):
                remove(Path(folder, name))
    return Taken(source, place)
