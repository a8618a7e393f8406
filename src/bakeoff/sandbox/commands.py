"""One command in a box, as every backend sees it: what to run, its standard streams, and the user it runs as."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from bakeoff.errors import UsageError

TAIL = 1 << 20
"""Bytes of output that a result carries when the output did not go to a file."""
MAX_ID = 65536
"""User and group numbers in a box are below this: so many are mapped into its user namespace."""
_MAX_TABLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments of `Box.run` that a backend has to carry out. None means the default of the box."""

    argv: list[str]
    env: Mapping[str, str]
    cwd: str | None
    timeout: float | None
    stdin: bytes | Path | None
    user: str | None


class Streams:
    """The standard streams of one command as open files; without a path, an unnamed file whose end is read later.

    A command writes straight into these files, so a fast writer never waits for Python. Root in a box may do to an
    open file whatever its owner may: change its mode, its owner, its capabilities. Therefore no file that anything
    else uses is handed out (not even /dev/null), and the attributes of a log are restored when its command has ended.
    """

    def __init__(self, stack: ExitStack, scratch: Path, stdout: Path | None, stderr: Path | None) -> None:
        """Files are closed, and attributes restored, when `stack` unwinds. Unnamed files are made in `scratch`."""
        self._stack = stack
        self._scratch = scratch
        self._out = self._open(stdout)
        self._err = self._out if stdout is not None and stdout == stderr else self._open(stderr)
        self._unnamed = {"stdout": stdout is None, "stderr": stderr is None}

    def _open(self, path: Path | None) -> IO[bytes]:
        """A file for output: the one at `path`, emptied, or an unnamed one. Writers append, so two may share it."""
        if path is None:
            return self._stack.enter_context(tempfile.TemporaryFile("a+b", dir=self._scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND: two streams may share the file, and what is written later comes later in it.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        file = self._stack.enter_context(os.fdopen(fd, "w+b"))
        self._stack.callback(_restore_attributes, fd, os.fstat(fd))
        return file

    def fds(self, stdin: bytes | Path | None) -> list[int]:
        """Descriptors for standard input, output and error. Input is a copy of `stdin`, or the end of a closed pipe."""
        if stdin is None:
            read, write = os.pipe()
            os.close(write)
            source: IO[bytes] = self._stack.enter_context(os.fdopen(read, "rb"))
        else:
            source = self._open(None)
            if isinstance(stdin, Path):
                with stdin.open("rb") as original:
                    shutil.copyfileobj(original, source)
            else:
                source.write(stdin)
            source.seek(0)  # this flushes too
        return [source.fileno(), self._out.fileno(), self._err.fileno()]

    def write(self, stdout: bytes, stderr: bytes, room: int | None) -> int | None:
        """Append output that came over a connection, at most `room` bytes. Returns the room that is left."""
        for file, data in ((self._out, stdout), (self._err, stderr)):
            if room is not None:
                data = data[:room]
                room -= len(data)
            file.write(data)
            file.flush()
        return room

    def tail(self, name: Literal["stdout", "stderr"], most: int = TAIL, *, from_file: bool = False) -> bytes:
        """The last `most` bytes of an output. Empty when it went to a file of the caller, unless `from_file` is set."""
        if not (self._unnamed[name] or from_file):
            return b""
        fd = (self._out if name == "stdout" else self._err).fileno()
        return os.pread(fd, most, max(os.fstat(fd).st_size - most, 0))


def _restore_attributes(fd: int, before: os.stat_result) -> None:
    """Give a log its owner and mode back and drop extended attributes.

    The change of owner also makes the kernel drop a capability that root in the box put on the file (chown(2)).
    """
    os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)
    for name in os.listxattr(fd):
        try:
            os.removexattr(fd, name)
        except OSError:
            continue  # an attribute that the file system itself keeps


@dataclass(frozen=True, slots=True)
class Account:
    """A user of an image."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


class Accounts:
    """The users of an image: its /etc/passwd and /etc/group.

    They are read when the box opens, before a command could change them.
    `read` is called with a path and a maximum size, as `Box.read` is; its UsageError means that there is no such file.
    """

    def __init__(self, read: Callable[[str, int], bytes]) -> None:
        """Read both tables. Lines that are not in the right format are skipped."""
        tables = []
        for path, width in (("/etc/passwd", 7), ("/etc/group", 4)):
            try:
                text = read(path, _MAX_TABLE).decode(errors="replace")
            except UsageError:
                text = ""  # such an image knows users by number only
            rows = [line.split(":") for line in text.splitlines()]
            tables.append([row for row in rows if len(row) >= width and row[2].isdigit()])
        self._users, self._groups = tables

    def find(self, user: str | None) -> Account:
        """The account for `name`, `number`, `name:group` or `number:number`, as in a Dockerfile's USER; None is root.

        A number need not be in the tables. Raises UsageError for a name that is not, or a number that is too large.
        """
        wanted, _, group = (user or "0").partition(":")
        # passwd(5): name, password, uid, gid, comment, home, shell
        row = next((row for row in self._users if wanted in (row[0], row[2])), None)
        if row is None and not wanted.isdigit():
            known = ", ".join(row[0] for row in self._users) or "none"
            raise UsageError(f"the image has no user {wanted!r} (it has: {known}); give one of those or a number")
        uid = int(row[2]) if row else int(wanted)
        gid = int(row[3]) if row else uid
        if group:  # group(5): name, password, gid, members
            gids = [entry[2] for entry in self._groups if group in (entry[0], entry[2])] or [group]
            if not gids[0].isdigit():
                raise UsageError(f"the image has no group {group!r}; give one of its groups or a number")
            gid = int(gids[0])
        if not (uid < MAX_ID and gid < MAX_ID):
            raise UsageError(f"user {user!r}: user and group numbers in a sandbox are below {MAX_ID}")
        name = row[0] if row else "root" if uid == 0 else wanted
        extra = tuple(int(entry[2]) for entry in self._groups if name in entry[3].split(",") and entry[2].isdigit())
        home = row[5] if row and row[5].startswith("/") else "/root" if uid == 0 else "/"
        return Account(name, uid, gid, extra, home)
