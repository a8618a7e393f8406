"""The scheduler's end of pilots on Ray: messages and run directories travel in actor calls.

Each pilot always has one call of `poll` waiting at its host, and at most one of `post`. A thread waits for all of them
with `ray.wait`, and asks for a result only when it is there: Ray may never say that a node is gone. A second thread
carries large archives, so that no gigabyte holds up a heartbeat.

Envelopes are numbered and acknowledged, so a reply that is lost is asked for again. A report is passed on when the
archive that came before it is unpacked and synced in the edition's directory.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from queue import Queue
from tempfile import TemporaryFile
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from bakeoff.engine.executors.ray.host import CHUNK, Envelope, decode_envelopes
from bakeoff.engine.pilots import messages
from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.attachments import Attachments
from bakeoff.engine.pilots.connection import print_error
from bakeoff.engine.pilots.messages import Downward, Orders, Report, Upward
from bakeoff.engine.pilots.packing import pack, unpack
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.errors import BakeoffError, Damaged
from bakeoff.records.claims import PilotName, token_from
from bakeoff.records.layout import EditionPaths
from bakeoff.spec.identity import run_id_in

_POLL = 2.0
"""Seconds that a host waits for something to send."""
_RETRY = 0.5
_TAKEN_TRIES = 20
_PAUSE = 0.01
_CHUNK_PATIENCE = 60.0
"""Seconds after which a chunk counts as lost. The claim has expired by then."""


@dataclass(slots=True)
class _Wire:
    """What is on its way to and from one pilot."""

    actor: Any
    begin: Any = None
    poll: Any = None
    post: Any = None
    posting: list[bytes] = field(default_factory=list)
    posted: int = 0
    """Messages that have arrived there."""
    waiting: list[bytes] = field(default_factory=list)
    read: int = 0
    settled: list[str] = field(default_factory=list)
    settling: list[str] = field(default_factory=list)
    retry_at: float = 0.0


class RayTransport:
    """`Transport`. `actors` and `ended` are for the launcher."""

    def __init__(self, paths: EditionPaths, attachments: Attachments) -> None:
        self._paths = paths
        self._attachments = attachments
        self._arrivals = Arrivals(paths)
        self._me = secrets.token_hex(8)
        """Tells hosts that another scheduler reads now."""
        self._wires: dict[str, _Wire] = {}
        self.actors: dict[str, Any] = {}
        self.ended: dict[str, str] = {}
        self._arrived: deque[tuple[str, Upward]] = deque()
        self._reporters: dict[str, str] = {}
        """Claims that were reported and are not settled, and the pilot whose host keeps the report."""
        self._saves = 0
        self._lock = threading.RLock()
        self._closed = False
        self._transfers: Queue[tuple[str, Envelope] | None] = Queue()
        self._broken: BaseException | None = None
        """What ended one of the threads: nothing arrives any more, so `receive` raises it and the session ends."""
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in (self._work, self._carry)
        ]
        for thread in self._threads:
            thread.start()

    # -- what the executor and the launcher call

    def attach(self, name: str, actor: Any, begin: Any = None) -> None:
        """Talk to the host of this pilot. `begin` is the call that starts the pilot."""
        with self._lock:
            wire = self._wires.setdefault(name, _Wire(None))
            wire.actor, wire.begin = actor, begin
            self.actors[name] = actor
            self._flush(wire)

    def known(self) -> list[str]:
        return list(self._wires)

    def open(self, pilots: Mapping[PilotName, PilotSetup]) -> None:
        with self._lock:
            for name in pilots:
                self._wires[name] = _Wire(None)

    def receive(self) -> list[tuple[str, Upward]]:
        if self._broken is not None and not self._closed:
            raise BakeoffError(f"the connection to Ray broke: {_described(self._broken)}") from self._broken
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def send(self, pilot: str, sent: Sequence[Downward]) -> None:
        attach = self._attachments.attach
        sent = [Orders([attach(order) for order in each.orders]) if isinstance(each, Orders) else each for each in sent]
        with self._lock:
            wire = self._wires.get(pilot)
            if wire is not None:
                wire.waiting += [messages.encode(message) for message in sent]
                self._flush(wire)

    def recorded(self, tokens: Sequence[str]) -> None:
        with self._lock:
            for token in tokens:
                wire = self._wires.get(self._reporters.pop(token, ""))
                if wire is not None:
                    wire.settled.append(token)

    def forget(self, pilot: str) -> None:
        with self._lock:
            self._wires.pop(pilot, None)
            actor = self.actors.pop(pilot, None)
            self.ended.pop(pilot, None)
        if actor is not None:
            ray.kill(actor)

    def pause(self) -> None:
        """Ask for nothing more: actors are about to be ended."""
        self._closed = True
        self._transfers.put(None)
        for thread in self._threads:
            thread.join(5.0)

    def close(self) -> None:
        self._wires.clear()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._broken = error

    # -- the thread that waits

    def _flush(self, wire: _Wire) -> None:
        """Send what waits, unless a call is on its way."""
        if wire.actor is not None and wire.post is None and wire.waiting and time.monotonic() >= wire.retry_at:
            wire.posting, wire.waiting = wire.waiting, []
            wire.post = wire.actor.post.remote(self._me, wire.posted, wire.posting)

    def _work(self) -> None:
        while not self._closed:
            with self._lock:
                for name, wire in self._wires.items():
                    if wire.actor is None or name in self.ended or time.monotonic() < wire.retry_at:
                        continue
                    if wire.poll is None:
                        wire.settling, wire.settled = wire.settling + wire.settled, []
                        wire.poll = wire.actor.poll.remote(self._me, wire.read, wire.settling, _POLL)
                    self._flush(wire)
                references = [
                    reference
                    for wire in self._wires.values()
                    for reference in (wire.begin, wire.poll, wire.post)
                    if reference is not None
                ]
            if not references:
                time.sleep(_PAUSE)
                continue
            ready, others = ray.wait(references, timeout=0.1)
            if ready and others:
                ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
            arrived = set(ready)
            with self._lock:
                wires = list(self._wires.items())
            for name, wire in wires:
                for kind in ("begin", "post", "poll"):
                    if getattr(wire, kind) in arrived:
                        self._take(name, wire, kind)

    def _take(self, name: str, wire: _Wire, kind: str) -> None:
        """A call came back, with a result or an error."""
        reference = getattr(wire, kind)
        try:
            result = ray.get(reference, timeout=0)
        except GetTimeoutError:
            time.sleep(_PAUSE)  # it is ready, and not here yet: `ray.wait` would not wait
            return
        except ActorUnavailableError:  # the connection was lost: ask again
            with self._lock:
                setattr(wire, kind, None)
                wire.retry_at = time.monotonic() + _RETRY
                if kind == "post":
                    wire.waiting = wire.posting + wire.waiting
            return
        except RayError as error:
            with self._lock:
                wire.begin = wire.poll = wire.post = None
                self.ended[name] = _reason(error)
            return
        with self._lock:
            setattr(wire, kind, None)
            if kind == "post":
                wire.posted += len(wire.posting)
                self._flush(wire)
            elif kind == "poll":
                wire.settling = []
        if kind == "poll":
            for number, envelope in decode_envelopes(result):
                if number > wire.read:
                    self._open(name, envelope)
                    wire.read = number

    def _open(self, name: str, envelope: Envelope) -> None:
        if envelope.kind == "message":
            message = messages.decode_upward(envelope.content)
            if isinstance(message, Report):
                self._reporters[message.token] = name
            self._arrived.append((name, message))
        elif envelope.kind == "fetch" or envelope.archive:
            self._transfers.put((name, envelope))
        else:
            try:
                self._unpack(envelope, BytesIO(envelope.content))
            except Exception:
                print_error()  # its report finds that it is not there

    def _unpack(self, envelope: Envelope, file: Any) -> None:
        self._saves += 1
        saving, token = envelope.kind == "save", token_from(envelope.token)
        target = self._arrivals.saved(token, self._saves) if saving else self._arrivals.delivered(token)
        unpack(file, target)
        if saving:
            self._arrivals.drop_older(token)

    # -- the thread that carries

    def _carry(self) -> None:
        while (entry := self._transfers.get()) is not None:
            name, envelope = entry
            actor = self.actors.get(name)
            if actor is None or self._closed:
                continue
            try:
                if envelope.kind == "fetch":
                    self._give(actor, envelope.token)
                else:
                    self._pull(actor, envelope)
            except Exception as error:
                if not isinstance(error, OSError | RayError | Damaged):
                    print_error()
                # The node is gone, and its claims expire; or it waits in vain for what it asked for, and says so.

    def _pull(self, actor: Any, envelope: Envelope) -> None:
        """Bring a large archive home, a chunk at a time."""
        refusal = ""
        try:
            self._arrivals.open()
            with TemporaryFile(dir=self._arrivals.incoming) as file:
                while chunk := self._result(actor.read.remote(envelope.archive, file.tell())):
                    file.write(chunk)
                file.seek(0)
                self._unpack(envelope, file)
        except Exception as error:
            # The pilot waits for an answer, and names the claim in its beats until it has one: it would never expire.
            refusal = _described(error)
        for _ in range(_TAKEN_TRIES):
            try:
                self._result(actor.taken.remote(envelope.archive, refusal))
                return
            except ActorUnavailableError:  # the connection was lost, and the answer perhaps with it
                time.sleep(_RETRY)

    def _give(self, actor: Any, name: str) -> None:
        """Send a run's directory to the node that goes on with it, or files by their digest."""
        with TemporaryFile(dir=self._paths.directory) as file:
            if not self._attachments.pack(name, file):
                pack(self._paths.run(run_id_in(self._paths.directory, name)), file)
            size, offset = file.tell(), 0
            file.seek(0)
            while chunk := file.read(CHUNK):
                self._result(actor.give.remote(name, offset, chunk, offset + len(chunk) >= size))
                offset += len(chunk)

    def _result(self, reference: Any) -> Any:
        ready, _ = ray.wait([reference], timeout=_CHUNK_PATIENCE)
        if not ready:
            raise OSError("the node does not answer")
        return ray.get(reference)


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def _reason(error: RayError) -> str:
    """What Ray says about the end of an actor, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next(
        (line for line in lines if "cause" in line.lower() or "died" in line.lower()), lines[0] if lines else ""
    )
    return f"{type(error).__name__}: {reason}"[:300]
