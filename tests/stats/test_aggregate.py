from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.aggregate import iqm, optimality_gap, pass_at_k, pass_hat_k, performance_profile


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_the_iqm_is_scipys_trimmed_mean(values: list[float]) -> None:
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-12)


def test_the_iqm_pools_runs_and_tasks() -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert iqm(x) == pytest.approx(stats.trim_mean(x, 0.25, axis=None))


def test_scores_above_the_target_earn_nothing() -> None:
    assert optimality_gap([[0.5, 3.0], [1.0, 0.9]]) == pytest.approx((0.5 + 0.0 + 0.0 + 0.1) / 4)


def test_the_profile_is_the_share_above_each_threshold_inside_its_band() -> None:
    x = np.random.default_rng(0).random((8, 5))
    taus = np.linspace(-0.1, 1.1, 13)
    ours = performance_profile(x, taus)
    assert ours.share == pytest.approx([(x > t).mean() for t in taus])
    assert all(low <= share <= high for low, share, high in zip(ours.low, ours.share, ours.high, strict=True))
    assert ours.share[0] == 1.0 and ours.share[-1] == 0.0
    assert np.all(np.diff(ours.share) <= 0)


@given(st.integers(1, 9), st.data())
def test_pass_at_k_and_pass_hat_k_count_subsets_of_attempts(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    outcomes = [1] * c + [0] * (n - c)
    subsets = list(itertools.combinations(outcomes, k))
    assert float(pass_at_k(c, n, k)) == pytest.approx(np.mean([any(s) for s in subsets]))
    assert float(pass_hat_k(c, n, k)) == pytest.approx(np.mean([all(s) for s in subsets]))


def test_pass_at_k_works_task_by_task_and_with_many_attempts() -> None:
    assert pass_at_k([0, 5, 10], [10, 10, 10], 1) == pytest.approx([0.0, 0.5, 1.0])
    assert float(pass_at_k(5, 100_000, 50)) == pytest.approx(1 - stats.hypergeom.pmf(0, 100_000, 5, 50), rel=1e-9)


@pytest.mark.parametrize(("c", "n", "k"), [(3, 2, 1), (1, 2, 3), (1, 2, 0), (-1, 2, 1), (0.5, 2, 1)])
def test_counts_that_make_no_sense_are_refused(c: float, n: int, k: int) -> None:
    with pytest.raises(ValueError, match="attempts"):
        pass_at_k(c, n, k)


def test_missing_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        iqm([1.0, np.nan])
