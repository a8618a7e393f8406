"""Small result files that other tools write, read quickly: `meta.json`, `summary.csv`, `metrics.json`.

Ten thousand run directories are usual, so files are read whole and split by hand where that is safe.
"""

from __future__ import annotations

import csv
import json
import os
from typing import Any

import msgspec

from bakeoff.spec.workload import Scalar

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_json(path: str) -> dict[str, Any] | None:
    """A table from a JSON file; None when there is no such file. Anything else in it is a ValueError."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        return _decode(data)
    except msgspec.DecodeError:
        found = json.loads(data)  # Python's own writer puts NaN, which is not in the standard
    if not isinstance(found, dict):
        raise ValueError("a table was expected")
    return found


def read_bytes(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = os.read(descriptor, 1 << 16)
        while more := os.read(descriptor, 1 << 20):
            data += more
        return data
    finally:
        os.close(descriptor)


def read_csv(path: str) -> list[dict[str, str]] | None:
    """Rows by column name; None when there is no such file."""
    data = read_bytes(path)
    if data is None:
        return None
    text = data.decode("utf-8-sig", "replace")
    if '"' in text:
        lines = list(csv.reader(text.splitlines()))
    else:
        lines = [line.split(",") for line in text.splitlines()]
    lines = [line for line in lines if line and line != [""]]
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} values under {len(header)} column names")
    return [dict(zip(header, row, strict=True)) for row in rows]


def number(text: str) -> Scalar:
    """A whole number or a number where the text is one; nothing when it is empty."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
