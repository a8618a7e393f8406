"""A process tree under limits: it is ended when its time or memory is used up, or when somebody asks."""

from __future__ import annotations

import signal
import time

from bakeoff.engine import cgroup, processes
from bakeoff.engine.executors.base import Reason
from bakeoff.spec.experiment import Limits

_MEMORY_INTERVAL = 0.1
_KILL_INTERVAL = 0.5


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
        self.asked_at = 0.0
        """When it was ended, in seconds since the epoch."""
        self.restart()

    def restart(self) -> None:
        """A new run begins in the same process."""
        self._deadline = time.monotonic() + self._limits.time if self._limits.time is not None else float("inf")

    def check(self, now: float) -> None:
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
        if self.reason is None:
            self.reason = reason
            self.asked_at = time.time()
            # Memory does not wait: the next allocation may take the machine down.
            self._kill_at = time.monotonic() + (0.0 if reason == "memory" else self._limits.grace)
            if reason != "memory":
                processes.send(self._tree(), signal.SIGTERM)

    def why_ended(self, started_at: float, ended_at: float) -> Reason | None:
        """The reason that holds for a run between these times, in seconds since the epoch.

        It may have ended by itself before it was asked to, or have been late before anybody looked.
        """
        if self.reason is not None and ended_at >= self.asked_at:
            return self.reason
        late = self._limits.time is not None and ended_at - started_at > self._limits.time
        return "timeout" if late else None

    def _tree(self) -> list[int]:
        return list({*processes.descendants([self._pid]), *processes.marked(self._mark)})


def verdict(reason: Reason | None, limits: Limits) -> tuple[str, str] | None:
    """Status and error of a run that was ended for a reason."""
    match reason:
        case "timeout":
            return "timeout", f"took longer than {limits.time:g} s"
        case "memory":
            return "failed", f"used more than {limits.memory:,} bytes of memory"
        case "cancelled":
            return "cancelled", "stopped before its end"
    return None


def death(code: int, oom_before: int) -> tuple[str, str]:
    """Status and error of a process that ended by itself. `code` as `os.waitstatus_to_exitcode` gives it.

    A signal to go that neither we nor the kernel's memory guard sent came from outside (a shutdown, somebody's hand):
    the machine's doing, not the arm's.
    """
    if code >= 0:
        return "failed", f"ended its process (exit code {code})"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    if -code == signal.SIGKILL and cgroup.oom_kills() > oom_before:
        return "failed", "killed by the kernel: out of memory"
    if -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        return "infra_error", f"killed from outside ({name})"
    return "failed", f"killed by {name}"
