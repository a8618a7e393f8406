from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.stats.choose import paired_test, unpaired_test
from bakeoff.stats.decision import decide
from bakeoff.stats.evidence import Test, WorstCase
from bakeoff.stats.missing import compare_with_missing, fill, seen_ends


def paired(a: np.ndarray, b: np.ndarray) -> Test:
    return paired_test(b - a, margin=0.4)


def test_without_gaps_it_is_the_plain_comparison() -> None:
    a, b = np.arange(8.0) / 10, np.arange(8.0) / 9
    assert compare_with_missing(a, b, (0.0, 1.0), paired).p == paired(a, b).p


def test_sign_flips_need_two_corners_and_t_needs_four() -> None:
    b = np.array([0.9, 0.8, np.nan, 0.7, 0.9, 0.95, 0.6, 0.7])
    a = b - 0.1
    assert len(compare_with_missing(a, b, (0.0, 1.0), paired).corners) == 2
    assert len(compare_with_missing(a[:5], b[:5], (0.0, 1.0), paired).corners) == 4
    assert len(compare_with_missing(a, b, (0.0, 1.0), lambda x, y: unpaired_test(x, y)).corners) == 4


@given(st.integers(0, 10**6), st.integers(1, 2), st.integers(0, 1))
@settings(max_examples=40, deadline=None)
def test_no_filling_of_the_gaps_gives_a_larger_p_than_the_worst_case(seed: int, lost_b: int, lost_a: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random(9) * 0.5, np.clip(rng.random(9) * 0.5 + 0.3, 0, 1)
    b[:lost_b] = np.nan
    a[3 : 3 + lost_a] = np.nan
    worst = compare_with_missing(a, b, (0.0, 1.0), paired)
    gaps = lost_b + lost_a
    for values in itertools.product((0.0, 0.4, 1.0), repeat=gaps):
        x, y = a.copy(), b.copy()
        y[:lost_b] = values[:lost_b]
        x[3 : 3 + lost_a] = values[lost_b:]
        one = paired(x, y)
        assert one.evidence.greater(0.0) <= worst.evidence.greater(0.0) + 1e-12
        assert one.evidence.less(0.0) <= worst.evidence.less(0.0) + 1e-12
        assert one.p_eq <= worst.p_eq + 1e-12


def test_the_same_verdict_at_both_ends_stands() -> None:
    rng = np.random.default_rng(0)
    a = rng.random(12) * 0.1
    b = a + 0.6 + 0.1 * rng.random(12)
    b[0] = np.nan
    decision = decide([compare_with_missing(a, b, (0.0, 1.0), lambda x, y: paired_test(y - x))])[0]
    assert decision.verdict == "better" and "missing" in decision.assumes
    corners = [decide([paired_test(fill(b, end) - a)])[0] for end in (0.0, 1.0)]
    assert decision.p == max(c.p for c in corners)
    assert decision.decision_interval.low == min(c.decision_interval.low for c in corners)
    assert decision.decision_interval.high == max(c.decision_interval.high for c in corners)


def test_verdicts_that_differ_between_the_ends_are_undecided_for_that_reason() -> None:
    d = np.array([0.3, 0.2, 0.25, 0.3, 0.2, 0.35, 0.3, 0.22])
    a, b = np.zeros(8), d.copy()
    b[:2] = np.nan
    decision = decide([compare_with_missing(a, b, (-1.0, 1.0), lambda x, y: paired_test(y - x))])[0]
    assert (decision.verdict, decision.reason) == ("undecided", "missing")
    assert decision.p_adjusted > 0.05 and decision.decision_interval.contains(0.0)


def test_opposite_significant_corners_never_give_a_small_p() -> None:
    better, worse = paired_test(np.arange(1.0, 10.0)), paired_test(-np.arange(1.0, 10.0))
    both = Test(WorstCase((better.evidence, worse.evidence)))
    assert max(better.p, worse.p) < 0.01 and both.p == 1.0
    assert both.interval(0.95).contains(0.0)


def test_equivalent_at_one_end_and_better_at_the_other_is_undecided() -> None:
    a = np.zeros(12)
    b = np.full(12, 0.35) + 0.02 * np.random.default_rng(1).normal(size=12)
    b[:3] = np.nan
    test = compare_with_missing(a, b, (0.3, 3.0), lambda x, y: paired_test(y - x, margin=0.5))
    decision = decide([test])[0]
    assert {decide([c])[0].verdict for c in test.corners} == {"equivalent", "better"}
    assert (decision.verdict, decision.reason) == ("undecided", "missing")


def test_undecided_at_every_end_is_simply_inconclusive() -> None:
    b = np.array([0.1, -0.2, 0.15, -0.1, 0.05, np.nan, 0.1, -0.1])
    decision = decide([compare_with_missing(np.zeros(8), b, (-0.2, 0.2), lambda x, y: paired_test(y - x))])[0]
    assert (decision.verdict, decision.reason) == ("undecided", "inconclusive")


def test_ends_may_be_those_seen_on_each_task() -> None:
    a = np.array([[1.0, 10.0], [2.0, np.nan]])
    b = np.array([[3.0, 30.0], [np.nan, 20.0]])
    low, high = seen_ends(a, b)
    assert low.tolist() == [[1.0, 10.0]] and high.tolist() == [[3.0, 30.0]]
    assert fill(a, low).tolist() == [[1.0, 10.0], [2.0, 10.0]]
    with pytest.raises(ValueError, match="no run"):
        seen_ends([[1.0, np.nan]], [[2.0, np.nan]])


def test_an_infinite_end_is_refused() -> None:
    with pytest.raises(ValueError, match="range"):
        fill(np.array([1.0, np.nan]), np.inf)
