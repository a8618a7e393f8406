"""Remove what killed processes left behind: directories and cgroups of boxes whose owner is gone.

Every box has a directory in `<cache>/boxes`, named by `cache.unique_name`. In it are its files (unless they are on
a volume, which went with the last process of the box) and a list of its cgroups. The first box that a process opens
cleans up; so does `bakeoff sandbox clean`. Containers are removed by docker.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bakeoff.sandbox import cache, cgroups

CGROUP_LIST = "cgroups"
"""The file in a box's directory with the paths of its cgroups, one in a line."""


@dataclass(frozen=True, slots=True)
class Removed:
    """How many directories of boxes and how many cgroups a cleanup removed."""

    boxes: int
    groups: int


def remove_abandoned() -> Removed:
    """Remove files and cgroups of boxes whose owner is gone. Nothing of a running process is touched."""
    boxes = groups = 0
    for path in (*cache.directory("boxes").iterdir(), *cache.directory("layers").iterdir()):
        if not cache.owner_gone(path.name):
            continue
        if path.is_dir():
            listed = path / CGROUP_LIST
            # The groups go first: if this process is killed in between, the next one still finds the list.
            groups += _remove_groups(map(Path, listed.read_text().splitlines()) if listed.exists() else ())
            cache.remove(path)
        else:
            path.unlink(missing_ok=True)
        boxes += 1
    # Groups next to those that we would create, of boxes whose directory is gone or in another cache.
    nearby = [group for parent in set(cgroups.parents().values()) for group in parent.glob(f"{cache.PREFIX}*")]
    groups += _remove_groups(group for group in nearby if cache.owner_gone(group.name.removeprefix(cache.PREFIX)))
    return Removed(boxes, groups)


def _remove_groups(groups: Iterable[Path]) -> int:
    """Remove those of `groups` that are ours and exist. Returns how many."""
    removed = 0
    for group in groups:
        if group.name.startswith(cache.PREFIX) and group.is_dir():
            try:
                cgroups.remove(group)
                removed += 1
            except OSError:
                continue  # stuck in the kernel: nothing in it runs, and it costs next to nothing
    return removed
