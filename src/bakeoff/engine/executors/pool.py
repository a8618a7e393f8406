"""Warm worker processes on this machine, each doing one in-process run at a time.

Short runs are handed over a few at a time, so that a worker never waits for the scheduler; what has not begun can be
taken back at any moment (engine/wire.py says how). When a worker dies, exactly the run that it was doing is lost.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bakeoff.engine import cgroup, processes
from bakeoff.engine.context import Facts
from bakeoff.engine.executors.base import Start
from bakeoff.engine.executors.finish import Finisher
from bakeoff.engine.orphans import Orphans
from bakeoff.engine.watch import Watch, death, verdict
from bakeoff.engine.wire import Frames, Job, Report, Setup
from bakeoff.errors import BakeoffError
from bakeoff.records.results import Result
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.records.trajectory import TrajectoryIndex
from bakeoff.spec.experiment import Limits

_SHORT = 0.005
_MOST_AHEAD = 16
_STUCK = 0.05
_STARTS_THAT_MAY_FAIL = 3
_BUFFER = 1 << 20
_TIME_TO_LEAVE = 5.0


@dataclass(slots=True)
class _Member:
    name: str
    process: subprocess.Popen[bytes]
    jobs: socket.socket
    """Our end: packets go in here."""
    taken_back: socket.socket
    """The worker's end: reading from it takes back what the worker has not begun."""
    results: socket.socket
    watch: Watch
    oom_before: int
    assigned: deque[Start] = field(default_factory=deque)
    """Oldest first; the first one is the one being done."""
    since: float = 0.0
    since_at: float = 0.0
    frames: Frames = field(default_factory=Frames)
    ready: bool = False
    leaving_since: float | None = None
    """It has been told to go."""
    garbled: bool = False
    """Something else than reports came through its socket."""
    disturbed: bool = False
    """It was asked to stop for the sake of a run that had ended by then: what it does now has to be done again."""


class WorkerPool:
    def __init__(
        self,
        workload: str,
        finisher: Finisher,
        *,
        jobs: int,
        mark: str,
        limits: Limits,
        env: Mapping[str, str],
        base: Path,
        runs: Path,
        scratch: Path,
        settle_after: float,
        fresh: bool,
    ) -> None:
        self._finisher = finisher
        self._jobs = jobs
        self._mark = mark
        self._limits = limits
        self._fresh = fresh
        self._scratch = scratch
        self._orphans = Orphans()
        self._setup = Setup(
            workload, str(base), str(runs), str(scratch), "", os.getpid(), dict(env), limits.time, settle_after
        )
        self._members: list[_Member] = []
        self._selector = selectors.EpollSelector()
        self._returned: list[Start] = []
        self._typical: float | None = None
        self._failed_starts = 0
        self._serial = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Report).decode
        self._decode_job = msgspec.msgpack.Decoder(Job).decode
        self._packed: dict[int, msgspec.Raw] = {}
        scratch.mkdir(parents=True, exist_ok=True)

    # -- handing over

    def _ahead(self) -> int:
        """How many runs a worker may hold: one, or more when runs are too short to wait for the next one."""
        if self._fresh or self._typical is None or self._typical > _SHORT:
            return 1
        return max(2, min(_MOST_AHEAD, int(0.004 / max(self._typical, 1e-5))))

    def capacity(self) -> int:
        ahead = self._ahead()
        free = sum(max(0, ahead - len(member.assigned)) for member in self._members if not self._going(member))
        return free + (self._jobs - len(self._members)) * ahead

    @staticmethod
    def _going(member: _Member) -> bool:
        return member.leaving_since is not None or member.watch.reason is not None

    def start(self, run: Start) -> None:
        able = [member for member in self._members if not self._going(member) and len(member.assigned) < self._ahead()]
        member = min(able, key=lambda member: len(member.assigned), default=None)
        if (member is None or member.assigned) and len(self._members) < self._jobs:
            member = self._hire()
        assert member is not None, "start was called without capacity"
        if not member.assigned:
            self._begins(member)
        member.assigned.append(run)
        try:
            member.jobs.send(self._packet(run))
        except OSError:
            pass  # the worker is dying; its death will be seen and the run given back or counted

    def _begins(self, member: _Member) -> None:
        member.since, member.since_at = time.monotonic(), time.time()
        member.watch.restart()

    def _packet(self, run: Start) -> bytes:
        cell = run.cell
        params = self._packed.get(cell.index)
        if params is None:
            if len(self._packed) > 1000:
                self._packed.clear()
            params = self._packed[cell.index] = msgspec.Raw(self._encode(dict(cell.params)))
        return self._encode(
            Job(
                run.position, run.run_id, cell.index, cell.arm.name, cell.task.name, run.seed, run.rollout, run.attempt,
                list(cell.arm.flags), params,
            )
        )  # fmt: skip

    def _hire(self) -> _Member:
        self._serial += 1
        name = f"worker-{self._serial}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results, reporting = socket.socketpair()
        for end in (ours, theirs, results, reporting):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _BUFFER)
        env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **os.environ}
        env[processes.MARK] = f"{self._mark}:{name}:"
        with open(self._scratch / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bakeoff.engine.worker", str(theirs.fileno()), str(reporting.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), reporting.fileno()),
                start_new_session=True,
                env=env,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(msgspec.structs.replace(self._setup, name=name)))
            process.stdin.close()
        except OSError:
            pass  # it died at once; seen below as a start that failed
        reporting.close()
        results.setblocking(False)
        watch = Watch(process.pid, f"{self._mark}:{name}:", self._limits)
        member = _Member(name, process, ours, theirs, results, watch, cgroup.oom_kills())
        self._selector.register(results, selectors.EVENT_READ, member)
        self._members.append(member)
        return member

    # -- what comes back

    def wait(self, timeout: float) -> list[Result]:
        ended: list[Result] = []
        for key, _ in self._selector.select(timeout):
            ended += self._read(key.data)
        now = time.monotonic()
        for member in self._members:
            self._look_after(member, now)
        return ended

    def _look_after(self, member: _Member, now: float) -> None:
        if member.assigned and member.ready:
            if len(member.assigned) > 1 and now - member.since > _STUCK:
                self._take_back(member)
            member.watch.check(now)
        elif member.leaving_since is not None and now - member.leaving_since > _TIME_TO_LEAVE:
            member.process.kill()  # an exit handler hangs

    def _read(self, member: _Member) -> list[Result]:
        ended: list[Result] = []
        while True:
            try:
                data = member.results.recv(_BUFFER)
            except BlockingIOError:
                return ended
            except ConnectionResetError:
                data = b""
            if not data:
                return [*ended, *self._died(member)]
            for payload in member.frames.feed(data):
                if not payload:
                    member.ready = True
                    self._begins(member)
                    continue
                try:
                    report = self._decode(payload)
                    if report.position != member.assigned[0].position:
                        raise ValueError("a worker reports in the order it was given")
                except (ValueError, IndexError):  # the run wrote into our socket: its worker cannot be trusted any more
                    member.garbled = True
                    member.process.kill()
                    return ended
                ended += self._reported(member, report)

    def _reported(self, member: _Member, report: Report) -> list[Result]:
        self._failed_starts = 0
        run = member.assigned.popleft()
        if member.disturbed:
            self._returned.append(run)
            return []
        took = report.ended_at - report.started_at
        self._typical = took if self._typical is None else 0.8 * self._typical + 0.2 * took
        told = verdict(member.watch.why_ended(report.started_at, report.ended_at), self._limits)
        if report.dirty or self._fresh or member.watch.reason is not None:
            self._dismiss(member)
            member.disturbed = bool(member.assigned)
        elif member.assigned:
            self._begins(member)
        status, error = (report.status, report.error) if told is None else told
        result = Result(
            run.position,
            run.run_id,
            run.attempt,
            status,  # type: ignore[arg-type]
            report.started_at,
            report.ended_at,
            None,
            error,
            report.metrics,
            report.series,
            TrajectoryIndex(*report.trajectory) if report.trajectory else None,
        )
        return [self._finisher.end(run, self._finisher.facts(run), result) if report.wrote else result]

    def _dismiss(self, member: _Member) -> None:
        if member.leaving_since is None:
            member.leaving_since = time.monotonic()
            self._take_back(member)
            member.jobs.close()

    def _take_back(self, member: _Member) -> None:
        """Packets that the worker has not read. It may read one between two of ours, so each says whose it is."""
        taken: set[int] = set()
        while True:
            try:
                packet = member.taken_back.recv(_BUFFER, socket.MSG_DONTWAIT)
            except OSError:
                break
            if not packet:
                break
            taken.add(self._decode_job(packet).position)
        if taken:
            self._returned += [run for run in member.assigned if run.position in taken]
            member.assigned = deque(run for run in member.assigned if run.position not in taken)

    def _died(self, member: _Member) -> list[Result]:
        self._members.remove(member)
        code = member.process.wait()
        self._take_back(member)
        self._end_leftovers(member)
        if not member.ready or (code != 0 and not member.assigned and member.leaving_since is None):
            self._useless(member, code)
        lost = list(member.assigned)
        if member.disturbed:
            self._returned += lost
            lost = []
        results = [self._lost(member, run, code) for run in lost]
        self._forget(member)
        return results

    def _end_leftovers(self, member: _Member) -> None:
        alive = [other.process.pid for other in self._members]
        self._orphans.end(f"{self._mark}:{member.name}:", member.process.pid, alive)

    def _forget(self, member: _Member) -> None:
        self._selector.unregister(member.results)
        for end in (member.results, member.jobs, member.taken_back):
            end.close()
        for suffix in (".out", ".err", ".log"):
            (self._scratch / f"{member.name}{suffix}").unlink(missing_ok=True)

    def _useless(self, member: _Member, code: int) -> None:
        """A worker died without a run to blame. That may happen; when it goes on happening, there is no point in going on."""
        self._failed_starts += 1
        if self._failed_starts >= _STARTS_THAT_MAY_FAIL:
            log = self._scratch / f"{member.name}.log"
            tail = log.read_text(errors="replace").strip().splitlines()[-12:] if log.exists() else []
            self._forget(member)
            raise BakeoffError(f"workers die by themselves (exit code {code}):\n" + "\n".join(tail))

    def _lost(self, member: _Member, run: Start, code: int) -> Result:
        """The run that a worker was doing when it died."""
        facts = self._finisher.facts(run)
        self._keep_output(member, facts)
        status, error = verdict(member.watch.reason, self._limits) or death(code, member.oom_before)
        if member.garbled:
            status, error = "failed", "wrote into the socket through which workers report"
        result = Result(
            run.position,
            run.run_id,
            run.attempt,
            status,  # type: ignore[arg-type]
            member.since_at,
            time.time(),
            code if code >= 0 else 128 - code,
            error,
        )
        return self._finisher.end(run, facts, result)

    def _keep_output(self, member: _Member, facts: Facts) -> None:
        for suffix, name in ((".out", STDOUT), (".err", STDERR)):
            path = self._scratch / f"{member.name}{suffix}"
            try:
                if path.stat().st_size:
                    path.rename(facts.directory / name)
            except OSError:
                continue  # it lies in the run's directory already, or there is no room for one

    # -- the rest of the face

    def returned(self) -> list[Start]:
        given, self._returned = self._returned, []
        return sorted(given, key=lambda run: run.position)

    def running(self) -> list[tuple[Start, float]]:
        return [(member.assigned[0], member.since_at) for member in self._members if member.assigned]

    def recall(self) -> None:
        for member in self._members:
            self._take_back(member)

    def stop(self) -> None:
        for member in self._members:
            self._take_back(member)
            if member.assigned:
                member.watch.end("cancelled")

    def close(self) -> None:
        for member in self._members:
            self._dismiss(member)
            if member.assigned:  # we are leaving in a hurry, with an error to tell
                processes.send(processes.descendants([member.process.pid]), signal.SIGKILL)
        while self._members:
            member = self._members.pop()
            try:
                member.process.wait(timeout=_TIME_TO_LEAVE)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            self._end_leftovers(member)
            self._forget(member)
        self._selector.close()
