"""CSV, TSV, Parquet, JSONL and JSON with one row for each run, or for each step of a run.

Columns are found by their usual names unless a flag names them (`--arm-from model`). An empty value is missing; NaN is a
failure of the arm. Nothing is averaged over or thrown away in silence: how each column was read is part of every answer
(`Results.reading`), and a column that looks like an unused identifier is refused until a flag says what it is.

`table_files` reads files, `table_shapes` finds arms that stand in no column, `table_roles` finds the columns, `table_checks` refuses what would mislead a verdict.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.columns import Column, Sheet, in_order
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
    sheets = []
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
        sheets.append(read_file(path))
    for role in ("arm", "task", "seed"):
        name = getattr(columns, role)
        if is_path(name) and not any(name in sheet for sheet in sheets):
            parts = path_parts(paths, f"--{role}-from", name)
            sheets = [table_shapes.filled(sheet, name, part) for sheet, part in zip(sheets, parts, strict=True)]
    label = ", ".join(str(path) for path in paths)
    results = frame_results(table_shapes.stacked(sheets, paths, columns), label, columns)
    if table_shapes.arms_are_files(sheets, columns):
        results = replace(results, reading={**results.reading, "arm": "the names of files"})
    return results


def frame_results(data: Any, label: str = "table", columns: Columns | None = None) -> Results:
    """Read a table that is in memory: a frame of Polars, pandas or pyarrow, rows as dicts, or columns as lists."""
    columns = columns or Columns()
    notes: list[str] = []
    sheet = _without_spaces(Sheet.of(data), label, notes)
    sheet, columns, arms_from = table_shapes.unpivoted(sheet, label, columns, notes)
    roles = find_roles(sheet, label, columns)
    sheet = _trimmed(sheet, roles, notes)
    named = {column for role, column in roles.items() if role != "value"} | {METRIC}
    sheet = with_numbers(sheet, label, named, notes)
    long = METRIC in sheet and ("value" in roles or "value" in sheet)
    if long:
        value = roles.setdefault("value", "value")
        names = sheet[METRIC].known
        cells: list[Mapping[str, Any]] = [
            {str(name): value} if name is not None else {}
            for name, value in zip(sheet[METRIC].to_list(), sheet[value].to_list(), strict=True)
        ]
    also_keys = [METRIC] if long else []
    keys_of_runs = [roles[role] for role in ("arm", "task", "seed", "rollout") if role in roles] + also_keys
    steps = find_steps(sheet, label, columns, keys_of_runs, list(roles.values()))
    if steps.column is not None:
        roles["step"] = steps.column
    if not long:
        taken = {*roles.values(), *steps.others, *columns.ignore} - {roles.get("value")}
        names = [name for name, column in sheet.items() if name not in taken and _is_measured(column)]
        numbered = [name for name in names if name not in (*VALUES, columns.value) and is_row_number(sheet, name)]
        names = [name for name in names if name not in numbered] or names
        # The label of a table that `bakeoff collect` wrote stays with its runs.
        labels = [SELF_REPORTED] if SELF_REPORTED in {*sheet.names} - taken - {*names} and "step" not in roles else []
        cells = _cells(sheet, [*names, *labels]) if names else [{}] * sheet.height
        if columns.value is not None and columns.value not in names:
            raise UsageError(f"{label}: column {columns.value!r} holds {sheet[columns.value].description}, not numbers")
    if not names and not long:
        texts = [name for name in (*called(VALUES, sheet.names), *sheet.names) if name not in taken]
        example = f": {texts[0]!r} holds text such as {str(sheet[texts[0]][0])!r}" if texts else ""
        raise UsageError(f"{label}: no column holds numbers{example}")
    used = sheet.without([*steps.others, *(numbered if not long else [])])
    table_settings.refuse_even_splits(used, label, roles, columns, also_keys, named=True)
    table_checks.refuse_runs(used, label, roles, columns, notes)
    table_checks.refuse_identifiers(used, label, roles, columns, also_keys)
    table_checks.refuse_grouped_seeds(used, label, roles, columns, notes)
    table_settings.refuse_even_splits(used, label, roles, columns, also_keys, named=False)
    table_checks.refuse_repeated_steps(used, label, steps, keys_of_runs, notes)
    table_checks.refuse_duplicates(sheet, label, roles, columns, names)
    values = [roles["value"]] if long else names
    notes += table_aggregates.refuse_summary_rows(sheet, label, roles, values, also_keys)
    numbers = [
        name for name, column in used.items() if column.is_numeric and name not in (*roles.values(), *columns.ignore)
    ]
    notes += table_aggregates.aggregates_noted(used, roles, [*numbers, *(values if long else [])], also_keys)
    keys = _keys(sheet, label, roles)
    has_number = "rollout" in roles or ("seed" in roles and not _told_apart(sheet, keys_of_runs, columns.ignore))
    if has_number and steps.column is None:
        table_settings.refuse_second_values(used, label, keys_of_runs, roles, values)
    statuses = _statuses(sheet, label, roles)
    notes += table_checks.errors_reported(sheet, roles, statuses)
    notes += table_checks.arms_like_runs(sheet[roles["arm"]].levels)
    unused = sum(
        status not in ("", "succeeded") and any(value is not None for value in cell.values())
        for status, cell in zip(statuses, cells, strict=True)
    )
    if unused:
        notes.append(f"{unused} rows have a value and a status other than succeeded; their value does not count")
    if steps.column is not None:
        column = f"{label}: column {steps.column!r}"
        rows = _rows_by_step(keys, cells, statuses, sheet[steps.column].to_list(), column)
    else:
        rows = _rows(keys, cells, statuses, has_number=has_number, long=long)
    usual_value = columns.value if not long else None

    def usual(known: Sequence[str]) -> Sequence[str]:
        return (usual_value,) if usual_value is not None else called(VALUES, known)[:1]

    incidental = table_aggregates.not_outcomes(sheet, names, columns.value) if not long else frozenset()
    shown = {*roles.values(), *([METRIC] if long else names)}
    return Results(
        rows=rows,
        label=label,
        analysis=Analysis(seeds="crossed" if _is_crossed(sheet, roles) else "nested"),
        usual=usual,
        series_summary=Summary(type="auc") if steps.column is not None else None,
        groups=table_checks.groups_of_tasks(sheet, roles, [*columns.ignore, *steps.others]),
        repeats=roles.get("rollout", ""),
        incidental=incidental,
        notes=tuple(notes),
        reading={
            **{role: roles.get(role) for role in ("arm", "task", "seed", "rollout", "status", "step")},
            **({"arm": arms_from} if arms_from is not None else {}),
            **({"step_assumed": True} if steps.column is not None and columns.step is None else {}),
            "metrics": [name for name in names if name not in incidental],
            **({"incidental": sorted(incidental)} if incidental else {}),
            "ignored": [name for name in sheet.names if name not in shown],
        },
    )


def _without_spaces(sheet: Sheet, label: str, notes: list[str]) -> Sheet:
    """Return the sheet without spaces around column names. Raises UsageError if it has no rows."""
    trimmed = {name: name.strip() for name in sheet.names}
    if any(name != short for name, short in trimmed.items()) and len(set(trimmed.values())) == len(trimmed):
        sheet = Sheet({trimmed[name]: column for name, column in sheet.items()})
        notes.append("spaces around the names of columns were removed")
    if sheet.height == 0:
        raise UsageError(f"{label}: has no rows below its column names ({', '.join(sheet.names) or 'there are none'})")
    return sheet


def _cells(sheet: Sheet, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the cells of some columns, for each row by name."""
    return [dict(zip(names, row, strict=True)) for row in zip(*(sheet[name].to_list() for name in names), strict=True)]


Key = tuple[str, str, int | None, int]
"""(arm, task, seed, rollout) of one row of the file."""


def _trimmed(sheet: Sheet, roles: Mapping[str, str], notes: list[str]) -> Sheet:
    """Arms and tasks as they are written, without spaces around their names: `01` and `1` are two arms, `a` and `a ` one."""
    for role in ("arm", "task"):
        name = roles.get(role)
        if name is not None and sheet[name].written is not None:
            sheet = sheet.having({name: sheet[name].names})
        if name is None or sheet[name].kind != "text":
            continue
        if changed := int(sheet[name].where(lambda text: text != text.strip()).sum()):
            notes.append(f"spaces around {changed} names in column {name!r} were removed")
            sheet = sheet.having({name: sheet[name].mapped(str.strip)})
        spellings: dict[str, str] = {}
        for value in sheet[name].known:
            if (other := spellings.setdefault(value.casefold(), value)) != value:
                notes.append(f"column {name!r} has {other!r} and {value!r}, which are two {role}s")
    return sheet


def _statuses(sheet: Sheet, label: str, roles: Mapping[str, str]) -> list[str]:
    """Return each row's status in our words, or "" where the table does not say. Raises UsageError for unknown words."""
    name = roles.get("status")
    if name is None:
        return [""] * sheet.height
    column = sheet[name]
    if column.kind == "truth":
        meant = _meaning_of_true(name, label)
        return _words(column, lambda cell: meant if cell else "failed" if meant == "succeeded" else "succeeded")
    if table_checks.is_error_column(name):
        # What went wrong stands there, and nothing where nothing did.
        return _words(
            column, lambda cell: STATUS_OF.get(status_word(cell), "failed") if cell != 0 and str(cell).strip() else ""
        )
    sizes = zip(column.levels, column.sizes.tolist(), strict=True)
    unknown = Counter({word: count for word, count in sizes if word is not None and status_word(word) not in STATUS_OF})
    if unknown:
        named = ", ".join(f"{str(word)!r} ({count} rows)" for word, count in unknown.most_common(5))
        raise UsageError(
            f"{label}: column {name!r} has statuses that are not known: {named}; write succeeded, failed, "
            "timeout or missing, or name another column with --status-from"
        )
    return _words(column, lambda cell: STATUS_OF[status_word(cell)])


def _words(column: Column, status: Callable[[Any], str]) -> list[str]:
    return [word or "" for word in column.mapped(status).to_list()]


def _meaning_of_true(name: str, label: str) -> str:
    """Return the status that `true` stands for in a column of truth values, by its name."""
    words = {STATUS_OF[word] for word in words_of(name) if word in STATUS_OF}
    if table_checks.is_error_column(name):
        words = {"failed"}
    if words not in ({"succeeded"}, {"failed"}, {"timeout"}):
        raise UsageError(
            f"{label}: column {name!r} is true or false, and its name does not say which of them failed; call it "
            "'failed' or 'succeeded'"
        )
    return words.pop()


def _is_measured(column: Column) -> bool:
    return column.is_numeric or column.kind == "truth"


def _is_crossed(sheet: Sheet, roles: Mapping[str, str]) -> bool:
    """Where one seed stands on two tasks, it may be one policy or one world on both, whatever else is absent."""
    return {"task", "seed"} <= set(roles) and sheet.distinct(roles["task"], roles["seed"]) > sheet.distinct(
        roles["seed"]
    )


def _told_apart(sheet: Sheet, keys: Sequence[str], ignored: Sequence[str]) -> bool:
    """Whether rows with the same keys differ in columns that are ignored, so that they are repeats."""
    return bool(ignored) and sheet.distinct(*keys, *ignored) == sheet.height > sheet.distinct(*keys)


def _keys(sheet: Sheet, label: str, roles: Mapping[str, str]) -> list[Key]:
    """Who each row of the file is. Seeds and rollouts that are not whole numbers are counted through, for all arms alike."""
    columns: dict[str, list[Any]] = {}
    for role, default in (("arm", ""), ("task", "default"), ("seed", None), ("rollout", 0)):
        name = roles.get(role)
        if name is None:
            columns[role] = [default] * sheet.height
            continue
        column = sheet[name]
        if None in column.levels:
            raise UsageError(f"{label}: column {name!r} has empty cells; every run needs its {role}")
        if role in ("arm", "task"):
            columns[role] = column.mapped(str).to_list()
            continue
        if any(level != level for level in column.levels):
            raise UsageError(f"{label}: column {name!r} has NaN; every run needs its {role}")
        labels = in_order(column.levels)
        if unknown := [value for value in labels if isinstance(value, str) and value.strip().lower() in NOTHING_WORDS]:
            raise UsageError(f"{label}: column {name!r} has {unknown[0]!r}; every run needs its {role}")
        whole = column.is_numeric and all(float(value).is_integer() for value in labels)
        numbers = {value: int(value) if whole else number for number, value in enumerate(labels)}
        columns[role] = column.mapped(numbers.__getitem__).to_list()
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
    keys: Sequence[Key], cells: Sequence[Mapping[str, Any]], statuses: Sequence[str], steps: Sequence[Any], where: str
) -> list[Row]:
    """Rows with one key are one run's series. Steps without a value are left out; the last status that is given counts.

    Raises UsageError for a value without a step; `where` names their column.
    """
    curves: dict[Key, dict[str, tuple[list[float], list[float]]]] = {}
    ends: dict[Key, str] = {}
    for key, cell, status, step in zip(keys, cells, statuses, steps, strict=True):
        columns = curves.setdefault(key, {})
        if status:
            ends[key] = status
        for name, value in cell.items():
            if value is not None:
                if step is None:
                    raise UsageError(f"{where} has empty cells beside values; every value needs its step")
                column = columns.setdefault(name, ([], []))
                column[0].append(float(step))
                column[1].append(float(value))
    return [
        Row(*key, status=ends.get(key, ""), series={n: (np.array(s), np.array(v)) for n, (s, v) in columns.items()})
        for key, columns in curves.items()
    ]
