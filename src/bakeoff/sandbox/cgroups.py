"""Limits that the kernel enforces for a whole tree of processes: cgroups, version 1 or 2, where we may create them.

Groups are created below our own group (version 1) or beside it (version 2), so that limits on us hold for boxes too. A
controller that we cannot get is missing from `Groups.limited`, and the caller falls back on something weaker. The files
are described in the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.

    groups = Groups(planned(cache.unique_name()), Limits(memory_mb=512))
    for fd in groups.join_fds():
        os.write(fd, b"0")  # in the process that is to be limited
    usage(groups.paths).peak_memory
    groups.remove()
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

from bakeoff.engine import processes
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Limits

OWN_PIDS = 3
"""Processes of ours that count against a box: its starter, bwrap's monitor and the first process inside."""
BRIDGE_PIDS = 18
"""Threads of the bridge (bridge.py) that a box with `sockets` has beside its limit: eight connections. Further ones count."""
_V2_CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
_MIN_QUOTA_US = 1000  # the kernel refuses less (Documentation/scheduler/sched-bwc.rst)
_REMOVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group has used since it was created; None where no controller counts it."""

    peak_memory: int | None
    cpu_seconds: float | None
    oom_kills: int
    pids_refused: int


class Groups:
    """The cgroups of one box: one for each controller (version 1) or one for all (version 2), with limits set."""

    def __init__(self, planned: dict[str, Path], limits: Limits, *, bridged: bool = False) -> None:
        """Create the groups that `planned()` named. Raises OSError, with nothing left, when the kernel refuses.

        `bridged` says that the box has a bridge, which is in its groups.
        """
        self.paths = planned
        """Controller to group."""
        self.limited: set[str] = set()
        """Which of memory, pids and cpu the kernel limits for this box."""
        v2 = False
        try:
            for group in dict.fromkeys(planned.values()):
                group.mkdir()
                v2 = v2 or _is_v2(group)
            if limits.memory_mb is not None and "memory" in planned:
                group, size = planned["memory"], str(limits.memory_mb << 20)
                (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(size)
                # Without these a box would swap instead of being killed. Version 1 limits memory plus swap, version 2
                # swap alone; kernels without swap accounting have neither file. They come second: the sum may not be
                # below the limit of memory alone (cgroup-v1/memory.rst, memory.memsw.limit_in_bytes).
                for swap, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", size)):
                    if (group / swap).exists():
                        (group / swap).write_text(value)
                self.limited.add("memory")
            # pids.max counts threads too, and refuses fork(2) and clone(2) with EAGAIN (cgroup-v1/pids.rst).
            if limits.pids is not None and "pids" in planned:
                (planned["pids"] / "pids.max").write_text(str(limits.pids + OWN_PIDS + BRIDGE_PIDS * bridged))
                self.limited.add("pids")
            if limits.cpus is not None and "cpu" in planned:
                quota = max(int(limits.cpus * _PERIOD_US), _MIN_QUOTA_US)
                if v2:
                    (planned["cpu"] / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
                else:
                    (planned["cpu"] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                    (planned["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
                self.limited.add("cpu")
        except OSError:
            self.remove()
            raise

    def join_fds(self) -> list[int]:
        """Open `cgroup.procs` files. A process that writes `0` into each of them joins the groups.

        The kernel checks the credentials with which the file was opened, not those of the writer (the fix of
        CVE-2021-4197), so a process that has entered a box's user namespace can still join.
        """
        return [
            os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in dict.fromkeys(self.paths.values())
        ]

    def reset_peak(self) -> None:
        """Measure the peak of memory from now on. Only version 1 can do this on all kernels that we support."""
        if "memory" in self.paths and not _is_v2(self.paths["memory"]):
            (self.paths["memory"] / "memory.max_usage_in_bytes").write_text("0")

    def remove(self) -> None:
        """End what runs in the groups and remove them."""
        for group in dict.fromkeys(self.paths.values()):
            remove(group)
        self.paths = {}


def usage(groups: dict[str, Path]) -> Usage:
    """Read the counters of groups, which are given by controller.

    Called for `Groups.paths` of a box and for the groups of a container, which `engine.processes.cgroups_of` finds.
    """
    memory, pids = groups.get("memory"), groups.get("pids")
    if any(_is_v2(group) for group in groups.values()):
        cpu = groups.get("cpu")
        peak = _number(memory, "memory.peak")  # from Linux 5.19 on
        kills = processes.counter_in(memory, "memory.events", "oom_kill")
        seconds = processes.counter_in(cpu, "cpu.stat", "usage_usec") / 1e6 if cpu else None
    else:
        peak = _number(memory, "memory.max_usage_in_bytes")
        kills = processes.counter_in(memory, "memory.oom_control", "oom_kill")
        nanoseconds = _number(groups.get("cpuacct"), "cpuacct.usage")
        seconds = nanoseconds / 1e9 if nanoseconds is not None else None
    return Usage(peak, seconds, kills, processes.counter_in(pids, "pids.events", "max"))


def planned(name: str) -> dict[str, Path]:
    """Controller to the group that a box with this unique name would have. Nothing is created."""
    return {controller: parent / f"{cache.PREFIX}{name}" for controller, parent in parents().items()}


def remove(group: Path) -> None:
    """Kill what runs in a group and remove it. Right after its last process has ended a group can still be busy."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        # Read and killed again and again: a process that forks meanwhile may have a child that was not in the list.
        # `cgroup.kill`, which cannot miss one, is only in version 2 and from Linux 5.14 on (cgroup-v2.rst).
        processes.send(members(group), signal.SIGKILL)
        time.sleep(0.002)


def members(group: Path) -> list[int]:
    """Pids of the processes in a group; none when it does not exist."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


@once
def parents() -> dict[str, Path]:
    """Controller to the directory below which we may create groups with it. Empty when we may not at all."""
    hierarchies, unified = processes.cgroup_mounts()
    own = processes.cgroup_paths()
    usable: dict[str, Path] = {}
    for controller in processes.CONTROLLERS:
        if controller in hierarchies and controller in own:
            path = hierarchies[controller] / own[controller].lstrip("/")
            if os.access(path, os.W_OK) and _can_create(path):
                usable[controller] = path
    if usable or unified is None or "" not in own:
        return usable
    # Version 2: the nearest group above ours that we may write to and that passes controllers on to its children. Our
    # own group is left out: it holds processes (us), and the "no internal processes" rule of cgroup-v2.rst says that
    # such a group cannot enable controllers for children. Only the root of the hierarchy is exempt.
    path = unified / own[""].lstrip("/")
    for parent in (path, *path.parents):
        if parent != unified and unified not in parent.parents:
            break
        if parent == path and parent != unified:
            continue
        if not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
            continue
        for controller in _V2_CONTROLLERS:
            try:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                pass  # not ours to enable; it may be enabled already
        enabled = processes.text(parent / "cgroup.subtree_control").split()
        usable = {name: parent for name in _V2_CONTROLLERS if name in enabled}
        if usable and _can_create(parent):
            return usable
    return {}


def _is_v2(group: Path) -> bool:
    """Whether a group is in the unified hierarchy; only that one has this file."""
    return (group / "cgroup.controllers").exists()


def _can_create(parent: Path) -> bool:
    """Try it: permissions of the directory do not tell everything (read-only mounts, `cgroup.max.descendants`)."""
    probe = parent / f"{cache.PREFIX}{cache.unique_name('probe')}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _number(group: Path | None, file: str) -> int | None:
    """The number in a file of a group; None when there is no such file, or it says `max`."""
    text = processes.text(group / file).strip() if group else ""
    return int(text) if text.isdigit() else None
