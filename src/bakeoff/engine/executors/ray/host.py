"""What runs on a Ray node: an actor that hosts a pilot, and the pilot's end of the wire.

The pilot (engine/pilots/pilot.py) is a process of its own below the actor's. The actor keeps its messages: what the pilot
sent stays in the actor's memory until a scheduler has recorded it, so the next scheduler finds it there. Neither imports
the other's world: this module imports `ray` only inside the actor, and the pilot process never does.

    scheduler -- actor calls --> Host -- unix socket --> HostLink -- Pilot

A pilot proves that it can reach Ray's control plane by its host: the host asks the GCS once a second, and `exchange`
fails while the GCS does not answer.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.engine.pilots import messages
from bakeoff.engine.pilots.arrivals import checkpoint_unchanged
from bakeoff.engine.pilots.attachments import is_digest, unpack_attachment
from bakeoff.engine.pilots.connection import print_error
from bakeoff.engine.pilots.messages import Bye, Downward, Hello, Report, Returned, Upward
from bakeoff.engine.pilots.packing import pack, unpack
from bakeoff.engine.pilots.scratch import Scratch
from bakeoff.engine.pilots.transport import PilotSetup

CHUNK = 4 << 20
"""Bytes of an archive that travel in one call."""
_INLINE = 256 << 10
"""Archives up to this size travel together with the report."""
_PROBE = 1.0
_STALE = 2.5
"""Seconds without an answer of the GCS after which it counts as unreachable."""
_UNREAD = 30.0
"""Seconds that a host waits for a scheduler to read its pilot's last message."""
_GATHER, _ENOUGH = 0.01, 64
"""Seconds for which more envelopes are waited for after the first one, and how many end that: a call of Ray costs as much as
many short runs."""
_MOST = 500
"""Envelopes in one answer."""
_LEAVING = 8.0
_PAUSE = 0.1
"""Seconds after an error before the same is tried again."""
_FETCH_PATIENCE = 60.0


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """Something from a pilot's node to the scheduler: a message, or an archive that is announced."""

    kind: str
    """`message`, `deliver`, `save` or `fetch`."""
    content: bytes = b""
    """The message; of an archive, all of it when it is small."""
    token: str = ""
    """Of an archive: its claim. Of `fetch`: the run's id, or a digest."""
    archive: str = ""
    """Where the rest of the archive can be read (`Host.read`); empty when it is all in `content`."""


_encode = msgspec.msgpack.Encoder().encode
decode_envelopes = msgspec.msgpack.Decoder(list[tuple[int, Envelope]]).decode


class Host:
    """The actor. Methods are called by the scheduler, several at a time; `_serve` answers the pilot."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._reader = ""
        self._out: deque[tuple[int, Envelope]] = deque()
        """Numbered envelopes that the reader has not acknowledged."""
        self._number = 0
        self._kept: list[Envelope] = []
        """Envelopes for the next scheduler: until they are settled, or for good."""
        self._down: list[bytes] = []
        self._downward = ("", 0)
        """The sender of the newest orders, and how many of its messages arrived."""
        self._archives: dict[str, Path] = {}
        self._taken: dict[str, str] = {}
        """Archives that arrived at home, or why they were refused."""
        self._given: dict[str, Path] = {}
        self._complete: set[str] = set()
        """Run directories that the scheduler sent."""
        self._reached = time.monotonic()
        self._read_at = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._greeted = False
        self._scratch = Scratch("host")
        self._log = self._scratch.path / "pilot.log"

    # -- what the scheduler calls

    def begin(self, setup: bytes, env: dict[str, str]) -> None:
        """Start the pilot. `env` is added to its environment; it travels in this call, and is written to no file."""
        key = secrets.token_hex(16)
        listener = Listener(str(self._scratch.path / "socket"), "AF_UNIX", authkey=key.encode())
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        threading.Thread(target=self._probe, daemon=True).start()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bakeoff.engine.executors.ray.host",
                    str(self._scratch.path / "socket"),
                    self._name,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **env},
            )
        assert self._process.stdin is not None
        # Stays open: the pilot leaves when it closes, which is how it learns that its host has died.
        first = msgspec.msgpack.encode((key, setup))
        self._process.stdin.write(len(first).to_bytes(8, "big") + first)
        self._process.stdin.flush()
        threading.Thread(target=self._watch, daemon=True).start()

    def post(self, sender: str, first: int, frames: list[bytes]) -> None:
        """Messages for the pilot. The same ones may come again after an error; each is taken once."""
        with self._changed:
            known, received = self._downward
            if known != sender:
                received = 0
            self._down += frames[max(0, received - first) :]
            self._downward = (sender, max(received, first + len(frames)))
            self._changed.notify_all()

    def poll(self, reader: str, read: int, settled: list[str], patience: float) -> bytes:
        """Envelopes after number `read`, as soon as there are any, or none after `patience` seconds; for `decode_envelopes`.

        A new reader gets everything that is kept. `settled` are claims that are recorded.
        """
        with self._changed:
            self._read_at = time.monotonic()
            over = set(settled)
            if over:
                self._kept = [envelope for envelope in self._kept if envelope.token not in over or not envelope.token]
            if reader != self._reader:
                self._reader = reader
                self._out.clear()
                for envelope in self._kept:
                    self._enqueue(envelope)
            while self._out and self._out[0][0] <= read:
                self._out.popleft()
            if not self._out:
                self._changed.wait_for(lambda: bool(self._out) or reader != self._reader, patience)
                self._changed.wait_for(lambda: len(self._out) >= _ENOUGH, _GATHER)
            self._read_at = time.monotonic()
            # As bytes: Ray would pickle each envelope.
            return _encode(list(islice(self._out, _MOST)) if reader == self._reader else [])

    def read(self, archive: str, offset: int) -> bytes:
        """A chunk of an archive; empty at its end. Raises OSError when there is no such archive."""
        path = self._archives.get(archive)
        if path is None:
            raise OSError("the archive is gone")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK)

    def taken(self, archive: str, refusal: str) -> None:
        """An archive has arrived at home, or was refused there."""
        with self._changed:
            self._taken[archive] = refusal
            self._changed.notify_all()

    def give(self, run_id: str, offset: int, chunk: bytes, last: bool) -> None:
        """A part of the archive of a run's directory that the pilot asked for."""
        with self._changed:
            path = self._given.get(run_id)
        if path is None:
            return
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(chunk)
        with self._changed:
            if last:
                self._complete.add(run_id)
            self._changed.notify_all()

    def log(self) -> str:
        """The end of what the pilot printed."""
        try:
            return self._log.read_text(errors="replace")[-2000:]
        except OSError:
            return ""

    def leave(self) -> None:
        """End the pilot and everything that it runs."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_LEAVING)
            except subprocess.TimeoutExpired:
                process.kill()  # its supervisor ends its runs
                process.wait()
        self._scratch.close()

    # -- behind the scenes

    def _enqueue(self, envelope: Envelope) -> None:
        self._number += 1
        self._out.append((self._number, envelope))
        self._changed.notify_all()

    def _probe(self) -> None:
        """Ask the GCS once a second. The call may hang for as long as it likes: then nothing is noted."""
        while True:
            try:
                from ray.experimental import internal_kv

                internal_kv._internal_kv_exists(b"bakeoff")
                self._reached = time.monotonic()
            except BaseException:  # whatever Ray raises: it was not reached
                pass
            time.sleep(_PROBE)

    def _watch(self) -> None:
        """When the pilot has left and its last message is read and recorded, or nobody reads it, the actor ends too.

        It holds CPUs of the cluster, which the pilot that takes its place needs.
        """
        try:
            self._outlast_pilot()
        except BaseException:
            print_error()
        self._scratch.close()
        os._exit(0)

    def _outlast_pilot(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        ended = time.monotonic()
        with self._changed:
            if not self._greeted:  # then it has run nothing
                why = f"it ended with exit code {code} before it said anything\n{self.log()}".rstrip()
                self._enqueue(Envelope("message", messages.encode(Bye(why, expected=False))))
        while True:
            time.sleep(0.2)
            with self._changed:
                over = not self._out and not any(envelope.token for envelope in self._kept)
            if over or time.monotonic() - max(ended, self._read_at) > _UNREAD:
                return

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except BaseException:  # a process without the key, or no descriptors are left
                time.sleep(_PAUSE)
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except BaseException:  # too many threads: the pilot asks again over another connection
                connection.close()
                time.sleep(_PAUSE)

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """Answer one thread of the pilot. After an error it finds the connection closed, and asks again over another."""
        try:
            with connection:
                while True:
                    method, arguments = connection.recv()
                    connection.send(getattr(self, f"_pilot_{method}")(*arguments))
        except EOFError:
            pass
        except BaseException:
            print_error()

    def _pilot_exchange(self, frames: list[bytes]) -> tuple[list[bytes], float]:
        age = time.monotonic() - self._reached
        if age > _STALE:
            return [], age
        with self._changed:
            for frame in frames:
                message = messages.decode_upward(frame)
                envelope = Envelope("message", frame, message.token if isinstance(message, Report) else "")
                self._greeted |= isinstance(message, Hello)
                if isinstance(message, Report | Returned | Hello | Bye):
                    self._kept.append(envelope)
                self._enqueue(envelope)
            down, self._down = self._down, []
            return down, age

    def _pilot_send(self, kind: str, token: str, content: bytes, path: str) -> str:
        """Announce an archive. A small one is on its way with that; the name of a large one is returned."""
        archive = f"{token}.{secrets.token_hex(4)}" if path else ""
        envelope = Envelope(kind, content, token, archive)
        with self._changed:
            if path:
                self._archives[archive] = Path(path)
            if kind == "save":
                self._kept = [kept for kept in self._kept if (kept.kind, kept.token) != ("save", token)]
            self._kept.append(envelope)
            self._enqueue(envelope)
        return archive

    def _pilot_arrived(self, archive: str, patience: float) -> str | None:
        """None while the archive is on its way; then why it was refused, or an empty text."""
        with self._changed:
            self._changed.wait_for(lambda: archive in self._taken, patience)
            if archive not in self._taken:
                return None
            self._archives.pop(archive, None)
            # It is at home now, where the next scheduler finds it; only its report is still wanted.
            self._kept = [envelope for envelope in self._kept if envelope.archive != archive]
            return self._taken.pop(archive)

    def _pilot_ask(self, run_id: str) -> str:
        """Ask for a run's directory; returns where its archive will be."""
        path = self._scratch.path / f"{run_id}.{secrets.token_hex(4)}"
        path.touch()
        with self._changed:
            self._given[run_id] = path
            self._complete.discard(run_id)
            self._enqueue(Envelope("fetch", token=run_id))
        return str(path)

    def _pilot_given(self, run_id: str, patience: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: run_id in self._complete, patience)


class HostLink:
    """A pilot's end (`Link`). Each thread of the pilot has its own connection."""

    def __init__(self, socket: str, key: str, scratch: Path) -> None:
        self._socket, self._key, self._scratch = socket, key.encode(), scratch
        self._connections = threading.local()

    def _ask(self, method: str, *arguments: Any) -> Any:
        connection = getattr(self._connections, "it", None)
        if connection is None:
            connection = self._connections.it = Client(self._socket, "AF_UNIX", authkey=self._key)
        try:
            connection.send((method, arguments))
            return connection.recv()
        except (EOFError, OSError) as error:
            connection.close()
            self._connections.it = None  # the next call opens another one
            raise ConnectionError("the actor that hosts this pilot is gone") from error

    def exchange(self, sent: Sequence[Upward]) -> list[Downward]:
        frames, age = self._ask("exchange", [messages.encode(message) for message in sent])
        if age > _STALE:
            raise OSError(f"Ray's control plane has not answered for {age:.0f} s")
        return [messages.decode_downward(frame) for frame in frames]

    def deliver(self, token: str, directory: Path) -> None:
        self._send("deliver", token, directory, nullcontext())

    def save(self, token: str, directory: Path) -> None:
        self._send("save", token, directory, checkpoint_unchanged(directory))

    def _send(self, kind: str, token: str, directory: Path, watch: AbstractContextManager[None]) -> None:
        """Send a small directory; for a large one, wait until it has arrived at home. `watch` is open while it is packed."""
        with tempfile.NamedTemporaryFile(dir=self._scratch, prefix="archive-") as file:
            with watch:
                pack(directory, file)
            file.flush()
            if file.tell() <= _INLINE:
                file.seek(0)
                self._ask("send", kind, token, file.read(), "")
                return
            archive = self._ask("send", kind, token, b"", file.name)
            while (refusal := self._ask("arrived", archive, 1.0)) is None:
                pass
        if refusal:
            raise OSError(refusal)

    def fetch(self, name: str, directory: Path) -> None:
        archive = Path(self._ask("ask", name))
        try:
            size, since = -1, time.monotonic()
            while not self._ask("given", name, 1.0):
                if archive.stat().st_size > size:
                    size, since = archive.stat().st_size, time.monotonic()
                if time.monotonic() - since > _FETCH_PATIENCE:
                    raise OSError(f"{name} did not arrive")
            with archive.open("rb") as file:
                if is_digest(name):
                    unpack_attachment(name, file, directory)
                else:
                    unpack(file, directory, sync=False)
        finally:
            archive.unlink(missing_ok=True)


def _leave_with_host() -> None:
    """Let the pilot leave when its host has died, which closes standard input, or when that cannot be seen any more."""
    try:
        while os.read(0, 1):
            pass
    except BaseException:
        print_error()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_LEAVING)
    os._exit(1)  # the supervisor of its node ends what it runs


def main() -> None:
    """Be the pilot `sys.argv[2]` whose host listens on `sys.argv[1]`; key and setup come through standard input."""
    from bakeoff.engine.pilots.pilot import run_pilot

    socket, name = sys.argv[1:3]
    first = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))
    key, content = msgspec.msgpack.decode(first, type=tuple[str, bytes])
    setup = msgspec.msgpack.decode(content, type=PilotSetup)

    threading.Thread(target=_leave_with_host, daemon=True).start()
    scratch = Scratch("archives")
    try:
        setup = msgspec.structs.replace(setup, base=os.getcwd())
        print(run_pilot(setup, HostLink(socket, key, scratch.path), name), flush=True)
    finally:
        scratch.close()


if __name__ == "__main__":
    main()
