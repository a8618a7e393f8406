"""The cgroups that processes are in, version 1 or 2, and what the kernel counts there. Nothing is made or limited here.

File formats are those of cgroups(7), and of the kernel's admin-guide pages cgroup-v1/memory and cgroup-v2.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")


def of(pid: int) -> dict[str, Path]:
    """Controller to the group that a process is in, as far as we see it."""
    hierarchies, unified = mounted()
    own = paths(str(pid))
    groups = {name: path / own[name].lstrip("/") for name, path in hierarchies.items() if name in own}
    if not groups and unified is not None and "" in own:  # version 2: one hierarchy for all controllers
        groups = dict.fromkeys(("memory", "pids", "cpu"), unified / own[""].lstrip("/"))
    return {name: path for name, path in groups.items() if path.is_dir()}


def oom_kills() -> int:
    """How many processes of our own group the kernel has killed because memory ran out.

    Where the group's count cannot be seen, it is the count of the whole machine.
    """
    counter = _counter()
    return field(counter.parent, counter.name, "oom_kill")


@cache
def _counter() -> Path:
    """Where the kernel counts for our group alone, without the groups inside it."""
    group = of(os.getpid()).get("memory") or mounted()[0].get("memory")  # a container may see its group as the root
    files = [group / "memory.events.local", group / "memory.oom_control"] if group else []
    return next((file for file in files if "oom_kill " in text(file)), Path("/proc/vmstat"))


def mounted() -> tuple[dict[str, Path], Path | None]:
    """Where each version 1 controller is mounted, and where version 2 is."""
    first: dict[str, Path] = {}
    second = None
    for line in text(Path("/proc/self/mounts")).splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup":
            first |= {option: Path(where) for option in options.split(",") if option in CONTROLLERS}
        elif kind == "cgroup2":
            second = Path(where)
    return first, second


def paths(pid: str = "self") -> dict[str, str]:
    """Controller to the path of a process's group; version 2 under the empty name."""
    groups: dict[str, str] = {}
    for line in text(Path("/proc", pid, "cgroup")).splitlines():  # hierarchy:controllers:path
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def text(path: Path) -> str:
    """The file's content; empty when it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def field(group: Path | None, file: str, name: str) -> int:
    """A counter in a file of `name value` lines; 0 when it is not there."""
    for line in text(group / file).splitlines() if group else ():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0
