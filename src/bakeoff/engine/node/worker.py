"""`python -m bakeoff.engine.node.worker`: a warm process that does one in-process run after another.

Between runs everything that a run may have changed is put back (world.py); what cannot be put back ends the worker.
Standard input carries the `WorkerSetup`, then nothing. Orders and results have their own sockets (workers.py).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec

from bakeoff.engine import processes
from bakeoff.engine.node.capture import Capture
from bakeoff.engine.node.context import Context, stream_key
from bakeoff.engine.node.world import Seeder, World
from bakeoff.errors import InfraError
from bakeoff.records import script
from bakeoff.records.run import Attempt, decode_json, storable
from bakeoff.records.rundir import set_aside
from bakeoff.spec.registry import workload
from bakeoff.spec.workload import Outcome, Scalar, Workload

_HOUSEKEEPING = 0.25
"""Seconds between two looks of the second thread."""
_LONGEST_ERROR = 10_000
_ENDINGS = ("succeeded", "failed", "timeout", "cancelled", "infra_error")
_LENGTH = struct.Struct("<I")


class WorkerSetup(msgspec.Struct):
    """What a worker has to know before its first attempt."""

    workload: str
    base: str
    runs: str
    scratch: str
    name: str
    parent: int
    env: dict[str, str]
    time_limit: float | None
    settle_after: float


class Frames:
    """Takes apart the stream of results: bytes in, whole frames out. A frame is a 4-byte length and that many bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if len(self._buffer) - start - 4 < length:
                break
            yield bytes(self._buffer[start + 4 : start + 4 + length])
            start += 4 + length
        del self._buffer[:start]


class Stopped(BaseException):
    """Raised in the run when it is asked to stop and does not look at `ctx.cancelled` itself."""


class Worker:
    def __init__(self, setup: WorkerSetup, orders: socket.socket, results: socket.socket) -> None:
        self._setup = setup
        self._base, self._runs = Path(setup.base), Path(setup.runs)
        self._orders = orders
        self._results = results
        self._pid = os.getpid()
        self._capture = Capture(Path(setup.scratch), setup.name)
        self._capture.take_over_standard_streams()
        instance = workload(setup.workload)
        assert isinstance(instance, Workload)
        self._workload = instance
        self._decode = msgspec.msgpack.Decoder(Attempt).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._seeder = Seeder()
        self._context: Context | None = None
        self._began = 0.0
        self._phase: Literal["idle", "running", "writing"] = "idle"
        self._stopping = False
        self._lock = threading.Lock()
        """Held while the current run changes, and while the second thread writes for it."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the scheduler, which decides what ends
        threading.Thread(target=self._keep_house, daemon=True).start()
        self._world = World()  # last: it remembers the signal handlers and the thread from above

    def serve(self) -> None:
        """Do attempts until the socket is closed. An empty frame says that the worker is ready."""
        self._results.sendall(_LENGTH.pack(0))
        while packet := self._orders.recv(1 << 20):
            self._phase = "writing"
            attempt = self._decode(packet)
            self._do(attempt)
            attempt.params = "{}"  # the node has them
            payload = self._encode(attempt)
            self._results.sendall(_LENGTH.pack(len(payload)) + payload)
            self._phase = "idle"
            if attempt.left_behind or self._stopping:
                os._exit(0)  # a thread or an exit handler that the run left must not hold us

    def _do(self, attempt: Attempt) -> None:
        """Run the attempt and fill in its result."""
        attempt.started_at = time.time()
        try:
            context = self._begin(attempt)
            outcome, clean = self._run(attempt, context)
            attempt.ended_at = time.time()
            with self._lock:
                self._context = None
                attempt.series, attempt.trajectory = context.close()
                self._capture.finish(context.path, renew=not clean)
        except OSError as error:  # in our own bookkeeping, such as a full disk: the arm is not to blame
            self._context = None
            attempt.status, attempt.ended_at, attempt.error = "infra_error", time.time(), describe(error)
            attempt.left_behind = True
            return
        attempt.metrics, problem = _plain(context.finished, outcome.metrics)
        attempt.status = "failed" if problem and outcome.status == "succeeded" else outcome.status
        attempt.error = storable((outcome.error or problem or "")[:_LONGEST_ERROR]) or None
        attempt.has_files = context.path.exists()
        attempt.left_behind = not clean

    def _begin(self, attempt: Attempt) -> Context:
        path = self._runs / attempt.run_id
        if path.exists():
            set_aside(path, attempt.number - 1)
        limit = self._setup.time_limit
        context = Context(attempt, self._base, path, None if limit is None else time.monotonic() + limit)
        # By task and seed, not by arm: the global generators are part of the world that arms share.
        self._seeder.seed(stream_key(attempt.task, attempt.seed, "global"))
        with self._lock:
            self._context, self._began = context, time.monotonic()
            if self._setup.settle_after == 0:
                self._capture.settle(path)
        return context

    def _run(self, attempt: Attempt, context: Context) -> tuple[Outcome, bool]:
        """What came of it, and whether the worker can be used again."""
        script.current = context
        try:
            self._phase = "running"
            if self._stopping:
                raise Stopped
            outcome = self._outcome(attempt, context)
            self._phase = "writing"
        except Stopped:
            self._phase = "writing"
            outcome = Outcome(status="infra_error", error="killed from outside (SIGTERM)")
        if os.getpid() != self._pid:
            os._exit(0)  # the run forked, and its child came back here
        script.current = None  # bakeoff.log and bakeoff.finish no longer go to this run
        clean = self._world.restore()
        return outcome, self._capture.intact() and clean

    def _outcome(self, attempt: Attempt, context: Context) -> Outcome:
        """Call the workload. Whatever it raises becomes an outcome, except `Stopped`."""
        try:
            params = self._workload.Params.model_validate(decode_json(attempt.params))
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
            try:  # into the run's output, whatever the run did to sys.stderr
                os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
            except Exception:
                pass  # the result has the error itself
            return Outcome(status="failed", error=describe(error))

    def _on_sigterm(self, number: int, where: FrameType | None) -> None:
        """The node knows why it asked; a run that ends before it noticed stays as it is."""
        context, first = self._context, not self._stopping
        self._stopping = True
        if self._phase == "idle":
            os._exit(0)
        if context is not None:
            context.stop_asked = True
            if first and self._phase == "running" and not context.cooperative:
                raise Stopped

    def _keep_house(self) -> None:
        """The second thread. For runs that take a while it moves output into the run's directory and writes what they
        log."""
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
    """Metrics as MessagePack and the databases take them, and what is wrong with the rest."""
    metrics: dict[str, Scalar] = {}
    problem = None
    for table in tables:
        for name, value in table.items():
            try:
                metrics[storable(name) or ""] = _scalar(value)
            except Exception:
                problem = (
                    f"metric {name!r} is a {type(value).__name__}; metrics are numbers, and series go through ctx.log"
                )
    return metrics, problem


def _scalar(value: Any) -> Scalar:
    if type(value) is float or value is None or isinstance(value, bool):
        return value
    if hasattr(value, "item"):  # numpy and torch scalars
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):  # MessagePack and SQLite have 64 bits
        return int(value) if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return storable(value)
    raise TypeError


def describe(error: BaseException, name: bool = True) -> str:
    """The error as one text, even when its own `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return storable(f"{type(error).__name__}: {text}" if name else text) or ""


def main() -> None:
    setup = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSetup)
    processes.die_with_parent(setup.parent)
    processes.become_subreaper()
    os.environ.update(setup.env)
    os.chdir(setup.base)
    sys.path.insert(0, setup.base)
    orders = socket.socket(fileno=int(sys.argv[1]))
    results = socket.socket(fileno=int(sys.argv[2]))
    for end in (orders, results):
        end.set_inheritable(False)
    Worker(setup, orders, results).serve()


if __name__ == "__main__":
    main()
