"""Sign flips and permutations against scipy, brute force and their own symmetries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.evidence import Test, with_margin
from bakeoff.stats.permutation import (
    DRAWS,
    ExactTails,
    SignFlip,
    Splits,
    Unpaired,
    exact_tails,
    permutation_is_useful,
    permutation_mean,
    permutation_welch,
    random_subsets,
    split_count,
    sums_by_size,
)
from bakeoff.stats.ttests import welch_t
from stats.strategies import samples, spread_samples


def brute_force_greater(d: np.ndarray, x: float) -> float:
    """P of 'centre <= x' by visiting every subset, straight from the definition."""
    tie = 1e-9 * np.abs(d).max()
    pure = np.abs(d).max() > 0.0 and np.ptp(np.abs(d)) <= tie  # wins and losses of one size count ties in full
    total = 1.0
    for size in range(1, d.size + 1):
        for chosen in itertools.combinations(d, size):
            mean = np.mean(chosen)
            total += 1.0 if mean < x - tie else (1.0 if pure else 0.5) if mean <= x + tie else 0.0
    return total / 2.0**d.size


@given(samples(max_size=8), st.sampled_from([-0.5, 0.0, 0.25]))
@settings(max_examples=40, deadline=None)
def test_one_sided_p_is_the_share_of_subset_means_below_the_point(d: np.ndarray, at: float) -> None:
    x = at * float(np.abs(d).max())
    assert SignFlip(d).tails(x).greater == pytest.approx(brute_force_greater(d, x), rel=1e-12)
    assert SignFlip(d).tails(x).less == pytest.approx(brute_force_greater(-d, -x), rel=1e-12)


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
    assert (1 + tails.below + tails.tie_weight * tails.ties) / 2**d.size == pytest.approx(
        array.tails(x).greater, rel=1e-12
    )
    assert (1 + tails.above + tails.tie_weight * tails.ties) / 2**d.size == pytest.approx(
        array.tails(x).less, rel=1e-12
    )
    assert tails.below + tails.ties + tails.above == 2**d.size - 1


@given(samples(max_size=12), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
@settings(max_examples=80, deadline=None)
def test_the_interval_keeps_exactly_the_points_that_the_test_keeps(d: np.ndarray, level: float) -> None:
    test = SignFlip(d)
    interval = test.interval(level)
    scale = float(np.abs(d).max()) or 1.0
    points = [*np.linspace(-1.5, 1.5, 31) * scale, interval.low, interval.high]
    for x in (p for p in points if np.isfinite(p)):
        kept = 2.0 * min(test.tails(x).greater, test.tails(x).less) > 1.0 - level + 1e-12
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
        assert interval.low_open == (test.tails(interval.low).greater <= 0.05)
        assert interval.high_open == (test.tails(interval.high).less <= 0.05)
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
    assert abs(mirror.effect + test.effect) <= 1e-15 * np.abs(d).max()


@pytest.mark.parametrize("n", [21, 37])
def test_random_subsets_keep_the_same_symmetries_and_the_seed(n: int) -> None:
    rng = np.random.default_rng(n)
    d = rng.integers(-4, 7, n) / 4.0
    test = SignFlip(d)
    assert SignFlip(rng.permutation(d)).p == test.p == SignFlip(-d).p
    assert SignFlip(-d).interval(0.95).negated() == test.interval(0.95)
    assert SignFlip(d, seed=1).p != test.p
    assert not test.exact and test.floor == pytest.approx(2.0 / (DRAWS + 1))


@pytest.mark.parametrize(("n1", "n2"), [(4, 4), (5, 3), (2, 7)])
def test_splits_are_scipys_permutation_test_at_every_shift(n1: int, n2: int) -> None:
    rng = np.random.default_rng(n1)
    a, b = np.round(rng.normal(size=n1) * 2) / 2, np.round(rng.normal(0.6, 1.0, n2) * 2) / 2
    test, swapped = Splits([a], [b]), Splits([b], [a])
    for x in (0.0, 0.5, -1.3):
        for alternative in ("greater", "less"):
            oracle = stats.permutation_test(
                (b - x, a), lambda x, y, axis: x.mean(axis) - y.mean(axis), alternative=alternative,
                n_resamples=np.inf, vectorized=True,
            )  # fmt: skip
            assert getattr(test.tails(x), alternative) == pytest.approx(oracle.pvalue, rel=1e-9)
    assert swapped.p == test.p
    assert swapped.interval(0.8).negated() == test.interval(0.8)


def test_splits_stay_within_tasks_and_do_not_depend_on_order_or_offset() -> None:
    rng = np.random.default_rng(2)
    a, b = [rng.normal(size=3), rng.normal(5.0, 1.0, 2)], [rng.normal(1.0, 1.0, 2), rng.normal(6.0, 1.0, 3)]
    test = Splits(a, b)
    every = []
    for first in itertools.combinations(range(5), 2):
        for second in itertools.combinations(range(5), 3):
            pooled = [np.concatenate(pair) for pair in zip(a, b, strict=True)]
            picks = [list(first), list(second)]
            every.append(np.mean([p[i].mean() - np.delete(p, i).mean() for p, i in zip(pooled, picks, strict=True)]))
    assert test.tails(0.0).greater == pytest.approx(np.mean(np.array(every) >= test.effect - 1e-12))
    moved = Splits([x[::-1] + 1e6 for x in a[::-1]], [y[::-1] + 1e6 for y in b[::-1]])
    assert moved.p == test.p
    many = Splits([rng.normal(size=30)], [rng.normal(0.5, 1.0, 30)])
    assert not many.exact and many.floor == pytest.approx(2e-5)


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
    assert test.p_equivalent(0.3) == max(test.tails(-0.3).greater, test.tails(0.3).less)
    inside = Test(test).interval(0.9, at=(-0.3, 0.3)).lies_inside(0.3)
    assert inside == (test.p_equivalent(0.3) <= 0.05)


def test_float_noise_does_not_break_a_tie() -> None:
    noisy = np.array([0.1 + 0.2, -0.3, 0.3, 0.7 - 0.4, 0.0, 0.6, -0.1, 0.4])
    clean = np.round(noisy, 3)
    assert SignFlip(noisy).p == SignFlip(clean).p


def test_forty_pairs_are_counted_exactly() -> None:
    d = np.random.default_rng(1).normal(0.3, 1.0, 40)
    tails = exact_tails(d)
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


def mean_difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def welch_statistic(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic


@pytest.mark.parametrize(("n1", "n2"), [(2, 2), (3, 5), (6, 6), (7, 4)])
@pytest.mark.parametrize("lumpy", [False, True])
def test_exact_mean_difference_is_scipys(n1: int, n2: int, lumpy: bool) -> None:
    rng = np.random.default_rng(n1 * 10 + n2)
    a, b = rng.normal(size=n1), rng.normal(0.8, 1.0, n2)
    if lumpy:
        a, b = np.round(a * 2) / 2, np.round(b * 2) / 2
    ours = permutation_mean(a, b)
    for side, tail in (("two-sided", ours.p), ("greater", ours.greater), ("less", ours.less)):
        oracle = stats.permutation_test((b, a), mean_difference, vectorized=True, n_resamples=np.inf, alternative=side)
        assert tail == pytest.approx(oracle.pvalue, rel=1e-9), side


@pytest.mark.parametrize(("n1", "n2"), [(3, 5), (8, 4), (4, 9)])
def test_exact_welch_permutation_is_scipys(n1: int, n2: int) -> None:
    rng = np.random.default_rng(n1)
    a, b = rng.normal(size=n1), rng.normal(0.8, 2.0, n2)
    ours = permutation_welch(a, b)
    for side, tail in (("greater", ours.greater), ("less", ours.less)):
        oracle = stats.permutation_test((b, a), welch_statistic, vectorized=True, n_resamples=np.inf, alternative=side)
        assert tail == pytest.approx(oracle.pvalue, rel=1e-9), side
    assert ours.exact and ours.splits == split_count(n1, n2)


def test_fifteen_against_fifteen_is_exact_and_near_the_random_answer() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=15), rng.normal(0.8, 1.0, 15)
    ours = permutation_mean(a, b)
    assert ours.exact and ours.splits == 155_117_520
    oracle = stats.permutation_test((b, a), mean_difference, vectorized=True, n_resamples=20_000, rng=1)
    assert abs(ours.p - oracle.pvalue) < 5 * np.sqrt(ours.p / 10_000)


def test_random_splits_agree_with_the_exact_count() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=14), rng.normal(0.6, 1.0, 16)
    exact = permutation_mean(a, b).p
    drawn = permutation_mean(np.append(a, 0.3), np.append(b, 0.3))  # 32 values: beyond the exact range
    assert not drawn.exact
    t = stats.ttest_ind(np.append(a, 0.3), np.append(b, 0.3)).pvalue
    assert drawn.p == pytest.approx(t, abs=0.02) and exact == pytest.approx(t, abs=0.05)


@given(samples(max_size=7), samples(max_size=7))
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_swaps_the_tails(a: np.ndarray, b: np.ndarray) -> None:
    for test in (permutation_mean, permutation_welch):
        forth, back = test(a, b), test(b, a)
        assert (forth.greater, forth.less) == (back.less, back.greater)
        assert forth.greater + forth.less >= 1.0 - 1e-12


def test_swapping_and_reordering_hold_for_random_splits_too() -> None:
    rng = np.random.default_rng(2)
    for n1, n2 in ((20, 20), (9, 40)):
        a, b = rng.normal(size=n1), rng.normal(0.5, 1.0, n2)
        forth, back = Unpaired(a, b), Unpaired(rng.permutation(b), rng.permutation(a))
        assert (forth.tails(0.0).greater, forth.tails(0.0).less) == (back.tails(0.0).less, back.tails(0.0).greater)


def test_remembered_subsets_are_those_of_the_seed() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=9), rng.normal(0.5, 1.0, 40)
    fresh = permutation_welch(a, b, np.random.Generator(np.random.PCG64(7)))
    assert permutation_welch(a, b, 7) == permutation_welch(a, b, 7)
    assert permutation_welch(a, b, 7).p == pytest.approx(fresh.p, abs=1e-12)
    assert permutation_welch(a, b, 8).p != fresh.p


def test_the_decisions_p_is_the_larger_of_permutation_and_welch() -> None:
    rng = np.random.default_rng(3)
    for n1, n2 in ((8, 8), (5, 11)):
        a, b = rng.normal(size=n1), rng.normal(1.0, 3.0, n2)
        evidence = Unpaired(a, b)
        permuted = permutation_mean(a, b) if n1 == n2 else permutation_welch(a, b)
        assert evidence.tails(0.0).greater == max(permuted.greater, welch_t(a, b).tails(0.0).greater)
        assert evidence.tails(0.0).less == max(permuted.less, welch_t(a, b).tails(0.0).less)


def test_permutation_is_left_out_when_it_could_not_reject() -> None:
    assert not permutation_is_useful(3, 3, 0.05, 1)
    assert permutation_is_useful(5, 5, 0.05, 1)
    assert not permutation_is_useful(5, 5, 0.05, 3)
    a, b = [1.0, 2.0, 3.0], [4.0, 5.5, 6.0]
    evidence = Unpaired(a, b)
    assert evidence.method == "Welch t"
    assert with_margin(evidence, None).p == pytest.approx(welch_t(a, b).p)


def test_two_constant_arms_are_judged_by_counting_splits() -> None:
    few = with_margin(Unpaired([0.0] * 3, [1.0] * 3), None)
    assert few.p == pytest.approx(2 / 20) and not few.interval(0.95).is_bounded
    many = with_margin(Unpaired([0.0] * 8, [1.0] * 8), None)
    assert many.p == pytest.approx(2 / 12870) and many.interval(0.95).excludes(0.0)


@given(spread_samples(min_size=5, max_size=8), spread_samples(min_size=5, max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_interval_is_welchs_unless_p_says_otherwise(a: np.ndarray, b: np.ndarray) -> None:
    test = with_margin(Unpaired(a, b), None)
    ours, welch = test.interval(0.95), welch_t(a, b).interval(0.95)
    if test.p <= 0.05:
        assert (ours.low, ours.high) == (welch.low, welch.high)
    else:
        assert (ours.low, ours.high) == (min(welch.low, 0.0), max(welch.high, 0.0))


def test_subset_sums_are_those_of_itertools() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    by_size = sums_by_size(values[:, None], 3)
    for k in range(4):
        assert sorted(by_size[k][:, 0]) == sorted(sum(c) for c in itertools.combinations(values, k))


def test_random_subsets_are_uniform() -> None:
    blocks = list(random_subsets(5, 2, 20_000, np.random.default_rng(0)))
    rows = np.concatenate(blocks)
    assert rows.shape == (20_000, 2)
    codes, counts = np.unique(np.sort(rows, axis=1) @ [5, 1], return_counts=True)
    assert codes.size == 10
    assert stats.chisquare(counts).pvalue > 0.001


def test_bad_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        permutation_mean([1.0, np.nan], [1.0])
    with pytest.raises(ValueError, match="at least 2"):
        Unpaired([1.0], [2.0, 3.0])


@pytest.mark.slow
def test_false_positives_stay_near_alpha_for_unequal_sizes_and_spreads() -> None:
    rng = np.random.default_rng(4)
    rejected = [with_margin(Unpaired(rng.normal(0, 3, 5), rng.normal(0, 1, 10)), None).p <= 0.05 for _ in range(800)]
    assert np.mean(rejected) <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / 800)


@pytest.mark.parametrize("n", range(6, 21))
def test_pure_wins_and_losses_are_called_different_in_at_most_alpha_of_cases(n: int) -> None:
    """The size is exact: every number of wins with its probability."""
    rejected = [k for k in range(n + 1) if SignFlip([1.0] * k + [-1.0] * (n - k)).p <= 0.05]
    assert sum(math.comb(n, k) for k in rejected) / 2**n <= 0.05
    if n >= 7:
        assert rejected


def test_the_exact_p_counts_ties_in_full() -> None:
    five_wins_three_ties = SignFlip([1.0] * 5 + [0.0] * 3)
    assert five_wins_three_ties.p_exact == pytest.approx(0.0625)
    assert five_wins_three_ties.p < 0.05
    no_ties = SignFlip([1.0, 2.0, 4.0, 8.0, -16.0])
    assert no_ties.p_exact == no_ties.p
