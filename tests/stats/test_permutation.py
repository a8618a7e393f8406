from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from bakeoff.stats.evidence import with_margin
from bakeoff.stats.permutation import (
    permutation_is_useful,
    permutation_mean,
    permutation_welch,
    split_count,
    unpaired,
)
from bakeoff.stats.subsets import random_subsets, sums_by_size
from bakeoff.stats.ttests import welch_t
from stats.strategies import samples, spread_samples


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
    start = time.process_time()
    ours = permutation_mean(a, b)
    assert time.process_time() - start < 5.0
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
        forth, back = unpaired(a, b), unpaired(rng.permutation(b), rng.permutation(a))
        assert (forth.greater(0.0), forth.less(0.0)) == (back.less(0.0), back.greater(0.0))


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
        evidence = unpaired(a, b)
        permuted = permutation_mean(a, b) if n1 == n2 else permutation_welch(a, b)
        assert evidence.greater(0.0) == max(permuted.greater, welch_t(a, b).greater(0.0))
        assert evidence.less(0.0) == max(permuted.less, welch_t(a, b).less(0.0))


def test_permutation_is_left_out_when_it_could_not_reject() -> None:
    assert not permutation_is_useful(3, 3, 0.05, 1)
    assert permutation_is_useful(5, 5, 0.05, 1)
    assert not permutation_is_useful(5, 5, 0.05, 3)
    a, b = [1.0, 2.0, 3.0], [4.0, 5.5, 6.0]
    evidence = unpaired(a, b)
    assert evidence.method == "Welch t"
    assert with_margin(evidence, None).p == pytest.approx(welch_t(a, b).p)


def test_two_constant_arms_are_judged_by_counting_splits() -> None:
    few = with_margin(unpaired([0.0] * 3, [1.0] * 3), None)
    assert few.p == pytest.approx(2 / 20) and not few.interval(0.95).is_bounded
    many = with_margin(unpaired([0.0] * 8, [1.0] * 8), None)
    assert many.p == pytest.approx(2 / 12870) and many.interval(0.95).excludes(0.0)


@given(spread_samples(min_size=5, max_size=8), spread_samples(min_size=5, max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_interval_is_welchs_unless_p_says_otherwise(a: np.ndarray, b: np.ndarray) -> None:
    test = with_margin(unpaired(a, b), None)
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
        unpaired([1.0], [2.0, 3.0])


def test_false_positives_stay_near_alpha_for_unequal_sizes_and_spreads() -> None:
    rng = np.random.default_rng(4)
    rejected = [with_margin(unpaired(rng.normal(0, 3, 5), rng.normal(0, 1, 10)), None).p <= 0.05 for _ in range(800)]
    assert np.mean(rejected) <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / 800)
