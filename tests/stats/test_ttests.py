from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from bakeoff.stats.ttests import (
    cluster_t,
    crossed_t,
    crossed_variance,
    one_sample_t,
    satterthwaite,
    seeds_look_crossed,
    stratified_paired_t,
    stratified_t,
    welch_t,
)
from stats.strategies import spread_samples


@given(spread_samples())
@settings(max_examples=60, deadline=None)
def test_one_sample_t_is_scipys(d: np.ndarray) -> None:
    unit = float(np.abs(d).max())  # scipy's own sums of squares overflow at 1e150 and vanish at 1e-200
    ours, oracle = one_sample_t(d), stats.ttest_1samp(d / unit, 0.0)
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9, abs=1e-12)
    assert ours.effect / ours.se == pytest.approx(oracle.statistic, rel=1e-9, abs=1e-12)
    interval, expected = ours.interval(0.9), oracle.confidence_interval(0.9)
    assert interval.low / unit == pytest.approx(expected.low, rel=1e-9, abs=1e-9)
    assert interval.high / unit == pytest.approx(expected.high, rel=1e-9, abs=1e-9)


@given(spread_samples(), spread_samples())
@settings(max_examples=60, deadline=None)
def test_welch_t_is_scipys(a: np.ndarray, b: np.ndarray) -> None:
    unit = max(float(np.abs(a).max()), float(np.abs(b).max()))
    ours, oracle = welch_t(a, b), stats.ttest_ind(b / unit, a / unit, equal_var=False)
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-9, abs=1e-12)
    assert ours.df == pytest.approx(oracle.df, rel=1e-9)
    assert ours.interval(0.95).low / unit == pytest.approx(oracle.confidence_interval(0.95).low, rel=1e-9, abs=1e-9)


def test_equivalence_is_statsmodels_tost() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(0.1, 1.0, 12)
    assert one_sample_t(b - a).p_equivalent(0.5) == pytest.approx(ttost_paired(b, a, -0.5, 0.5)[0], rel=1e-9)


def test_one_stratum_is_an_ordinary_t() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=6), rng.normal(0.5, 2.0, 9)
    assert stratified_t([a], [b]).p == pytest.approx(welch_t(a, b).p, rel=1e-12)
    assert stratified_paired_t([a]).p == pytest.approx(one_sample_t(a).p, rel=1e-12)


def test_stratified_t_weighs_every_task_the_same_and_follows_its_formula() -> None:
    rng = np.random.default_rng(2)
    strata = [rng.normal(m, s, n) for m, s, n in ((0.0, 1.0, 3), (1.0, 2.0, 10), (2.0, 0.5, 5))]
    test = stratified_paired_t(strata)
    parts = np.array([np.var(s, ddof=1) / len(s) for s in strata]) / 9
    assert test.effect == pytest.approx(np.mean([s.mean() for s in strata]))
    assert test.se == pytest.approx(math.sqrt(parts.sum()))
    assert test.df == pytest.approx(
        parts.sum() ** 2 / sum(p**2 / (len(s) - 1) for p, s in zip(parts, strata, strict=True))
    )
    assert test.n == 18


def test_stratified_t_of_rollouts_adds_both_arms_variances() -> None:
    rng = np.random.default_rng(3)
    a = [rng.normal(0, 1, 4), rng.normal(0, 2, 3)]
    b = [rng.normal(1, 1, 5), rng.normal(1, 1, 6)]
    test = stratified_t(a, b)
    variance = sum(np.var(x, ddof=1) / len(x) + np.var(y, ddof=1) / len(y) for x, y in zip(a, b, strict=True)) / 4
    assert test.se == pytest.approx(math.sqrt(variance))
    assert test.effect == pytest.approx(np.mean([y.mean() - x.mean() for x, y in zip(a, b, strict=True)]))
    with pytest.raises(ValueError, match="same tasks"):
        stratified_t(a, b[:1])
    with pytest.raises(ValueError, match="at least 2"):
        stratified_t([[1.0]], [[2.0, 3.0]])


def test_crossed_variance_is_unbiased_for_the_variance_of_the_mean() -> None:
    rng = np.random.default_rng(4)
    tasks, seeds = 8, 6
    totals, means = [], []
    for _ in range(3000):
        d = rng.normal(0, 1, (tasks, 1)) + rng.normal(0, 0.7, (1, seeds)) + rng.normal(0, 1.5, (tasks, seeds))
        v = crossed_variance(d)
        totals.append(v.task + v.seed - v.cell)
        means.append(d.mean())
    truth = 1.0 / tasks + 0.49 / seeds + 2.25 / (tasks * seeds)
    assert np.mean(totals) == pytest.approx(truth, rel=0.05)
    assert np.var(means) == pytest.approx(truth, rel=0.1)


def test_crossed_variance_takes_the_largest_and_keeps_df_in_bounds() -> None:
    rng = np.random.default_rng(5)
    kinds = set()
    for _ in range(300):
        shape = rng.integers(2, 9, 2)
        scale = rng.choice([0.0, 1.0, 5.0], 3)
        d = rng.normal(0, 1, (shape[0], 1)) * scale[0] + rng.normal(0, 1, (1, shape[1])) * scale[1]
        d = d + rng.normal(0, 1, tuple(shape)) * max(scale[2], 0.1)
        v = crossed_variance(d)
        assert v.total == max(v.task, v.seed, v.task + v.seed - v.cell) > 0
        assert min(shape) - 1 <= v.df <= sum(shape) - 2
        kinds.add("task" if v.total == v.task else "seed" if v.total == v.seed else "both")
    assert kinds == {"task", "seed", "both"}


def test_margins_without_spread_leave_the_cells_as_the_only_noise() -> None:
    for centre in (0.0, 0.3):
        d = centre + np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
        test = crossed_t(d)
        assert (test.se, test.df) == (pytest.approx(math.sqrt(6.0 / 4.0 / 9.0)), 2.0)
        assert test.p > 0.4


def test_crossed_t_does_not_reject_more_than_it_may_when_seeds_are_shared_by_tasks() -> None:
    rng = np.random.default_rng(6)

    def table() -> np.ndarray:
        return rng.normal(size=(10, 1)) + rng.normal(size=(1, 6)) + rng.normal(size=(10, 6))

    tables = [table() for _ in range(1500)]
    assert np.mean([crossed_t(d).p <= 0.05 for d in tables]) <= 0.07 + 3 * math.sqrt(0.07 * 0.93 / 1500)
    # The task alone as the unit is what goes wrong here: the test must be able to tell.
    assert np.mean([one_sample_t(d.mean(axis=1)).p <= 0.05 for d in tables]) > 0.15


def test_the_f_test_finds_seeds_in_the_differences() -> None:
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(6, 5))
    crossed = noise + 3.0 * rng.normal(size=(1, 5))
    assert seeds_look_crossed(crossed) < 0.01
    cells = crossed - crossed.mean(axis=1, keepdims=True)
    between = 6 * cells.mean(axis=0).var(ddof=1)
    error = ((cells - cells.mean(axis=0)) ** 2).sum() / 20
    assert seeds_look_crossed(crossed) == pytest.approx(stats.f.sf(between / error, 4, 20), rel=1e-9)


def test_cluster_robust_error_is_statsmodels_with_t_in_place_of_z() -> None:
    rng = np.random.default_rng(8)
    clusters = np.repeat(np.arange(7), [3, 4, 5, 3, 6, 4, 5])
    x = rng.normal(size=7)[clusters] + rng.normal(size=clusters.size)
    fit = sm.OLS(x, np.ones(x.size)).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": True, "df_correction": True}, use_t=True
    )
    ours = cluster_t(x, clusters)
    # statsmodels also multiplies by (n-1)/(n-k), which is 1 for a mean.
    assert ours.se == pytest.approx(float(fit.bse[0]), rel=1e-9)
    assert ours.p == pytest.approx(float(fit.pvalues[0]), rel=1e-9)


def test_satterthwaite_of_equal_parts_adds_their_degrees_of_freedom() -> None:
    assert satterthwaite(np.array([2.0, 2.0]), np.array([5.0, 5.0])) == pytest.approx(10.0)
    assert satterthwaite(np.array([1e-300, 0.0]), np.array([4.0, 9.0])) == pytest.approx(4.0)


def test_zero_spread_has_no_t() -> None:
    for call in (
        lambda: one_sample_t([2.0, 2.0, 2.0]),
        lambda: welch_t([1.0, 1.0], [2.0, 2.0]),
        lambda: stratified_paired_t([[1.0, 1.0], [3.0, 3.0]]),
        lambda: crossed_t(np.ones((3, 3))),
    ):
        with pytest.raises(ValueError, match="zero spread"):
            call()


def test_p_is_never_zero() -> None:
    test = one_sample_t(1.0 + 1e-8 * np.random.default_rng(0).normal(size=200))
    assert 0.0 < test.p < 1e-200


@pytest.mark.parametrize("bad", [[1.0, np.nan, 2.0], [1.0], [np.inf, 0.0]])
def test_bad_samples_are_refused(bad: list) -> None:
    with pytest.raises(ValueError):
        one_sample_t(bad)
    with pytest.raises(ValueError):
        welch_t(bad, [1.0, 2.0])
