"""Where boxes and images live on this machine, and names that say which process made something.

The cache is BAKEOFF_CACHE, else the user's cache directory. Everything temporary in it, every cgroup and every
container is named after the process that made it (`unique_name`), so that a later process can tell whether the
owner is gone (`owner_gone`) and remove what a killed process could not (`remove_abandoned`).
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bakeoff.engine import processes
from bakeoff.errors import UsageError
from bakeoff.trees import remove_tree

VARIABLE = "BAKEOFF_CACHE"
PREFIX = "bakeoff-"
"""Put before a unique name where others have names too: cgroups, containers."""
CGROUP_LIST = "cgroups"
"""The file in a box's directory with the paths of its cgroups, one in a line."""
_UNIQUE_NAME = re.compile(r"(?P<namespace>\d+)-(?P<pid>\d+)-(?P<born>\d+)-\d+(-[\w.-]+)?", re.ASCII)
_numbers = count(1)


def directory(*names: str) -> Path:
    """A directory of the cache, for this user alone, created when it is missing: `directory("images", "layers")`.

    Raises UsageError when it cannot be created or belongs to another user.
    """
    if chosen := os.environ.get(VARIABLE):
        base = Path(chosen).absolute()
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bakeoff"
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            writable = os.access(base, os.W_OK)
        except OSError:
            writable = False  # a user without a home directory
        if not writable:
            base = Path(tempfile.gettempdir()) / f"bakeoff-cache-{os.geteuid()}"
            base.mkdir(exist_ok=True, mode=0o700)
            # /tmp is for everybody: another user may have made this name first, as a link or with open modes.
            status = base.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise UsageError(f"{base} belongs to another user; set {VARIABLE} to a directory of yours")
    path = base.joinpath(*names)
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        # One by one: `mode` of mkdir holds for the last directory only.
        for place in (*reversed([place for place in path.parents if place.is_relative_to(base)]), path):
            place.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; set {VARIABLE} to a directory that can be written") from None
    return path


remove = remove_tree


@contextmanager
def scratch(word: str = "") -> Iterator[Path]:
    """A temporary directory. When this process is killed, the cleanup of a later process removes it.

    The caller may move it elsewhere, which is how a finished directory is put into place at once.
    """
    place = directory("boxes") / unique_name(word)
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        if place.exists():
            remove(place)


def unique_name(word: str = "") -> str:
    """A name that nothing else has: `<pid namespace>-<pid>-<start time>-<number>[-<word>]`.

    The start time is there because pids are used again; the namespace because pids of another container mean nothing
    here (pid_namespaces(7)).
    """
    pid, namespace = os.getpid(), os.stat("/proc/self/ns/pid").st_ino
    return f"{namespace}-{pid}-{processes.born(pid)}-{next(_numbers)}" + (f"-{word}" if word else "")


def owner_gone(name: str) -> bool:
    """Whether `name` is a unique name whose owner, a process of our pid namespace, does not run any more."""
    match = _UNIQUE_NAME.fullmatch(name)
    if match is None or int(match["namespace"]) != os.stat("/proc/self/ns/pid").st_ino:
        return False
    # The pid may belong to another process by now; then the start time differs. A zombie counts as gone.
    pid = int(match["pid"])
    return processes.born(pid) != int(match["born"]) or not processes.alive(pid)


@dataclass(frozen=True, slots=True)
class Removed:
    """How many directories of boxes and how many cgroups a cleanup removed."""

    boxes: int
    groups: int


def remove_abandoned() -> Removed:
    """Remove directories and cgroups of boxes whose owner is gone. Nothing of a running process is touched.

    Every box has a directory in `<cache>/boxes`, named by `unique_name`. In it are its files (unless they are on a
    volume, which went with the last process of the box) and a list of its cgroups. The first box that a process opens
    cleans up; so do a run of the tasks workload and `bakeoff sandbox clean`. Containers are removed by docker.py.
    """
    from bakeoff.sandbox import cgroups  # which imports this module

    boxes = groups = 0

    def remove_groups(listed: Iterable[Path]) -> None:
        nonlocal groups
        for group in listed:
            # A damaged list must not make us kill processes in a group that is not ours.
            if group.name.startswith(PREFIX) and group.is_dir():
                try:
                    cgroups.remove(group)
                    groups += 1
                except OSError:
                    continue  # stuck in the kernel: nothing in it runs, and it costs next to nothing

    for path in (*directory("boxes").iterdir(), *directory("layers").iterdir()):
        if not owner_gone(path.name):
            continue
        if path.is_dir():
            # The groups go first: if this process is killed in between, the next one still finds the list.
            if (listed := path / CGROUP_LIST).exists():
                remove_groups(map(Path, listed.read_text().splitlines()))
            remove(path)
        else:
            path.unlink(missing_ok=True)
        boxes += 1
    # Groups next to those that we would create, of boxes whose directory is gone or in another cache.
    nearby = [group for parent in set(cgroups.parents().values()) for group in parent.glob(f"{PREFIX}*")]
    remove_groups(group for group in nearby if owner_gone(group.name.removeprefix(PREFIX)))
    return Removed(boxes, groups)
