"""Metrics that a command leaves behind: in JSON, CSV or JSON-lines files, or in what it prints."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from bakeoff.spec.identity import flatten
from bakeoff.spec.workload import Scalar
from bakeoff.workloads.template import fill, placeholders

AUTO = ("metrics.json", "out/metrics.json", "out/summary.csv", "stdout")
"""Where metrics are looked for when an experiment does not say; later ones win."""
TAIL = 1 << 20
"""How far from the end of the output a JSON line is looked for, in bytes."""

_LARGEST = 32 << 20
"""Bytes of a file with metrics. The scheduler reads it, and has other runs to look after."""

Metrics = dict[str, Scalar]
PRINTED = "printed"
"""The value of `metrics` that reads what a command prints for people, too."""
WALL_TIME = "wall_time_s"
"""The metric that `metrics = "printed"` adds: seconds from the start of the command to its end."""
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)"
_PAIR = re.compile(rf"([A-Za-z_][\w./-]*) ?= ?({_NUMBER})(?:[,;\s]+|$)")
_LINE = re.compile(rf"([A-Za-z_][\w./()-]*(?: [\w./()-]+){{0,5}})\s*[:=]\s*({_NUMBER})")
"""A line with one metric, whose name may have spaces: `Final score: 0.91`."""


class Source(BaseModel):
    """A CSV file with several rows: `name` says what each value is called, from the row's columns and `{column}`."""

    model_config = ConfigDict(extra="forbid")
    file: str
    name: str
    optional: bool = False
    """Whether the file may be absent."""


def read_metrics(
    sources: Sequence[str | Source] | str, directory: Path, stdout: Path | None, notes: list[str] | None = None
) -> tuple[Metrics, str | None]:
    """The metrics of a run, and what is wrong with them, if anything.

    `sources` are files in the run's `directory`, `stdout`, or "auto" for whichever of AUTO exist. A file that the
    experiment names has to exist. What was read before a problem is kept. `notes` gets a line for each metric that
    could not be kept as it was written.
    """
    automatic = sources == "auto"
    if automatic:
        sources = AUTO if directory.exists() else ("stdout",)
    metrics: Metrics = {}
    for source in [sources] if isinstance(sources, str) else sources:
        name = source if isinstance(source, str) else source.file
        try:
            values = _last_json_line(stdout) if name == "stdout" else _read_file(directory / name, source)
        except FileNotFoundError:
            if automatic or (isinstance(source, Source) and source.optional):
                continue
            return metrics, f"{name}: the command wrote no such file"
        except (ValueError, OSError, csv.Error, RecursionError) as error:
            return metrics, f"{name}: cannot be read: {error}"
        if values is None and not automatic:
            return metrics, f"{name}: no metrics in it"
        if values is not None and notes is not None:
            notes += [f"{name}: {line}" for line in values.notes]
        metrics |= values or {}
    return metrics, None


class Printed(NamedTuple):
    """What `metrics = "printed"` reads of a run."""

    metrics: Metrics
    problem: str | None
    source: Literal["JSON", "files", "lines", ""]
    """Where the last of them was found: a JSON line, files in the run's directory, lines for people; empty for nowhere."""


def read_printed(directory: Path, stdout: Path | None, notes: list[str] | None = None) -> Printed:
    """Read metrics as "auto" does or, where it finds none, from lines such as `score: 0.9` or `loss=0.1 acc=0.9`.

    A line counts when it is made of names and numbers only; of a name that stands several times, the last one counts.
    """
    metrics, problem = read_metrics("auto", directory, stdout, notes)
    if metrics or problem or stdout is None:
        return Printed(metrics, problem, "JSON" if _last_json_line(stdout) else "files" if metrics else "")
    with _open(stdout) as file:
        lines = _last_lines(file, "utf-8")
    for line in lines:
        if match := _LINE.fullmatch(line):
            metrics[match[1]] = as_number(match[2])
        elif _PAIR.match(line) and not _PAIR.sub("", line):
            metrics |= {name: as_number(value) for name, value in _PAIR.findall(line)}
    return Printed(metrics, None, "lines" if metrics else "")


class _Read(Metrics):
    """Metrics of one source, with notes about those that are not kept as they were written."""

    def __init__(self, metrics: Metrics, notes: Sequence[str] = ()) -> None:
        super().__init__(metrics)
        self.notes = notes


def _read_file(path: Path, source: str | Source) -> _Read | None:
    """JSON as a whole, the last line of JSON lines, the last row of CSV or, for a `Source`, all its rows."""
    if path.suffix == ".jsonl":
        with _open(path) as file:
            lines = _last_lines(file)
        return _parse(lines[-1]) if lines else None
    if path.suffix != ".csv":
        with _open(path, _LARGEST) as file:
            content = file.read()
        return _parse(content.decode(json.detect_encoding(content[:4]), "replace"))
    with _open(path, _LARGEST) as file:
        encoding = json.detect_encoding(file.read(4))
        file.seek(0)
        text = io.TextIOWrapper(file, "utf-8-sig" if encoding == "utf-8" else encoding, "replace", newline="")
        rows = csv.DictReader(text, skipinitialspace=True)
        if isinstance(source, Source):
            return _Read(_named_values(rows, source.name))
        last = None
        for row in rows:
            last = row
    # The key None collects what a row has beyond the header.
    return _Read({key: as_number(value) for key, value in last.items() if key is not None}) if last else None


def _open(path: Path, largest: int | None = None) -> BinaryIO:
    """A file that a run wrote: the scheduler must not wait for a pipe, nor read without end. Raises OSError for anything
    but a regular file of at most `largest` bytes."""
    # O_NONBLOCK: opening a pipe that nobody writes to would wait (fifo(7)); it means nothing for a regular file.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and (largest is None or status.st_size <= largest):
        return file
    file.close()
    raise OSError(
        f"it has {status.st_size:,} bytes, and at most {largest:,} are read"
        if stat.S_ISREG(status.st_mode)
        else "it is not a regular file"
    )


def _named_values(rows: csv.DictReader[str], template: str) -> Metrics:
    """Every value of every row, except in the columns that the template uses for names."""
    used = placeholders(template)
    metrics: Metrics = {}
    for row in rows:
        texts = {key: value or "" for key, value in row.items() if key is not None}
        for column, value in texts.items():
            if column not in used:
                name = fill(template, {**texts, "column": column})
                if name in metrics:
                    raise ValueError(
                        f"two values are called {name!r}; add a column that differs between rows to the name"
                    )
                metrics[name] = as_number(value)
    return metrics


class _Huge(float):
    """A whole number with more digits than `int` reads (4,300), as the nearest float."""


def _parse(text: str) -> _Read:
    """The scalars of a JSON object; nested objects become dotted names, lists are left out.

    Of a key that stands twice the last one counts, as everywhere. A whole number of more than 64 bits, which no table
    and no database holds, becomes the nearest float.
    """
    twice: dict[str, None] = {}

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                twice[key] = None
            seen[key] = value
        return seen

    value = json.loads(
        text, object_pairs_hook=table, parse_int=lambda digits: int(digits) if len(digits) < 400 else _Huge(digits)
    )
    if not isinstance(value, dict):
        raise ValueError("a table of metrics was expected")
    notes = [f"{key!r} stands twice; the last one counts" for key in twice]
    metrics: Metrics = {}
    for key, item in flatten(value).items():
        if isinstance(item, _Huge) or (isinstance(item, int) and not -(2**63) <= item < 2**63):
            notes.append(f"{key!r} is a whole number of more than 64 bits; the nearest float is kept")
            item = float(item)
        if item is None or isinstance(item, bool | int | float | str):
            metrics[key] = item
    return _Read(metrics, notes)


def _last_json_line(stdout: Path | None) -> _Read | None:
    if stdout is None:
        return None
    with _open(stdout) as file:
        lines = _last_lines(
            file, "utf-8"
        )  # several programs may print, and the first bytes speak for none of the others
    for line in reversed(lines):
        if line.startswith("{") and line.endswith("}"):
            try:
                return _parse(line)
            except (ValueError, RecursionError):
                continue
    return None


def _last_lines(file: IO[bytes], encoding: str = "") -> list[str]:
    """The non-empty lines in the last TAIL bytes, whatever the kind of line end.

    Without an encoding, the first bytes tell which one it is.
    """
    start = file.read(4)
    if not encoding:
        encoding = json.detect_encoding(start) if any(start) else "utf-8"  # four zeros are no text at all
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL) // 4 * 4)  # not inside a wide character
    if encoding in ("utf-16", "utf-32") and size > TAIL:  # the mark that says which end comes first is not in the tail
        encoding += "-le" if sys.byteorder == "little" else "-be"
    text = file.read().decode(encoding, "replace").lstrip("\ufeff")
    # Not splitlines: it would also split at characters such as U+2028, which may be inside a JSON string.
    return [line for part in re.split(r"[\r\n]+", text) if (line := part.strip())]


def as_number(text: str | None) -> Scalar:
    """An int, a float, or the text; None when it is empty."""
    if text is None or not text.strip():
        return None
    if "_" not in text:  # Python reads 1_000 as a number, and no one else does
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text
