"""Metrics that a command leaves behind: in JSON, CSV or JSON-lines files, or as the last JSON line of its output."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from bakeoff.spec.identity import flatten
from bakeoff.spec.workload import Scalar
from bakeoff.workloads.template import fill, placeholders

AUTO = ("metrics.json", "out/metrics.json", "out/summary.csv", "stdout")
"""Where metrics are looked for when an experiment does not say; later ones win."""
TAIL = 1 << 20
"""How far from the end of the output a JSON line is looked for, in bytes."""

Metrics = dict[str, Scalar]


class Source(BaseModel):
    """A CSV file with several rows: `name` says what each value is called, from the row's columns and `{column}`."""

    model_config = ConfigDict(extra="forbid")
    file: str
    name: str
    optional: bool = False
    """Whether the file may be absent."""


def read_metrics(
    sources: Sequence[str | Source] | str, directory: Path, stdout: Path | None
) -> tuple[Metrics, str | None]:
    """The metrics of a run, and what is wrong with them, if anything.

    `sources` are files in the run's `directory`, `stdout`, or "auto" for whichever of AUTO exist. A file that the
    experiment names has to exist. What was read before a problem is kept.
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
        metrics |= values or {}
    return metrics, None


def _read_file(path: Path, source: str | Source) -> Metrics | None:
    """JSON as a whole, the last line of JSON lines, the last row of CSV or, for a `Source`, all its rows."""
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            lines = _last_lines(file)
        return _scalars(json.loads(lines[-1])) if lines else None
    if path.suffix != ".csv":
        return _scalars(json.loads(path.read_text(encoding="utf-8-sig", errors="replace")))
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        rows = csv.DictReader(text, skipinitialspace=True)
        if isinstance(source, Source):
            return _named_values(rows, source.name)
        last = None
        for row in rows:
            last = row
    # The key None collects what a row has beyond the header.
    return {key: as_number(value) for key, value in last.items() if key is not None} if last else None


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


def _scalars(value: Any) -> Metrics:
    """The scalars of a JSON object; nested objects become dotted names, lists are left out."""
    if not isinstance(value, dict):
        raise ValueError("a table of metrics was expected")
    flat = flatten(value)
    return {key: item for key, item in flat.items() if item is None or isinstance(item, bool | int | float | str)}


def _last_json_line(stdout: Path | None) -> Metrics | None:
    if stdout is None:
        return None
    with stdout.open("rb") as file:
        lines = _last_lines(file)
    for line in reversed(lines):
        if line.startswith("{") and line.endswith("}"):
            try:
                return _scalars(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return None


def _last_lines(file: IO[bytes]) -> list[str]:
    """The non-empty lines in the last TAIL bytes, whatever the encoding and the kind of line end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    text = file.read().decode(errors="replace")
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
