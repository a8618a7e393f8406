"""Plans keep what they promise on average, and more of one kind of unit cannot buy what the other lacks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bakeoff.stats import plans
from bakeoff.stats.decision import crossed_test
from bakeoff.stats.plans import (
    Stratified,
    TwoWay,
    average_chance,
    chance,
    count_needed,
    detected,
    planning_factor,
    planning_spread,
    sequential_detects,
)
from bakeoff.stats.power import chance_to_detect, units_needed


@pytest.mark.parametrize("df", [7, 14])
def test_those_who_plan_with_the_planning_spread_have_the_promised_power_on_average(df: int) -> None:
    rng = np.random.default_rng(df)
    spreads = np.sqrt(rng.chisquare(df, 200) / df)
    kept, naive = (
        np.mean([chance_to_detect(0.4, 1.0, units_needed(0.4, float(factor * s))) for s in spreads])
        for factor in (planning_factor(df), 1.0)
    )
    assert kept == pytest.approx(0.8, abs=0.035)
    assert naive < kept - 0.02


def test_a_known_spread_needs_no_caution() -> None:
    assert planning_factor(1e6) == pytest.approx(1.0, abs=1e-3)
    assert planning_spread(2.0, 4.0) > planning_spread(2.0, 40.0) > 2.0
    assert average_chance(lambda sd: 1.0 / sd, 1.0, 1e6) == pytest.approx(1.0, abs=1e-3)


def two_way(tasks: int, seeds: int, task: float, seed: float, cell: float) -> TwoWay:
    """Noise with these components, as a table of so many tasks and seeds would show it without luck."""
    inside = cell / (tasks * seeds)
    return TwoWay(tasks, (seeds,), task / tasks + inside, (seed / seeds + inside,), (inside,))


def test_the_power_of_a_crossed_plan_is_that_of_the_crossed_test() -> None:
    rng = np.random.default_rng(1)
    tasks, seeds, effect, found = 10, 6, 1.1, 0
    for _ in range(400):
        d = effect + rng.normal(size=(tasks, 1)) + rng.normal(size=(1, seeds)) + rng.normal(size=(tasks, seeds))
        found += crossed_test(d).evidence.tails(0.0).greater <= 0.025
    noise = two_way(tasks, seeds, 1.0, 1.0, 1.0)
    assert chance(noise.criticals(tasks, seeds, 0.05, None), effect) == pytest.approx(found / 400, abs=0.07)


def test_more_tasks_cannot_buy_what_the_seeds_lack() -> None:
    noise = two_way(12, 4, 0.5, 1.0, 1.0)
    floor = noise.floor(0.05, 0.8, seeds=4)
    assert floor > 0.5 * detected(noise.criticals(12, 4, 0.05), 0.8)
    assert count_needed(lambda tasks: noise.criticals(tasks, 4, 0.05), 0.5 * floor, 0.8) is None
    assert count_needed(lambda seeds: noise.criticals(12, seeds, 0.05), 0.5 * floor, 0.8) is not None


def test_small_pilots_ask_for_more_than_large_ones_that_showed_the_same() -> None:
    small, large = (two_way(n, n, 1.0, 1.0, 1.0).caution(30, 30, 0.05, 0.8) for n in (4, 40))
    assert small > large >= 1.0
    fixed = [Stratified(5, 1, 4.0, df, 1.0) for df in (5.0, 500.0)]
    assert detected(fixed[0].criticals(10, 0.05), 0.8) > detected(fixed[1].criticals(10, 0.05), 0.8)


def test_fixed_tasks_count_the_units_of_all_tasks() -> None:
    """Five tasks with ten pairs each and a unit variance of 4: a standard error of 2 / sqrt(50)."""
    noise = Stratified(5, 1, 4.0, 1e6, 1.0)
    assert detected(noise.criticals(10, 0.05), 0.8) == pytest.approx(2.85 * 2.0 / math.sqrt(50), rel=0.03)


def test_after_a_look_the_same_effect_needs_more_pairs() -> None:
    pairs = units_needed(1.0, 1.0)
    assert sequential_detects(1.0, pairs, 0.05, 1) < 0.5 < 0.8 < sequential_detects(1.0, 4 * pairs, 0.05, 1)


def test_what_very_many_pairs_detect_is_simulated_in_groups_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pair by pair, a plan for 200,000 pairs took minutes and gigabytes."""
    monkeypatch.setattr(plans, "_PATHS", 400)
    for size in (0.08, 0.12):
        grouped = plans.sequential_detects(size, 5_000, 0.05, 1)
        with monkeypatch.context() as patch:
            patch.setattr(plans, "_EACH_UNIT", 5_000)
            pairwise = plans.sequential_detects(size, 5_000, 0.05, 1)
        assert grouped == pytest.approx(pairwise, abs=0.12) and 0.05 < pairwise < 0.95
