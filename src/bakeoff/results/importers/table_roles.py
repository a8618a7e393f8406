"""Which column of a table is the arm, the task, the seed, the repeat, the step: by flags, by usual names, by structure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.errors import UsageError
from bakeoff.spec.directions import words_of

if TYPE_CHECKING:
    import polars as pl

USUAL = {
    "arm": ("arm", "condition", "variant", "model", "policy", "agent", "architecture", "algorithm", "method", "group"),
    "task": ("task", "task_id", "example_id", "env", "environment", "scenario", "problem", "question", "dataset"),
    "seed": ("seed",),
    "rollout": ("rollout", "trial", "repeat", "attempt", "k"),
    "status": ("status",),
    "value": (),
}
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


def find_roles(frame: pl.DataFrame, label: str, columns: Columns) -> dict[str, str]:
    """Role to column, for the roles that the table has. Raises UsageError when no column names the arm."""
    for name in columns.ignore:
        if name not in frame.columns:
            raise UsageError(f"{label}: no column {name!r}; there are {', '.join(frame.columns)}")
    roles = {}
    for role, usual in USUAL.items():
        asked = getattr(columns, role, None)
        if asked is not None and asked not in frame.columns:
            raise UsageError(f"{label}: no column {asked!r}; there are {', '.join(frame.columns)}")
        taken = (*(getattr(columns, other, None) for other in (*USUAL, "step")), *columns.ignore)
        if asked or (names := [name for name in called(usual, frame.columns) if name not in taken]):
            roles[role] = asked or names[0]
    if "arm" not in roles:
        raise UsageError(f"{label}: which column names the arm? say --arm-from; there are {', '.join(frame.columns)}")
    sample = next(iter(called(("sample",), frame.columns)), None)
    if sample is not None and sample not in (*roles.values(), columns.step, *columns.ignore):
        # A sample counts repeats where it runs from 0 or 1 inside every task; otherwise it is what was sampled.
        if "task" not in roles:
            roles["task"] = sample
        elif "rollout" not in roles and _counts_up(
            frame, sample, [roles[r] for r in ("arm", "task", "seed") if r in roles]
        ):
            roles["rollout"] = sample
    state = next(iter(called(("state",), frame.columns)), None)
    if "status" not in roles and state is not None and state not in columns.ignore:
        words = {status_word(value) for value in frame[state].drop_nulls().unique().to_list()}
        if words and words <= set(STATUS_OF):  # W&B exports call it State; elsewhere it may be anything
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


def find_steps(frame: pl.DataFrame, label: str, columns: Columns, keys: Sequence[str], taken: Sequence[str]) -> Steps:
    """The column that counts the steps of each run, whose identity is in `keys`; `taken` columns are something else.

    Where every run has one row there are no steps: a clock measures the run then, and a counter says where it ended.
    """
    named = [
        (rank, name)
        for name, kind in frame.schema.items()
        if kind.is_numeric() and name not in (*taken, *columns.ignore) and (rank := _step_rank(name)) is not None
    ]
    if columns.step is not None:
        if columns.step not in frame.columns:
            raise UsageError(f"{label}: no column {columns.step!r}; there are {', '.join(frame.columns)}")
        if not frame.schema[columns.step].is_numeric():
            raise UsageError(f"{label}: column {columns.step!r} holds {frame.schema[columns.step]}, not steps")
    if frame.select(keys).n_unique() == frame.height:
        counters = tuple(name for rank, name in named if rank < len(COUNTERS))
        return Steps(None, tuple(dict.fromkeys((*([columns.step] if columns.step else []), *counters))))
    counting = [
        name
        for rank, name in sorted(named)
        if rank < len(COUNTERS) or (increases(frame, name, keys) or _is_grid(frame, name, keys))
    ]
    # The finest one that does not repeat itself; a step that begins again in each epoch is not it.
    fine = [name for name in counting if frame.select(*keys, name).n_unique() == frame.height]
    chosen = columns.step or next(iter(fine or counting), None)
    return Steps(chosen, tuple(name for name in counting if name != chosen))


def _step_rank(name: str) -> int | None:
    """The place of a name among those of steps, exact names before longer ones of the same word; None for others."""
    words = words_of(name)
    while len(words) > 1 and words[-1] in _UNITS:
        words.pop()
    known = (*COUNTERS, *CLOCKS)
    return known.index(words[-1]) if words and words[-1] in known else None


def increases(frame: pl.DataFrame, column: str, groups: Sequence[str]) -> bool:
    """Whether a column strictly increases along the rows of every group, and some group has three rows or more."""
    import polars as pl

    step = pl.col(column).cast(pl.Float64).diff().drop_nulls()
    counts = frame.group_by(groups).agg(up=(step > 0).all(), known=pl.col(column).is_not_null().all(), rows=pl.len())
    return bool(counts["up"].all() and counts["known"].all()) and int(counts["rows"].max() or 0) > 2  # type: ignore[arg-type]


def _is_grid(frame: pl.DataFrame, column: str, groups: Sequence[str]) -> bool:
    """Whether every group has five values or more, no value twice, and nearly all values in common with others."""
    import polars as pl

    counts = frame.group_by(groups).agg(distinct=pl.col(column).n_unique(), rows=pl.len())
    if not bool((counts["distinct"] == counts["rows"]).all()) or int(counts["rows"].min() or 0) < MIN_COUNTED:  # type: ignore[arg-type]
        return False
    shared = frame.group_by(column).len()["len"]
    return counts.height > 1 and int((shared > 1).sum()) >= 0.9 * shared.len()


def counts_rows(frame: pl.DataFrame, column: str, groups: Sequence[str]) -> bool:
    """Whether a column counts the rows of every group of five or more up, in equal steps or in steps that groups share.

    A name says nothing here: `episode`, `round` and `tokens_seen` may count repeats or the progress of one run.
    """
    import polars as pl

    sizes = frame.group_by(groups).len()
    large = frame.join(sizes.filter(pl.col("len") >= MIN_COUNTED).select(groups), on=list(groups), how="semi")
    if large.height == 0 or not increases(large, column, groups):
        return False
    value = pl.col(column).cast(pl.Float64)
    step = value.diff().drop_nulls()
    even = large.group_by(groups).agg(even=((step - step.first()).abs() <= 1e-9 * value.abs().max()).all())["even"]
    return bool(even.all()) or _is_grid(large, column, groups)


def is_row_number(frame: pl.DataFrame, column: str) -> bool:
    """Whether a column numbers the rows of the whole file, as pandas does when it writes its index."""
    if not frame.schema[column].is_integer() or frame.height < MIN_COUNTED or frame[column].null_count():
        return False
    first = frame[column][0]
    return first in (0, 1) and bool((frame[column].diff().drop_nulls() == 1).all())
