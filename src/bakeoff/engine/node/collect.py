"""`python -m bakeoff.engine.node.collect RUN_DIRECTORY BLOCK [LOG]`: read a long curve beside the scheduler.

A million lines take seconds to parse, in which the scheduler's thread would look at no other run. So a node reads short
curves itself (`collect`), and starts a `Collector` for longer ones. The run wrote the files, so they may be anything: a
link, a pipe, or a terabyte of nothing.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bakeoff.engine import processes
from bakeoff.records.layout import atomic_write
from bakeoff.records.logs import read_series, size_of_series

SMALL = 128 * 1024
"""Bytes that the scheduler's thread reads itself, in a few milliseconds."""
_LARGEST = 1 << 30
_LARGEST_BLOCK = 500_000_000
"""Bytes of a series in the database; SQLite takes at most 1,000,000,000 (https://sqlite.org/limits.html)."""
_MEMORY = 4 << 30
_PATIENCE = 300.0


class Collected(NamedTuple):
    """What was read of a run's curve."""

    block: bytes | None
    """A block of `records.series`; None without a series."""
    torn: int
    """Lines that could not be read."""
    last_step: int | None


def collect(directory: Path, log: str | None) -> Collected:
    """The run's series (`records.logs`).

    Raises ValueError when there is too much of it, and OSError for anything but regular files.
    """
    if (size := size_of_series(directory, log)) > _LARGEST:
        raise ValueError(f"it has {size:,} bytes, and at most {_LARGEST:,} are read")
    series, torn = read_series(directory, log)
    block = series.block() if series else None
    if block is not None and len(block) > _LARGEST_BLOCK:
        raise ValueError(f"its {len(block):,} bytes are too many for the database (at most {_LARGEST_BLOCK:,})")
    return Collected(block, torn, series.last_step())


class Collector:
    """A process that reads the series of one run."""

    def __init__(self, directory: Path, log: str | None, block: Path, env: Mapping[str, str]) -> None:
        """`block` is where it puts its result. `env` has the mark of the node's own processes."""
        self._block = block
        self._until = time.monotonic() + _PATIENCE
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "bakeoff.engine.node.collect",
                str(directory),
                str(block),
                *([log] if log else ()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            env=env,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def busy(self) -> bool:
        """Whether it still reads. One that takes too long is ended."""
        if self._process.poll() is None and time.monotonic() > self._until:
            self.end()
        return self._process.poll() is None

    def result(self) -> Collected:
        """What it read, once it is not busy. Raises ValueError with what went wrong."""
        printed, errors = self._process.communicate()
        try:
            if self._process.returncode:
                last = errors.decode(errors="replace").strip().rpartition("\n")[2]
                raise ValueError(last or "it takes too long, or too much memory, to read")
            torn, last_step = printed.split()
            return Collected(self._block.read_bytes() or None, int(torn), int(last_step))
        finally:
            self._block.unlink(missing_ok=True)

    def end(self) -> None:
        processes.send([self._process.pid], signal.SIGKILL)
        self._process.wait()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))  # a new metric on every line would take any amount
    directory, block, *log = sys.argv[1:]
    collected = collect(Path(directory), log[0] if log else None)
    atomic_write(Path(block), collected.block or b"")
    print(collected.torn, -1 if collected.last_step is None else collected.last_step)


if __name__ == "__main__":
    main()
