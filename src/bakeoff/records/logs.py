"""The curve of a run: its `metrics.jsonl`, and the logs of other trainers, as one series.

A log is named as `FORMAT:PATH`. The path is inside the run's directory, may have wildcards, and may be a directory:

| format | what is read |
|---|---|
| `trl` | the newest `trainer_state.json`, which every trainer of Hugging Face writes with a checkpoint |
| `verl` | `*.jsonl` of verl's file logger: `{"step": 1, "data": {...}}` |
| `prime-rl` | `*.jsonl` of prime-rl's file monitor: `{"step": 1, "time": ..., ...}` |
| `retrain` | `*.jsonl` with `{"step": 1, ...}` |
| `tensorboard` | scalars in event files (OpenRLHF and most other trainers can write them) |

The run wrote these files, so they may be anything: links are not followed, and what cannot be read is counted.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from bakeoff.records.event_files import read_events
from bakeoff.records.files import open_inside
from bakeoff.records.rundir import SERIES, continued_attempts
from bakeoff.records.series import Series, read_jsonl
from bakeoff.trees import walk

_MOST_FILES = 1000


def problem_with_log(log: str) -> str | None:
    """What is wrong with a `FORMAT:PATH`; None when nothing is."""
    kind, colon, path = log.partition(":")
    if not colon or kind not in _FORMATS:
        return f"{log!r} is not FORMAT:PATH with one of the formats {', '.join(_FORMATS)}"
    if not path or path.startswith("/") or ".." in path.split("/"):
        return f"{log!r} must name a path inside the run's directory, such as {kind}:out"
    return None


def size_of_series(directory: Path, log: str | None = None) -> int:
    """Bytes that `read_series` would read; 0 when the run wrote none. Raises OSError for anything but regular files."""
    size = 0
    for place in (*continued_attempts(directory), ""):
        for _, files in _sources(directory, place, log):
            for name in files:
                with open_inside(directory, name) as file:
                    size += os.fstat(file.fileno()).st_size
    return size


def read_series(directory: Path, log: str | None = None) -> tuple[Series, int]:
    """The run's series, and how many lines or files of its last attempt could not be read.

    Attempts that it went on from come first; of a step that several did, the last one's values count. Raises OSError
    for anything but regular files, and ValueError for too many of them.
    """
    series, torn = Series(), 0
    for place in (*continued_attempts(directory), ""):
        own, torn = Series(), 0
        for read, files in _sources(directory, place, log):
            torn += read(directory, files, own)
        series = series.continued(own) if series else own
    return series, torn


def _sources(directory: Path, place: str, log: str | None) -> Iterator[tuple[_Reader, list[str]]]:
    """What there is to read of one attempt, whose files are in `place`: readers with names of files in `directory`."""
    kind, _, path = (log or "").partition(":")
    own = os.path.join(place, SERIES)
    if os.path.lexists(directory / own) and os.path.normpath(path) != SERIES:
        yield _FORMATS["retrain"].read, [own]
    if log is None:
        return
    names = set()
    for name in glob.iglob(os.path.join(glob.escape(place), path), root_dir=directory):
        if not (directory / name).is_dir():
            names.add(name)
        for folder, _, files in walk(directory / name):
            below = os.path.relpath(folder, directory)
            names.update(os.path.join(below, file) for file in files if fnmatch(file, _FORMATS[kind].files))
            if len(names) > _MOST_FILES:
                raise ValueError(f"{log} has more than {_MOST_FILES:,} files")
    yield _FORMATS[kind].read, sorted(names)


# -- formats: each adds to a series, and returns how much could not be read


def _read_lines(directory: Path, files: list[str], series: Series) -> int:
    torn = 0
    for name in files:
        with open_inside(directory, name) as file:
            torn += read_jsonl(file, series)[1]
    return torn


def _read_verl(directory: Path, files: list[str], series: Series) -> int:
    torn = 0
    for name in files:
        with open_inside(directory, name) as file:
            torn += read_jsonl(file, series, inside="data")[1]
    return torn


def _read_trl(directory: Path, files: list[str], series: Series) -> int:
    """`log_history` of the state with the highest `global_step`: it has the steps of all before it."""
    newest: dict[str, Any] = {}
    torn = 0
    for name in files:
        try:
            with open_inside(directory, name) as file:
                state = json.load(file)
            if int(state["global_step"]) >= int(newest.get("global_step", 0)):
                newest = state
        except (ValueError, TypeError, KeyError, RecursionError):  # it was killed while it wrote the state
            torn += 1
    history = newest.get("log_history")
    for entry in history if isinstance(history, list) else ():
        try:
            step = int(entry.pop("step"))
            series.add(step, {name: float(value) for name, value in entry.items() if isinstance(value, int | float)})
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            torn += 1
    return torn


def _read_events(directory: Path, files: list[str], series: Series) -> int:
    torn = 0
    for name in files:
        with open_inside(directory, name) as file:
            for event in read_events(file):
                if event is None:
                    torn += 1
                elif event.values:
                    series.add(event.step, event.values)
    return torn


_Reader = Callable[[Path, list[str], Series], int]


class _Format(NamedTuple):
    files: str
    """Which files of a directory belong to it."""
    read: _Reader


_FORMATS = {
    "trl": _Format("trainer_state.json", _read_trl),
    "verl": _Format("*.jsonl", _read_verl),
    "prime-rl": _Format("*.jsonl", _read_lines),
    "retrain": _Format("*.jsonl", _read_lines),
    "tensorboard": _Format("*tfevents*", _read_events),
}
