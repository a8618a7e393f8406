"""`python -m bakeoff.engine.node.collect RUN_DIRECTORY BLOCK`: read a large `metrics.jsonl` beside the scheduler.

A million lines take seconds to parse, in which the scheduler's thread would look at no other run. So a node reads small
files itself (`read_series`), and starts a `Collector` for a larger one. The run wrote the file, so it may be anything:
a link, a pipe, or a terabyte of nothing.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bakeoff.engine import processes
from bakeoff.records.files import open_inside
from bakeoff.records.layout import atomic_write
from bakeoff.records.rundir import series_files
from bakeoff.records.series import Series, read_jsonl

SMALL = 128 * 1024
"""Bytes that the scheduler's thread reads itself, in a few milliseconds."""
_LARGEST = 1 << 30
_LARGEST_BLOCK = 500_000_000
"""Bytes of a series in the database; SQLite takes at most 1,000,000,000 (https://sqlite.org/limits.html)."""
_MEMORY = 4 << 30
_PATIENCE = 300.0


def size_of_series(directory: Path) -> int:
    """Bytes of the run's `metrics.jsonl`, those of attempts that it goes on from included; 0 when it wrote none.

    Raises OSError for anything but a regular file.
    """
    size = 0
    for name in series_files(directory):
        with open_inside(directory, name) as file:
            size += os.fstat(file.fileno()).st_size
    return size


class Collected(NamedTuple):
    """What was read of a `metrics.jsonl`."""

    block: bytes | None
    """A block of `records.series`; None without a series."""
    torn: int
    """Lines that could not be read."""


def read_series(directory: Path) -> Collected:
    """The run's series; of steps that several attempts did, the last one's values count.

    Raises ValueError when there is too much of it, and OSError for anything but regular files.
    """
    if (size := size_of_series(directory)) > _LARGEST:
        raise ValueError(f"it has {size:,} bytes, and at most {_LARGEST:,} are read")
    series, torn = Series(), 0
    for name in series_files(directory):
        with open_inside(directory, name) as file:
            later, torn = read_jsonl(file)  # an earlier attempt was ended, and may have been writing a line
        series = series.continued(later) if series else later
    block = series.block() if series else None
    if block is not None and len(block) > _LARGEST_BLOCK:
        raise ValueError(f"its {len(block):,} bytes are too many for the database (at most {_LARGEST_BLOCK:,})")
    return Collected(block, torn)


class Collector:
    """A process that reads the series of one run."""

    def __init__(self, directory: Path, block: Path, env: Mapping[str, str]) -> None:
        """`block` is where it puts its result. `env` has the mark of the node's own processes."""
        self._block = block
        self._until = time.monotonic() + _PATIENCE
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bakeoff.engine.node.collect", str(directory), str(block)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            env=env,
        )

    def busy(self) -> bool:
        """Whether it still reads. One that takes too long is ended."""
        if self._process.poll() is None and time.monotonic() > self._until:
            self.end()
        return self._process.poll() is None

    def result(self) -> Collected:
        """What it read, once it is not busy. Raises ValueError with what went wrong."""
        torn, errors = self._process.communicate()
        try:
            if self._process.returncode:
                last = errors.decode(errors="replace").strip().rpartition("\n")[2]
                raise ValueError(last or "it takes too long, or too much memory, to read")
            return Collected(self._block.read_bytes() or None, int(torn))
        finally:
            self._block.unlink(missing_ok=True)

    def end(self) -> None:
        processes.send([self._process.pid], signal.SIGKILL)
        self._process.wait()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))  # a new metric on every line would take any amount
    directory, block = Path(sys.argv[1]), Path(sys.argv[2])
    collected = read_series(directory)
    atomic_write(block, collected.block or b"")
    print(collected.torn)


if __name__ == "__main__":
    main()
