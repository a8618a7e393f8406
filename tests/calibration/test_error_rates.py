"""Tables of simulated runs go through `compare`: wrong verdicts stay within their bounds, and true effects are found.

2,000 replicates a cell with fixed seeds. The long form, with ten times as many and more cells, is benchmarks/calibration.py.
"""

from __future__ import annotations

import pytest
from calibrate.cells import CELLS
from calibrate.count import replicate

REPLICATES = 2_000
NOT_NORMAL = ("scores in quarters", "lognormal", "t with 2 df", "binary")


def assert_bounds_hold(key: str) -> None:
    """Every bound of the cell, with the allowance that its number of replicates asks for."""
    cell = CELLS[key]
    assert cell.bars, f"{key} has no bound to hold"
    counts = replicate(key, REPLICATES)
    missed = [
        f"{bar.outcome} {bar.value(counts):.4f}, bound {bar.limits(counts, REPLICATES)}"
        for bar in cell.bars
        if not bar.holds(counts)
    ]
    assert missed == []


@pytest.mark.slow
@pytest.mark.parametrize("design", ["paired-5", "paired-8", "unpaired-8+8"])
@pytest.mark.parametrize("law", ["normal", *NOT_NORMAL])
def test_arms_that_do_not_differ_are_rarely_told_apart(design: str, law: str) -> None:
    assert_bounds_hold(f"aa-{design}-{law}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        "paired-15-normal",
        "paired-15-scores in quarters",
        "paired-30-normal",
        "paired-30-binary",
        "unpaired-15+15-normal",
        "unpaired-15+15-binary",
        "unpaired-8+24-normal",
        "unpaired-8+24-binary",
    ],
)
def test_more_runs_do_not_make_wrong_verdicts_more_frequent(cell: str) -> None:
    assert_bounds_hold(f"aa-{cell}")


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [5, 8, 15])
def test_three_correlated_metrics_share_one_error_rate(pairs: int) -> None:
    assert_bounds_hold(f"family-metrics-{pairs}")


@pytest.mark.slow
def test_three_arms_against_a_control_share_one_error_rate() -> None:
    assert_bounds_hold("family-arms-3")


@pytest.mark.slow
def test_arms_that_differ_by_exactly_the_margin_are_rarely_called_equivalent() -> None:
    assert_bounds_hold("equivalence-15")


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["5x4", "5x10", "10x4", "10x10", "20x4", "nested-10x4"])
def test_effects_that_differ_by_task_are_not_taken_for_an_effect_on_average(grid: str) -> None:
    assert_bounds_hold(f"tasks-{grid}")


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["5x5", "5x10", "10x5", "20x5", "only-seeds", "only-neither"])
def test_training_seeds_that_are_crossed_with_tasks_count_as_what_they_are(grid: str) -> None:
    assert_bounds_hold(f"crossed-{grid}")


@pytest.mark.slow
@pytest.mark.parametrize("design", ["rollouts-5x4", "nested-5x4", "crossed-5x8"])
def test_fixed_tasks_whose_effects_cancel_are_not_told_apart(design: str) -> None:
    assert_bounds_hold(f"fixed-{design}")


@pytest.mark.slow
@pytest.mark.parametrize("design", ["paired-8", "paired-15", "unpaired-8+8", "unpaired-15+15", "tasks-10x4"])
def test_intervals_cover_as_often_as_they_say_and_power_is_close_to_the_t_test(design: str) -> None:
    assert_bounds_hold(f"power-{design}")


@pytest.mark.slow
def test_intervals_over_tasks_and_crossed_seeds_cover_as_often_as_they_say() -> None:
    assert_bounds_hold("coverage-crossed-10x10")


@pytest.mark.parametrize("law", ["normal", "lognormal", "t with 2 df", "binary"])
def test_a_look_after_every_pair_is_allowed(law: str) -> None:
    assert_bounds_hold(f"looking-{law}")


def test_a_strong_effect_stops_a_sequential_run_after_nine_pairs_or_fewer() -> None:
    assert_bounds_hold("stop-1.5")


@pytest.mark.slow
@pytest.mark.parametrize("seed_sd", ["0", "1", "2"])
def test_one_value_a_seed_keeps_its_error_rate_however_much_seeds_differ(seed_sd: str) -> None:
    assert_bounds_hold(f"pooled-sd-{seed_sd}")


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["wins-8", "wins-16", "strata-3x2", "crossed-3x20", "crossed-20x3", "two-seeds-1"])
def test_few_strata_two_seeds_and_pure_wins_keep_their_bounds(cell: str) -> None:
    assert_bounds_hold(cell)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal, sigma 0.5"])
def test_an_effect_of_exactly_the_margin_is_rarely_equivalent_under_skew(law: str) -> None:
    assert_bounds_hold(f"margin-{law}-10")


@pytest.mark.slow
@pytest.mark.parametrize("law", ["scores in quarters", "scores in tenths"])
def test_an_effect_of_exactly_the_margin_is_rarely_equivalent_on_a_lattice(law: str) -> None:
    assert_bounds_hold(f"margin-{law}-15")


@pytest.mark.slow
def test_the_guard_against_skew_costs_no_more_power_than_it_may() -> None:
    assert_bounds_hold("margin-power-8")


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal, sigma 0.5"])
def test_a_regression_of_exactly_what_is_allowed_rarely_passes_the_gate(law: str) -> None:
    assert_bounds_hold(f"gate-{law}-10")


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["look-arms", "litmus-5", "groups-unequal-declared", "groups-few-not-declared", "epochs"]
)
def test_choosing_after_a_look_and_structure_that_nobody_declared_keep_alpha(key: str) -> None:
    assert_bounds_hold(key)
