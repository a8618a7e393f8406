"""A run's directory: the names of its files, `meta.json`, earlier attempts, and where its output is.

The database is the truth. `meta.json` lets a directory speak for itself: for people, for other tools and for
`bakeoff import`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write

if TYPE_CHECKING:
    from bakeoff.records.edition import Edition

META = "meta.json"
STDOUT = "stdout.txt"
STDERR = "stderr.txt"
SERIES = "metrics.jsonl"
TRAJECTORY = "trajectory.jsonl.zst"
ATTEMPTS = "attempts"


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    """Write `meta.json` in one step; makes the directory when it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    atomic_write(directory / META, json.dumps(meta, indent=2, sort_keys=True) + "\n")


def read_meta(directory: Path) -> dict[str, Any] | None:
    """The table in `meta.json`; None when there is none that can be read."""
    try:
        meta = json.loads((directory / META).read_text())
    except (OSError, ValueError):
        return None
    return meta if isinstance(meta, dict) else None


def set_aside(directory: Path, attempt: int) -> None:
    """Move what earlier attempts left into `attempts/`, so that nothing of it can pass for the next one's.

    `attempt` is the last one that was recorded. An attempt whose scheduler was killed before it could record it has
    no number: what it left becomes `attempts/<n>-lost`, so that `attempts/<n>` is always what attempt n left.
    """
    entries = [entry for entry in directory.iterdir() if entry.name != ATTEMPTS] if directory.is_dir() else []
    if not entries:
        return
    meta = read_meta(directory) or {}
    recorded = meta.get("attempt") == attempt and "status" in meta
    name = str(attempt) if recorded else f"{attempt + 1}-lost"
    target = directory / ATTEMPTS / name
    for number in count(2):
        if not target.exists():
            break
        target = directory / ATTEMPTS / f"{name}-{number}"
    target.mkdir(parents=True)
    for entry in entries:
        shutil.move(entry, target / entry.name)


@dataclass(frozen=True, slots=True)
class Log:
    """Where a run's output is. It need not exist: `silence` says what it means when it does not."""

    run_id: str
    path: Path
    status: str
    silence: str


def find_log(edition: Edition, position: int, *, stderr: bool = False, attempt: int | None = None) -> Log:
    """The output of a run, by default of its last attempt. Raises UsageError when it has no such attempt."""
    run = edition.run(position)
    directory = edition.paths.run(run.run_id)
    if attempt is not None and attempt != run.attempts:
        numbers = [entry["attempt"] for entry in edition.attempts(position)]
        if attempt not in numbers:
            raise UsageError(
                f"{run.run_id} has no attempt {attempt}; there are {', '.join(map(str, numbers)) or 'none'}"
            )
        directory = directory / ATTEMPTS / str(attempt)
    stream = "standard error" if stderr else "standard output"
    # A command's metrics and series come out of files or its output, so it must have left a directory.
    reported = bool(run.metrics) or edition.series(position) is not None
    had_directory = edition.trajectory(position) is not None or (run.command is not None and reported)
    if run.status == "running":
        silence = f"{run.run_id} has written nothing to {stream} yet"
    elif run.started_at is None:
        silence = f"{run.run_id} has not been run yet"
    elif directory.is_dir():
        silence = f"{run.run_id} wrote nothing to {stream}"
    elif had_directory:
        silence = f"{directory} was deleted by hand: the output of {run.run_id} is gone, its result is still recorded"
    else:
        silence = f"{run.run_id} has no directory: it wrote nothing, or the directory was deleted by hand"
    return Log(run.run_id, directory / (STDERR if stderr else STDOUT), run.status, silence)


def log_of(directory: Path) -> Path | None:
    """The output that probably says why a run failed: standard error, else standard output, if not empty."""
    for name in (STDERR, STDOUT):
        path = directory / name
        if path.is_file() and path.stat().st_size:
            return path
    return None
