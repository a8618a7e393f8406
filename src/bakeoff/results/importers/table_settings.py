"""Columns in which rows of one run differ: settings, splits and names of metrics that would be averaged over in silence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.columns import Sheet, in_order
from bakeoff.results.importers.table_roles import VALUES, Columns
from bakeoff.spec.directions import words_of

METRIC = "metric"
"""The column that names the metric in a long table, whose values stand below each other."""
METRIC_NAMES = ("metric", "metric name", "metric type", "metric id", "measure", "measurement", "scorer", "score name", "score type")  # fmt: skip
SPLITS = ("split", "subset", "partition", "fold type", "phase", "mode")
SETTINGS = (
    "temperature", "temp", "top p", "top k", "lr", "learning rate", "batch size", "max tokens", "gamma", "weight decay", "dropout",
    "hidden size", "num layers", "n layers", "num shots", "n shots", "shots", "context length", "noise", "noise level", "year",
)  # fmt: skip
"""Names of numbers that somebody chose before a run."""
_NAMED = (*METRIC_NAMES, *SPLITS, "lang", "language", "judge", "grader", "rater", "annotator", "dataset", "domain")
_OUTCOMES = frozenset((
    "pass", "passed", "fail", "failed", "verdict", "label", "labels", "result", "outcome", "grade", "rating", "success",
    "correct", "solved", "answer", "prediction", "predicted", "output", "response", "completion", "choice", "winner", "win",
    "status", "state", "error", "exception", "reason", "note", "notes", "comment", "match", "reward", "score", "done",
))  # fmt: skip
"""Words in names of columns that say what came out of a run."""
_OUTCOME_VALUES = frozenset((
    "pass", "passed", "fail", "failed", "correct", "incorrect", "wrong", "right", "yes", "no", "win", "loss", "lose", "tie",
    "success", "failure", "ok", "error", "true", "false", "good", "bad", "solved", "unsolved",
))  # fmt: skip
MAX_CHANCE = {"text": 0.02, "number": 1e-3}
"""Chance of an outcome that splits all runs evenly, up to which a column is taken for a setting."""
MAX_CHANCE_NAMED = {"text": 0.5, "number": 0.05}
"""The same where the column's name says that it is one."""
MIN_EVEN = 0.8
"""Share of runs that a setting has to split evenly: rows may be lost."""


def is_setting(name: str) -> bool:
    """Whether a column of numbers is called like something that was chosen before the run."""
    return " ".join(words_of(name)) in SETTINGS


def refuse_even_splits(
    sheet: Sheet,
    label: str,
    roles: Mapping[str, str],
    columns: Columns,
    also_keys: Sequence[str],
    *,
    named: bool,
) -> None:
    """Raise UsageError for a column whose values stand equally often in the rows of one (arm, task, seed), in every arm.

    Such a column says under which setting a row was measured. Averaging over it mixes training and test scores, or
    accuracy and loss. Text with more than two values and whole numbers are left to `refuse_identifiers`, which can
    propose a role for them, unless their name says what they are. `named` looks at columns with such a name only.
    """
    groups = [*(roles[role] for role in ("arm", "task", "seed", "step") if role in roles), *also_keys]
    free = [name for name in sheet.names if name not in (*roles.values(), *also_keys, *columns.ignore, columns.value)]
    numbers = [name for name in free if sheet[name].is_numeric]
    for name in free:
        column = sheet[name]
        words = words_of(name)
        plain = " ".join(words)
        if (plain in _NAMED or plain in SETTINGS) != named:
            continue
        if plain in VALUES or (_OUTCOMES & set(words) and plain not in METRIC_NAMES):
            continue
        if "rollout" in roles and sheet.distinct(name, roles["rollout"]) == sheet.distinct(roles["rollout"]):
            continue
        is_text = column.kind == "text"
        if not (is_text or column.kind == "truth" or (column.is_numeric and len(numbers) > 1)):
            continue
        if not 2 <= len(column.levels) <= max(2, sheet.height // 4 if named or column.kind == "number" else 2):
            continue
        if is_text and {level.strip().lower() for level in column.known} <= _OUTCOME_VALUES:
            continue
        bar = (MAX_CHANCE_NAMED if named else MAX_CHANCE)["text" if is_text else "number"]
        if _chance_of_even_split(sheet, name, roles["arm"], groups) <= bar:
            raise UsageError(f"{label}: {_what_to_do(sheet, name, plain, roles, numbers)}")


def _chance_of_even_split(sheet: Sheet, name: str, arm: str, groups: Sequence[str]) -> float:
    """The chance that a column whose values came up at random splits every group evenly; 1 where it does not."""
    runs, parts = sheet.groups(*groups), sheet.groups(*groups, name)
    levels, run_of_part = len(sheet[name].levels), runs.codes[parts.firsts]
    highs = np.zeros(runs.count, dtype=np.int64)
    np.maximum.at(highs, run_of_part, parts.sizes)
    # All levels are there, and none more often than their mean.
    even = (np.bincount(run_of_part, minlength=runs.count) == levels) & (highs * levels == runs.sizes)
    arms = sheet[arm].codes[runs.firsts[even]]
    if len(sheet[arm].levels) < 2 or even.sum() < MIN_EVEN * runs.count or len(np.unique(arms)) < 2:
        return 1.0
    chance = math.log(math.comb(runs.count, runs.count - int(even.sum())))
    for rows in runs.sizes[even].tolist():
        chance += math.lgamma(rows + 1) - levels * math.lgamma(rows / levels + 1) - rows * math.log(levels)
    return math.exp(min(0.0, chance))


def _what_to_do(sheet: Sheet, name: str, plain: str, roles: Mapping[str, str], numbers: Sequence[str]) -> str:
    flag = shlex.quote(name)
    shown = ", ".join(map(str, in_order(sheet[name].levels)[:4]))
    where = ", ".join(role for role in ("arm", "task", "seed") if role in roles)
    what = f"rows of one ({where}) differ in column {name!r} ({shown}), each value equally often"
    if plain in METRIC_NAMES:
        value = next((each for each in numbers if each != name), "value")
        fix = f"say --value-from {shlex.quote(value)}" if name == METRIC else f"rename the column to {METRIC!r}"
        more = "" if name == METRIC or value == "value" else f", and say --value-from {shlex.quote(value)}"
        return f"{what}, so they are different metrics: {fix}{more}, or keep the rows of one"
    keep = "keep the rows of one value, make it part of the arm's or the task's name"
    if plain in SPLITS:
        return (
            f"{what}: their mean would mix them. Keep the rows of one value, or say --ignore {flag} to average over it"
        )
    if "task" not in roles and plain not in SETTINGS:
        keep = f"say --task-from {flag}, {keep}"
    return f"{what}, and nothing says what it is: {keep}, or say --ignore {flag} to average over it"


def refuse_second_values(
    sheet: Sheet, label: str, keys: Sequence[str], roles: Mapping[str, str], names: Sequence[str]
) -> None:
    """Raise UsageError where two rows are one run by their keys, and name the columns in which they differ."""
    runs = sheet.groups(*keys)
    if runs.count == sheet.height:
        return
    twice = int(np.argmax(runs.sizes[runs.codes] > 1))
    first = sheet.at(runs.codes == runs.codes[twice])
    others = [name for name, column in first.items() if name not in keys and len(column.levels) > 1]
    # Text first: numbers are mostly what was measured.
    others.sort(key=lambda name: name in names)
    telling = [name for name in others if name not in names] or [
        name for name in others if name not in VALUES and sheet[name].kind != "number"
    ]
    who = f"{first[roles['arm']][0]!r} has {first.height} values for " + ", ".join(
        f"{role} {first[roles[role]][0]!r}" for role in ("task", "seed", "rollout") if role in roles
    )
    if not telling:
        raise UsageError(
            f"{label}: {who}, and only what was measured tells the rows apart. Remove all but one, or add a column that "
            "numbers the runs (rollout)"
        )
    differ = "; ".join(f"{name!r} ({', '.join(str(each) for each in first[name].levels[:3])})" for name in telling[:3])
    flag = shlex.quote(telling[0])
    role = next((role for role in ("task", "seed", "rollout") if role not in roles), None)
    ways = f"--{role}-from {flag}, or " if role is not None else ""
    raise UsageError(
        f"{label}: {who}: the rows differ in {differ}. Keep one row for each run, or say {ways}--ignore {flag} if rows that "
        "differ only in it are repeats of one run"
    )
