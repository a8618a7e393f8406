"""Limits that the kernel holds for a whole tree of processes: cgroups, version 1 or 2, where we may make groups.

Groups are made below our own (version 1) or beside it (version 2, whose inner groups hold no processes), so that
limits around us hold for boxes too. Whatever controller cannot be had is missing from `Groups.limited`, and the caller
falls back on something weaker.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakeoff.engine import cgroup, processes
from bakeoff.sandbox import marks
from bakeoff.sandbox.spec import Limits

_PERIOD_US = 100_000
_PATIENCE = 5.0
OWN_PIDS = 3
"""Processes of ours beside those of a command: its starter, bwrap's monitor and the first process of the box."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group has used since it was made, as far as its controllers tell."""

    peak_memory: int | None
    cpu_seconds: float | None
    oom_kills: int
    pids_refused: int


class Groups:
    """One group for each controller (version 1), or one for all (version 2), with limits written."""

    def __init__(self, planned: dict[str, Path], limits: Limits) -> None:
        self._groups = planned
        self.limited: set[str] = set()
        """Which of memory, pids and cpu the kernel holds."""
        try:
            for group in dict.fromkeys(planned.values()):
                group.mkdir()
            self._limit(limits)
        except OSError:
            self.remove()
            raise

    def _limit(self, limits: Limits) -> None:
        second = any(_is_second(group) for group in self._groups.values())
        if limits.memory_mb is not None and "memory" in self._groups:
            size = str(limits.memory_mb << 20)
            group = self._groups["memory"]
            (group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(size)
            for swap, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", size)):
                if (group / swap).exists():
                    (group / swap).write_text(value)
            self.limited.add("memory")
        if limits.pids is not None and "pids" in self._groups:
            (self._groups["pids"] / "pids.max").write_text(str(limits.pids + OWN_PIDS))
            self.limited.add("pids")
        if limits.cpus is not None and "cpu" in self._groups:
            quota = max(int(limits.cpus * _PERIOD_US), 1000)
            if second:
                (self._groups["cpu"] / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            else:
                (self._groups["cpu"] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (self._groups["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
            self.limited.add("cpu")

    def doors(self) -> list[int]:
        """Open descriptors: a process that writes `0` into each is in the groups."""
        paths = dict.fromkeys(self._groups.values())
        return [os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in paths]

    def forget_peak(self) -> None:
        """Measure the next peak from here, where the kernel can."""
        if "memory" in self._groups and not _is_second(self._groups["memory"]):
            (self._groups["memory"] / "memory.max_usage_in_bytes").write_text("0")

    def usage(self) -> Usage:
        return usage(self._groups)

    def remove(self) -> None:
        for group in dict.fromkeys(self._groups.values()):
            remove(group)
        self._groups = {}


def usage(groups: dict[str, Path]) -> Usage:
    memory, pids = groups.get("memory"), groups.get("pids")
    if any(_is_second(group) for group in groups.values()):
        cpu = groups.get("cpu")
        peak = _number(memory, "memory.peak")
        kills = cgroup.field(memory, "memory.events", "oom_kill")
        seconds = cgroup.field(cpu, "cpu.stat", "usage_usec") / 1e6 if cpu else None
    else:
        peak = _number(memory, "memory.max_usage_in_bytes")
        kills = cgroup.field(memory, "memory.oom_control", "oom_kill")
        spent = _number(groups.get("cpuacct"), "cpuacct.usage")
        seconds = spent / 1e9 if spent is not None else None
    return Usage(peak, seconds, kills, cgroup.field(pids, "pids.events", "max"))


def planned(mark: str) -> dict[str, Path]:
    """Controller to the group that a box with this mark would have."""
    return {controller: parent / f"{marks.PREFIX}{mark}" for controller, parent in parents().items()}


def remove(group: Path) -> None:
    """End what is in a group and remove it. Right after the last process has gone it can still be busy."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        processes.send(members(group), signal.SIGKILL)
        time.sleep(0.002)


def members(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


@cache
def parents() -> dict[str, Path]:
    """Controller to the directory below which we may make groups with it. Empty when we may not at all."""
    hierarchies, unified = cgroup.mounted()
    own = cgroup.paths()
    found: dict[str, Path] = {}
    for controller in cgroup.CONTROLLERS:
        if controller in hierarchies and controller in own:
            path = hierarchies[controller] / own[controller].lstrip("/")
            if os.access(path, os.W_OK) and _can_make(path):
                found[controller] = path
    if found or unified is None or "" not in own:
        return found
    return _second(unified, own[""])


def _second(mount: Path, own: str) -> dict[str, Path]:
    """The nearest group above ours that we may write to and that hands controllers down."""
    path = mount / own.lstrip("/")
    for parent in (path, *path.parents):
        if parent != mount and mount not in parent.parents:
            break
        if parent == path and parent != mount:
            continue  # it holds processes, ours at least, so it cannot hand controllers down
        if not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
            continue
        for controller in ("memory", "pids", "cpu"):
            try:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                pass  # it may be on already
        given = cgroup.text(parent / "cgroup.subtree_control").split()
        found: dict[str, Path] = {name: parent for name in ("memory", "pids", "cpu") if name in given}
        if found and _can_make(parent):
            return found
    return {}


def _is_second(group: Path) -> bool:
    return (group / "cgroup.controllers").exists()


def _can_make(parent: Path) -> bool:
    probe = parent / f"{marks.PREFIX}{marks.fresh('probe')}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _number(group: Path | None, file: str) -> int | None:
    text = cgroup.text(group / file).strip() if group else ""
    return int(text) if text.isdigit() else None
