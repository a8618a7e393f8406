from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from bakeoff.stats.interval import Interval, unbounded

points = st.integers(-3, 3).map(float)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = sorted((draw(points), draw(points)))
    return Interval(low, high, 0.95, draw(st.booleans()), draw(st.booleans()))


def test_an_open_end_does_not_belong_to_the_interval() -> None:
    interval = Interval(0.0, 1.0, 0.95, low_open=True)
    assert interval.excludes(0.0) and interval.contains(1.0) and interval.contains(0.5)
    assert not Interval(0.0, 1.0, 0.95).lies_inside(1.0)
    assert Interval(0.0, 1.0, 0.95, high_open=True).lies_inside(1.0)


@given(intervals(), points)
def test_negating_mirrors_membership(interval: Interval, x: float) -> None:
    assert interval.negated().contains(-x) == interval.contains(x)
    assert interval.negated().negated() == interval


@given(intervals(), intervals(), points)
def test_the_hull_contains_what_either_contains(one: Interval, other: Interval, x: float) -> None:
    if one.contains(x) or other.contains(x):
        assert one.hull(other).contains(x)


@given(intervals(), points, st.booleans(), st.booleans())
def test_agreeing_makes_the_interval_say_what_the_test_says(
    interval: Interval, x: float, below: bool, above: bool
) -> None:
    if below and above:
        return  # no test rejects both sides
    out = interval.agreeing(x, below, above)
    assert out.excludes(x) == (below or above)
    assert out.low <= out.high


def test_the_unbounded_interval_contains_everything_finite() -> None:
    assert unbounded(0.9).contains(1e300) and not unbounded(0.9).is_bounded
    assert unbounded(0.9).excludes(math.inf)
