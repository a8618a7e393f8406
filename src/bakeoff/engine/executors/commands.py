"""Commands on this machine: spawned with posix_spawn, output into files, ended as whole trees."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bakeoff.engine import cgroup, processes
from bakeoff.engine.capture import Capture
from bakeoff.engine.context import Facts
from bakeoff.engine.executors.base import Start
from bakeoff.engine.executors.finish import Finisher
from bakeoff.engine.orphans import Orphans
from bakeoff.engine.watch import Watch, death, verdict
from bakeoff.records.results import Result
from bakeoff.records.rundir import STDOUT, set_aside
from bakeoff.spec.experiment import Limits
from bakeoff.spec.workload import Command, CommandWorkload, Exit, Outcome

_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _Running:
    start: Start
    facts: Facts
    params: Any
    command: Command
    pid: int
    pidfd: int
    capture: Capture
    watch: Watch
    began: float
    began_at: float
    oom_before: int
    settled: bool = False


class CommandLane:
    """Up to `jobs` commands at a time."""

    def __init__(
        self,
        workload: CommandWorkload,
        finisher: Finisher,
        *,
        jobs: int,
        mark: str,
        limits: Limits,
        env: Mapping[str, str],
        scratch: Path,
        settle_after: float,
    ) -> None:
        self._workload = workload
        self._finisher = finisher
        self._jobs = jobs
        self._mark = mark
        self._limits = limits
        self._env = {**os.environ, **env}
        self._settle_after = settle_after
        self._captures = [Capture(scratch, f"command-{number}") for number in range(jobs)]
        self._running: dict[int, _Running] = {}
        self._poll = select.epoll()
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._params: dict[int, Any] = {}
        self._failed: list[Result] = []
        """Those that could not be started; they hold a place until they are told."""
        self._unbegun: list[Start] = []
        self._orphans = Orphans()
        self._here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def capacity(self) -> int:
        return self._jobs - len(self._running) - len(self._failed)

    def running(self) -> list[tuple[Start, float]]:
        return [(run.start, run.began_at) for run in self._running.values()]

    def returned(self) -> list[Start]:
        given, self._unbegun = self._unbegun, []
        return given

    def recall(self) -> None:
        return

    def start(self, run: Start) -> None:
        facts = self._finisher.facts(run)
        now = time.time()
        try:
            params, command = self._prepare(run, facts, now)
            capture = self._captures.pop()
            try:
                pid = self._spawn(run, facts, command, capture)
            except BaseException:
                self._captures.append(capture)
                raise
        except Exception as error:
            self._failed.append(self._unstarted(run, now, error))
            return
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.EPOLLIN)
        watch = Watch(pid, self._run_mark(run), self._limits)
        self._running[pidfd] = _Running(
            run, facts, params, command, pid, pidfd, capture, watch, time.monotonic(), now, cgroup.oom_kills()
        )
        if self._settle_after == 0:
            self._settle(self._running[pidfd])

    def _prepare(self, run: Start, facts: Facts, now: float) -> tuple[Any, Command]:
        if facts.path.exists():
            set_aside(facts.path, run.attempt - 1)
        params = self._validated(run)
        command = self._workload.command(params, facts)
        for directory in command.directories:
            directory.mkdir(parents=True, exist_ok=True)
        self._finisher.begin(run, facts, command, now)
        return params, command

    @staticmethod
    def _unstarted(run: Start, began: float, error: Exception) -> Result:
        """It never ran, so it is no failure of the arm."""
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        error_text = f"cannot start: {text or type(error).__name__}"
        return Result(run.position, run.run_id, run.attempt, "infra_error", began, time.time(), 127, error_text)

    def _validated(self, run: Start) -> Any:
        params = self._params.get(run.cell.index)
        if params is None:
            if len(self._params) > 1000:
                self._params.clear()
            params = self._params[run.cell.index] = self._workload.Params.model_validate(dict(run.cell.params))
        return params

    def _run_mark(self, run: Start) -> str:
        return f"{self._mark}:{run.run_id}:"

    def _spawn(self, run: Start, facts: Facts, command: Command, capture: Capture) -> int:
        env = {
            **self._env,
            **command.env,
            **facts.environment(self._finisher.params_json(run.cell)),
            processes.MARK: f"{self._run_mark(run)}{run.attempt}",
        }
        program = _program(command.argv[0], env.get("PATH", os.defpath))
        os.chdir(command.cwd)  # posix_spawn has no working directory of its own; this process has one thread that cares
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
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        finally:
            os.fchdir(self._here)

    def wait(self, timeout: float) -> list[Result]:
        results, self._failed = self._failed, []
        for pidfd, _ in self._poll.poll(0 if results else timeout):
            run = self._running.pop(pidfd)
            if processes.never_executed(run.pid):
                self._give_back(run)
            else:
                results.append(self._ended(run))
        now = time.monotonic()
        for run in self._running.values():
            run.watch.check(now)
            if not run.settled and now - run.began >= self._settle_after:
                self._settle(run)
        return results

    def _give_back(self, run: _Running) -> None:
        """Ctrl-C reaches a child that is not in its own session yet, and ends it before it is the run's program."""
        self._wait_for(run)
        self._keep_output(run, renew=False)
        self._unbegun.append(run.start)

    def _settle(self, run: _Running) -> None:
        run.settled = True
        try:
            run.capture.settle(run.facts.path)
        except OSError:
            pass  # a full disk shows when the result is recorded

    def _ended(self, run: _Running) -> Result:
        code = self._wait_for(run)
        ended_at = time.time()
        left = self._end_leftovers(run)
        kept = self._keep_output(run, renew=left > 0 or self._orphans.any_doubtful)
        outcome = self._outcome(run, code, ended_at, kept.get(STDOUT))
        note = f"left {left} process{'es' if left > 1 else ''} behind, ended" if left else None
        result = Result(
            run.start.position,
            run.start.run_id,
            run.start.attempt,
            outcome.status,
            run.began_at,
            ended_at,
            code if code >= 0 else 128 - code,
            "; ".join(part for part in (outcome.error, note) if part) or None,
            outcome.metrics,
            command=shlex.join(run.command.argv),
        )
        return self._finisher.end(run.start, run.facts, result, run.command)

    def _wait_for(self, run: _Running) -> int:
        _, status = os.waitpid(run.pid, 0)
        self._poll.unregister(run.pidfd)
        os.close(run.pidfd)
        return os.waitstatus_to_exitcode(status)

    def _keep_output(self, run: _Running, renew: bool) -> dict[str, Path]:
        try:
            return run.capture.finish(run.facts.path, renew=renew)
        finally:
            self._captures.append(run.capture)

    def _outcome(self, run: _Running, code: int, ended_at: float, stdout: Path | None) -> Outcome:
        told = verdict(run.watch.reason or run.watch.why_ended(run.began_at, ended_at), self._limits)
        if told is None and code < 0:
            told = death(code, run.oom_before)
        try:
            outcome = self._workload.outcome(run.params, run.facts, Exit(code if code >= 0 else 128 - code, stdout))
        except Exception as error:  # nothing that a run wrote may end the scheduler
            outcome = Outcome(status="failed", error=f"what it wrote cannot be read: {type(error).__name__}: {error}")
        if told is not None:
            return Outcome(outcome.metrics, told[0], told[1])  # type: ignore[arg-type]
        return outcome

    def _end_leftovers(self, run: _Running) -> int:
        others = [other.pid for other in self._running.values()]
        return self._orphans.end(self._run_mark(run.start), run.pid, others, rivals=others)

    def stop(self) -> None:
        for run in self._running.values():
            run.watch.end("cancelled")

    def close(self) -> None:
        """What still runs is ended: then we are leaving with an error to tell."""
        processes.send(processes.descendants([run.pid for run in self._running.values()]), signal.SIGKILL)
        while self._running:
            _, run = self._running.popitem()
            self._wait_for(run)
            self._end_leftovers(run)
            self._captures.append(run.capture)
        # One that was not yet ours, or had no environment yet, when its run ended.
        self._orphans.end(f"{self._mark}:", pid=0, alive=())
        for capture in self._captures:
            capture.close()
        os.close(self._null)
        os.close(self._here)
        self._poll.close()


@lru_cache(maxsize=256)
def _program(name: str, path: str) -> str:
    """The file to execute, as a shell would find it."""
    if "/" in name:
        return name
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(2, "no such command", name)
    return found
