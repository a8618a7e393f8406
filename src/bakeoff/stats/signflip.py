"""The sign-flip test of paired differences, and everything that follows from it: p, interval, equivalence.

Under 'the differences are symmetric about x', each subset of the units is as likely as any other to have been turned
around, and turning subset S changes the total's sign relative to x exactly when the mean of S lies beyond x. So one
sorted array, the means of all non-empty subsets, answers every question: a p at x is a count of means below x, and
an interval is a pair of order statistics. Ties count half, the identity counts whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.interval import Interval
from bakeoff.stats.vectors import Array, Seed, exponent, generator, probability, vector

EXACT_UNITS = 20
"""Up to here all 2^N subsets are held (8 MB at 20 units)."""
EXACT_COUNT_UNITS = 40
"""Up to here `exact_tails` counts all 2^N subsets without holding them."""
DRAWS = 99_999
"""Random subsets above EXACT_UNITS; with the identity they make a round 100,000."""
REMEMBERED = 256
"""Units up to which the random subsets of a seed are kept for the next call (3 MB at most)."""
TIE = 1e-9
"""Two means closer than this times max|d| are one: float noise must not decide a tie."""


class SignFlip:
    """Sign-flip evidence from N paired differences d = B - A, one for each independent unit.

    Population: units like these; valid when the two arms are exchangeable within a unit (then d is symmetric).
    Invariants: the order of d does not matter, not even to the random subsets; -d gives the mirrored answers.
    """

    __slots__ = ("_below_all", "_exponent", "_means", "_tie", "_total", "effect", "exact", "n")

    method = "sign-flip"
    monotone = True

    def __init__(self, d: ArrayLike, seed: Seed = 0) -> None:
        values, mirrored = _canonical(vector(d, "d"))
        self.n = values.size
        self.exact = self.n <= EXACT_UNITS
        self._exponent = exponent(values)
        scaled = np.ldexp(values, -self._exponent)
        if self.exact:
            means, identities = _all_subset_means(scaled), 1
        else:
            means, identities = _random_subset_means(scaled, seed)
        self._means = -means[::-1] if mirrored else means
        self._below_all = identities
        self._total = means.size + identities
        self._tie = TIE * float(np.abs(scaled).max())
        centre = -scaled.mean() if mirrored else scaled.mean()
        self.effect = float(np.ldexp(centre, self._exponent))

    @property
    def assumes(self) -> str:
        """Condition of the error rate, and how the null distribution was counted."""
        how = "all sign patterns" if self.exact else f"{self._total - 1:,} random sign patterns"
        return f"assumes arms exchangeable within a unit ({how})"

    @property
    def floor(self) -> float:
        """Smallest two-sided p: 2/2^N, or 2/100,000 when subsets were drawn."""
        return 2.0 * self._below_all / self._total

    @property
    def p(self) -> float:
        """Two-sided p of 'centre = 0'."""
        return min(1.0, 2.0 * min(self.greater(0.0), self.less(0.0)))

    def p_equivalent(self, margin: float) -> float:
        """p of 'the centre is at least `margin` away from 0': the larger of the two one-sided p."""
        return max(self.greater(-margin), self.less(margin))

    def greater(self, x: float) -> float:
        """One-sided p of 'centre <= x'."""
        below, ties = self._count(x)
        return (self._below_all + below + 0.5 * ties) / self._total

    def less(self, x: float) -> float:
        """One-sided p of 'centre >= x'."""
        below, ties = self._count(x)
        return (self._below_all + (self._means.size - below - ties) + 0.5 * ties) / self._total

    def _count(self, x: float) -> tuple[int, int]:
        """How many subset means lie below x, and how many tie with it."""
        with np.errstate(over="ignore", under="ignore"):
            point = float(np.ldexp(x, -self._exponent))
        below = int(np.searchsorted(self._means, point - self._tie, side="left"))
        up_to = int(np.searchsorted(self._means, point + self._tie, side="right"))
        return below, up_to - below

    def raw_interval(self, level: float) -> Interval:
        """Same as `interval`: ends at order statistics of the subset means."""
        return self.interval(level)

    def interval(self, level: float) -> Interval:
        """All x that the two-sided test keeps at 1 - level; infinite where so few units can reject nothing."""
        half = (1.0 - probability(level, "level")) / 2.0
        # The last order statistic that is still rejected just outside itself.
        j = math.floor(half * self._total * (1.0 + 1e-12) - self._below_all)
        if j < 0:
            return Interval(-math.inf, math.inf, level, low_open=True, high_open=True)
        j = min(j, (self._means.size - 1) // 2)
        low, high = (float(np.ldexp(self._means[i], self._exponent)) for i in (j, -1 - j))
        at_most = half * (1.0 + 1e-12)
        return Interval(low, high, level, low_open=self.greater(low) <= at_most, high_open=self.less(high) <= at_most)


@dataclass(frozen=True, slots=True)
class ExactTails:
    """How many of the 2^n subsets of d have a mean below, at or above x. The empty subset (identity) is left out."""

    n: int
    below: int
    ties: int
    above: int

    @property
    def p(self) -> float:
        """Two-sided p with ties counted half: the decision's convention."""
        tail = min(self.below, self.above) + 0.5 * self.ties
        return min(1.0, 2.0 * (1.0 + tail) / 2.0**self.n)


def exact_tails(d: ArrayLike, x: float = 0.0) -> ExactTails:
    """Exact sign-flip counts at x for up to 40 pairs, by meeting in the middle: 2^(n/2) work in place of 2^n."""
    values, mirrored = _canonical(vector(d, "d"))
    n = values.size
    if n > EXACT_COUNT_UNITS:
        raise ValueError(f"exact counting goes up to {EXACT_COUNT_UNITS} pairs, got {n}; SignFlip draws subsets")
    e = exponent(values)
    scaled = np.ldexp(values, -e)
    with np.errstate(over="ignore", under="ignore"):
        shift = float(np.ldexp(x, -e))
    moved = scaled - (-shift if mirrored else shift)
    tie = TIE * float(np.abs(scaled).max())
    one, other = _sorted_subset_sums(moved[: n // 2]), _sorted_subset_sums(moved[n // 2 :])
    # Needles in ascending order, in one block of memory, walk the haystack once and stay in cache.
    needles = np.ascontiguousarray(-other[::-1])
    position = np.searchsorted(one, needles - tie, side="left")
    below = int(position.sum())
    # Only a needle whose next sum lies within the tolerance has ties at all: search again for those alone.
    tied = one.take(position, mode="clip") <= needles + tie
    tied &= position < one.size
    up_to = below + int((np.searchsorted(one, needles[tied] + tie, side="right") - position[tied]).sum())
    ties = up_to - below - 1  # the empty subset sums to 0 and is the identity
    above = 2**n - up_to
    return ExactTails(n, above, ties, below) if mirrored else ExactTails(n, below, ties, above)


def _canonical(d: Array) -> tuple[Array, bool]:
    """d in an order, and with a sign, that neither the order of rows nor the naming of arms can influence."""
    ascending = np.sort(d)
    mirror = -ascending[::-1]
    differs = np.flatnonzero(ascending != mirror)
    flipped = bool(differs.size and ascending[differs[0]] < mirror[differs[0]])
    return (mirror, True) if flipped else (ascending, False)


def _all_subset_means(d: Array) -> Array:
    """Sorted means of the 2^n - 1 non-empty subsets of d."""
    sums = np.zeros(2**d.size)
    for k, value in enumerate(d):
        np.add(sums[: 2**k], value, out=sums[2**k : 2 ** (k + 1)])
    means: Array = sums[1:] / _subset_sizes(d.size)[1:]
    means.sort()
    return means


@lru_cache(maxsize=4)
def _subset_sizes(n: int) -> NDArray[np.uint8]:
    """How many of n units each subset holds, in the order of `_all_subset_means`: a family asks again and again."""
    sizes = np.zeros(1, dtype=np.uint8)
    for _ in range(n):
        sizes = np.concatenate((sizes, sizes + np.uint8(1)))
    return sizes


def _sorted_subset_sums(d: Array) -> Array:
    """Sorted sums of all 2^n subsets of d, the empty one included."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums, sums + value))
    sums.sort()
    return sums


def _random_subset_means(d: Array, seed: Seed) -> tuple[Array, int]:
    """Sorted means of DRAWS random subsets; the second value counts the identity and every empty draw.

    Eight units share one random byte, which picks the sum of its subset from a table of 256: an eighth of the
    lookups, and no (draws x units) matrix.
    """
    remembered = isinstance(seed, int) and d.size <= REMEMBERED
    picks = _remembered_picks(d.size, seed) if remembered else _random_picks(d.size, generator(seed))
    sums, sizes = np.zeros(DRAWS), np.zeros(DRAWS, dtype=np.int32)
    for start, pick in zip(range(0, d.size, 8), picks, strict=True):
        table = np.zeros(1)
        for value in d[start : start + 8]:
            table = np.concatenate((table, table + value))
        sums += table.take(pick)
        sizes += _subset_sizes(min(8, d.size - start)).take(pick)
    drawn = sizes > 0
    means: Array = sums[drawn] / sizes[drawn]
    means.sort()
    return means, 1 + int(DRAWS - drawn.sum())


def _random_picks(n: int, rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """DRAWS random subsets of n units, eight units at a time."""
    for start in range(0, n, 8):
        yield rng.integers(0, 2 ** min(8, n - start), DRAWS, dtype=np.uint16).astype(np.uint8)


@lru_cache(maxsize=2)
def _remembered_picks(n: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """The subsets of a seed depend on the number of units alone, and a family asks again and again."""
    return tuple(_random_picks(n, generator(seed)))
