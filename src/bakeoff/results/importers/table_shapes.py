"""Tables whose arms stand in no column: one column for each arm, or one file for each arm.

Both become a table with the column `arm`, which every check then sees like any other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.columns import Column, Sheet
from bakeoff.results.importers.table_aggregates import SUMMARIES
from bakeoff.results.importers.table_checks import IDENTIFIER, is_error_column
from bakeoff.results.importers.table_files import with_numbers
from bakeoff.results.importers.table_roles import CLOCKS, COUNTERS, USUAL, VALUES, Columns, called, is_row_number
from bakeoff.results.importers.table_settings import METRIC, is_setting
from bakeoff.spec.directions import LESS_IS_BETTER, words_of

ARM = "arm"
WIDE = "columns:"
"""What `--arm-from` begins with when it lists columns that are arms."""
_NOT_ARMS = frozenset((
    *LESS_IS_BETTER, *VALUES, *COUNTERS, *CLOCKS, *SUMMARIES,
    # what is measured
    "acc", "return", "returns", "solved", "passed", "pass", "f1", "em", "bleu", "rouge", "recall", "precision", "auc", "auroc",
    "map", "mrr", "ndcg", "r2", "rate", "ratio", "share", "win", "wins", "tokens", "throughput", "fps", "length", "len", "size",
    "rating", "elo", "exact", "match", "metric", "result", "results", "outcome", "margin", "entropy", "probability", "prob",
    "chrf", "comet", "bertscore", "meteor", "helpfulness", "harmlessness", "quality", "relevance", "fluency", "coherence",
    "faithfulness", "groundedness", "correctness", "similarity", "confidence", "price", "turns", "calls", "lines", "chars", "words",
    "edits", "tests", "coverage", "mem", "memory", "cpu", "gpu",
    # what is computed from other columns
    "diff", "difference", "delta", "improvement", "best", "worst", "max", "min", "std", "stdev", "sd", "sem", "se", "stderr",
    "var", "variance", "ci", "lower", "upper", "low", "high", "n", "count", "weight", "p", "pvalue", "effect",
    # splits, and sides of one run
    "train", "val", "valid", "validation", "test", "eval", "dev", "heldout", "input", "output", "prompt", "completion",
    # settings and identifiers
    "temperature", "lr", "year", "date", "day", "version", "level", "difficulty", "x", "y", "lat", "lon", "age",
))  # fmt: skip
"""Words in names of columns of numbers that are probably no arms."""
_REPEATS = re.compile(r"(seed|run|trial|rep|repeat|fold|attempt|sample|rollout|try|round|iter|k|s|r)?\d*")
"""Words of columns that hold repeats of one arm: `seed1`, `run 2`, `3`."""
_PER_ROW = frozenset(("status", "state", "failed", "crashed", "timeout", "ok", "succeeded", "success", "mask"))


def stacked(sheets: Sequence[Sheet], paths: Sequence[Path], columns: Columns) -> Sheet:
    """Put files below each other. Where none of several names the arm, each file is an arm and its name the arm's.

    Raises UsageError when some files name the arm and others do not, and when files without it differ in their tasks' or
    seeds' columns.
    """
    named = [path for path, sheet in zip(paths, sheets, strict=True) if _arm_column(sheet, columns) is not None]
    if len(paths) > 1 and named and len(named) < len(paths):
        other = next(path for path in paths if path not in named)
        raise UsageError(f"{named[0]} has a column that names the arm, and {other} has none; give both one, or neither")
    if len(paths) > 1 and not named and columns.arm is None:
        _refuse_other_roles(sheets, paths)
        names = _distinct_names(paths)
        for path, sheet in zip(paths, sheets, strict=True):
            if len(arms := _number_columns(sheet, columns)) > 1 and not any(map(_is_no_arm, arms)):
                raise UsageError(
                    f"{path}: no column names the arm. If its columns {', '.join(arms)} are arms, say --arm-from "
                    f"{_flag(arms)}; if the files are, name what was measured: --ignore the other columns"
                )
        sheets = [filled(sheet, ARM, name) for sheet, name in zip(sheets, names, strict=True)]
    return Sheet.stacked(sheets)


def filled(sheet: Sheet, name: str, cell: str) -> Sheet:
    """Return the sheet with a column that is the same in every row."""
    return sheet.having({name: Column("text", [cell], np.zeros(sheet.height, dtype=np.int64))})


def arms_are_files(sheets: Sequence[Sheet], columns: Columns) -> bool:
    """Whether `stacked` takes each of several files for an arm."""
    return len(sheets) > 1 and columns.arm is None and all(_arm_column(sheet, columns) is None for sheet in sheets)


def unpivoted(sheet: Sheet, label: str, columns: Columns, notes: list[str]) -> tuple[Sheet, Columns, str | None]:
    """Return a table with a column `arm`, what flags say about it, and how the arms were read if that has to be said.

    A table with one column for each arm is recognised where nothing names the arm, a column names the task, and no other
    column of numbers could be a metric, a setting, a repeat or a counter. `--arm-from columns:a,b` says which are arms.
    Raises UsageError where a table without arms could be read in two ways.
    """
    explicit = columns.arm is not None and columns.arm.startswith(WIDE) and columns.arm not in sheet
    if not explicit and (columns.arm is not None or _arm_column(sheet, columns) is not None):
        return sheet, columns, None
    taken = {*_roles(sheet, columns).values(), *columns.ignore, METRIC}
    sheet = with_numbers(sheet, label, taken, notes)
    if explicit:
        arms = [name.strip() for name in str(columns.arm).removeprefix(WIDE).split(",")]
        if absent := [name for name in arms if name not in sheet]:
            raise UsageError(f"{label}: no column {absent[0]!r}; there are {', '.join(sheet.names)}")
        if wrong := [name for name in arms if name not in _number_columns(sheet, columns)]:
            raise UsageError(
                f"{label}: column {wrong[0]!r} cannot be an arm: it holds no numbers, or is the task or seed"
            )
        if len(set(arms)) < 2:
            raise UsageError(f"{label}: --arm-from {columns.arm} names one arm; a comparison needs two")
    else:
        arms = _recognised(sheet, label, columns)
    return _melted(sheet, label, columns, arms), replace(columns, arm=ARM), f"columns {', '.join(arms)}"


def _melted(sheet: Sheet, label: str, columns: Columns, arms: Sequence[str]) -> Sheet:
    """One row for each arm of each row."""
    others = [name for name in sheet.names if name not in arms]
    for name in others:
        if name not in columns.ignore and (_PER_ROW & set(words_of(name)) or is_error_column(name)):
            raise UsageError(
                f"{label}: column {name!r} does not say which of the arms {', '.join(arms)} it is about; write one row for "
                f"each arm (arm, {name}, value), or leave cells empty where a run is missing, NaN where it failed, and say "
                f"--ignore {shlex.quote(name)}"
            )
    value = columns.value or VALUES[0]
    if value in others or ARM in others:
        raise UsageError(
            f"{label}: a column is called {value if value in others else ARM!r} beside columns for arms; rename it"
        )
    count = len(arms)
    codes = np.repeat(np.arange(count), sheet.height)
    values = [None if cell is None else float(cell) for arm in arms for cell in sheet[arm].to_list()]
    rows = np.tile(np.arange(sheet.height), count)
    kept = {name: sheet[name].at(rows) for name in others}
    return Sheet({**kept, ARM: Column("text", list(arms), codes), value: Column.of(values)})


def _recognised(sheet: Sheet, label: str, columns: Columns) -> list[str]:
    """The columns that are arms. Raises UsageError unless that is the only way to read the table."""
    arms = _number_columns(sheet, columns)
    # Without a column of tasks, the columns may be tasks of one arm.
    clear = (
        len(arms) > 1 and "task" in _roles(sheet, columns) and not any(map(_is_no_arm, arms)) and columns.value is None
    )
    if clear and _overlap(sheet, arms):
        return arms
    there = f"there are {', '.join(sheet.names)}"
    if len(arms) < 2:
        raise UsageError(f"{label}: which column names the arm? say --arm-from, or name one file for each arm; {there}")
    raise UsageError(
        f"{label}: which column names the arm? Say --arm-from COLUMN; if columns are arms, say --arm-from {_flag(arms)} "
        f"with the columns that are; {there}"
    )


def _number_columns(sheet: Sheet, columns: Columns) -> list[str]:
    """Columns of numbers that are no role, no step, no setting's usual name and no row number."""
    taken = {*_roles(sheet, columns).values(), *columns.ignore, columns.step}
    return [
        name
        for name, column in sheet.items()
        if name not in taken
        and (column.is_numeric or column.kind == "truth")
        and words_of(name)[-1:] not in [[word] for word in COUNTERS]
        and not is_row_number(sheet, name)
    ]


def _is_no_arm(name: str) -> bool:
    """Whether a column's name says that it is a metric, a setting, an identifier or something computed."""
    words = words_of(name)
    identifies = IDENTIFIER.search("_".join(words)) is not None
    repeats = all(_REPEATS.fullmatch(word) for word in words)
    return bool(_NOT_ARMS & set(words)) or repeats or identifies or is_setting(name)


def _overlap(sheet: Sheet, arms: Sequence[str]) -> bool:
    """Whether the ranges of all columns have something in common, as values of one metric do."""
    known = [numbers[~np.isnan(numbers)] for numbers in (sheet[name].numbers for name in arms)]
    if any(len(numbers) == 0 for numbers in known):
        return False
    return max(float(numbers.min()) for numbers in known) <= min(float(numbers.max()) for numbers in known)


def _arm_column(sheet: Sheet, columns: Columns) -> str | None:
    """The column that names the arm, by the flag or by its usual names."""
    if columns.arm in sheet:
        return columns.arm
    return _roles(sheet, columns).get("arm")


def _roles(sheet: Sheet, columns: Columns) -> Mapping[str, str]:
    """Columns with a role by the flags or by their usual names."""
    roles = {}
    for role, usual in USUAL.items():
        flag = getattr(columns, role)
        name = (
            flag
            if flag in sheet
            else next(iter(called(usual, [each for each in sheet.names if each not in columns.ignore])), None)
        )
        if name is not None:
            roles[role] = name
    if "task" not in roles and (sample := called(("sample",), sheet.names)):
        roles["task"] = sample[0]
    return roles


def _refuse_other_roles(sheets: Sequence[Sheet], paths: Sequence[Path]) -> None:
    first = _roles(sheets[0], Columns())
    for sheet, path in zip(sheets[1:], paths[1:], strict=True):
        roles = _roles(sheet, Columns())
        for role in ("task", "seed", "rollout"):
            if roles.get(role) != first.get(role):
                has, lacks = (paths[0], path) if role in first else (path, paths[0])
                name = first.get(role) or roles[role]
                raise UsageError(
                    f"{has} has the column {name!r} for the {role}, and {lacks} has not: rows of the two files would not pair up; name it alike in both"
                )


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """The names of files without their suffix; with as many directories before them as tell them apart."""
    plain = [path.absolute().with_suffix("").parts for path in paths]
    depth = 1
    while len({parts[-depth:] for parts in plain}) < len(plain) and depth < max(map(len, plain)):
        depth += 1
    names = ["/".join(parts[-depth:]) for parts in plain]
    if len(set(names)) < len(names):  # a.csv and a.tsv, or one file twice
        names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise UsageError(
            f"{paths[0]}: two files have the same name, so they cannot name arms; add a column 'arm' to each"
        )
    return names


def _flag(arms: Sequence[str]) -> str:
    return shlex.quote(f"{WIDE}{','.join(arms)}")
