"""Bootstrap intervals against scipy on the same indices, and the laws of what they resample."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.bootstrap import (
    bootstrap,
    bootstrap_crossed,
    bootstrap_difference,
    bootstrap_two_level,
    studentized_mean,
)
from bakeoff.stats.resample import (
    iqm_distribution,
    mean_distribution,
    moment_distribution,
    statistic_distribution,
    uniform_indices,
)
from stats.strategies import spread_samples


class GivenIndices(np.random.Generator):
    """A Generator that hands scipy.stats.bootstrap a prepared index array, so both sides resample alike."""

    def __init__(self, indices: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self.indices = indices

    def integers(self, low, high=None, size=None, **_):  # scipy asks for one block of (resamples, n)
        assert size == self.indices.shape
        return self.indices


def iqm_rows(rows: np.ndarray, axis: int = -1) -> np.ndarray:
    return stats.trim_mean(rows, 0.25, axis=axis)


STATISTICS = {"mean": np.mean, "iqm": iqm_rows}


@pytest.mark.slow
@given(spread_samples(min_size=3, max_size=14), st.integers(0, 1000), st.sampled_from(["percentile", "bca"]))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("name", ["mean", "iqm"])
def test_percentile_and_bca_are_scipys_on_the_same_indices(name: str, x: np.ndarray, seed: int, method: str) -> None:
    x = x / np.abs(x).max()
    indices = np.random.default_rng(seed).integers(0, x.size, (299, x.size))
    ours = bootstrap(x, name, method=method, indices=indices, level=0.9)
    distribution = STATISTICS[name](x[indices], axis=-1)
    below = np.mean(distribution < STATISTICS[name](x)) + np.mean(distribution <= STATISTICS[name](x))
    without_one = [STATISTICS[name](np.delete(x, at)) for at in range(x.size)]
    if method == "bca" and (not 0 < below < 2 or np.ptp(distribution) == 0 or np.ptp(without_one) == 0):
        return  # scipy gives NaN; ours falls back to the plain tails, tested below
    oracle = stats.bootstrap(
        (x,),
        STATISTICS[name],
        n_resamples=299,
        confidence_level=0.9,
        method="BCa" if method == "bca" else method,
        rng=GivenIndices(indices),
        vectorized=True,
    )
    expected = oracle.confidence_interval
    if method == "bca":
        # scipy lets rounding break ties with the estimate; ours counts them half. Compare where there are none.
        close = np.abs(distribution - STATISTICS[name](x))
        if np.any((close > 0) & (close < 1e-12)):
            return
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert ours.standard_error == pytest.approx(oracle.standard_error, rel=1e-9, abs=1e-12)


def test_longer_samples_agree_with_scipy_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.lognormal(size=150)
    indices = rng.integers(0, 150, (500, 150))
    for name, method in (("mean", "bca"), ("iqm", "bca"), ("iqm", "percentile")):
        ours = bootstrap(x, name, method=method, indices=indices)
        oracle = stats.bootstrap(
            (x,),
            STATISTICS[name],
            n_resamples=500,
            method="BCa" if method == "bca" else method,
            rng=GivenIndices(indices),
        ).confidence_interval
        assert (ours.low, ours.high) == pytest.approx((oracle.low, oracle.high), rel=1e-9), (name, method)


@pytest.mark.parametrize("n", [3, 15, 100, 400])
def test_tables_counts_and_plain_gathering_draw_from_one_law(n: int) -> None:
    x = np.random.default_rng(n).lognormal(size=n)
    for fast, statistic in ((mean_distribution, np.mean), (iqm_distribution, iqm_rows)):
        ours = fast(x, 6000, seed=1)
        plain = statistic_distribution(x, lambda rows, s=statistic: s(rows, axis=1), 6000, seed=2)
        assert stats.ks_2samp(np.round(ours, 9), np.round(plain, 9)).pvalue > 0.001


@pytest.mark.parametrize("n", [2, 7, 15, 65, 300])
def test_the_iqm_without_a_sort_is_the_trimmed_mean(n: int) -> None:
    rng = np.random.default_rng(n)
    x = np.round(rng.normal(size=n), 1)  # with ties
    indices = rng.integers(0, n, (200, n))
    assert iqm_distribution(x, 0, indices=indices) == pytest.approx(iqm_rows(x[indices], axis=1), rel=1e-9, abs=1e-12)


def test_moments_come_from_the_same_draws() -> None:
    x = np.random.default_rng(0).normal(size=9)
    indices = np.random.default_rng(1).integers(0, 9, (300, 9))
    means, variances = moment_distribution(x, 0, indices=indices)
    assert means == pytest.approx(x[indices].mean(axis=1))
    assert variances == pytest.approx(x[indices].var(axis=1, ddof=1))
    table_means, table_variances = moment_distribution(x - x.mean(), 20_000, seed=3)
    assert table_means.std() == pytest.approx(x.std() / 3, rel=0.03)
    assert table_variances.mean() == pytest.approx(x.var(), rel=0.03)


def test_the_studentized_interval_follows_its_formula() -> None:
    x = np.random.default_rng(2).normal(1.0, 2.0, 12)
    indices = np.random.default_rng(3).integers(0, 12, (999, 12))
    rows = x[indices]
    t = (rows.mean(axis=1) - x.mean()) / (rows.std(axis=1, ddof=1) / np.sqrt(12))
    q = np.quantile(t, [0.025, 0.975], method="inverted_cdf")
    se = x.std(ddof=1) / np.sqrt(12)
    expected = (x.mean() - q[1] * se, x.mean() - q[0] * se)
    assert studentized_mean(x, indices=indices) == pytest.approx(expected, rel=1e-9)
    assert (bootstrap(x, method="studentized", indices=indices).low) == pytest.approx(expected[0])


def test_the_studentized_interval_covers_where_the_percentile_one_does_not() -> None:
    rng = np.random.default_rng(4)
    hits = np.zeros(2)
    for _ in range(500):
        x = rng.normal(size=8)
        low, high = studentized_mean(x, resamples=499, seed=rng)
        plain = bootstrap(x, resamples=499, seed=rng)
        hits += [low <= 0.0 <= high, plain.low <= 0.0 <= plain.high]
    assert hits[0] / 500 > 0.92 > hits[1] / 500


def test_two_samples_agree_with_scipy_up_to_random_error() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=20), rng.lognormal(size=30)
    for method in ("percentile", "bca"):
        ours = bootstrap_difference(a, b, method=method, resamples=20_000)
        oracle = stats.bootstrap(
            (b, a),
            lambda x, y, axis: x.mean(axis) - y.mean(axis),
            n_resamples=20_000,
            method="BCa" if method == "bca" else method,
            rng=1,
            vectorized=True,
        )
        assert ours.low == pytest.approx(oracle.confidence_interval.low, abs=0.05 * oracle.standard_error * 2)
        assert ours.high == pytest.approx(oracle.confidence_interval.high, abs=0.05 * oracle.standard_error * 2)
    wide = bootstrap_difference(a, b, method="studentized")
    assert wide.low < ours.estimate < wide.high


def test_the_same_seed_gives_the_same_interval_and_another_one_does_not() -> None:
    x = np.random.default_rng(6).normal(size=11)
    assert bootstrap(x, seed=4) == bootstrap(x, seed=4) != bootstrap(x, seed=5)


def test_a_constant_sample_has_a_point_for_an_interval() -> None:
    for method in ("percentile", "bca", "studentized"):
        ours = bootstrap(np.full(6, 2.5), method=method, resamples=50)
        assert (ours.low, ours.high) == pytest.approx((2.5, 2.5))


def test_any_vectorised_statistic_can_be_used() -> None:
    x = np.random.default_rng(7).lognormal(size=25)
    ours = bootstrap(x, lambda rows: np.median(rows, axis=1), method="bca", resamples=2000)
    assert ours.low < np.median(x) < ours.high and ours.estimate == np.median(x)


def test_memory_does_not_grow_with_the_work() -> None:
    x = np.random.default_rng(8).normal(size=1000)
    peaks = []
    for resamples in (2_000, 8_000):
        tracemalloc.start()
        mean_distribution(x, resamples)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # One double for each resample is the answer itself; the index matrix alone would be 16 MB for the larger run.
    assert peaks[1] - peaks[0] < 2 * 8 * 6_000
    assert peaks[1] < 2**21


@pytest.mark.parametrize("below", [1, 2, 3, 15, 1000, 3375, 4096, 5000])
def test_indices_are_uniform(below: int) -> None:
    drawn = uniform_indices(below, (300, 1000), np.random.default_rng(below))
    counts = np.bincount(drawn.ravel(), minlength=below)
    assert counts.size == below
    assert below == 1 or stats.chisquare(counts).pvalue > 0.001


def test_a_statistic_that_returns_a_view_of_its_rows_is_safe() -> None:
    x = np.arange(1000.0)
    indices = np.random.default_rng(0).integers(0, 1000, (300, 1000))
    ours = statistic_distribution(x, lambda rows: rows[:, 0], 0, indices=indices)
    assert np.array_equal(ours, x[indices[:, 0]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap([1.0]),
        lambda: bootstrap([1.0, np.nan]),
        lambda: bootstrap([1.0, 2.0], "iqm", method="studentized"),
        lambda: bootstrap([1.0, 2.0], "median"),
        lambda: bootstrap([1.0, 2.0], indices=np.zeros((5, 3), dtype=int)),
        lambda: bootstrap([1.0, 2.0], level=1.5),
    ],
)
def test_calls_that_make_no_sense_are_refused(call) -> None:
    with pytest.raises(ValueError):
        call()


def test_the_two_level_bootstrap_adds_the_noise_inside_clusters() -> None:
    rng = np.random.default_rng(2)
    clusters = [m + rng.normal(0, 3, 4) for m in rng.normal(0, 1, 10)]
    two = bootstrap_two_level(clusters)
    means = np.array([c.mean() for c in clusters])
    expected = means.var() / 10 + np.mean([c.var() / 4 for c in clusters]) / 10
    assert two.standard_error == pytest.approx(np.sqrt(expected), rel=0.05)
    assert two.standard_error > means.std() / np.sqrt(10)


def test_crossed_margins_are_resampled_independently() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (8, 1)) + rng.normal(0, 2, (1, 6)) + rng.normal(0, 0.1, (8, 6))
    ours = bootstrap_crossed(x)
    expected = x.mean(axis=1).var() / 8 + x.mean(axis=0).var() / 6
    assert ours.standard_error == pytest.approx(np.sqrt(expected), rel=0.1)


def test_tables_that_are_too_small_or_broken_are_refused() -> None:
    for call in (
        lambda: bootstrap_two_level([[1.0, 2.0]]),
        lambda: bootstrap_crossed([[1.0, 2.0]]),
    ):
        with pytest.raises(ValueError):
            call()
