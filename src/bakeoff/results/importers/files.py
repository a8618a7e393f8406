"""Small result files that other tools write, read quickly: `meta.json`, `summary.csv`, `metrics.json`.

Ten thousand run directories are usual, so files are read whole with few system calls and split by hand where that is
safe (benchmarks/collect.py measures it against a pandas loop).
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.errors import UsageError
from bakeoff.records.files import BINARY, CLOSE_ON_EXEC
from bakeoff.spec.workload import Scalar

_READ = os.O_RDONLY | BINARY | CLOSE_ON_EXEC
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_bytes(path: str) -> bytes | None:
    """The file's content; None when there is no such file."""
    try:
        descriptor = os.open(path, _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = os.read(descriptor, 1 << 16)
        while more := os.read(descriptor, 1 << 20):
            data += more
        return data
    finally:
        os.close(descriptor)


def read_json(path: str) -> dict[str, Any] | None:
    """An object from a JSON file; None when there is no such file. Raises ValueError for anything else in it."""
    data = read_bytes(path)
    if data is None:
        return None
    return decode_object(data)


def decode_object(data: bytes) -> dict[str, Any]:
    """An object from JSON. Raises ValueError for anything else."""
    try:
        try:
            return _decode(data)
        except msgspec.DecodeError:
            # Python's own writer puts NaN and Infinity, which the JSON standard and msgspec refuse.
            content = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("a JSON object was expected")
    return content


def read_whole_json(path: Path, tool: str) -> dict[str, Any]:
    """Return the object of a JSON file that a tool wrote. Raises UsageError with the reason where that is not possible."""
    try:
        data = path.read_bytes()
        return decode_object(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        reason = f"is not whole JSON: {error}" if data.strip() else "is empty"
        raise UsageError(f"{path}: {reason}; {tool} is writing it, or it was cut off") from error


def seconds(text: Any) -> float | None:
    """Return a time in ISO 8601 as seconds since the epoch; None for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSONL file. Lines that cannot be read are skipped: the last one is often torn."""
    for line in (read_bytes(str(path)) or b"").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def read_whole_lines(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Objects of a JSONL file, and whether its last line is torn. Raises UsageError for any other line that is no object."""
    lines = (read_bytes(str(path)) or b"").splitlines()
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(decode_object(line))
        except ValueError as error:
            if number == len(lines):
                return entries, True
            raise UsageError(f"{path}, line {number}: is not a JSON object: {error}") from error
    return entries, False


def first_bytes(path: Path, size: int) -> bytes:
    """The start of a file; nothing where it cannot be opened, or where reading would wait for a writer, as of a pipe."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def read_csv(path: str) -> list[dict[str, str]] | None:
    """Rows by column name; None when there is no such file. Raises ValueError for rows of another length."""
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
    """An int or a float where the text is one, None where it is empty, else the text."""
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
