"""Where the noise comes from (tasks, seeds, rollouts) and, from that, where the next run is best spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of one cell value, squared metric unit, never negative.

    `cell` is the task-seed interaction; with one rollout a cell it cannot be told from `rollout`, and both are in
    `cell`. Fixed tasks contribute no variance: use `task = 0`.
    """

    task: float
    seed: float
    cell: float
    rollout: float

    def variance(self, tasks: int, seeds: int, rollouts: int) -> float:
        """Variance of the grand mean of a crossed tasks x seeds x rollouts design."""
        runs = tasks * seeds
        return self.task / tasks + self.seed / seeds + self.cell / runs + self.rollout / (runs * rollouts)


def variance_components(values: ArrayLike) -> Components:
    """Components of a complete table of shape (tasks, seeds) or (tasks, seeds, rollouts), by mean squares.

    Negative estimates are set to 0. A dimension of length 1 has component 0.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 2:
        x = x[:, :, None]
    if x.ndim != 3 or x.size < 2:
        raise ValueError(f"values must be tasks x seeds (x rollouts), got shape {np.shape(values)}")
    if not np.isfinite(x).all():
        raise ValueError("values hold NaN or infinite entries; components need a complete table")
    tasks, seeds, rollouts = x.shape
    cells = x.mean(axis=2)
    by_task, by_seed = cells.mean(axis=1), cells.mean(axis=0)
    ms_roll = _mean_square((x - cells[:, :, None]) ** 2, tasks * seeds * (rollouts - 1))
    rest = cells - by_task[:, None] - by_seed[None, :] + cells.mean()
    ms_cell = _mean_square(rollouts * rest**2, (tasks - 1) * (seeds - 1))
    ms_task = _mean_square(seeds * rollouts * (by_task - cells.mean()) ** 2, tasks - 1)
    ms_seed = _mean_square(tasks * rollouts * (by_seed - cells.mean()) ** 2, seeds - 1)
    # With a single seed (or task) there is no interaction to subtract, only what lies below it.
    below = ms_cell if min(tasks, seeds) > 1 else ms_roll
    return Components(
        task=max(0.0, (ms_task - below) / (seeds * rollouts)),
        seed=max(0.0, (ms_seed - below) / (tasks * rollouts)),
        cell=max(0.0, (ms_cell - ms_roll) / rollouts) if min(tasks, seeds) > 1 else 0.0,
        rollout=ms_roll,
    )


def nested_components(values: ArrayLike) -> Components:
    """Components where seeds of different tasks have nothing in common: `seed` is 0, and `cell` is the seed in its task.

    values: (tasks, seeds) or (tasks, seeds, rollouts). Seeds and rollouts cannot be told apart with one rollout each.
    """
    crossed = variance_components(values)
    x = np.asarray(values, dtype=np.float64)
    cells = x if x.ndim == 2 else x.mean(axis=2)
    tasks, seeds = cells.shape
    rollouts = 1 if x.ndim == 2 else x.shape[2]
    within = float(cells.var(axis=1, ddof=1).mean()) if seeds > 1 else crossed.rollout / rollouts
    between = float(cells.mean(axis=1).var(ddof=1)) if tasks > 1 else 0.0
    return Components(
        task=max(0.0, between - within / seeds),
        seed=0.0,
        cell=max(0.0, within - crossed.rollout / rollouts),
        rollout=crossed.rollout,
    )


def _mean_square(squares: np.ndarray[tuple[int, ...], np.dtype[np.float64]], df: int) -> float:
    return float(squares.sum()) / df if df > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What one more task, one more (task, seed) and one more rollout cost, in any common unit."""

    task: float = 0.0
    seed: float = 0.0
    rollout: float = 1.0

    def total(self, tasks: int, seeds: int, rollouts: int) -> float:
        """Cost of the whole design."""
        return tasks * (self.task + seeds * (self.seed + rollouts * self.rollout))


@dataclass(frozen=True, slots=True)
class Allocation:
    """A design, the standard error of its grand mean, and its cost."""

    tasks: int
    seeds: int
    rollouts: int
    standard_error: float
    cost: float


def allocate(
    components: Components,
    budget: float,
    costs: Costs | None = None,
    tasks: int | None = None,
    most_tasks: int = 1_000,
    least_tasks: int = 1,
) -> Allocation:
    """The crossed design with the smallest standard error within the budget; the cheapest of equal ones.

    `tasks` fixes their number (a benchmark that cannot grow); otherwise `least_tasks` to `most_tasks` are considered: a
    verdict about tasks like these needs 3 of them, whatever their variance is estimated at. ValueError when nothing fits.
    """
    price = costs or Costs()
    if not (price.rollout > 0.0 and budget > 0.0):
        raise ValueError("allocation needs a positive budget and a positive price for a rollout")
    best: tuple[float, float, int, int, int] | None = None
    for t in [tasks] if tasks else range(least_tasks, most_tasks + 1):
        per_task = budget / t - price.task
        for s in range(1, int(max(0.0, per_task) / (price.seed + price.rollout)) + 1):
            k = int((per_task / s - price.seed) / price.rollout + 1e-9)
            if k < 1:
                break
            k = 1 if components.rollout == 0.0 else k
            found = (components.variance(t, s, k), price.total(t, s, k), t, s, k)
            best = found if best is None or found < best else best
    if best is None:
        raise ValueError(f"no design fits into a budget of {budget}")
    return Allocation(best[2], best[3], best[4], math.sqrt(best[0]), best[1])
