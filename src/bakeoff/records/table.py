"""An edition as tables: one row for each run, the same as files, and at a glance.

The table has one row for each planned run, whatever became of it. Columns, in this order: FIXED, then parameters, then
metrics. A parameter or metric whose name is taken already is called `param.<name>` or `metric.<name>`. `wall_s` is
seconds from start to end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, atomic_write
from bakeoff.records.run import FAILED, OPEN, RunRecord
from bakeoff.records.rundir import log_of
from bakeoff.spec import registry

if TYPE_CHECKING:
    import polars as pl

FIXED = (
    "experiment", "edition", "run_id", "arm", "task", "seed", "rollout", "ablation", "status", "attempts",
    "started_at", "ended_at", "wall_s", "exit_code", "error",
)  # fmt: skip
CSV = "runs.csv"
MOST_METRICS = 4
_LISTED = (
    "run_id", "arm", "task", "seed", "rollout", "status", "attempts", "started_at", "ended_at", "exit_code", "error",
)  # fmt: skip
"""What `list_runs` says about a run."""


@dataclass(frozen=True, slots=True)
class Table:
    """`params` and `metrics` say under which column each one is found."""

    frame: pl.DataFrame
    params: Mapping[str, str]
    metrics: Mapping[str, str]


def read_table(edition: Edition) -> Table:
    """All runs as a polars frame."""
    import polars as pl

    cells = {cell.number: cell for cell in edition.cells()}
    facts = edition.facts()
    runs = list(edition.runs())
    columns: dict[str, pl.Series] = {
        "experiment": pl.Series([facts["experiment"]] * len(runs), dtype=pl.String),
        "edition": pl.Series([facts["edition"]] * len(runs), dtype=pl.String),
        "run_id": pl.Series([run.run_id for run in runs], dtype=pl.String),
        "arm": pl.Series([run.arm for run in runs], dtype=pl.String),
        "task": pl.Series([run.task for run in runs], dtype=pl.String),
        "seed": pl.Series([run.seed for run in runs], dtype=pl.Int64),
        "rollout": pl.Series([run.rollout for run in runs], dtype=pl.Int64),
        "ablation": pl.Series([cells[run.cell].ablation for run in runs], dtype=pl.String),
        "status": pl.Series([run.status for run in runs], dtype=pl.String),
        "attempts": pl.Series([run.attempts for run in runs], dtype=pl.Int64),
        "started_at": pl.Series([run.started_at for run in runs], dtype=pl.Float64),
        "ended_at": pl.Series([run.ended_at for run in runs], dtype=pl.Float64),
        "wall_s": pl.Series([run.wall_s for run in runs], dtype=pl.Float64),
        "exit_code": pl.Series([run.exit_code for run in runs], dtype=pl.Int64),
        "error": pl.Series([run.error for run in runs], dtype=pl.String),
    }
    placed: dict[str, dict[str, str]] = {"param": {}, "metric": {}}
    tables: dict[str, list[Mapping[str, Any]]] = {
        "param": [cells[run.cell].columns for run in runs],
        "metric": [run.metrics for run in runs],
    }
    for kind, rows in tables.items():
        for name in dict.fromkeys(name for row in rows for name in row):  # in order of first appearance
            column = name
            while column in columns:
                column = f"{kind}.{column}"
            columns[column] = typed([row.get(name) for row in rows])
            placed[kind][name] = column
    return Table(pl.DataFrame(columns), placed["param"], placed["metric"])


def typed(values: list[Any]) -> pl.Series:
    """Whole numbers, numbers, booleans or text: the narrowest type that holds every value. Nothing is lost."""
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    fits = all(type(value) is not int or -(2**63) <= value < 2**63 for value in values)
    if kinds == {int} and fits:
        return pl.Series(values, dtype=pl.Int64)
    if kinds <= {int, float, bool} and fits:
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(texts, dtype=pl.String)


# -- as files


def frame(edition: Edition) -> pl.DataFrame:
    """The table that `collect` writes: with the columns of the experiment's dialect where it has its own."""
    table: pl.DataFrame | None = registry.dialect(edition.facts()["dialect"]).table(edition)
    return read_table(edition).frame if table is None else table


def default_csv(directory: Path) -> Path:
    return EditionPaths(directory).aggregate / CSV


def write(table: pl.DataFrame, csv: Path) -> None:
    """Write the CSV file and, beside it, the Parquet file, each in one step."""
    csv.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(csv, table.write_csv)
    atomic_write(csv.with_suffix(".parquet"), table.write_parquet)


# -- at a glance


@dataclass(frozen=True, slots=True)
class Tally:
    """How many runs succeeded, failed because of their arm, or are missing: not yet run, cancelled, infrastructure."""

    planned: int
    succeeded: int
    failed: int
    missing: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Tally:
        """From the number of runs by status."""
        return cls(
            planned=sum(counts.values()),
            succeeded=counts.get("succeeded", 0),
            failed=sum(counts.get(status, 0) for status in FAILED),
            missing=sum(counts.get(status, 0) for status in OPEN),
        )


@dataclass(slots=True)
class ArmMeans:
    """An arm's runs by status and, for each metric, the mean over succeeded runs that reported a finite number, and
    how many those are."""

    counts: dict[str, int] = field(default_factory=dict)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def tally(self) -> Tally:
        return Tally.of(self.counts)


def by_arm(edition: Edition, metrics: Sequence[str]) -> dict[str, ArmMeans]:
    """Every arm in plan order. Without `metrics`, the first few that runs reported."""
    arms: dict[str, ArmMeans] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for run in edition.runs():
        entry = arms.setdefault(run.arm, ArmMeans())
        entry.counts[run.status] = entry.counts.get(run.status, 0) + 1
        if run.status == "succeeded":
            for name, value in run.metrics.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    values.setdefault(name, {}).setdefault(run.arm, []).append(float(value))
    chosen = [name for name in metrics if name in values] or list(values)[:MOST_METRICS]
    for name in chosen:
        for arm, numbers in values[name].items():
            arms[arm].means[name] = (math.fsum(numbers) / len(numbers), len(numbers))
    return arms


def list_runs(edition: Edition, statuses: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Runs with one of these statuses (all by default) in plan order, as tables that can be printed as JSON."""
    return [_listed(run) for run in edition.runs(statuses)]


def failures(edition: Edition, limit: int) -> list[dict[str, Any]]:
    """The last runs that failed or could not be tried, newest first, each with the log that probably says why."""
    failed = sorted(edition.runs((*FAILED, "infra_error")), key=lambda run: (-(run.ended_at or 0.0), run.position))
    return [{**_listed(run), "log": log_of(edition.paths.run(run.run_id))} for run in failed[:limit]]


def _listed(run: RunRecord) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _LISTED}


def time_spent(edition: Edition) -> float:
    """Wall time over all sessions, in seconds."""
    return sum(float(session["seen_at"] - session["started_at"]) for session in edition.sessions())
