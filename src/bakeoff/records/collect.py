"""An edition's table as files: `aggregate/runs.csv` and `runs.parquet`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.table import read_table

if TYPE_CHECKING:
    import polars as pl

CSV = "runs.csv"


def frame(edition: Edition) -> pl.DataFrame:
    """One row for each planned run; the sweep runner's columns where it is the sweep runner's experiment."""
    if edition.facts()["dialect"] == "sweep":
        from bakeoff.records.sweep import frame_of_edition

        return frame_of_edition(edition)
    return read_table(edition).frame


def default_csv(directory: Path) -> Path:
    return EditionPaths(directory).aggregate / CSV


def write(table: pl.DataFrame, csv: Path) -> None:
    """The CSV file and, beside it, the Parquet file; each is whole or not there at all."""
    csv.parent.mkdir(parents=True, exist_ok=True)
    _replace(csv, table.write_csv)
    _replace(csv.with_suffix(".parquet"), table.write_parquet)


def _replace(path: Path, write_to: Callable[[Any], object]) -> None:
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        write_to(fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
