"""Processes as a tree: marks, descendants, orphans, memory, cgroups, and ending all of them. It reads /proc of Linux.

Every process of a run carries BAKEOFF_MARK in its environment, which its children inherit. The node is a subreaper
(prctl(2), PR_SET_CHILD_SUBREAPER), so a daemon that a run leaves behind becomes the node's child and can be found.

`python -m bakeoff.engine.processes MARK` is the supervisor of a node, which ends every process with the mark when the
node dies (`main`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

MARK = "BAKEOFF_MARK"
PAGE = mmap.PAGESIZE
# Numbers from <linux/prctl.h> and <linux/sched.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40
_PATIENCE = 2.0
"""Seconds that `Orphans.end` waits for killed processes to disappear."""
CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
"""Of cgroups."""
SPARED: set[int] = set()
"""Children of this process that serve it from one run to the next, so no run left them behind."""


# -- this process


def become_subreaper(on: bool = True) -> None:
    """Orphaned descendants of this process become its children instead of init's (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies.

    PR_SET_PDEATHSIG only covers a parent that dies later (prctl(2)). One that died before the call shows by another
    parent's pid, and this process exits at once.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    """Direct children of this process, adopted ones included."""
    tasks = os.listdir("/proc/self/task")
    return [int(pid) for task in tasks for pid in text(f"/proc/self/task/{task}/children").split()]


def has_children() -> bool:
    """Whether this process has any child. One system call, where listing them costs four."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap(pid: int, patience: float = 0.0) -> bool:
    """Collect the exit status of a child that has ended, or will within `patience` seconds. False: it still runs."""
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


# -- any process


def text(path: str | Path) -> str:
    """The content of a file of the kernel; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/pid/stat from the state on: the name before it may hold spaces and brackets (proc(5)).

    Empty when the process is gone.
    """
    return text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def born(pid: int) -> int:
    """When the process began, in clock ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def never_executed(pid: int) -> bool:
    """Whether this child, which has ended, was killed before it had become the program that it was to be.

    PF_FORKNOEXEC in the flags of /proc/pid/stat means: forked, and exec has not happened. WNOWAIT leaves the zombie
    in place, so that it can still be read and waited for.
    """
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is None or ended.si_code not in (os.CLD_KILLED, os.CLD_DUMPED):
        return False
    fields = _stat(pid)
    return bool(fields) and bool(int(fields[6]) & _PF_FORKNOEXEC)


def parents() -> dict[int, int]:
    """pid to parent's pid, of every process that can be seen."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}


def descendants(roots: Iterable[int]) -> list[int]:
    """All processes below `roots`, and the roots."""
    below: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        below.setdefault(parent, []).append(pid)
    pids, queue = [], list(roots)
    while queue:
        pid = queue.pop()
        pids.append(pid)
        queue += below.get(pid, [])
    return pids


def resident(pids: Iterable[int]) -> int:
    """Resident memory in bytes, summed. Shared pages count once for each process."""
    tables = (text(f"/proc/{pid}/statm").split() for pid in pids)
    return sum(int(fields[1]) * PAGE for fields in tables if fields)


def memory(pids: Sequence[int], limit: int) -> int:
    """Memory of these processes together in bytes, where pages that they share count once.

    That is the sum of their proportional set sizes (proc(5), smaps_rollup: a page that n processes map counts 1/n for
    each). Reading it walks all page tables, so resident memory is looked at first: it counts shared pages for each
    process, and so it is never less. Up to `limit` that is answer enough.

    The shares of the others grow when a process ends. So if one ended meanwhile, a total above the limit may have
    counted pages twice, and those that are left are counted again.
    """
    total = resident(pids)
    if total <= limit:
        return total
    total = 0
    for pid in pids:
        lines = text(f"/proc/{pid}/smaps_rollup").splitlines()
        size = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
        total += resident([pid]) if size is None else size  # it belongs to another user, or has ended
    if total > limit and len(left := [pid for pid in pids if alive(pid)]) < len(pids):
        return memory(left, limit)
    return total


# -- cgroups, version 1 or 2: what the kernel counts. Nothing is made or limited here. File formats are those of
# cgroups(7), and of the kernel's admin-guide pages cgroup-v1/memory and cgroup-v2.


def cgroups_of(pid: int) -> dict[str, Path]:
    """Controller to the group that a process is in, as far as we see it."""
    hierarchies, unified = cgroup_mounts()
    own = cgroup_paths(str(pid))
    groups = {name: path / own[name].lstrip("/") for name, path in hierarchies.items() if name in own}
    if not groups and unified is not None and "" in own:  # version 2: one hierarchy for all controllers
        groups = dict.fromkeys(("memory", "pids", "cpu"), unified / own[""].lstrip("/"))
    return {name: path for name, path in groups.items() if path.is_dir()}


def oom_kills() -> int:
    """How many processes of our own group the kernel has killed because memory ran out.

    Where the group's count cannot be seen, it is the count of the whole machine.
    """
    found = _OOM_KILLS.search(os.pread(_oom_counter(), 1 << 16, 0))
    return int(found[1]) if found else 0


_OOM_KILLS = re.compile(rb"^oom_kill (\d+)", re.MULTILINE)


@cache
def _oom_counter() -> int:
    """Where the kernel counts for our group alone, without the groups inside it: a file that stays open, since it is
    read before every command."""
    own = cgroups_of(os.getpid()).get("memory")
    group = own or cgroup_mounts()[0].get("memory")  # a container may see its group as the root
    files = [group / "memory.events.local", group / "memory.oom_control"] if group else []
    file = next((file for file in files if "oom_kill " in text(file)), Path("/proc/vmstat"))
    return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def cgroup_mounts() -> tuple[dict[str, Path], Path | None]:
    """Where each version 1 controller is mounted, and where version 2 is."""
    first: dict[str, Path] = {}
    second = None
    for line in text("/proc/self/mounts").splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup":
            first |= {option: Path(where) for option in options.split(",") if option in CONTROLLERS}
        elif kind == "cgroup2":
            second = Path(where)
    return first, second


def cgroup_paths(pid: str = "self") -> dict[str, str]:
    """Controller to the path of a process's group; version 2 under the empty name."""
    groups: dict[str, str] = {}
    for line in text(f"/proc/{pid}/cgroup").splitlines():  # hierarchy:controllers:path
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def counter_in(group: Path | None, file: str, name: str) -> int:
    """A counter in a file of `name value` lines; 0 when it is not there."""
    for line in text(group / file).splitlines() if group else ():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


# -- marks


def mark_of(pid: int) -> str | None:
    """The process's BAKEOFF_MARK; None when it has none, is gone, or belongs to another user."""
    _, found, rest = f"\0{text(f'/proc/{pid}/environ')}".partition(f"\0{MARK}=")
    return rest.partition("\0")[0] if found else None


def marked(prefix: str) -> list[int]:
    """Processes whose mark begins with `prefix`, without this one and its ancestors."""
    mine, pid, tree = {os.getpid()}, os.getpid(), parents()
    while pid in tree:
        pid = tree[pid]
        mine.add(pid)
    return [pid for pid in tree if pid not in mine and (mark_of(pid) or "").startswith(prefix)]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each process; those that are gone or not ours are skipped."""
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


class Orphans:
    """Finds and ends processes that outlive the run that started them.

    This process is a subreaper, so what a run leaves behind becomes our child the moment the run's own process ends.
    Such a child names its run by the mark in its environment or by its session. One that shed both (a daemon started
    with `env -i`) can only be identified by its age: it may belong to any run that was going on when it was born, and is
    ended when the last of those has ended. A child in our own session was started by the program that called us and
    is left alone.
    """

    def __init__(self) -> None:
        self.foster: int | None = None
        """A process that adopts orphans in our place: the first one of the namespace that commands are in."""
        self.own = set(children())
        """Children that are ours and no run's."""
        self._home = os.getsid(0)
        self._doubtful: set[int] = set()
        """They may belong to several runs, so no run's record mentions them."""

    def end(self, mark: str, pid: int, living: Collection[int], rivals: Collection[int] = ()) -> int:
        """End what the run with this mark, whose first process was `pid`, left behind. Returns how many there were.

        `living` are children that are not orphans; `rivals` those of them that may have left unmarked ones too.
        """
        ended: set[int] = set()
        deadline = time.monotonic() + _PATIENCE
        while left := self._left(mark, pid, living, rivals):
            ended.update(left)
            send(descendants(left), signal.SIGKILL)
            for orphan in left:  # its own children become ours only now, and are found in the next round
                reap(orphan, patience=max(0.0, deadline - time.monotonic()))
            if self.foster is not None:
                time.sleep(0.001)  # it collects them, and we cannot wait for that
            if time.monotonic() > deadline:
                break  # it sits in the kernel; the supervisor tries again at the end
        certain = len(ended - self._doubtful)
        self._doubtful -= ended
        return certain

    @property
    def any_doubtful(self) -> bool:
        """Whether an unmarked process is still around, which may hold files open that it inherited."""
        self._doubtful = {pid for pid in self._doubtful if alive(pid)}
        return bool(self._doubtful)

    def _left(self, mark: str, pid: int, living: Collection[int], rivals: Collection[int]) -> list[int]:
        left = []
        adopted = text(f"/proc/{self.foster}/task/{self.foster}/children").split() if self.foster is not None else ()
        for child in (*children(), *map(int, adopted)):
            if child == pid or child in living or child in self.own:
                continue
            try:
                session = os.getsid(child)
            except OSError:
                continue  # it is gone
            if session == self._home:
                continue
            if not alive(child):
                reap(child)
                continue
            named = mark_of(child)
            if named is not None:
                mine = named.startswith(mark)
            elif session == pid or session in living:
                mine = session == pid
            else:
                birth = born(child)
                mine = not any(born(rival) <= birth for rival in rivals)
                if not mine:
                    self._doubtful.add(child)
            if mine:
                left.append(child)
        return left


def main() -> None:
    """The supervisor: ends every process with the mark `sys.argv[1]` when its standard input ends.

    The node holds the other end of that pipe, and the kernel closes it when the node dies, whatever the signal. So
    `kill -9` of a scheduler also ends its runs.
    """
    # Whoever stops the scheduler by such a signal may send it to all its children: we have to outlive it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):  # nothing is ever written; it returns at end of file, when the last holder is gone
        pass
    end_marked(sys.argv[1])


if __name__ == "__main__":
    main()
