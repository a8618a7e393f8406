"""Tests that count rearrangements: sign flips for paired arms, splits for two independent arms.

Both are exact where all rearrangements can be counted, and use 99,999 seeded random ones beyond. The
two-sided p is twice the smaller tail, at most 1, which is scipy's convention (`|stat| >= |observed|` gives
another p when sizes differ). The observed arrangement always counts, so a p is never 0 (Phipson and Smyth,
Stat. Appl. Genet. Mol. Biol. 2010).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.evidence import Evidence, Interval, Tails, unbounded
from bakeoff.stats.numerics import TINY, Array, Integers, Seed, exponent, generator, mean, tail, vector
from bakeoff.stats.ttests import TStatistic, welch_t

EXACT_UNITS = 20
"""Up to here `SignFlip` holds the means of all 2^N subsets (8 MB at 20 units)."""
EXACT_COUNT_UNITS = 40
"""Up to here `exact_tails` counts all 2^N subsets without holding them."""
EXACT_POOLED = 30
"""Pooled size up to which the mean difference of two samples is tested exactly, by meeting in the middle."""
EXACT_SPLITS = 200_000
"""Splits up to which Welch's t is tested exactly; it needs sums of squares, so every split is visited."""
DRAWS = 99_999
"""Random rearrangements beyond these; together with the observed one they make a round 100,000."""
REMEMBERED_UNITS = 256
"""Units up to which the random sign flips of a seed are kept for the next call (3 MB at most)."""
REMEMBERED_ARM = 40
"""Size of the smaller arm up to which the random splits of a seed are kept for the next call (4 MB at most)."""
TIE = 1e-9
"""Two means closer than this times the largest magnitude count as equal: float noise must not decide a tie."""
CHUNK = 2**18
"""Elements of index work that `random_subsets` holds at once: bounded memory for any number of draws."""


class Rearranged(Evidence):
    """A test that counts rearrangements of the data, read off one sorted array of critical values.

    Rearranging the data gives a statistic above the observed one exactly when x lies above the rearrangement's critical
    value. So a p at x is a count of critical values below x, and an interval is a pair of order statistics (Maritz,
    Biometrika 1979). The observed arrangement itself, and every draw that moves nothing, is an identity: it has no
    critical value and counts on both sides. Ties count `tie_weight`: 1, or a half as in Lancaster's mid-p (JASA 1961).
    """

    monotone = True
    exact: bool
    """All rearrangements were counted."""
    _critical: Array
    """Ascending, divided by 2^_exponent."""
    _exponent: int
    _identities: int
    _total: int
    _tie: float
    _tie_weight: float

    def _count(self, critical: Array, identities: int, largest: float, scale: int, mirrored: bool) -> None:
        """Take over critical values, in units of 2^scale; `largest` magnitude of the data, for ties."""
        critical.sort()
        # Negated and reversed, ascending values are ascending again.
        self._critical = -critical[::-1] if mirrored else critical
        self._identities, self._total = identities, critical.size + identities
        self._tie, self._exponent = TIE * largest, scale
        self.floor = 2.0 * identities / self._total

    def tails(self, x: float) -> Tails:
        """(1 + #{critical < x} + #{critical = x} / 2) / total, and the same with #{critical > x}."""
        return self._tails(x, self._tie_weight)

    @property
    def p_exact(self) -> float:
        """Two-sided p of 'centre = 0' with ties counted in full, which bounds the error whatever the ties are."""
        return self._tails(0.0, 1.0).p

    @property
    def ties(self) -> str:
        """How ties count, in words."""
        return "ties count in full" if self._tie_weight == 1.0 else "ties count half"

    def _tails(self, x: float, tie_weight: float) -> Tails:
        with np.errstate(over="ignore", under="ignore"):
            point = float(np.ldexp(x, -self._exponent))
        below = int(np.searchsorted(self._critical, point - self._tie, side="left"))
        up_to = int(np.searchsorted(self._critical, point + self._tie, side="right"))
        above, ties = self._critical.size - up_to, tie_weight * (up_to - below)
        return Tails((self._identities + below + ties) / self._total, (self._identities + above + ties) / self._total)

    def interval(self, level: float) -> Interval:
        """All x that the two-sided test keeps at 1 - level; infinite where so few units cannot reject anything.

        M[j] to M[-1-j] of the critical values M, where j is the last one for which values just outside are rejected.
        An end that is itself rejected is open, which only happens where ties count half.
        """
        # 1e-12 forgives the rounding of 1 - level, so that p = alpha exactly is rejected.
        half = tail(level)
        j = math.floor(half * self._total * (1.0 + 1e-12) - self._identities)
        if j < 0:
            return unbounded(level)
        j = min(j, (self._critical.size - 1) // 2)
        low, high = (float(np.ldexp(self._critical[i], self._exponent)) for i in (j, -1 - j))
        at_most = half * (1.0 + 1e-12)
        low_open, high_open = self.tails(low).greater <= at_most, self.tails(high).less <= at_most
        return Interval(low, high, level, low_open, high_open)


class SignFlip(Rearranged):
    """The sign-flip test of N paired differences d = B - A, one for each independent unit.

    Population: units like these. Valid when the arms are exchangeable within a unit, because then d is
    symmetric (Fisher, The Design of Experiments 1935, section 21). Invariants: the order of d does not
    matter, not even to the random subsets; -d gives the mirrored answers.

    If the differences are symmetric about x, every subset of the units is as likely as any other to have
    had its sign flipped, and flipping subset S raises the total above the observed one exactly when the
    mean of S lies below x (Hartigan, JASA 1969): the critical values are the means of all non-empty subsets. Ties count
    half, unless `strict`. They count in full for pure wins and losses, where all |d| are equal and none is 0: there every
    mean is shared by many subsets, and half of them is too little (7 % false positives at 8 units for a nominal 5 %).
    """

    def __init__(self, d: ArrayLike, seed: Seed = 0, strict: bool = False, weights: ArrayLike | None = None) -> None:
        """`weights` (default: all equal) weigh the units in every mean, as tasks with unequal numbers of seeds need."""
        values, weight = vector(d, "d"), None
        # Canonical input makes the answer independent of row order, and exactly mirrored for -d.
        if weights is None:
            values, mirrored = canonical_pairs(values)
        else:
            values, weight, mirrored = _canonical_weighted(values, vector(weights, "weights"))
        self.method = "sign-flip (ties in full)" if strict else "sign-flip"
        self.n = values.size
        self.exact = self.n <= EXACT_UNITS
        scale = exponent(values)
        scaled = np.ldexp(values, -scale)
        if self.exact:
            sizes: Array | NDArray[np.uint8] = _subset_sizes(self.n) if weight is None else _subset_sums(weight)
            sums = _subset_sums(scaled if weight is None else weight * scaled)
            means, identities = sums[1:] / sizes[1:], 1
            how = "all sign patterns"
        else:
            means, identities = _random_subset_means(scaled, seed, weight)
            how = f"{means.size + identities - 1:,} random sign patterns"
        self._count(means, identities, float(np.abs(scaled).max()), scale, mirrored)
        self._tie_weight = 1.0 if strict else _tie_weight(scaled)
        centre = float(np.average(scaled, weights=weight)) * (-1.0 if mirrored else 1.0)
        self.effect = float(np.ldexp(centre, scale))
        self.assumes = f"assumes arms exchangeable within a unit ({how})"
        self.identical = not scaled.any()


class Splits(Rearranged):
    """The permutation test of mean(b) - mean(a) for independent arms, in one task or within each of several.

    a, b: for each task the arm's values. The effect is the mean over tasks of the difference of means; values only change
    arms inside their task. Population: runs like these on these tasks. Exact when the arms have one law up to a shift
    (Pitman 1937); ties count in full. Exchanging r values of B in task t for r of A raises the statistic above
    the observed one exactly when x lies above the difference of the exchanged values, weighted by task.
    """

    method = "exact permutation"
    _tie_weight = 1.0

    def __init__(self, a: Sequence[ArrayLike], b: Sequence[ArrayLike], seed: Seed = 0) -> None:
        xs = [np.sort(vector(part, "a")) for part in a]
        ys = [np.sort(vector(part, "b")) for part in b]
        if len(xs) != len(ys):
            raise ValueError(f"both arms need the same tasks, got {len(xs)} and {len(ys)}")
        # Sums of deviations keep their digits when the values are large.
        middles = [float(np.median(np.concatenate(parts))) for parts in zip(xs, ys, strict=True)]
        scale = exponent(np.concatenate([part - m for part, m in zip((*xs, *ys), (*middles, *middles), strict=True)]))
        self.n = min(sum(x.size for x in xs), sum(y.size for y in ys))
        self.effect = mean(np.array([mean(y) - mean(x) for x, y in zip(xs, ys, strict=True)]))
        mirrored = second_goes_first(np.concatenate(xs), np.concatenate(ys))
        splits = math.prod(split_count(x.size, y.size) for x, y in zip(xs, ys, strict=True))
        self.exact = splits <= EXACT_SPLITS
        rng = generator(seed)
        sums, weights = np.zeros(1 if self.exact else DRAWS), np.zeros(1 if self.exact else DRAWS)
        for x, y, middle in zip(xs, ys, middles, strict=True):
            first, second = (y, x) if mirrored else (x, y)
            first, second = (np.ldexp(part - middle, -scale) for part in (first, second))
            # Of each split: the sum of the second group, and how many values of the first one are in it.
            columns = np.stack(
                (np.concatenate((first, second)), np.repeat((1.0, 0.0), (first.size, second.size))), axis=1
            )
            if self.exact:
                parts = sums_by_size(columns, second.size)[second.size]
            else:
                parts = _sums_of_draws(columns, second.size, rng)
            weight = 1.0 / first.size + 1.0 / second.size
            exchanged, moved = weight * (second.sum() - parts[:, 0]), weight * parts[:, 1]
            if self.exact:
                sums, weights = np.add.outer(sums, exchanged).ravel(), np.add.outer(weights, moved).ravel()
            else:
                sums, weights = sums + exchanged, weights + moved
        moving = weights > 0.0
        identities = int((~moving).sum()) + (0 if self.exact else 1)
        self._count(sums[moving] / weights[moving], identities, 1.0, scale, mirrored)
        how = "all splits" if self.exact else f"{DRAWS:,} random splits"
        self.assumes = f"assumes arms that differ by a shift alone ({how})"


@dataclass(frozen=True, slots=True)
class ExactTails:
    """How many of the 2^n subsets of d have a mean below, at or above x.

    The empty subset (the identity) is left out.
    """

    n: int
    below: int
    ties: int
    above: int
    tie_weight: float = 0.5

    @property
    def p_exact(self) -> float:
        """Two-sided p with ties counted in full."""
        return min(1.0, 2.0 * (1.0 + min(self.below, self.above) + self.ties) / 2.0**self.n)

    @property
    def p(self) -> float:
        """Two-sided p with ties counted as in `SignFlip`."""
        smaller = min(self.below, self.above) + self.tie_weight * self.ties
        return min(1.0, 2.0 * (1.0 + smaller) / 2.0**self.n)


def exact_tails(d: ArrayLike, x: float = 0.0) -> ExactTails:
    """Count all sign flips of up to 40 pairs at x, with 2^(n/2) work in place of 2^n.

    Meeting in the middle (Horowitz and Sahni, JACM 1974): a subset is one subset of each half, so the sums
    of one half are looked up in the sorted sums of the other.
    """
    values, mirrored = canonical_pairs(vector(d, "d"))
    n = values.size
    if n > EXACT_COUNT_UNITS:
        raise ValueError(f"exact counting goes up to {EXACT_COUNT_UNITS} pairs, got {n}; SignFlip draws subsets")
    e = exponent(values)
    scaled = np.ldexp(values, -e)
    with np.errstate(over="ignore", under="ignore"):
        shift = float(np.ldexp(x, -e))
    # Testing at x is testing d - x at 0: a subset mean lies below x when its sum of d - x is negative.
    moved = scaled - (-shift if mirrored else shift)
    tie = TIE * float(np.abs(scaled).max())
    left, right = _subset_sums(moved[: n // 2]), _subset_sums(moved[n // 2 :])
    left.sort()
    right.sort()
    # Needles in ascending order, in one block of memory, walk the haystack once and stay in cache.
    needles = np.ascontiguousarray(-right[::-1])
    position = np.searchsorted(left, needles - tie, side="left")
    below = int(position.sum())
    # Only a needle whose next sum lies within the tolerance has ties at all: search again for those alone.
    tied = left.take(position, mode="clip") <= needles + tie
    tied &= position < left.size
    up_to = below + int((np.searchsorted(left, needles[tied] + tie, side="right") - position[tied]).sum())
    ties = up_to - below - 1  # the empty subset sums to 0 and is the identity
    above = 2**n - up_to
    weight = _tie_weight(scaled)
    return ExactTails(n, above, ties, below, weight) if mirrored else ExactTails(n, below, ties, above, weight)


def _tie_weight(d: Array) -> float:
    """What one tie counts: 1 for pure wins and losses, else a half; see `SignFlip`."""
    sizes = np.abs(d)
    largest = float(sizes.max())
    return 1.0 if largest > 0.0 and largest - float(sizes.min()) <= TIE * largest else 0.5


def canonical_pairs(d: Array) -> tuple[Array, bool]:
    """Return d in an order and with a sign that depend on neither row order nor the naming of arms; True if negated."""
    ascending = np.sort(d)
    mirror = -ascending[::-1]
    # The first place where d and -d differ decides which of them is used.
    differs = np.flatnonzero(ascending != mirror)
    flipped = bool(differs.size and ascending[differs[0]] < mirror[differs[0]])
    return (mirror, True) if flipped else (ascending, False)


def _canonical_weighted(d: Array, weight: Array) -> tuple[Array, Array, bool]:
    """`canonical_pairs` of differences that have weights."""
    ways = [(sign * d)[order] for sign, order in ((1.0, np.lexsort((weight, d))), (-1.0, np.lexsort((weight, -d))))]
    heavy = [weight[np.lexsort((weight, d))], weight[np.lexsort((weight, -d))]]
    both = [np.stack((way, w), axis=1).ravel() for way, w in zip(ways, heavy, strict=True)]
    differs = np.flatnonzero(both[0] != both[1])
    flipped = bool(differs.size and both[0][differs[0]] < both[1][differs[0]])
    return ways[flipped], heavy[flipped], flipped


def _subset_sums(d: Array) -> Array:
    """Sums of all 2^n subsets of d, shape (2^n,); bit k of the index says whether d[k] is in.

    Entry 0 is the empty one.
    """
    sums = np.zeros(2**d.size)
    for k, value in enumerate(d):
        np.add(sums[: 2**k], value, out=sums[2**k : 2 ** (k + 1)])
    return sums


@lru_cache(maxsize=4)
def _subset_sizes(n: int) -> NDArray[np.uint8]:
    """How many of n units each subset has, in the order of `_subset_sums`.

    Kept, because a family asks again and again.
    """
    sizes = np.zeros(1, dtype=np.uint8)
    for _ in range(n):
        sizes = np.concatenate((sizes, sizes + np.uint8(1)))
    return sizes


def _random_subset_means(d: Array, seed: Seed, weight: Array | None = None) -> tuple[Array, int]:
    """Means of DRAWS random subsets, and the number of identities: the observed signs and every empty draw.

    Eight units share one random byte, which looks up the sum of its subset in a table of 256: an eighth of
    the lookups, and no (draws x units) matrix.
    """
    remembered = isinstance(seed, int) and d.size <= REMEMBERED_UNITS
    picks = _remembered_picks(d.size, seed) if remembered else _random_picks(d.size, generator(seed))
    sums, sizes = np.zeros(DRAWS), np.zeros(DRAWS)
    for start, pick in zip(range(0, d.size, 8), picks, strict=True):
        block = slice(start, start + 8)
        sums += _subset_sums(d[block] if weight is None else weight[block] * d[block]).take(pick)
        sizes += (_subset_sizes(d[block].size) if weight is None else _subset_sums(weight[block])).take(pick)
    # An empty draw flips nothing. It has no mean and counts as the identity, on both sides.
    drawn = sizes > 0
    means: Array = sums[drawn] / sizes[drawn]
    return means, 1 + int(DRAWS - drawn.sum())


def _random_picks(n: int, rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """DRAWS random subsets of n units as bit masks of eight units each, shape (DRAWS,) for every eight units."""
    for start in range(0, n, 8):
        yield rng.integers(0, 2 ** min(8, n - start), DRAWS, dtype=np.uint16).astype(np.uint8)


@lru_cache(maxsize=2)
def _remembered_picks(n: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """`_random_picks` of an integer seed.

    They depend on the number of units alone, and a family asks again and again.
    """
    return tuple(_random_picks(n, generator(seed)))


@dataclass(frozen=True, slots=True)
class PermutationTails(Tails):
    """Permutation p-values of 'mean(b) - mean(a) <= 0' and '>= 0', and the number of splits they are shares of."""

    splits: float
    exact: bool


def split_count(n1: int, n2: int) -> float:
    """Number of ways to split n1 + n2 values into groups of these sizes; inf where it overflows a double."""
    logarithm = math.lgamma(n1 + n2 + 1.0) - math.lgamma(n1 + 1.0) - math.lgamma(n2 + 1.0)
    return float(math.comb(n1 + n2, n1)) if logarithm < 700.0 else math.inf


def permutation_mean(a: ArrayLike, b: ArrayLike, seed: Seed = 0) -> PermutationTails:
    """Permutation test of mean(b) - mean(a) (Pitman 1937): exact up to 30 pooled values, else 99,999 random splits.

    Ties count whole. Valid when the arms have one law under the null; with unequal sizes and spreads use
    `permutation_welch`.
    """
    x, y = vector(a, "a"), vector(b, "b")
    first, pooled, swapped = _canonical_arms(x, y)
    # For fixed sizes the mean difference grows with the sum of the first group.
    observed = float(pooled[:first].sum())
    tie = TIE * float(np.abs(pooled).max())
    pooled.sort()
    if pooled.size <= EXACT_POOLED:
        high, low = _exact_tail_counts(pooled, first, observed, tie)
        return _tails(high, low, split_count(x.size, y.size), True, swapped)
    sums = _random_sums(pooled[:, None], first, seed)[:, 0]
    high, low = int((sums >= observed - tie).sum()), int((sums <= observed + tie).sum())
    return _tails(1 + high, 1 + low, DRAWS + 1.0, False, swapped)


def permutation_welch(a: ArrayLike, b: ArrayLike, seed: Seed = 0) -> PermutationTails:
    """Permutation test whose statistic is Welch's t: exact up to 200,000 splits, else 99,999 random ones.

    Studentizing keeps the test valid for large samples when spreads differ (Janssen, Stat. Probab. Lett.
    1997; Chung and Romano, Annals of Statistics 2013).
    """
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    first, pooled, swapped = _canonical_arms(x, y)
    sizes = first, pooled.size - first
    # Sum and sum of squares of one group determine Welch's t, given those of all values.
    columns = np.stack((pooled, pooled**2), axis=1)
    total = columns.sum(axis=0)
    observed = float(_welch_from_sums(columns[:first].sum(axis=0)[None, :], total, *sizes)[0])
    tie = 1e-9 * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
    columns = columns[np.argsort(pooled, kind="stable")]
    splits = split_count(*sizes)
    exact = splits <= EXACT_SPLITS
    sums = sums_by_size(columns, first)[first] if exact else _random_sums(columns, first, seed)
    t = _welch_from_sums(sums, total, *sizes)
    high, low = int((t >= observed - tie).sum()), int((t <= observed + tie).sum())
    if exact:
        return _tails(high, low, splits, True, swapped)
    return _tails(1 + high, 1 + low, DRAWS + 1.0, False, swapped)


def second_goes_first(x: Array, y: Array) -> bool:
    """Whether y is the first of two arms in an order that depends on neither their names nor the order of rows.

    The smaller arm goes first, of two equal ones the one with larger values.
    """
    if x.size != y.size:
        return x.size > y.size
    u, v = np.sort(x), np.sort(y)
    differs = np.flatnonzero(u != v)
    return bool(differs.size and u[differs[0]] < v[differs[0]])


def _canonical_arms(x: Array, y: Array) -> tuple[int, Array, bool]:
    """Return the size of the first group, the pooled values with that group in front, and whether it is y.

    Swapping the arms swaps the tails exactly. Values are centred on their median and scaled to at most 2: sums of a fixed number of
    them only shift, and keep digits.
    """
    swapped = second_goes_first(x, y)
    pooled = np.concatenate((y, x) if swapped else (x, y))
    scaled = np.ldexp(pooled, -exponent(pooled))
    moved: Array = scaled - np.median(scaled)
    return (y if swapped else x).size, np.ldexp(moved, -exponent(moved)), swapped


def _exact_tail_counts(pooled: Array, size: int, observed: float, tie: float) -> tuple[int, int]:
    """How many `size`-subsets sum to at least, and to at most, `observed`: meeting in the middle, by subset size."""
    middle = pooled.size // 2
    # Interleaved halves have like values, so the sorted sums overlap and searches stay short.
    left = sums_by_size(pooled[0::2][:, None], min(size, pooled.size - middle))
    right = sums_by_size(pooled[1::2][:, None], min(size, middle))
    at_least = at_most = 0
    for k, sums in enumerate(left):
        # k members from the left half need size - k from the right one.
        if not 0 <= size - k < len(right) or not sums.size or not right[size - k].size:
            continue
        needles = np.sort(observed - sums[:, 0])
        haystack = np.sort(right[size - k][:, 0])
        at_most += int(np.searchsorted(haystack, needles + tie, side="right").sum())
        below = int(np.searchsorted(haystack, needles - tie, side="left").sum())
        at_least += needles.size * haystack.size - below
    return at_least, at_most


def sums_by_size(values: Array, largest: int) -> list[Array]:
    """Entry k has the sums of all k-subsets of the rows of `values` (n, c), shape (C(n, k), c), for k <= largest."""
    width = values.shape[1]
    table = [np.zeros((1, width))] + [np.zeros((0, width)) for _ in range(largest)]
    for row in values:
        # From large to small, so that a row enters each subset only once.
        for k in range(largest, 0, -1):
            if table[k - 1].size:
                table[k] = np.concatenate((table[k], table[k - 1] + row))
    return table


def _sums_of_draws(columns: Array, size: int, rng: np.random.Generator) -> Array:
    """Column sums over DRAWS random subsets of `size` rows, shape (DRAWS, columns)."""
    return np.concatenate([columns[index].sum(axis=1) for index in random_subsets(len(columns), size, DRAWS, rng)])


def _random_sums(columns: Array, size: int, seed: Seed) -> Array:
    """Column sums over DRAWS random subsets of `size` rows, shape (DRAWS, columns)."""
    n = columns.shape[0]
    if isinstance(seed, int) and n <= 256 and size <= REMEMBERED_ARM:
        sums = np.zeros((columns.shape[1], DRAWS))
        for picks in _remembered_subsets(n, size, seed):
            for total, column in zip(sums, columns.T, strict=True):
                total += column.take(picks)
        return sums.T
    return _sums_of_draws(columns, size, generator(seed))


@lru_cache(maxsize=4)
def _remembered_subsets(n: int, size: int, seed: int) -> NDArray[np.uint8]:
    """The subsets of an integer seed, shape (size, DRAWS).

    They depend on the sizes alone; a family asks for them often.
    """
    blocks = [index.T.astype(np.uint8) for index in random_subsets(n, size, DRAWS, generator(seed))]
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))


def random_subsets(n: int, size: int, draws: int, rng: np.random.Generator) -> Iterator[Integers]:
    """Uniform subsets of {0..n-1} of one size, as index blocks of shape (some draws, size), `draws` rows in all.

    Each row partitions n random 64-bit keys whose low bits carry the index: a partition is several times
    faster than shuffling, and the 44 or more random bits above the index make a tie between keys
    irrelevant.
    """
    bits = max(1, (n - 1).bit_length())
    if bits > 20:
        raise ValueError(f"random splits support up to {2**20:,} values, got {n:,}")
    mask = np.uint64((1 << bits) - 1)
    labels = np.arange(n, dtype=np.uint64)
    rows = max(1, CHUNK // n)
    for start in range(0, draws, rows):
        keys = rng.integers(0, 2**64, (min(rows, draws - start), n), dtype=np.uint64, endpoint=False)
        # Replace the low bits of the random keys by the index.
        keys &= ~mask
        keys |= labels
        if size < n:
            keys.partition(size - 1, axis=1)
        yield (keys[:, :size] & mask).astype(np.int64)


def _welch_from_sums(part: Array, total: Array, n1: int, n2: int) -> Array:
    """Welch's t of group 1 minus group 2, shape (splits,), from group 1's (sum, sum of squares), shape (splits, 2)."""
    s1, q1 = part[:, 0], part[:, 1]
    s2, q2 = total[0] - s1, total[1] - q1
    v1 = np.maximum(q1 - s1**2 / n1, 0.0) / (n1 - 1) / n1
    v2 = np.maximum(q2 - s2**2 / n2, 0.0) / (n2 - 1) / n2
    difference = s1 / n1 - s2 / n2
    # A split into two constant groups has no spread: rounding leaves about 1e-16, and its t is infinite.
    spread = v1 + v2
    difference = np.where(np.abs(difference) <= 1e-12, 0.0, difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = difference / np.sqrt(np.where(spread <= 1e-14, 0.0, spread))
    return np.asarray(np.nan_to_num(t, nan=0.0, posinf=np.inf, neginf=-np.inf), dtype=np.float64)


def _tails(high: int, low: int, splits: float, exact: bool, swapped: bool) -> PermutationTails:
    """p-values from the number of splits whose statistic is at least, and at most, the observed one.

    High values of the canonical statistic speak for the first group; B is the second group unless swapped.
    """
    up, down = min(1.0, high / splits), min(1.0, low / splits)
    return PermutationTails(up, down, splits, exact) if swapped else PermutationTails(down, up, splits, exact)


def permutation_is_useful(n1: int, n2: int, alpha: float, comparisons: int) -> bool:
    """Whether there are enough splits to reject at alpha / comparisons: C(n1 + n2, n1) alpha / 2m >= 3."""
    return split_count(n1, n2) * alpha / (2.0 * comparisons) >= 3.0


class Unpaired(Evidence):
    """The decision's test for two independent samples: at every x the larger of permutation p and Welch p.

    Population: runs like these of both arms. Either test alone fails somewhere (permutation with unequal
    sizes and spreads, Welch on lumpy data); the larger of two p-values does not. Whether to permute follows
    from the sizes, alpha and the number of comparisons, never from the values. Two constant arms have no
    Welch t; then permutation decides alone, however few its splits.
    """

    monotone = False

    def __init__(self, a: ArrayLike, b: ArrayLike, alpha: float = 0.05, comparisons: int = 1, seed: int = 0) -> None:
        self.a, self.b = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
        self._seed = seed
        self._known: dict[float, PermutationTails] = {}
        self.n = min(self.a.size, self.b.size)
        self.welch: TStatistic | None
        try:
            self.welch = welch_t(self.a, self.b)
            self.effect = self.welch.effect
        except ValueError:
            self.welch = None
            self.effect = mean(self.b) - mean(self.a)
        self._permutes = self.welch is None or permutation_is_useful(self.a.size, self.b.size, alpha, comparisons)
        if self._permutes:
            self.method = "permutation" if self.welch is None else "permutation and Welch t"
            self.assumes = "assumes runs independent; the larger of permutation and Welch p"
            self.floor = 2.0 / self._permuted(0.0).splits
        else:
            self.method = "Welch t"
            self.assumes = "assumes roughly normal means in both arms (too few splits to permute)"
            self.floor = 2.0 * TINY

    @property
    def p_exact(self) -> float:
        """Two-sided p of the permutation test alone, however few its splits."""
        return self._permuted(0.0).p

    def _permuted(self, x: float) -> PermutationTails:
        """The permutation test after moving B down by x.

        Kept: p, interval and equivalence ask for the same few x.
        """
        if x not in self._known:
            test = permutation_mean if self.a.size == self.b.size else permutation_welch
            self._known[x] = test(self.a, self.b - x, self._seed)
        return self._known[x]

    def tails(self, x: float) -> Tails:
        if self.welch is None:
            return self._permuted(x)
        welch = self.welch.tails(x)
        if not self._permutes:
            return welch
        permuted = self._permuted(x)
        return Tails(max(permuted.greater, welch.greater), max(permuted.less, welch.less))

    def interval(self, level: float) -> Interval:
        """Welch's interval.

        For two constant arms: the single difference, or the whole line when p is too large.
        """
        if self.welch is not None:
            return self.welch.interval(level)
        return unbounded(level) if self.p > 1.0 - level else Interval(self.effect, self.effect, level)
