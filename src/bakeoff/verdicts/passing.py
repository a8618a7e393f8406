"""pass@k and pass^k: the chance that one of k attempts succeeds, and that all of them do.

Unbiased for each task, then averaged; the interval is over tasks, so it speaks for tasks like these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bakeoff.stats.aggregates import pass_at_k, pass_hat_k
from bakeoff.stats.numerics import is_constant
from bakeoff.stats.ttests import one_sample_t
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.units import Array


@dataclass(frozen=True, slots=True)
class Chance:
    """Mean over tasks, with a t interval over tasks held within 0 and 1 (None: fewer than 2 tasks, or no spread)."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Passing:
    """One arm at one k. `attempts`: fewest on a task."""

    arm: str
    k: int
    attempts: int
    tasks: int
    at: Chance
    """At least one of k succeeds."""
    all: Chance
    """All k succeed (pass^k)."""


def is_binary(seen: Observations) -> bool:
    """Every value is 0 or 1, so a success needs no threshold."""
    known = {row.value for row in seen.rows if row.state == "scored"}
    return bool(known) and known <= {0.0, 1.0}


def passing(
    seen: Observations, ks: Iterable[int] | None = None, success: float | None = None, level: float = 0.95
) -> list[Passing]:
    """For every arm and k. A run succeeds at `success` or better (1 when left out); a failed run is an attempt that did not.

    Missing runs are no attempts. k above the fewest attempts on a task is left out: it has no unbiased estimate.
    """
    goal = 1.0 if success is None else success
    found = []
    for arm in seen.arms:
        counts = _counts(seen, arm, goal)
        if not counts:
            continue
        wins, attempts = (np.array(column, dtype=np.float64) for column in zip(*counts.values(), strict=True))
        least = int(attempts.min())
        for k in ks if ks is not None else _doubling(least):
            if 1 <= k <= least:
                at = _chance(pass_at_k(wins, attempts, k), level)
                every = _chance(pass_hat_k(wins, attempts, k), level)
                found.append(Passing(arm, k, least, len(counts), at, every))
    return found


def _counts(seen: Observations, arm: str, goal: float) -> dict[str, tuple[int, int]]:
    """(successes, attempts) of each task."""
    counts: dict[str, tuple[int, int]] = {}
    for row in seen.rows:
        if row.arm != arm or row.state == "missing":
            continue
        good = row.state == "scored" and (row.value >= goal if seen.larger_is_better else row.value <= goal)
        wins, attempts = counts.get(row.task, (0, 0))
        counts[row.task] = (wins + good, attempts + 1)
    return counts


def _doubling(most: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    return sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | ({most} if most else set()))


def _chance(values: Array, level: float) -> Chance:
    value = float(values.mean())
    if values.size < 2 or is_constant(values):
        return Chance(value, None, None)
    interval = one_sample_t(values).interval(level)
    return Chance(value, max(0.0, interval.low), min(1.0, interval.high))
