"""A node: one machine (or one share of it) that runs attempts. `open_node` opens the kind that a workload needs.

`Node` is what both kinds share: the run's directory, `meta.json`, the supervisor. `Watch` keeps a run within its limits
of time and memory; `ending` and `death` say why a process ended.

Once a run's own code was started, nothing that it can cause is an infrastructure failure: it would be tried again, and a
run that knows that it is losing could choose that.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from bakeoff.engine import processes
from bakeoff.engine.executors import Executor, NodeSetup
from bakeoff.engine.hardware import DeviceSlots, device_variables
from bakeoff.engine.node.collect import SMALL, Collected, Collector, collect
from bakeoff.engine.node.context import Context
from bakeoff.errors import UsageError
from bakeoff.records.logs import size_of_series
from bakeoff.records.run import Attempt, decode_json
from bakeoff.records.rundir import SERIES, write_meta
from bakeoff.records.secrets import hide_tree
from bakeoff.spec import registry
from bakeoff.spec.experiment import Limits
from bakeoff.spec.workload import Command, CommandWorkload, Equivalent, Status

_FULL = 16 * 1024
"""A disk with less free space than this, in bytes, is full."""
_SUPERVISOR_INTERVAL = 0.5
_CELLS = 1000
"""Of how many cells the parameters are remembered."""
_EXIT_CODES = {"succeeded": 0, "failed": 1}
"""How the command would have ended that an in-process run stands for."""
_MEMORY_INTERVAL = 0.1
_KILL_INTERVAL = 0.5
_STOPPING = tuple(128 + number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
"""Exit codes of runs that were ended by a signal which a shutdown sends to all processes, the scheduler among them."""
_DOUBT = 1.0
"""Seconds after such an end in which the scheduler may be asked to stop too: then the run was cancelled with it."""
Reason = Literal["timeout", "cancelled", "memory"]


class Node(Executor):
    """What both kinds of node share. A node is an `Executor` of this machine; the two kinds implement its methods."""

    def __init__(self, setup: NodeSetup) -> None:
        """First ends what an earlier scheduler of this edition left running."""
        self._setup = setup
        self._limits = setup.limits
        share = setup.resources.gpus
        self._devices = DeviceSlots(setup.gpus, share) if share else None
        # The session is part of the mark, so that the supervisor of a scheduler that was killed does not take the next
        # scheduler's runs for its own.
        self._mark = f"{setup.edition_mark}:{setup.session}"
        self._workload = registry.workload(setup.workload)
        self._dialect = registry.dialect(setup.dialect)
        self._settings = registry.settings(setup.workload)
        self._params: dict[int, Any] = {}
        self._unbegun: list[Attempt] = []
        """Attempts to give back."""
        self._concluded: list[Attempt] = []
        """Attempts that ended and are complete, for `wait` to return."""
        self._doubted: list[_Doubt] = []
        self._collecting: list[_Collecting] = []
        """Attempts that ended, with a series that is being read."""
        self._stop_at: float | None = None
        """`time.monotonic()` when the node was first asked to stop."""
        processes.end_marked(f"{setup.edition_mark}:")
        shutil.rmtree(setup.paths.scratch, ignore_errors=True)  # output of runs that a killed scheduler lost
        processes.become_subreaper()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._supervise_at = 0.0
        self._supervise()
        try:
            self._orphans = processes.Orphans()  # after the supervisor, which is not one
            self._open()
        except BaseException:
            Node.close(self)
            raise

    @abstractmethod
    def width(self) -> int:
        """How many attempts it can take at once when it has none: its slots, or more when runs are very short."""

    @abstractmethod
    def end(self, position: int) -> None:
        """End one attempt, which then comes back as cancelled, or as unbegun. A pilot calls it when its claim is over."""

    @abstractmethod
    def _open(self) -> None:
        """Set up what the kind of node needs."""

    def _supervise(self) -> None:
        """Start the supervisor (`processes.main`), or another one if it was killed. Call it often: it looks twice a
        second."""
        now = time.monotonic()
        if now < self._supervise_at:
            return
        self._supervise_at = now + _SUPERVISOR_INTERVAL
        if self._supervisor is not None:
            if self._supervisor.poll() is None:
                return
            assert self._supervisor.stdin is not None
            self._supervisor.stdin.close()
        mark = f"{self._mark}:"
        self._supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "bakeoff.engine.processes", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            env={**os.environ, processes.MARK: f"{mark}supervisor"},
        )

    def close(self) -> None:
        """Let the supervisor end what still carries the mark, and wait until it has."""
        for entry in self._collecting:
            entry.collector.end()
        assert self._supervisor is not None and self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        self._supervisor.wait()
        processes.become_subreaper(False)

    def _take_devices(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Devices for one run or worker, and the variables that name them; none where runs need none."""
        if self._devices is None:
            return (), {}
        devices = self._devices.take()
        assert devices is not None, "there are no more runs at a time than slots"
        return devices, device_variables(devices)

    def _give_devices(self, devices: tuple[str, ...]) -> None:
        if self._devices is not None:
            self._devices.give(devices)

    # -- one attempt

    def _context(self, attempt: Attempt) -> Context:
        return Context(attempt, self._setup.base, self._setup.paths.run(attempt.run_id))

    def _validated(self, attempt: Attempt) -> Any:
        """The attempt's parameters as the workload's model, validated once for each cell."""
        params = self._params.get(attempt.cell)
        if params is None:
            if len(self._params) >= _CELLS:
                self._params.clear()
            params = self._params[attempt.cell] = self._workload.Params.model_validate(decode_json(attempt.params))
        return params

    def _user_params(self, attempt: Attempt) -> dict[str, Any]:
        """The parameters without the settings that say how to run."""
        return {key: value for key, value in decode_json(attempt.params).items() if key not in self._settings}

    def _check_room(self) -> None:
        """Raise OSError when the disk is full: a run that is started now would fail, and its arm would not be to blame."""
        space = os.statvfs(self._setup.paths.directory)
        if space.f_bavail * space.f_frsize < _FULL:
            raise OSError(errno.ENOSPC, "the disk is full", str(self._setup.paths.directory))

    def refuse(self, attempt: Attempt, error: Exception) -> None:
        """The attempt cannot be started: nothing of the run has happened, so its arm has not failed."""
        named = isinstance(error, OSError) and error.filename
        text = f"{error.strerror}: {error.filename}" if named else str(error)  # type: ignore[attr-defined]
        attempt.status, attempt.error = "infra_error", f"cannot start: {text or type(error).__name__}"
        attempt.ended_at = attempt.started_at = attempt.started_at or time.time()
        self._concluded.append(attempt)

    def _conclude(
        self,
        attempt: Attempt,
        context: Context,
        command: Command | None = None,
        surrounded: Callable[[], bool] = lambda: True,
    ) -> None:
        """The attempt has a result: `wait` returns it as soon as it is certain and complete.

        It is not certain when a signal ended the run that a shutdown (systemd, a batch system) sends to all processes at
        once: if the scheduler is asked to stop within a moment as well, the run was cancelled. If what the run was in has
        ended (`surrounded`), which no run can cause, it was lost. Otherwise it has failed.
        """
        if attempt.status == "failed" and attempt.exit_code in _STOPPING:
            self._doubted.append(_Doubt(time.monotonic(), attempt, context, command, surrounded))
        else:
            self._complete(attempt, context, command)

    def _take_concluded(self) -> list[Attempt]:
        """Attempts that are certain and complete, for `wait` to return."""
        if self._doubted:
            now, doubted = time.monotonic(), self._doubted
            self._doubted = [doubt for doubt in doubted if now < doubt.since + _DOUBT and self._stop_at is None]
            for doubt in doubted:
                if doubt in self._doubted:
                    continue
                if self._stop_at is not None and doubt.since <= self._stop_at + _DOUBT:
                    doubt.attempt.status = "cancelled"
                    add_note(doubt.attempt, "everything was stopped at that moment")
                elif not doubt.surrounded():
                    doubt.attempt.status = "infra_error"
                    add_note(doubt.attempt, "the keeper of all commands was killed")
                self._complete(doubt.attempt, doubt.context, doubt.command)
        if self._collecting:
            read = [entry for entry in self._collecting if not entry.collector.busy()]
            self._collecting = [entry for entry in self._collecting if entry not in read]
            for collector, attempt, context, command in read:
                try:
                    self._take_series(attempt, collector.result(), command)
                except (OSError, ValueError) as error:
                    add_note(attempt, f"{SERIES} cannot be read: {error}")
                self._describe(attempt, context, command)
        concluded, self._concluded = self._concluded, []
        return concluded

    def _readers(self) -> list[int]:
        """Processes that read series. They are no run's, and one that just ends has no mark any more to tell it."""
        return [entry.collector.pid for entry in self._collecting]

    def _complete(self, attempt: Attempt, context: Context, command: Command | None = None) -> None:
        """Read the series that the run wrote into its directory, and write `meta.json` there.

        The run wrote whatever lies in the directory: nothing in it may end the scheduler. `command` is the one that
        was spawned; for an in-process run it is the equivalent one, when its workload knows that.
        """
        try:
            if context.path.is_symlink():  # readers of the edition would follow it
                context.path.unlink()
                add_note(attempt, "put a link in the place of its directory, deleted")
            if not context.path.is_dir():  # the run wrote nothing, so there is no directory to describe
                _check_steps(attempt, None, command)
                self._concluded.append(attempt)
                return
            if attempt.status == "failed":
                self._check_room()
        except OSError as error:
            add_note(attempt, error.strerror or str(error))
        if command is None and isinstance(self._workload, Equivalent):
            try:
                command = self._workload.equivalent(self._validated(attempt), context)
                attempt.exit_code = _EXIT_CODES.get(attempt.status)
            except UsageError:
                pass  # what is wrong with the parameters is already the run's error
        try:
            log = command.log if command else None
            size = size_of_series(context.path, log) if attempt.series is None else 0
            if size > SMALL:
                block = self._setup.paths.scratch / f"series-{attempt.position}"
                env = {**os.environ, processes.MARK: f"{self._mark}:series"}
                collector = Collector(context.path, log, block, env)
                self._collecting.append(_Collecting(collector, attempt, context, command))
                return
            if size:
                self._take_series(attempt, collect(context.path, log), command)
            else:
                _check_steps(attempt, None, command)
        except Exception as error:
            add_note(attempt, f"{SERIES} cannot be read: {error}")
        self._describe(attempt, context, command)

    def _take_series(self, attempt: Attempt, collected: Collected, command: Command | None) -> None:
        attempt.series, torn, last_step = collected
        _check_steps(attempt, last_step, command)
        if torn and attempt.status == "succeeded":  # one that was ended may have been writing a line
            add_note(attempt, f"{SERIES}: {torn} line{'s' if torn > 1 else ''} could not be read")

    def _describe(self, attempt: Attempt, context: Context, command: Command | None) -> None:
        """Write `meta.json`: the last thing before `wait` returns the attempt."""
        self._concluded.append(attempt)
        try:
            self._write_meta(attempt, context, command)
        except (OSError, ValueError) as error:
            add_note(attempt, f"meta.json could not be written: {error}")

    def _write_meta(self, attempt: Attempt, context: Context, command: Command | None) -> None:
        """`meta.json` of an attempt that starts (without an end) or has ended."""
        meta: dict[str, Any] = {
            "run_id": attempt.run_id,
            "experiment": self._setup.paths.experiment,
            "edition": self._setup.paths.name,
            "workload": self._setup.workload,
            "arm": attempt.arm,
            "task": attempt.task,
            "seed": attempt.seed,
            "rollout": attempt.rollout,
            "attempt": attempt.number,
            "params": self._dialect.meta(self._user_params(attempt), context),
            "ablation_name": attempt.ablation or "baseline",
            "ablation_flags": list(attempt.flags),
            "cmd": list(command.argv) if command else None,
            "cwd": str(command.cwd) if command else None,
            "start_time_unix_s": attempt.started_at or 0.0,
        }
        if attempt.ended_at is not None:
            wall_time = None if attempt.started_at is None else round(attempt.ended_at - attempt.started_at, 6)
            meta |= {
                "end_time_unix_s": attempt.ended_at,
                "wall_time_s": wall_time,
                "exit_code": attempt.exit_code,
                "status": attempt.status,
                "error": attempt.error,
                "metrics": dict(attempt.metrics),
            }
        write_meta(context.path, hide_tree(meta))


class _Doubt(NamedTuple):
    """An attempt that a shutdown may have ended."""

    since: float
    """`time.monotonic()`."""
    attempt: Attempt
    context: Context
    command: Command | None
    surrounded: Callable[[], bool]


class _Collecting(NamedTuple):
    """An attempt whose series is large, and is being read."""

    collector: Collector
    attempt: Attempt
    context: Context
    command: Command | None


def add_note(attempt: Attempt, note: str) -> None:
    """Add something to know about the attempt to its error, or to nothing: a success may have a note, too."""
    attempt.error = f"{attempt.error}; {note}" if attempt.error else note


def _check_steps(attempt: Attempt, last_step: int | None, command: Command | None) -> None:
    """A command that exits with 0 before it has done its steps has failed. A trainer that finds nothing to resume from,
    or no more data, may do that."""
    expected = command.expect_steps if command else None
    if expected is not None and attempt.status == "succeeded" and (last_step is None or last_step < expected):
        attempt.status = "failed"
        done = "logged no step" if last_step is None else f"ended at step {last_step:,}"
        add_note(attempt, f"{done}, and {expected:,} are expected (expect_steps)")


def open_node(setup: NodeSetup) -> Node:
    """The node for the setup's workload: one that spawns commands, or one with warm workers."""
    from bakeoff.engine.node.commands import CommandNode
    from bakeoff.engine.node.workers import WorkerNode

    spawns = isinstance(registry.workload(setup.workload), CommandWorkload)
    return CommandNode(setup) if spawns else WorkerNode(setup)


# -- limits


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
        self.ended_clock = 0.0
        """`time.monotonic()` when `end` was called."""
        self.restart()

    def restart(self) -> None:
        """Start the clock: a new run begins in the same process.

        It is CLOCK_MONOTONIC, which nobody can set, and which stands still while the machine is suspended
        (clock_gettime(2)): neither a corrected time of day nor a closed laptop makes a timeout.
        """
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
            used = processes.memory(processes.descendants([self._pid]), self._limits.memory)
            # Large trees take a while to count, and other runs must not wait for that most of the time.
            self._memory_at = time.monotonic() + max(_MEMORY_INTERVAL, 10 * (time.monotonic() - now))
            if used > self._limits.memory:
                self.end("memory")

    def end(self, reason: Reason) -> None:
        """End the tree: SIGTERM now, SIGKILL after the grace period. Only the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self.ended_clock = time.monotonic()
            # Memory does not wait: the next allocation may take the machine down.
            self._kill_at = time.monotonic() + (0.0 if reason == "memory" else self._limits.grace)
            if reason != "memory":
                processes.send(self._tree(), signal.SIGTERM)

    def why_ended(self, took: float, ended_clock: float) -> Reason | None:
        """The reason that holds for an attempt that took so many seconds and ended at `time.monotonic()`.

        It may have ended by itself before `end` was called: then the reason is not its own. Or it took longer than
        the limit and ended by itself before anybody looked: then it is late all the same.
        """
        if self.reason is not None and ended_clock >= self.ended_clock:
            return self.reason
        late = self._limits.time is not None and took > self._limits.time
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

    A signal that we did not send is the run's failure, whoever sent it: a run can kill itself. `oom_before` is
    `processes.oom_kills()` when it started.
    """
    if code >= 0:
        return Ending("failed", f"ended its process (exit code {code})")
    if -code == signal.SIGKILL and processes.oom_kills() > oom_before:
        return Ending("failed", "killed by the kernel: out of memory")
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return Ending("failed", f"killed by {name}")


def shell_code(code: int) -> int:
    """An exit code as shells count: 128 + signal for a signal."""
    return code if code >= 0 else 128 - code
