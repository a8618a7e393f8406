"""Which column of a table is the arm, the task, the seed, the repeat, the step: by flags, by usual names, by structure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.results.columns import Codes, Sheet
from bakeoff.spec.directions import words_of

USUAL = {
    "arm": (
        "arm", "condition", "variant", "model", "policy", "agent", "architecture", "algorithm", "algo", "method", "group",
    ),
    "task": (
        "task", "task_id", "example_id", "instance_id", "problem_id", "env", "env_id", "env_name", "environment", "scenario",
        "problem", "question", "dataset",
    ),
    "seed": ("seed",),
    "rollout": ("rollout", "trial", "repeat", "attempt", "k"),
    "status": ("status",),
    "value": (),
}  # fmt: skip
"""For each role the column names that are taken for it, in this order, when no flag names one. `find_roles` also knows
`sample` and `state`, and `find_steps` the steps."""
ROLE_NAMES = {name for role in ("task", "seed", "rollout") for name in USUAL[role]}
VALUES = ("value", "score", "reward", "success", "correct", "accuracy")
"""Columns that are taken for the metric when none is named."""
COUNTERS = ("step", "timestep", "timesteps", "iteration", "iter", "epoch")
"""Last words of names that count steps of a run, the finest first. They are never metrics."""
CLOCKS = ("steps", "iterations", "iters", "epochs", "elapsed", "time", "runtime", "walltime", "timestamp")
"""Last words of names that count steps where they increase along a run, and measure a run where they do not."""
_UNITS = ("s", "ms", "us", "sec", "secs", "second", "seconds", "min", "minutes", "h", "hours")
MIN_COUNTED = 5
"""Rows of a run from which on a column that counts up cannot be taken for chance."""
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
STATUS_OF = {word: status for status, words in STATUSES.items() for word in words}


@dataclass(frozen=True, slots=True)
class Columns:
    """What flags say about a table's columns; None means the usual name, if it is there."""

    arm: str | None = None
    task: str | None = None
    seed: str | None = None
    rollout: str | None = None
    step: str | None = None
    status: str | None = None
    value: str | None = None
    """Column of the values in a long table."""
    ignore: tuple[str, ...] = ()
    """Columns that carry nothing, although they look like identifiers."""
    keep_duplicates: bool = False
    """Rows that are equal in every column are separate runs."""


def find_roles(sheet: Sheet, label: str, columns: Columns) -> dict[str, str]:
    """Role to column, for the roles that the table has. Raises UsageError when no column names the arm."""
    for name in columns.ignore:
        if name not in sheet:
            raise UsageError(f"{label}: no column {name!r}; there are {', '.join(sheet.names)}")
    roles = {}
    for role, usual in USUAL.items():
        asked = getattr(columns, role, None)
        if asked is not None and asked not in sheet:
            raise UsageError(f"{label}: no column {asked!r}; there are {', '.join(sheet.names)}")
        taken = (*(getattr(columns, other, None) for other in (*USUAL, "step")), *columns.ignore)
        if asked or (names := [name for name in called(usual, sheet.names) if name not in taken]):
            roles[role] = asked or names[0]
    if "arm" not in roles:
        raise UsageError(f"{label}: which column names the arm? say --arm-from; there are {', '.join(sheet.names)}")
    sample = next(iter(called(("sample",), sheet.names)), None)
    if sample is not None and sample not in (*roles.values(), columns.step, *columns.ignore):
        # A sample counts repeats where it runs from 0 or 1 inside every task; otherwise it is what was sampled.
        if "task" not in roles:
            roles["task"] = sample
        elif "rollout" not in roles and _counts_up(
            sheet, sample, [roles[r] for r in ("arm", "task", "seed") if r in roles]
        ):
            roles["rollout"] = sample
    state = next(iter(called(("state",), sheet.names)), None)
    if "status" not in roles and state is not None and state not in columns.ignore:
        words = {status_word(value) for value in sheet[state].known}
        if words and words <= set(STATUS_OF):  # W&B exports call it State; elsewhere it may be anything
            roles["status"] = state
    return roles


def _counts_up(sheet: Sheet, column: str, groups: Sequence[str]) -> bool:
    """Whether a column numbers the rows of every group: 0, 1, 2 and so on, or 1, 2, 3."""
    if sheet[column].kind != "whole":
        return False
    runs, values = sheet.groups(*groups), sheet[column].numbers
    lows, highs = np.full(runs.count, np.inf), np.full(runs.count, -np.inf)
    np.fmin.at(lows, runs.codes, values)
    np.fmax.at(highs, runs.codes, values)
    # A single row with an empty cell says nothing about the others.
    gapless = (np.isin(lows, (0, 1)) & (highs - lows + 1 == runs.sizes)) | np.isinf(lows)
    return bool(gapless.all()) and sheet.distinct(*groups, column) == sheet.height


def called(usual: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns with one of these names, in the order of `usual`; `Model` is `model`."""
    plain = {name.strip().lower(): name for name in reversed(columns)}
    return [plain[name] for name in usual if name in plain]


def status_word(value: object) -> str:
    return re.sub(r"[\s\-]+", "_", str(value).strip().lower())


# -- steps


@dataclass(frozen=True, slots=True)
class Steps:
    """Columns that count steps inside a run: the one that is used, if any, and others beside it."""

    column: str | None = None
    others: tuple[str, ...] = ()


def find_steps(sheet: Sheet, label: str, columns: Columns, keys: Sequence[str], taken: Sequence[str]) -> Steps:
    """The column that counts the steps of each run, whose identity is in `keys`; `taken` columns are something else.

    Where every run has one row there are no steps: a clock measures the run then, and a counter says where it ended.
    """
    named = [
        (rank, name)
        for name, column in sheet.items()
        if column.is_numeric and name not in (*taken, *columns.ignore) and (rank := _step_rank(name)) is not None
    ]
    if columns.step is not None:
        if columns.step not in sheet:
            raise UsageError(f"{label}: no column {columns.step!r}; there are {', '.join(sheet.names)}")
        if not sheet[columns.step].is_numeric:
            raise UsageError(f"{label}: column {columns.step!r} holds {sheet[columns.step].description}, not steps")
    if sheet.distinct(*keys) == sheet.height:
        counters = tuple(name for rank, name in named if rank < len(COUNTERS))
        return Steps(None, tuple(dict.fromkeys((*([columns.step] if columns.step else []), *counters))))
    counting = [
        name
        for rank, name in sorted(named)
        if rank < len(COUNTERS) or (increases(sheet, name, keys) or _is_grid(sheet, name, keys))
    ]
    # The finest one that does not repeat itself; a step that begins again in each epoch is not it.
    fine = [name for name in counting if sheet.distinct(*keys, name) == sheet.height]
    chosen = columns.step or next(iter(fine or counting), None)
    return Steps(chosen, tuple(name for name in counting if name != chosen))


def _step_rank(name: str) -> int | None:
    """The place of a name among those of steps, exact names before longer ones of the same word; None for others."""
    words = words_of(name)
    while len(words) > 1 and words[-1] in _UNITS:
        words.pop()
    known = (*COUNTERS, *CLOCKS)
    return known.index(words[-1]) if words and words[-1] in known else None


def increases(sheet: Sheet, column: str, groups: Sequence[str]) -> bool:
    """Whether a column strictly increases along the rows of every group, and some group has three rows or more."""
    steps, _ = _steps_within(sheet, column, groups)
    known = bool(sheet[column].filled.all())
    return known and not (steps <= 0).any() and int(sheet.groups(*groups).sizes.max()) > 2


def _steps_within(sheet: Sheet, column: str, groups: Sequence[str]) -> tuple[npt.NDArray[np.float64], Codes]:
    """Return the differences between successive rows of each group, and the group of each difference."""
    runs = sheet.groups(*groups)
    order = np.argsort(runs.codes, kind="stable")
    values, codes = sheet[column].numbers[order], runs.codes[order]
    inside = codes[1:] == codes[:-1]
    return np.diff(values)[inside], codes[1:][inside]


def _is_grid(sheet: Sheet, column: str, groups: Sequence[str]) -> bool:
    """Whether every group has five values or more, no value twice, and nearly all values in common with others."""
    runs = sheet.groups(*groups)
    if sheet.distinct(*groups, column) < sheet.height or int(runs.sizes.min()) < MIN_COUNTED:
        return False
    sizes = sheet[column].sizes
    return runs.count > 1 and int((sizes > 1).sum()) >= 0.9 * len(sizes)


def counts_rows(sheet: Sheet, column: str, groups: Sequence[str]) -> bool:
    """Whether a column counts the rows of every group of five or more up, in equal steps or in steps that groups share.

    A name says nothing here: `episode`, `round` and `tokens_seen` may count repeats or the progress of one run.
    """
    runs = sheet.groups(*groups)
    used = Sheet({name: sheet[name] for name in (*groups, column)})
    large = used.at((runs.sizes >= MIN_COUNTED)[runs.codes])
    if large.height == 0 or not increases(large, column, groups):
        return False
    steps, codes = _steps_within(large, column, groups)
    first = np.zeros(large.distinct(*groups))
    first[codes[::-1]] = steps[::-1]
    largest = np.zeros(len(first))
    np.maximum.at(largest, large.groups(*groups).codes, np.abs(large[column].numbers))
    even = np.abs(steps - first[codes]) <= 1e-9 * largest[codes]
    return bool(even.all()) or _is_grid(large, column, groups)


def is_row_number(sheet: Sheet, column: str) -> bool:
    """Whether a column numbers the rows of the whole file, as pandas does when it writes its index."""
    cells = sheet[column]
    if cells.kind != "whole" or sheet.height < MIN_COUNTED or len(cells.levels) < sheet.height:
        return False
    return cells.levels[0] in (0, 1) and list(cells.levels) == list(
        range(cells.levels[0], cells.levels[0] + sheet.height)
    )
