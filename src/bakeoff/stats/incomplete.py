"""Tables of tasks x seeds in which some combinations were not run: NaN stands there.

Every task has the same weight, whatever its number of seeds, so a cell of task t weighs 1 / (T S_t). A complete table is
the special case without NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.numerics import Array, vector


def incomplete_table(values: ArrayLike, name: str) -> Array:
    """Return `values` as a float array of shape (T >= 2, S >= 2), NaN where a combination was not run.

    Raises ValueError for other shapes, infinite values, and tasks or seeds without any value.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got shape {x.shape}")
    if min(x.shape) < 2:
        raise ValueError(f"{name} must be at least 2 x 2, got {x.shape[0]} x {x.shape[1]}")
    run = ~np.isnan(x)
    vector(x[run], name)
    if not (run.any(axis=0).all() and run.any(axis=1).all()):
        raise ValueError(f"{name} has a task or a seed without any value")
    return x


def cell_weights(x: Array) -> Array:
    """Return 1 / (T S_t) for the cells of task t that were run, else 0; shape (T, S), sum 1."""
    run = ~np.isnan(x)
    return np.asarray(run / (len(x) * run.sum(axis=1, keepdims=True)), dtype=np.float64)


def task_means(x: Array) -> Array:
    """Return the mean of each task over the seeds that it was run with, shape (T,)."""
    return np.asarray(x.mean(axis=1) if not np.isnan(x).any() else np.nanmean(x, axis=1), dtype=np.float64)


def mean_over_tasks(x: Array) -> float:
    """Return the mean of the task means; of a complete table or a vector the mean of all values."""
    return float(task_means(x).mean()) if x.ndim == 2 and np.isnan(x).any() else float(x.mean())


def seed_values(x: Array) -> Array:
    """Return one value for each seed, shape (S,), whose mean is the mean over tasks: the seed means of a complete table.

    Each cell counts as its distance from its task's mean, so that a seed does not get the difficulty of the tasks that it
    was run on.
    """
    inside = np.nan_to_num(x - task_means(x)[:, None])
    return np.asarray(mean_over_tasks(x) + x.shape[1] * (cell_weights(x) * inside).sum(axis=0))


def effective_seeds(x: Array) -> float:
    """Return 1 / (sum of squared seed weights): S when all seeds weigh the same, less when few have most of the weight."""
    return float(1.0 / (cell_weights(x).sum(axis=0) ** 2).sum())


def connected_blocks(x: Array) -> NDArray[np.intp]:
    """Return for each task the number of its block, counted from 0. Tasks that share a seed are in one block."""
    run = ~np.isnan(x)
    block = np.full(len(x), -1, dtype=np.intp)
    number = 0
    for first in range(len(x)):
        if block[first] >= 0:
            continue
        reached = np.zeros(len(x), dtype=np.bool_)
        reached[first] = True
        while True:
            grown = np.asarray(run[:, run[reached].any(axis=0)].any(axis=1), dtype=np.bool_)
            if (grown == reached).all():
                break
            reached = grown
        block[reached] = number
        number += 1
    return block


@dataclass(frozen=True, slots=True)
class AdditiveFit:
    """Sums of squares of a table that is fitted by one effect for each task plus one for each seed."""

    seeds: float
    """What the seeds explain beyond the tasks."""
    seeds_df: int
    rest: float
    rest_df: int

    @property
    def mean_square(self) -> float:
        """Mean square of the interaction; 0 where nothing is left to estimate it from."""
        return self.rest / self.rest_df if self.rest_df > 0 else 0.0


def additive_fit(x: Array) -> AdditiveFit:
    """Fit task and seed effects by least squares (Scheffe, The Analysis of Variance 1959, chapter 4)."""
    run = ~np.isnan(x)
    inside = np.where(run, x - task_means(x)[:, None], 0.0)
    # Normal equations of the seeds, after the tasks were taken out: as small as the number of seeds.
    sizes = run.sum(axis=1)
    normal = np.diag(run.sum(axis=0)) - run.T @ (run / sizes[:, None])
    values, vectors = np.linalg.eigh(normal)
    kept = values > 1e-9 * max(1.0, float(values.max()))
    effects = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ inside.sum(axis=0))
    fitted = np.where(run, effects[None, :], np.nan)
    rest = np.where(run, inside - (fitted - task_means(fitted)[:, None]), 0.0)
    rank = int(kept.sum())
    total, left = float((inside**2).sum()), float((rest**2).sum())
    return AdditiveFit(max(0.0, total - left), rank, left, int(run.sum()) - len(x) - rank)
