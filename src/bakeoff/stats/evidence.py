"""One object from which p, interval and equivalence are all read, so that they cannot disagree.

Every test of the room gives the same three answers: how strongly the data speak against 'centre <= x' (`greater`),
against 'centre >= x' (`less`), and which x are kept at a level (`raw_interval`). `Test` puts these together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol, runtime_checkable

from bakeoff.stats.interval import Interval
from bakeoff.stats.vectors import probability


@runtime_checkable
class Evidence(Protocol):
    """What a test must be able to say about the centre of B - A.

    Invariants: `greater` does not decrease and `less` does not increase in x (up to Monte-Carlo noise, which `Test`
    removes); both are at least `floor` / 2 and never 0.
    """

    @property
    def n(self) -> int:
        """Number of independent units."""

    @property
    def effect(self) -> float:
        """Estimate of the centre of B - A, in the metric's unit."""

    @property
    def method(self) -> str:
        """Short name of the test, for the printed line."""

    @property
    def assumes(self) -> str:
        """One clause that says under which condition the error rate holds."""

    @property
    def floor(self) -> float:
        """Smallest two-sided p this many units can give."""

    @property
    def monotone(self) -> bool:
        """Whether p moves one way with every single value: then two corners bound all fillings of missing runs."""

    def greater(self, x: float) -> float:
        """One-sided p of 'centre <= x'; small when the data lie above x."""

    def less(self, x: float) -> float:
        """One-sided p of 'centre >= x'; small when the data lie below x."""

    def raw_interval(self, level: float) -> Interval:
        """Values kept at two-sided level 1 - `level`, before it is made to agree with p at 0 and at the margin."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One side of an equivalence margin: the evidence to ask and the point to ask about."""

    evidence: Evidence
    at: float


@dataclass(frozen=True, slots=True)
class Test:
    """One comparison: the p-values, and the intervals that belong to them.

    p is two-sided; p_eq (None without a margin) is the larger of two one-sided tests, so 'equivalent' at level a is
    read at a, and its interval is the one of level 1 - 2a. Missing runs enter as several corners (`corners`).
    """

    __test__ = False  # pytest collects classes called Test

    evidence: Evidence
    lower: Bound | None = None
    upper: Bound | None = None
    p: float = field(init=False)
    p_eq: float | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", two_sided(self.evidence, 0.0))
        object.__setattr__(self, "p_eq", self._p_eq())

    def _p_eq(self) -> float | None:
        if self.lower is None or self.upper is None:
            return None
        return max(
            greater_at(self.lower.evidence, self.lower.at),
            less_at(self.upper.evidence, self.upper.at),
        )

    @property
    def n(self) -> int:
        """Number of independent units."""
        return self.evidence.n

    @property
    def effect(self) -> float:
        """Estimate of the centre of B - A, in the metric's unit."""
        return self.evidence.effect

    @property
    def method(self) -> str:
        """Short name of the test."""
        return self.evidence.method

    @property
    def assumes(self) -> str:
        """One clause: when the stated error rate holds."""
        return self.evidence.assumes

    @property
    def floor(self) -> float:
        """Smallest p this many units can give: named in the output instead of a p of 0."""
        return self.evidence.floor

    @property
    def margin(self) -> float | None:
        """The absolute equivalence margin; None when there is none or when it is relative."""
        absolute = self.upper is not None and self.upper.evidence is self.evidence
        return self.upper.at if self.upper is not None and absolute else None

    def interval(self, level: float, at: Iterable[float] = ()) -> Interval:
        """Interval of this level that excludes x exactly when the test does, for x = 0, the margin's ends and `at`."""
        margin = self.margin
        ends = () if margin is None else (-margin, margin)
        return agreeing_interval(self.evidence, level, (0.0, *ends, *at))

    def p_noninferior(self, margin: float) -> float:
        """One-sided p of 'B is worse than A by `margin` or more': the gate's question."""
        return greater_at(self.evidence, -margin)

    def p_inferior(self, margin: float) -> float:
        """One-sided p of 'B is worse than A by at most `margin`': small when a regression is shown."""
        return less_at(self.evidence, -margin)

    @property
    def corners(self) -> tuple[Test, ...]:
        """The same comparison at each filling of its missing runs; just itself when nothing is missing."""
        if not isinstance(self.evidence, WorstCase):
            return (self,)
        lower, upper = self.lower, self.upper
        out = []
        for i, evidence in enumerate(self.evidence.corners):
            out.append(Test(evidence, _corner_bound(lower, i), _corner_bound(upper, i)))
        return tuple(out)


def _corner_bound(bound: Bound | None, i: int) -> Bound | None:
    if bound is None:
        return None
    if not isinstance(bound.evidence, WorstCase):
        return bound
    return Bound(bound.evidence.corners[i], bound.at)


def with_margin(evidence: Evidence, margin: float | None) -> Test:
    """A Test with an absolute equivalence margin (in the metric's unit, > 0), or without one."""
    if margin is None:
        return Test(evidence)
    if not (margin > 0.0 and math.isfinite(margin)):
        raise ValueError(f"margin must be positive and finite, got {margin}")
    return Test(evidence, Bound(evidence, -margin), Bound(evidence, margin))


def two_sided(evidence: Evidence, x: float) -> float:
    """Two-sided p at x: twice the smaller one-sided p, at most 1."""
    return min(1.0, 2.0 * min(evidence.greater(x), evidence.less(x)))


def greater_at(evidence: Evidence, x: float) -> float:
    """`evidence.greater(x)`, made monotone against its own answer at 0.

    'centre <= x' for x < 0 is part of 'centre <= 0', so the p of the latter is valid for the former too: taking the
    smaller costs nothing. Above 0 the larger is taken. This matters only where the test at 0 and the test elsewhere
    are different formulas (binary data, random splits).
    """
    if x == 0.0:
        return evidence.greater(0.0)
    pick = min if x < 0.0 else max
    return pick(evidence.greater(x), evidence.greater(0.0))


def less_at(evidence: Evidence, x: float) -> float:
    """Mirror of `greater_at`."""
    if x == 0.0:
        return evidence.less(0.0)
    pick = min if x > 0.0 else max
    return pick(evidence.less(x), evidence.less(0.0))


def agreeing_interval(evidence: Evidence, level: float, anchors: Iterable[float]) -> Interval:
    """The evidence's interval, with its ends moved (no further than an anchor) to agree with p at every anchor."""
    half = (1.0 - probability(level, "level")) / 2.0
    out = evidence.raw_interval(level)
    # Outermost first, so that 0 has the last word: p and the printed interval meet there.
    for x in sorted(set(anchors), key=abs, reverse=True):
        out = out.agreeing(x, _at_most(greater_at(evidence, x), half), _at_most(less_at(evidence, x), half))
    return out


def _at_most(p: float, half: float) -> bool:
    """p <= half, forgiving the rounding of 1 - (1 - a): p = a exactly must count as rejected."""
    return p <= half * (1.0 + 1e-12)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Several fillings of the missing runs, read as one test: each p is the largest, the interval is the hull.

    Because the larger one-sided p is taken before the two sides are compared, corners that point in opposite
    directions give a p near 1 and an interval around 0, never a significant contradiction.
    """

    corners: tuple[Evidence, ...]

    @property
    def n(self) -> int:
        """Units of the smallest corner (all corners have the same units)."""
        return min(c.n for c in self.corners)

    @property
    def effect(self) -> float:
        """Middle of the effects that the corners span."""
        effects = [c.effect for c in self.corners]
        return min(effects) + (max(effects) - min(effects)) / 2.0

    @property
    def method(self) -> str:
        """The corners' common method."""
        return self.corners[0].method

    @property
    def assumes(self) -> str:
        """The corners' common assumption, plus the bounds on what is missing."""
        return f"{self.corners[0].assumes}; missing runs bounded at both ends"

    @property
    def floor(self) -> float:
        """Largest floor among the corners."""
        return max(c.floor for c in self.corners)

    @property
    def monotone(self) -> bool:
        """True when it is true of every corner."""
        return all(c.monotone for c in self.corners)

    def greater(self, x: float) -> float:
        """Largest p of 'centre <= x' over the corners."""
        return max(c.greater(x) for c in self.corners)

    def less(self, x: float) -> float:
        """Largest p of 'centre >= x' over the corners."""
        return max(c.less(x) for c in self.corners)

    def raw_interval(self, level: float) -> Interval:
        """Hull of the corners' intervals."""
        return reduce(Interval.hull, (c.raw_interval(level) for c in self.corners))
