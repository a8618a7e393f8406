"""Effect sizes, pairing, covariates, and group-relative advantages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from statsmodels.stats.meta_analysis import effectsize_smd

from bakeoff.stats.effects import (
    cohens_d,
    cohens_dz,
    cuped,
    cuped_arms,
    group_relative,
    hedges_g,
    pairing,
    small_sample_factor,
    varies,
)
from stats.strategies import spread_samples


@given(spread_samples(), spread_samples())
@settings(max_examples=40, deadline=None)
def test_cohens_d_is_the_difference_in_pooled_standard_deviations(a: np.ndarray, b: np.ndarray) -> None:
    unit = max(np.abs(a).max(), np.abs(b).max())
    x, y = a / unit, b / unit
    df = x.size + y.size - 2
    pooled = math.sqrt(((x.size - 1) * x.var(ddof=1) + (y.size - 1) * y.var(ddof=1)) / df)
    assert cohens_d(a, b) == pytest.approx((y.mean() - x.mean()) / pooled, rel=1e-9, abs=1e-9)
    assert cohens_d(b, a) == pytest.approx(-cohens_d(a, b), rel=1e-9, abs=1e-12)


def test_hedges_g_is_near_statsmodels_which_uses_the_approximate_factor() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(0.7, 1.3, 15)
    g, _ = effectsize_smd(b.mean(), b.std(ddof=1), 15, a.mean(), a.std(ddof=1), 12)
    assert hedges_g(a, b) == pytest.approx(g, rel=1e-3)
    assert small_sample_factor(10) == pytest.approx(math.gamma(5) / (math.sqrt(5) * math.gamma(4.5)), rel=1e-12)


def test_no_spread_gives_an_infinite_effect_or_none() -> None:
    assert cohens_dz([1.0, 1.0]) == math.inf and cohens_dz([0.0, 0.0]) == 0.0
    assert cohens_d([2.0, 2.0], [1.0, 1.0]) == -math.inf
    assert cohens_dz([1.0, 3.0]) == pytest.approx(2 / math.sqrt(2))


@given(spread_samples(min_size=3))
@settings(max_examples=40, deadline=None)
def test_pairing_reports_correlation_and_what_it_saved(a: np.ndarray) -> None:
    x = a / np.abs(a).max()
    y = x**2 + 0.1 * np.arange(x.size)
    if np.ptp(y) < 1e-6:
        return
    ours = pairing(x, y)
    assert ours.correlation == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-9, abs=1e-9)
    saved = 1 - np.var(y - x, ddof=1) / (np.var(x, ddof=1) + np.var(y, ddof=1))
    assert ours.variance_reduction == pytest.approx(saved, rel=1e-9, abs=1e-9)


def test_a_constant_arm_has_no_correlation() -> None:
    assert pairing([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).correlation is None
    assert pairing([1.0, 1.0], [2.0, 2.0]).variance_reduction is None


def test_cuped_removes_the_share_that_the_covariate_explains() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    y = 3.0 * x + rng.normal(size=200) + 5.0
    ours = cuped(y, x)
    assert np.mean(ours.adjusted) == pytest.approx(y.mean())
    assert ours.variance_reduction == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, rel=1e-9)
    assert ours.slope == pytest.approx(np.polyfit(x, y, 1)[0])
    with pytest.raises(ValueError, match="constant"):
        cuped([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])


def test_cuped_arms_is_the_regression_adjusted_difference() -> None:
    import statsmodels.api as sm

    rng = np.random.default_rng(2)
    xa, xb = rng.normal(size=30), rng.normal(0.4, 1.0, 25)
    a, b = 2 * xa + rng.normal(size=30), 2 * xb + 0.5 + rng.normal(size=25)
    adjusted_a, adjusted_b, slope = cuped_arms(a, b, xa, xb)
    arm = np.repeat([0.0, 1.0], [30, 25])
    fit = sm.OLS(np.append(a, b), np.column_stack([np.ones(55), arm, np.append(xa, xb)])).fit()
    assert np.mean(adjusted_b) - np.mean(adjusted_a) == pytest.approx(fit.params[1], rel=1e-9)
    assert slope == pytest.approx(fit.params[2], rel=1e-9)


def test_bad_samples_are_refused() -> None:
    for call in (
        lambda: cohens_d([1.0], [1.0, 2.0]),
        lambda: pairing([1.0, 2.0], [1.0, 2.0, 3.0]),
        lambda: cuped([1.0, np.nan, 2.0], [1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ValueError):
            call()


REWARDS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.floats(-1e6, 1e6))


@given(REWARDS)
def test_advantages_are_centred_and_ordered_like_rewards(rewards: np.ndarray) -> None:
    advantages = group_relative(rewards)
    assert np.abs(advantages.mean(axis=-1)).max() < 1e-6
    for reward, advantage in zip(rewards, advantages, strict=True):
        assert (np.diff(advantage[np.argsort(reward)]) >= 0).all()


@pytest.mark.slow
@given(REWARDS)
def test_equal_rewards_say_exactly_nothing(rewards: np.ndarray) -> None:
    advantages = group_relative(rewards)
    assert (advantages[~varies(rewards)] == 0).all()
    assert (group_relative(np.full(3, 0.1)) == 0).all()  # whose mean is not 0.1 in floating point


def test_the_scale_of_rewards_does_not_matter() -> None:
    rewards = np.array([1.0, 2.0, 6.0])
    assert group_relative(rewards) == pytest.approx(group_relative(1000 * rewards - 7), rel=1e-5)
    assert group_relative(rewards).std() == pytest.approx(1, rel=1e-5)
