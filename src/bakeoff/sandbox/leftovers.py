"""What a killed process could not take away: found by its mark, and removed by whoever starts next.

Every box has a directory named by its mark. In it are its files, unless those are on a volume that went with its last
process, and a list of its cgroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bakeoff.sandbox import cache, cgroups, marks

GROUPS = "cgroups"
"""The file with the paths of a box's cgroups."""


@dataclass(frozen=True, slots=True)
class Removed:
    boxes: int = 0
    groups: int = 0
    containers: int = 0


def boxes() -> Path:
    """Where every box has its directory."""
    return cache.directory("boxes")


def layers() -> Path:
    """Where boxes leave their layers that somebody asked for."""
    return cache.directory("layers")


def remove() -> Removed:
    """Remove files and cgroups of boxes whose maker is gone. Nothing of a living process is touched."""
    removed = groups = 0
    for path in (*boxes().iterdir(), *layers().iterdir()):
        if not marks.abandoned(path.name):
            continue
        if path.is_dir():
            listed = path / GROUPS
            groups += _remove_groups(map(Path, listed.read_text().splitlines()) if listed.exists() else ())
            cache.remove(path)
        else:
            path.unlink(missing_ok=True)
        removed += 1
    return Removed(removed, groups + _remove_groups(_unlisted()))


def _unlisted() -> Iterator[Path]:
    """Groups of dead makers beside those that we would make: of boxes whose directory is gone, or in another cache."""
    for parent in set(cgroups.parents().values()):
        for group in parent.glob(f"{marks.PREFIX}*"):
            if marks.abandoned(group.name.removeprefix(marks.PREFIX)):
                yield group


def _remove_groups(groups: Iterable[Path]) -> int:
    removed = 0
    for group in groups:
        if group.name.startswith(marks.PREFIX) and group.is_dir():
            try:
                cgroups.remove(group)
                removed += 1
            except OSError:
                continue  # stuck in the kernel: nothing in it runs, and it costs next to nothing
    return removed
