"""`python -m bakeoff.engine.node.worker`: a warm process that does one in-process run after another.

What a run may change is remembered before the first run and put back after each: `World` has the process (environment,
signal handlers, working directory, streams, children), `Seeder` the global random generators. What cannot be put back
ends the worker.

Standard input carries the `NodeSetup`, then nothing. Orders and results have their own sockets (workers.py).
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

import msgspec

from bakeoff.engine import processes
from bakeoff.engine.executors import NodeSetup
from bakeoff.engine.node.capture import Capture
from bakeoff.engine.node.context import Context, stream_key
from bakeoff.errors import InfraError
from bakeoff.records import script
from bakeoff.records.run import Attempt, decode_json, storable
from bakeoff.records.rundir import set_aside
from bakeoff.spec.registry import workload
from bakeoff.spec.workload import Outcome, Scalar, Workload

_HOUSEKEEPING = 0.25
"""Seconds between two looks of the second thread."""
_LONGEST_ERROR = 10_000
_ENDINGS = ("succeeded", "failed", "timeout", "infra_error")
IN_FILE = "@"
"""Parameters that begin with it are in the file that follows; JSON never begins with it."""
LENGTH = struct.Struct("<I")
"""A result is a frame: the length of what follows in 4 bytes, and that many bytes."""


class Stopped(BaseException):
    """Raised in the run when it is asked to stop and does not look at `ctx.cancelled` itself."""


class Worker:
    """`setup` is that of the node; `name` is unique in it."""

    def __init__(self, setup: NodeSetup, name: str, orders: socket.socket, results: socket.socket) -> None:
        self._setup = setup
        self._orders = orders
        self._results = results
        self._pid = os.getpid()
        self._capture = Capture(setup.paths.scratch, name)
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
        self._results.sendall(LENGTH.pack(0))
        while packet := self._orders.recv(1 << 20):
            self._phase = "writing"
            attempt = self._decode(packet)
            self._do(attempt)
            attempt.params = "{}"  # the node has them
            payload = self._encode(attempt)
            self._results.sendall(LENGTH.pack(len(payload)) + payload)
            self._phase = "idle"
            if attempt.left_behind or self._stopping:
                os._exit(0)  # a thread or an exit handler that the run left must not hold us

    def _do(self, attempt: Attempt) -> None:
        """Run the attempt and fill in its result. An error in our own bookkeeping, such as a full disk, is the arm's
        failure only after its code was started: it may have caused the error."""
        attempt.started_at, began = time.time(), time.monotonic()
        try:
            context = self._begin(attempt)
        except Exception as error:
            self._context = None
            attempt.status, attempt.ended_at, attempt.error = "infra_error", attempt.started_at, describe(error)
            attempt.left_behind = True
            return
        try:
            try:
                outcome, clean = self._run(attempt, context)
            finally:
                attempt.ended_clock = time.monotonic()
                attempt.ended_at = attempt.started_at + attempt.ended_clock - began
            with self._lock:
                self._context = None
                attempt.series, attempt.trajectory = context.close()
                self._capture.finish(context.path, renew=not clean)
        except Exception as error:
            self._context = None
            outcome, clean = Outcome(status="failed", error=f"its output cannot be kept: {describe(error)}"), False
        attempt.metrics, problem = _plain(context.finished, outcome.metrics)
        attempt.status = "failed" if problem and outcome.status == "succeeded" else outcome.status
        attempt.error = storable((outcome.error or problem or "")[:_LONGEST_ERROR]) or None
        attempt.has_files = os.path.lexists(context.path)
        attempt.left_behind = not clean

    def _begin(self, attempt: Attempt) -> Context:
        path = self._setup.paths.run(attempt.run_id)
        if os.path.lexists(path):
            set_aside(path, attempt.number - 1, checkpoint=self._setup.checkpoints)
        if attempt.params.startswith(IN_FILE):
            attempt.params = Path(attempt.params.removeprefix(IN_FILE)).read_text()
        limit = self._setup.limits.time
        context = Context(attempt, self._setup.base, path, None if limit is None else time.monotonic() + limit)
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
        except Stopped:  # if it was the node that sent SIGTERM, it knows why, and that goes before what we say
            self._phase = "writing"
            outcome = Outcome(status="failed", error="killed by SIGTERM")
            attempt.exit_code = 128 + signal.SIGTERM
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
                    except BaseException as error:
                        with suppress(OSError):  # the disk is full, or the run has closed the descriptor
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


# -- what a run may change

# Those that programs take over. Asking for all sixty would cost more than a short run.
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGCHLD, signal.SIGPIPE,
)  # fmt: skip


class World:
    """The process as it was when this was made."""

    def __init__(self) -> None:
        self._streams = (sys.stdout, sys.stderr)
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._environ, self._environment = os.environ, dict(os.environ)
        # Comparing os.environ itself would decode every variable after every run.
        self._variables: dict[bytes, bytes] = vars(os.environ)["_data"]
        self._variables_before = dict(self._variables)
        self._path = list(sys.path)
        self._directory = os.getcwd()
        self._threads = threading.active_count()

    def restore(self) -> bool:
        """Put things back. False when the worker cannot be used again: threads, processes or broken streams are left."""
        for stream in (sys.stdout, sys.stderr):
            if stream not in self._streams:
                try:
                    stream.flush()
                except Exception:
                    pass  # the run put something else there; what that does is the run's own affair
        sys.stdout, sys.stderr = self._streams
        intact = True
        try:
            for stream in self._streams:
                stream.flush()
        except (OSError, ValueError):
            intact = False
        os.environ = self._environ  # noqa: B003 - a run may have replaced the whole object
        if self._variables != self._variables_before:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.umask(self._umask)
        try:
            moved = os.getcwd() != self._directory
        except OSError:  # the run's working directory was deleted
            moved = True
        if moved:
            os.chdir(self._directory)
        if processes.has_children():  # the worker is a subreaper, so daemons are among them
            left = set(processes.children()) - processes.SPARED
            processes.send(processes.descendants(left), signal.SIGKILL)
            intact = intact and not left
        return intact and threading.active_count() <= self._threads


_LIBRARIES: dict[str, Callable[[ModuleType, int], object]] = {
    "numpy.random": lambda module, key: module.seed(key % 2**32),
    "torch": lambda module, key: module.manual_seed(key % 2**63),
}


class Seeder(MetaPathFinder):
    """Seeds the global random generators for each run, so that no run depends on the one before it.

    A library that a run is the first to import is seeded right after its import: otherwise the first run of each
    worker would draw other numbers than the same run in a worker where the library is loaded already. That takes an
    import hook (`importlib.abc.MetaPathFinder`) in front of the usual ones.
    """

    def __init__(self) -> None:
        self._key = 0
        self._looking = False
        sys.meta_path.insert(0, self)

    def seed(self, key: int) -> None:
        """Seed the generators that are loaded now; those loaded later get the same key."""
        self._key = key
        random.seed(key)
        for name, seed in _LIBRARIES.items():
            if (module := sys.modules.get(name)) is not None:
                seed(module, key)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called by Python for each import. Finds nothing itself: it takes what the other finders found, and
        lets the loader of the libraries above seed them."""
        if name not in _LIBRARIES or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: ModuleType) -> None:
                load(module)
                _LIBRARIES[name](module, self._key)

            spec.loader.exec_module = load_and_seed  # type: ignore[method-assign]
        return spec


def main() -> None:
    orders_fd, results_fd, name, parent = sys.argv[1:]
    processes.die_with_parent(int(parent))
    setup: NodeSetup = pickle.load(sys.stdin.buffer)
    processes.become_subreaper()
    os.environ.update(setup.env)
    os.chdir(setup.base)
    sys.path.insert(0, str(setup.base))
    orders = socket.socket(fileno=int(orders_fd))
    results = socket.socket(fileno=int(results_fd))
    for end in (orders, results):
        end.set_inheritable(False)
    Worker(setup, name, orders, results).serve()


if __name__ == "__main__":
    main()
