"""Intervals know whether their ends belong to them; several fillings of missing runs are one test."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.stats.decision import Decision, decide, paired_test
from bakeoff.stats.evidence import Interval, Test, WorstCase, unbounded, worst_case

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


def over(known: np.ndarray, lost: int, ends: tuple[float, float], margin: float | None = None) -> Decision:
    """The decision on differences of which `lost` more lie at one end or at the other."""
    return decide([worst_case([paired_test(np.append(known, [end] * lost), margin=margin) for end in ends])])[0]


def test_the_same_verdict_at_both_ends_stands() -> None:
    known = 0.6 + 0.1 * np.random.default_rng(0).random(11)
    decision = over(known, 1, (0.0, 1.0))
    assert decision.verdict == "better" and "missing" in decision.assumes
    corners = [decide([paired_test(np.append(known, end))])[0] for end in (0.0, 1.0)]
    assert decision.p == max(c.p for c in corners)
    assert decision.decision_interval.low == min(c.decision_interval.low for c in corners)
    assert decision.decision_interval.high == max(c.decision_interval.high for c in corners)


def test_verdicts_that_differ_between_the_ends_are_undecided_for_that_reason() -> None:
    decision = over(np.array([0.25, 0.3, 0.2, 0.35, 0.3, 0.22]), 2, (-1.0, 1.0))
    assert (decision.verdict, decision.reason) == ("undecided", "missing")
    assert decision.p_adjusted > 0.05 and decision.decision_interval.contains(0.0)


def test_opposite_significant_corners_never_give_a_small_p() -> None:
    better, worse = paired_test(np.arange(1.0, 10.0)), paired_test(-np.arange(1.0, 10.0))
    both = Test(WorstCase((better.evidence, worse.evidence)))
    assert max(better.p, worse.p) < 0.01 and both.p == 1.0
    assert both.interval(0.95).contains(0.0)


def test_equivalent_at_one_end_and_better_at_the_other_is_undecided() -> None:
    known = np.full(9, 0.35) + 0.02 * np.random.default_rng(1).normal(size=9)
    decisions = [over(known, 3, (end, end), margin=0.5) for end in (0.3, 3.0)]
    assert [d.verdict for d in decisions] == ["equivalent", "better"]
    decision = over(known, 3, (0.3, 3.0), margin=0.5)
    assert (decision.verdict, decision.reason) == ("undecided", "missing")


def test_undecided_at_every_end_is_simply_inconclusive() -> None:
    decision = over(np.array([0.1, -0.2, 0.15, -0.1, 0.05, 0.1, -0.1]), 1, (-0.2, 0.2))
    assert (decision.verdict, decision.reason) == ("undecided", "inconclusive")
