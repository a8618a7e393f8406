"""Tests that a few extreme values cannot move: signed ranks, rank sums and 20 % trimmed means.

They are asked for by name (`statistic = "rank"` or `"trimmed"`) before results are known, and are about another centre
than the mean: the Hodges-Lehmann estimate, or the mean of the middle 60 %. p, interval and equivalence come from the
inversion of one test, as everywhere in this package.

    paired_robust(d, "rank").interval(0.95)
    unpaired_robust(a, b, "trimmed").p
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike

from bakeoff.stats.evidence import Evidence, Guarded, Interval, Tails, unbounded
from bakeoff.stats.numerics import TINY, Array, bisect, exponent, is_constant, tail, vector
from bakeoff.stats.permutation import TIE
from bakeoff.stats.ttests import TStatistic, satterthwaite

Statistic = Literal["mean", "rank", "trimmed"]
"""The centre that a verdict is about."""
ROBUST_UNITS = 10
"""Fewer units have too few ranks, and too few values in the middle, for a level of alpha / m."""
TRIMMED = 0.2
"""The share of values that a trimmed mean leaves out at each end."""
EXACT_RANKS = 100
"""Units up to which the null distribution of signed ranks is counted; beyond it is normal."""
EXACT_PAIRS = 2_500
"""Pairs of values of the two arms up to which that of rank sums is counted."""
SORTED_POINTS = 2**21
"""Points that are kept sorted: 16 MB. More of them (2,047 units) are counted each time."""


def paired_robust(d: ArrayLike, statistic: Statistic) -> Evidence:
    """Return the test of the differences d, shape (n,), of 10 units or more.

    Winsorized variances of scores in few steps are too small (Yuen's t alone rejects 11 % of equal arms with 30 scores in
    quarters), so signed ranks guard it.
    """
    x = vector(d, "d", at_least=2)
    ranks = SignedRanks(x)
    if statistic == "rank" or is_constant(x):
        return ranks
    return Guarded(TStatistic(trimmed_mean(x), *_standard_error(x), x.size, "Yuen t"), ranks)


def unpaired_robust(a: ArrayLike, b: ArrayLike, statistic: Statistic) -> Evidence:
    """Return the test of two independent samples of 10 or more.

    Rank sums take both arms to have one shape. Where that fails their error rate is wrong for arms of unequal size (13 %
    of 10 and 30 runs with standard deviations of 3 and 1), so Yuen's t guards them there.
    """
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    ranks = RankSum(x, y)
    if (is_constant(x) and is_constant(y)) or (statistic == "rank" and x.size == y.size):
        return ranks
    (of_a, df_a), (of_b, df_b) = _standard_error(x), _standard_error(y)
    effect, se = trimmed_mean(y) - trimmed_mean(x), math.hypot(of_a, of_b)
    df = satterthwaite((np.array([of_a, of_b]) / se) ** 2, np.array([df_a, df_b]))
    yuen = TStatistic(effect, se, df, ranks.n, "Yuen-Welch t", "assumes arms of one shape, or roughly symmetric values")
    return Guarded(ranks, yuen) if statistic == "rank" else Guarded(yuen, ranks)


def trimmed_mean(x: Array) -> float:
    """Return the mean of what is left of x, shape (n,), without the lowest and highest 20 %."""
    cut = math.floor(TRIMMED * x.size)
    return float(np.sort(x)[cut : x.size - cut].mean())


def _standard_error(x: Array) -> tuple[float, float]:
    """Return the standard error of a trimmed mean, and its degrees of freedom (Yuen, Biometrika 1974).

    It comes from the winsorized variance. Values whose middle is all equal have an error as large as rounding.
    """
    cut = math.floor(TRIMMED * x.size)
    e = exponent(x)
    middle = np.ldexp(np.sort(x)[cut : x.size - cut], -e)
    winsorized = np.clip(np.ldexp(x, -e), middle[0], middle[-1])
    kept = middle.size
    square = float(((winsorized - winsorized.mean()) ** 2).sum()) / (kept * (kept - 1.0))
    return float(np.ldexp(max(math.sqrt(square), TIE), e)), kept - 1.0


class _Counted(Evidence):
    """A test that counts how many of its points lie above x: at the true centre that number has a known distribution.

    Points are sums of two terms, first[i] + second[j]. Ties of a point with x count half.
    """

    monotone = True
    assumes = ""

    def __init__(self, first: Array, second: Array, n: int, same: bool) -> None:
        """`same`: the terms are the same values, and only pairs with i <= j are points."""
        self.n, self._same = n, same
        self._first, self._second = np.sort(first), np.sort(second)
        size = self._first.size * self._second.size
        self._points = (size + self._first.size) // 2 if same else size
        self._sorted: Array | None = None
        if self._points <= SORTED_POINTS:
            sums = self._first[:, None] + self._second[None, :]
            self._sorted = np.sort(sums[np.triu_indices(first.size)] if same else sums.ravel())
        self._tie = TIE * 2.0 * max(float(np.abs(first).max()), float(np.abs(second).max()))
        middle = (self._points - 1) / 2.0
        low, high = self._point(math.floor(middle)), self._point(math.ceil(middle))
        self.effect = low + (high - low) / 2.0
        self.floor = 2.0 * self._at_least(float(self._points))

    def _at_least(self, count: float) -> float:
        """The chance that at least so many points lie above the true centre; halves lie between their neighbours."""
        raise NotImplementedError

    def _below(self, x: float, strictly: bool) -> int:
        """The number of points below x, or up to it."""
        side: Literal["left", "right"] = "left" if strictly else "right"
        if self._sorted is not None:
            return int(np.searchsorted(self._sorted, x, side))
        pairs = int(np.searchsorted(self._second, x - self._first, side).sum())
        return (pairs + int(np.searchsorted(2.0 * self._first, x, side))) // 2 if self._same else pairs

    def _point(self, place: int) -> float:
        """The point with so many points below it."""
        if self._sorted is not None:
            return float(self._sorted[place])
        ends = float(self._first[0] + self._second[0]), float(self._first[-1] + self._second[-1])
        return bisect(lambda x: self._below(x, strictly=True) <= place, *ends)

    def tails(self, x: float) -> Tails:
        below = self._below(x - self._tie, strictly=True)
        above = self._points - self._below(x + self._tie, strictly=False)
        ties = (self._points - below - above) / 2.0
        return Tails(self._at_least(above + ties), self._at_least(below + ties))

    def interval(self, level: float) -> Interval:
        half = tail(level) * (1.0 + 1e-12)
        if self._at_least(float(self._points)) > half:
            return unbounded(level)
        # As many points lie below the interval as may: P(at least all others above) <= half.
        cut, kept = 0, self._points // 2 + 1
        while kept - cut > 1:
            middle = (cut + kept) // 2
            cut, kept = (middle, kept) if self._at_least(float(self._points - middle)) <= half else (cut, middle)
        low, high = self._point(cut), self._point(self._points - 1 - cut)
        return Interval(low, high, level, self.tails(low).greater <= half, self.tails(high).less <= half)


class SignedRanks(_Counted):
    """Signed ranks of paired differences d, shape (n,), and the Hodges-Lehmann estimate.

    The points are the means of all pairs of differences, of each with itself too: the number above x is Wilcoxon's
    statistic of d - x (Tukey 1949; Hodges and Lehmann, Ann. Math. Stat. 1963). Ties make it less variable than the
    distribution that it is held against, so p is never too small for them.
    """

    method = "signed ranks"
    assumes = "assumes roughly symmetric differences"

    def __init__(self, d: ArrayLike) -> None:
        x = vector(d, "d", at_least=2)
        super().__init__(x / 2.0, x / 2.0, x.size, same=True)

    def _at_least(self, count: float) -> float:
        if self.n > EXACT_RANKS:
            variance = self.n * (self.n + 1.0) * (2.0 * self.n + 1.0) / 24.0
            return _normal_tail(count, self._points, variance)
        return _between(_signed_rank_tail(self.n), count)


class RankSum(_Counted):
    """Rank sums of two independent samples, and the Hodges-Lehmann estimate of the shift from a to b.

    The points are all differences b_j - a_i: the number above x is Mann and Whitney's U of b - x against a.
    """

    method = "rank sum"
    assumes = "assumes arms of one shape"

    def __init__(self, a: ArrayLike, b: ArrayLike) -> None:
        x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
        self._sizes = min(x.size, y.size), max(x.size, y.size)
        super().__init__(-x, y, min(x.size, y.size), same=False)

    def _at_least(self, count: float) -> float:
        if self._points > EXACT_PAIRS:
            return _normal_tail(count, self._points, self._points * (sum(self._sizes) + 1.0) / 12.0)
        return _between(_rank_sum_tail(*self._sizes), count)


def _normal_tail(count: float, points: int, variance: float) -> float:
    """P(at least `count`), with continuity correction."""
    return max(TINY, float(sp.ndtr((points / 2.0 - count + 0.5) / math.sqrt(variance))))


def _between(tail_of: Array, count: float) -> float:
    """Return P(at least `count`) from a table of whole counts; halves lie between their neighbours."""
    low, high = math.floor(count), math.ceil(count)
    return float(tail_of[low] + tail_of[high]) / 2.0


@lru_cache(maxsize=64)
def _signed_rank_tail(n: int) -> Array:
    """P(T >= k) of Wilcoxon's statistic without ties, for k = 0 .. n(n+1)/2."""
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        chances[rank:] += chances[:-rank].copy()
        chances /= 2.0
    return np.asarray(np.minimum(1.0, np.cumsum(chances[::-1])[::-1]))


@lru_cache(maxsize=64)
def _rank_sum_tail(m: int, n: int) -> Array:
    """P(U >= k) of Mann and Whitney's statistic without ties, for k = 0 .. mn."""
    # chances[j, k]: of j values of the smaller arm among the first i of all, k pairs are won.
    chances = np.zeros((m + 1, m * n + 1))
    chances[0, 0] = 1.0
    for drawn in range(m + n):
        # The next value in order belongs to the smaller arm with a chance that depends on how many of it are left.
        later = np.zeros_like(chances)
        for j in range(max(0, drawn - n), min(m, drawn) + 1):
            left, others = m - j, n - (drawn - j)
            share = left / (left + others)
            won = drawn - j  # of the other arm, all below
            if left:
                later[j + 1, won:] += share * chances[j, : chances.shape[1] - won]
            if others:
                later[j] += (1.0 - share) * chances[j]
        chances = later
    return np.asarray(np.minimum(1.0, np.cumsum(chances[m][::-1])[::-1]))
