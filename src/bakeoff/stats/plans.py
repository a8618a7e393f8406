"""Plans from noise that earlier runs have estimated: power averaged over what the noise may really be.

A plan for the spread as seen promises 80 % and keeps less, because small samples show too little spread as often as too
much, and too little costs more power than too much gives (68 to 76 % from 5 to 15 pairs where 80 was promised). So plans are made for the
power that those who follow them have on average. For one spread that average is a noncentral t, and `planning_factor` is
exact up to the test's own degrees of freedom; for sums of variances it is simulated (`TwoWay.caution`).

`TwoWay` and `Stratified` are the noise of designs with more than one kind of unit. Mean squares of complete tables with
normal values are independent, so an experiment is a handful of chi-squares and a normal number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.special as sp

from bakeoff.stats.numerics import Array, bisect, chi2_quantile, noncentral_t_cdf, normal_quantile
from bakeoff.stats.sequential import BETS, SequentialRule
from bakeoff.stats.ttests import two_way_df

DRAWS = 4_000
"""Simulated experiments for one plan."""
MAX_COUNT = 100_000
"""Tasks or seeds up to which a plan is looked for."""
_SPREADS, _RATIOS = 24, 200
"""Points over which a chance is averaged."""
_PATHS = 150
"""Simulated paths of an e-process."""
_EACH_UNIT, _GROUPS = 4_000, 400
"""Pairs up to which paths are simulated pair by pair; longer ones go on in so many groups."""


@lru_cache(maxsize=512)
def planning_factor(df: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return what an sd with so many degrees of freedom is multiplied by, so that plans have this power on average.

    The sd varies as sqrt(chi-square / df) around the true one, so the average power of a plan for k standard errors is the
    chance that a noncentral t (df, noncentrality z of alpha) lies below k.
    """
    z = -normal_quantile(alpha / 2.0)
    naive = z + normal_quantile(power)
    high = 2.0 * naive
    while noncentral_t_cdf(df, z, high) < power:
        high *= 2.0
    return max(1.0, bisect(lambda k: noncentral_t_cdf(df, z, k) >= power, high, 0.0) / naive)


def planning_spread(spread: float, df: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the sd to plan with: plans for it have this power on average over samples that showed `spread`."""
    return spread * planning_factor(df, alpha, power)


def average_chance(chance_at: Callable[[float], float], spread: float, df: float) -> float:
    """Return the average of a chance over what the true sd may be, where a sample with `df` showed `spread`."""
    places = (np.arange(_SPREADS) + 0.5) / _SPREADS
    return float(np.mean([chance_at(spread * math.sqrt(df / chi2_quantile(df, p))) for p in places]))


def critical_effects(total: Array, df: Array | float, variance: Array | float, level: float, z: Array) -> Array:
    """Return the smallest true effect at which each simulated experiment rejects upwards at this two-sided level.

    `total` is the variance that its test estimates, `variance` the true one, `z` the luck of its mean.
    """
    inverse = 1.0 / np.asarray(df)
    # Quantiles of t are smooth in 1 / df, and computing one takes as long as everything else here.
    grid = np.linspace(float(inverse.min()), float(inverse.max()) + 1e-12, 65)
    quantiles = np.interp(inverse, grid, sp.stdtrit(1.0 / grid, 1.0 - level / 2.0))
    return np.asarray(quantiles * np.sqrt(total) - z * np.sqrt(variance))


@lru_cache(maxsize=256)
def _few(stream: int, df: float) -> Array:
    return np.random.default_rng([stream, 1]).chisquare(df, DRAWS) / df


@lru_cache(maxsize=16)
def _normal(stream: int) -> Array:
    return np.random.default_rng(stream).standard_normal(DRAWS)


def _mean_squares(stream: int, df: float) -> Array:
    """Return chi-squares over df. One stream has the same luck at every df, so that a search over sizes is not rough.

    Above 30 by Wilson and Hilferty's approximation (PNAS 1931), whose quantiles are right to 0.1 % there.
    """
    if df <= 30.0:
        return _few(stream, df)
    part = 2.0 / (9.0 * df)
    return np.asarray((1.0 - part + math.sqrt(part) * _normal(stream)) ** 3)


@dataclass(frozen=True, slots=True)
class TwoWay:
    """Noise of a mean over tasks and seeds that are both samples, as estimated by earlier runs.

    Seeds are shared by the arms (one table of differences), or every arm has runs of its own (one table for each arm).
    All variances are those of the mean of the earlier runs, as in `ttests.crossed_variance` and `ttests.runs_t`.
    """

    tasks: float
    seeds: tuple[float, ...]
    """Of each table."""
    of_tasks: float
    """V_task."""
    of_seeds: tuple[float, ...]
    """V_seed, or V_run of each arm."""
    of_cells: tuple[float, ...]
    """What both contain, of each table."""

    def variances(self, tasks: float, seeds: float, luck: bool = False) -> tuple[Array, list[Array], list[Array]]:
        """Return V_task, V_seed and V_cell (of each table) without what they share, at other sizes.

        With `luck` once for each simulated set of earlier runs, as these would estimate them if the noise were as seen.
        """
        streams = iter(range(100, 200))

        def seen(value: float, df: float) -> Array:
            return np.asarray(value * _mean_squares(next(streams), max(1.0, df)) if luck else value)

        c0 = [seen(c, (self.tasks - 1.0) * (s - 1.0)) for c, s in zip(self.of_cells, self.seeds, strict=True)]
        a0 = seen(self.of_tasks, self.tasks - 1.0)
        b0 = [seen(v, s - 1.0) for v, s in zip(self.of_seeds, self.seeds, strict=True)]
        task = np.maximum(0.0, a0 - sum(c0)) * self.tasks / tasks
        own = [np.maximum(0.0, b - c) * s / seeds for b, c, s in zip(b0, c0, self.seeds, strict=True)]
        cells = [c * self.tasks * s / (tasks * seeds) for c, s in zip(c0, self.seeds, strict=True)]
        return np.asarray(task), own, cells

    def caution(self, tasks: int, seeds: int, level: float, power: float) -> float:
        """Return what the standard error as seen is multiplied by, so that plans have this power on average.

        If the noise were as seen, earlier runs like these would estimate the planned variance as `ratio` times the truth,
        and whoever plans for k standard errors has the power of sqrt(ratio) k.
        """
        task, own, cells = self.variances(tasks, seeds)
        truth = float(task + sum(own) + sum(cells))
        if truth <= 0.0:
            return 1.0
        task, own, cells = self.variances(tasks, seeds, luck=True)
        places = (np.arange(_RATIOS) + 0.5) / _RATIOS
        ratio = np.sqrt(np.quantile((task + sum(own) + sum(cells)) / truth, places))
        z = -normal_quantile(level / 2.0)
        naive = z + normal_quantile(power)

        def enough(factor: float) -> bool:
            return float(sp.ndtr(factor * naive * ratio - z).mean()) >= power

        low, high = 0.0, 2.0
        while not enough(high):
            low, high = high, 2.0 * high
        while high - low > 1e-4:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def criticals(self, tasks: int, seeds: int, level: float, power: float | None = 0.8) -> Array:
        """Return critical effects of simulated experiments with so many tasks, and seeds in each table, sorted.

        They are those of plans with this power on average; with None those of the noise as seen.
        """
        task, own, cells = (np.asarray(part) for part in self.variances(tasks, seeds))
        streams = iter(range(2, 100))

        def estimated(value: Array, df: int) -> Array:
            return np.asarray(value * _mean_squares(next(streams), df))

        v_task = estimated(task + cells.sum(), tasks - 1)
        v_seeds = [estimated(v + c, seeds - 1) for v, c in zip(own, cells, strict=True)]
        v_cell = np.sum([estimated(c, (tasks - 1) * (seeds - 1)) for c in cells], axis=0)
        runs = np.sum(v_seeds, axis=0)
        total = np.maximum(np.maximum(v_task, runs), v_task + runs - v_cell)
        sizes = np.array([tasks, *[seeds] * len(self.seeds)], dtype=np.float64)
        df = two_way_df(np.array([v_task, *v_seeds]), sizes, sizes)
        variance = float(task + own.sum() + cells.sum())
        factor = 1.0 if power is None else self.caution(tasks, seeds, level, power)
        return np.sort(factor * critical_effects(total, df, variance, level, _normal(0)))

    def floor(self, level: float, power: float, *, tasks: int | None = None, seeds: int | None = None) -> float:
        """Return the smallest effect that these tasks, or these seeds, detect with any number of the others."""
        return detected(self.criticals(tasks or MAX_COUNT, seeds or MAX_COUNT, level, power), power)


@dataclass(frozen=True, slots=True)
class Stratified:
    """Noise of a mean over fixed tasks with units of their own: pairs, or runs of both arms."""

    tasks: int
    cells: int
    """Samples on each task: 1 for pairs, 2 for two arms."""
    variance: float
    """Of one unit, the mean over tasks and arms."""
    df: float
    """Satterthwaite's, of that variance."""
    equality: float
    """`df` over what it would be if all tasks varied alike, 0 to 1."""

    def criticals(self, units: int, level: float, power: float | None = 0.8) -> Array:
        """Return critical effects of simulated experiments with so many units on each task (and arm), sorted.

        They are those of plans with this power on average; with None those of the noise as seen.
        """
        variance = self.variance * self.cells / (self.tasks * units)
        df = max(1.0, self.equality * self.cells * self.tasks * (units - 1))
        factor = 1.0 if power is None else planning_factor(self.df, level, power)
        return np.sort(factor * critical_effects(variance * _mean_squares(2, df), df, variance, level, _normal(0)))


def sequential_detects(size: float, units: int, alpha: float, comparisons: int) -> float:
    """Return how often an e-process over so many pairs finds a difference of `size` standard deviations after a look.

    Growth after results were shown is judged at 4m/alpha (decision specification, section 5).
    """
    if units <= _EACH_UNIT:
        d = np.random.default_rng(0).standard_normal((_PATHS, units)) + size
        rule = SequentialRule(planned=max(7, units), alpha=alpha / 2.0, comparisons=comparisons)
    else:
        d = np.zeros((_PATHS, _GROUPS))
        paths = _grouped_log_e(size, units)
        rule = SequentialRule(_GROUPS, alpha / 2.0, comparisons=comparisons, log_e=lambda values, centre: paths)
    stops, words = rule.stops(d)
    return float(((stops <= d.shape[1]) & (words == 1)).mean())


def _grouped_log_e(size: float, units: int) -> tuple[Array, Array]:
    """Simulate `symmetric_log_e` of normal pairs at the ends of groups, each of so many pairs that sums are normal.

    The logs of all bets add up along the pairs, with a mean and a covariance that follow from the law of one pair.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    x = (nodes + size) / math.sqrt(1.0 + size * size)
    bets = np.concatenate((BETS, -BETS))
    logs = math.log(2.0) + sp.log_expit(2.0 * bets[:, None] * x[None, :])
    weights = weights / weights.sum()
    mean = logs @ weights
    centred = logs - mean[:, None]
    group = units / _GROUPS
    rng = np.random.default_rng(0)
    steps = rng.multivariate_normal(group * mean, group * (centred * weights) @ centred.T, (_PATHS, _GROUPS))
    both = np.cumsum(steps, axis=1).reshape(_PATHS, _GROUPS, 2, BETS.size)
    mixed = sp.logsumexp(both, axis=-1) - math.log(BETS.size)
    return mixed[..., 0], mixed[..., 1]


def detected(criticals: Array, power: float) -> float:
    """Return the smallest effect that is detected with this power."""
    return float(np.quantile(criticals, power))


def chance(criticals: Array, effect: float) -> float:
    """Return how often this effect is detected."""
    return float(np.searchsorted(criticals, abs(effect), side="right") / criticals.size)


def count_needed(criticals: Callable[[int], Array], effect: float, power: float, least: int = 2) -> int | None:
    """Return the smallest count whose experiments detect the effect with this power; None where MAX_COUNT do not."""

    def enough(count: int) -> bool:
        return chance(criticals(count), effect) >= power

    if enough(least):
        return least
    low, high = least, 2 * least
    while not enough(high):
        if high >= MAX_COUNT:
            return None
        low, high = high, min(MAX_COUNT, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def scaled(count: float, factor: float) -> int:
    """Return a number of tasks or seeds that is `factor` times as large, rounded up."""
    return math.ceil(count * factor - 1e-9)
