"""Bootstrap of structured data: many metrics at once, runs inside tasks, clusters, two levels, crossed margins.

The function's name says what is resampled, and that is the population: runs (these tasks only), tasks (tasks like
these), both margins (tasks and seeds like these).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.bootstrap import BootstrapInterval, quantiles
from bakeoff.stats.resample import (
    CHUNK,
    Indices,
    clip_weights,
    count_chunks,
    mean_distribution,
    trimmed_range,
    tuple_size,
    uniform_indices,
)
from bakeoff.stats.vectors import Array, Seed, generator, matrix, probability, vector

FEW_RUNS = 100
"""Runs a task up to which counts (one byte each) are looked up two or more draws at a time."""
COUNT_CHUNK = 2**17
"""Counts worked on at once: bytes, so more of them fit into the cache than doubles would."""


def _interval(distribution: Array, estimate: float, level: float) -> BootstrapInterval:
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = quantiles(distribution, (tail, 1.0 - tail))
    error = float(distribution.std(ddof=1))
    return BootstrapInterval(estimate, low, high, level, "percentile", distribution.size, error)


def bootstrap_columns(
    x: ArrayLike, resamples: int = 10_000, level: float = 0.95, seed: Seed = 0, indices: Indices | None = None
) -> tuple[BootstrapInterval, ...]:
    """Percentile intervals for the mean of every column of x (units x metrics), all on the same resamples of units.

    Shared resamples keep the metrics' correlation and turn the work into one matrix product.
    """
    values = matrix(x, "x", rows=2)
    chunks = count_chunks(values.shape[0], resamples, seed, indices)
    means = np.concatenate([counts @ values for counts in chunks]) / values.shape[0]
    estimates = values.mean(axis=0)
    return tuple(_interval(means[:, j], float(estimates[j]), level) for j in range(values.shape[1]))


def stratified_distribution(
    runs: ArrayLike, statistic: Literal["iqm", "mean"] = "iqm", resamples: int = 2_000, seed: Seed = 0
) -> Array:
    """Statistic over all cells of (runs x tasks), runs resampled inside each task. Population: these tasks only."""
    x = matrix(runs, "runs")
    rng = generator(seed)
    if statistic == "iqm" and x.shape[0] <= FEW_RUNS:
        return _counted_iqms(x, resamples, rng)
    count, tasks = x.shape
    flat = x.ravel()
    offset = np.arange(tasks, dtype=np.int32)
    low, high = trimmed_range(flat.size) if statistic == "iqm" else (0, flat.size)
    weight = np.full(high - low, 1.0 / (high - low))
    rows = max(1, CHUNK // flat.size)
    out = np.empty(resamples)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        picks = rng.integers(0, count, (stop - start, count, tasks), dtype=np.uint16)
        cells = flat.take(picks * np.int32(tasks) + offset).reshape(stop - start, -1)
        if statistic == "iqm":
            cells.sort(axis=1)
        out[start:stop] = cells[:, low:high] @ weight
    return out


def _counted_iqms(x: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Stratified IQMs from how often each run is drawn: one index draws k runs of a task, and nothing is sorted."""
    count, tasks = x.shape
    k = tuple_size(count)
    whole, rest = divmod(count, k)
    sizes = [k] * whole + [rest] * (rest > 0)
    tables = {size: _count_table(count, size) for size in set(sizes)}
    cells = x.T.ravel()
    order = np.argsort(cells, kind="stable")
    low, high = trimmed_range(cells.size)
    weights, last = clip_weights(cells[order], low, high)
    rows = max(1, COUNT_CHUNK // cells.size)
    out = np.empty(resamples)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        counts = np.zeros(((stop - start) * tasks, count), dtype=np.uint8)
        for size in sizes:
            counts += tables[size].take(uniform_indices(count**size, (counts.shape[0],), rng), axis=0)
        by_rank = counts.reshape(stop - start, -1).take(order, axis=1)
        out[start:stop] = np.clip(np.cumsum(by_rank, axis=1, dtype=np.int32), low, high) @ weights + last
    return out


def _count_table(n: int, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """For each of the n^k ordered k-tuples of n runs, how often each run is in it: shape (n^k, n)."""
    table = np.zeros((1, n), dtype=np.uint8)
    for _ in range(k):
        table = (table[:, None, :] + np.eye(n, dtype=np.uint8)[None, :, :]).reshape(-1, n)
    return table


def bootstrap_stratified_iqm(
    runs: ArrayLike, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """Percentile interval for the IQM over (runs x tasks), as rliable makes it. Below 10 runs a task it under-covers."""
    x = matrix(runs, "runs")
    low, high = trimmed_range(x.size)
    estimate = float(np.sort(x.ravel())[low:high].mean())
    return _interval(stratified_distribution(x, "iqm", resamples, seed), estimate, level)


def bootstrap_clusters(
    clusters: Sequence[ArrayLike], resamples: int = 10_000, level: float = 0.95, seed: Seed = 0
) -> BootstrapInterval:
    """Interval for the mean of cluster means; whole clusters are resampled. Population: clusters (tasks) like these."""
    means = np.array([vector(c, f"cluster {i}").mean() for i, c in enumerate(clusters)])
    if means.size < 2:
        raise ValueError("the cluster bootstrap needs at least 2 clusters")
    return _interval(mean_distribution(means, resamples, seed), float(means.mean()), level)


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
