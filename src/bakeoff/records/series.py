"""A run's per-step series as one compressed columnar block: for each metric its steps and its values.

Block: zstd over MessagePack `{"v": 1, "series": {name: [steps int64, values float64]}}`, little-endian bytes.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

assert sys.byteorder == "little", "blocks are written as little-endian bytes"


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

    def block(self) -> bytes:
        columns = {name: [steps.tobytes(), values.tobytes()] for name, (steps, values) in self._columns.items()}
        return zstandard.compress(msgspec.msgpack.encode({"v": 1, "series": columns}))


def read_block(block: bytes) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Each metric's (steps, values)."""
    import numpy as np

    content = msgspec.msgpack.decode(zstandard.decompress(block))
    if content["v"] != 1:
        raise ValueError(f"series block of version {content['v']} is newer than this bakeoff")
    return {
        name: (np.frombuffer(steps, dtype="<i8"), np.frombuffer(values, dtype="<f8"))
        for name, (steps, values) in content["series"].items()
    }


def read_jsonl(path: Path) -> tuple[Series, int]:
    """`metrics.jsonl` as a command wrote it, and how many lines could not be read (a torn last line is usual).

    Each line is a table; `step` (or `_step`, or the line's number) is the step, and every number is a metric.
    """
    series, torn = Series(), 0
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                step = int(entry.get("step", entry.get("_step", number)))
                series.add(step, dict(_numbers(entry.items())))
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                torn += 1
    return series, torn


def _numbers(items: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, float]]:
    for name, value in items:
        if name not in ("step", "_step") and isinstance(value, int | float):
            yield name, float(value)
