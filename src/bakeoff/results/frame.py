"""An edition as a Polars frame: one row for each planned run, whatever became of it; and the files of `collect`.

Columns, in this order: FIXED, then parameters, then metrics. A parameter or metric whose name is taken already is
called `param.<name>` or `metric.<name>`. `wall_s` is seconds from start to end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, atomic_write
from bakeoff.spec import registry
from bakeoff.text import FORMULA, NOT_A_FORMULA

if TYPE_CHECKING:
    import polars as pl

FIXED = (
    "experiment", "edition", "run_id", "arm", "task", "seed", "rollout", "ablation", "status", "attempts",
    "started_at", "ended_at", "wall_s", "exit_code", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EditionFrame:
    """An edition as a frame; `params` and `metrics` say under which column each one is found."""

    frame: pl.DataFrame
    params: Mapping[str, str]
    metrics: Mapping[str, str]


def read_table(edition: Edition) -> EditionFrame:
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
    params = _add(columns, "param", [cells[run.cell].columns for run in runs])
    metrics = _add(columns, "metric", [run.metrics for run in runs])
    return EditionFrame(pl.DataFrame(columns), params, metrics)


def _add(columns: dict[str, pl.Series], kind: str, rows: list[dict[str, Any]]) -> dict[str, str]:
    """One column for each name, in order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    placed = {}
    for name in names:
        column = name
        while column in columns:
            column = f"{kind}.{column}"
        columns[column] = typed([row.get(name) for row in rows])
        placed[name] = column
    return placed


def typed(values: list[Any]) -> pl.Series:
    """Whole numbers, numbers, booleans or text: the narrowest that holds every value. Nothing is lost or guessed."""
    import json

    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    whole = all(type(value) is not int or -(2**63) <= value < 2**63 for value in values)
    if kinds == {int} and whole:
        return pl.Series(values, dtype=pl.Int64)
    if kinds <= {int, float, bool} and whole:
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(texts, dtype=pl.String)


def collected(edition: Edition) -> pl.DataFrame:
    """The table that `bakeoff collect` writes: with the columns of the experiment's dialect where it has its own."""
    table: pl.DataFrame | None = registry.dialect(edition.facts()["dialect"]).table(edition)
    return read_table(edition).frame if table is None else table


def default_csv(directory: Path) -> Path:
    return EditionPaths(directory).aggregate / "runs.csv"


def write(table: pl.DataFrame, csv: Path) -> None:
    """The CSV file and, beside it, the Parquet file; each is written whole or not at all."""
    csv.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(csv, without_formulas(table).write_csv)
    atomic_write(csv.with_suffix(".parquet"), table.write_parquet)


def without_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """The table as CSV should have it: text that a spreadsheet would run as a formula gets an apostrophe."""
    import polars as pl

    text = pl.col(pl.String)
    formula = text.str.contains(FORMULA) & ~text.str.contains(NOT_A_FORMULA)
    quoted = table.with_columns(pl.when(formula).then("'" + text).otherwise(text).name.keep())
    return quoted.rename({name: f"'{name}" for name in quoted.columns if re.match(FORMULA, name)})
