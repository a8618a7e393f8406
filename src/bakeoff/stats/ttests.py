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

from bakeoff.stats.evidence import LEAST_UNITS, Evidence, Interval, Tails, unbounded
from bakeoff.stats.incomplete import (
    additive_fit,
    cell_weights,
    effective_seeds,
    incomplete_table,
    mean_over_tasks,
    task_means,
)
from bakeoff.stats.numerics import TINY, Array, exponent, is_constant, mean, sd, t_quantile, tail, vector

FEW_TASKS = 5
"""Fixed tasks up to which two runs each get fewer degrees of freedom; with more tasks it would cost too much power."""
FEW_GROUPS = 5
"""Tasks or seeds of a crossed table up to which the smaller margin's own degrees of freedom count for half."""
THIN_TASK, FEW_IF_THIN = 3, 10
"""A task with so few seeds, among so few tasks, lowers the degrees of freedom of a table of fixed tasks."""
NORMAL_MARGINS = "assumes roughly normal margins"


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
        if not math.isfinite(half):  # a small fraction of a degree of freedom bounds nothing
            return unbounded(level)
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
    """V = max(V_task, V_seed, V_task + V_seed - V_cell) of a (T >= 2) x (S >= 2) table of differences, NaN where not run.

    With w = 1 / (T S_t), m = sum(w d) and u = w (d - m): V_task = T / (T-1) sum over tasks of (sum of u)^2, and V_seed
    likewise over seeds, with a larger factor where seeds weigh unequally; in a complete table these are the variances of the margins' means. Both contain the interaction,
    so V_cell, its mean square times sum(w^2), is subtracted once, as in two-way clustering (Cameron, Gelbach and Miller,
    JBES 2011). The maximum guards against a sum that is smaller than one of its margins, or negative.

    df: Satterthwaite's over V_task and V_seed with T - 1 and S* - 1, S* being `effective_seeds`, within
    [min(T, S*) - 1, T + S - 2]. A margin of 5 or fewer (T or S*) gets the geometric mean with min(T, S*) - 1, as its variance is too
    noisy for Satterthwaite's, and a margin of 2 gets 1.
    """
    x = incomplete_table(d, "d")
    tasks, seeds = x.shape
    w = cell_weights(x)
    centre = mean_over_tasks(x)
    u = w * np.nan_to_num(x - centre)
    by_task, by_seed = u.sum(axis=1), u.sum(axis=0)
    v_task = tasks / (tasks - 1.0) * float((by_task**2).sum())
    of_seed = w.sum(axis=0)
    # What m has of each seed is taken out of its own u. S / (S-1) gives that back where seeds weigh the same; a seed with
    # most of the weight would otherwise hide its own luck (20 x 20 with one seed on 18 of 20 tasks: 40 to 55 % false).
    squares = float((of_seed**2).sum())
    hidden = squares / (squares - 2.0 * float((of_seed**3).sum()) + squares**2)
    v_seed = max(seeds / (seeds - 1.0), hidden) * float((by_seed**2).sum())
    v_cell = additive_fit(x).mean_square * float((w**2).sum())
    rounding = 8.0 * float(np.spacing(np.nanmax(np.abs(x))))
    if float(np.abs(by_task).max()) * tasks <= rounding and float(np.abs(by_seed / of_seed).max()) <= rounding:
        # Margins without any spread: only the cells tell how uncertain the mean is.
        return CrossedVariance(v_task, v_seed, v_cell, v_cell, min(tasks, seeds) - 1.0)
    total = max(v_task, v_seed, v_task + v_seed - v_cell)
    df = two_way_df(np.array([v_task, v_seed]), np.array([tasks, effective_seeds(x)]), np.array([tasks, seeds]))
    return CrossedVariance(v_task, v_seed, v_cell, total, float(df))


def two_way_df(parts: Array, groups: Array, counted: Array) -> Array:
    """Degrees of freedom of a sum of variances of margins, (margins,) or (margins, replicates).

    Satterthwaite's with `groups` - 1 of each margin, at least those of the smallest and at most those of all `counted`
    together. A margin of 5 or fewer gets the geometric mean with its own, one of 2 gets 1.
    """
    if counted.min() == 2:
        return np.asarray(np.ones(parts.shape[1:]))
    largest = np.abs(parts).max(axis=0)
    share = parts / np.where(largest > 0.0, largest, 1.0)  # squares of very small variances would underflow
    own = (groups - 1.0).reshape(-1, *[1] * (parts.ndim - 1))
    least = float(groups.min()) - 1.0
    below = (share**2 / own).sum(axis=0)  # 0 without any variance
    df = np.where(below > 0.0, share.sum(axis=0) ** 2 / np.where(below > 0.0, below, 1.0), least)
    df = np.clip(df, least, float((counted - 1.0).sum()))
    return np.asarray(np.sqrt(df * least) if groups.min() <= FEW_GROUPS else df)


def runs_t(a: ArrayLike, b: ArrayLike) -> TStatistic:
    """t of the mean over tasks of (mean over B's runs - mean over A's): (tasks, runs) tables of arms that share tasks only.

    NaN where a run was not made on a task; two runs or more on each. V_task is that of the tasks' differences, V_run the
    sum over the arms of that of their runs' means around the tasks, and V_cell, which both contain, is subtracted once;
    V = max(V_task, V_run, V_task + V_run - V_cell), as in `crossed_variance`. Population: tasks and runs like these. n is
    the smallest number of tasks, of A's runs and of B's. Simulated with 2 to 10 runs an arm, 3 to 100 tasks and seven
    mixes of variance: at most 7.2 % false positives with 3 tasks, 5.9 % from 10 tasks on.
    """
    x, y = incomplete_table(a, "a"), incomplete_table(b, "b")
    v = runs_variance(x, y)
    differences = task_means(y) - task_means(x)
    if all(is_constant((arm - task_means(arm)[:, None])[~np.isnan(arm)]) for arm in (x, y)) and is_constant(
        differences
    ):
        raise ValueError("t over tasks and runs: zero spread")
    parts = np.array([v.task, *v.runs])
    total = max(v.task, sum(v.runs), v.task + sum(v.runs) - sum(v.cells))
    groups = np.array([float(len(x)), *v.groups])
    counted = np.array([float(len(x)), x.shape[1], y.shape[1]])
    n = int(counted.min())
    least = 2 if counted.max() >= LEAST_UNITS else LEAST_UNITS
    df = float(two_way_df(parts, groups, counted))
    return TStatistic(
        float(differences.mean()), math.sqrt(total), df, n, "t over tasks and runs", NORMAL_MARGINS, least
    )


@dataclass(frozen=True, slots=True)
class RunsVariance:
    """Parts of the variance of B - A, tasks and runs being samples; tuples have A's and B's. Unit: squared metric."""

    task: float
    runs: tuple[float, float]
    cells: tuple[float, float]
    groups: tuple[float, float]
    """Runs of each arm, fewer where some have most of the weight (`effective_seeds`)."""


def runs_variance(a: ArrayLike, b: ArrayLike) -> RunsVariance:
    """V_task, V_run and V_cell of `runs_t`, for the same tables."""
    x, y = incomplete_table(a, "a"), incomplete_table(b, "b")
    if len(x) != len(y):
        raise ValueError(f"both arms need the same tasks, got {len(x)} and {len(y)}")
    differences = task_means(y) - task_means(x)
    cells = [additive_fit(arm).mean_square * float((cell_weights(arm) ** 2).sum()) for arm in (x, y)]
    return RunsVariance(
        float(differences.var(ddof=1)) / differences.size,
        (_variance_of_seeds(x), _variance_of_seeds(y)),
        (cells[0], cells[1]),
        (effective_seeds(x), effective_seeds(y)),
    )


def _variance_of_seeds(x: Array) -> float:
    """Return the variance of the mean over fixed tasks of a (tasks, seeds) table, by whose seeds it is uncertain."""
    sizes = (~np.isnan(x)).sum(axis=1)
    if sizes.min() < 2:
        raise ValueError("a task with a single seed has no spread")
    inside = np.nan_to_num(x - task_means(x)[:, None]) * np.sqrt(sizes / (sizes - 1.0))[:, None]
    return float(((cell_weights(x) * inside).sum(axis=0) ** 2).sum())


def crossed_t(d: ArrayLike) -> TStatistic:
    """t of the mean of a (tasks, seeds) table of differences, NaN where not run. Population: tasks and seeds like these.

    Every task has the same weight. n = min(T, S).
    """
    x = incomplete_table(d, "d")
    if is_constant(x[~np.isnan(x)]):
        raise ValueError("crossed t: zero spread, every cell is equal")
    v = crossed_variance(x)
    # Two seeds decide: the single degree of freedom says how little they know.
    least = 2 if max(x.shape) >= LEAST_UNITS else LEAST_UNITS
    return TStatistic(mean_over_tasks(x), math.sqrt(v.total), v.df, min(x.shape), "crossed t", NORMAL_MARGINS, least)


def seeds_over_tasks_t(d: ArrayLike) -> TStatistic:
    """t of the mean of a (tasks, seeds) table of differences with absent cells. Population: these tasks, seeds like these.

    Every task has the same weight 1 / T. Each cell is compared with its own task's mean, because a seed that was run on
    some tasks only must not get the difficulty of those tasks as its own effect: with w = 1 / (T S_t),
    V = sum over seeds of (sum over tasks of w (d - m_t) sqrt(S_t / (S_t - 1)))^2, which is the variance of the mean of the
    seed means where the table is complete. S* - 1 degrees of freedom (`effective_seeds`), fewer where one of
    few tasks has 2 or 3 seeds. Every task needs 2 seeds.
    """
    x = incomplete_table(d, "d")
    variance = _variance_of_seeds(x)
    sizes = (~np.isnan(x)).sum(axis=1)
    df = effective_seeds(x) - 1.0
    if sizes.min() <= THIN_TASK and len(x) <= FEW_IF_THIN:
        # Much of the error can come from the task with the fewest seeds: 9 to 12 % false positives for 5 x 20 with a task
        # of 2 seeds, and 3 to 5 % with this mean.
        df = math.sqrt(df * (float(sizes.min()) - 1.0))
    if effective_seeds(x) < x.shape[1] / 2.0:
        # A few seeds have most of the weight: 8 to 10 % false positives for 40 x 10 with 2 seeds on 36 tasks without this.
        df /= 2.0
    return TStatistic(
        mean_over_tasks(x),
        math.sqrt(variance),
        df,
        x.shape[1],
        "crossed t over seeds",
        "assumes roughly normal seed means",
    )


def blocks_t(means: ArrayLike, sizes: ArrayLike) -> TStatistic:
    """t of the mean over all tasks, which fall into blocks that share nothing; `means` of blocks, `sizes` in tasks.

    V = G / (G-1) sum n_g^2 (mean_g - m)^2 / T^2 with (sum n)^2 / sum n^2 - 1 degrees of freedom. Population: blocks like
    these. n counts blocks.
    """
    x, n = vector(means, "means", at_least=2), vector(sizes, "sizes", at_least=2)
    centre = float(np.average(x, weights=n))
    variance = x.size / (x.size - 1.0) * float((n**2 * (x - centre) ** 2).sum()) / float(n.sum()) ** 2
    df = float(n.sum()) ** 2 / float((n**2).sum()) - 1.0
    return TStatistic(
        centre, math.sqrt(variance), df, x.size, "t over blocks", "assumes roughly normal means of blocks"
    )


def seeds_look_crossed(d: ArrayLike) -> float:
    """p of the two-way F test for a seed effect in a (tasks, seeds) table of differences, NaN where not run.

    The interaction is the error term, as there is one value a cell (Scheffe, The Analysis of Variance 1959,
    chapter 4). A p below .01 means that seeds which were declared nested in tasks behave as if they were
    shared between tasks. 1 where no seed recurs, so that nothing can show it.
    """
    fit = additive_fit(incomplete_table(d, "d"))
    if fit.seeds_df < 1 or fit.rest_df < 1:
        return 1.0
    if fit.rest <= 0.0:
        return 1.0 if fit.seeds <= 0.0 else TINY
    return float(sp.fdtrc(fit.seeds_df, fit.rest_df, fit.seeds / fit.seeds_df / fit.mean_square))


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
