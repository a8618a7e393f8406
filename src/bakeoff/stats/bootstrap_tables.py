"""Bootstrap of structured data: values inside clusters, and tables of which both margins are a sample.

The function's name says what is resampled, and that is the population: tasks like these, or tasks and seeds like these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.bootstrap import BootstrapInterval, quantiles
from bakeoff.stats.resample import count_chunks, mean_distribution
from bakeoff.stats.vectors import Array, Seed, generator, matrix, probability, vector


def _interval(distribution: Array, estimate: float, level: float) -> BootstrapInterval:
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = quantiles(distribution, (tail, 1.0 - tail))
    error = float(distribution.std(ddof=1))
    return BootstrapInterval(estimate, low, high, level, "percentile", distribution.size, error)


def bootstrap_two_level(
    clusters: Sequence[ArrayLike], resamples: int = 10_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """Clusters are resampled, then values inside each drawn cluster: over-covers, because the noise counts twice."""
    groups = [vector(c, f"cluster {i}") for i, c in enumerate(clusters)]
    if len(groups) < 2:
        raise ValueError("the two-level bootstrap needs at least 2 clusters")
    rng = generator(seed)
    means = np.array([g.mean() for g in groups])
    total = np.zeros(resamples)
    for counts_of, group in zip(_counts_by_cluster(len(groups), resamples, rng), groups, strict=True):
        total += _resampled_sums(group, counts_of, rng)
    return _interval(total / len(groups), float(means.mean()), level)


def _counts_by_cluster(n: int, resamples: int, rng: np.random.Generator) -> Array:
    """How often each cluster is drawn, shape (n, resamples)."""
    return np.concatenate([block.T for block in count_chunks(n, resamples, rng)], axis=1)


def _resampled_sums(group: Array, counts: Array, rng: np.random.Generator) -> Array:
    """For each resample, the sum of `counts` independent bootstrap means of the group."""
    out = np.zeros(counts.size)
    for repeat in range(int(counts.max())):
        due = np.flatnonzero(counts > repeat)
        out[due] += mean_distribution(group, due.size, rng)
    return out


def bootstrap_crossed(
    cells: ArrayLike, resamples: int = 10_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """Interval for the mean of a (tasks x seeds) table; both margins are resampled independently (Owen's pigeonhole).

    Population: tasks and seeds like these.
    """
    x = matrix(cells, "cells", rows=2, columns=2)
    rng = generator(seed)
    out = []
    for start in range(0, resamples, 1024):
        count = min(1024, resamples - start)
        by_task = np.concatenate(list(count_chunks(x.shape[0], count, rng)))
        by_seed = np.concatenate(list(count_chunks(x.shape[1], count, rng)))
        out.append(np.einsum("rs,rs->r", by_task @ x, by_seed) / x.size)
    return _interval(np.concatenate(out), float(x.mean()), level)
