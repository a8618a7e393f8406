"""Ranks: Wilcoxon and Mann-Whitney for two arms; Friedman, Nemenyi and Bradley-Terry for many.

The rank tests are shown beside the decision, for data whose mean is not to be trusted. Two-sided p: twice
the smaller tail. Textbook for all of them but Bradley-Terry: Lehmann, Nonparametrics 1975; Demsar, JMLR
2006, for many arms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike

from bakeoff.stats.numerics import (
    TINY,
    Array,
    average_ranks,
    bisect,
    matrix,
    normal_cdf,
    normal_quantile,
    probability,
    studentized_range_sf,
    t_quantile,
    tail,
    vector,
)

EXACT_SIGNED = 50
"""Non-zero differences up to which Wilcoxon's null distribution is counted, with ties and without."""
EXACT_SMALLER = 8
"""Size of the smaller arm up to which Mann-Whitney's null distribution is counted (without ties)."""
EXACT_POOLED = 50
"""Values of both arms up to which Mann-Whitney's null distribution is counted where there are ties."""


@dataclass(frozen=True, slots=True)
class RankTest:
    """A rank statistic, its two-sided p, and whether the null distribution was counted or approximated."""

    statistic: float
    p: float
    exact: bool


def _tie_sum(x: Array) -> float:
    """Sum of t^3 - t over groups of t equal values, which every tie correction is made of."""
    counts = np.unique(x, return_counts=True)[1].astype(np.float64)
    return float((counts**3 - counts).sum())


def wilcoxon(d: ArrayLike) -> RankTest:
    """Signed-rank test of symmetry about 0 (Wilcoxon 1945). statistic: the smaller rank sum.

    Zeros are dropped, as he did. Exact up to 50 non-zero differences, tied ones included, else normal with tie
    correction and no continuity correction.
    """
    x = vector(d, "d")
    x = x[x != 0.0]
    n = x.size
    if n == 0:
        return RankTest(0.0, 1.0, True)
    size = np.abs(x)
    ranks = average_ranks(size)
    plus = float(ranks[x > 0.0].sum())
    statistic = min(plus, n * (n + 1) / 2.0 - plus)
    if n <= EXACT_SIGNED:
        # counts[s]: how many of the 2^n sign patterns have half the rank sum s. Tied ranks are halves, so twice a rank
        # is whole. Counts stay below 2^53, so doubles are exact.
        counts = np.zeros(n * (n + 1) + 1)
        counts[0] = 1.0
        for twice in np.rint(2.0 * ranks).astype(int):
            counts[twice:] += counts[:-twice].copy()
        share = float(counts[: round(2.0 * statistic) + 1].sum()) / 2.0**n
        return RankTest(statistic, min(1.0, 2.0 * share), True)
    variance = n * (n + 1) * (2 * n + 1) / 24.0 - _tie_sum(size) / 48.0
    z = (statistic - n * (n + 1) / 4.0) / math.sqrt(variance)
    return RankTest(statistic, max(TINY, min(1.0, 2.0 * normal_cdf(z))), False)


def mann_whitney(a: ArrayLike, b: ArrayLike) -> RankTest:
    """Rank-sum test of two independent arms.

    statistic: U of b, the number of pairs that b wins (ties half). Exact without ties while the smaller arm
    has at most 8 values, and with ties up to 50 values in both arms; else normal with tie and continuity correction.
    """
    x, y = vector(a, "a"), vector(b, "b")
    n1, n2 = x.size, y.size
    pooled = np.concatenate((y, x))
    # U of b is its rank sum minus the smallest possible one.
    ranks = average_ranks(pooled)
    u = float(ranks[:n2].sum()) - n2 * (n2 + 1) / 2.0
    upper = max(u, n1 * n2 - u)
    if min(n1, n2) <= EXACT_SMALLER and np.unique(pooled).size == pooled.size:
        counts = _mann_whitney_counts(min(n1, n2), max(n1, n2))
        share = float(counts[round(upper) :].sum() / counts.sum())
        return RankTest(u, min(1.0, 2.0 * share), True)
    total = n1 + n2
    if np.unique(pooled).size < total <= EXACT_POOLED:
        # Of unequal arms with ties the two tails differ, so the smaller arm's own rank sum is looked up.
        smaller = ranks[:n2] if n2 <= n1 else ranks[n2:]
        return RankTest(u, min(1.0, 2.0 * _tied_tail(ranks, smaller)), True)
    variance = n1 * n2 / 12.0 * (total + 1.0 - _tie_sum(pooled) / (total * (total - 1.0)))
    if variance <= 0.0:
        return RankTest(u, 1.0, False)
    # 1/2 is the continuity correction.
    z = (upper - n1 * n2 / 2.0 - 0.5) / math.sqrt(variance)
    return RankTest(u, max(TINY, min(1.0, 2.0 * normal_cdf(-z))), False)


def _tied_tail(ranks: Array, arm: Array) -> float:
    """The smaller share of all subsets of ranks, as many as `arm` has, that sum to at least or at most as much."""
    twice = np.rint(2.0 * ranks).astype(int)  # tied ranks are halves
    # counts[k, s]: how many subsets of k ranks have half the sum s. Below 2^50, so doubles are exact.
    counts = np.zeros((arm.size + 1, int(twice.sum()) + 1))
    counts[0, 0] = 1.0
    for rank in twice:
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank].copy()
    shares, place = counts[-1] / counts[-1].sum(), round(2.0 * float(arm.sum()))
    return min(float(shares[place:].sum()), float(shares[: place + 1].sum()))


def _mann_whitney_counts(m: int, n: int) -> Array:
    """Number of splits with each U = 0..mn, shape (mn + 1,).

    They are the coefficients of the Gaussian binomial prod_i (1 - q^(n+i)) / (1 - q^i), multiplied and
    divided out one factor at a time (Harding, Applied Statistics 1984).
    """
    counts = np.zeros(m * n + 1)
    counts[0] = 1.0
    for i in range(1, m + 1):
        step = n + i
        if step < counts.size:
            counts[step:] = counts[step:] - counts[:-step].copy()
        for first in range(i):
            counts[first::i] = np.cumsum(counts[first::i])
    return counts


@dataclass(frozen=True, slots=True)
class AverageRanks:
    """Mean rank of each arm over tasks (1 is best), Friedman's test, and Nemenyi's critical difference at `alpha`.

    Two arms whose mean ranks differ by less than `critical_difference` cannot be distinguished.
    """

    ranks: tuple[float, ...]
    statistic: float
    p: float
    critical_difference: float
    alpha: float


def friedman(scores: ArrayLike, alpha: float = 0.05) -> AverageRanks:
    """Rank arms on every task and average.

    scores: (tasks, arms), larger is better, at least 2 tasks and 3 arms. Friedman's chi-square with tie
    correction (Lehmann 1975, chapter 6). Population: tasks like these.
    """
    x = matrix(scores, "scores", rows=2, columns=3)
    tasks, arms = x.shape
    # Rank 1 is the best arm of a task.
    ranks = np.stack([average_ranks(-row) for row in x])
    totals = ranks.sum(axis=0)
    correction = 1.0 - sum(_tie_sum(row) for row in ranks) / (tasks * arms * (arms**2 - 1.0))
    spread = 12.0 / (tasks * arms * (arms + 1.0)) * float((totals**2).sum()) - 3.0 * tasks * (arms + 1.0)
    # Where every task ties all arms the correction is 0, and so is the evidence.
    statistic = max(0.0, spread / correction) if correction > 0.0 else 0.0
    p = max(TINY, float(sp.chdtrc(arms - 1.0, statistic))) if correction > 0.0 else 1.0
    mean_ranks = tuple(float(r) for r in totals / tasks)
    return AverageRanks(mean_ranks, statistic, p, nemenyi_difference(tasks, arms, alpha), alpha)


def nemenyi_difference(tasks: int, arms: int, alpha: float = 0.05) -> float:
    """Difference of mean ranks above which two of `arms` arms differ at alpha, all pairs considered.

    q sqrt(k (k + 1) / 6N), q being the studentized range quantile over sqrt(2) (Demsar 2006, section
    3.2.2).
    """
    probability(alpha, "alpha")
    q = bisect(lambda point: studentized_range_sf(point, arms) > alpha, 0.0, 20.0)
    return q / math.sqrt(2.0) * math.sqrt(arms * (arms + 1.0) / (6.0 * tasks))


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Log strengths (mean 0) with normal intervals; P(i beats j) = 1 / (1 + exp(s_j - s_i))."""

    strength: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float


def bradley_terry(wins: ArrayLike, prior: float = 0.0, level: float = 0.95) -> BradleyTerry:
    """Strengths from pairwise outcomes, by maximum likelihood (Bradley and Terry, Biometrika 1952).

    wins[i, j]: how often i beat j, shape (arms, arms); a tie is half a win for each. `prior` adds that many
    half-won games to every pair. Without it, arms that never lost to (or never met) the rest have no finite
    strength (Ford 1957): ValueError. Intervals treat games as independent; see `bradley_terry_over`.
    """
    w = matrix(wins, "wins", rows=2, columns=2)
    if w.shape[0] != w.shape[1] or (w < 0.0).any():
        raise ValueError("wins must be a square matrix of numbers >= 0")
    w = w + prior / 2.0
    np.fill_diagonal(w, 0.0)
    # Ford's condition: every arm reaches every other along wins. Squaring the reach doubles the length of paths.
    reach = (w > 0.0) | np.eye(w.shape[0], dtype=bool)
    for _ in range(max(1, w.shape[0].bit_length())):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0.0  # integers are multiplied without BLAS
    if not reach.all():
        raise ValueError("some arms never lost to, or never met, the others: give a prior, such as 0.5")
    strength, information = _maximise(w)
    error = np.sqrt(np.diag(_pseudo_inverse(information)))
    return _around(strength, -normal_quantile(tail(level)) * error, level)


def _around(strength: Array, half: Array, level: float) -> BradleyTerry:
    columns = [tuple(float(v) for v in column) for column in (strength, strength - half, strength + half)]
    return BradleyTerry(columns[0], columns[1], columns[2], level)


def bradley_terry_over(scores: ArrayLike, prior: float = 0.0, level: float = 0.95) -> BradleyTerry:
    """Strengths from one game of every pair of arms on each task, with intervals for tasks like these.

    scores: (tasks, arms), larger wins, equal ones tie; at least 2 of each. Games on one task share its scores, so they
    are not independent: the error comes from leaving out one task at a time (one Newton step each, as in CR3 of Bell and
    McCaffrey, Survey Methodology 2002), with a t of tasks - 1 degrees of freedom. Raises ValueError as `bradley_terry`.
    """
    x = matrix(scores, "scores", rows=2, columns=2)
    tasks = x.shape[0]
    won = (np.sign(x[:, :, None] - x[:, None, :]) + 1.0) / 2.0
    won[:, np.arange(x.shape[1]), np.arange(x.shape[1])] = 0.0
    fit = bradley_terry(won.sum(axis=0), prior, level)
    strength = np.array(fit.strength)
    chance = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
    np.fill_diagonal(chance, 0.0)

    def laplacian(weight: Array) -> Array:
        return np.diag(weight.sum(axis=1)) - weight

    # Every pair plays once a task, so all tasks have the same share of the information.
    of_task = laplacian(chance * (1.0 - chance))
    others = _pseudo_inverse(of_task * (tasks - 1.0 + prior))
    moves = (won.sum(axis=2) - chance.sum(axis=1)[None, :]) @ others
    moves -= moves.mean(axis=0)
    error = np.sqrt((tasks - 1.0) / tasks * (moves**2).sum(axis=0))
    return _around(strength, -t_quantile(tasks - 1.0, tail(level)) * error, level)


def _pseudo_inverse(laplacian: Array) -> Array:
    """Return the pseudoinverse of the Laplacian of a connected graph, which is singular along (1, ..., 1) only.

    Strengths are defined up to a constant, along that direction. With a multiple of (1, ..., 1)(1, ..., 1)' added it can
    be inverted, thirty times as quickly as by its eigenvalues; where it is too close to singular those decide.
    """
    size = laplacian.shape[0]
    level = float(np.trace(laplacian)) / size
    try:
        inverse: Array = np.linalg.inv(laplacian + level / size) - 1.0 / (level * size)
    except (np.linalg.LinAlgError, ZeroDivisionError):
        inverse = np.zeros_like(laplacian)
    residual = np.abs(laplacian @ inverse @ laplacian - laplacian).max()
    if not residual <= 1e-9 * level:
        inverse = np.asarray(np.linalg.pinv(laplacian, rcond=1e-12, hermitian=True), dtype=np.float64)
    return inverse


def _maximise(w: Array) -> tuple[Array, Array]:
    """Strengths that maximise the likelihood, and the information there (a graph Laplacian), by Newton's method.

    The likelihood is concave; a step that overshoots is halved until it improves.
    """

    def log_likelihood(s: Array) -> float:
        return -float((w * np.logaddexp(0.0, s[None, :] - s[:, None])).sum())

    games = w + w.T
    s = np.zeros(w.shape[0])
    best = log_likelihood(s)
    information = np.zeros_like(w)
    for _ in range(200):
        chance = 1.0 / (1.0 + np.exp(s[None, :] - s[:, None]))
        gradient = w.sum(axis=1) - (games * chance).sum(axis=1)
        weight = games * chance * (1.0 - chance)
        information = np.diag(weight.sum(axis=1)) - weight
        step = _pseudo_inverse(information) @ gradient
        size = 1.0
        while log_likelihood(s + size * step) < best - 1e-12 * abs(best) and size > 1e-8:
            size /= 2.0
        s = s + size * step
        s -= s.mean()
        best = log_likelihood(s)
        if float(np.abs(size * step).max()) < 1e-12 * max(1.0, float(np.abs(s).max())):
            break
    return s, information
