"""The runs of a report as data: the table of all runs, and what a run's own page shows beyond its line.

Data is in scripts: a page that was opened from the file system may load scripts, and may not fetch anything else. A
budget of bytes decides how much of each run is kept, in this order: facts, other metrics, the logs of runs that failed,
series, the logs of the others. What did not fit is named on the page, with the command that shows it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from bakeoff.errors import BakeoffError
from bakeoff.records.files import open_inside
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.records.transcript import turn_of
from bakeoff.results.table import Row
from bakeoff.text import printable
from bakeoff.trees import walk
from bakeoff.web.contents import Contents, is_finite_number


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# -- the table of runs

TABLE_RUNS = 5_000
"""Lines of the table of runs in one file."""
STATUSES = ("succeeded", "failed", "timeout", "infra_error", "cancelled", "running", "planned")


def table(contents: Contents) -> list[str]:
    """The table of runs, column by column; one script for each TABLE_RUNS of them."""
    scripts = []
    for start in range(0, max(1, len(contents.runs)), TABLE_RUNS):
        runs = contents.runs[start : start + TABLE_RUNS]
        columns = {
            "id": [run.run_id for run in runs],
            "cell": [run.cell for run in runs],
            "seed": [run.seed for run in runs],
            "rollout": 0 if not any(run.rollout for run in runs) else [run.rollout for run in runs],
            "status": [STATUSES.index(run.status) for run in runs],
            "wall": [None if run.wall_s is None else float(f"{run.wall_s:.4g}") for run in runs],
            "metrics": [[shown(run.metrics.get(name)) for run in runs] for name in contents.columns],
        }
        scripts.append(f"bakeoff.rows({script_json(columns)});\n")
    return scripts


def shown(value: Any) -> Any:
    """A value as the pages have it: six digits; what is not a number as text."""
    if is_finite_number(value):
        if isinstance(value, int) and abs(value) < 2**53:
            return value
        short = float(f"{value:.6g}")
        return int(short) if short == int(short) and abs(short) < 2**53 else short
    if isinstance(value, float):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return printable(value) if isinstance(value, str) else value


# -- one run's own page

RUNS = 200
"""Runs in one file: a run's page loads the one that it is in."""
TRANSCRIPT = "transcript"
TAIL = 4_000
"""Characters of a log."""
ERROR = 4_000
MOST_POINTS, FEWEST_POINTS = 150, 20
MOST_FILES = 40
_NUMBER = 9
"""Bytes that one number takes, about."""


class Details:
    """One table for each run, in plan order, and what they share. `budget` is in bytes; links start at `base`."""

    def __init__(self, contents: Contents, budget: int, base: Path) -> None:
        self.contents, self.base = contents, base
        # What is the same for many runs: cells with their parameters, names of metrics.
        self.names: dict[str, Any] = {"cells": {}, "statuses": STATUSES, "metrics": contents.columns}
        for number, cell in contents.cells.items():
            params = {printable(name): shown(value) for name, value in cell.columns.items()}
            known = [printable(cell.arm), printable(cell.task), cell.ablation or "", params, cell.flags]
            self.names["cells"][str(number)] = known
        self.left = budget - len(f"bakeoff.names={script_json(self.names)};\n".encode())
        self.runs: list[dict[str, Any]] = [{} for _ in contents.runs]
        self.start = min((run.started_at for run in contents.runs if run.started_at is not None), default=0.0)
        self.metrics: list[str] = []
        self.files: dict[tuple[str, ...], int] = {}
        self.omitted: list[str] = []
        self.directories = _directories(contents.runs)
        self.home = next((directory.parent for directory in self.directories.values()), None)
        self._facts()
        self._metrics()
        ended_badly = [n for n, run in enumerate(contents.runs) if run.status not in ("succeeded", "planned")]
        fitted = self._logs(ended_badly, self.left // 3)
        self._series()
        others = set(range(len(contents.runs))) - set(ended_badly)
        if not (self._logs(sorted(others), self.left) and fitted):
            self.omitted.append("logs")

    def scripts(self) -> dict[str, str]:
        """Script files by name: `names.js`, and `details-N.js` with RUNS runs each."""
        shared = {
            **self.names,
            "others": self.metrics,
            "files": [list(names) for names in self.files],
            "home": "" if self.home is None else self._link(self.home),
            "chunk": RUNS,
            "omitted": self.omitted,
            "start": self.start,
        }
        files = {"names.js": f"bakeoff.names={script_json(shared)};\n"}
        for number, start in enumerate(range(0, len(self.runs), RUNS)):
            chunk = script_json(self.runs[start : start + RUNS])
            files[f"details-{number}.js"] = f"bakeoff.details({number},{chunk});\n"
        return files

    def _facts(self) -> None:
        """Only what is not the usual: a run that succeeded at its first try has little to tell."""
        for entry, run in zip(self.runs, self.contents.runs, strict=True):
            if run.started_at is not None:
                entry["at"] = round(run.started_at - self.start, 3)
            if run.exit_code not in (None, 0):
                entry["exit"] = run.exit_code
            if run.error:
                entry["error"] = printable(run.error)[-ERROR:]
            if run.tries > 1:
                entry["tries"] = self._tries(run)
            if (directory := self.directories.get(run.position)) is not None:
                entry["files"] = self._files(directory)
                if directory != (self.home or directory) / run.run_id:
                    entry["place"] = self._link(directory)
        self.left -= sum(len(script_json(entry)) for entry in self.runs)

    def _tries(self, run: Row) -> list[list[Any]]:
        """Number, status, wall time, exit code and error of each attempt."""
        tries: list[list[Any]] = []
        for attempt in run.attempts():
            wall = None
            if attempt["started_at"] is not None and attempt["ended_at"] is not None:
                wall = round(float(attempt["ended_at"] - attempt["started_at"]), 4)
            error = printable(attempt["error"] or "")[-ERROR:]
            tries.append([attempt["attempt"], attempt["status"], wall, attempt["exit_code"], error])
        return tries

    def _link(self, directory: Path) -> str:
        """The address of a directory on a page of the report."""
        return quote(os.path.relpath(directory, self.base).replace(os.sep, "/"))

    def _files(self, home: Path) -> int:
        """The number of a run's list of files: most runs leave the same names behind."""
        paths: list[str] = []
        for place, folders, names in walk(home):
            folders.sort()
            paths += [os.path.relpath(os.path.join(place, name), home) for name in sorted(names)]
            if len(paths) > MOST_FILES:
                break
        return self.files.setdefault(tuple(paths[:MOST_FILES]), len(self.files))

    def _metrics(self) -> None:
        """Column by column, as long as three quarters of the budget last."""
        others = dict.fromkeys(name for run in self.contents.runs for name in run.metrics)
        wanted = [name for name in others if name not in self.contents.columns]
        room = 3 * self.left // 4
        columns: list[list[Any]] = []
        for name in wanted:
            column = [shown(run.metrics.get(name)) for run in self.contents.runs]
            size = len(script_json(column))
            if size > room:
                self.omitted.append(f"{len(wanted) - len(self.metrics)} of {len(others)} metrics")
                break
            room -= size
            self.left -= size
            self.metrics.append(name)
            columns.append(column)
        for number, entry in enumerate(self.runs) if columns else ():
            entry["m"] = [column[number] for column in columns]
            self.left -= len('"m":[],')

    def _logs(self, numbers: Sequence[int], room: int) -> bool:
        """The ends of what these runs wrote; False when the room did not do."""
        self.left -= room
        for number in numbers:
            run = self.contents.runs[number]
            home = self.directories.get(run.position)
            logs = {name: text for name in (STDOUT, STDERR) if home is not None and (text := _tail(home, name))}
            if run.transcript is not None and (text := _transcript(run)):
                logs[TRANSCRIPT] = text
            size = len(script_json(logs)) if logs else 0
            if size > room:
                self.left += room
                return False
            room -= size
            if logs:
                self.runs[number]["logs"] = logs
        self.left += room
        return True

    def _series(self) -> None:
        """Every series of every run, thinned to what the room allows; the same number of points for all."""
        count = sum(len(run.series) for run in self.contents.runs)
        if not count:
            return
        points = min(MOST_POINTS, int(0.8 * self.left) // (2 * _NUMBER * count))
        if points < FEWEST_POINTS:
            self.omitted.append("series")
            return
        for entry, run in zip(self.runs, self.contents.runs, strict=True):
            for name, (steps, values) in run.series.items():
                kept = np.unique(np.linspace(0, steps.size - 1, min(points, steps.size)).round().astype(int))
                numbers = [float(f"{value:.5g}") if np.isfinite(value) else None for value in values[kept]]
                drawn = [[int(step) if step == int(step) else step for step in steps[kept].tolist()], numbers]
                entry.setdefault("series", {})[name] = drawn
                self.left -= len(script_json(drawn))


def _directories(runs: Sequence[Row]) -> dict[int, Path]:
    """The directories that runs left, by position. An edition's are listed at once, not asked for one by one."""
    left: dict[Path, set[str]] = {}
    directories = {}
    for run in runs:
        if run.edition is not None:
            place = run.edition.paths.runs
            if place not in left:
                left[place] = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
            if run.run_id in left[place] and run.files is not None:
                directories[run.position] = run.files
        elif run.files is not None and run.files.is_dir():
            directories[run.position] = run.files.resolve()
    return directories


def _transcript(run: Row) -> str:
    """The beginning of what was said in a run of another tool; the error where that cannot be read."""
    try:
        text = printable("\n\n".join(str(turn_of(message.as_recorded())) for message in run.messages()))
    except BakeoffError as error:
        return printable(str(error))
    return text if len(text) <= TAIL else f"{text[:TAIL]}\n… (the beginning of {len(text):,} characters)"


def _tail(home: Path, name: str) -> str:
    """The end of a log as text that a page can hold; "" when there is nothing."""
    try:
        with open_inside(home, name) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * TAIL))
            text = printable(file.read().decode("utf-8", "replace")).strip("\n")
    except OSError:
        return ""
    if len(text) > TAIL or size > 2 * TAIL:
        text = f"… (the end of {size:,} bytes)\n{text[-TAIL:]}"
    return text
