"""`python -m bakeoff.engine.worker`: a warm process that does one in-process run after another.

Between runs everything that a run may have changed is put back (world.py); what cannot be put back ends the worker.
Standard input carries the setup, then nothing; jobs and results have sockets of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec

from bakeoff.engine import processes
from bakeoff.engine.capture import Capture
from bakeoff.engine.context import Context, Facts, deadline_in, stream_key
from bakeoff.engine.seeding import Seeder
from bakeoff.engine.wire import Job, Report, Setup, frame
from bakeoff.engine.world import World
from bakeoff.errors import InfraError
from bakeoff.records import script
from bakeoff.records.rundir import set_aside
from bakeoff.records.trajectory import TrajectoryIndex
from bakeoff.spec.registry import workload
from bakeoff.spec.workload import Outcome, Scalar, Workload

_HOUSEKEEPING = 0.25
_LONGEST_ERROR = 10_000
_ENDINGS = ("succeeded", "failed", "timeout", "cancelled", "infra_error")


class Stopped(BaseException):
    """Raised in the run when it is asked to stop and does not look at `ctx.cancelled` itself."""


class Worker:
    def __init__(self, setup: Setup, jobs: socket.socket, results: socket.socket) -> None:
        self._setup = setup
        self._jobs = jobs
        self._results = results
        self._pid = os.getpid()
        self._capture = Capture(Path(setup.scratch), setup.name)
        self._capture.take_over_standard_streams()
        found = workload(setup.workload)
        assert isinstance(found, Workload)
        self._workload = found
        self._decode = msgspec.msgpack.Decoder(Job).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._seeder = Seeder()
        self._context: Context | None = None
        self._began = 0.0
        self._phase: Literal["idle", "running", "writing"] = "idle"
        self._told_to_go = False
        self._lock = threading.Lock()
        """Held while the run at hand changes and while the housekeeper writes for it."""
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._keep_house, daemon=True).start()
        self._world = World()

    def serve(self) -> None:
        self._results.sendall(frame(b""))  # ready
        while packet := self._jobs.recv(1 << 20):
            self._phase = "writing"
            report = self._do(self._decode(packet))
            self._results.sendall(frame(self._encode(report)))
            self._phase = "idle"
            if report.dirty or self._told_to_go:
                os._exit(0)  # a thread or an exit handler that the run left must not hold us

    def _do(self, job: Job) -> Report:
        started = time.time()
        try:
            context = self._begin(job)
            outcome, clean = self._run(job, context)
            ended = time.time()
            series, index = self._put_away(context, clean)
        except OSError as error:  # of our own bookkeeping, such as a full disk: nothing that the arm did
            self._context = None
            return Report(job.position, "infra_error", started, time.time(), {}, describe(error), dirty=True)
        metrics, problem = _plain(context.finished, outcome.metrics)
        return Report(
            job.position,
            "failed" if problem and outcome.status == "succeeded" else outcome.status,
            started,
            ended,
            metrics,
            _clean((outcome.error or problem or "")[:_LONGEST_ERROR]) or None,
            series,
            (index.path, index.steps, index.reward, index.bytes) if index else None,
            context.path.exists(),
            not clean,
        )

    def _begin(self, job: Job) -> Context:
        path = Path(self._setup.runs, job.run_id)
        flags, base = tuple(job.flags), Path(self._setup.base)
        facts = Facts(job.run_id, job.arm, job.task, job.seed, job.rollout, job.attempt, flags, base, path)
        if path.exists():
            set_aside(path, job.attempt - 1)
        context = Context(facts, deadline_in(self._setup.time_limit))
        self._seeder.seed(stream_key(job.task, job.seed, "global"))
        with self._lock:
            self._context, self._began = context, time.monotonic()
            if self._setup.settle_after == 0:
                self._capture.settle(path)
        return context

    def _run(self, job: Job, context: Context) -> tuple[Outcome, bool]:
        """What came of it, and whether the worker is as good as before."""
        script.current = context
        try:
            self._phase = "running"
            if self._told_to_go:
                raise Stopped
            outcome = self._outcome(job, context)
            self._phase = "writing"
        except Stopped:
            self._phase = "writing"
            outcome = Outcome(status="infra_error", error="killed from outside (SIGTERM)")
        if os.getpid() != self._pid:
            os._exit(0)  # the run forked, and its child came back here
        script.current = None
        clean = self._world.restore()
        return outcome, self._capture.intact() and clean

    def _outcome(self, job: Job, context: Context) -> Outcome:
        try:
            params = self._workload.Params.model_validate(msgspec.msgpack.decode(job.params))
            outcome = self._workload.run(params, context)
            if not isinstance(outcome, Outcome) or outcome.status not in _ENDINGS:
                raise TypeError(
                    f"a run ends with an Outcome whose status is one of {', '.join(_ENDINGS)}, not {outcome!r}"
                )
            return outcome
        except Stopped:
            raise
        except InfraError as error:
            return Outcome(status="infra_error", error=describe(error, name=False))
        except SystemExit as error:
            return Outcome(status="failed", error=f"called sys.exit({error.code!r})")
        except BaseException as error:
            self._print_traceback(error)
            return Outcome(status="failed", error=describe(error))

    @staticmethod
    def _print_traceback(error: BaseException) -> None:
        """Into the run's output, whatever the run did to sys.stderr."""
        try:
            os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
        except Exception:
            pass  # the error itself is told in the result

    def _put_away(self, context: Context, clean: bool) -> tuple[bytes | None, TrajectoryIndex | None]:
        with self._lock:
            self._context = None
            closed = context.close()
            self._capture.finish(context.path, renew=not clean)
        return closed

    def _asked_to_stop(self, number: int, where: FrameType | None) -> None:
        """The scheduler will say why; a run that ends before it heard of it stays as it is."""
        context, first = self._context, not self._told_to_go
        self._told_to_go = True
        if self._phase == "idle":
            os._exit(0)
        if context is not None:
            context.stop_asked = True
            if first and self._phase == "running" and not context.cooperative:
                raise Stopped

    def _keep_house(self) -> None:
        """For runs that take a while: show their output under its final name, and write down what they log."""
        while True:
            time.sleep(_HOUSEKEEPING)
            with self._lock:
                context = self._context
                if context is not None and time.monotonic() - self._began >= self._setup.settle_after:
                    try:
                        self._capture.settle(context.path)
                        context.flush()
                    except OSError as error:
                        os.write(2, f"bakeoff: cannot write to {context.path}: {error}\n".encode())


def _plain(*tables: Mapping[str, Any]) -> tuple[dict[str, Scalar], str | None]:
    """Metrics as the wire and the database take them, and what is wrong with the rest."""
    found: dict[str, Scalar] = {}
    problem = None
    for table in tables:
        for name, value in table.items():
            try:
                found[_clean(name)] = _scalar(value)
            except Exception:
                problem = (
                    f"metric {name!r} is a {type(value).__name__}; metrics are numbers, and series go through ctx.log"
                )
    return found, problem


def _scalar(value: Any) -> Scalar:
    if type(value) is float or value is None or isinstance(value, bool):
        return value
    if hasattr(value, "item"):  # numpy and torch scalars
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _clean(value)
    raise TypeError


def describe(error: BaseException, name: bool = True) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(it cannot say why)"
    return _clean(f"{type(error).__name__}: {text}" if name else text)


def _clean(text: str) -> str:
    """Text that goes through the wire and into every database."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def main() -> None:
    setup = msgspec.json.decode(sys.stdin.buffer.read(), type=Setup)
    processes.die_with_parent(setup.parent)
    processes.become_subreaper()
    os.environ.update(setup.env)
    os.chdir(setup.base)
    sys.path.insert(0, setup.base)
    jobs = socket.socket(fileno=int(sys.argv[1]))
    results = socket.socket(fileno=int(sys.argv[2]))
    for end in (jobs, results):
        end.set_inheritable(False)
    Worker(setup, jobs, results).serve()


if __name__ == "__main__":
    main()
