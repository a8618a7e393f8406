"""A node that runs commands: spawned with posix_spawn, output into files, ended as whole process trees."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bakeoff.engine import processes
from bakeoff.engine.node.capture import Capture
from bakeoff.engine.node.context import Context
from bakeoff.engine.node.enclosure import Enclosure, open_enclosure, start_keeper
from bakeoff.engine.node.node import Node, Watch, death, ending, shell_code
from bakeoff.records.run import Attempt
from bakeoff.records.rundir import STDOUT, set_aside
from bakeoff.spec.workload import Command, CommandWorkload, Exit, Outcome

# Python ignores SIGPIPE and SIGXFSZ, and whoever started us may have changed the others: runs get the defaults.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ABSENT = 0.5
"""The scheduler looks ten times a second; when it did not for so many seconds, it was kept from it."""


@dataclass(slots=True)
class _Running:
    attempt: Attempt
    context: Context
    params: Any
    command: Command
    mark: str
    """Begins the mark of every process of this run."""
    pid: int
    pidfd: int
    capture: Capture
    watch: Watch
    enclosure: Enclosure | None
    began: float
    """`time.monotonic()`."""
    oom_before: int
    devices: tuple[str, ...]
    settled: bool = False


class CommandNode(Node):
    """Up to `jobs` commands at a time."""

    _workload: CommandWorkload

    def _open(self) -> None:
        self._env = {**os.environ, **self._setup.env}
        self._captures = [Capture(self._setup.paths.scratch, f"command-{n}") for n in range(self._setup.jobs)]
        self._running: dict[int, _Running] = {}
        self._enclosure: Enclosure | None = None
        self._keeper: subprocess.Popen[bytes] | None = self._start_keeper()
        self._poll = select.epoll()
        self._looked_at = time.monotonic()
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        return start_keeper({**os.environ, processes.MARK: f"{self._mark}:keeper"})

    def _enclosed(self) -> Enclosure | None:
        """The namespace for commands, made before the first one and again if it was killed; None without one."""
        if self._enclosure is not None and not self._enclosure.alive():
            self._enclosure.close()
            self._keeper = self._start_keeper()
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            self._orphans.own.add(keeper.pid)
            self._enclosure = open_enclosure(keeper)
            self._orphans.foster = self._enclosure.init if self._enclosure is not None else None
        return self._enclosure

    def width(self) -> int:
        return self._setup.jobs

    def capacity(self) -> int:
        return self._setup.jobs - len(self._running) - len(self._concluded) - len(self._collecting)

    def start(self, attempt: Attempt) -> None:
        context, mark = self._context(attempt), f"{self._mark}:{attempt.run_id}:"
        attempt.started_at, began = time.time(), time.monotonic()
        try:
            self._check_room()
            if os.path.lexists(context.path):
                set_aside(context.path, attempt.number - 1, checkpoint=self._setup.checkpoints)
            params = self._validated(attempt)
            command = self._workload.command(params, context)
            for directory in command.directories:
                directory.mkdir(parents=True, exist_ok=True)
            if self._dialect.live_files:
                self._write_meta(attempt, context, command)
            capture = self._captures.pop()
            devices, variables = self._take_devices()
            try:
                enclosure = self._enclosed()
                pid = self._spawn(attempt, context, command, capture, mark, variables)
            except BaseException:
                self._captures.append(capture)
                self._give_devices(devices)
                raise
        except Exception as error:  # it never ran, so the arm did not fail
            attempt.exit_code = 127
            self.refuse(attempt, error)
            return
        # A pidfd becomes readable when the process ends, and cannot be confused with a later process of the same number
        # (pidfd_open(2)).
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.EPOLLIN)
        watch = Watch(pid, mark, self._limits)
        run = self._running[pidfd] = _Running(
            attempt,
            context,
            params,
            command,
            mark,
            pid,
            pidfd,
            capture,
            watch,
            enclosure,
            began,
            processes.oom_kills(),
            devices,
        )
        if self._setup.settle_after == 0:
            self._settle(run)

    def _spawn(
        self,
        attempt: Attempt,
        context: Context,
        command: Command,
        capture: Capture,
        mark: str,
        variables: Mapping[str, str],
    ) -> int:
        env = {
            **self._env,
            **variables,
            **command.env,
            **context.environment(json.dumps(self._user_params(attempt))),
            processes.MARK: f"{mark}{attempt.number}",
        }
        program = _program(command.argv[0], env.get("PATH", os.defpath))

        def spawn() -> int:
            # posix_spawn(3) has no portable way to set the working directory, so ours changes before the call.
            os.chdir(command.cwd)
            return os.posix_spawn(
                program,
                command.argv,
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self._null, 0),
                    (os.POSIX_SPAWN_DUP2, capture.stdout, 1),
                    (os.POSIX_SPAWN_DUP2, capture.stderr, 2),
                ],
                setsid=True,  # its own session: Ctrl-C at our terminal does not reach it, and orphans can be told apart
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )

        if self._enclosure is not None:
            return self._enclosure.spawn(spawn)
        try:
            return spawn()
        finally:
            os.fchdir(self._here)

    def wait(self, timeout: float) -> list[Attempt]:
        events = self._poll.poll(0 if self._concluded else timeout)
        if not events and time.monotonic() - self._looked_at > _ABSENT:
            events = self._poll.poll(0)  # SIGCONT interrupts epoll_wait (signal(7)), and Python finds the time used up
        for pidfd, _ in events:
            run = self._running.pop(pidfd)
            if processes.never_executed(run.pid):
                # Ctrl-C reaches a child that is not in its own session yet, and kills it before it is the program.
                self._wait_for(run)
                self._keep_output(run, renew=False)
                run.attempt.started_at = None
                self._concluded.append(run.attempt)
            else:
                self._ended(run)
        self._looked_at = now = time.monotonic()
        for run in self._running.values():
            run.watch.check(now)
            if not run.settled and now - run.began >= self._setup.settle_after:
                self._settle(run)
        self._supervise()
        return self._take_concluded()

    def _settle(self, run: _Running) -> None:
        run.settled = True
        try:
            run.capture.settle(run.context.path)
        except OSError:
            pass  # a full disk shows when the result is recorded

    def _ended(self, run: _Running) -> None:
        """Fill in the result. How we or the kernel ended the command goes before what the workload makes of it."""
        attempt = run.attempt
        code = self._wait_for(run)
        ended = time.monotonic()
        attempt.ended_at = (attempt.started_at or 0.0) + ended - run.began
        # If nobody looked for a while (the scheduler was stopped with Ctrl-Z, or its disk hung), it may have ended long
        # ago: it is late only if it was late when we last looked.
        known = self._looked_at if ended - self._looked_at > _ABSENT else ended
        left = self._end_orphans(run)
        try:  # whatever the run left in its directory, or in place of it, must not end the scheduler
            stdout = self._keep_output(run, renew=left > 0 or self._orphans.any_doubtful).get(STDOUT)
            finished = Exit(shell_code(code), stdout, ended - run.began)
            outcome = self._workload.outcome(run.params, run.context, finished)
        except Exception as error:
            outcome = Outcome(status="failed", error=f"its output cannot be read: {type(error).__name__}: {error}")
        end = ending(run.watch.reason or run.watch.why_ended(known - run.began, ended), self._limits)
        if end is None and code < 0:
            end = death(code, run.oom_before)
        attempt.status, cause = (outcome.status, outcome.error) if end is None else end
        note = f"left {left} process{'es' if left > 1 else ''} behind, ended" if left else None
        attempt.error = "; ".join(part for part in (cause, note) if part) or None
        attempt.metrics, attempt.exit_code = outcome.metrics, shell_code(code)
        attempt.command = shlex.join(run.command.argv)
        self._conclude(attempt, run.context, run.command, lambda: run.enclosure is None or run.enclosure.alive())

    def _wait_for(self, run: _Running) -> int:
        _, status = os.waitpid(run.pid, 0)
        self._poll.unregister(run.pidfd)
        os.close(run.pidfd)
        self._give_devices(run.devices)
        return os.waitstatus_to_exitcode(status)

    def _keep_output(self, run: _Running, renew: bool) -> dict[str, Path]:
        try:
            return run.capture.finish(run.context.path, renew=renew)
        finally:
            self._captures.append(run.capture)

    def _end_orphans(self, run: _Running) -> int:
        others = [other.pid for other in self._running.values()]
        return self._orphans.end(run.mark, run.pid, [*others, *self._readers()], rivals=others)

    def stop(self, *, running: bool) -> None:
        """Nothing waits here: a command begins when it is started."""
        self._stop_at = self._stop_at or time.monotonic()
        if running:
            for run in self._running.values():
                run.watch.end("cancelled")

    def end(self, position: int) -> None:
        for run in self._running.values():
            if run.attempt.position == position:
                run.watch.end("cancelled")

    def close(self) -> None:
        """Ends what still runs: that happens only when the scheduler leaves because of an error."""
        try:
            processes.send(processes.descendants([run.pid for run in self._running.values()]), signal.SIGKILL)
            while self._running:
                _, run = self._running.popitem()
                self._wait_for(run)
                self._end_orphans(run)
                self._captures.append(run.capture)
            enclosure = self._enclosed()
            if enclosure is not None:
                enclosure.close()
            # One that was not yet our child, or had no environment yet, when its run ended.
            self._orphans.end(f"{self._mark}:", pid=0, living=())
            for capture in self._captures:
                capture.close()
            os.close(self._null)
            os.close(self._here)
            self._poll.close()
        finally:
            super().close()


@lru_cache(maxsize=256)
def _program(name: str, path: str) -> str:
    """The file to execute, as a shell would find it."""
    if "/" in name:
        return name
    program = shutil.which(name, path=path)
    if program is None:
        raise FileNotFoundError(2, "no such command", name)
    return program
