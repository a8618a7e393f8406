"""Rank tests of two arms: Wilcoxon's signed ranks and Mann-Whitney.

Beside the decision, for data whose mean is not to be trusted. Two-sided p: twice the smaller tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.special import TINY, normal_cdf
from bakeoff.stats.vectors import Array, vector

EXACT_SIGNED = 50
"""Non-zero differences up to which Wilcoxon's null distribution is counted (without ties)."""
EXACT_SMALLER = 8
"""Size of the smaller arm up to which Mann-Whitney's null distribution is counted (without ties)."""


@dataclass(frozen=True, slots=True)
class RankTest:
    """A rank statistic, its two-sided p, and whether the null distribution was counted or approximated."""

    statistic: float
    p: float
    exact: bool


def average_ranks(x: ArrayLike) -> Array:
    """Ranks from 1, ties sharing the mean of their ranks."""
    values = vector(x, "x")
    _, member, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[member], dtype=np.float64)


def _tie_sum(x: Array) -> float:
    """Sum of t^3 - t over groups of t equal values."""
    counts = np.unique(x, return_counts=True)[1].astype(np.float64)
    return float((counts**3 - counts).sum())


def wilcoxon(d: ArrayLike) -> RankTest:
    """Signed-rank test of symmetry about 0; zeros are dropped (Wilcoxon's own rule). statistic: the smaller rank sum.

    Exact up to 50 non-zero differences without ties, else normal with tie correction and no continuity correction.
    """
    x = vector(d, "d")
    x = x[x != 0.0]
    n = x.size
    if n == 0:
        return RankTest(0.0, 1.0, True)
    size = np.abs(x)
    ranks = average_ranks(size)
    plus = float(ranks[x > 0.0].sum())
    minus = n * (n + 1) / 2.0 - plus
    statistic = min(plus, minus)
    if n <= EXACT_SIGNED and np.unique(size).size == n:
        counts = _signed_rank_counts(n)
        tail = float(counts[: int(statistic) + 1].sum()) / 2.0**n
        return RankTest(statistic, min(1.0, 2.0 * tail), True)
    variance = n * (n + 1) * (2 * n + 1) / 24.0 - _tie_sum(size) / 48.0
    z = (statistic - n * (n + 1) / 4.0) / math.sqrt(variance)
    return RankTest(statistic, max(TINY, min(1.0, 2.0 * normal_cdf(z))), False)


def _signed_rank_counts(n: int) -> Array:
    """How many of the 2^n sign patterns give each rank sum 0..n(n+1)/2 (whole numbers below 2^53)."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1.0
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return counts


def mann_whitney(a: ArrayLike, b: ArrayLike) -> RankTest:
    """Rank-sum test of two independent arms. statistic: U of b, the number of pairs that b wins (ties half).

    Exact without ties while the smaller arm has at most 8 values, else normal with tie and continuity correction.
    """
    x, y = vector(a, "a"), vector(b, "b")
    n1, n2 = x.size, y.size
    pooled = np.concatenate((y, x))
    u = float(average_ranks(pooled)[:n2].sum()) - n2 * (n2 + 1) / 2.0
    upper = max(u, n1 * n2 - u)
    if min(n1, n2) <= EXACT_SMALLER and np.unique(pooled).size == pooled.size:
        counts = _mann_whitney_counts(min(n1, n2), max(n1, n2))
        tail = float(counts[round(upper) :].sum() / counts.sum())
        return RankTest(u, min(1.0, 2.0 * tail), True)
    total = n1 + n2
    variance = n1 * n2 / 12.0 * (total + 1.0 - _tie_sum(pooled) / (total * (total - 1.0)))
    if variance <= 0.0:
        return RankTest(u, 1.0, False)
    z = (upper - n1 * n2 / 2.0 - 0.5) / math.sqrt(variance)
    return RankTest(u, max(TINY, min(1.0, 2.0 * normal_cdf(-z))), False)


def _mann_whitney_counts(m: int, n: int) -> Array:
    """Number of splits with each U = 0..mn, by the Gaussian binomial's product formula (float, scaled as it grows)."""
    counts = np.zeros(m * n + 1)
    counts[0] = 1.0
    for i in range(1, m + 1):
        step = n + i
        if step < counts.size:
            counts[step:] = counts[step:] - counts[:-step].copy()
        for first in range(i):
            counts[first::i] = np.cumsum(counts[first::i])
    return counts
