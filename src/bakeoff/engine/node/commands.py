"""A node that runs commands: spawned with posix_spawn, output into files, ended as whole process trees."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bakeoff.engine import processes
from bakeoff.engine.node.capture import Capture
from bakeoff.engine.node.context import Context
from bakeoff.engine.node.node import Node, Watch, death, ending, shell_code
from bakeoff.records.run import Attempt
from bakeoff.records.rundir import STDOUT, set_aside
from bakeoff.spec.workload import Command, CommandWorkload, Exit, Outcome

# Python ignores SIGPIPE and SIGXFSZ, and whoever started us may have changed the others: runs get the defaults.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    began: float
    """`time.monotonic()`."""
    oom_before: int
    settled: bool = False


class CommandNode(Node):
    """Up to `jobs` commands at a time."""

    _workload: CommandWorkload

    def _open(self) -> None:
        self._env = {**os.environ, **self._setup.env}
        self._captures = [Capture(self._setup.paths.scratch, f"command-{n}") for n in range(self._setup.jobs)]
        self._running: dict[int, _Running] = {}
        self._failed: list[Attempt] = []
        """Those that could not be started; they count as running until `wait` returns them."""
        self._poll = select.epoll()
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def capacity(self) -> int:
        return self._setup.jobs - len(self._running) - len(self._failed)

    def start(self, attempt: Attempt) -> None:
        context, mark = self._context(attempt), f"{self._mark}:{attempt.run_id}:"
        attempt.started_at = time.time()
        try:
            if context.path.exists():
                set_aside(context.path, attempt.number - 1)
            params = self._validated(attempt)
            command = self._workload.command(params, context)
            for directory in command.directories:
                directory.mkdir(parents=True, exist_ok=True)
            if self._dialect.live_files:
                self._write_meta(attempt, context, command)
            capture = self._captures.pop()
            try:
                pid = self._spawn(attempt, context, command, capture, mark)
            except BaseException:
                self._captures.append(capture)
                raise
        except Exception as error:  # it never ran, so the arm did not fail
            named = isinstance(error, OSError) and error.filename
            text = f"{error.strerror}: {error.filename}" if named else str(error)  # type: ignore[attr-defined]
            attempt.status, attempt.exit_code = "infra_error", 127
            attempt.error = f"cannot start: {text or type(error).__name__}"
            attempt.ended_at = time.time()
            self._failed.append(attempt)
            return
        # A pidfd becomes readable when the process ends, and cannot be confused with a later process of the same number
        # (pidfd_open(2)).
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.EPOLLIN)
        watch = Watch(pid, mark, self._limits)
        run = self._running[pidfd] = _Running(
            attempt, context, params, command, mark, pid, pidfd, capture, watch, time.monotonic(), processes.oom_kills()
        )
        if self._setup.settle_after == 0:
            self._settle(run)

    def _spawn(self, attempt: Attempt, context: Context, command: Command, capture: Capture, mark: str) -> int:
        env = {
            **self._env,
            **command.env,
            **context.environment(json.dumps(self._user_params(attempt))),
            processes.MARK: f"{mark}{attempt.number}",
        }
        program = _program(command.argv[0], env.get("PATH", os.defpath))
        # posix_spawn(3) has no portable way to set the working directory, so we change ours around the call. That is
        # safe because no other thread of this process uses relative paths.
        os.chdir(command.cwd)
        try:
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
        finally:
            os.fchdir(self._here)

    def wait(self, timeout: float) -> list[Attempt]:
        ended, self._failed = self._failed, []
        for pidfd, _ in self._poll.poll(0 if ended else timeout):
            run = self._running.pop(pidfd)
            if processes.never_executed(run.pid):
                # Ctrl-C reaches a child that is not in its own session yet, and kills it before it is the program.
                self._wait_for(run)
                self._keep_output(run, renew=False)
                run.attempt.started_at = None
                ended.append(run.attempt)
            else:
                ended.append(self._ended(run))
        now = time.monotonic()
        for run in self._running.values():
            run.watch.check(now)
            if not run.settled and now - run.began >= self._setup.settle_after:
                self._settle(run)
        self._supervise()
        return ended

    def _settle(self, run: _Running) -> None:
        run.settled = True
        try:
            run.capture.settle(run.context.path)
        except OSError:
            pass  # a full disk shows when the result is recorded

    def _ended(self, run: _Running) -> Attempt:
        """Fill in the result. How we or the kernel ended the command goes before what the workload makes of it."""
        attempt = run.attempt
        code = self._wait_for(run)
        started_at, attempt.ended_at = attempt.started_at or 0.0, time.time()
        left = self._end_orphans(run)
        stdout = self._keep_output(run, renew=left > 0 or self._orphans.any_doubtful).get(STDOUT)
        try:
            outcome = self._workload.outcome(run.params, run.context, Exit(shell_code(code), stdout))
        except Exception as error:  # nothing that a run wrote may end the scheduler
            outcome = Outcome(status="failed", error=f"its output cannot be read: {type(error).__name__}: {error}")
        end = ending(run.watch.reason or run.watch.why_ended(started_at, attempt.ended_at), self._limits)
        if end is None and code < 0:
            end = death(code, run.oom_before)
        attempt.status, cause = (outcome.status, outcome.error) if end is None else end
        note = f"left {left} process{'es' if left > 1 else ''} behind, ended" if left else None
        attempt.error = "; ".join(part for part in (cause, note) if part) or None
        attempt.metrics, attempt.exit_code = outcome.metrics, shell_code(code)
        attempt.command = shlex.join(run.command.argv)
        return self._finish(attempt, run.context, run.command)

    def _wait_for(self, run: _Running) -> int:
        _, status = os.waitpid(run.pid, 0)
        self._poll.unregister(run.pidfd)
        os.close(run.pidfd)
        return os.waitstatus_to_exitcode(status)

    def _keep_output(self, run: _Running, renew: bool) -> dict[str, Path]:
        try:
            return run.capture.finish(run.context.path, renew=renew)
        finally:
            self._captures.append(run.capture)

    def _end_orphans(self, run: _Running) -> int:
        others = [other.pid for other in self._running.values()]
        return self._orphans.end(run.mark, run.pid, others, rivals=others)

    def stop(self, *, running: bool) -> None:
        """Nothing waits here: a command begins when it is started."""
        if running:
            for run in self._running.values():
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
