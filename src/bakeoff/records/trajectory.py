"""A trajectory on disk: `trajectory.jsonl.zst`, one step a line, readable up to the last flushed step after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from bakeoff.spec.trajectory import Step

FILE = "trajectory.jsonl.zst"


@dataclass(frozen=True, slots=True)
class TrajectoryIndex:
    """What the database knows about a trajectory file."""

    path: str
    steps: int
    reward: float | None
    bytes: int


class TrajectoryWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._stream = zstandard.ZstdCompressor().stream_writer(self._file)
        self._encode = msgspec.json.Encoder().encode
        self._steps = 0
        self._reward: float | None = None

    def add(self, step: Step) -> None:
        self._stream.write(self._encode(step) + b"\n")
        self._steps += 1
        if step.reward is not None:
            self._reward = (self._reward or 0.0) + step.reward

    def close(self) -> TrajectoryIndex:
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.close()
        return TrajectoryIndex(FILE, self._steps, self._reward, self._path.stat().st_size)


def read_trajectory(path: Path) -> Iterator[Step]:
    """The steps in order; a torn tail ends the reading."""
    decode: Any = msgspec.json.Decoder(Step).decode
    pending = b""
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file)
        while True:
            try:
                chunk = reader.read(1 << 16)
            except zstandard.ZstdError:
                return
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            yield from map(decode, lines)
