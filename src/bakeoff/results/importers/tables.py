"""CSV, TSV, Parquet and JSONL with one row for each run, or for each step of a run.

Columns are found by their usual names unless a flag names them (`--arm-from model`). An empty value is missing; NaN is a
failure of the arm. Nothing is averaged over or thrown away in silence: how each column was read is part of every answer
(`Results.reading`), and a column that looks like an unused identifier is refused until a flag says what it is.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
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
    "rollout": ("rollout", "trial", "repeat", "epoch", "attempt"),
    "status": ("status",),
    "step": ("step", "_step"),
    "value": (),
}
"""For each role the column names that are taken for it, in this order, when no flag names one. `_roles` also knows `sample` and `state`."""
_ROLE_NAMES = {name for role in ("task", "seed", "rollout") for name in USUAL[role]}
VALUES = ("value", "score", "reward", "success", "correct", "accuracy")
"""Columns that are taken for the metric when none is named."""
METRIC = "metric"
"""The column that names the metric in a long table, whose values stand below each other."""
STATUSES = {
    "succeeded": ("succeeded", "success", "successful", "ok", "okay", "completed", "complete", "done", "finished",
                  "passed", "pass", "scored", "solved"),
    "failed": ("failed", "fail", "failure", "error", "errored", "exception", "crashed", "crash", "oom", "unsolved"),
    "timeout": ("timeout", "timed_out", "time_limit", "tle"),
    "infra_error": ("infra_error", "infrastructure_error", "lost", "missing", "preempted", "node_fail"),
    "cancelled": ("cancelled", "canceled", "aborted", "interrupted", "killed", "skipped"),
    "running": ("running", "started", "in_progress"),
    "planned": ("planned", "pending", "queued"),
}  # fmt: skip
"""Our statuses, and the words of a status column that mean them; case, spaces and dashes do not matter."""
_STATUS_OF = {word: status for status, words in STATUSES.items() for word in words}
IDENTIFIER = re.compile(
    r"(^|[_\W])(id|idx|index|item|question|prompt|hash|fold|example|sample|case|instance|uuid|key|row)s?$",
    re.IGNORECASE,
)
"""Names that identifiers usually have."""
NOTHING_WORDS = ("nan", "na", "n/a", "none", "null", "-", "?")
"""What tables write where a seed or a rollout is not known; two such runs are not the same seed."""
_PLAIN = r"[-+]?\d*\.?\d+([eE][-+]?\d+)?|(?i:nan)"
_DECIMAL_COMMA = r"[-+]?\d*,\d+"
_THOUSANDS = r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"
_SEPARATOR = r"[ '_\u2019\u00a0\u202f]"
_SEPARATED = rf"[-+]?[1-9]\d{{0,2}}({_SEPARATOR}\d{{3}})+([.,]\d+)?"
_DOTS_AND_COMMA = r"[-+]?[1-9]\d{0,2}(\.\d{3})+,\d+"


@dataclass(frozen=True, slots=True)
class Columns:
    """What flags say about a table's columns; None means the usual name, if it is there."""

    arm: str | None = None
    task: str | None = None
    seed: str | None = None
    rollout: str | None = None
    status: str | None = None
    value: str | None = None
    """Column of the values in a long table."""
    ignore: tuple[str, ...] = ()
    """Columns that carry nothing, although they look like identifiers."""
    keep_duplicates: bool = False
    """Rows that are equal in every column are separate runs."""


def read_tables(paths: Sequence[Path], columns: Columns) -> Results:
    """One table, or several of the same shape below each other."""
    import polars as pl

    frames = []
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
        try:
            frame = _read(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
        for name in frame.columns:
            if twice := re.fullmatch(r"(.*)_duplicated_\d+", name):  # what Polars calls the second column of a name
                raise UsageError(f"{path}: two columns are called {twice[1]!r}; rename one of them")
        frames.append(frame)
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
    notes: list[str] = []
    trimmed = {name: name.strip() for name in frame.columns}
    if any(name != short for name, short in trimmed.items()) and len(set(trimmed.values())) == len(trimmed):
        frame = frame.rename(trimmed)
        notes.append("spaces around the names of columns were removed")
    if frame.height == 0:
        raise UsageError(
            f"{label}: has no rows below its column names ({', '.join(frame.columns) or 'there are none'})"
        )
    roles = _roles(frame, label, columns)
    frame = _trimmed(frame, roles, notes)
    frame = _with_numbers(frame, label, roles, notes)
    long = METRIC in frame.columns and ("value" in roles or "value" in frame.columns)
    if long:
        value = roles.setdefault("value", "value")
        names = frame[METRIC].drop_nulls().unique(maintain_order=True).to_list()
        cells: list[Mapping[str, Any]] = [
            {str(name): value} if name is not None else {}
            for name, value in zip(frame[METRIC], frame[value].to_list(), strict=True)
        ]
    else:
        taken = set(roles.values()) - {roles.get("value")}
        names = [name for name, kind in frame.schema.items() if name not in taken and _is_number(kind)]
        cells = list(frame.select(names).iter_rows(named=True)) if names else [{}] * frame.height
        if columns.value is not None and columns.value not in names:
            raise UsageError(f"{label}: column {columns.value!r} holds {frame.schema[columns.value]}, not numbers")
    if not names and not long:
        texts = [name for name in (*_called(VALUES, frame.columns), *frame.columns) if name not in taken]
        example = f": {texts[0]!r} holds text such as {str(frame[texts[0]][0])!r}" if texts else ""
        raise UsageError(f"{label}: no column holds numbers{example}")
    _refuse_identifiers(frame, label, roles, columns, [METRIC] if long else [])
    _refuse_duplicates(frame, label, roles, columns, names)
    keys = _keys(frame, label, roles)
    statuses = _statuses(frame, label, roles)
    unused = sum(
        status not in ("", "succeeded") and any(value is not None for value in cell.values())
        for status, cell in zip(statuses, cells, strict=True)
    )
    if unused:
        notes.append(f"{unused} rows have a value and a status other than succeeded; their value does not count")
    steps = frame[roles["step"]].to_list() if "step" in roles else None
    entries = {(key, *cell) if long else key for key, cell in zip(keys, cells, strict=True)}
    if steps is not None and len(entries) < len(keys):
        rows = _rows_by_step(keys, cells, statuses, steps)
    else:
        rows = _rows(keys, cells, statuses, roles, long=long)
    usual_value = columns.value if not long else None

    def usual(known: Sequence[str]) -> Sequence[str]:
        return (usual_value,) if usual_value is not None else _called(VALUES, known)[:1]

    used = {*roles.values(), *([METRIC] if long else names)}
    return Results(
        rows=rows,
        label=label,
        analysis=Analysis(seeds="crossed" if _is_crossed(frame, roles) else "nested"),
        usual=usual,
        series_summary=Summary(type="auc") if steps is not None else None,
        notes=tuple(notes),
        reading={
            **{role: roles.get(role) for role in ("arm", "task", "seed", "rollout", "status", "step")},
            "metrics": names,
            "ignored": [name for name in frame.columns if name not in used],
        },
    )


Key = tuple[str, str, int | None, int]
"""(arm, task, seed, rollout) of one row of the file."""


def _roles(frame: pl.DataFrame, label: str, columns: Columns) -> dict[str, str]:
    """Role to column, for the roles that the table has. Raises UsageError when no column names the arm."""
    for name in columns.ignore:
        if name not in frame.columns:
            raise UsageError(f"{label}: no column {name!r}; there are {', '.join(frame.columns)}")
    roles = {}
    for role, usual in USUAL.items():
        asked = getattr(columns, role, None)
        if asked is not None and asked not in frame.columns:
            raise UsageError(f"{label}: no column {asked!r}; there are {', '.join(frame.columns)}")
        if asked or (names := [name for name in _called(usual, frame.columns) if name not in columns.ignore]):
            roles[role] = asked or names[0]
    if "arm" not in roles:
        raise UsageError(f"{label}: which column names the arm? say --arm-from; there are {', '.join(frame.columns)}")
    sample = next(iter(_called(("sample",), frame.columns)), None)
    if sample is not None and sample not in (*roles.values(), *columns.ignore):
        # A sample counts repeats where it runs from 0 or 1 inside every task; otherwise it is what was sampled.
        if "task" not in roles:
            roles["task"] = sample
        elif "rollout" not in roles and _counts_up(
            frame, sample, [roles[r] for r in ("arm", "task", "seed") if r in roles]
        ):
            roles["rollout"] = sample
    state = next(iter(_called(("state",), frame.columns)), None)
    if "status" not in roles and state is not None and state not in columns.ignore:
        words = {_status_word(value) for value in frame[state].drop_nulls().unique().to_list()}
        if words and words <= set(_STATUS_OF):  # W&B exports call it State; elsewhere it may be anything
            roles["status"] = state
    return roles


def _counts_up(frame: pl.DataFrame, column: str, groups: Sequence[str]) -> bool:
    """Whether a column numbers the rows of every group: 0, 1, 2 and so on, or 1, 2, 3."""
    import polars as pl

    if not frame.schema[column].is_integer():
        return False
    counts = frame.group_by(groups).agg(
        low=pl.col(column).min(), high=pl.col(column).max(), distinct=pl.col(column).n_unique(), rows=pl.len()
    )
    return bool(
        counts.select(
            (pl.col("low").is_in([0, 1]) & (pl.col("distinct") == pl.col("rows"))
             & (pl.col("high") - pl.col("low") + 1 == pl.col("rows"))).all()
        ).item()
    )  # fmt: skip


def _called(usual: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns with one of these names, in the order of `usual`; `Model` is `model`."""
    plain = {name.strip().lower(): name for name in reversed(columns)}
    return [plain[name] for name in usual if name in plain]


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


def _with_numbers(frame: pl.DataFrame, label: str, roles: Mapping[str, str], notes: list[str]) -> pl.DataFrame:
    """Read text columns that hold numbers as spreadsheets write them: `0,85`, `1,234.5`, `1.234,5`, `1 234` and `85 %`.

    Raises UsageError where a column could be read in two ways, and where some of its cells are numbers and others text.
    """
    import polars as pl

    taken = {column for role, column in roles.items() if role != "value"} | {METRIC}
    for name, kind in frame.schema.items():
        if name in taken or kind != pl.String:
            continue
        column = frame[name].str.strip_chars()
        percent, separated = column.str.contains(r"\d\s*%$"), column.str.contains(f"^({_SEPARATED})$")
        column = column.str.replace(r"(\d)\s*%$", "$1")
        dotted = column.str.contains(f"^({_DOTS_AND_COMMA})$")
        if separated.any():
            column = pl.select(
                pl.when(separated).then(column.str.replace_all(_SEPARATOR, "")).otherwise(column)
            ).to_series()
        if dotted.any():
            column = pl.select(
                pl.when(dotted).then(column.str.replace_all(".", "", literal=True)).otherwise(column)
            ).to_series()
        texts = column.drop_nulls()
        texts = texts.filter(texts != "")
        shapes = {
            shape: texts.str.contains(f"^({pattern})$")
            for shape, pattern in (("plain", _PLAIN), ("comma", _DECIMAL_COMMA), ("thousands", _THOUSANDS))
        }
        as_comma, as_thousands = shapes["plain"] | shapes["comma"], shapes["plain"] | shapes["thousands"]
        is_number = as_comma | as_thousands
        if texts.len() == 0 or is_number.sum() * 2 < texts.len():
            continue
        if not is_number.all():
            others = texts.filter(~is_number)
            raise UsageError(
                f"{label}: column {name!r} has text among its numbers: {others[0]!r} ({others.len()} cells); leave the "
                "cell empty where a run is missing, or write NaN where it failed"
            )
        if percent.any() and int(percent.sum()) < texts.len():
            raise UsageError(
                f"{label}: column {name!r} has per cent signs in some cells only; write them in all or in none"
            )
        if dotted.any() and (texts.filter(shapes["plain"]).str.contains(r"\.")).any():
            raise UsageError(f"{label}: column {name!r} mixes decimal points and decimal commas")
        comma = bool(shapes["comma"].any()) and bool(as_comma.all())
        thousands = bool(shapes["thousands"].any()) and bool(as_thousands.all())
        if comma and thousands:
            example = texts.filter(shapes["comma"])[0]
            raise UsageError(
                f"{label}: {example!r} in column {name!r} may be a thousand or a decimal comma; write it without the comma"
            )
        how = ["per cent signs"] if percent.any() else []
        if separated.any() or dotted.any():
            how.append("separators between thousands")
        if comma:
            how.append("decimal commas")
            column = column.str.replace(",", ".", literal=True)
        elif thousands:
            how.append("commas between thousands")
            column = column.str.replace_all(",", "", literal=True)
        elif not shapes["plain"].all():
            raise UsageError(f"{label}: column {name!r} mixes decimal commas and thousands separators")
        if how:
            notes.append(f"column {name!r} was read with {' and '.join(how)}")
        frame = frame.with_columns(column.replace("", None).cast(pl.Float64).alias(name))
    return frame


def _refuse_identifiers(
    frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, also_keys: Sequence[str]
) -> None:
    """Raise UsageError for a column that nobody uses and that tells rows of one arm, task and seed apart.

    Averaging over such a column, or pairing without it, treats repeated measurements of one thing as independent. A
    column looks like an identifier when every arm has the same values equally often, or when its name says so and the
    arms share most of its values. A score that happens to take few values differs in how often it takes them.
    """
    import polars as pl

    groups = [*(roles[role] for role in ("arm", "task", "seed", "step") if role in roles), *also_keys]
    candidates = [
        name
        for name, kind in frame.schema.items()
        if name not in (*roles.values(), *also_keys, *columns.ignore)
        and name.strip().lower() not in VALUES
        and (kind == pl.String or kind.is_integer() or kind == pl.Categorical)
    ]
    numbers = [roles[role] for role in ("rollout",) if role in roles]
    for name in candidates:
        if not frame.group_by(groups).agg(pl.col(name).n_unique())[name].gt(1).any():
            continue
        if any(frame.select(name, other).n_unique() == frame[other].n_unique() for other in numbers):
            continue  # it numbers the same rows as a column that is used
        counts = frame.drop_nulls(name).group_by(name, roles["arm"]).len()
        arms = counts[roles["arm"]].n_unique()
        # Every arm has each value equally often, such as 10 attempts of one arm and 5 of another at each question.
        even = bool((counts.group_by(roles["arm"]).agg(pl.col("len").n_unique())["len"] == 1).all())
        by_value = counts.group_by(name).agg(
            everywhere=pl.len() == arms, equal=(pl.len() == arms) & (pl.col("len").n_unique() == 1)
        )
        shared, equal = (by_value[part].sum() / max(1, by_value.height) for part in ("everywhere", "equal"))
        named = IDENTIFIER.search(name.strip()) is not None or name.strip().lower() in _ROLE_NAMES
        looks = arms > 1 and by_value.height >= 3 and (equal >= 0.8 or (even and shared >= 0.8))
        if looks or (named and by_value.height >= 2 and shared >= 0.5):
            flag = shlex.quote(name)
            raise UsageError(
                f"{label}: column {name!r} looks like an identifier ({by_value.height} values that the arms share) and "
                f"nothing says what it is. Say --task-from {flag}, --seed-from {flag} or --rollout-from {flag}, or "
                f"--ignore {flag} if rows that differ only in it are independent runs"
            )


def _refuse_duplicates(
    frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, names: Sequence[str]
) -> None:
    """Raise UsageError for rows that are equal in everything: a copied row is not a second run.

    Outcomes of 0 and 1 repeat by nature, and rows with a seed or a rollout number are refused by the verdicts.
    """
    import polars as pl

    if columns.keep_duplicates or {"seed", "rollout", "step"} & set(roles):
        return
    numbers = [frame[name].cast(pl.Float64) for name in names if name in frame.columns]
    if numbers and all(column.drop_nulls().is_in([0.0, 1.0]).all() for column in numbers):
        return
    copies = frame.filter(frame.is_duplicated())
    if copies.height:
        first = ", ".join(f"{name}={value}" for name, value in copies.row(0, named=True).items())
        raise UsageError(
            f"{label}: {copies.height} rows stand more than once, such as {first}. Remove the copies, add a column that "
            "numbers the runs (seed or rollout), or say --keep-duplicates if they are separate runs"
        )


def _status_word(value: object) -> str:
    return re.sub(r"[\s\-]+", "_", str(value).strip().lower())


def _statuses(frame: pl.DataFrame, label: str, roles: Mapping[str, str]) -> list[str]:
    """Each row's status in our words; empty where the table does not say. Raises UsageError for words nobody knows."""
    if "status" not in roles:
        return [""] * frame.height
    values = frame[roles["status"]].to_list()
    unknown = Counter(str(value) for value in values if value is not None and _status_word(value) not in _STATUS_OF)
    if unknown:
        named = ", ".join(f"{word!r} ({count} rows)" for word, count in unknown.most_common(5))
        raise UsageError(
            f"{label}: column {roles['status']!r} has statuses that are not known: {named}; write succeeded, failed, "
            "timeout or missing, or name another column with --status-from"
        )
    return ["" if value is None else _STATUS_OF[_status_word(value)] for value in values]


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
