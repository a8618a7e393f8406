"""CSV, TSV, Parquet and JSONL with one row for each run, or for each step of a run.

Columns are found by their usual names unless a flag names them. An empty value is missing; NaN is a failure of the arm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis, Summary

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
USUAL = {
    "arm": ("arm", "condition", "variant", "model", "policy", "agent", "architecture", "algorithm", "method", "group"),
    "task": ("task", "task_id", "example_id", "env", "environment", "scenario", "problem", "question", "dataset"),
    "seed": ("seed",),
    "rollout": ("rollout", "trial", "repeat", "sample", "epoch", "attempt"),
    "status": ("status",),
    "step": ("step", "_step"),
    "value": (),
}
"""For each role the column names that are taken for it, in this order, when no flag names one."""
VALUES = ("value", "score", "reward", "success", "correct", "accuracy")
"""Columns that are taken for the metric when none is named."""
METRIC = "metric"
"""The column that names the metric in a long table, whose values stand below each other."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names that flags give; None means the usual one, if it is there."""

    arm: str | None = None
    task: str | None = None
    seed: str | None = None
    rollout: str | None = None
    value: str | None = None
    """Column of the values in a long table."""


def read_tables(paths: Sequence[Path], columns: Columns) -> Results:
    """One table, or several of the same shape below each other."""
    import polars as pl

    frames = []
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
        try:
            frames.append(_read(path))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    label = ", ".join(str(path) for path in paths)
    return frame_results(pl.concat(frames, how="diagonal_relaxed"), label, columns)


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    match path.suffix:
        case ".parquet":
            return pl.read_parquet(path)
        case ".jsonl" | ".ndjson":
            return pl.read_ndjson(path, infer_schema_length=None)
        case ".tsv":
            return pl.read_csv(path, separator="\t", infer_schema_length=None)
    with path.open("rb") as file:
        header, rest = file.readline(), file.read(1 << 16)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path}: is UTF-16; save it as UTF-8")
    if header.count(b";") <= header.count(b","):
        return pl.read_csv(path, infer_schema_length=None)
    # Spreadsheets write semicolons where a comma is the decimal point.
    decimal_comma = re.search(rb"(^|;)-?\d+,\d+(;|\r?$)", rest, re.MULTILINE) is not None
    return pl.read_csv(path, separator=";", decimal_comma=decimal_comma, infer_schema_length=None)


def frame_results(data: Any, label: str = "table", columns: Columns | None = None) -> Results:
    """A Polars frame, a pandas one, or anything that Polars makes a frame of (rows as dicts, columns as lists)."""
    import polars as pl

    columns = columns or Columns()
    if not isinstance(data, pl.DataFrame):
        is_pandas = hasattr(data, "columns") and hasattr(data, "to_dict")
        data = pl.DataFrame({str(name): list(data[name]) for name in data.columns} if is_pandas else data)
    frame: pl.DataFrame = data
    roles = _roles(frame, label, columns)
    long = METRIC in frame.columns and ("value" in roles or "value" in frame.columns)
    keys = _keys(frame, label, roles)
    if long:
        names = frame[METRIC].drop_nulls().unique(maintain_order=True).to_list()
        values = frame[roles.get("value", "value")].to_list()
        cells: list[Mapping[str, Any]] = [
            {str(name): value} if name is not None else {} for name, value in zip(frame[METRIC], values, strict=True)
        ]
    else:
        taken = set(roles.values()) - {roles.get("value")}
        names = [name for name, kind in frame.schema.items() if name not in taken and _is_number(kind)]
        cells = list(frame.select(names).iter_rows(named=True)) if names else [{}] * frame.height
    if columns.value is not None and not long and columns.value not in names:
        raise UsageError(f"{label}: column {columns.value!r} holds {frame.schema[columns.value]}, not numbers")
    statuses = frame[roles["status"]].to_list() if "status" in roles else [None] * frame.height
    steps = frame[roles["step"]].to_list() if "step" in roles else None
    entries = {(key, *cell) if long else key for key, cell in zip(keys, cells, strict=True)}
    if steps is not None and len(entries) < len(keys):
        rows = _rows_by_step(keys, cells, statuses, steps)
    else:
        rows = _rows(keys, cells, statuses, roles, long=long)
    value = columns.value if not long else None

    def usual(known: Sequence[str]) -> Sequence[str]:
        return (value,) if value is not None else _called(VALUES, known)[:1]

    return Results(
        rows=rows,
        label=label,
        analysis=Analysis(seeds="crossed" if _is_crossed(frame, roles) else "nested"),
        usual=usual,
        series_summary=Summary(type="auc") if steps is not None else None,
    )


Key = tuple[str, str, int | None, int]
"""(arm, task, seed, rollout) of one row of the file."""


def _roles(frame: pl.DataFrame, label: str, columns: Columns) -> dict[str, str]:
    """Role to column, for the roles that the table has. Raises UsageError when no column names the arm."""
    roles = {}
    for role, usual in USUAL.items():
        asked = getattr(columns, role, None)
        if asked is not None and asked not in frame.columns:
            raise UsageError(f"{label}: no column {asked!r}; there are {', '.join(frame.columns)}")
        if asked or (names := _called(usual, frame.columns)):
            roles[role] = asked or names[0]
    if "arm" not in roles:
        raise UsageError(f"{label}: which column names the arm? say --arm-column; there are {', '.join(frame.columns)}")
    return roles


def _called(usual: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns with one of these names, in the order of `usual`; `Model` is `model`."""
    plain = {name.strip().lower(): name for name in reversed(columns)}
    return [plain[name] for name in usual if name in plain]


def _is_number(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _is_crossed(frame: pl.DataFrame, roles: Mapping[str, str]) -> bool:
    """Where every seed stands on every task, one seed may be one policy or one world on all of them."""
    if not {"task", "seed"} <= set(roles):
        return False
    pairs = frame.select(roles["task"], roles["seed"]).unique()
    tasks, seeds = (pairs[roles[role]].n_unique() for role in ("task", "seed"))
    return pairs.height == tasks * seeds


def _keys(frame: pl.DataFrame, label: str, roles: Mapping[str, str]) -> list[Key]:
    """Who each row of the file is. Seeds and rollouts that are not whole numbers are counted through, for all arms alike."""
    columns: dict[str, list[Any]] = {}
    for role, default in (("arm", ""), ("task", "default"), ("seed", None), ("rollout", 0)):
        name = roles.get(role)
        if name is None:
            columns[role] = [default] * frame.height
            continue
        values = frame[name].to_list()
        if any(value is None for value in values):
            raise UsageError(f"{label}: column {name!r} has empty cells; every run needs its {role}")
        if role in ("arm", "task"):
            columns[role] = [str(value) for value in values]
            continue
        labels = frame[name].unique().sort().to_list()
        whole = all(isinstance(value, int) or (isinstance(value, float) and value.is_integer()) for value in labels)
        numbers = {value: int(value) if whole else number for number, value in enumerate(labels)}
        columns[role] = [numbers[value] for value in values]
    return list(zip(columns["arm"], columns["task"], columns["seed"], columns["rollout"], strict=True))


def _rows(
    keys: Sequence[Key],
    cells: Sequence[Mapping[str, Any]],
    statuses: Sequence[Any],
    roles: Mapping[str, str],
    long: bool,
) -> list[Row]:
    """One run for each row of the file; in a long table, one for each key, with all its metrics.

    Without columns for seed and rollout, rows of one arm on one task are rollouts. A run that stands twice stays
    twice: the verdicts refuse it by name.
    """
    has_number = bool({"seed", "rollout"} & set(roles))
    counts: dict[tuple[str, ...], int] = {}
    places: dict[Key, int] = {}
    runs: list[Row] = []
    for (arm, task, seed, rollout), cell, status in zip(keys, cells, statuses, strict=True):
        if not has_number:
            counted = (arm, task, *cell) if long else (arm, task)
            rollout = counts.get(counted, 0)
            counts[counted] = rollout + 1
        metrics = {name: value for name, value in cell.items() if value is not None}
        row = Row(arm, task, seed, rollout, "" if status is None else str(status), metrics)
        place = places.get((arm, task, seed, rollout)) if long else None
        if place is not None and not metrics.keys() & runs[place].metrics.keys():
            known = runs[place]
            runs[place] = replace(known, metrics={**known.metrics, **metrics}, status=known.status or row.status)
        else:
            places[arm, task, seed, rollout] = len(runs)
            runs.append(row)
    return runs


def _rows_by_step(
    keys: Sequence[Key], cells: Sequence[Mapping[str, Any]], statuses: Sequence[Any], steps: Sequence[Any]
) -> list[Row]:
    """Rows with one key are one run's series. Steps without a value are left out; the last status that is given counts."""
    curves: dict[Key, dict[str, tuple[list[float], list[float]]]] = {}
    ends: dict[Key, str] = {}
    for key, cell, status, step in zip(keys, cells, statuses, steps, strict=True):
        columns = curves.setdefault(key, {})
        if status is not None:
            ends[key] = str(status)
        for name, value in cell.items():
            if value is not None:
                column = columns.setdefault(name, ([], []))
                column[0].append(float(step))
                column[1].append(float(value))
    return [
        Row(*key, status=ends.get(key, ""), series={n: (np.array(s), np.array(v)) for n, (s, v) in columns.items()})
        for key, columns in curves.items()
    ]
