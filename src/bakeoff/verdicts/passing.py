"""pass@k and pass^k: the chance that one of k attempts succeeds, and that all of them do.

Unbiased for each task, then averaged; the interval is over tasks, so it speaks for tasks like these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.aggregates import pass_at_k, pass_hat_k
from bakeoff.stats.numerics import is_constant
from bakeoff.stats.ttests import one_sample_t
from bakeoff.verdicts.observations import Observations


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


def is_binary(observations: Observations) -> bool:
    """Every value is 0 or 1, so a success needs no threshold."""
    known = {row.value for row in observations.rows if row.state == "scored"}
    return bool(known) and known <= {0.0, 1.0}


def passing(
    observations: Observations, ks: Iterable[int] | None = None, success: float | None = None, level: float = 0.95
) -> list[Passing]:
    """For every arm and k. A run succeeds at `success` or better (default: 1); a failed run is an attempt without success.

    Missing runs are not attempts. k above the fewest attempts on a task is left out: it has no unbiased estimate.
    """
    goal = 1.0 if success is None else success
    passes = []
    for arm in observations.arms:
        counts: dict[str, tuple[int, int]] = {}  # (successes, attempts) of each task
        for row in observations.rows:
            if row.arm == arm and row.state != "missing":
                better = row.value >= goal if observations.larger_is_better else row.value <= goal
                wins, attempts = counts.get(row.task, (0, 0))
                counts[row.task] = (wins + (row.state == "scored" and better), attempts + 1)
        if not counts:
            continue
        successes, tries = (np.array(column, dtype=np.float64) for column in zip(*counts.values(), strict=True))
        least = int(tries.min())
        doubling = {2**i for i in range(least.bit_length()) if 2**i <= least} | ({least} if least else set())
        for k in ks if ks is not None else sorted(doubling):
            if 1 <= k <= least:
                at = _chance(pass_at_k(successes, tries, k), level)
                every = _chance(pass_hat_k(successes, tries, k), level)
                passes.append(Passing(arm, k, least, len(counts), at, every))
    return passes


def _chance(values: Array, level: float) -> Chance:
    value = float(values.mean())
    if values.size < 2 or is_constant(values):
        return Chance(value, None, None)
    interval = one_sample_t(values).interval(level)
    return Chance(value, max(0.0, interval.low), min(1.0, interval.high))
