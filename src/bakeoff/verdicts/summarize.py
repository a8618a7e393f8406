"""What each arm did on each task, and over all tasks: how many tries, mean scores with intervals, passes, what it took.

No verdict: `compare` decides. The interval over tasks is a t interval of task means, since tasks are what was sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.records.edition import Edition
from bakeoff.spec.workload import Scalar
from bakeoff.stats.numerics import is_constant
from bakeoff.stats.ttests import one_sample_t
from bakeoff.verdicts.observations import Observation, Observations, from_edition
from bakeoff.verdicts.passing import Passing, passing

LEVEL = 0.95
"""Of all intervals here."""
USED = ("tokens", "cost", "seconds")
"""What tries use up, where they say so."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Tries of one arm on one task, or on all tasks. Failed ones count with the failure score, where one is declared."""

    arm: str
    task: str | None
    tries: int
    failed: int
    missing: int
    mean: float | None
    low: float | None
    high: float | None
    """A t interval: over tries for one task, over task means for all. None below two, or without spread."""
    best: float | None
    passed: int | None
    """Tries that reached the goal."""
    used: Mapping[str, float]
    """Sums over tries that told."""


@dataclass(frozen=True, slots=True)
class Summary:
    metric: str
    source: str
    goal: float
    by_task: Sequence[Tally]
    by_arm: Sequence[Tally]
    passing: Sequence[Passing]


def summarize(edition: Edition, *, goal: float | None = None) -> Summary:
    """A try passes at `goal` or better; where none is given, at the best possible score, or 1."""
    seen = from_edition(edition)
    used = {run.run_id: _used(run.metrics) for run in edition.runs()}
    wanted = goal if goal is not None else _best(seen)
    pairs = list(dict.fromkeys((row.arm, row.task) for row in seen.rows))
    by_task = [
        _tally(seen, arm, task, [r for r in seen.rows if (r.arm, r.task) == (arm, task)], used, wanted)
        for arm, task in sorted(pairs, key=lambda pair: (pair[1], seen.arms.index(pair[0])))
    ]
    by_arm = [_over_tasks(seen, arm, [one for one in by_task if one.arm == arm]) for arm in seen.arms]
    return Summary(seen.metric, seen.source, wanted, by_task, by_arm, passing(seen, success=wanted, level=LEVEL))


def _best(seen: Observations) -> float:
    if seen.bounds is None:
        return 1.0
    return seen.bounds[1] if seen.larger_is_better else seen.bounds[0]


def _used(metrics: Mapping[str, Scalar]) -> dict[str, float]:
    return {name: float(value) for name in USED if isinstance(value := metrics.get(name), int | float)}


def _tally(
    seen: Observations,
    arm: str,
    task: str,
    rows: Sequence[Observation],
    used: Mapping[str, Mapping[str, float]],
    goal: float,
) -> Tally:
    failure = seen.analysis.failure_score
    values = [row.value for row in rows if row.state == "scored"]
    failed = sum(row.state == "failed" for row in rows)
    values += [failure] * failed if failure is not None else []
    sign = 1.0 if seen.larger_is_better else -1.0
    low, high = _interval(values, seen.bounds)
    return Tally(
        arm=arm,
        task=task,
        tries=sum(row.state != "missing" for row in rows),
        failed=failed,
        missing=sum(row.state == "missing" for row in rows),
        mean=float(np.mean(values)) if values else None,
        low=low,
        high=high,
        best=_best_of(seen, values),
        passed=sum(row.state == "scored" and sign * row.value >= sign * goal for row in rows),
        used=_sums(used[row.run_id] for row in rows),
    )


def _over_tasks(seen: Observations, arm: str, tallies: Sequence[Tally]) -> Tally:
    means = [one.mean for one in tallies if one.mean is not None]
    low, high = _interval(means, seen.bounds)
    return Tally(
        arm=arm,
        task=None,
        tries=sum(one.tries for one in tallies),
        failed=sum(one.failed for one in tallies),
        missing=sum(one.missing for one in tallies),
        mean=float(np.mean(means)) if means else None,
        low=low,
        high=high,
        best=_best_of(seen, [one.best for one in tallies if one.best is not None]),
        passed=sum(one.passed or 0 for one in tallies),
        used=_sums(one.used for one in tallies),
    )


def _best_of(seen: Observations, values: Sequence[float]) -> float | None:
    return (max if seen.larger_is_better else min)(values, default=None)


def _interval(values: Sequence[float], bounds: tuple[float, float] | None) -> tuple[float | None, float | None]:
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2 or is_constant(array):
        return None, None
    found = one_sample_t(array).interval(LEVEL)
    lowest, highest = bounds or (-np.inf, np.inf)
    return max(found.low, lowest), min(found.high, highest)


def _sums(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for used in each:
        for name, value in used.items():
            total[name] = total.get(name, 0.0) + value
    return total
