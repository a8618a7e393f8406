"""Student's t in the four shapes the unit table asks for: one sample, Welch, stratified, tasks crossed with seeds.

Each is an estimate, its standard error and its degrees of freedom; p, interval and equivalence follow from these
three numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.interval import Interval
from bakeoff.stats.special import TINY, f_sf, t_cdf, t_quantile
from bakeoff.stats.vectors import Array, exponent, is_constant, matrix, mean, probability, sd, vector

NORMAL = "assumes roughly normal differences"


@dataclass(frozen=True, slots=True)
class TStatistic:
    """A t-distributed estimate of the centre of B - A. Invariant: se > 0 and df > 0 (zero spread is refused earlier)."""

    effect: float
    se: float
    df: float
    n: int
    method: str = "t"
    assumes: str = NORMAL

    def __post_init__(self) -> None:
        if not (self.se > 0.0 and self.df > 0.0):
            raise ValueError(f"{self.method}: zero spread, no t statistic (se {self.se}, df {self.df})")

    @property
    def monotone(self) -> bool:
        """False: an extreme value also widens the spread."""
        return False

    @property
    def floor(self) -> float:
        """The t distribution has no floor of its own; p is kept above 0 all the same."""
        return 2.0 * TINY

    @property
    def t(self) -> float:
        """The t statistic of 'centre = 0'."""
        return self.effect / self.se

    @property
    def p(self) -> float:
        """Two-sided p of 'centre = 0'."""
        return min(1.0, 2.0 * min(self.greater(0.0), self.less(0.0)))

    def p_equivalent(self, margin: float) -> float:
        """p of the two one-sided tests against +-margin (Schuirmann's TOST)."""
        return max(self.greater(-margin), self.less(margin))

    def greater(self, x: float) -> float:
        """One-sided p of 'centre <= x'."""
        return max(TINY, t_cdf(self.df, (x - self.effect) / self.se))

    def less(self, x: float) -> float:
        """One-sided p of 'centre >= x'."""
        return max(TINY, t_cdf(self.df, (self.effect - x) / self.se))

    def interval(self, level: float) -> Interval:
        """effect +- t * se."""
        half = -t_quantile(self.df, (1.0 - probability(level, "level")) / 2.0) * self.se
        return Interval(self.effect - half, self.effect + half, level)

    def raw_interval(self, level: float) -> Interval:
        """Same as `interval`."""
        return self.interval(level)


def one_sample_t(d: ArrayLike) -> TStatistic:
    """t of N >= 2 unit differences; also the t of one sample. Population: units like these."""
    x = vector(d, "d", at_least=2)
    if is_constant(x):
        raise ValueError(f"paired t: zero spread, every value is {x[0]}; use SignFlip")
    return TStatistic(mean(x), sd(x) / math.sqrt(x.size), x.size - 1.0, x.size, "paired t")


def welch_t(a: ArrayLike, b: ArrayLike) -> TStatistic:
    """Welch's t of mean(b) - mean(a) for two independent samples of at least 2. n counts the smaller arm."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    effect, se, df = _welch(x, y)
    if se <= 1e-9 * max(float(np.abs(x).max()), float(np.abs(y).max())) / math.sqrt(x.size + y.size):
        raise ValueError("Welch: zero spread, both arms are constant")
    return TStatistic(effect, se, df, min(x.size, y.size), "Welch t", "assumes roughly normal means in both arms")


def _welch(x: Array, y: Array) -> tuple[float, float, float]:
    e = exponent(np.concatenate((x, y)))
    u, v = np.ldexp(x, -e), np.ldexp(y, -e)
    parts = np.array([u.var(ddof=1) / u.size, v.var(ddof=1) / v.size])
    se = math.sqrt(float(parts.sum()))
    df = satterthwaite(parts, np.array([u.size - 1.0, v.size - 1.0])) if se > 0.0 else 1.0
    effect = float(np.ldexp(v.mean() - u.mean(), e))
    return effect, float(np.ldexp(se, e)), df


def satterthwaite(parts: Array, df: Array) -> float:
    """Degrees of freedom of a sum of independent variance estimates, part i with df[i]: (sum)^2 / sum(part^2 / df)."""
    largest = float(np.abs(parts).max())
    share = parts / largest
    return float(share.sum() ** 2 / (share**2 / df).sum())


def stratified_paired_t(strata: Sequence[ArrayLike]) -> TStatistic:
    """Mean over tasks of the mean pair difference; one array of S_t >= 2 pair differences for each task.

    Population: these tasks only, seeds like these. Every task weighs the same. n counts pairs.
    """
    ds = [vector(s, f"task {i}", at_least=2) for i, s in enumerate(strata)]
    parts = np.array([d.var(ddof=1) / d.size for d in ds]) / len(ds) ** 2
    effect = mean(np.array([mean(d) for d in ds]))
    df = np.array([d.size - 1.0 for d in ds])
    return _stratified(effect, parts, df, sum(d.size for d in ds), "stratified paired t")


def stratified_t(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> TStatistic:
    """Mean over tasks of mean(b_t) - mean(a_t); K >= 2 independent rollouts in every (arm, task).

    Population: these tasks only, rollouts like these. Every task weighs the same. n counts the smaller arm's rollouts.
    """
    if len(a) != len(b):
        raise ValueError(f"both arms need the same tasks, got {len(a)} and {len(b)}")
    xs = [vector(s, f"a, task {i}", at_least=2) for i, s in enumerate(a)]
    ys = [vector(s, f"b, task {i}", at_least=2) for i, s in enumerate(b)]
    cells = [*xs, *ys]
    parts = np.array([c.var(ddof=1) / c.size for c in cells]) / len(xs) ** 2
    effect = mean(np.array([mean(y) - mean(x) for x, y in zip(xs, ys, strict=True)]))
    df = np.array([c.size - 1.0 for c in cells])
    return _stratified(effect, parts, df, min(sum(x.size for x in xs), sum(y.size for y in ys)), "stratified t")


def _stratified(effect: float, parts: Array, df: Array, n: int, method: str) -> TStatistic:
    if not parts.sum() > 0.0:
        raise ValueError(f"{method}: zero spread inside every task")
    se = math.sqrt(float(parts.sum()))
    return TStatistic(effect, se, satterthwaite(parts, df), n, method, "assumes roughly normal task means")


@dataclass(frozen=True, slots=True)
class CrossedVariance:
    """Variance of the mean of a tasks x seeds table, both margins being samples. Units: squared metric."""

    task: float
    seed: float
    cell: float
    total: float
    df: float


def crossed_variance(d: ArrayLike) -> CrossedVariance:
    """V = max(V_task, V_seed, V_task + V_seed - V_cell) of a complete (T >= 2) x (S >= 2) table of differences.

    V_task and V_seed are the variances of the margins' means, V_cell that of the interaction, which both margins
    carry and which would count twice. df: that of the winning margin, or Satterthwaite's of the sum, always kept
    within [min(T, S) - 1, T + S - 2].
    """
    x = matrix(d, "d", rows=2, columns=2)
    tasks, seeds = x.shape
    rows, columns = x.mean(axis=1), x.mean(axis=0)
    rest = x - rows[:, None] - columns[None, :] + x.mean()
    v_task = float(rows.var(ddof=1)) / tasks
    v_seed = float(columns.var(ddof=1)) / seeds
    v_cell = float((rest**2).sum()) / ((tasks - 1) * (seeds - 1)) / (tasks * seeds)
    both = v_task + v_seed - v_cell
    total = max(v_task, v_seed, both)
    if total <= 0.0:
        return CrossedVariance(v_task, v_seed, v_cell, 0.0, min(tasks, seeds) - 1.0)
    if total == both:
        parts = np.array([v_task, v_seed, -v_cell])
        df = satterthwaite(parts, np.array([tasks - 1.0, seeds - 1.0, (tasks - 1.0) * (seeds - 1.0)]))
    else:
        df = tasks - 1.0 if total == v_task else seeds - 1.0
    df = min(max(df, min(tasks, seeds) - 1.0), tasks + seeds - 2.0)
    return CrossedVariance(v_task, v_seed, v_cell, total, df)


def crossed_t(d: ArrayLike) -> TStatistic:
    """t of the mean of a tasks x seeds table of differences. Population: tasks and seeds like these. n = min(T, S)."""
    x = matrix(d, "d", rows=2, columns=2)
    v = crossed_variance(x)
    if is_constant(x.ravel()):
        raise ValueError("crossed t: zero spread, every cell is equal")
    return TStatistic(
        float(x.mean()), math.sqrt(v.total), v.df, min(x.shape), "crossed t", "assumes roughly normal margins"
    )


def seeds_look_crossed(d: ArrayLike) -> float:
    """p of the two-way F test for a seed effect in a tasks x seeds table of differences; below .01 calls for a warning."""
    x = matrix(d, "d", rows=2, columns=2)
    tasks, seeds = x.shape
    columns = x.mean(axis=0)
    rest = x - x.mean(axis=1)[:, None] - columns[None, :] + x.mean()
    error = float((rest**2).sum()) / ((tasks - 1) * (seeds - 1))
    between = tasks * float(columns.var(ddof=1))
    if error <= 0.0:
        return 1.0 if between <= 0.0 else TINY
    return f_sf(seeds - 1.0, (tasks - 1.0) * (seeds - 1.0), between / error)


def cluster_t(values: ArrayLike, clusters: ArrayLike) -> TStatistic:
    """t of the mean of all values with a cluster-robust error and (clusters - 1) degrees of freedom, never z.

    Population: clusters (tasks) like these. Each value weighs the same, so a task with more runs weighs more; the
    decision's own unit is the task mean. Finite-sample factor G/(G-1) as in statsmodels' mean-only regression.
    """
    x = vector(values, "values", at_least=2)
    labels = np.asarray(clusters)
    if labels.shape != x.shape:
        raise ValueError(f"one cluster label for each value, got {labels.shape} for {x.shape}")
    _, member = np.unique(labels, return_inverse=True)
    groups = int(member.max()) + 1
    if groups < 2:
        raise ValueError("cluster-robust intervals need at least 2 clusters")
    centre = mean(x)
    sums = np.bincount(member, weights=x - centre, minlength=groups)
    factor = groups / (groups - 1.0)
    se = math.sqrt(factor * float((sums**2).sum())) / x.size
    return TStatistic(centre, se, groups - 1.0, groups, "cluster-robust t", "assumes roughly normal cluster sums")
