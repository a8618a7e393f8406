"""What a test says about the centre of B - A: p-values, and the interval that belongs to them.

Every test of this package is an `Evidence`: it answers how strongly the data speak against 'centre <= x'
and against 'centre >= x' (`tails`), and which x it keeps at a level (`interval`). A `Test` is one
comparison: evidence and an equivalence margin. All its numbers come from these answers, so p, interval and
verdict cannot contradict each other.

    test = with_margin(SignFlip(d), margin=0.05)
    test.p, test.p_eq, test.interval(0.95)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from bakeoff.stats.numerics import tail

LEAST_UNITS = 3
"""Fewer units decide nothing, whatever they show."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval in the metric's unit, mostly for the centre of B - A.

    An end can be open: then the test behind the interval rejects the end itself, so that 'the interval
    excludes 0' and 'p <= alpha' mean the same. Invariants: low <= high, and an infinite end is open.
    """

    low: float
    high: float
    level: float
    low_open: bool = False
    high_open: bool = False

    def contains(self, x: float) -> bool:
        """Whether the test behind the interval keeps the value x."""
        above = x > self.low or (x == self.low and not self.low_open)
        below = x < self.high or (x == self.high and not self.high_open)
        return above and below

    def excludes(self, x: float) -> bool:
        """Whether the test behind the interval rejects the value x."""
        return not self.contains(x)

    def lies_inside(self, margin: float) -> bool:
        """Whether every value of the interval is strictly between -margin and +margin."""
        low_inside = self.low > -margin or (self.low == -margin and self.low_open)
        high_inside = self.high < margin or (self.high == margin and self.high_open)
        return low_inside and high_inside

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are finite: the data suffice to bound the effect at this level."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def negated(self) -> Interval:
        """The interval of A - B."""
        return Interval(-self.high, -self.low, self.level, self.high_open, self.low_open)

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that contains both. An end is open only if neither interval contains it."""
        # Of two ends at one place the closed one is kept.
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Interval(
            low,
            high,
            self.level,
            low_open=all(i.low_open for i in (self, other) if i.low == low),
            high_open=all(i.high_open for i in (self, other) if i.high == high),
        )

    def agreeing(self, x: float, rejected_from_below: bool, rejected_from_above: bool) -> Interval:
        """Move an end, no further than x, so that the interval says about x what the test says about x.

        `rejected_from_below`: the test rejects 'centre <= x', so x must lie left of the interval. Otherwise
        the interval must reach down to x. `rejected_from_above` is the mirror image.
        """
        out = self
        # x must be outside on the left, or else inside.
        if rejected_from_below and (out.low < x or (out.low == x and not out.low_open)):
            out = replace(out, low=x, low_open=True, high=max(out.high, x))
        elif not rejected_from_below and (out.low > x or (out.low == x and out.low_open)):
            out = replace(out, low=x, low_open=False)
        # The same on the right.
        if rejected_from_above and (out.high > x or (out.high == x and not out.high_open)):
            out = replace(out, high=x, high_open=True, low=min(out.low, x))
        elif not rejected_from_above and (out.high < x or (out.high == x and out.high_open)):
            out = replace(out, high=x, high_open=False)
        return out


def unbounded(level: float) -> Interval:
    """The whole line: nothing is excluded at this level."""
    return Interval(-math.inf, math.inf, level, low_open=True, high_open=True)


@dataclass(frozen=True, slots=True)
class Tails:
    """Two one-sided p-values about a point x, named as in scipy's `alternative`.

    greater  p of 'centre <= x': small when the data lie above x
    less     p of 'centre >= x': small when the data lie below x
    """

    greater: float
    less: float

    @property
    def p(self) -> float:
        """Two-sided p of 'centre = x': twice the smaller one-sided p, at most 1."""
        return min(1.0, 2.0 * min(self.greater, self.less))


class Evidence(ABC):
    """What every test can say about the centre of B - A.

    Invariants: with growing x `greater` does not decrease and `less` does not increase (up to Monte-Carlo
    noise, which `Test` removes); both are at least `floor` / 2 and never 0.

    n         number of independent units
    effect    estimate of the centre of B - A, in the metric's unit
    method    short name of the test, for the printed line
    assumes   one clause: the condition under which the error rate holds
    floor     smallest two-sided p that this many units can give; printed in place of a p of 0
    monotone  whether p moves one way with every single value: then two fillings bound all fillings of missing runs
    identical whether the arms are equal on every unit
    least     fewer units than this decide nothing, whatever they show
    """

    n: int
    effect: float
    method: str
    assumes: str
    floor: float
    monotone: bool
    identical: bool = False
    least: int = LEAST_UNITS

    @abstractmethod
    def tails(self, x: float) -> Tails:
        """One-sided p-values of 'centre <= x' and 'centre >= x'."""

    @abstractmethod
    def interval(self, level: float) -> Interval:
        """The values that the two-sided test keeps at 1 - level. `Test.interval` makes it agree with p."""

    @property
    def p(self) -> float:
        """Two-sided p of 'centre = 0'."""
        return self.tails(0.0).p

    def p_equivalent(self, margin: float) -> float:
        """p of the two one-sided tests against +-margin (TOST; Schuirmann, J. Pharmacokinet. Biopharm.

        1987).
        """
        return max(self.tails(-margin).greater, self.tails(margin).less)


class WorstCase(Evidence):
    """Several fillings of missing runs, read as one test: each p is the largest one, the interval is the hull.

    The larger one-sided p is taken before the two sides are compared. Fillings that point in opposite
    directions therefore give a p near 1 and an interval around 0, never two significant answers.
    """

    def __init__(self, corners: Sequence[Evidence]) -> None:
        self.corners = tuple(corners)
        self.n = min(c.n for c in self.corners)
        effects = [c.effect for c in self.corners]
        self.effect = min(effects) + (max(effects) - min(effects)) / 2.0
        self.method = self.corners[0].method
        self.assumes = f"{self.corners[0].assumes}; missing runs bounded at both ends"
        self.floor = max(c.floor for c in self.corners)
        self.least = max(c.least for c in self.corners)
        self.identical = all(c.identical for c in self.corners)
        self.monotone = all(c.monotone for c in self.corners)

    def tails(self, x: float) -> Tails:
        tails = [c.tails(x) for c in self.corners]
        return Tails(max(t.greater for t in tails), max(t.less for t in tails))

    def interval(self, level: float) -> Interval:
        return reduce(Interval.hull, (c.interval(level) for c in self.corners))


class Guarded(WorstCase):
    """A test, and a second one that guards it where its assumption fails: each p is the larger one."""

    def __init__(self, test: Evidence, guard: Evidence) -> None:
        super().__init__((test, guard))
        self.effect = test.effect
        self.method = f"{test.method} and {guard.method}"
        self.assumes = guard.assumes


class Widened(Evidence):
    """A test whose distances from the estimate are divided by `factor`, so that its interval is that many times as wide."""

    def __init__(self, evidence: Evidence, factor: float) -> None:
        self.evidence, self.factor = evidence, factor
        self.n, self.effect, self.floor = evidence.n, evidence.effect, evidence.floor
        self.method, self.assumes = evidence.method, f"{evidence.assumes}; interval times {factor:.3g} for skew"
        self.monotone = False  # an extreme value moves the estimate that distances are counted from
        self.identical, self.least = evidence.identical, evidence.least

    def tails(self, x: float) -> Tails:
        return self.evidence.tails(self.effect + (x - self.effect) / self.factor)

    def interval(self, level: float) -> Interval:
        inner = self.evidence.interval(level)
        low, high = (self.effect + self.factor * (end - self.effect) for end in (inner.low, inner.high))
        return replace(inner, low=low, high=high)


class Grouped(WorstCase):
    """A test of units, and tests of groups that these units may depend on: each p is the largest one.

    The largest of several p-values is valid if any of them is, whichever grouping the data have.
    """

    def __init__(self, tests: Sequence[Evidence]) -> None:
        super().__init__(tests)
        self.effect = tests[0].effect
        # Each kind of unit has its own least number: two crossed seeds are enough, two groups are not.
        self.least = min(test.least for test in tests)
        self.assumes = f"{tests[0].assumes}; the larger p of units and of their groups"


@dataclass(frozen=True, slots=True)
class Bound:
    """One side of an equivalence margin: the evidence to ask, and the point to ask about."""

    evidence: Evidence
    at: float


@dataclass(frozen=True, slots=True)
class Test:
    """One comparison: its p-values and the intervals that belong to them.

    p is two-sided. p_eq (None without a margin) is the larger of two one-sided p, so 'equivalent' at level
    a is read at a, and its interval is the one of level 1 - 2a. Bounds have their own evidence, which asks for
    more than p does where skewed data could mislead it; for a relative margin it is about B - (1 +- r) A at 0. `corners` has one Test for each filling of missing runs; it is empty when
    nothing is missing.
    """

    __test__ = False  # pytest collects classes called Test

    evidence: Evidence
    lower: Bound | None = None
    upper: Bound | None = None
    corners: tuple[Test, ...] = ()
    p: float = field(init=False)
    p_eq: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Computed once: the dataclass is frozen, and a permutation p is not cheap.
        object.__setattr__(self, "p", self.evidence.p)
        if self.lower is not None and self.upper is not None:
            below = monotone_tails(self.lower.evidence, self.lower.at).greater
            above = monotone_tails(self.upper.evidence, self.upper.at).less
            object.__setattr__(self, "p_eq", max(below, above))

    @property
    def margin(self) -> float | None:
        """The absolute equivalence margin; None when there is none or when it is relative."""
        return self.upper.at if self.upper is not None and self.upper.at > 0.0 else None

    @property
    def monotone(self) -> bool:
        """Whether two fillings of missing runs bound all of them, for p and for p_eq."""
        bounds = [bound.evidence for bound in (self.lower, self.upper) if bound is not None]
        return all(evidence.monotone for evidence in (self.evidence, *bounds))

    def interval(self, level: float, at: Iterable[float] = ()) -> Interval:
        """The interval of this level that excludes x exactly when the test does, for x = 0, +-margin and `at`.

        An end moves no further than to such an x. It only ever moves where p and the raw interval come from
        different formulas (binary outcomes, random splits).
        """
        margin = () if self.margin is None else (-self.margin, self.margin)
        return _agreeing(self.evidence, level, {0.0, *margin, *at})

    def equivalence_interval(self, level: float) -> Interval | None:
        """The interval of this level that lies inside an absolute margin exactly when p_eq is small enough for it."""
        if self.margin is None or self.upper is None:
            return None
        return _agreeing(self.upper.evidence, level, {0.0, -self.margin, self.margin})


def _agreeing(evidence: Evidence, level: float, points: set[float]) -> Interval:
    """The interval of `evidence`, with ends moved so that it excludes each of the points exactly when the test does."""
    # p <= half, allowing for the rounding of 1 - (1 - a): p = a exactly must count as rejected.
    half = tail(level) * (1.0 + 1e-12)
    out = evidence.interval(level)
    # Outermost first, so that 0 has the last word: p and the printed interval meet there.
    for x in sorted(points, key=abs, reverse=True):
        tails = monotone_tails(evidence, x)
        out = out.agreeing(x, tails.greater <= half, tails.less <= half)
    return out


def monotone_tails(evidence: Evidence, x: float) -> Tails:
    """Return `evidence.tails(x)`, made monotone against the tails at 0.

    'centre <= x' for x < 0 is part of 'centre <= 0', so the p of the latter is valid for the former too,
    and taking the smaller one costs nothing. Above 0 the larger one is taken; `less` is the mirror image.
    This matters only where the test at 0 and the test elsewhere use different formulas (binary outcomes,
    random splits).
    """
    zero = evidence.tails(0.0)
    if x == 0.0:
        return zero
    there = evidence.tails(x)
    if x < 0.0:
        return Tails(min(there.greater, zero.greater), max(there.less, zero.less))
    return Tails(max(there.greater, zero.greater), min(there.less, zero.less))


def with_margin(evidence: Evidence, margin: float | None, about_margin: Evidence | None = None) -> Test:
    """Return a Test with an absolute equivalence margin (> 0, in the metric's unit), or without one.

    `about_margin` is the evidence that equivalence asks (default: `evidence`).
    """
    if margin is None:
        return Test(evidence)
    if not (margin > 0.0 and math.isfinite(margin)):
        raise ValueError(f"margin must be positive and finite, got {margin}")
    asked = about_margin if about_margin is not None else evidence
    return Test(evidence, Bound(asked, -margin), Bound(asked, margin))


def grouped(tests: Sequence[Test]) -> Test:
    """The test of units together with tests of their groups; its corners are the single ones."""
    evidence = Grouped([each.evidence for each in tests])
    lower, upper = tests[0].lower, tests[0].upper
    if lower is None or upper is None:
        return Test(evidence, corners=tuple(tests))
    about = Grouped([each.upper.evidence for each in tests if each.upper is not None])
    return Test(evidence, Bound(about, lower.at), Bound(about, upper.at), tuple(tests))


def worst_case(tests: Sequence[Test]) -> Test:
    """Return several fillings of the missing runs as one Test: largest p on each side, hull of the intervals."""
    if not tests:
        raise ValueError("worst_case needs at least one test")
    if len(tests) == 1:
        return tests[0]
    evidence = WorstCase([t.evidence for t in tests])
    lower = [t.lower for t in tests if t.lower is not None]
    upper = [t.upper for t in tests if t.upper is not None]
    if not lower or not upper:
        return Test(evidence, corners=tuple(tests))
    # For an absolute margin both sides ask the same evidence in every filling.
    below = WorstCase([b.evidence for b in lower])
    above = below if tests[0].margin is not None else WorstCase([b.evidence for b in upper])
    return Test(evidence, Bound(below, lower[0].at), Bound(above, upper[0].at), tuple(tests))
