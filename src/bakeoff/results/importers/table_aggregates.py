"""Rows and columns of a table that are no runs: averages below the others, sizes, spreads, times, and folds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.columns import Column, Sheet
from bakeoff.results.importers.table_settings import is_setting
from bakeoff.spec.directions import words_of

if TYPE_CHECKING:
    from bakeoff.stats.numerics import Array

SUMMARIES = frozenset((
    "average", "avg", "mean", "overall", "total", "totals", "all", "median", "sum", "aggregate", "aggregated", "summary",
    "macro avg", "micro avg", "weighted avg", "macro average", "micro average", "weighted average", "grand total", "grand mean",
))  # fmt: skip
"""Names of rows that are computed from the others."""
MAX_CHANCE = 0.05
"""Chance that a row called like a summary happens to equal one, up to which it is taken for one."""
_SIZES = frozenset(("n", "count", "counts", "support", "weight", "weights", "nobs"))
_COUNTED = frozenset((
    "samples", "examples", "items", "questions", "instances", "runs", "seeds", "trials", "episodes", "rows", "obs",
    "observations", "problems", "eval", "evals", "repeats", "rollouts", "tasks",
))  # fmt: skip
_SPREADS = frozenset(("std", "stdev", "stddev", "sd", "stderr", "sem", "se", "ci", "ci95", "ci90", "ci99", "moe"))
_PARTS = (["correct"], ["passed"], ["solved"], ["success"], ["successes"], ["wins"])
UNIX_TIMES = (946_684_800, 4_102_444_800)
"""Seconds from 1970 to 2000 and to 2100."""
_AMOUNTS = frozenset(("bytes", "flops", "tokens", "params", "parameters", "ops", "cycles", "hz", "usd", "instructions"))
"""Last words of numbers that may lie in the range of times and are none."""


def refuse_summary_rows(
    sheet: Sheet, label: str, roles: Mapping[str, str], names: Sequence[str], also_keys: Sequence[str]
) -> list[str]:
    """Raise UsageError for a task or seed that is the mean, median or sum of the others, by its name and its values.

    Where only the name says so, a note is returned: `sum` may be a task.
    """
    notes = []
    for role in ("task", "seed"):
        column = roles.get(role)
        if column is None or sheet[column].kind != "text":
            continue
        levels = sheet[column].known
        computed = [level for level in levels if " ".join(words_of(level)) in SUMMARIES]
        if not computed or len(levels) - len(computed) < 2:
            continue
        others = sheet.at(~sheet[column].where(computed.__contains__))
        fine = [roles[each] for each in ("arm", "task", "seed", "rollout", "step") if each in roles and each != role]
        for level in computed:
            rows = sheet.at(sheet[column].where(level.__eq__))
            groupings = ([*fine, *also_keys], [roles["arm"], *also_keys])
            statistic = next(
                (found for keys in groupings for name in names if (found := _equals(rows, others, keys, name))), None
            )
            if statistic is not None:
                raise UsageError(
                    f"{label}: {role} {level!r} is not a run: in every arm it equals the {statistic} of the other rows. "
                    f"Remove the row{'s' * (rows.height > 1)} with {column} = {level}"
                )
            notes.append(f"{role} {level!r} is called like a summary of the others and counts as a {role} of its own")
    return notes


def _equals(rows: Sheet, others: Sheet, keys: Sequence[str], name: str) -> str | None:
    """The statistic of the other rows that these equal in every group of `keys`, to the printed digits, if chance cannot."""
    groups, summaries = _values_by_group(others, keys, name), _values_by_group(rows, keys, name)
    pairs = [
        (float(values[0]), groups[key])
        for key, values in summaries.items()
        if len(values) == 1 and len(groups.get(key, ())) > 1
    ]
    if len(pairs) < rows.height or not pairs:
        return None
    step = 10.0 ** -max(_digits(value) for summary, values in pairs for value in (summary, *values.tolist()))
    chance = 0.0
    for _, values in pairs:
        chance += math.log(min(1.0, 6 * step / float(np.ptp(values)))) if np.ptp(values) > 0 else 0.0
    if chance > math.log(MAX_CHANCE):
        return None
    for statistic, of, terms in (("mean", np.mean, 1), ("median", np.median, 1), ("sum", np.sum, len(pairs[0][1]))):
        # The summary was rounded once, and so was each of the others, unless they are counts.
        slack = 0.5 * step * ((1 + terms) if step < 1.0 else float(statistic != "sum"))
        if all(abs(summary - float(of(values))) <= slack * (1 + 1e-6) for summary, values in pairs):
            return statistic
    return None


def _values_by_group(sheet: Sheet, keys: Sequence[str], name: str) -> dict[tuple[Any, ...], Array]:
    """Return the known values of a column by the cells of other columns."""
    groups, column = sheet.groups(*keys), sheet[name]
    order = np.argsort(groups.codes, kind="stable")
    parts = np.split(order, np.cumsum(groups.sizes)[:-1])
    known = {tuple(sheet[key][part[0]] for key in keys): part[column.filled[part]] for part in parts}
    return {key: column.numbers[rows] for key, rows in known.items()}


def _digits(value: float) -> int:
    text = repr(value)
    return 12 if "e" in text else min(12, len(text.partition(".")[2].rstrip("0")))


def unix_times(sheet: Sheet, names: Sequence[str]) -> list[str]:
    """Columns of numbers that are points in time: Unix times in s, ms, us or ns, or dates such as 20260131."""
    return [
        name for name in names if words_of(name)[-1:] not in [[word] for word in _AMOUNTS] and _are_times(sheet[name])
    ]


def _are_times(column: Column) -> bool:
    if not column.is_numeric:
        return False
    values: Array = column.numbers[column.filled]
    if len(values) == 0 or not np.isfinite(values).all():
        return False
    low, high = UNIX_TIMES
    if any(low * unit <= values.min() and values.max() <= high * unit for unit in (1, 1e3, 1e6, 1e9)):
        return True
    month, day = values // 100 % 100, values % 100
    dates = (values >= 19_000_101) & (values <= 21_001_231) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(dates.all() and (values == np.floor(values)).all())


def is_size(name: str) -> bool:
    """Whether a column is called like the number of things behind a row: `n`, `num_examples`, `support`, `weight`."""
    words = words_of(name)
    return words[-1:] != [] and (
        " ".join(words) in _SIZES
        or (words[0] in ("n", "num", "number", "nr", "count") and words[-1] in _COUNTED and len(words) <= 3)
        or words[-2:] in (["sample", "size"], ["sample", "count"], ["sample", "weight"])
    )


def is_spread(name: str) -> bool:
    """Whether a column is called like the spread of values behind a row: `std`, `acc_stderr`, `ci_low`."""
    words = words_of(name)
    return bool(_SPREADS & {*words[:1], *words[-1:]}) or any(
        pair in (("standard", "error"), ("standard", "deviation"), ("ci", "low"), ("ci", "high"), ("ci", "lower"), ("ci", "upper"))
        for pair in pairwise(words)
    )  # fmt: skip


def not_outcomes(sheet: Sheet, names: Sequence[str], value: str | None) -> frozenset[str]:
    """Metrics that are not judged unless a question names them: times, and sizes, spreads and settings beside others."""
    times = {name for name in unix_times(sheet, names) if name != value}
    beside = {name for name in names if name != value and (is_size(name) or is_spread(name) or is_setting(name))}
    return frozenset(times | beside) if len(times | beside) < len(names) else frozenset(times)


def aggregates_noted(
    sheet: Sheet, roles: Mapping[str, str], names: Sequence[str], also_keys: Sequence[str]
) -> list[str]:
    """Notes about rows that stand for several runs, and about units that share data."""
    notes = []
    keys = [*(roles[role] for role in ("arm", "task", "seed", "rollout") if role in roles), *also_keys]
    if "task" in roles and sheet.distinct(*keys) == sheet.height:
        sizes = [name for name in names if is_size(name) and sheet.distinct(name) > 1]
        if sizes:
            notes.append(f"each task counts the same; column {sizes[0]!r} is not used as a weight")
    for count, total in _counts_of_totals(sheet, names):
        notes.append(
            f"column {count!r} counts out of {total!r}, which differs between rows: a column with the share would compare rates"
        )
    spreads = [name for name in names if is_spread(name)]
    if spreads and len(spreads) < len(names):
        notes.append(
            f"rows look like means of several runs (column {spreads[0]!r}): only the rows count, and the spread behind each "
            "is not used. Rows of single runs would say more"
        )
    for role in ("task", "seed", "rollout"):
        if role in roles and _is_fold(roles[role]):
            notes.append(
                f"{role}s are folds (column {roles[role]!r}): they share training data, so differences between folds are not "
                "independent and false verdicts are more frequent than alpha (Nadeau and Bengio, 2003)"
            )
    return notes


def _counts_of_totals(sheet: Sheet, names: Sequence[str]) -> list[tuple[str, str]]:
    """Columns of counts, each with the column of totals that it is a part of, where totals differ."""
    whole = [name for name in names if sheet[name].kind == "whole" and None not in sheet[name].levels]
    counts = [name for name in whole if words_of(name)[-1:] in _PARTS and max(sheet[name].levels) not in (0, 1)]
    totals = [
        name for name in whole if (is_size(name) or words_of(name)[-1:] == ["total"]) and sheet.distinct(name) > 1
    ]
    return [
        (count, total)
        for count in counts
        for total in totals
        if bool((sheet[count].numbers <= sheet[total].numbers).all())
    ]


def _is_fold(column: str) -> bool:
    words = words_of(column)
    return bool({"fold", "folds", "cv", "kfold"} & set(words)) or words in (
        ["split", "id"],
        ["split", "idx"],
        ["split", "index"],
    )
