"""Scores of one arm on many tasks, any number of runs on each: aggregates in which every task weighs the same.

Runs are resampled inside their task, so intervals speak of these tasks only. A resample is a vector of counts over
fixed, sorted values: no resample is ever sorted, and IQM, gap and profile come from the same draws. With equal numbers
of runs the IQM is the trimmed mean of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.resample import clip_weights, draw_counts, trimmed_range
from bakeoff.stats.vectors import Array, Seed, generator, probability, vector

Strata = Sequence[ArrayLike]
"""For each task the values of its runs, larger is better."""
Counts = NDArray[np.integer]
"""How often each run was drawn, shape (resamples, runs of all tasks)."""
COUNT_CHUNK = 2**17
"""Counts worked on at once: mostly bytes, so more of them fit into the cache than doubles would."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Share of runs above each threshold, with a pointwise band. Arrays of one length as tuples."""

    thresholds: tuple[float, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float


@dataclass(frozen=True, slots=True)
class Improvement:
    """Chance that a run of b beats a run of a on the same task, averaged over tasks (ties half), with an interval."""

    probability: float
    low: float
    high: float
    level: float


def iqm(strata: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> BootstrapInterval:
    """Mean of the middle half of the scores. Below 10 runs a task the interval under-covers."""
    groups = _groups(strata)
    values, weights = np.concatenate(groups), _weights(groups)
    order = np.argsort(values, kind="stable")
    equal = len({g.size for g in groups}) == 1  # ranks weigh the same, so whole ones are cut and counts suffice
    low, high = trimmed_range(values.size) if equal else (0.25, 0.75)
    gaps, first = clip_weights(values[order], low, high)

    def statistic(counts: Counts) -> Array:
        ranked = counts.take(order, axis=1)
        upper = np.cumsum(ranked, axis=1, dtype=np.int32) if equal else np.cumsum(ranked * weights[order], axis=1)
        return np.clip(upper, low, high).astype(np.float64) @ gaps + first

    return _bootstrap(groups, statistic, resamples, level, seed)


def average(strata: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> BootstrapInterval:
    """Mean over tasks of the mean over runs."""
    groups = _groups(strata)
    return _linear(groups, np.concatenate(groups), resamples, level, seed)


def optimality_gap(
    strata: Strata, target: float = 1.0, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """How far scores fall short of `target` on average; what lies above it earns nothing. Smaller is better."""
    groups = _groups(strata)
    return _linear(groups, target - np.minimum(np.concatenate(groups), target), resamples, level, seed)


def profile(
    strata: Strata, thresholds: ArrayLike, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> Profile:
    """Share of scores strictly above each threshold, with a pointwise band."""
    groups = _groups(strata)
    taus = vector(thresholds, "thresholds")
    above = (np.concatenate(groups)[:, None] > taus[None, :]) * _weights(groups)[:, None]
    shares = np.concatenate([counts @ above for counts in _counts([g.size for g in groups], resamples, seed)])
    low, high = _ends(shares, level)
    columns = [tuple(map(float, column)) for column in (taus, above.sum(axis=0), low, high)]
    return Profile(columns[0], columns[1], columns[2], columns[3], level)


def improvement(a: Strata, b: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> Improvement:
    """Chance that a run of b beats a run of a on the same task, averaged over tasks (ties half)."""
    xs, ys = _groups(a), _groups(b)
    if len(xs) != len(ys):
        raise ValueError(f"both arms need the same tasks, got {len(xs)} and {len(ys)}")
    rng = generator(seed)
    total, share = np.zeros(resamples), 0.0
    for x, y in zip(xs, ys, strict=True):
        wins = (np.sign(y[:, None] - x[None, :]) + 1.0) / (2.0 * x.size * y.size * len(xs))
        share += float(wins.sum())
        of_b, of_a = draw_counts(y.size, resamples, rng), draw_counts(x.size, resamples, rng)
        total += np.einsum("rj,rj->r", of_b @ wins, of_a)
    low, high = _ends(total, level)
    return Improvement(share, float(low), float(high), level)


def _groups(strata: Strata) -> list[Array]:
    if not strata:
        raise ValueError("at least one task is needed")
    return [vector(values, f"task {i}") for i, values in enumerate(strata)]


def _weights(groups: Sequence[Array]) -> Array:
    """What one run weighs, shape (values,): every task adds up to 1 / tasks."""
    return np.concatenate([np.full(g.size, 1.0 / (g.size * len(groups))) for g in groups])


def _counts(sizes: Sequence[int], resamples: int, seed: Seed) -> Iterator[Counts]:
    """Blocks of rows; each row is a resample: how often each run was drawn inside its task."""
    rng = generator(seed)
    rows = max(1, COUNT_CHUNK // sum(sizes))
    alike = [(n, len(list(tasks))) for n, tasks in groupby(sizes)]
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        yield np.concatenate([draw_counts(n, count * m, rng).reshape(count, -1) for n, m in alike], axis=1)


def _linear(groups: Sequence[Array], values: Array, resamples: int, level: float, seed: Seed) -> BootstrapInterval:
    """Of a weighted mean of `values`, one for each run."""
    weighted = values * _weights(groups)
    return _bootstrap(groups, lambda counts: counts @ weighted, resamples, level, seed)


def _bootstrap(
    groups: Sequence[Array], statistic: Callable[[Counts], Array], resamples: int, level: float, seed: Seed
) -> BootstrapInterval:
    sizes = [g.size for g in groups]
    drawn = np.concatenate([statistic(counts) for counts in _counts(sizes, resamples, seed)])
    estimate = float(statistic(np.ones((1, sum(sizes)), dtype=np.uint8))[0])
    low, high = (float(end) for end in _ends(drawn, level))
    return BootstrapInterval(estimate, low, high, level, "percentile", resamples, float(drawn.std(ddof=1)))


def _ends(drawn: Array, level: float) -> Array:
    tail = (1.0 - probability(level, "level")) / 2.0
    return np.quantile(drawn, [tail, 1.0 - tail], axis=0)
