"""Two independent samples: permutation tests, exact where that is possible, and the decision's test for unpaired arms.

Two-sided convention: twice the smaller tail, at most 1 (scipy's convention; `|stat| >= |observed|` differs from it
when the sizes differ). Ties count whole, as does the observed split, so each tail is a valid p of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.interval import Interval, unbounded
from bakeoff.stats.signflip import DRAWS, TIE
from bakeoff.stats.special import TINY, log_choose
from bakeoff.stats.subsets import random_subsets, sums_by_size
from bakeoff.stats.ttests import TStatistic, welch_t
from bakeoff.stats.vectors import Array, Seed, exponent, generator, mean, vector

EXACT_POOLED = 30
"""Pooled size up to which the mean difference is tested exactly, by meeting in the middle."""
EXACT_SPLITS = 200_000
"""Splits up to which Welch's t is tested exactly; it needs the sums of squares, so every split is visited."""
REMEMBERED = 40
"""Size of the smaller arm up to which the random subsets of a seed are kept for the next call (4 MB at most)."""


@dataclass(frozen=True, slots=True)
class PermutationTails:
    """One-sided permutation p-values of 'B's mean is not above (greater) / not below (less) A's'."""

    greater: float
    less: float
    splits: float
    exact: bool

    @property
    def p(self) -> float:
        """Two-sided p: twice the smaller tail."""
        return min(1.0, 2.0 * min(self.greater, self.less))


def split_count(n1: int, n2: int) -> float:
    """Number of ways to split n1 + n2 values into groups of these sizes (inf where it overflows a double)."""
    logarithm = log_choose(n1 + n2, n1)
    return float(math.comb(n1 + n2, n1)) if logarithm < 700.0 else math.inf


def permutation_mean(a: ArrayLike, b: ArrayLike, seed: Seed = 0) -> PermutationTails:
    """Permutation test of mean(b) - mean(a): exact up to 30 pooled values, else 99,999 seeded random splits."""
    x, y = vector(a, "a"), vector(b, "b")
    first, second, swapped = _canonical(x, y)
    pooled = _centred(np.concatenate((first, second)))
    observed = float(pooled[: first.size].sum())
    tie = TIE * float(np.abs(pooled).max())
    pooled.sort()
    if pooled.size <= EXACT_POOLED:
        high, low = _exact_tail_counts(pooled, first.size, observed, tie)
        return _tails(high, low, split_count(x.size, y.size), True, swapped)
    sums = _random_sums(pooled[:, None], first.size, seed)[:, 0]
    return _monte_carlo(sums, observed, tie, swapped)


def permutation_welch(a: ArrayLike, b: ArrayLike, seed: Seed = 0) -> PermutationTails:
    """Permutation test whose statistic is Welch's t: robust to unequal sizes. Exact up to 200,000 splits, else random."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    first, second, swapped = _canonical(x, y)
    n1, n2 = first.size, second.size
    pooled = _centred(np.concatenate((first, second)))
    columns = np.stack((pooled, pooled**2), axis=1)
    total = columns.sum(axis=0)
    observed = float(_welch_from_sums(columns[:n1].sum(axis=0)[None, :], total, n1, n2)[0])
    tie = 1e-9 * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
    columns = columns[np.argsort(pooled, kind="stable")]
    splits = split_count(n1, n2)
    if splits <= EXACT_SPLITS:
        t = _welch_from_sums(sums_by_size(columns, n1)[n1], total, n1, n2)
        return _tails(float((t >= observed - tie).sum()), float((t <= observed + tie).sum()), splits, True, swapped)
    t = _welch_from_sums(_random_sums(columns, n1, seed), total, n1, n2)
    return _monte_carlo(t, observed, tie, swapped)


def _canonical(x: Array, y: Array) -> tuple[Array, Array, bool]:
    """The smaller arm first, of equal ones the larger-valued; so swapping the arms swaps the tails exactly."""
    if x.size != y.size:
        return (x, y, False) if x.size < y.size else (y, x, True)
    u, v = np.sort(x), np.sort(y)
    differs = np.flatnonzero(u != v)
    return (y, x, True) if differs.size and u[differs[0]] < v[differs[0]] else (x, y, False)


def _centred(pooled: Array) -> Array:
    """Pooled values about their median, scaled to at most 2: sums of fixed size only shift, and keep their digits."""
    scaled = np.ldexp(pooled, -exponent(pooled))
    moved: Array = scaled - np.median(scaled)
    return np.ldexp(moved, -exponent(moved))


def _exact_tail_counts(pooled: Array, size: int, observed: float, tie: float) -> tuple[float, float]:
    """How many `size`-subsets sum to at least, and to at most, `observed`. Halves are joined by sorted search."""
    middle = pooled.size // 2
    # Interleaved halves have like values, so the sorted sums overlap and searches stay short.
    left = sums_by_size(pooled[0::2][:, None], min(size, pooled.size - middle))
    right = sums_by_size(pooled[1::2][:, None], min(size, middle))
    at_least = at_most = 0
    for k, sums in enumerate(left):
        if not 0 <= size - k < len(right) or not sums.size or not right[size - k].size:
            continue
        needles = np.sort(observed - sums[:, 0])
        haystack = np.sort(right[size - k][:, 0])
        at_most += int(np.searchsorted(haystack, needles + tie, side="right").sum())
        below = int(np.searchsorted(haystack, needles - tie, side="left").sum())
        at_least += needles.size * haystack.size - below
    return float(at_least), float(at_most)


def _random_sums(columns: Array, size: int, seed: Seed) -> Array:
    """Column sums over DRAWS random subsets of `size` rows, shape (DRAWS, columns)."""
    n = columns.shape[0]
    if isinstance(seed, int) and n <= 256 and size <= REMEMBERED:
        sums = np.zeros((columns.shape[1], DRAWS))
        for picks in _remembered_subsets(n, size, seed):
            for total, column in zip(sums, columns.T, strict=True):
                total += column.take(picks)
        return sums.T
    return np.concatenate([columns[index].sum(axis=1) for index in random_subsets(n, size, DRAWS, generator(seed))])


@lru_cache(maxsize=4)
def _remembered_subsets(n: int, size: int, seed: int) -> NDArray[np.uint8]:
    """The subsets of a seed, shape (size, DRAWS): they depend on the sizes alone, and a family asks again and again."""
    blocks = [index.T.astype(np.uint8) for index in random_subsets(n, size, DRAWS, generator(seed))]
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))


def _welch_from_sums(part: Array, total: Array, n1: int, n2: int) -> Array:
    """Welch's t of group 1 minus group 2 from group 1's (sum, sum of squares), shape (splits, 2)."""
    s1, q1 = part[:, 0], part[:, 1]
    s2, q2 = total[0] - s1, total[1] - q1
    v1 = np.maximum(q1 - s1**2 / n1, 0.0) / (n1 - 1) / n1
    v2 = np.maximum(q2 - s2**2 / n2, 0.0) / (n2 - 1) / n2
    difference = s1 / n1 - s2 / n2
    # A split into two constant groups has no spread: rounding leaves about 1e-16, and its t is infinite.
    spread = v1 + v2
    flat = spread <= 1e-14
    difference = np.where(np.abs(difference) <= 1e-12, 0.0, difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = difference / np.sqrt(np.where(flat, 0.0, spread))
    return np.asarray(np.nan_to_num(t, nan=0.0, posinf=np.inf, neginf=-np.inf), dtype=np.float64)


def _monte_carlo(statistics: Array, observed: float, tie: float, swapped: bool) -> PermutationTails:
    """(1 + count) / (1 + draws): the observed split is one of the draws."""
    high = 1.0 + float((statistics >= observed - tie).sum())
    low = 1.0 + float((statistics <= observed + tie).sum())
    return _tails(high, low, statistics.size + 1.0, False, swapped)


def _tails(high: float, low: float, splits: float, exact: bool, swapped: bool) -> PermutationTails:
    """High values of the canonical statistic speak for the first group; B is the second group unless swapped."""
    up, down = min(1.0, high / splits), min(1.0, low / splits)
    return PermutationTails(up, down, splits, exact) if swapped else PermutationTails(down, up, splits, exact)


@dataclass(frozen=True, eq=False)
class Unpaired:
    """The decision's evidence for two independent arms: at every x the larger of permutation p and Welch p.

    Either alone fails somewhere (permutation under unequal sizes and spreads, Welch on lumpy data); the larger of
    two valid p-values does not. `permute` is False where so few splits exist that the permutation could never reject.
    """

    a: Array
    b: Array
    permute: bool
    seed: int = 0
    monotone = False
    welch: TStatistic | None = field(init=False)
    _known: dict[float, PermutationTails] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", vector(self.a, "a", at_least=2))
        object.__setattr__(self, "b", vector(self.b, "b", at_least=2))
        try:
            welch = welch_t(self.a, self.b)
        except ValueError:
            welch = None  # both arms constant: the permutation alone speaks, however few its splits
        object.__setattr__(self, "welch", welch)

    @property
    def n(self) -> int:
        """Size of the smaller arm."""
        return min(self.a.size, self.b.size)

    @property
    def effect(self) -> float:
        """mean(b) - mean(a)."""
        return mean(self.b) - mean(self.a) if self.welch is None else self.welch.effect

    @property
    def _permutes(self) -> bool:
        return self.permute or self.welch is None

    @property
    def method(self) -> str:
        """Which of the two tests speak."""
        if not self._permutes:
            return "Welch t"
        return "permutation" if self.welch is None else "permutation and Welch t"

    @property
    def assumes(self) -> str:
        """Condition of the error rate."""
        if not self._permutes:
            return "assumes roughly normal means in both arms (too few splits to permute)"
        return "assumes runs independent; the larger of permutation and Welch p"

    @property
    def floor(self) -> float:
        """Two-sided floor of the permutation, or of t when there is none."""
        return 2.0 / self._tails(0.0).splits if self._permutes else 2.0 * TINY

    def _tails(self, x: float) -> PermutationTails:
        if x not in self._known:
            test = permutation_mean if self.a.size == self.b.size else permutation_welch
            self._known[x] = test(self.a, self.b - x, self.seed)
        return self._known[x]

    def greater(self, x: float) -> float:
        """One-sided p of 'mean(b) - mean(a) <= x'."""
        permuted = self._tails(x).greater if self._permutes else 0.0
        return max(permuted, 0.0 if self.welch is None else self.welch.greater(x))

    def less(self, x: float) -> float:
        """One-sided p of 'mean(b) - mean(a) >= x'."""
        permuted = self._tails(x).less if self._permutes else 0.0
        return max(permuted, 0.0 if self.welch is None else self.welch.less(x))

    def raw_interval(self, level: float) -> Interval:
        """Welch's interval; with two constant arms the single difference, or everything when p is too large."""
        if self.welch is not None:
            return self.welch.interval(level)
        if 2.0 * min(self.greater(0.0), self.less(0.0)) > 1.0 - level:
            return unbounded(level)
        return Interval(self.effect, self.effect, level)


def permutation_is_useful(n1: int, n2: int, alpha: float, comparisons: int) -> bool:
    """Whether enough splits exist to reject at alpha/comparisons: C(n1+n2, n1) alpha / 2m >= 3."""
    return split_count(n1, n2) * alpha / (2.0 * comparisons) >= 3.0


def unpaired(a: ArrayLike, b: ArrayLike, alpha: float = 0.05, comparisons: int = 1, seed: int = 0) -> Unpaired:
    """Design U: evidence from two independent samples; whether to permute follows from sizes, alpha and m alone."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    return Unpaired(x, y, permutation_is_useful(x.size, y.size, alpha, comparisons), seed)
