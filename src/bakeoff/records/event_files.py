"""Scalars in event files of TensorBoard, without its package.

Event files are records of TensorFlow: length, checksum of it, data, checksum of that
(https://www.tensorflow.org/tutorials/load_data/tfrecord); a record is an `Event` (event.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from bakeoff.records.protobuf import fields

MAX_RECORD = 1 << 26
"""Bytes of one record; one with a picture is long, but not longer than this."""
HPARAMS = b"hparams"
"""The plug-in whose summaries hold settings of a run, and no results."""


@dataclass(frozen=True, slots=True)
class Event:
    """One record of an event file."""

    time: float
    """Seconds since the epoch."""
    step: int
    values: Mapping[str, float]
    """Scalars by tag."""
    has_settings: bool = False
    """Whether a summary of the plug-in for hyperparameters is in it."""


def read_events(file: BinaryIO) -> Iterator[Event | None]:
    """Yield each event; None for one that cannot be read. A file that is being written ends with such a one."""
    while head := file.read(12):
        length = int.from_bytes(head[:8], "little")
        if len(head) < 12 or length > MAX_RECORD:
            yield None  # what follows cannot be found
            return
        data = file.read(length + 4)
        if len(data) < length + 4:
            yield None  # it is being written, or was killed then
            return
        try:
            yield _event(data[:-4])
        except (ValueError, IndexError, struct.error, OverflowError):
            yield None


def _event(data: bytes) -> Event:
    """Field 1 is the time, 2 the step, 5 the summary with its values in field 1, each with a tag (1), a simple value (2) or
    a tensor (8), and metadata (9) with the plug-in's data (1) and name (1)."""
    time, step, values, has_settings = 0.0, 0, {}, False
    for number, content in fields(data):
        if number == 1 and isinstance(content, float):
            time = content
        elif number == 2 and isinstance(content, int):
            step = content
        elif number == 5 and isinstance(content, bytes):
            for inner, value in fields(content):
                if inner == 1 and isinstance(value, bytes):
                    parts = dict(fields(value))
                    tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
                    scalar = simple if isinstance(simple, float) else _scalar(tensor)
                    if _plug_in(parts.get(9)) == HPARAMS:
                        has_settings = True
                    elif isinstance(tag, bytes) and scalar is not None:
                        values[tag.decode()] = scalar
    return Event(time, step, values, has_settings)


def _plug_in(metadata: int | float | bytes | None) -> bytes:
    data = dict(fields(metadata)).get(1) if isinstance(metadata, bytes) else None
    name = dict(fields(data)).get(1) if isinstance(data, bytes) else None
    return name if isinstance(name, bytes) else b""


def _scalar(tensor: int | float | bytes | None) -> float | None:
    """The number in a `TensorProto` of one float or double: its type (1) and content (4), or a list of floats (5)."""
    if not isinstance(tensor, bytes):
        return None
    parts = dict(fields(tensor))
    content, floats = parts.get(4), parts.get(5)
    formats = {(1, 4): "<f", (2, 8): "<d"}
    kind = parts.get(1)
    if isinstance(kind, int) and isinstance(content, bytes) and (kind, len(content)) in formats:
        return float(struct.unpack(formats[kind, len(content)], content)[0])
    if isinstance(floats, bytes) and len(floats) == 4:  # packed
        return float(struct.unpack("<f", floats)[0])
    return floats if isinstance(floats, float) else None
