"""Scores of one arm on many tasks, any number of runs on each: aggregates in which every task weighs the same.

Runs are resampled inside their task, so intervals speak of these tasks only. A resample is a vector of weights over
fixed, sorted values: no resample is ever sorted, and IQM, gap and profile come from the same draws. With equal numbers
of runs the IQM is that of `aggregate.iqm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.aggregate import Profile
from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.ranks import Improvement
from bakeoff.stats.resample import CHUNK
from bakeoff.stats.vectors import Array, Seed, generator, probability, vector

Strata = Sequence[ArrayLike]
"""For each task the values of its runs, larger is better."""


def weighted_middle(weights: Array, cut: float) -> Array:
    """What is left of weights (rows x values in ascending order, each row adding up to 1) between `cut` and 1 - cut."""
    upper = np.clip(np.cumsum(weights, axis=1), cut, 1.0 - cut)
    inside = np.diff(upper, axis=1, prepend=cut)
    return np.asarray(inside / (1.0 - 2.0 * cut), dtype=np.float64)


def iqm(strata: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> BootstrapInterval:
    """Mean of the middle half of the scores. Below 10 runs a task the interval under-covers."""
    groups = _groups(strata)
    sizes = [g.size for g in groups]
    cut = int(sum(sizes) / 4) / sum(sizes) if len(set(sizes)) == 1 else 0.25  # whole ranks where ranks weigh the same
    values = np.concatenate(groups)
    order = np.argsort(values, kind="stable")

    def statistic(weights: Array) -> Array:
        return weighted_middle(weights[:, order], cut) @ values[order]

    return _bootstrap(groups, statistic, resamples, level, seed)


def average(strata: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> BootstrapInterval:
    """Mean over tasks of the mean over runs."""
    groups = _groups(strata)
    values = np.concatenate(groups)
    return _bootstrap(groups, lambda weights: weights @ values, resamples, level, seed)


def optimality_gap(
    strata: Strata, target: float = 1.0, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """How far scores fall short of `target` on average; what lies above it earns nothing. Smaller is better."""
    groups = _groups(strata)
    short = target - np.minimum(np.concatenate(groups), target)
    return _bootstrap(groups, lambda weights: weights @ short, resamples, level, seed)


def profile(
    strata: Strata, thresholds: ArrayLike, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> Profile:
    """Share of scores strictly above each threshold, with a pointwise band."""
    groups = _groups(strata)
    taus = vector(thresholds, "thresholds")
    above = (np.concatenate(groups)[:, None] > taus[None, :]).astype(np.float64)
    shares = np.concatenate([weights @ above for weights in _weights([g.size for g in groups], resamples, seed)])
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = np.quantile(shares, [tail, 1.0 - tail], axis=0)
    columns = [tuple(map(float, column)) for column in (taus, _plain(groups) @ above, low, high)]
    return Profile(columns[0], columns[1], columns[2], columns[3], level)


def improvement(a: Strata, b: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> Improvement:
    """Chance that a run of b beats a run of a on the same task, averaged over tasks (ties half)."""
    xs, ys = _groups(a), _groups(b)
    if len(xs) != len(ys):
        raise ValueError(f"both arms need the same tasks, got {len(xs)} and {len(ys)}")
    rng = generator(seed)
    total, share = np.zeros(resamples), 0.0
    for x, y in zip(xs, ys, strict=True):
        wins = (np.sign(y[:, None] - x[None, :]) + 1.0) / 2.0
        share += float(wins.mean()) / len(xs)
        of_b = np.concatenate(list(_weights([y.size], resamples, rng)))
        of_a = np.concatenate(list(_weights([x.size], resamples, rng)))
        total += np.einsum("rj,rj->r", of_b @ wins, of_a) / len(xs)
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = np.quantile(total, [tail, 1.0 - tail])
    return Improvement(share, float(low), float(high), level)


def _groups(strata: Strata) -> list[Array]:
    if not strata:
        raise ValueError("at least one task is needed")
    return [vector(values, f"task {i}") for i, values in enumerate(strata)]


def _plain(groups: Sequence[Array]) -> Array:
    """Weights of the data as they are, shape (values,)."""
    return np.concatenate([np.full(g.size, 1.0 / (g.size * len(groups))) for g in groups])


def _weights(sizes: Sequence[int], resamples: int, seed: Seed) -> Iterator[Array]:
    """Blocks of rows; each row is a resample as weights, every task adding up to 1 / tasks."""
    rng = generator(seed)
    rows = max(1, CHUNK // sum(sizes))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        parts = [rng.multinomial(n, np.full(n, 1.0 / n), size=count) / (n * len(sizes)) for n in sizes]
        yield np.concatenate(parts, axis=1)


def _bootstrap(
    groups: Sequence[Array], statistic: Callable[[Array], Array], resamples: int, level: float, seed: Seed
) -> BootstrapInterval:
    drawn = np.concatenate([statistic(weights) for weights in _weights([g.size for g in groups], resamples, seed)])
    estimate = float(statistic(_plain(groups)[None, :])[0])
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = (float(q) for q in np.quantile(drawn, [tail, 1.0 - tail]))
    return BootstrapInterval(estimate, low, high, level, "percentile", resamples, float(drawn.std(ddof=1)))
