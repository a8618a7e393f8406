"""What a server has acknowledged, on disk: `market serve` goes on after `kill -9` where its agents left off.

A journal is an append-only file of lines. The first says which game it is; each further line is a group of events, with
its checksum before it:

    {"journal":1,"version":"0.1.0","scenario":{...},"key":"...","tokens":{...}, ...}
    5f0c7e21 [[0,["call",3.25,null,0,"a2a.createPost",{"content":"hello"},"k1"]], ...]

A group is written and synced before any answer that depends on it is sent, and the next group only after that. So only
the last line can be torn, and nothing in it was acknowledged. A damaged line before another one means a damaged disk.

The world, and so every answer, is a function of its key and the events with their times: reading a journal repeats
them. The checksum of the world after each tick shows that it is the same world.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.errors import StorageError, UsageError
from bakeoff.version import __version__
from bakeoff.workloads.market.serve.game import LOOK, Clock, Game

FORMAT = 1
Identity = Mapping[str, Any]
"""What makes a game this game: its world and rules. A journal goes on only with the same."""


class DiskJournal:
    """The journal of the games of one server. Only one process at a time holds it, by flock(2).

    with DiskJournal(path) as journal:
        journal.begin(identity, tokens)        # or, if journal.header is there: journal.check(identity)
        journal.attach(games, clock)           # repeats what was played, and records from now on
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        """Open or create the file; `fresh` discards the game in it.

        Raises UsageError when another server has it, when it is not a journal, or one of another version.
        """
        self.path = path
        self.events = 0
        """How many were recorded by this process."""
        self.needed = 0
        """How many of them an answer rests on that is given now: all until the last one that changed something. If a look
        is lost in a crash, the agent is shown again what it has seen."""
        self.synced = 0
        """How many of them are on disk."""
        self.failure: OSError | None = None
        """Why nothing can be acknowledged any more."""
        self.on_failure: Callable[[], None] = lambda: None
        self._group: list[bytes] = []
        self._written: asyncio.Event | None = None
        """Set when the group that is being written is on disk."""
        self._header_end = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # It holds the world's key and the tokens, so it is for its owner only.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(self._file, 0o600)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be opened as a journal: {error.strerror}; give another --journal"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise JournalHeld(
                f"{path}: another server is writing this journal; stop it or give another --journal"
            ) from error
        try:
            self.header = None if fresh else self._read_header()
        except UsageError:
            os.close(self._file)
            raise

    def __enter__(self) -> DiskJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._thread.shutdown()
        os.close(self._file)

    # -- reading

    def _read_header(self) -> dict[str, Any] | None:
        """Return the first line, or None if the file is empty or its first line torn: then nothing was acknowledged."""
        with open(self.path, "rb") as file:
            line = file.readline()
        if not line.endswith(b"\n"):
            if line and not line.startswith(b'{"journal":'):
                raise UsageError(f"{self.path}: not a journal of `market serve`; give another --journal")
            return None
        try:
            header = msgspec.json.decode(line)
            number = header["journal"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise UsageError(f"{self.path}: not a journal of `market serve`; give another --journal") from None
        if number != FORMAT or header.get("version") != __version__:
            raise UsageError(
                f"{self.path}: written by bakeoff {header.get('version')}, and this is {__version__}; "
                "finish the game with that version, or give --fresh to discard it and begin a new one"
            )
        self._header_end = len(line)
        return dict(header)

    def check(self, identity: Identity) -> None:
        """Raise UsageError if this is the journal of another game, with the first key that differs."""
        assert self.header is not None
        for name, value in identity.items():
            there = self.header.get(name)
            if there == value:
                continue
            if name == "key":
                what = "its world was drawn with another seed or secret"
            elif isinstance(value, Mapping) and isinstance(there, Mapping):
                part = next(part for part in value if there.get(part) != value[part])
                what = f"{name}: {part} is {there.get(part)} there and {value[part]} here"
            else:
                what = f"{name} is {there} there and {value} here"
            raise UsageError(
                f"{self.path}: the journal of another game: {what}; "
                "give the same options to go on with it, or --fresh to discard it and begin a new game"
            )

    @property
    def played(self) -> bool:
        """Whether an agent has called in the game."""
        return any(event[0] == "call" for _, group in self._groups() for _, event in group)

    def _groups(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield each whole group and where it ends. Raises UsageError when a group before the last one is damaged."""
        with open(self.path, "rb") as file:
            file.readline()
            damaged: int | None = None
            for line in iter(file.readline, b""):
                checksum, _, content = line.rstrip(b"\n").partition(b" ")
                if not line.endswith(b"\n") or checksum != _checksum(content):
                    damaged = file.tell() - len(line) if damaged is None else damaged
                elif damaged is not None:
                    raise UsageError(
                        f"{self.path}: damaged at byte {damaged}, and events follow; restore the file from a copy, "
                        "or give --fresh to discard it and begin a new game"
                    )
                else:
                    yield file.tell(), msgspec.json.decode(content)

    # -- beginning

    def begin(self, identity: Identity, tokens: Mapping[str, str]) -> None:
        """Begin the journal of a new game. What was in the file is discarded."""
        self.header = {"journal": FORMAT, "version": __version__, **identity, "tokens": dict(tokens)}
        os.ftruncate(self._file, 0)
        line = msgspec.json.encode(self.header) + b"\n"
        self._header_end = len(line)
        self._write(line)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # the file's name is on disk too (fsync(2): syncing a file does not sync its directory)
        finally:
            os.close(directory)

    def attach(self, games: list[Game], clock: Clock) -> bool:
        """Repeat what was played in `games`, which share `clock`, and record their events from now on.

        Returns whether anything was repeated. Raises UsageError when the events do not give the world that they gave.
        """
        end = None
        for position, group in self._groups():
            end = position
            for number, event in group:
                clock.fix(event[1])
                try:
                    games[number].repeat(event)
                except (ValueError, LookupError, TypeError) as error:
                    raise UsageError(
                        f"{self.path}: cannot be played again: {error}; it was written by another version or machine: "
                        "finish the game there, or give --fresh to discard it and begin a new one"
                    ) from error
        clock.go_on()
        os.ftruncate(self._file, end or self._header_end)  # a torn line would spoil the next one
        for number, game in enumerate(games):
            game.on_event = lambda event, number=number: self._record(number, event)  # type: ignore[misc]
        if end is not None:
            for game in games:
                game.rejoin()
        return end is not None

    # -- recording

    def _record(self, number: int, event: list[Any]) -> None:
        """Add an event to the next group."""
        try:
            content = msgspec.json.encode([number, event])
        except Exception:
            # A value that JSON cannot hold, or lists in lists without end: no method takes it, so the call was refused.
            # It is refused again with a parameter that no method has.
            *call, _, key = event
            content = msgspec.json.encode([number, [*call, {"": None}, key]])
        self._group.append(content)
        self.events += 1
        if event[0] != LOOK:
            self.needed = self.events
        if self._written is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # before the server runs; `flush` writes it
                return
            self._written = asyncio.Event()
            # Not at once: the calls of this round, of all seats, become one group.
            loop.call_soon(self._start_writing)

    async def reached(self, events: int) -> None:
        """Return when the first `events` events are on disk. Raises OSError when they cannot be written."""
        while self.synced < events:
            if self.failure is not None:
                raise self.failure
            if self._written is None:
                self.flush()
            else:
                await self._written.wait()

    def _start_writing(self) -> None:
        """Write the group on the journal's thread: fdatasync(2) may take long, and the loop goes on meanwhile."""
        line, events = self._take_group(), self.events
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._write, line)
        written.add_done_callback(lambda future: self._end_writing(future, events))

    def _end_writing(self, future: asyncio.Future[None], events: int) -> None:
        waiting = self._written
        assert waiting is not None
        self._written = None
        error = future.exception()
        if isinstance(error, OSError):
            # The state in memory is ahead of the disk now, so the server must not go on.
            self.failure = error
            self.on_failure()
        else:
            self.synced = events
            if self._group:
                self._written = asyncio.Event()
                asyncio.get_running_loop().call_soon(self._start_writing)
        waiting.set()

    def flush(self) -> None:
        """Write what is left, at once. Raises StorageError."""
        if self.failure is None and self._group:
            try:
                self._thread.submit(self._write, self._take_group()).result()  # behind a group that is being written
            except OSError as error:
                self.failure = error
            else:
                self.synced = self.events
        if self.failure is not None:
            raise StorageError(
                f"{self.path}: cannot be written: {self.failure.strerror}; all that was acknowledged before is in it: "
                "make room, and run the same command to go on"
            ) from self.failure

    def _take_group(self) -> bytes:
        """Return the line of the events that are not written yet."""
        content = b"[" + b",".join(self._group) + b"]"
        self._group = []
        return _checksum(content) + b" " + content + b"\n"

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fdatasync(self._file)

    def discard(self) -> None:
        """Remove the journal of a game whose results are written."""
        self.path.unlink(missing_ok=True)


class JournalHeld(UsageError):
    """Another server is writing the journal."""


def _checksum(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
