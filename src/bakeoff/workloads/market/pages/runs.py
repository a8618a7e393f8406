"""Runs as the pages read them, whether an experiment or `bakeoff market run` made them, and tables to download."""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bakeoff.records.files import is_file_inside, open_inside, read_inside
from bakeoff.results.table import Row
from bakeoff.text import csv_text
from bakeoff.workloads.market.outputs import ACTIONS

Rows = list[dict[str, str]]
IDENTITY = ("arm", "task", "run")
MAX_LINES = 200_000
"""Lines of one table to download; `bakeoff collect` and the runs' own directories have everything."""
_MAX_FIELD = 10_000_000


@dataclass(frozen=True, slots=True)
class Curve:
    """Equity by tick."""

    ticks: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Played:
    """One run. Runs of one `task` share the kind of world, and those of one `unit` the world itself."""

    arm: str
    agent: str
    """As the experiment or the command line names it."""
    task: str
    unit: int | None
    label: str
    """Distinguishes it from others of its arm and task."""
    status: str
    metrics: Mapping[str, Any]
    files: Path
    """Where it wrote actions.csv and the like, if it did."""
    equity: Curve | None = None

    @property
    def kept(self) -> bool:
        """Whether it wrote its files (`outputs = true`)."""
        return is_file_inside(self.files.parent, f"{self.files.name}/actions.csv")

    @property
    def name(self) -> str:
        """What headings call it."""
        return " · ".join(part for part in (self.arm, self.task, self.label) if part)

    def rows(self, name: str) -> Rows:
        """Return a table that the run wrote; empty when it did not."""
        csv.field_size_limit(_MAX_FIELD)  # results of a2a.observe are longer than the default of 128 KiB
        try:
            with (
                open_inside(self.files.parent, f"{self.files.name}/{name}") as file,
                io.TextIOWrapper(file, encoding="utf-8", newline="") as text,
            ):
                return list(csv.DictReader(text))
        except FileNotFoundError:
            return []

    def truth(self) -> dict[str, Any]:
        """Return what was hidden from the agent; empty when the run kept no files."""
        try:
            truth: dict[str, Any] = json.loads(read_inside(self.files.parent, f"{self.files.name}/truth.json"))
        except FileNotFoundError:
            return {}
        return truth

    def number(self, metric: str) -> float | None:
        """Return a metric if the run has it and it is a number."""
        value = self.metrics.get(metric)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def played(runs: Sequence[Row]) -> list[Played]:
    """Return the rows of a results table as runs in a market."""
    several = any(run.rollout for run in runs)
    return [
        Played(
            arm=run.arm,
            agent=str(run.settings.get("agent", "")),
            task=run.task,
            unit=run.seed,
            label=f"seed {run.seed}, rollout {run.rollout}" if several else f"seed {run.seed}",
            status=run.status,
            metrics=run.metrics,
            files=(run.files or Path(os.devnull)) / "out",
            equity=_curve(run),
        )
        for run in runs
    ]


def _curve(run: Row) -> Curve | None:
    if "equity" not in run.series:
        return None
    ticks, values = run.series["equity"]
    return Curve(ticks.astype(np.int64), values)


def arms_of(runs: Iterable[Played]) -> list[str]:
    """Return the arms in the order of their first runs."""
    return list(dict.fromkeys(run.arm for run in runs))


def tasks_of(runs: Iterable[Played]) -> list[str]:
    """Return the tasks in the order of their first runs."""
    return list(dict.fromkeys(run.task for run in runs))


def chosen(runs: Sequence[Played]) -> list[Played]:
    """Return the runs that are shown one by one: for every arm and task the first that kept its files."""
    first: dict[tuple[str, str], Played] = {}
    for run in runs:
        if (run.task, run.arm) not in first and run.kept:
            first[run.task, run.arm] = run
    return [first[task, arm] for task in tasks_of(runs) for arm in arms_of(runs) if (task, arm) in first]


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric; None without any value."""

    value: float | None
    n: int
    """Runs that have the metric."""


def mean_over_tasks(runs: Iterable[Played], arm: str, metric: str) -> Mean:
    """Return the mean of the tasks' means, so that every task weighs the same."""
    by_task: dict[str, list[float]] = {}
    for run in runs:
        if run.arm == arm and (value := run.number(metric)) is not None:
            by_task.setdefault(run.task, []).append(value)
    if not by_task:
        return Mean(None, 0)
    return Mean(statistics.fmean(map(statistics.fmean, by_task.values())), sum(map(len, by_task.values())))


# -- tables to download


@dataclass(frozen=True, slots=True)
class Download:
    """A CSV table, and how many runs are in it."""

    text: str
    runs: int


def metrics_csv(runs: Sequence[Played]) -> str:
    """Return all metrics, one line per run, failed ones included."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    rows = ([run.arm, run.task, run.label, run.status, *map(run.metrics.get, names)] for run in runs)
    return csv_text([*IDENTITY, "status", *names], rows)


def actions_csv(runs: Sequence[Played]) -> Download:
    """Return the action logs of these runs in one table."""
    logs = ([[row.get(name) or "" for name in ACTIONS] for row in run.rows("actions.csv")] for run in runs)
    return _download(ACTIONS, runs, logs)


def equity_csv(runs: Sequence[Played]) -> Download:
    """Return the equity of these runs by tick in one table."""
    curves = (run.equity or Curve(np.empty(0, np.int64), np.empty(0)) for run in runs)
    tables = (list(zip(curve.ticks.tolist(), curve.values.tolist(), strict=True)) for curve in curves)
    return _download(("tick", "equity"), runs, tables)


def _download(columns: Sequence[str], runs: Sequence[Played], tables: Iterable[Sequence[Sequence[Any]]]) -> Download:
    """Join the tables of runs, up to `MAX_LINES` and only whole runs."""
    lines: list[list[Any]] = []
    count = 0
    for run, rows in zip(runs, tables, strict=True):
        if len(lines) + len(rows) > MAX_LINES:
            break
        count += 1
        lines += ([run.arm, run.task, run.label, *row] for row in rows)
    return Download(csv_text([*IDENTITY, *columns], lines), count)
