"""What a run records over time: series of numbers, and trajectories.

A series is one compressed columnar block in the database: for each metric its steps and its values. The block is zstd
over MessagePack `{"v": 1, "series": {name: [steps int64, values float64]}}`, little-endian bytes.

A trajectory is the file `trajectory.jsonl.zst`, one step on each line. After a crash it can be read up to the last step
that was flushed.
"""

from __future__ import annotations

import io
import json
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from bakeoff.records.files import open_inside
from bakeoff.records.run import TrajectoryIndex
from bakeoff.records.rundir import TRAJECTORY
from bakeoff.spec.workload import Step
from bakeoff.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compressor, decompress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

assert sys.byteorder == "little", "blocks are written as little-endian bytes"
_LONGEST_LINE = 1 << 20
"""Bytes of a line of `metrics.jsonl`; a longer one cannot be read."""
_decode_line = msgspec.json.Decoder().decode
FLUSH_AFTER = 1.0
"""Seconds between two flushes of a trajectory."""
_CHUNK = 1 << 16
"""Bytes that are read and unpacked at a time."""
LARGEST_BLOCK = 1 << 31
"""Bytes of a series; a block that claims more would fill the memory of whoever reads it."""


class Series:
    """Grows by `add`; NaN and infinities are kept."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[array[int], array[float]]] = {}

    def __bool__(self) -> bool:
        return bool(self._columns)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            number = float(value)
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = (array("q"), array("d"))
            column[0].append(step)
            column[1].append(number)

    def continued(self, later: Series) -> Series:
        """This series up to where a later attempt took over: of each step that both have, the later one's values."""
        replaced = {step for steps, _ in later._columns.values() for step in steps}
        merged = Series()
        for columns in (self._columns, later._columns):
            for name, (steps, values) in columns.items():
                column = merged._columns.setdefault(name, (array("q"), array("d")))
                for step, value in zip(steps, values, strict=True):
                    if columns is later._columns or step not in replaced:
                        column[0].append(step)
                        column[1].append(value)
        merged._columns = {name: column for name, column in merged._columns.items() if column[0]}
        return merged

    def last_step(self) -> int | None:
        """The highest step of any metric; None without one."""
        return max((max(steps) for steps, _ in self._columns.values()), default=None)

    def block(self) -> bytes:
        columns = {name: [steps.tobytes(), values.tobytes()] for name, (steps, values) in self._columns.items()}
        content = msgspec.msgpack.encode({"v": 1, "series": columns})
        return compressor().compress(content, ZstdCompressor.FLUSH_FRAME)


class _Block(msgspec.Struct):
    v: int
    series: dict[str, tuple[bytes, bytes]] = {}


_decode_block = msgspec.msgpack.Decoder(_Block).decode


def read_block(block: bytes) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Each metric's (steps, values). Raises ValueError for a block that is damaged or of a newer version."""
    import numpy as np

    try:
        content = _decode_block(decompress(block, LARGEST_BLOCK))
    except (ZstdError, msgspec.DecodeError, MemoryError) as error:
        raise ValueError(f"the series block is damaged: {error}") from error
    if content.v != 1:
        raise ValueError(f"series block of version {content.v} is newer than this bakeoff")
    columns = {
        name: (np.frombuffer(steps, dtype="<i8"), np.frombuffer(values, dtype="<f8"))
        for name, (steps, values) in content.series.items()
    }
    if any(not steps.size or steps.size != values.size for steps, values in columns.values()):
        raise ValueError("the series block is damaged: it has more steps than values, or none")
    return columns


def read_jsonl(
    source: Path | BinaryIO, series: Series | None = None, *, inside: str | None = None
) -> tuple[Series, int]:
    """`metrics.jsonl` as a command wrote it, and how many lines could not be read (a torn last line is usual).

    Each line is a table; `step` (or `_step`, or the line's number) is the step, and every number is a metric. They are
    added to `series`. With `inside`, metrics are in the table of that name in each line.
    """
    series, torn = Series() if series is None else series, 0
    with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
        start = file.read(4)
        encoding = json.detect_encoding(start) if any(start) else "utf-8"
        file.seek(0)
        lines: Iterable[str | bytes] = iter(lambda: file.readline(_LONGEST_LINE), b"")
        text: io.TextIOWrapper | None = None
        if encoding not in ("utf-8", "utf-8-sig"):  # bytes are quicker to read, so text is made of wide characters only
            text = wide = io.TextIOWrapper(file, encoding, "replace")
            lines = iter(lambda: wide.readline(_LONGEST_LINE), "")
        for line_number, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                try:
                    entry = _decode_line(line)
                except msgspec.DecodeError:  # NaN and infinities, as Python's json writes them
                    entry = json.loads(line)
                step = int(entry.get("step", entry.get("_step", line_number)))
                numbers = {
                    name: float(value)
                    for name, value in (entry if inside is None else entry[inside]).items()
                    if name not in ("step", "_step") and isinstance(value, int | float)
                }
                series.add(step, numbers)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                torn += 1
        if text is not None:
            text.detach()  # the file is its owner's to close
    return series, torn


class TrajectoryWriter:
    """Writes steps as they come, and flushes once a second so that they can be read while the run goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._compressor = compressor()
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._flushed = time.monotonic()
        self._steps = 0
        self._reward: float | None = None

    def add(self, step: Step) -> None:
        line = self._encode(step)
        if b"null" in line:  # msgspec writes NaN and infinities as null, since JSON has none; Python's json keeps them
            line = json.dumps(msgspec.to_builtins(step, enc_hook=_plain)).encode()
        self._file.write(self._compressor.compress(line + b"\n"))
        self._steps += 1
        if step.reward is not None:
            self._reward = (self._reward or 0.0) + step.reward
        now = time.monotonic()
        if now - self._flushed >= FLUSH_AFTER:
            self._file.write(self._compressor.flush(ZstdCompressor.FLUSH_BLOCK))
            self._file.flush()  # what is in the file survives a kill
            self._flushed = now

    def close(self) -> TrajectoryIndex:
        self._file.write(self._compressor.flush())
        self._file.close()
        return TrajectoryIndex(TRAJECTORY, self._steps, self._reward, self._path.stat().st_size)


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy and torch as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trajectory step cannot hold a {type(value).__name__}")


def read_trajectory(path: Path, home: Path | None = None) -> Iterator[Step]:
    """The steps in order; a tail that was cut off ends the reading. No part of the path below `home` may be a link.

    Raises ValueError for content that is not what was written (each file has a checksum) and for lines that are not
    steps, and OSError for a file that cannot be opened or is a link.
    """
    decoder = msgspec.json.Decoder(Step)
    begun: list[bytes] = []  # pieces of a step that is longer than a chunk; joined once
    home = home or path.parent
    size = 0
    with open_inside(home, path.relative_to(home)) as file:
        for chunk in _chunks(file, path.name):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                text = b"".join([*begun, line])
                begun.clear()
                try:
                    yield decoder.decode(text)
                except msgspec.ValidationError:
                    raise
                except msgspec.DecodeError:  # NaN and infinities, as Python's json writes them
                    yield msgspec.convert(json.loads(text), Step)
            begun.append(rest)
            size = len(rest) if lines else size + len(rest)
            if size > LARGEST_BLOCK:
                raise ValueError(f"{path.name} is damaged: it has a step of more than {LARGEST_BLOCK:,} bytes")


def _chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the content of a compressed file, at most 64 KiB at a time, up to its end or to where it was cut off.

    Raises ValueError for content that does not match its checksum, and for bytes behind the end.
    """
    decompressor = ZstdDecompressor()
    while not decompressor.eof:
        compressed = file.read(_CHUNK) if decompressor.needs_input else b""
        if decompressor.needs_input and not compressed:
            return
        try:
            content = decompressor.decompress(compressed, _CHUNK)
        except ZstdError as error:
            raise ValueError(f"{name} is damaged: {error}") from error
        yield content
    if decompressor.unused_data or file.read(1):
        raise ValueError(f"{name} is damaged: something follows the end of the trajectory")
