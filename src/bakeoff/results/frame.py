"""An edition as a table: one row for each planned run, whatever became of it; and the files of `collect`.

Columns, in this order: FIXED, then parameters, then metrics. A parameter or metric whose name is taken already is
called `param.<name>` or `metric.<name>`. `wall_s` is seconds from start to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import EditionPaths, atomic_write
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import RunRecord
from bakeoff.results.columns import Column, Kind, Sheet, has_polars
from bakeoff.spec import registry

if TYPE_CHECKING:
    import polars as pl

    from bakeoff.spec.experiment import Analysis

FIXED = (
    "experiment", "edition", "run_id", "arm", "task", "seed", "rollout", "ablation", "status", "attempts",
    "started_at", "ended_at", "wall_s", "exit_code", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EditionTable:
    """An edition as a sheet; `params` and `metrics` say under which column each one is found."""

    sheet: Sheet
    params: Mapping[str, str]
    metrics: Mapping[str, str]

    @property
    def frame(self) -> pl.DataFrame:
        """The sheet as a Polars frame."""
        return self.sheet.frame()


def read_table(edition: Recorded) -> EditionTable:
    cells = {cell.number: cell for cell in edition.cells()}
    facts = edition.facts()
    runs = list(edition.runs())
    columns = {
        "experiment": typed([facts["experiment"]] * len(runs), "text"),
        "edition": typed([facts["edition"]] * len(runs), "text"),
        "run_id": typed([run.run_id for run in runs], "text"),
        "arm": typed([run.arm for run in runs], "text"),
        "task": typed([run.task for run in runs], "text"),
        "seed": typed([run.seed for run in runs], "whole"),
        "rollout": typed([run.rollout for run in runs], "whole"),
        "ablation": typed([cells[run.cell].ablation for run in runs], "text"),
        "status": typed([run.status for run in runs], "text"),
        "attempts": typed([run.attempts for run in runs], "whole"),
        "started_at": typed([run.started_at for run in runs]),
        "ended_at": typed([run.ended_at for run in runs]),
        "wall_s": typed([run.wall_s for run in runs]),
        "exit_code": typed([run.exit_code for run in runs], "whole"),
        "error": typed([run.error for run in runs], "text"),
    }
    params = _add(columns, "param", [cells[run.cell].columns for run in runs])
    metrics = _add(columns, "metric", [run.metrics for run in runs])
    if facts["spec"]["analysis"].get("summary") is not None:
        from bakeoff.spec.experiment import Analysis  # takes longer to import than a thousand runs to read

        analysis = Analysis.model_validate(facts["spec"]["analysis"])
        metrics |= _add(columns, "metric", _summarised(edition, runs, analysis))
    return EditionTable(Sheet(columns), params, metrics)


def _summarised(edition: Recorded, runs: Sequence[RunRecord], analysis: Analysis) -> list[dict[str, Any]]:
    """Return for each run the judged metrics that are summaries of its series; none that runs report themselves.

    Only for runs that succeeded: how far a failed run came is not a score.
    """
    summarised: list[dict[str, Any]] = [{} for _ in runs]
    reported = {name for run in runs for name in run.metrics}
    wanted = [name for name in analysis.metrics if name not in reported and analysis.about(name).summary is not None]
    if not wanted:
        return summarised
    from bakeoff.records.series import read_block
    from bakeoff.results.editions import as_floats
    from bakeoff.results.summaries import reduce_all

    places = {run.position: place for place, run in enumerate(runs) if run.status == "succeeded"}
    curves: dict[str, dict[int, Any]] = {name: {} for name in wanted}
    for position, block in edition.all_series():
        logged = as_floats(read_block(block)) if position in places else {}
        for name in wanted:
            if name in logged:
                curves[name][places[position]] = logged[name]
    for name in wanted:
        about = analysis.about(name)
        assert about.summary is not None
        names = {place: runs[place].run_id for place in curves[name]}
        with suppress(UsageError):  # a summary that these series do not allow: `compare` says why
            for place, value in reduce_all(curves[name], about.summary, about.direction != "minimize", names).items():
                summarised[place][name] = value
    return summarised


def _add(columns: dict[str, Column], kind: str, rows: list[dict[str, Any]]) -> dict[str, str]:
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


def typed(values: list[Any], empty: Kind = "number") -> Column:
    """Make a column of the narrowest kind that holds every value; `empty` is that of one without values."""
    column = Column.of(values)
    return column if column.known else Column(empty, column.levels, column.codes)


def collected(edition: Recorded) -> Sheet:
    """The table that `bakeoff collect` writes: with the columns of the experiment's dialect where it has its own."""
    table: Sheet | None = registry.dialect(edition.facts()["dialect"]).table(edition)
    return read_table(edition).sheet if table is None else table


def default_csv(directory: Path) -> Path:
    return EditionPaths(directory).aggregate / "runs.csv"


def write(table: Sheet, path: Path) -> Path | None:
    """Write the CSV file and, where Polars is installed, the Parquet file beside it, whose path is returned.

    Each is written whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table.to_csv().encode())
    if not has_polars():
        return None
    parquet = path.with_suffix(".parquet")
    atomic_write(parquet, table.frame().write_parquet)
    return parquet
