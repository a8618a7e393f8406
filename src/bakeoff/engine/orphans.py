"""Processes that outlive the run that started them: found, told apart and ended.

The scheduler is a subreaper, so what a run leaves behind becomes the scheduler's child the moment the run's own
process ends. Such a child names its run by the mark in its environment or by its session. One that shed both (a daemon
started with `env -i`) can only be told by its age: it may belong to any run that was going on when it was born, and is
ended when the last of those has ended. A child in the scheduler's own session was started by the program that called
us and is left alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection

from bakeoff.engine import processes

_PATIENCE = 2.0


class Orphans:
    def __init__(self) -> None:
        self._before = frozenset(processes.children())
        self._home = os.getsid(0)
        self._doubtful: set[int] = set()
        """May belong to several runs, so no run is told that it left them."""

    def end(self, mark: str, pid: int, alive: Collection[int], rivals: Collection[int] = ()) -> int:
        """End what the run with this mark, whose first process was `pid`, left behind. Returns how many there were.

        `alive` are children that are no orphans; `rivals` those of them that may have left unmarked ones too.
        """
        found: set[int] = set()
        deadline = time.monotonic() + _PATIENCE
        while left := self._left(mark, pid, alive, rivals):
            found.update(left)
            processes.send(processes.descendants(left), signal.SIGKILL)
            for orphan in left:  # its own children become ours only now, and are found in the next round
                processes.reap(orphan, patience=max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                break  # it sits in the kernel; the warden tries again at the end
        certain = len(found - self._doubtful)
        self._doubtful -= found
        return certain

    @property
    def any_doubtful(self) -> bool:
        """Something unmarked is still about, and may hold a file open that it was given."""
        self._doubtful = {pid for pid in self._doubtful if processes.alive(pid)}
        return bool(self._doubtful)

    def _left(self, mark: str, pid: int, alive: Collection[int], rivals: Collection[int]) -> list[int]:
        left = []
        for child in processes.children():
            if child == pid or child in alive or child in self._before:
                continue
            session = processes.session_of(child)
            if session is None or session == self._home:
                continue
            if not processes.alive(child):
                processes.reap(child)
                continue
            named = processes.mark_of(child)
            if named is not None:
                mine = named.startswith(mark)
            elif session == pid or session in alive:
                mine = session == pid
            else:
                mine = self._nobody_elses(child, rivals)
            if mine:
                left.append(child)
        return left

    def _nobody_elses(self, orphan: int, rivals: Collection[int]) -> bool:
        birth = processes.born(orphan)
        if any(processes.born(rival) <= birth for rival in rivals):
            self._doubtful.add(orphan)
            return False
        return True
