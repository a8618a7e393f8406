"""An interval that knows whether its ends belong to it, so that 'excludes 0' has one meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval for the centre of B - A, in the metric's unit.

    Invariant: low <= high. An infinite end is always open. An open end is itself rejected by the test behind it.
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
        low_ok = self.low > -margin or (self.low == -margin and self.low_open)
        high_ok = self.high < margin or (self.high == margin and self.high_open)
        return low_ok and high_ok

    @property
    def is_bounded(self) -> bool:
        """Both ends finite: the data were enough to bound the effect at this level."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def negated(self) -> Interval:
        """The interval of A - B."""
        return Interval(-self.high, -self.low, self.level, self.high_open, self.low_open)

    def hull(self, other: Interval) -> Interval:
        """Smallest interval that holds both; an end is open only if no operand contains it."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Interval(
            low,
            high,
            self.level,
            low_open=all(i.low_open for i in (self, other) if i.low == low),
            high_open=all(i.high_open for i in (self, other) if i.high == high),
        )

    def agreeing(self, x: float, rejected_from_below: bool, rejected_from_above: bool) -> Interval:
        """Move an end no further than x so that the interval says about x what the test says about x.

        `rejected_from_below`: the test rejects 'centre <= x', so x must lie left of the interval; otherwise the
        interval must reach down to x. `rejected_from_above` is the mirror.
        """
        out = self
        if rejected_from_below and (out.low < x or (out.low == x and not out.low_open)):
            out = replace(out, low=x, low_open=True, high=max(out.high, x))
        elif not rejected_from_below and (out.low > x or (out.low == x and out.low_open)):
            out = replace(out, low=x, low_open=False)
        if rejected_from_above and (out.high > x or (out.high == x and not out.high_open)):
            out = replace(out, high=x, high_open=True, low=min(out.low, x))
        elif not rejected_from_above and (out.high < x or (out.high == x and out.high_open)):
            out = replace(out, high=x, high_open=False)
        return out


def unbounded(level: float) -> Interval:
    """The whole line: nothing is excluded at this level."""
    return Interval(-math.inf, math.inf, level, low_open=True, high_open=True)
