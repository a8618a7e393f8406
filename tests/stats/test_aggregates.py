"""Aggregates over tasks with any number of runs on each, and pass@k."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import mannwhitneyu, trim_mean

from bakeoff.stats import aggregates
from bakeoff.stats.aggregates import pass_at_k, pass_hat_k


def columns(table: np.ndarray) -> list[np.ndarray]:
    return [table[:, j] for j in range(table.shape[1])]


@settings(deadline=None, max_examples=50)
@given(runs=st.integers(1, 9), tasks=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_with_equal_numbers_of_runs_the_aggregates_are_the_usual_ones(runs: int, tasks: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(0.5, 0.4, (runs, tasks))
    taus = np.linspace(-1, 2, 7)
    ours = aggregates.summary(columns(x), taus, target=1.0, resamples=10)
    assert ours.iqm.estimate == pytest.approx(trim_mean(x, 0.25, axis=None), rel=1e-9, abs=1e-12)
    assert ours.mean.estimate == pytest.approx(x.mean(), rel=1e-9, abs=1e-12)
    assert ours.optimality_gap is not None
    assert ours.optimality_gap.estimate == pytest.approx(1.0 - np.minimum(x, 1.0).mean(), rel=1e-9, abs=1e-12)
    assert ours.profile.share == pytest.approx((x[:, :, None] > taus).mean(axis=(0, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [5, 120])  # counted by table, and too many for that
def test_the_iqm_has_the_law_of_a_plain_loop(runs: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.lognormal(size=(runs, 4)) * np.arange(1, 5)
    loop = [
        trim_mean(np.take_along_axis(x, rng.integers(0, runs, x.shape), axis=0), 0.25, axis=None) for _ in range(2000)
    ]
    ours = aggregates.summary(columns(x), resamples=2000).iqm
    # Ours is wider around the estimate, by the factor that makes an interval of the mean one of t.
    widening = aggregates._widening(columns(x), 0.95)
    assert widening > 1.0
    low, high = ours.estimate + (np.quantile(loop, [0.025, 0.975]) - ours.estimate) * widening
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.2 * (high - low))
    assert ours.standard_error == pytest.approx(np.std(loop), rel=0.1)


def test_resampling_runs_inside_tasks_leaves_the_tasks_fixed() -> None:
    # Tasks far apart, runs identical: nothing is uncertain about these tasks.
    tasks = [[value] * 6 for value in (0.0, 10.0, 100.0, 1000.0)]
    assert aggregates.summary(tasks).iqm.standard_error == pytest.approx(0.0)


def test_a_profile_lies_inside_its_band_and_falls() -> None:
    x = np.random.default_rng(0).random((8, 5))
    ours = aggregates.summary(columns(x), np.linspace(-0.1, 1.1, 13)).profile
    assert all(low <= share <= high for low, share, high in zip(ours.low, ours.share, ours.high, strict=True))
    assert ours.share[0] == pytest.approx(1.0) and ours.share[-1] == 0.0
    assert np.all(np.diff(ours.share) <= 0)


def test_a_task_with_more_runs_weighs_no_more_than_another() -> None:
    few, many = np.array([0.0, 0.0]), np.array([1.0] * 20)
    ours = aggregates.summary([few, many], [0.5], resamples=10)
    assert ours.mean.estimate == pytest.approx(0.5) and ours.iqm.estimate == pytest.approx(0.5)
    assert ours.profile.share == pytest.approx((0.5,))


def test_the_weighted_iqm_does_not_depend_on_copies_of_a_whole_task() -> None:
    rng = np.random.default_rng(4)
    tasks = [rng.normal(size=3), rng.normal(size=5), rng.normal(size=4)]
    doubled = [np.repeat(tasks[0], 2), *tasks[1:]]
    ours, theirs = (aggregates.summary(each, resamples=10).iqm for each in (doubled, tasks))
    assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-12)


def test_the_chance_to_beat_is_the_mann_whitney_share_averaged_over_tasks() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(6, 4)).round(1), rng.normal(0.3, 1, (6, 4)).round(1)
    ours = aggregates.improvement(columns(a), columns(b), 4_000)
    expected = np.mean([mannwhitneyu(b[:, t], a[:, t]).statistic / 36 for t in range(4)])
    assert ours.probability == pytest.approx(expected, rel=1e-12)
    assert ours.low < ours.probability < ours.high
    ragged = [rng.normal(size=n) for n in (2, 5, 3, 4)]
    forth, back = aggregates.improvement(columns(a), ragged, 10), aggregates.improvement(ragged, columns(a), 10)
    assert forth.probability + back.probability == pytest.approx(1.0)


def test_a_chance_of_very_many_runs_takes_memory_for_the_runs_and_not_for_their_pairs() -> None:
    """A matrix of all pairs took 20 GB for 50,000 runs of each arm."""
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=50_000), rng.normal(0.1, 1.0, 50_000)
    tracemalloc.start()
    ours = aggregates.improvement([a], [b], 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ours.probability == pytest.approx(mannwhitneyu(b, a).statistic / 50_000**2, rel=1e-12)
    assert peak < 200e6


def test_no_tasks_and_unequal_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        aggregates.summary([])
    with pytest.raises(ValueError, match="same tasks"):
        aggregates.improvement([[1.0]], [[1.0], [2.0]])


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


def test_the_mean_of_one_task_has_the_interval_of_t_widened_for_skew() -> None:
    x = np.random.default_rng(3).normal(size=8)
    ours = aggregates.summary([x], resamples=20_000).mean
    low, high = stats.t.interval(0.95, 7, x.mean(), x.std(ddof=1) / math.sqrt(8))
    assert ours.high - ours.low == pytest.approx((1.0 + aggregates.FOR_SKEW / 8) * (high - low), rel=0.1)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=30))
def test_the_interval_of_a_chance_holds_it_and_stays_between_0_and_1(values: list[float]) -> None:
    found = aggregates.chance_interval(values)
    assert found is not None and 0.0 <= found.low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= found.high <= 1.0 and found.low < found.high
    turned = aggregates.chance_interval([1.0 - value for value in values])
    assert turned is not None and turned.low == pytest.approx(1.0 - found.high, abs=1e-9)


@pytest.mark.slow
def test_intervals_of_pass_k_cover_where_few_tasks_carry_the_mean() -> None:
    """Ten tasks, mostly hard, 8 attempts, k = 4: a t interval over tasks covers half of the time."""
    rng = np.random.default_rng(4)
    truth = float(np.mean(rng.beta(0.3, 1.5, 200_000) ** 4))
    hits = 0
    for _ in range(400):
        values = aggregates.pass_hat_k(rng.binomial(8, rng.beta(0.3, 1.5, 10)), np.full(10, 8), 4)
        found = aggregates.chance_interval(values)
        hits += found is not None and found.low <= truth <= found.high
    assert hits / 400 >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("runs", [3, 5])
def test_means_and_iqms_of_few_runs_cover(runs: int) -> None:
    rng = np.random.default_rng(runs)
    hits = np.zeros(2)
    for _ in range(300):
        strata = list(rng.normal(size=(5, runs)) * np.linspace(1, 3, 5)[:, None])
        ours = aggregates.summary(strata, resamples=300)
        for i, found in enumerate((ours.mean, ours.iqm)):
            hits[i] += found.low <= 0.0 <= found.high
    assert (hits / 300 >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / 300)).all()  # 86 to 91 % without the widening


def test_single_runs_of_tasks_give_no_interval_but_for_shares() -> None:
    """One run of a task does not show how much its runs differ: the bootstrap's interval was a point."""
    scores = [[0.3], [1.7], [2.2], [0.9]]
    ours = aggregates.summary(scores, [1.0], resamples=200)
    for found in (ours.mean, ours.iqm):
        assert (found.low, found.high) == (-math.inf, math.inf)
    outcomes = [[0.0], [1.0], [1.0], [1.0]]
    mean = aggregates.summary(outcomes, resamples=200).mean
    assert 0.0 < mean.low < 0.75 < mean.high < 1.0
    band = ours.profile
    assert band.share == (0.5,) and 0.1 < band.low[0] < 0.3 and 0.7 < band.high[0] < 0.9
    chance = aggregates.improvement(scores, [[score[0] + 1] for score in scores], 200)
    assert chance.probability == 1.0 and 0.3 < chance.low < 0.7


@pytest.mark.slow
def test_tasks_with_a_single_run_are_taken_to_vary_as_the_others() -> None:
    """Half of the tasks have one run: left out of the noise, as before, 95 % intervals of the mean cover 70 %."""
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        strata = [rng.normal(size=4 if task % 2 else 1) for task in range(12)]
        found = aggregates.summary(strata, resamples=300).mean
        hits += found.low <= 0.0 <= found.high
    assert hits / 300 >= 0.92
