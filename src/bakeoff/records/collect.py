"""An edition's table as files: `aggregate/runs.csv` and `runs.parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.records import whole
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.table import read_table
from bakeoff.spec import registry

if TYPE_CHECKING:
    import polars as pl

CSV = "runs.csv"


def frame(edition: Edition) -> pl.DataFrame:
    """One row for each planned run, with the columns of the experiment's dialect where it has its own."""
    table: pl.DataFrame | None = registry.dialect(edition.facts()["dialect"]).table(edition)
    return read_table(edition).frame if table is None else table


def default_csv(directory: Path) -> Path:
    return EditionPaths(directory).aggregate / CSV


def write(table: pl.DataFrame, csv: Path) -> None:
    """The CSV file and, beside it, the Parquet file; each is whole or not there at all."""
    csv.parent.mkdir(parents=True, exist_ok=True)
    whole.replace(csv, table.write_csv)
    whole.replace(csv.with_suffix(".parquet"), table.write_parquet)
