"""Processes as a tree: marks, descendants, memory, and ending all of them. Linux only: it reads /proc.

Every process of a run carries BAKEOFF_MARK in its environment, which its children inherit. The scheduler is a
subreaper, so a daemon that a run leaves behind becomes the scheduler's child and cannot hide.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable

MARK = "BAKEOFF_MARK"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40
PAGE = os.sysconf("SC_PAGE_SIZE")
SPARED: set[int] = set()
"""Children of this process that serve it from one run to the next: no run left them behind."""


def become_subreaper(on: bool = True) -> None:
    """Orphaned descendants of this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when its parent is gone; checked again since the parent may be gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    """Direct children of this process, adopted ones too."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def has_children() -> bool:
    """One system call, where listing them costs four."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def parents() -> dict[int, int]:
    """pid to parent's pid, of every process that can be seen."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                found[int(name)] = int(fields[1])
    return found


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/pid/stat from the state on (the name before it may hold spaces and brackets)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def alive(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] != b"Z"


def born(pid: int) -> int:
    """When the process began, in clock ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def never_executed(pid: int) -> bool:
    """Whether this child, which has ended, was killed before it had become the program that it was to be."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is None or ended.si_code not in (os.CLD_KILLED, os.CLD_DUMPED):
        return False
    fields = _stat(pid)
    return fields is not None and bool(int(fields[6]) & _PF_FORKNOEXEC)


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def reap(pid: int, patience: float = 0.0) -> bool:
    """Take leave of a child of ours that has ended, or will within `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)


def descendants(roots: Iterable[int]) -> list[int]:
    """All processes below `roots`, and the roots."""
    below: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        below.setdefault(parent, []).append(pid)
    found, queue = [], list(roots)
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += below.get(pid, [])
    return found


def mark_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = b"\0" + file.read()
    except OSError:
        return None
    _, found, rest = content.partition(f"\0{MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def marked(prefix: str) -> list[int]:
    """Processes whose mark begins with `prefix`, this one and its ancestors excepted."""
    mine, pid, tree = {os.getpid()}, os.getpid(), parents()
    while pid in tree:
        pid = tree[pid]
        mine.add(pid)
    return [pid for pid in tree if pid not in mine and (mark_of(pid) or "").startswith(prefix)]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_marked(prefix: str) -> int:
    """Kill every process with this mark, also those that are born meanwhile. Returns how many there were."""
    ended: set[int] = set()
    deadline = time.monotonic() + 5.0
    while pids := [pid for pid in marked(prefix) if alive(pid)]:
        ended.update(pids)
        send(pids, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return len(ended)


def resident(pids: Iterable[int]) -> int:
    """Resident memory in bytes, summed."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                total += int(file.read().split()[1]) * PAGE
        except (OSError, IndexError):
            continue
    return total
