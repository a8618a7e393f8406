"""Many replicates of one comparison at once: which of them reject a value, and which intervals cover it.

A simulation asks thousands of replicates the same few questions. Most answers are obvious: a sign-flip p of 0.4 is not
below 0.025, whichever subsets are drawn. `ManyPairs` and `ManySamples` estimate p from a few random rearrangements, for
all replicates in one matrix product, and settle the replicates whose estimate is far from the level. All others are
asked one by one, by the same tests that verdicts use (`decision`), so the result is that of the tests themselves.

    many = ManyPairs(d, alpha=0.05)
    above, below = many.rejects(0.0, 0.025)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from bakeoff.stats.bootstrap import Studentized
from bakeoff.stats.decision import GUARDED_UNITS, flips_suffice, paired_test, unpaired_test, wider_for_skew
from bakeoff.stats.evidence import Evidence, Test, monotone_tails
from bakeoff.stats.numerics import Array, generator, is_constant
from bakeoff.stats.permutation import EXACT_UNITS, TIE, exact_tails, permutation_is_useful

Bools = npt.NDArray[np.bool_]
SCREEN = 4_096
"""Random rearrangements that estimate a p."""
FAR = 6.0
"""Standard errors between an estimate and the level from which on the answer is settled: wrong once in 10^8."""
BLOCK = 2**21
"""Numbers that a matrix holds at most: 16 MB."""
FEW_UNITS = 12
"""Up to here all sign flips are no more than SCREEN."""
TURNS = 8
"""How often replicates that are not settled get more draws, SCREEN at a time."""
ROUNDING = 1.0 + 1e-12
"""p = level counts as rejected, whatever the last digit says."""


_GREATER, _LESS = attrgetter("greater"), attrgetter("less")


class Many(ABC):
    """Replicates of one comparison, turned so that larger is better."""

    size: int
    """How many replicates."""

    @abstractmethod
    def rejects(self, x: float, level: float, guarded: bool = False) -> tuple[Bools, Bools]:
        """Of each replicate: is 'centre <= x' rejected, and is 'centre >= x', each at this one-sided level.

        `guarded` asks the studentized bootstrap too, as verdicts do about points other than 0.
        """

    def equivalent(self, margin: float, level: float) -> Bools:
        """Of each replicate, whether it is within +-margin, by two one-sided tests at this level."""
        above, below = self.rejects(-margin, level, guarded=True)[0], self.rejects(margin, level, guarded=True)[1]
        return above & below

    def covers(self, x: float, level: float) -> Bools:
        """Of each replicate, whether its two-sided interval of this level contains x."""
        above, below = self.rejects(x, (1.0 - level) / 2.0)
        return ~(above | below)


class Each(Many):
    """Tests that are quick to ask one by one: t of strata and tables, outcomes of 0 and 1.

    `careful` gives the test of one replicate with a margin, or guarded; it is asked where the quick one rejects.
    """

    def __init__(self, tests: Sequence[Test], careful: Callable[[int], Test] | None = None) -> None:
        self.tests = tests
        self.size = len(tests)
        self._careful = careful

    def rejects(self, x: float, level: float, guarded: bool = False) -> tuple[Bools, Bools]:
        tails = [monotone_tails(test.evidence, x) for test in self.tests]
        half = level * ROUNDING
        above, below = (np.array([side(t) <= half for t in tails]) for side in (_GREATER, _LESS))
        if guarded and self._careful is not None:
            for row in np.flatnonzero(above | below):
                both = monotone_tails(self._careful(int(row)).evidence, x)
                above[row] &= both.greater <= half
                below[row] &= both.less <= half
        return above, below

    def equivalent(self, margin: float, level: float) -> Bools:
        inside = self.rejects(-margin, level)[0] & self.rejects(margin, level)[1]
        for row in np.flatnonzero(inside):
            place = int(row)
            evidence = self._careful(place).evidence if self._careful else wider_for_skew(self.tests[place].evidence)
            tails = monotone_tails(evidence, -margin).greater, monotone_tails(evidence, margin).less
            inside[row] = max(tails) <= level * ROUNDING
        return np.asarray(inside)

    def covers(self, x: float, level: float) -> Bools:
        return np.array([test.interval(level).contains(x) for test in self.tests])


class ManyPairs(Many):
    """`decision.paired_test` of every row of d, shape (replicates, units)."""

    def __init__(self, d: Array, alpha: float = 0.05, comparisons: int = 1, strict: bool = False) -> None:
        self.d = d
        self.size, self.units = d.shape
        self._alpha, self._comparisons, self._strict = alpha, comparisons, strict
        self._flips = strict or flips_suffice(self.units, alpha, comparisons)
        self._known: dict[tuple[float, float], tuple[Bools, Bools]] = {}

    def rejects(self, x: float, level: float, guarded: bool = False) -> tuple[Bools, Bools]:
        # Verdict and interval ask for the same points; levels are compared without their last digits.
        point = (x, round(level, 12))
        if point not in self._known:
            self._known[point] = self._above(self.d, x, level), self._above(-self.d, -x, level)
        above, below = (side.copy() for side in self._known[point])
        if guarded:
            # The guard can only take a rejection back.
            for row in np.flatnonzero(above | below):
                tails = monotone_tails(self._guard(row), x)
                above[row] &= tails.greater <= level * ROUNDING
                below[row] &= tails.less <= level * ROUNDING
        return above, below

    def equivalent(self, margin: float, level: float) -> Bools:
        inside = self.rejects(-margin, level)[0]
        near = ManyPairs(self.d[inside], self._alpha, self._comparisons, self._strict)
        inside[inside] = near.rejects(margin, level)[1]
        for row in np.flatnonzero(inside):
            guard = self._guard(row)
            tails = monotone_tails(guard, -margin).greater, monotone_tails(guard, margin).less
            inside[row] = max(tails) <= level * ROUNDING
        return inside

    def _guard(self, row: int | np.integer[Any]) -> Evidence:
        """What is asked about points other than 0, beside the test that has rejected already."""
        d = self.d[row]
        if self.units >= GUARDED_UNITS and self._alpha / self._comparisons >= 0.05 and not is_constant(d):
            return Studentized([d])
        return paired_test(d, self._alpha / self._comparisons, guarded=True, strict=self._strict).evidence

    def _above(self, d: Array, x: float, level: float) -> Bools:
        """Which rows reject 'centre <= x'."""
        if self._flips:
            sure, unsure = self._by_flips(d, x, level)
        else:
            sure, unsure = self._by_t(d, x, level)
        for row in np.flatnonzero(unsure):
            sure[row] = self._greater(d[row], x) <= level * ROUNDING
        return sure

    def _by_flips(self, d: Array, x: float, level: float) -> tuple[Bools, Bools]:
        rejected, unsure = np.zeros(len(d), np.bool_), np.ones(len(d), np.bool_)
        least, most, drawn = np.zeros(len(d)), np.zeros(len(d)), 0
        every = self.units <= FEW_UNITS
        for turn in range(1 if every else TURNS):
            # Whom the first draws settle is not asked again.
            subsets = _subsets(self.units, turn)
            asked = np.flatnonzero(unsure)
            for rows in np.array_split(asked, -(-asked.size * subsets.shape[1] // BLOCK) or 1):
                # A subset's mean lies below x when its sum of d - x is negative; ties may count anything from 0 to 1.
                sums = (d[rows] - x) @ subsets
                tie = (TIE * self.units * np.abs(d[rows]).max(axis=1))[:, None]
                least[rows] += (sums < -tie).sum(axis=1)
                most[rows] += (sums <= tie).sum(axis=1)
            drawn += subsets.shape[1]
            # All subsets give p itself: the identity counts, and `most` has it as the empty subset.
            identity, error = (1.0, 0.0) if every else (0.0, FAR * np.sqrt(level * (1.0 - level) / drawn))
            known = _settled((least[asked] + identity) / drawn, most[asked] / drawn, level, error)
            rejected[asked], unsure[asked] = known
        return rejected, unsure

    def _by_t(self, d: Array, x: float, level: float) -> tuple[Bools, Bools]:
        spread = d.std(axis=1, ddof=1)
        # Without spread there is no t, and `paired_test` counts sign flips instead.
        flat = spread <= 1e-12 * np.abs(d).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (x - d.mean(axis=1)) / (spread / np.sqrt(self.units))
        p = sp.stdtr(self.units - 1.0, np.where(flat, 0.0, t))
        return p <= level, flat | (np.abs(p - level) <= 1e-9)

    def _greater(self, d: Array, x: float) -> float:
        if self._flips and FEW_UNITS < self.units <= EXACT_UNITS:
            counts = exact_tails(d, x)
            weight = 1.0 if self._strict else counts.tie_weight
            return (1.0 + counts.below + weight * counts.ties) / 2.0**counts.n
        return paired_test(d, self._alpha, self._comparisons, strict=self._strict).evidence.tails(x).greater


class ManySamples(Many):
    """`decision.unpaired_test` of every row of a and b, shapes (replicates, size of the arm)."""

    def __init__(self, a: Array, b: Array, alpha: float = 0.05, comparisons: int = 1) -> None:
        self.a, self.b = a, b
        self.size = len(a)
        self._sizes = a.shape[1], b.shape[1]
        self._alpha, self._comparisons = alpha, comparisons
        self._permutes = permutation_is_useful(*self._sizes, alpha, comparisons)
        parts = [v.var(axis=1, ddof=1) / v.shape[1] for v in (a, b)]
        self._flat = sum(parts) <= 1e-24 * np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1)) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            df = sum(parts) ** 2 / sum(v**2 / (n - 1.0) for v, n in zip(parts, self._sizes, strict=True))
        self._df = np.where(self._flat, 1.0, df)
        self._se = np.where(self._flat, 1.0, np.sqrt(sum(parts)))
        self._effect = b.mean(axis=1) - a.mean(axis=1)

    def rejects(self, x: float, level: float, guarded: bool = False) -> tuple[Bools, Bools]:
        t = (x - self._effect) / self._se
        sides = []
        for sign in (1.0, -1.0):
            welch = sp.stdtr(self._df, sign * t)
            # The larger p counts, so permutations are asked only where Welch's t rejects.
            rejected = np.asarray(welch <= level) & ~self._flat
            unsure = self._flat | (np.abs(welch - level) <= 1e-9)
            asked = np.flatnonzero(rejected & ~unsure)
            if self._permutes and asked.size:
                rejected[asked], unsure[asked] = self._by_splits(asked, x, level, sign)
            for row in np.flatnonzero(unsure | (rejected if guarded else False)):
                test = unpaired_test(self.a[row], self.b[row], self._alpha / self._comparisons, guarded=guarded)
                tails = monotone_tails(test.evidence, x)
                rejected[row] = (tails.greater if sign > 0 else tails.less) <= level * ROUNDING
            sides.append(rejected)
        return sides[0], sides[1]

    def equivalent(self, margin: float, level: float) -> Bools:
        if min(self._sizes) >= GUARDED_UNITS:
            return super().equivalent(margin, level)
        inside = self.rejects(-margin, level)[0] & self.rejects(margin, level)[1]
        for row in np.flatnonzero(inside):
            test = unpaired_test(self.a[row], self.b[row], self._alpha, self._comparisons, margin)
            inside[row] = test.p_eq is not None and test.p_eq <= level * ROUNDING
        return np.asarray(inside)

    def _by_splits(self, rows: npt.NDArray[np.intp], x: float, level: float, sign: float) -> tuple[Bools, Bools]:
        """Whether random splits reject, for rows; the statistic is the mean difference, or Welch's t of unequal sizes."""
        n, m = self._sizes
        splits = _splits(n, m)
        rejected, unsure = np.zeros(rows.size, np.bool_), np.zeros(rows.size, np.bool_)
        step = max(1, BLOCK // SCREEN)
        for start in range(0, rows.size, step):
            part = rows[start : start + step]
            pooled = np.concatenate((self.a[part], self.b[part] - x), axis=1)
            pooled -= np.median(pooled, axis=1, keepdims=True)
            pooled /= np.abs(pooled).max(axis=1, keepdims=True)
            observed = np.zeros((n + m, 1))
            observed[n:] = 1.0
            drawn, own = (self._statistic(pooled, members) for members in (splits, observed))
            # Ties may count or not.
            tie = 1e-9 * np.maximum(1.0, np.abs(own))
            least = (sign * (drawn - own) > tie).mean(axis=1)
            most = (sign * (drawn - own) >= -tie).mean(axis=1)
            error = FAR * np.sqrt(level * (1.0 - level) / SCREEN)
            rejected[start : start + step], unsure[start : start + step] = _settled(least, most, level, error)
        return rejected, unsure

    def _statistic(self, pooled: Array, members: Array) -> Array:
        """Of B's side minus A's, for every split: (rows, splits)."""
        n, m = self._sizes
        sums = pooled @ members
        total = pooled.sum(axis=1, keepdims=True)
        difference = sums / m - (total - sums) / n
        if n == m:
            return np.asarray(difference)
        squares = pooled**2 @ members
        all_squares = (pooled**2).sum(axis=1, keepdims=True)
        v_b = np.maximum(squares - sums**2 / m, 0.0) / (m - 1) / m
        v_a = np.maximum(all_squares - squares - (total - sums) ** 2 / n, 0.0) / (n - 1) / n
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nan_to_num(difference / np.sqrt(v_a + v_b), nan=0.0))

    def covers(self, x: float, level: float) -> Bools:
        """Welch's interval, which is extended to 0 where the permutations keep 0."""
        if x == 0.0:
            return super().covers(x, level)
        half = -sp.stdtrit(self._df, (1.0 - level) / 2.0) * self._se
        inside = np.asarray(np.abs(x - self._effect) <= half * (1.0 - 1e-9)) & ~self._flat
        for row in np.flatnonzero(~inside):
            test = unpaired_test(self.a[row], self.b[row], self._alpha, self._comparisons)
            inside[row] = test.interval(level).contains(x)
        return np.asarray(inside)


def _settled(least: Array, most: Array, level: float, error: float) -> tuple[Bools, Bools]:
    """Which replicates reject for sure, and which are unsure, from the least and the most that their p can be."""
    rejected = np.asarray(most + error < level if error else most <= level * ROUNDING)
    return rejected, np.asarray(~rejected & (least - error <= level * ROUNDING))


@lru_cache(maxsize=TURNS)
def _subsets(units: int, turn: int) -> Array:
    """Subsets of the units as columns of 0 and 1, shape (units, subsets): all of them, or random ones for each turn."""
    if units <= FEW_UNITS:
        return (np.arange(2**units) >> np.arange(units)[:, None] & 1).astype(np.float64)
    return generator(turn).integers(0, 2, (units, max(1, min(SCREEN, BLOCK // units)))).astype(np.float64)


@lru_cache(maxsize=4)
def _splits(n: int, m: int) -> Array:
    """Random splits of n + m values as columns: 1 for members of the second group, shape (n + m, SCREEN)."""
    keys = generator(1).random((n + m, SCREEN))
    return (np.argsort(np.argsort(keys, axis=0), axis=0) >= n).astype(np.float64)
