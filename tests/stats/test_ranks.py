from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.numerics import average_ranks, studentized_range_sf
from bakeoff.stats.ranks import bradley_terry, bradley_terry_over, friedman, mann_whitney, nemenyi_difference, wilcoxon

lumps = st.lists(st.integers(-6, 6), min_size=1, max_size=40).map(lambda v: np.array(v) / 4.0)


@given(lumps)
@settings(max_examples=60, deadline=None)
def test_ranks_are_scipys(x: np.ndarray) -> None:
    assert average_ranks(x) == pytest.approx(stats.rankdata(x))


@pytest.mark.parametrize("n", [1, 2, 8, 25, 50])
def test_wilcoxon_without_ties_is_scipys_exact_test(n: int) -> None:
    d = np.random.default_rng(n).normal(0.2, 1.0, n)
    ours, oracle = wilcoxon(d), stats.wilcoxon(d, method="exact")
    assert (ours.statistic, ours.exact) == (oracle.statistic, True)
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=10))
@settings(max_examples=30, deadline=None)
def test_wilcoxon_with_ties_counts_all_sign_patterns(values: list[int]) -> None:
    d = np.array([*values, 1.0, 1.0, -1.0])
    ours = wilcoxon(d)
    assert ours.exact
    kept = d[d != 0.0]
    ranks = stats.rankdata(np.abs(kept))
    patterns = np.array(list(product([0.0, 1.0], repeat=kept.size))) @ ranks
    observed = ranks[kept > 0.0].sum()
    tail = min((patterns <= observed + 1e-9).mean(), (patterns >= observed - 1e-9).mean())
    assert ours.p == pytest.approx(min(1.0, 2.0 * tail), rel=1e-9)


@given(st.lists(st.integers(1, 6) | st.integers(-6, -1), min_size=60, max_size=80))
@settings(max_examples=30, deadline=None)
def test_wilcoxon_with_many_ties_is_scipys_approximation(d: list[int]) -> None:
    ours, oracle = wilcoxon(np.array(d, dtype=float)), stats.wilcoxon(d, method="asymptotic", correction=False)
    assert not ours.exact
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9)


def test_wilcoxon_of_zeros_says_nothing() -> None:
    assert wilcoxon([0.0, 0.0, 0.0]).p == 1.0


@pytest.mark.parametrize(("n1", "n2"), [(1, 1), (3, 5), (8, 8), (7, 60), (60, 5)])
def test_mann_whitney_without_ties_is_scipys_exact_test(n1: int, n2: int) -> None:
    rng = np.random.default_rng(n1 + n2)
    a, b = rng.normal(size=n1), rng.normal(0.5, 1.0, n2)
    ours, oracle = mann_whitney(a, b), stats.mannwhitneyu(b, a, method="exact")
    assert ours.statistic == pytest.approx(oracle.statistic) and ours.exact
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9)


@given(lumps, lumps)
@settings(max_examples=60, deadline=None)
def test_mann_whitney_with_ties_is_scipys_approximation(a: np.ndarray, b: np.ndarray) -> None:
    a, b = np.append(a, np.tile([0.0, 0.25], 13)), np.append(b, np.tile([0.0, -0.25], 13))
    ours = mann_whitney(a, b)
    assert not ours.exact
    oracle = stats.mannwhitneyu(b, a, method="asymptotic")
    assert ours.statistic == pytest.approx(oracle.statistic)
    assert ours.p == pytest.approx(min(1.0, oracle.pvalue), rel=1e-9)


@given(lumps.map(lambda v: v[:5]), lumps.map(lambda v: v[:4]))
@settings(max_examples=30, deadline=None)
def test_mann_whitney_with_ties_counts_all_splits(a: np.ndarray, b: np.ndarray) -> None:
    a, b = np.append(a, 0.0), np.append(b, 0.0)
    ours = mann_whitney(a, b)
    assert ours.exact
    splits = stats.permutation_test((b, a), _u, n_resamples=np.inf, vectorized=True)
    assert ours.p == pytest.approx(splits.pvalue, rel=1e-9)


def _u(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    """How often a value of x is above one of y, ties counting half."""
    pairs = np.moveaxis(x, axis, -1)[..., :, None] - np.moveaxis(y, axis, -1)[..., None, :]
    return np.asarray((np.sign(pairs) / 2.0 + 0.5).sum(axis=(-2, -1)))


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_friedman_is_scipys(seed: int, lumpy: bool) -> None:
    x = np.random.default_rng(seed).normal(size=(7, 4))
    x = np.round(x) if lumpy else x
    oracle = stats.friedmanchisquare(*x.T)
    ours = friedman(x)
    assert ours.statistic == pytest.approx(oracle.statistic, rel=1e-9, abs=1e-9)
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9, abs=1e-12)
    assert sum(ours.ranks) == pytest.approx(10.0)


def test_the_best_arm_has_the_smallest_rank() -> None:
    assert friedman([[1.0, 2.0, 3.0], [1.0, 5.0, 9.0]]).ranks == (3.0, 2.0, 1.0)


@pytest.mark.parametrize("arms", [2, 3, 5, 10])
def test_the_range_of_normals_is_scipys(arms: int) -> None:
    for q in (1.0, 2.5, 3.8):
        expected = stats.studentized_range.sf(q, arms, np.inf)
        assert studentized_range_sf(q, arms) == pytest.approx(expected, rel=1e-7, abs=1e-10)
    # Demsar 2006, table 5: q_.05 / sqrt 2 for 2, 3, 5 and 10 classifiers.
    published = {2: 1.960, 3: 2.343, 5: 2.728, 10: 3.164}[arms]
    assert nemenyi_difference(1, arms) / np.sqrt(arms * (arms + 1) / 6) == pytest.approx(published, abs=1e-3)


def test_bradley_terry_is_a_logistic_regression_without_intercept() -> None:
    rng = np.random.default_rng(1)
    wins = rng.integers(1, 12, (4, 4)).astype(float)
    np.fill_diagonal(wins, 0)
    rows, outcomes, weights = [], [], []
    for i in range(4):
        for j in range(4):
            if i != j:
                rows.append([(i == k) - (j == k) for k in range(1, 4)])
                outcomes.append(1.0)
                weights.append(wins[i, j])
                rows.append([(j == k) - (i == k) for k in range(1, 4)])
                outcomes.append(0.0)
                weights.append(wins[i, j])
    fit = sm.GLM(
        np.array(outcomes), np.array(rows, dtype=float), sm.families.Binomial(), freq_weights=np.array(weights) / 2
    ).fit()
    theirs = np.append(0.0, fit.params)
    ours = bradley_terry(wins)
    assert np.array(ours.strength) == pytest.approx(theirs - theirs.mean(), abs=1e-7)
    assert sum(ours.strength) == pytest.approx(0.0, abs=1e-12)
    covariance = np.zeros((4, 4))
    covariance[1:, 1:] = fit.cov_params()
    centre = np.eye(4) - 0.25
    error = np.sqrt(np.diag(centre @ covariance @ centre))
    half = (np.array(ours.high) - np.array(ours.low)) / 2
    assert half == pytest.approx(stats.norm.isf(0.025) * error, rel=1e-5)


def test_two_arms_have_the_log_odds_of_their_score() -> None:
    ours = bradley_terry([[0, 30], [10, 0]])
    assert ours.strength[0] - ours.strength[1] == pytest.approx(np.log(3.0))


def test_an_arm_that_never_loses_needs_a_prior() -> None:
    wins = [[0, 5, 5], [0, 0, 3], [0, 2, 0]]
    with pytest.raises(ValueError, match="prior"):
        bradley_terry(wins)
    ours = bradley_terry(wins, prior=0.5)
    assert ours.strength[0] > ours.strength[1] > ours.strength[2]
    with pytest.raises(ValueError, match="square"):
        bradley_terry([[0, 1, 2], [1, 0, 1]])


def test_strengths_over_tasks_are_those_of_the_games_and_their_errors_those_of_leaving_tasks_out() -> None:
    x = np.random.default_rng(2).normal(size=(12, 4)) + np.arange(4) / 4
    ours = bradley_terry_over(x)
    wins = (x[:, :, None] > x[:, None, :]).sum(axis=0)
    assert ours.strength == pytest.approx(bradley_terry(wins).strength)
    left_out = np.array([bradley_terry_over(np.delete(x, t, axis=0)).strength for t in range(12)])
    error = np.sqrt(11 / 12 * ((left_out - ours.strength) ** 2).sum(axis=0))
    half = (np.array(ours.high) - np.array(ours.low)) / 2
    assert half == pytest.approx(stats.t.isf(0.025, 11) * error, rel=0.15)


@pytest.mark.slow
def test_strengths_cover_for_tasks_like_these() -> None:
    rng = np.random.default_rng(3)
    levels = np.linspace(0.0, 1.0, 4)
    truth = np.array(bradley_terry_over(rng.standard_normal((20_000, 4)) + levels).strength)
    inside = []
    for _ in range(300):
        found = bradley_terry_over(rng.standard_normal((20, 4)) + levels, 0.5)
        inside.append((np.array(found.low) <= truth) & (truth <= np.array(found.high)))
    assert np.mean(inside) >= 0.93
