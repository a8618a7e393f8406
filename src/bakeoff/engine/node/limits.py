"""Limits of time and memory on a process tree, and why a process ended."""

from __future__ import annotations

import signal
import time
from typing import Literal, NamedTuple

from bakeoff.engine import cgroup, processes
from bakeoff.spec.experiment import Limits
from bakeoff.spec.workload import Status

_MEMORY_INTERVAL = 0.1
_KILL_INTERVAL = 0.5

Reason = Literal["timeout", "cancelled", "memory"]


class Ending(NamedTuple):
    """How an attempt ended that did not end by itself."""

    status: Status
    error: str


class Watch:
    """Watches the tree below `pid`. `reason` says why it was ended, if it was."""

    def __init__(self, pid: int, mark: str, limits: Limits) -> None:
        self._pid = pid
        self._mark = mark
        self._limits = limits
        self._memory_at = 0.0
        self._kill_at = 0.0
        self._deadline = 0.0
        self.reason: Reason | None = None
        self.ended_at = 0.0
        """When `end` was called, in seconds since the epoch."""
        self.restart()

    def restart(self) -> None:
        """Start the clock: a new run begins in the same process."""
        self._deadline = time.monotonic() + self._limits.time if self._limits.time is not None else float("inf")

    def check(self, now: float) -> None:
        """Enforce the limits; called several times a second. `now` is `time.monotonic()`."""
        if self.reason is not None:
            if now >= self._kill_at:
                processes.send(self._tree(), signal.SIGKILL)
                self._kill_at = now + _KILL_INTERVAL
        elif now >= self._deadline:
            self.end("timeout")
        elif self._limits.memory is not None and now >= self._memory_at:
            self._memory_at = now + _MEMORY_INTERVAL
            if processes.resident(processes.descendants([self._pid])) > self._limits.memory:
                self.end("memory")

    def end(self, reason: Reason) -> None:
        """End the tree: SIGTERM now, SIGKILL after the grace period. Only the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self.ended_at = time.time()
            # Memory does not wait: the next allocation may take the machine down.
            self._kill_at = time.monotonic() + (0.0 if reason == "memory" else self._limits.grace)
            if reason != "memory":
                processes.send(self._tree(), signal.SIGTERM)

    def why_ended(self, started_at: float, ended_at: float) -> Reason | None:
        """The reason that holds for an attempt between these times, in seconds since the epoch.

        It may have ended by itself before `end` was called: then the reason is not its own. Or it took longer than
        the limit and ended by itself before anybody looked: then it is late all the same.
        """
        if self.reason is not None and ended_at >= self.ended_at:
            return self.reason
        late = self._limits.time is not None and ended_at - started_at > self._limits.time
        return "timeout" if late else None

    def _tree(self) -> list[int]:
        return list({*processes.descendants([self._pid]), *processes.marked(self._mark)})


def ending(reason: Reason | None, limits: Limits) -> Ending | None:
    """Status and error of an attempt that was ended for a reason; None when there was none."""
    match reason:
        case "timeout":
            return Ending("timeout", f"took longer than {limits.time:g} s")
        case "memory":
            return Ending("failed", f"used more than {limits.memory:,} bytes of memory")
        case "cancelled":
            return Ending("cancelled", "stopped before it finished")
    return None


def death(code: int, oom_before: int) -> Ending:
    """Status and error of an attempt whose process ended by itself. `code` as `os.waitstatus_to_exitcode` gives it.

    SIGKILL, SIGTERM or SIGHUP that neither we nor the kernel's out-of-memory killer sent came from outside (a
    shutdown, a user's `kill`), so the arm is not to blame. `oom_before` is `cgroup.oom_kills()` when it started.
    """
    if code >= 0:
        return Ending("failed", f"ended its process (exit code {code})")
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    if -code == signal.SIGKILL and cgroup.oom_kills() > oom_before:
        return Ending("failed", "killed by the kernel: out of memory")
    if -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        return Ending("infra_error", f"killed from outside ({name})")
    return Ending("failed", f"killed by {name}")


def shell_code(code: int) -> int:
    """An exit code as shells count: 128 + signal for a signal."""
    return code if code >= 0 else 128 - code
