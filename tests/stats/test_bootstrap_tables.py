from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bakeoff.stats.bootstrap import bootstrap
from bakeoff.stats.bootstrap_tables import (
    bootstrap_clusters,
    bootstrap_columns,
    bootstrap_crossed,
    bootstrap_stratified_iqm,
    bootstrap_two_level,
    stratified_distribution,
)


def test_columns_share_their_resamples_and_equal_one_at_a_time() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4))
    indices = rng.integers(0, 20, (400, 20))
    together = bootstrap_columns(x, indices=indices)
    for j, ours in enumerate(together):
        alone = bootstrap(x[:, j], indices=indices)
        assert (ours.low, ours.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_the_stratified_iqm_has_the_law_of_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    x = rng.lognormal(size=(5, 7)) * np.arange(1, 8)
    loop = []
    for _ in range(3000):
        picks = rng.integers(0, 5, (5, 7))
        loop.append(stats.trim_mean(np.take_along_axis(x, picks, axis=0), 0.25, axis=None))
    ours = stratified_distribution(x, "iqm", 3000)
    assert stats.ks_2samp(ours, loop).pvalue > 0.001
    sorted_route = stratified_distribution(np.tile(x, (24, 1)), "iqm", 400)  # 120 runs: too many to count by table
    assert sorted_route.mean() == pytest.approx(stats.trim_mean(x, 0.25, axis=None), rel=0.05)
    interval = bootstrap_stratified_iqm(x)
    assert interval.estimate == pytest.approx(stats.trim_mean(x, 0.25, axis=None))
    assert interval.low < interval.estimate < interval.high


def test_resampling_runs_inside_tasks_leaves_the_tasks_fixed() -> None:
    # Tasks far apart, runs identical: nothing is uncertain about these tasks.
    x = np.tile(np.array([0.0, 10.0, 100.0, 1000.0]), (6, 1))
    assert np.ptp(stratified_distribution(x, "mean", 200)) == pytest.approx(0.0, abs=1e-9)


def test_whole_clusters_are_resampled() -> None:
    clusters = [[0.0, 0.0, 0.0], [1.0, 1.0], [2.0, 2.0, 2.0, 2.0]]
    ours = bootstrap_clusters(clusters)
    assert ours.estimate == pytest.approx(1.0)  # every cluster weighs the same
    assert ours.standard_error == pytest.approx(np.std([0.0, 1.0, 2.0]) / np.sqrt(3), rel=0.05)


def test_the_two_level_bootstrap_adds_the_noise_inside_clusters() -> None:
    rng = np.random.default_rng(2)
    clusters = [m + rng.normal(0, 3, 4) for m in rng.normal(0, 1, 10)]
    one, two = bootstrap_clusters(clusters), bootstrap_two_level(clusters)
    means = np.array([c.mean() for c in clusters])
    expected = means.var() / 10 + np.mean([c.var() / 4 for c in clusters]) / 10
    assert two.standard_error == pytest.approx(np.sqrt(expected), rel=0.05)
    assert two.standard_error > one.standard_error


def test_crossed_margins_are_resampled_independently() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (8, 1)) + rng.normal(0, 2, (1, 6)) + rng.normal(0, 0.1, (8, 6))
    ours = bootstrap_crossed(x)
    expected = x.mean(axis=1).var() / 8 + x.mean(axis=0).var() / 6
    assert ours.standard_error == pytest.approx(np.sqrt(expected), rel=0.1)


def test_tables_that_are_too_small_or_broken_are_refused() -> None:
    for call in (
        lambda: bootstrap_clusters([[1.0, 2.0]]),
        lambda: bootstrap_two_level([[1.0, 2.0]]),
        lambda: bootstrap_crossed([[1.0, 2.0]]),
        lambda: bootstrap_stratified_iqm([[1.0, np.nan]]),
        lambda: bootstrap_columns([1.0, 2.0]),
    ):
        with pytest.raises(ValueError):
            call()
