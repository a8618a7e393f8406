"""A command's standard streams: straight into files, never through Python where that can be helped.

Root of a box may do to an open file of ours whatever its owner may: change its mode, its owner, its capabilities. So no
file that anybody else uses is handed out, not even /dev/null, and a log is put in order when its command has ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal

TAIL = 1 << 20
"""How much of an output that nobody gave a file for is told."""


class Streams:
    """A command's standard streams as open files; without a path, an unnamed one of which the end is read."""

    def __init__(
        self, stack: ExitStack, scratch: Path, stdin: bytes | Path | None, stdout: Path | None, stderr: Path | None
    ) -> None:
        self._stack = stack
        self._scratch = scratch
        self._in = self._input(stdin)
        self._out = self._output(stdout)
        shared = stdout is not None and stdout == stderr
        self._err = self._out if shared else self._output(stderr)
        self._outputs = {"stdout": (stdout is not None, self._out), "stderr": (stderr is not None, self._err)}

    def _input(self, stdin: bytes | Path | None) -> IO[bytes]:
        if stdin is None:
            read, write = os.pipe()
            os.close(write)
            return self._stack.enter_context(os.fdopen(read, "rb"))
        file = self._output(None)
        if isinstance(stdin, Path):
            with stdin.open("rb") as source:
                shutil.copyfileobj(source, file)
        else:
            file.write(stdin)
        file.seek(0)
        return file

    def _output(self, path: Path | None) -> IO[bytes]:
        if path is None:
            return self._stack.enter_context(tempfile.TemporaryFile("a+b", dir=self._scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        file = self._stack.enter_context(os.fdopen(fd, "w+b"))
        self._stack.callback(_put_in_order, fd, os.fstat(fd))
        return file

    def fds(self) -> list[int]:
        return [self._in.fileno(), self._out.fileno(), self._err.fileno()]

    def tail(self, name: Literal["stdout", "stderr"]) -> bytes:
        """The end of an output that no file was given for."""
        given, file = self._outputs[name]
        return b"" if given else _tail(file, TAIL)

    def take(self, out: bytes, err: bytes, room: int | None) -> int | None:
        """Write what came from a command, as far as there is room. Returns the room that is left."""
        for file, data in ((self._out, out), (self._err, err)):
            if room is not None:
                data = data[:room]
                room -= len(data)
            file.write(data)
            file.flush()
        return room

    def last_error(self) -> str:
        return _tail(self._err, 4096).decode(errors="replace").strip().rpartition("\n")[2]


def _put_in_order(fd: int, before: os.stat_result) -> None:
    """Owner, mode and attributes as they were; a change of owner also takes capabilities away."""
    os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)
    for name in os.listxattr(fd):
        try:
            os.removexattr(fd, name)
        except OSError:
            continue  # the file system's own


def _tail(file: IO[bytes], most: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), most, max(size - most, 0))
