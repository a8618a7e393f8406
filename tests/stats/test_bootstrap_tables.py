from __future__ import annotations

import numpy as np
import pytest

from bakeoff.stats.bootstrap_tables import bootstrap_crossed, bootstrap_two_level


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
