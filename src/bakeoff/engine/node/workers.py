"""A node that runs workloads in warm worker processes, each doing one in-process run at a time.

Orders go to a worker through a packet socket (AF_UNIX, SOCK_SEQPACKET), one attempt in each packet. Short runs are sent
a few at a time, so that a worker never waits for the scheduler. The node keeps the worker's end of the socket open too:
by reading from it, it takes back orders that the worker has not begun. There is no race, because the kernel gives each
packet to exactly one reader, whole (unix(7): SOCK_SEQPACKET preserves message boundaries). When a worker dies, exactly
the run that it was doing is lost.

Results come back through a stream of length-prefixed frames, since a series can be larger than a packet.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec

from bakeoff.engine import processes
from bakeoff.engine.node.node import Node, Watch, death, ending, shell_code
from bakeoff.engine.node.worker import IN_FILE, LENGTH
from bakeoff.errors import BakeoffError
from bakeoff.records.layout import atomic_write
from bakeoff.records.run import Attempt
from bakeoff.records.rundir import STDERR, STDOUT

_SHORT = 0.005
"""Runs shorter than this many seconds are sent several at a time."""
_MOST_AHEAD = 16
_STUCK = 0.05
"""When a worker's run takes longer than this, the orders waiting behind it are given to others."""
_LONGEST_PARAMS = 8 * 1024
"""Characters of parameters that go into a packet."""
_FAILED_STARTS = 3
_BUFFER = 1 << 20
_TIME_TO_LEAVE = 5.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Attempt).decode


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    orders: socket.socket
    """Our end: packets go in here."""
    taken_back: socket.socket
    """The worker's end: reading from it takes back what the worker has not begun."""
    results: socket.socket
    watch: Watch
    oom_before: int
    devices: tuple[str, ...]
    assigned: deque[Attempt] = field(default_factory=deque)
    """Oldest first; the first one is the one being done."""
    since: float = 0.0
    """`time.monotonic()` when the first one began."""
    received: bytearray = field(default_factory=bytearray)
    """The beginning of a result that has not come whole yet."""
    ready: bool = False
    leaving_since: float | None = None
    """When it was asked to exit."""
    garbled: bool = False
    """Something else than results came through its socket."""
    disturbed: bool = False
    """It got SIGTERM for the sake of a run that had ended by then: what it does now has to be done again."""

    @property
    def going(self) -> bool:
        return self.leaving_since is not None or self.watch.reason is not None

    def begin(self) -> None:
        """The first assigned attempt starts now, as far as we can tell."""
        self.since = time.monotonic()
        self.watch.restart()
        if self.assigned:
            self.assigned[0].started_at = time.time()


class WorkerNode(Node):
    """Up to `jobs` workers, started when they are needed."""

    def _open(self) -> None:
        self._scratch = self._setup.paths.scratch
        self._workers: list[_Worker] = []
        self._selector = selectors.EpollSelector()
        self._typical: float | None = None
        """Moving average of how long a run takes, in seconds."""
        self._failed_starts = 0
        self._serial = 0
        self._scratch.mkdir(parents=True, exist_ok=True)

    # -- handing over

    def _ahead(self) -> int:
        """How many attempts a worker may hold: one, or more when runs are too short to wait for the next one."""
        if self._setup.fresh or self._typical is None or self._typical > _SHORT:
            return 1
        return max(2, min(_MOST_AHEAD, int(0.004 / max(self._typical, 1e-5))))

    def width(self) -> int:
        return self._setup.jobs * self._ahead()

    def capacity(self) -> int:
        ahead = self._ahead()
        free = sum(max(0, ahead - len(worker.assigned)) for worker in self._workers if not worker.going)
        return free + (self._setup.jobs - len(self._workers)) * ahead - len(self._concluded)

    def start(self, attempt: Attempt) -> None:
        try:
            self._check_room()
        except OSError as error:
            self.refuse(attempt, error)
            return
        ahead = self._ahead()
        able = [worker for worker in self._workers if not worker.going and len(worker.assigned) < ahead]
        # The least busy worker; a new one rather than a queue behind a busy one.
        worker = min(able, key=lambda worker: len(worker.assigned), default=None)
        if (worker is None or worker.assigned) and len(self._workers) < self._setup.jobs:
            worker = self._start_worker()
        assert worker is not None, "start was called without capacity"
        worker.assigned.append(attempt)
        if len(worker.assigned) == 1:
            worker.begin()
        try:
            worker.orders.send(self._order(attempt), socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker is dying; `wait` will see that, and give the attempt back or count it
        except BlockingIOError:  # its buffer is full of orders that it has not begun
            self._unbegun.append(worker.assigned.pop())
        except OSError as error:
            self.refuse(worker.assigned.pop(), error)

    def _order(self, attempt: Attempt) -> bytes:
        """The attempt as a packet. Large parameters go through a file, one for each cell: a packet has to fit into the
        socket's buffer whole, and several may wait in it."""
        if len(attempt.params) <= _LONGEST_PARAMS:
            return _encode(attempt)
        path = self._scratch / f"params-{attempt.cell}.json"
        if not path.exists():
            atomic_write(path, attempt.params)
        return _encode(msgspec.structs.replace(attempt, params=f"{IN_FILE}{path}"))

    def _start_worker(self) -> _Worker:
        self._serial += 1
        name = f"worker-{self._serial}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results, reporting = socket.socketpair()
        for end in (ours, theirs, results, reporting):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _BUFFER)
        mark = f"{self._mark}:{name}:"
        # One thread of linear algebra in each worker: there are as many workers as cores. A fixed hash seed: the order
        # of sets must not depend on the worker. What the user has set goes before both.
        devices, variables = self._take_devices()
        env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **os.environ, **variables}
        env[processes.MARK] = mark
        # -P keeps the working directory out of sys.path while our modules are imported: a `queue.py` beside the
        # experiment file must not replace the standard one.
        command = ["-P", "-m", "bakeoff.engine.node.worker"]
        command += [str(theirs.fileno()), str(reporting.fileno()), name, str(os.getpid())]
        with open(self._scratch / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), reporting.fileno()),
                start_new_session=True,
                env=env,
            )
        assert process.stdin is not None
        try:
            pickle.dump(self._setup, process.stdin)
            process.stdin.close()
        except OSError:
            pass  # it died at once; `_died` counts it as a failed start
        reporting.close()  # so that `results` ends when the worker does; `theirs` stays open, to take orders back
        results.setblocking(False)
        watch = Watch(process.pid, mark, self._limits)
        worker = _Worker(name, process, ours, theirs, results, watch, processes.oom_kills(), devices)
        self._selector.register(results, selectors.EVENT_READ, worker)
        self._workers.append(worker)
        return worker

    # -- what comes back

    def wait(self, timeout: float) -> list[Attempt]:
        for key, _ in self._selector.select(0 if self._unbegun or self._concluded else timeout):
            self._read(key.data)
        now = time.monotonic()
        for worker in self._workers:
            if worker.assigned and worker.ready:
                if len(worker.assigned) > 1 and now - worker.since > _STUCK:
                    self._take_back(worker)
                worker.watch.check(now)
            elif worker.leaving_since is not None and now - worker.leaving_since > _TIME_TO_LEAVE:
                worker.process.kill()  # an exit handler hangs
        self._supervise()
        unbegun, self._unbegun = self._unbegun, []
        for attempt in unbegun:
            attempt.started_at = None
        return [*self._take_concluded(), *sorted(unbegun, key=lambda attempt: attempt.position)]

    def _read(self, worker: _Worker) -> None:
        while True:
            try:
                data = worker.results.recv(_BUFFER)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._died(worker)
                return
            worker.received += data
            while len(worker.received) >= LENGTH.size:
                end = LENGTH.size + LENGTH.unpack_from(worker.received)[0]
                if len(worker.received) < end:
                    break
                payload = bytes(worker.received[LENGTH.size : end])
                del worker.received[:end]
                if not payload:  # the worker has started; time limits count from here
                    worker.ready = True
                    worker.begin()
                    continue
                try:
                    report = _decode(payload)
                    if report.position != worker.assigned[0].position:
                        raise ValueError("a worker reports in the order in which it was sent attempts")
                except (ValueError, IndexError):  # the run wrote into our socket: its worker cannot be trusted any more
                    worker.garbled = True
                    worker.process.kill()
                    return
                self._reported(worker, report)

    def _reported(self, worker: _Worker, report: Attempt) -> None:
        self._failed_starts = 0
        attempt = worker.assigned.popleft()
        if worker.disturbed:  # SIGTERM was meant for the run before, and may have interrupted this one
            self._unbegun.append(attempt)
            return
        attempt.take_result(report)
        took = (attempt.ended_at or 0.0) - (attempt.started_at or 0.0)
        if self._typical is None:
            self._typical = took
        else:  # one that had to wait for a core took long, and says little about the others
            self._typical += (0.2 if took < self._typical else 0.02) * (took - self._typical)
        end = ending(worker.watch.why_ended(took, attempt.ended_clock), self._limits)
        if end is not None:
            attempt.status, attempt.error = end.status, end.error
        if attempt.left_behind or self._setup.fresh or worker.watch.reason is not None:
            self._dismiss(worker)
            worker.disturbed = bool(worker.assigned)
        elif worker.assigned:
            worker.begin()
        if attempt.has_files or attempt.exit_code is not None:
            self._conclude(attempt, self._context(attempt))
        else:
            self._concluded.append(attempt)

    def _dismiss(self, worker: _Worker) -> None:
        if worker.leaving_since is None:
            worker.leaving_since = time.monotonic()
            self._take_back(worker)
            worker.orders.close()

    def _take_back(self, worker: _Worker) -> None:
        """Take back the packets that the worker has not read. It may read one between two of ours, so each is decoded
        to see whose it is."""
        taken: set[int] = set()
        while True:
            try:
                packet = worker.taken_back.recv(_BUFFER, socket.MSG_DONTWAIT)
            except OSError:
                break
            if not packet:
                break
            taken.add(_decode(packet).position)
        if taken:
            self._unbegun += [attempt for attempt in worker.assigned if attempt.position in taken]
            worker.assigned = deque(attempt for attempt in worker.assigned if attempt.position not in taken)

    def _died(self, worker: _Worker) -> None:
        """The attempt that the worker was doing has failed; those it had not begun are given back."""
        self._workers.remove(worker)
        code = worker.process.wait()
        self._take_back(worker)
        living = [*(other.process.pid for other in self._workers), *self._readers()]
        self._orphans.end(f"{self._mark}:{worker.name}:", worker.process.pid, living)
        if not worker.ready or (code != 0 and not worker.assigned and worker.leaving_since is None):
            # It died without a run to blame. That may happen once; when it goes on happening, no run can be done.
            self._failed_starts += 1
            if self._failed_starts >= _FAILED_STARTS:
                log = self._scratch / f"{worker.name}.log"
                tail = log.read_text(errors="replace").strip().splitlines()[-12:] if log.exists() else []
                self._forget(worker)
                raise BakeoffError(f"worker processes keep dying (exit code {code}):\n" + "\n".join(tail))
        lost = list(worker.assigned)
        if worker.disturbed:
            self._unbegun += lost
            lost = []
        for attempt in lost:
            context = self._context(attempt)
            for suffix, name in ((".out", STDOUT), (".err", STDERR)):
                path = self._scratch / f"{worker.name}{suffix}"
                try:
                    if path.stat().st_size:
                        path.rename(context.directory / name)
                except OSError:
                    continue  # it lies in the run's directory already, or there is no room for one
            attempt.status, attempt.error = ending(worker.watch.reason, self._limits) or death(code, worker.oom_before)
            if worker.garbled:
                attempt.status, attempt.error = "failed", "wrote into the socket through which workers report"
            attempt.ended_at = (attempt.started_at or 0.0) + time.monotonic() - worker.since
            attempt.exit_code = shell_code(code)
            self._conclude(attempt, context)
        self._forget(worker)

    def _forget(self, worker: _Worker) -> None:
        self._give_devices(worker.devices)
        self._selector.unregister(worker.results)
        for end in (worker.results, worker.orders, worker.taken_back):
            end.close()
        for suffix in (".out", ".err", ".log"):
            (self._scratch / f"{worker.name}{suffix}").unlink(missing_ok=True)

    # -- stopping

    def stop(self, *, running: bool) -> None:
        self._stop_at = self._stop_at or time.monotonic()
        for worker in self._workers:
            self._take_back(worker)
            if running and worker.assigned:
                worker.watch.end("cancelled")

    def end(self, position: int) -> None:
        for worker in self._workers:
            if worker.assigned and worker.assigned[0].position == position:
                worker.watch.end("cancelled")
            elif any(attempt.position == position for attempt in worker.assigned):
                self._take_back(worker)

    def close(self) -> None:
        try:
            for worker in self._workers:
                self._dismiss(worker)
                if worker.assigned:  # only when the scheduler leaves because of an error
                    processes.send(processes.descendants([worker.process.pid]), signal.SIGKILL)
            while self._workers:
                worker = self._workers.pop()
                try:
                    worker.process.wait(timeout=_TIME_TO_LEAVE)
                except subprocess.TimeoutExpired:
                    worker.process.kill()
                    worker.process.wait()
                living = [*(other.process.pid for other in self._workers), *self._readers()]
                self._orphans.end(f"{self._mark}:{worker.name}:", worker.process.pid, living)
                self._forget(worker)
            self._selector.close()
        finally:
            super().close()
