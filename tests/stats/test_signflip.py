from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.evidence import agreeing_interval
from bakeoff.stats.signflip import DRAWS, ExactTails, SignFlip, exact_tails
from stats.strategies import samples


def brute_force_greater(d: np.ndarray, x: float) -> float:
    """P of 'centre <= x' by visiting every subset, straight from the definition."""
    tie = 1e-9 * np.abs(d).max()
    total = 1.0
    for size in range(1, d.size + 1):
        for chosen in itertools.combinations(d, size):
            mean = np.mean(chosen)
            total += 1.0 if mean < x - tie else 0.5 if mean <= x + tie else 0.0
    return total / 2.0**d.size


@given(samples(max_size=8), st.sampled_from([-0.5, 0.0, 0.25]))
@settings(max_examples=40, deadline=None)
def test_one_sided_p_is_the_share_of_subset_means_below_the_point(d: np.ndarray, at: float) -> None:
    x = at * float(np.abs(d).max())
    assert SignFlip(d).greater(x) == pytest.approx(brute_force_greater(d, x), rel=1e-12)
    assert SignFlip(d).less(x) == pytest.approx(brute_force_greater(-d, -x), rel=1e-12)


def whole_ties(tails: ExactTails) -> float:
    """The textbook permutation p: twice the smaller tail with ties counted whole."""
    return min(1.0, 2.0 * (1.0 + min(tails.below, tails.above) + tails.ties) / 2.0**tails.n)


@pytest.mark.parametrize("n", [2, 5, 9, 12])
def test_agrees_with_scipys_exact_sign_flip_where_there_are_no_ties(n: int) -> None:
    d = np.random.default_rng(n).normal(0.4, 1.0, n)
    oracle = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert SignFlip(d).p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert whole_ties(exact_tails(d)) == pytest.approx(oracle.pvalue, rel=1e-9)


def test_whole_ties_agree_with_scipy_on_scores_in_quarters() -> None:
    d = np.array([0.25, 0.25, -0.25, 0.5, 0.0, 0.75, 0.25, -0.5])
    oracle = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert whole_ties(exact_tails(d)) == pytest.approx(oracle.pvalue, rel=1e-9)
    assert SignFlip(d).p < oracle.pvalue


@given(samples(max_size=14), st.sampled_from([0.0, 0.3, -1.0]))
@settings(max_examples=60, deadline=None)
def test_meeting_in_the_middle_counts_what_the_array_counts(d: np.ndarray, at: float) -> None:
    x = at * float(np.abs(d).max())
    tails, array = exact_tails(d, x), SignFlip(d)
    assert (1 + tails.below + 0.5 * tails.ties) / 2**d.size == pytest.approx(array.greater(x), rel=1e-12)
    assert (1 + tails.above + 0.5 * tails.ties) / 2**d.size == pytest.approx(array.less(x), rel=1e-12)
    assert tails.below + tails.ties + tails.above == 2**d.size - 1


@given(samples(max_size=12), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
@settings(max_examples=80, deadline=None)
def test_the_interval_keeps_exactly_the_points_that_the_test_keeps(d: np.ndarray, level: float) -> None:
    test = SignFlip(d)
    interval = test.interval(level)
    scale = float(np.abs(d).max()) or 1.0
    points = [*np.linspace(-1.5, 1.5, 31) * scale, interval.low, interval.high]
    for x in (p for p in points if np.isfinite(p)):
        kept = 2.0 * min(test.greater(x), test.less(x)) > 1.0 - level + 1e-12
        if min(abs(x - interval.low), abs(x - interval.high)) > 1e-8 * scale or x in (interval.low, interval.high):
            assert interval.contains(x) == kept, x


def test_the_interval_of_few_units_is_infinite() -> None:
    interval = SignFlip([1.0, 2.0, 3.0, 4.0, 5.0]).interval(0.95)
    assert (interval.low, interval.high) == (-np.inf, np.inf)
    assert interval.low_open and interval.high_open and not interval.is_bounded


def test_an_end_that_the_test_rejects_is_open() -> None:
    # Half-counted ties at the end can reject it: look for such data among scores in quarters.
    rng = np.random.default_rng(3)
    opened = 0
    for _ in range(200):
        d = rng.integers(-3, 8, 8) / 4.0
        test = SignFlip(d)
        interval = test.interval(0.9)
        assert interval.low_open == (test.greater(interval.low) <= 0.05)
        assert interval.high_open == (test.less(interval.high) <= 0.05)
        opened += interval.low_open
    assert 0 < opened < 200


@given(samples(min_size=3, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_row_order_and_positive_scale_change_nothing_and_swapping_arms_mirrors(d: np.ndarray, random) -> None:
    shuffled = d.copy()
    random.shuffle(shuffled)
    test, again, mirror, scaled = SignFlip(d), SignFlip(shuffled), SignFlip(-d), SignFlip(d * 4.0)
    assert again.p == test.p == mirror.p == scaled.p
    assert again.interval(0.8) == test.interval(0.8)
    assert mirror.interval(0.8).negated() == test.interval(0.8)
    assert scaled.interval(0.8).low == 4.0 * test.interval(0.8).low
    assert mirror.effect == -test.effect


@pytest.mark.parametrize("n", [21, 37])
def test_random_subsets_keep_the_same_symmetries_and_the_seed(n: int) -> None:
    rng = np.random.default_rng(n)
    d = rng.integers(-4, 7, n) / 4.0
    test = SignFlip(d)
    assert SignFlip(rng.permutation(d)).p == test.p == SignFlip(-d).p
    assert SignFlip(-d).interval(0.95).negated() == test.interval(0.95)
    assert SignFlip(d, seed=1).p != test.p
    assert not test.exact and test.floor == pytest.approx(2.0 / (DRAWS + 1))


def test_random_subsets_agree_with_the_exact_count() -> None:
    for seed in range(4):
        d = np.random.default_rng(seed).normal(0.3, 1.0, 30)
        exact = exact_tails(d).p
        error = np.sqrt(exact * (2.0 - exact) / DRAWS) + 2.0 / DRAWS
        assert abs(SignFlip(d, seed=seed).p - exact) < 5.0 * error


def test_constant_differences_reach_only_the_floor() -> None:
    for n in (3, 5, 8, 20):
        assert SignFlip(np.full(n, 0.7)).p == 2.0 / 2**n == SignFlip(np.full(n, 0.7)).floor


def test_all_zero_differences_give_p_one_and_equivalence_from_five_units_on() -> None:
    for n in (4, 5, 8):
        test = SignFlip(np.zeros(n))
        assert test.p == 1.0
        assert (test.p_equivalent(0.1) <= 0.05) == (n >= 5)


def test_equivalence_p_is_the_larger_one_sided_p_at_the_margin() -> None:
    d = np.random.default_rng(0).normal(0.0, 0.1, 12)
    test = SignFlip(d)
    assert test.p_equivalent(0.3) == max(test.greater(-0.3), test.less(0.3))
    inside = agreeing_interval(test, 0.9, (-0.3, 0.3)).lies_inside(0.3)
    assert inside == (test.p_equivalent(0.3) <= 0.05)


def test_float_noise_does_not_break_a_tie() -> None:
    noisy = np.array([0.1 + 0.2, -0.3, 0.3, 0.7 - 0.4, 0.0, 0.6, -0.1, 0.4])
    clean = np.round(noisy, 3)
    assert SignFlip(noisy).p == SignFlip(clean).p


def test_forty_pairs_are_counted_exactly_in_a_fraction_of_a_second() -> None:
    d = np.random.default_rng(1).normal(0.3, 1.0, 40)
    start = time.process_time()
    tails = exact_tails(d)
    assert time.process_time() - start < 5.0  # the bar of 200 ms is the benchmark's to hold
    assert tails.below + tails.ties + tails.above == 2**40 - 1
    with pytest.raises(ValueError, match="40 pairs"):
        exact_tails(np.ones(41))


@pytest.mark.parametrize("bad", [[1.0, np.nan], [np.inf, 1.0], [], [[1.0, 2.0]]])
def test_values_that_are_not_a_finite_vector_are_refused(bad: list) -> None:
    with pytest.raises(ValueError, match="d "):
        SignFlip(bad)


def test_levels_outside_zero_and_one_are_refused() -> None:
    with pytest.raises(ValueError, match="level"):
        SignFlip([1.0, 2.0]).interval(95.0)


def test_rejects_at_most_alpha_when_the_arms_are_exchangeable() -> None:
    rng = np.random.default_rng(0)
    for draw in (lambda: rng.normal(size=8), lambda: rng.integers(0, 5, 8) / 4 - rng.integers(0, 5, 8) / 4):
        rejected = np.mean([SignFlip(draw()).p <= 0.05 for _ in range(1500)])
        assert rejected <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)
