"""CSV, TSV, Parquet, JSONL and JSON with one row for each run, or for each step of a run.

Columns are found by their usual names unless a flag names them (`--arm-from model`). An empty value is missing; NaN is a
failure of the arm. Nothing is averaged over or thrown away in silence: how each column was read is part of every answer
(`Results.reading`), and a column that looks like an unused identifier is refused until a flag says what it is.

`table_files` reads files, `table_shapes` finds arms that stand in no column, `table_roles` finds the columns, `table_checks` refuses what would mislead a verdict.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.importers import table_aggregates, table_checks, table_settings, table_shapes
from bakeoff.results.importers.identity import is_path, path_parts
from bakeoff.results.importers.table_files import is_table, read_file, with_numbers
from bakeoff.results.importers.table_roles import (
    STATUS_OF,
    VALUES,
    Columns,
    called,
    find_roles,
    find_steps,
    is_row_number,
    status_word,
)
from bakeoff.results.importers.table_settings import METRIC
from bakeoff.results.table import Results, Row
from bakeoff.spec.directions import words_of
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.spec.workload import SELF_REPORTED

if TYPE_CHECKING:
    import polars as pl

NOTHING_WORDS = ("nan", "na", "n/a", "none", "null", "-", "?")
"""What tables write where a seed or a rollout is not known; two such runs are not the same seed."""


class Tables:
    """CSV, TSV, Parquet, JSONL, and JSON that holds rows."""

    name = "tables"

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        known = {field.name for field in fields(Columns)}
        self._columns = Columns(**{name: value for name, value in (columns or {}).items() if name in known})

    def claims(self, path: Path) -> list[Path]:
        return [path] if is_table(path) else []

    def read(self, paths: Sequence[Path]) -> Results:
        return read_tables(paths, self._columns)


def read_tables(paths: Sequence[Path], columns: Columns) -> Results:
    """One table, or several of the same shape below each other."""
    import polars as pl

    frames = []
    known: dict[bytes, Path] = {}
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
        if len(paths) > 1 and not columns.keep_duplicates:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if (other := known.setdefault(digest, path)) is not path:
                raise UsageError(
                    f"{path}: has the same content as {other}, and copies are not runs; leave one of them out, or say "
                    "--keep-duplicates if they are separate runs"
                )
        try:
            frame = read_file(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
        for name in frame.columns:
            if twice := re.fullmatch(r"(.*)_duplicated_\d+", name):  # what Polars calls the second column of a name
                raise UsageError(f"{path}: two columns are called {twice[1]!r}; rename one of them")
        frames.append(frame)
    for role in ("arm", "task", "seed"):
        name = getattr(columns, role)
        if is_path(name) and not any(name in frame.columns for frame in frames):
            parts = path_parts(paths, f"--{role}-from", name)
            frames = [frame.with_columns(pl.lit(part).alias(name)) for frame, part in zip(frames, parts, strict=True)]
    label = ", ".join(str(path) for path in paths)
    results = frame_results(table_shapes.stacked(frames, paths, columns), label, columns)
    if table_shapes.arms_are_files(frames, columns):
        results = replace(results, reading={**results.reading, "arm": "the names of files"})
    return results


def frame_results(data: Any, label: str = "table", columns: Columns | None = None) -> Results:
    """A Polars frame, a pandas one, or anything that Polars makes a frame of (rows as dicts, columns as lists)."""
    columns = columns or Columns()
    notes: list[str] = []
    frame = _as_frame(data, label, notes)
    frame, columns, arms_from = table_shapes.unpivoted(frame, label, columns, notes)
    roles = find_roles(frame, label, columns)
    frame = _trimmed(frame, roles, notes)
    named = {column for role, column in roles.items() if role != "value"} | {METRIC}
    frame = with_numbers(frame, label, named, notes)
    long = METRIC in frame.columns and ("value" in roles or "value" in frame.columns)
    if long:
        value = roles.setdefault("value", "value")
        names = frame[METRIC].drop_nulls().unique(maintain_order=True).to_list()
        cells: list[Mapping[str, Any]] = [
            {str(name): value} if name is not None else {}
            for name, value in zip(frame[METRIC], frame[value].to_list(), strict=True)
        ]
    also_keys = [METRIC] if long else []
    keys_of_runs = [roles[role] for role in ("arm", "task", "seed", "rollout") if role in roles] + also_keys
    steps = find_steps(frame, label, columns, keys_of_runs, list(roles.values()))
    if steps.column is not None:
        roles["step"] = steps.column
    if not long:
        taken = {*roles.values(), *steps.others, *columns.ignore} - {roles.get("value")}
        names = [name for name, kind in frame.schema.items() if name not in taken and _is_numeric(kind)]
        numbered = [name for name in names if name not in (*VALUES, columns.value) and is_row_number(frame, name)]
        names = [name for name in names if name not in numbered] or names
        # The label of a table that `bakeoff collect` wrote stays with its runs.
        labels = [SELF_REPORTED] if SELF_REPORTED in {*frame.columns} - taken - {*names} and "step" not in roles else []
        cells = list(frame.select([*names, *labels]).iter_rows(named=True)) if names else [{}] * frame.height
        if columns.value is not None and columns.value not in names:
            raise UsageError(f"{label}: column {columns.value!r} holds {frame.schema[columns.value]}, not numbers")
    if not names and not long:
        texts = [name for name in (*called(VALUES, frame.columns), *frame.columns) if name not in taken]
        example = f": {texts[0]!r} holds text such as {str(frame[texts[0]][0])!r}" if texts else ""
        raise UsageError(f"{label}: no column holds numbers{example}")
    used = frame.drop([*steps.others, *(numbered if not long else [])])
    table_settings.refuse_even_splits(used, label, roles, columns, also_keys, named=True)
    table_checks.refuse_runs(used, label, roles, columns, notes)
    table_checks.refuse_identifiers(used, label, roles, columns, also_keys)
    table_checks.refuse_grouped_seeds(used, label, roles, columns, notes)
    table_settings.refuse_even_splits(used, label, roles, columns, also_keys, named=False)
    table_checks.refuse_repeated_steps(used, label, steps, keys_of_runs, notes)
    table_checks.refuse_duplicates(frame, label, roles, columns, names)
    values = [roles["value"]] if long else names
    notes += table_aggregates.refuse_summary_rows(frame, label, roles, values, also_keys)
    numbers = [
        name
        for name, kind in used.schema.items()
        if kind.is_numeric() and name not in (*roles.values(), *columns.ignore)
    ]
    notes += table_aggregates.aggregates_noted(used, roles, [*numbers, *(values if long else [])], also_keys)
    keys = _keys(frame, label, roles)
    has_number = "rollout" in roles or ("seed" in roles and not _told_apart(frame, keys_of_runs, columns.ignore))
    if has_number and steps.column is None:
        table_settings.refuse_second_values(used, label, keys_of_runs, roles, values)
    statuses = _statuses(frame, label, roles)
    notes += table_checks.errors_reported(frame, roles, statuses)
    notes += table_checks.arms_like_runs(frame[roles["arm"]].unique(maintain_order=True).to_list())
    unused = sum(
        status not in ("", "succeeded") and any(value is not None for value in cell.values())
        for status, cell in zip(statuses, cells, strict=True)
    )
    if unused:
        notes.append(f"{unused} rows have a value and a status other than succeeded; their value does not count")
    if steps.column is not None:
        rows = _rows_by_step(keys, cells, statuses, frame[steps.column].to_list())
    else:
        rows = _rows(keys, cells, statuses, has_number=has_number, long=long)
    usual_value = columns.value if not long else None

    def usual(known: Sequence[str]) -> Sequence[str]:
        return (usual_value,) if usual_value is not None else called(VALUES, known)[:1]

    incidental = table_aggregates.not_outcomes(frame, names, columns.value) if not long else frozenset()
    shown = {*roles.values(), *([METRIC] if long else names)}
    return Results(
        rows=rows,
        label=label,
        analysis=Analysis(seeds="crossed" if _is_crossed(frame, roles) else "nested"),
        usual=usual,
        series_summary=Summary(type="auc") if steps.column is not None else None,
        groups=table_checks.groups_of_tasks(frame, roles, [*columns.ignore, *steps.others]),
        repeats=roles.get("rollout", ""),
        incidental=incidental,
        notes=tuple(notes),
        reading={
            **{role: roles.get(role) for role in ("arm", "task", "seed", "rollout", "status", "step")},
            **({"arm": arms_from} if arms_from is not None else {}),
            **({"step_assumed": True} if steps.column is not None and columns.step is None else {}),
            "metrics": [name for name in names if name not in incidental],
            **({"incidental": sorted(incidental)} if incidental else {}),
            "ignored": [name for name in frame.columns if name not in shown],
        },
    )


def _as_frame(data: Any, label: str, notes: list[str]) -> pl.DataFrame:
    """Return a Polars frame without spaces around column names. Raises UsageError if it has no rows."""
    import polars as pl

    if not isinstance(data, pl.DataFrame):
        is_pandas = hasattr(data, "columns") and hasattr(data, "to_dict")
        data = pl.DataFrame({str(name): _plain(data[name]) for name in data.columns} if is_pandas else data)
    frame: pl.DataFrame = data
    trimmed = {name: name.strip() for name in frame.columns}
    if any(name != short for name, short in trimmed.items()) and len(set(trimmed.values())) == len(trimmed):
        frame = frame.rename(trimmed)
        notes.append("spaces around the names of columns were removed")
    if frame.height == 0:
        raise UsageError(
            f"{label}: has no rows below its column names ({', '.join(frame.columns) or 'there are none'})"
        )
    return frame


def _plain(column: Iterable[Any]) -> list[Any]:
    """Values of a pandas column; what pandas calls NA or NaT is missing, and what is no plain value becomes text."""
    values = [None if type(value).__name__ in ("NAType", "NaTType") else value for value in column]
    return [str(value) if isinstance(value, dict | list | set | tuple) else value for value in values]


Key = tuple[str, str, int | None, int]
"""(arm, task, seed, rollout) of one row of the file."""


def _trimmed(frame: pl.DataFrame, roles: Mapping[str, str], notes: list[str]) -> pl.DataFrame:
    """Arms and tasks without spaces around their names: `a` and `a ` are one arm."""
    import polars as pl

    for role in ("arm", "task"):
        name = roles.get(role)
        if name is not None and frame.schema[name] == pl.String:
            stripped = frame[name].str.strip_chars()
            if changed := int((stripped != frame[name]).sum()):
                notes.append(f"spaces around {changed} names in column {name!r} were removed")
                frame = frame.with_columns(stripped)
            spellings: dict[str, str] = {}
            for value in frame[name].drop_nulls().unique(maintain_order=True).to_list():
                if (other := spellings.setdefault(value.casefold(), value)) != value:
                    notes.append(f"column {name!r} has {other!r} and {value!r}, which are two {role}s")
    return frame


def _statuses(frame: pl.DataFrame, label: str, roles: Mapping[str, str]) -> list[str]:
    """Each row's status in our words; empty where the table does not say. Raises UsageError for words nobody knows."""
    if "status" not in roles:
        return [""] * frame.height
    values = frame[roles["status"]].to_list()
    if (masked := _mask(frame[roles["status"]], label)) is not None:
        return masked
    if table_checks.is_error_column(roles["status"]):
        # What went wrong stands there, and nothing where nothing did.
        texts = ["" if value in (None, False) else str(value).strip() for value in values]
        return ["" if not text else STATUS_OF.get(status_word(text), "failed") for text in texts]
    unknown = Counter(str(value) for value in values if value is not None and status_word(value) not in STATUS_OF)
    if unknown:
        named = ", ".join(f"{word!r} ({count} rows)" for word, count in unknown.most_common(5))
        raise UsageError(
            f"{label}: column {roles['status']!r} has statuses that are not known: {named}; write succeeded, failed, "
            "timeout or missing, or name another column with --status-from"
        )
    return ["" if value is None else STATUS_OF[status_word(value)] for value in values]


def _mask(column: pl.Series, label: str) -> list[str] | None:
    """Statuses of a column of truth values, whose name says what true means; None for other columns."""
    import polars as pl

    if column.dtype != pl.Boolean:
        return None
    words = {STATUS_OF[word] for word in words_of(column.name) if word in STATUS_OF}
    if table_checks.is_error_column(column.name):
        words = {"failed"}
    if words not in ({"succeeded"}, {"failed"}, {"timeout"}):
        raise UsageError(
            f"{label}: column {column.name!r} is true or false, and its name does not say which of them failed; call it "
            "'failed' or 'succeeded'"
        )
    (meant,) = words
    other = "failed" if meant == "succeeded" else "succeeded"
    return ["" if value is None else meant if value else other for value in column.to_list()]


def _is_numeric(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _is_crossed(frame: pl.DataFrame, roles: Mapping[str, str]) -> bool:
    """Where one seed stands on two tasks, it may be one policy or one world on both, whatever else is absent."""
    if not {"task", "seed"} <= set(roles):
        return False
    pairs = frame.select(roles["task"], roles["seed"]).unique()
    return pairs.height > pairs[roles["seed"]].n_unique()


def _told_apart(frame: pl.DataFrame, keys: Sequence[str], ignored: Sequence[str]) -> bool:
    """Whether rows with the same keys differ in columns that are ignored, so that they are repeats."""
    return bool(ignored) and frame.select(*keys, *ignored).n_unique() == frame.height > frame.select(keys).n_unique()


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
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            raise UsageError(f"{label}: column {name!r} has NaN; every run needs its {role}")
        labels = frame[name].unique().sort().to_list()
        if unknown := [value for value in labels if isinstance(value, str) and value.strip().lower() in NOTHING_WORDS]:
            raise UsageError(f"{label}: column {name!r} has {unknown[0]!r}; every run needs its {role}")
        whole = all(isinstance(value, int) or (isinstance(value, float) and value.is_integer()) for value in labels)
        numbers = {value: int(value) if whole else number for number, value in enumerate(labels)}
        columns[role] = [numbers[value] for value in values]
    return list(zip(columns["arm"], columns["task"], columns["seed"], columns["rollout"], strict=True))


def _rows(
    keys: Sequence[Key],
    cells: Sequence[Mapping[str, Any]],
    statuses: Sequence[str],
    has_number: bool,
    long: bool,
) -> list[Row]:
    """One run for each row of the file; in a long table, one for each key, with all its metrics.

    Where no column numbers the runs of one arm, task and seed (`has_number`), they are rollouts in the order of rows.
    """
    counts: dict[tuple[Any, ...], int] = {}
    places: dict[Key, int] = {}
    runs: list[Row] = []
    for (arm, task, seed, rollout), cell, status in zip(keys, cells, statuses, strict=True):
        if not has_number:
            counted = (arm, task, seed, *cell) if long else (arm, task, seed)
            rollout = counts.get(counted, 0)
            counts[counted] = rollout + 1
        metrics = {name: value for name, value in cell.items() if value is not None}
        row = Row(arm, task, seed, rollout, status, metrics)
        place = places.get((arm, task, seed, rollout)) if long else None
        if place is not None and not metrics.keys() & runs[place].metrics.keys():
            known = runs[place]
            runs[place] = replace(known, metrics={**known.metrics, **metrics}, status=known.status or row.status)
        else:
            places[arm, task, seed, rollout] = len(runs)
            runs.append(row)
    return runs


def _rows_by_step(
    keys: Sequence[Key], cells: Sequence[Mapping[str, Any]], statuses: Sequence[str], steps: Sequence[Any]
) -> list[Row]:
    """Rows with one key are one run's series. Steps without a value are left out; the last status that is given counts."""
    curves: dict[Key, dict[str, tuple[list[float], list[float]]]] = {}
    ends: dict[Key, str] = {}
    for key, cell, status, step in zip(keys, cells, statuses, steps, strict=True):
        columns = curves.setdefault(key, {})
        if status:
            ends[key] = status
        for name, value in cell.items():
            if value is not None:
                column = columns.setdefault(name, ([], []))
                column[0].append(float(step))
                column[1].append(float(value))
    return [
        Row(*key, status=ends.get(key, ""), series={n: (np.array(s), np.array(v)) for n, (s, v) in columns.items()})
        for key, columns in curves.items()
    ]
