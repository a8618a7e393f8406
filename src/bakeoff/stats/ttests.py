"""Student's t: one sample, two samples (Welch), stratified by task, tasks crossed with seeds, clusters.

Each function returns a `TStatistic`: an estimate, its standard error and its degrees of freedom. p,
interval and equivalence follow from these three numbers. Every function raises ValueError when the data
have no spread, because then there is no t; `decision` uses the sign-flip test in that case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike

from bakeoff.stats.evidence import LEAST_UNITS, Evidence, Interval, Tails
from bakeoff.stats.numerics import TINY, Array, exponent, is_constant, matrix, mean, sd, t_quantile, tail, vector

FEW_TASKS = 5
"""Fixed tasks up to which two runs each get fewer degrees of freedom; with more tasks it would cost too much power."""


@dataclass(frozen=True, slots=True)
class TStatistic(Evidence):
    """A t-distributed estimate of the centre of B - A. Invariant: se > 0 and df > 0."""

    effect: float
    se: float
    df: float
    n: int
    method: str = "t"
    assumes: str = "assumes roughly normal differences"
    least: int = LEAST_UNITS

    floor = 2.0 * TINY  # the t distribution has no smallest p; p is kept above 0 all the same
    monotone = False  # an extreme value also widens the spread

    def __post_init__(self) -> None:
        if not (self.se > 0.0 and self.df > 0.0):
            raise ValueError(f"{self.method}: zero spread, no t statistic (se {self.se}, df {self.df})")

    def tails(self, x: float) -> Tails:
        t = (x - self.effect) / self.se
        # stdtr(df, t) = P(T <= t) keeps its digits in the lower tail, so both tails are lower ones.
        return Tails(max(TINY, float(sp.stdtr(self.df, t))), max(TINY, float(sp.stdtr(self.df, -t))))

    def interval(self, level: float) -> Interval:
        """effect +- t * se."""
        half = -t_quantile(self.df, tail(level)) * self.se
        return Interval(self.effect - half, self.effect + half, level)


def one_sample_t(d: ArrayLike) -> TStatistic:
    """t of the mean of N >= 2 unit differences, or of any one sample. Population: units like these."""
    x = vector(d, "d", at_least=2)
    if is_constant(x):
        raise ValueError(f"paired t: zero spread, every value is {x[0]}; use SignFlip")
    return TStatistic(mean(x), sd(x) / math.sqrt(x.size), x.size - 1.0, x.size, "paired t")


def welch_t(a: ArrayLike, b: ArrayLike) -> TStatistic:
    """t of mean(b) - mean(a) for two independent samples of at least 2 (Welch, Biometrika 1947).

    Population: runs like these of both arms. n counts the smaller arm.
    """
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    e = exponent(np.concatenate((x, y)))
    # One power of two for both arms, so that their variances can be added.
    u, v = np.ldexp(x, -e), np.ldexp(y, -e)
    parts = np.array([u.var(ddof=1) / u.size, v.var(ddof=1) / v.size])
    se = float(np.ldexp(math.sqrt(float(parts.sum())), e))
    if is_constant(x) and is_constant(y):
        raise ValueError("Welch: zero spread, both arms are constant")
    df = satterthwaite(parts, np.array([u.size - 1.0, v.size - 1.0]))
    effect = float(np.ldexp(v.mean() - u.mean(), e))
    return TStatistic(effect, se, df, min(x.size, y.size), "Welch t", "assumes roughly normal means in both arms")


def satterthwaite(parts: Array, df: Array) -> float:
    """Degrees of freedom of a sum of independent variance estimates, where part i has df[i].

    (sum of parts)^2 / sum(part^2 / df) (Satterthwaite, Biometrics Bulletin 1946).
    """
    share = parts / float(np.abs(parts).max())  # squares of very small variances would underflow
    return float(share.sum() ** 2 / (share**2 / df).sum())


def stratified_paired_t(strata: Sequence[ArrayLike]) -> TStatistic:
    """t of the mean over tasks of the mean pair difference.

    `strata`: for each task its S_t >= 2 pair differences. SE^2 = sum_t s_t^2 / S_t / T^2. Population: these
    tasks only, seeds like these. Every task has the same weight, whatever its number of seeds. n counts
    pairs.
    """
    ds = [vector(s, f"task {i}", at_least=2) for i, s in enumerate(strata)]
    effect = mean(np.array([mean(d) for d in ds]))
    return _stratified(effect, ds, len(ds), sum(d.size for d in ds), "stratified paired t")


def stratified_t(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> TStatistic:
    """t of the mean over tasks of mean(b_t) - mean(a_t).

    `a`, `b`: for each task K >= 2 independent rollouts of the arm. SE^2 = sum_t (s_At^2 / K_At + s_Bt^2 /
    K_Bt) / T^2. Population: these tasks only, rollouts like these. Every task has the same weight. n counts
    the rollouts of the smaller arm.
    """
    if len(a) != len(b):
        raise ValueError(f"both arms need the same tasks, got {len(a)} and {len(b)}")
    xs = [vector(s, f"a, task {i}", at_least=2) for i, s in enumerate(a)]
    ys = [vector(s, f"b, task {i}", at_least=2) for i, s in enumerate(b)]
    effect = mean(np.array([mean(y) - mean(x) for x, y in zip(xs, ys, strict=True)]))
    n = min(sum(x.size for x in xs), sum(y.size for y in ys))
    return _stratified(effect, [*xs, *ys], len(xs), n, "stratified t")


def _stratified(effect: float, cells: Sequence[Array], tasks: int, n: int, method: str) -> TStatistic:
    """t of an equally weighted mean over tasks, whose error is the sum of independent errors of its cells."""
    parts = np.array([c.var(ddof=1) / c.size for c in cells]) / tasks**2
    if not parts.sum() > 0.0:
        raise ValueError(f"{method}: zero spread inside every task")
    dfs = np.array([c.size - 1.0 for c in cells])
    df = satterthwaite(parts, dfs)
    if dfs.min() == 1.0 and tasks <= FEW_TASKS:
        # A variance of two values is so noisy that Satterthwaite counts too many degrees of freedom where one task has
        # most of the spread: 7.3 % false positives for 3 x 2 with sds 1, 1, 10, and 4.4 % with this mean.
        df = math.sqrt(df * float(dfs[parts.argmax()]))
    return TStatistic(effect, math.sqrt(float(parts.sum())), df, n, method, "assumes roughly normal task means")


@dataclass(frozen=True, slots=True)
class CrossedVariance:
    """Variance of the mean of a tasks x seeds table, both margins being samples. Unit: squared metric."""

    task: float
    seed: float
    cell: float
    total: float
    df: float


def crossed_variance(d: ArrayLike) -> CrossedVariance:
    """V = max(V_task, V_seed, V_task + V_seed - V_cell) of a complete (T >= 2) x (S >= 2) table of differences.

    V_task and V_seed are the variances of the margins' means. Both contain the interaction, so V_cell is
    subtracted once, as in two-way clustering (Cameron, Gelbach and Miller, JBES 2011). The maximum guards
    against a sum that is smaller than one of its margins, or negative. df: that of the winning margin, or
    Satterthwaite's of the sum, always within [min(T, S) - 1, T + S - 2]. A margin of 3 gets the geometric mean with
    min(T, S) - 1, as its variance is too noisy for Satterthwaite's, and a margin of 2 gets 1.
    """
    x = matrix(d, "d", rows=2, columns=2)
    tasks, seeds = x.shape
    rows, columns = x.mean(axis=1), x.mean(axis=0)
    v_task = float(rows.var(ddof=1)) / tasks
    v_seed = float(columns.var(ddof=1)) / seeds
    v_cell = _interaction_mean_square(x) / (tasks * seeds)
    both = v_task + v_seed - v_cell
    total = max(v_task, v_seed, both)
    rounding = 8.0 * float(np.spacing(np.abs(x).max()))
    if float(np.ptp(rows)) <= rounding and float(np.ptp(columns)) <= rounding:
        # Margins without any spread: only the cells tell how uncertain the mean is.
        return CrossedVariance(v_task, v_seed, v_cell, v_cell, min(tasks, seeds) - 1.0)
    if total == both:
        parts = np.array([v_task, v_seed, -v_cell])
        df = satterthwaite(parts, np.array([tasks - 1.0, seeds - 1.0, (tasks - 1.0) * (seeds - 1.0)]))
    else:
        df = tasks - 1.0 if total == v_task else seeds - 1.0
    least = min(tasks, seeds) - 1.0
    df = min(max(df, least), tasks + seeds - 2.0)
    if least <= 2.0:
        df = 1.0 if least == 1.0 else math.sqrt(df * least)
    return CrossedVariance(v_task, v_seed, v_cell, total, df)


def _interaction_mean_square(x: Array) -> float:
    """Mean square of what task means and seed means do not explain in a tasks x seeds table, (T-1)(S-1) df."""
    rest = x - x.mean(axis=1)[:, None] - x.mean(axis=0)[None, :] + x.mean()
    df = (x.shape[0] - 1) * (x.shape[1] - 1)
    return float((rest**2).sum() / df)


def crossed_t(d: ArrayLike) -> TStatistic:
    """t of the mean of a (tasks, seeds) table of differences. Population: tasks and seeds like these.

    n = min(T, S).
    """
    x = matrix(d, "d", rows=2, columns=2)
    if is_constant(x.ravel()):
        raise ValueError("crossed t: zero spread, every cell is equal")
    v = crossed_variance(x)
    assumes = "assumes roughly normal margins"
    # Two seeds decide: the single degree of freedom says how little they know.
    least = 2 if max(x.shape) >= LEAST_UNITS else LEAST_UNITS
    return TStatistic(float(x.mean()), math.sqrt(v.total), v.df, min(x.shape), "crossed t", assumes, least)


def seeds_look_crossed(d: ArrayLike) -> float:
    """p of the two-way F test for a seed effect in a (tasks, seeds) table of differences.

    The interaction is the error term, as there is one value a cell (Scheffe, The Analysis of Variance 1959,
    chapter 4). A p below .01 means that seeds which were declared nested in tasks behave as if they were
    shared between tasks.
    """
    x = matrix(d, "d", rows=2, columns=2)
    tasks, seeds = x.shape
    error = _interaction_mean_square(x)
    between = tasks * float(x.mean(axis=0).var(ddof=1))
    if error <= 0.0:
        return 1.0 if between <= 0.0 else TINY
    return float(sp.fdtrc(seeds - 1.0, (tasks - 1.0) * (seeds - 1.0), between / error))


def cluster_t(values: ArrayLike, clusters: ArrayLike) -> TStatistic:
    """t of the mean of all values, shape (n,), with a cluster-robust error; `clusters` has one label for each value.

    Population: clusters (tasks) like these. Each value has the same weight, so a task with more runs counts
    more; the decision itself uses task means instead. Degrees of freedom are clusters - 1 (a normal
    quantile is far too narrow for few clusters) with the factor G / (G - 1) (Cameron and Miller, Journal of
    Human Resources 2015, section VI).
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
    # Sums of deviations by cluster: only these are independent of each other.
    sums = np.bincount(member, weights=x - centre, minlength=groups)
    se = math.sqrt(groups / (groups - 1.0) * float((sums**2).sum())) / x.size
    return TStatistic(centre, se, groups - 1.0, groups, "cluster-robust t", "assumes roughly normal cluster sums")
