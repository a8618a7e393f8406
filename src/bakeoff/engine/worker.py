"""`python -m bakeoff.engine.worker`: a warm process that does one in-process run after another.

Between runs everything that a run may have changed is put back: working directory, environment, signal handlers,
standard streams, global random seeds. What cannot be put back (threads, child processes) ends the worker.
Standard input carries the setup, then nothing; jobs and results have sockets of their own.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from bakeoff.engine import processes
from bakeoff.engine.capture import Capture
from bakeoff.engine.context import Context, Facts, deadline_in, stream_key
from bakeoff.engine.wire import Job, Report, Setup, frame
from bakeoff.errors import InfraError
from bakeoff.records import script
from bakeoff.records.rundir import set_aside
from bakeoff.spec.registry import workload
from bakeoff.spec.workload import Outcome, Workload

_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)
_HOUSEKEEPING = 0.25


class Stopped(BaseException):
    """Raised in the run when it is asked to stop and does not look at `ctx.cancelled` itself."""


class Worker:
    def __init__(self, setup: Setup, jobs: socket.socket, results: socket.socket) -> None:
        self._setup = setup
        self._jobs = jobs
        self._results = results
        self._capture = Capture(Path(setup.scratch), setup.name)
        self._capture.take_over_standard_streams()
        self._streams = (sys.stdout, sys.stderr)
        found = workload(setup.workload)
        assert isinstance(found, Workload)
        self._workload = found
        self._params: dict[int, Any] = {}
        self._decode: Callable[[bytes], Job] = msgspec.msgpack.Decoder(Job).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._context: Context | None = None
        self._began = 0.0
        self._lock = threading.Lock()
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._environment = dict(os.environ)
        threading.Thread(target=self._keep_house, daemon=True).start()
        self._threads = threading.active_count()

    def serve(self) -> None:
        self._results.sendall(frame(b""))  # ready
        while packet := self._jobs.recv(1 << 20):
            report = self._do(self._decode(packet))
            self._results.sendall(frame(self._encode(report)))
            if report.dirty:
                return

    def _do(self, job: Job) -> Report:
        path = Path(self._setup.runs, job.run_id)
        facts = Facts(
            job.run_id,
            job.arm,
            job.task,
            job.seed,
            job.rollout,
            job.attempt,
            tuple(job.flags),
            Path(self._setup.base),
            path,
        )
        if path.exists():
            set_aside(path, job.attempt - 1)
        context = Context(facts, deadline_in(self._setup.time_limit))
        self._seed(job)
        started = time.time()
        with self._lock:
            self._context, self._began = context, time.monotonic()
            if self._setup.settle_after == 0:
                self._capture.settle(path)
        script.current = context
        outcome = self._outcome(job, context)
        ended = time.time()
        script.current = None
        dirty = self._restore()
        with self._lock:
            self._context = None
            series, index = context.close()
            self._capture.finish(path, renew=dirty)
        metrics = {**context.finished, **outcome.metrics}
        trajectory = (index.path, index.steps, index.reward, index.bytes) if index else None
        return Report(
            job.position,
            outcome.status,
            started,
            ended,
            metrics,
            outcome.error,
            series,
            trajectory,
            path.exists(),
            dirty,
        )

    def _outcome(self, job: Job, context: Context) -> Outcome:
        try:
            params = self._params.get(job.cell)
            if params is None:
                params = self._workload.Params.model_validate(msgspec.msgpack.decode(job.params))
                self._params = {**self._params, job.cell: params} if len(self._params) < 1000 else {job.cell: params}
            return self._workload.run(params, context)
        except Stopped:
            return Outcome(status="cancelled", error="stopped")
        except InfraError as error:
            return Outcome(status="infra_error", error=str(error))
        except SystemExit as error:
            return Outcome(status="failed", error=f"called sys.exit({error.code!r})")
        except BaseException as error:
            traceback.print_exc()
            return Outcome(status="failed", error=f"{type(error).__name__}: {error}")

    def _seed(self, job: Job) -> None:
        """Global generators start from (task, seed), so that a run does not depend on the one before."""
        key = stream_key(job.task, job.seed, "global")
        random.seed(key)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(key % 2**32)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(key % 2**63)

    def _restore(self) -> bool:
        """Put things back. True when the worker cannot be used again."""
        for stream, original in zip((sys.stdout, sys.stderr), self._streams, strict=True):
            try:
                stream.flush()
                original.flush()
            except (OSError, ValueError):
                return True
        sys.stdout, sys.stderr = self._streams
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            if os.getcwd() != self._setup.base:
                os.chdir(self._setup.base)
        except OSError:
            os.chdir(self._setup.base)
        left = processes.children()
        if left:
            processes.send(processes.descendants(left), signal.SIGKILL)
        return bool(left) or threading.active_count() > self._threads

    def _asked_to_stop(self, number: int, where: FrameType | None) -> None:
        context = self._context
        if context is None:
            os._exit(0)
        context.stop_asked = True
        if not context.cooperative:
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
                        print(f"bakeoff: cannot write to {context.path}: {error}", file=sys.__stderr__)


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
