"""The transport of engines with a shared file system: a spool directory with three files for each pilot.

    <edition>/.spool/
      pilots.json          names of all pilots of this edition that may live
      <pilot>/setup.json   what the pilot has to know
      <pilot>/down         frames from the scheduler, appended
      <pilot>/up           frames from the pilot, appended
      <pilot>/beat         the pilot's newest sign of life, replaced in place

    python -m bakeoff.engine.pilots.spool SPOOL PILOT      # on the node: be that pilot

Every file has one writer and one reader and a name that is fixed before the pilot starts, and it is opened again for each
read: NFS looks at the server only when a file is opened (close-to-open consistency, nfs(5)), and caches directories and
names that are not there for up to a minute. No lock is taken. What is written is flushed by closing the file.

A frame is length, checksum and content. Another client may see a file grow before its content arrives; then the checksum
is wrong, and the frame is read again later. A writer that was interrupted writes at the same offset again, so a torn
frame never stays.

`down` and `up` hold what was ordered and what came of it, and `forget` removes them. Signs of life are many times that in
a pilot that lives for days, and only the newest one counts, so they have a file that does not grow.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bakeoff.engine.pilots import messages
from bakeoff.engine.pilots.arrivals import Arrivals, checkpoint_unchanged, copy_synced
from bakeoff.engine.pilots.messages import Beat, Downward, Report, Upward
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.errors import Damaged, StorageError
from bakeoff.records.claims import Claim, PilotName, is_pilot_name, token_from
from bakeoff.records.edition import Edition
from bakeoff.records.files import read_inside, refuse_links
from bakeoff.records.layout import SPOOL, EditionPaths, atomic_write
from bakeoff.records.run import Attempt
from bakeoff.spec.identity import run_id_in
from bakeoff.trees import copy_tree

_PILOTS, _SETUP, _DOWN, _UP, _BEAT = "pilots.json", "setup.json", "down", "up", "beat"
_HEAD = struct.Struct("<II")
"""Length of the content, and its CRC-32."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How files are opened: no link is followed, and a pipe in the place of a file is not waited for (fifo(7))."""
_PAGE = 4 << 20
"""Bytes that one read takes in."""
_LARGEST = 1 << 30
_BEATS_INTERVAL = 0.25
"""Seconds between two looks at signs of life."""


class Reader:
    """The frames of a file that somebody else appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[bytes]:
        """Frames that came since the last call, as far as they are whole. Raises OSError when it cannot be read."""
        descriptor = os.open(self.path, _READ)
        try:
            if os.fstat(descriptor).st_size <= self._offset:
                return []
            data = os.pread(descriptor, _PAGE, self._offset)
            if len(data) >= _HEAD.size:
                length = _HEAD.unpack_from(data)[0]
                if length <= _LARGEST and _HEAD.size + length > _PAGE:  # one frame that is larger than a page
                    data = os.pread(descriptor, _HEAD.size + length, self._offset)
        finally:
            os.close(descriptor)
        frames, at = [], 0
        while at + _HEAD.size <= len(data):
            length, checksum = _HEAD.unpack_from(data, at)
            content = data[at + _HEAD.size : at + _HEAD.size + length]
            if len(content) < length or zlib.crc32(content) != checksum or not length:
                break  # it has not arrived whole
            frames.append(content)
            at += _HEAD.size + length
        self._offset += at
        return frames


class Writer:
    """Appends frames to a file that nobody else writes."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    @classmethod
    def append(cls, path: Path) -> Writer:
        """Go on behind the whole frames that are there: those of an earlier scheduler."""
        reader = Reader(path)
        while reader.read():
            pass
        return cls(path, reader._offset)

    def write(self, contents: Sequence[bytes]) -> None:
        """Raises OSError, and then nothing counts as written: the same is to be written again."""
        data = b"".join(_HEAD.pack(len(content), zlib.crc32(content)) + content for content in contents)
        descriptor = os.open(self._path, _CREATE, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], self._offset + written)
        finally:
            os.close(descriptor)  # NFS sends what was written now, and says here when it could not
        self._offset += len(data)


class Newest:
    """A file with one frame, which its writer replaces: only the newest one counts, and the file does not grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._seen = bytes(_HEAD.size)

    def write(self, content: bytes) -> None:
        """Raises OSError; then the frame of before is there, or none until the next one is written."""
        self._number += 1  # two frames with the same content are two
        numbered = self._number.to_bytes(8, "little") + content
        Writer(self._path).write([numbered])

    def read(self) -> bytes | None:
        """The frame, when it has come since the last call and is whole. Raises OSError when it cannot be read."""
        descriptor = os.open(self._path, _READ)
        try:
            head = os.pread(descriptor, _HEAD.size, 0)
            if head == self._seen or len(head) < _HEAD.size:
                return None
            length, checksum = _HEAD.unpack(head)
            numbered = os.pread(descriptor, min(length, _LARGEST), _HEAD.size)
        finally:
            os.close(descriptor)
        if len(numbered) < length or zlib.crc32(numbered) != checksum:
            return None  # it is being written
        self._seen = head
        return numbered[8:]


def take_in(edition: Edition, claims: Sequence[Claim]) -> dict[str, Attempt]:
    """Return results that wait in the spool of an edition that goes on without pilots, by the tokens of their claims.

    Their run directories are put into their places.
    """
    spool = edition.paths.directory / SPOOL
    if not spool.is_dir() or spool.is_symlink():
        return {}
    wanted: dict[str, Claim] = {claim.token: claim for claim in claims}
    arrivals, results = Arrivals(edition.paths), dict[str, Attempt]()
    for name, message in SpoolTransport(edition.paths).receive():
        claim = wanted.get(message.token) if isinstance(message, Report) else None
        if claim is None or not isinstance(message, Report) or claim.pilot != name:
            continue
        run_id = edition.run(claim.position).run_id
        if not message.directory or arrivals.install(claim.token, run_id):
            results[claim.token] = message.attempt
            arrivals.settled(run_id)
    arrivals.sync()
    return results


def abandon(paths: EditionPaths) -> None:
    """Remove the spool of an edition that goes on without pilots. Those that live notice, end their runs and leave."""
    if (paths.directory / SPOOL).exists():
        shutil.rmtree(paths.directory / SPOOL, ignore_errors=True)
        Arrivals(paths).close()


class SpoolTransport:
    """The scheduler's end (`Transport`)."""

    def __init__(self, paths: EditionPaths) -> None:
        self.directory = paths.directory / SPOOL
        self._readers: dict[str, Reader] = {}
        self._writers: dict[str, Writer] = {}
        self._beats: dict[str, Newest] = {}
        self._beats_at = 0.0
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            refuse_links(self.directory)
            names = json.loads(read_inside(self.directory, _PILOTS))
        except FileNotFoundError:
            names = []
        except (OSError, ValueError) as error:
            raise StorageError(f"{self.directory}: cannot be used as a spool: {error}") from error
        # The spool may have come with an edition, and each name is a directory that is written to, and deleted.
        if not isinstance(names, list) or not all(map(is_pilot_name, names)):
            raise Damaged(self.directory / _PILOTS, "it names what cannot be a pilot")
        for name in names:
            folder = self._folder(name)
            self._readers[name] = Reader(folder / _UP)
            self._writers[name] = Writer.append(folder / _DOWN)
            self._beats[name] = Newest(folder / _BEAT)

    def _folder(self, pilot: PilotName) -> Path:
        return self.directory / pilot

    def known(self) -> list[str]:
        return list(self._readers)

    def open(self, pilots: Mapping[PilotName, PilotSetup]) -> None:
        for name, setup in pilots.items():
            folder = self._folder(name)
            folder.mkdir(mode=0o700)
            (folder / _SETUP).write_bytes(msgspec.json.encode(setup))
            # Before anybody looks for them: a name that is not there is cached as well.
            for file in (_DOWN, _UP, _BEAT):
                (folder / file).touch(mode=0o600)
            self._readers[name] = Reader(folder / _UP)
            self._writers[name] = Writer(folder / _DOWN)
            self._beats[name] = Newest(folder / _BEAT)
        self._remember()

    def _remember(self) -> None:
        atomic_write(self.directory / _PILOTS, json.dumps(list(self._readers)))

    def receive(self) -> list[tuple[str, Upward]]:
        received: list[tuple[str, Upward]] = []
        look = (now := time.monotonic()) >= self._beats_at
        if look:
            self._beats_at = now + _BEATS_INTERVAL
        for name, reader in self._readers.items():
            frames = []
            try:  # the sign of life first: it is older than what was reported since
                if look and (beat := self._beats[name].read()) is not None:
                    frames.append(beat)
                frames += reader.read()
            except OSError:
                pass  # the network file system is away: the claims of these pilots expire if that lasts
            for frame in frames:
                try:
                    received.append((name, messages.decode_upward(frame)))
                except msgspec.DecodeError:
                    continue  # a pilot of another version wrote it, or something that is no pilot
        return received

    def send(self, pilot: str, sent: Sequence[Downward]) -> None:
        writer = self._writers.get(pilot)
        if writer is not None:
            try:
                writer.write([messages.encode(message) for message in sent])
            except FileNotFoundError:
                pass  # another scheduler has removed it
            except OSError as error:
                raise StorageError(f"{self.directory}: cannot be written: {error.strerror}") from error

    def recorded(self, tokens: Sequence[str]) -> None:
        """Nothing to do: files keep reports, and `forget` removes them."""

    def forget(self, pilot: str) -> None:
        if (reader := self._readers.pop(pilot, None)) is not None:
            del self._writers[pilot], self._beats[pilot]
            self._remember()
            shutil.rmtree(reader.path.parent, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class SpoolLink:
    """A pilot's end (`Link`). `spool` is the spool directory in the edition's."""

    def __init__(self, spool: Path, pilot: PilotName) -> None:
        self._paths = EditionPaths(spool.parent)
        self._arrivals = Arrivals(self._paths)
        self._reader = Reader(spool / pilot / _DOWN)
        self._writer = Writer(spool / pilot / _UP)
        self._beat = Newest(spool / pilot / _BEAT)
        self._saves = 0

    def exchange(self, sent: Sequence[Upward]) -> list[Downward]:
        # A beat that names only what is new is not replaced by the next one, so it goes with the others.
        beats = [message for message in sent if isinstance(message, Beat) and message.whole]
        others = [messages.encode(message) for message in sent if not isinstance(message, Beat) or not message.whole]
        if beats:
            self._beat.write(messages.encode(beats[-1]))
        if others:  # last: all of it is sent again when one of them fails, and a report is to be there once
            self._writer.write(others)
        return [messages.decode_downward(frame) for frame in self._reader.read()]

    def fetch(self, name: str, directory: Path) -> None:
        copy_tree(self._paths.run(run_id_in(self._paths.directory, name)), directory)

    def deliver(self, token: str, directory: Path) -> None:
        copy_synced(directory, self._arrivals.delivered(token_from(token)))

    def save(self, token: str, directory: Path) -> None:
        self._saves += 1
        copy_synced(directory, self._arrivals.saved(token_from(token), self._saves), checkpoint_unchanged(directory))
        self._arrivals.drop_older(token_from(token))


def main() -> None:
    """Be the pilot `sys.argv[2]` of the spool `sys.argv[1]`."""
    from bakeoff.engine.pilots.pilot import run_pilot

    spool, name = Path(sys.argv[1]), PilotName(sys.argv[2])
    setup = msgspec.json.decode((spool / name / _SETUP).read_bytes(), type=PilotSetup)
    print(f"bakeoff pilot {name} begins at {time.strftime('%Y-%m-%d %H:%M:%S')}", flush=True)
    print(f"bakeoff pilot {name} leaves: {run_pilot(setup, SpoolLink(spool, name), name)}", flush=True)


if __name__ == "__main__":
    main()
