"""The habits that bakeoff does not have go wrong on the same data, by about as much as the docs say."""

from __future__ import annotations

import numpy as np
import pytest
from calibrate import pooled
from calibrate.count import replicate

from bakeoff.stats.binary import UnpairedBinary
from bakeoff.stats.permutation import permutation_mean

REPLICATES = 500
"""Enough to see errors this large."""


def share(key: str, outcome: str) -> float:
    return float(replicate(key, REPLICATES)[outcome].mean())


@pytest.mark.slow
@pytest.mark.parametrize(("seed_sd", "low", "high"), [("0", 0.03, 0.07), ("1", 0.28, 0.37), ("2", 0.50, 0.63)])
def test_pooled_steps_and_generations_mistake_seeds_for_an_effect(seed_sd: str, low: float, high: float) -> None:
    counts = replicate(f"pooled-sd-{seed_sd}", REPLICATES)
    assert low < counts["pooled generations"].mean() < high
    assert low < counts["pooled steps"].mean() < high


@pytest.mark.slow
def test_longer_runs_make_pooled_analyses_worse() -> None:
    shares = [share(f"pooled-steps-{steps}", "pooled generations") for steps in (15, 240)]
    assert shares[1] > shares[0] + 0.3


def test_the_pooled_rate_test_decides_as_fishers_exact_test_does() -> None:
    rng = np.random.default_rng(1)
    a, b = (pooled.correct(rng, 200, 1.0, pooled.STEPS) for _ in "AB")
    n = a[0].size * pooled.GENERATIONS
    wins = zip(a.sum(axis=(1, 2)), b.sum(axis=(1, 2)), strict=True)
    exact = np.array([UnpairedBinary(int(x), n, int(y), n).p_exact < 0.05 for x, y in wins])
    assert (exact == pooled.rate_test(a, b)).mean() > 0.99


@pytest.mark.slow
def test_the_pooled_step_test_decides_as_a_permutation_test_does() -> None:
    rng = np.random.default_rng(2)
    a, b = (pooled.correct(rng, 4, 1.0, pooled.STEPS) for _ in "AB")
    permuted = [permutation_mean(x.ravel(), y.ravel()).p < 0.05 for x, y in zip(a, b, strict=True)]
    assert list(pooled.step_test(a, b)) == permuted


def test_a_t_test_after_every_pair_is_wrong_in_a_third_of_all_cases() -> None:
    assert 0.27 < share("looking-normal", "t-test after every pair") < 0.37


@pytest.mark.parametrize(("pairs", "low", "high"), [(5, 0.81, 0.87), (8, 0.87, 0.915), (15, 0.90, 0.94)])
def test_the_percentile_bootstrap_covers_too_rarely(pairs: int, low: float, high: float) -> None:
    assert low < share(f"percentile-{pairs}", "covered") < high


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "low", "high"), [(5, 0.10, 0.18), (10, 0.05, 0.12)])
def test_cluster_intervals_read_at_1_96_are_too_narrow(tasks: int, low: float, high: float) -> None:
    counts = replicate(f"tasks-{tasks}x4", REPLICATES)
    assert low < counts["z"].mean() < counts["z, no small-sample factor"].mean() < high
    assert counts["t on tasks"].mean() < 0.065


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 10])
def test_the_task_as_unit_is_wrong_where_one_seed_is_one_policy_on_all_tasks(tasks: int) -> None:
    assert 0.32 < share(f"wrong-unit-{tasks}", "decided") < 0.78


@pytest.mark.slow
def test_several_arms_without_holm_are_wrong_too_often() -> None:
    assert 0.10 < share("family-arms-3", "unadjusted") < 0.19
