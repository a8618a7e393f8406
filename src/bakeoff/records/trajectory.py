"""A trajectory on disk: `trajectory.jsonl.zst`, one step a line, readable up to the last flushed step after a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from bakeoff.records.run import TrajectoryIndex
from bakeoff.spec.trajectory import Step

FILE = "trajectory.jsonl.zst"
FLUSH_AFTER = 1.0
"""Seconds."""


class TrajectoryWriter:
    """Writes steps as they come, and at least once a second so that they can be read while the run goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._stream = zstandard.ZstdCompressor().stream_writer(self._file)
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._flushed = time.monotonic()
        self._steps = 0
        self._reward: float | None = None

    def add(self, step: Step) -> None:
        line = self._encode(step)
        if b"null" in line:  # standard JSON has no NaN and no infinity; Python's has
            line = json.dumps(msgspec.to_builtins(step, enc_hook=_plain)).encode()
        self._stream.write(line + b"\n")
        self._steps += 1
        if step.reward is not None:
            self._reward = (self._reward or 0.0) + step.reward
        now = time.monotonic()
        if now - self._flushed >= FLUSH_AFTER:
            self._stream.flush(zstandard.FLUSH_BLOCK)
            self._flushed = now

    def close(self) -> TrajectoryIndex:
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.close()
        return TrajectoryIndex(FILE, self._steps, self._reward, self._path.stat().st_size)


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy and torch as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trajectory step cannot hold a {type(value).__name__}")


def _decode(line: bytes, decoder: msgspec.json.Decoder[Step]) -> Step:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(line), Step)


def read_trajectory(path: Path) -> Iterator[Step]:
    """The steps in order; a torn tail ends the reading."""
    decoder = msgspec.json.Decoder(Step)
    begun: list[bytes] = []  # pieces of a step that is longer than a chunk; joined once
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file)
        while True:
            try:
                chunk = reader.read(1 << 16)
            except zstandard.ZstdError:
                return
            if not chunk:
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                yield _decode(b"".join([*begun, line]), decoder)
                begun.clear()
            begun.append(rest)
