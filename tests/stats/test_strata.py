"""Aggregates over tasks with any number of runs on each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

from bakeoff.stats import aggregate, strata
from bakeoff.stats.bootstrap_tables import bootstrap_stratified_iqm
from bakeoff.stats.ranks import probability_of_improvement


def columns(table: np.ndarray) -> list[np.ndarray]:
    return [table[:, j] for j in range(table.shape[1])]


@settings(deadline=None, max_examples=50)
@given(runs=st.integers(1, 9), tasks=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_with_equal_numbers_of_runs_the_aggregates_are_the_usual_ones(runs: int, tasks: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(0.5, 0.4, (runs, tasks))
    assert strata.iqm(columns(x), 10).estimate == pytest.approx(trim_mean(x, 0.25, axis=None), rel=1e-9, abs=1e-12)
    assert strata.average(columns(x), 10).estimate == pytest.approx(x.mean(), rel=1e-9, abs=1e-12)
    gap = strata.optimality_gap(columns(x), 1.0, 10).estimate
    assert gap == pytest.approx(aggregate.optimality_gap(x), rel=1e-9, abs=1e-12)
    taus = np.linspace(-1, 2, 7)
    assert strata.profile(columns(x), taus, 10).share == pytest.approx((x[:, :, None] > taus).mean(axis=(0, 1)))


def test_the_interval_is_that_of_resampling_runs_inside_tasks() -> None:
    x = np.random.default_rng(3).normal(0.5, 0.3, (8, 6))
    ours = strata.iqm(columns(x), 20_000)
    theirs = bootstrap_stratified_iqm(x, 20_000)
    assert ours.low == pytest.approx(theirs.low, abs=0.005)
    assert ours.high == pytest.approx(theirs.high, abs=0.005)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=0.03)


def test_a_task_with_more_runs_weighs_no_more_than_another() -> None:
    few, many = np.array([0.0, 0.0]), np.array([1.0] * 20)
    assert strata.average([few, many], 10).estimate == pytest.approx(0.5)
    assert strata.iqm([few, many], 10).estimate == pytest.approx(0.5)
    assert strata.profile([few, many], [0.5], 10).share == pytest.approx((0.5,))


def test_the_weighted_iqm_does_not_depend_on_copies_of_a_whole_task() -> None:
    rng = np.random.default_rng(4)
    tasks = [rng.normal(size=3), rng.normal(size=5), rng.normal(size=4)]
    doubled = [np.repeat(tasks[0], 2), *tasks[1:]]
    assert strata.iqm(doubled, 10).estimate == pytest.approx(strata.iqm(tasks, 10).estimate, rel=1e-12)


def test_the_chance_to_beat_is_the_mann_whitney_share_averaged_over_tasks() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(6, 4)).round(1), rng.normal(0.3, 1, (6, 4)).round(1)
    ours = strata.improvement(columns(a), columns(b), 4_000)
    theirs = probability_of_improvement(a, b, 4_000)
    assert ours.probability == pytest.approx(theirs.probability, rel=1e-12)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    ragged = [rng.normal(size=n) for n in (2, 5, 3, 4)]
    forth, back = strata.improvement(columns(a), ragged, 10), strata.improvement(ragged, columns(a), 10)
    assert forth.probability + back.probability == pytest.approx(1.0)


def test_no_tasks_and_unequal_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        strata.iqm([])
    with pytest.raises(ValueError, match="same tasks"):
        strata.improvement([[1.0]], [[1.0], [2.0]])
