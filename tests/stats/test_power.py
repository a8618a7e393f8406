"""Planning with spreads, success rates and variance components."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.proportion import power_proportions_2indep

from bakeoff.stats.decision import holm, paired_test, unpaired_test
from bakeoff.stats.numerics import noncentral_t_cdf
from bakeoff.stats.power import (
    Components,
    Costs,
    Multiplicity,
    allocate,
    chance_to_detect,
    detectable_rate_difference,
    minimum_detectable_effect,
    nested_components,
    outcomes_needed,
    rate_power,
    relative_error,
    resampled_from,
    simulate,
    spread_bound,
    t_power,
    units_for_relative_error,
    units_needed,
    variance_components,
)
from bakeoff.stats.ttests import one_sample_t


@pytest.mark.parametrize("df", [1, 4, 14, 99, 2000])
@pytest.mark.parametrize("shift", [0.0, 0.7, 2.5, 8.0, 30.0])
def test_the_noncentral_t_is_scipys(df: int, shift: float) -> None:
    for t in (-2.0, 0.5, 2.1, shift + 1.0):
        expected = stats.nct.cdf(t, df, shift)
        if np.isnan(expected):  # scipy gives up where the probability underflows
            expected = float(t > shift)
        assert noncentral_t_cdf(df, shift, t) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.floats(0.05, 3.0), st.integers(2, 200), st.sampled_from([0.01, 0.05, 0.1]))
@settings(max_examples=60, deadline=None)
def test_power_is_statsmodels(d: float, n: int, alpha: float) -> None:
    paired, unpaired = TTestPower().power(d, n, alpha), TTestIndPower().power(d, n, alpha)
    # statsmodels gives NaN where its lower tail underflows: the upper one is the power then.
    if np.isnan(paired):
        paired = stats.nct.sf(stats.t.isf(alpha / 2, n - 1), n - 1, d * math.sqrt(n))
    if np.isnan(unpaired):
        unpaired = stats.nct.sf(stats.t.isf(alpha / 2, 2 * n - 2), 2 * n - 2, d * math.sqrt(n / 2))
    assert t_power(d * 3.0, 3.0, n, alpha) == pytest.approx(paired, rel=1e-9, abs=1e-9)
    assert t_power(-d, 1.0, n, alpha, "unpaired") == pytest.approx(unpaired, rel=1e-9, abs=1e-9)


def test_the_number_of_units_is_the_next_whole_one() -> None:
    assert units_needed(0.5, 1.0) == math.ceil(TTestPower().solve_power(0.5, power=0.8, alpha=0.05)) == 34
    assert units_needed(0.5, 1.0, design="unpaired") == 64
    assert units_needed(100.0, 1.0) == 3
    for effect in (0.2, 0.9, 1.7, 3.0):
        n = units_needed(effect, 1.0, power=0.9)
        assert t_power(effect, 1.0, n) >= 0.9
        assert n == 2 or t_power(effect, 1.0, n - 1) < 0.9


@given(st.integers(3, 300), st.sampled_from(["paired", "unpaired"]), st.sampled_from([0.5, 0.8, 0.95]))
@settings(max_examples=40, deadline=None)
def test_the_detectable_effect_has_the_power_asked_for(n: int, design: str, power: float) -> None:
    effect = minimum_detectable_effect(2.0, n, power=power, design=design)
    assert chance_to_detect(effect, 2.0, n, design=design) == pytest.approx(power, abs=1e-9)


def test_one_unit_detects_nothing() -> None:
    assert minimum_detectable_effect(1.0, 1) == math.inf


def test_the_bound_of_a_spread_holds_as_often_as_it_says() -> None:
    assert spread_bound(1.0, 15) == pytest.approx(math.sqrt(14 / stats.chi2.ppf(0.2, 14)), rel=1e-9)
    rng = np.random.default_rng(0)
    held = np.mean([spread_bound(rng.normal(size=6).std(ddof=1), 6) >= 1.0 for _ in range(4000)])
    assert held == pytest.approx(0.8, abs=0.02)


def test_the_relative_error_is_undefined_where_the_mean_may_be_zero() -> None:
    rng = np.random.default_rng(1)
    far, near = rng.normal(10.0, 2.0, 15), rng.normal(0.1, 2.0, 15)
    assert relative_error(near) is None and units_for_relative_error(near, 0.05) is None
    assert relative_error(far, 4) == pytest.approx(far.std(ddof=1) / 2 / far.mean())
    n = units_for_relative_error(far, 0.05)
    assert relative_error(far, n) <= 0.05 < relative_error(far, n - 1)
    assert relative_error(np.full(4, 3.0)) == 0.0


def test_simulated_power_is_near_the_computed_one() -> None:
    ours = simulate(lambda rng: rng.normal(1.0, 1.0, 10), lambda d: one_sample_t(d).p <= 0.05, 1500)
    assert ours.interval.low < t_power(1.0, 1.0, 10) < ours.interval.high


def test_earlier_runs_give_experiments_with_the_effect_asked_for() -> None:
    values = np.random.default_rng(2).lognormal(size=12)
    draw = resampled_from(values, 40, 0.7)
    rng = np.random.default_rng(3)
    experiments = np.array([draw(rng) for _ in range(2000)])
    assert experiments.shape == (2000, 40)
    assert experiments.mean() == pytest.approx(0.7, abs=0.02 * values.std())
    assert experiments.var() == pytest.approx(values.var(ddof=1), rel=0.05)


def test_variance_components_find_what_was_put_in() -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(300):
        x = rng.normal(0, 2.0, (10, 1, 1)) + rng.normal(0, 1.0, (1, 8, 1)) + rng.normal(0, 0.5, (10, 8, 1))
        c = variance_components(x + rng.normal(0, 1.5, (10, 8, 3)))
        found.append((c.task, c.seed, c.cell, c.rollout))
    assert np.mean(found, axis=0) == pytest.approx([4.0, 1.0, 0.25, 2.25], rel=0.15)


def test_a_table_without_rollouts_or_seeds_is_understood() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, 5))
    c = variance_components(x)
    assert c.rollout == 0.0 and c.cell > 0.0
    one_seed = variance_components(rng.normal(size=(6, 1, 4)))
    assert one_seed.seed == one_seed.cell == 0.0 and one_seed.rollout > 0.0
    with pytest.raises(ValueError):
        variance_components([1.0, 2.0])
    with pytest.raises(ValueError, match="complete"):
        variance_components([[1.0, np.nan], [2.0, 3.0]])


def test_runs_go_where_the_variance_is() -> None:
    noisy_tasks = allocate(Components(task=4.0, seed=0.0, cell=0.0, rollout=1.0), 60.0)
    assert (noisy_tasks.tasks, noisy_tasks.seeds, noisy_tasks.rollouts) == (60, 1, 1)
    noisy_seeds = allocate(Components(task=0.0, seed=4.0, cell=0.0, rollout=1.0), 60.0, tasks=5)
    assert (noisy_seeds.tasks, noisy_seeds.seeds, noisy_seeds.rollouts) == (5, 12, 1)
    dear_seeds = allocate(Components(task=0.0, seed=0.1, cell=0.0, rollout=9.0), 100.0, Costs(seed=10.0), tasks=1)
    assert dear_seeds.rollouts > dear_seeds.seeds
    assert dear_seeds.cost <= 100.0


@pytest.mark.parametrize("budget", [7.0, 23.0])
def test_no_other_design_within_the_budget_is_more_precise(budget: float) -> None:
    c, costs = Components(1.0, 0.5, 0.2, 3.0), Costs(task=1.0, seed=0.5, rollout=0.3)
    best = allocate(c, budget, costs)
    for t in range(1, 25):
        for s in range(1, 25):
            for k in range(1, 60):
                if costs.total(t, s, k) <= budget:
                    assert math.sqrt(c.variance(t, s, k)) >= best.standard_error - 1e-12


def test_plans_that_make_no_sense_are_refused() -> None:
    for call in (
        lambda: t_power(1.0, 0.0, 5),
        lambda: units_needed(0.0, 1.0),
        lambda: units_needed(1e-9, 1.0),
        lambda: minimum_detectable_effect(1.0, 5, power=0.04),
        lambda: allocate(Components(1, 1, 1, 1), 0.5),
        lambda: spread_bound(1.0, 10, 1.0),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize(("rate", "effect", "n"), [(0.45, 0.013, 5000), (0.1, 0.2, 60), (0.9, -0.3, 40), (0.5, 0.5, 9)])
def test_the_power_of_two_independent_rates_is_that_of_statsmodels(rate: float, effect: float, n: int) -> None:
    theirs = power_proportions_2indep(effect, rate, n, alpha=0.05, return_results=False)
    assert rate_power(rate, effect, n) == pytest.approx(float(theirs), rel=1e-6)


def test_known_sample_sizes_come_out() -> None:
    assert outcomes_needed(0.01875, 0.0126) == 2414
    assert outcomes_needed(0.45, 0.013) == 23_045


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(0.05, 0.9),
    effect=st.floats(0.02, 0.5),
    power=st.sampled_from([0.5, 0.8, 0.95]),
    design=st.sampled_from(["paired", "unpaired"]),
)
def test_the_number_needed_is_the_smallest_that_has_the_power(
    rate: float, effect: float, power: float, design: str
) -> None:
    effect = min(effect, 0.95 - rate) if rate < 0.9 else -effect
    n = outcomes_needed(rate, effect, power=power, design=design)
    assert rate_power(rate, effect, n, design=design) >= power - 1e-9
    if n > 2:
        assert rate_power(rate, effect, n - 1, design=design) < power + 1e-3  # the far tail is not in the formula


def test_the_difference_that_n_outcomes_find_has_the_power_asked_for() -> None:
    found = detectable_rate_difference(0.3, 100)
    assert found is not None
    assert rate_power(0.3, found, 100) == pytest.approx(0.8, abs=1e-6)
    assert detectable_rate_difference(0.95, 4) is None


def test_pairs_that_agree_more_often_need_fewer_of_them() -> None:
    alone = outcomes_needed(0.5, 0.1, design="paired")
    assert alone == outcomes_needed(0.5, 0.1, design="paired", discordant=0.5 * 0.4 + 0.6 * 0.5)
    assert outcomes_needed(0.5, 0.1, design="paired", discordant=0.2) < alone / 2


def test_the_paired_power_is_what_simulated_mcnemar_tests_reach() -> None:
    n = outcomes_needed(0.5, 0.15, design="paired", discordant=0.35)
    rng = np.random.default_rng(1)
    wins = rng.multinomial(n, [0.25, 0.10, 0.65], size=20_000)
    z = (wins[:, 0] - wins[:, 1]) / np.sqrt(np.maximum(1, wins[:, 0] + wins[:, 1]))
    assert (np.abs(z) > 1.959964).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("rate", "effect", "discordant", "word"),
    [(0.5, 0.0, None, "effect of 0"), (0.9, 0.2, None, "between 0 and 1"), (0.5, 0.2, 0.1, "share of pairs")],
)
def test_impossible_rates_are_refused(rate: float, effect: float, discordant: float | None, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        outcomes_needed(rate, effect, design="paired", discordant=discordant)


def test_nested_components_find_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        task = rng.normal(0, 2.0, (8, 1, 1))
        seed = rng.normal(0, 1.0, (8, 5, 1))
        found.append(nested_components(task + seed + rng.normal(0, 1.5, (8, 5, 3))))
    means = [np.mean([getattr(c, part) for c in found]) for part in ("task", "cell", "rollout")]
    assert means == pytest.approx([4.0, 1.0, 2.25], rel=0.12)
    assert {c.seed for c in found} == {0.0}


def test_nested_seeds_and_their_interaction_are_one_component() -> None:
    x = np.random.default_rng(1).normal(size=(6, 4, 2))
    nested, crossed = nested_components(x), variance_components(x)
    assert nested.rollout == crossed.rollout
    assert nested_components(x[:, :, 0]).rollout == 0.0
    assert nested_components(x[:, :1, :]).cell == 0.0


def test_a_plan_for_tasks_like_these_keeps_three_of_them_even_where_tasks_show_no_variance() -> None:
    no_task_noise = Components(task=0.0, seed=0.0, cell=1.0, rollout=0.0)
    assert allocate(no_task_noise, 12).tasks == 1
    assert allocate(no_task_noise, 12, least_tasks=3).tasks == 3


def decided(design: str, n: int, effect: float, m: int, experiments: int) -> tuple[float, float, float]:
    """Shares of simulated experiments, of m arms with this effect and one control, in which Holm finds B1, any, all."""
    rng = np.random.default_rng(n)
    found = np.zeros((experiments, m), dtype=bool)
    for rejected in found:
        if design == "paired":
            arms = rng.standard_normal((m + 1, n)) / math.sqrt(2)  # differences have a spread of 1
            tests = [paired_test(arm - arms[0] + effect, 0.05, m) for arm in arms[1:]]
        else:
            arms = rng.standard_normal((m + 1, n))
            tests = [unpaired_test(arms[0], arm + effect, 0.05, m) for arm in arms[1:]]
        rejected[:] = holm([test.p for test in tests]).rejected
    return float(found[:, 0].mean()), float(found.any(axis=1).mean()), float(found.all(axis=1).mean())


@pytest.mark.slow
@pytest.mark.parametrize(("design", "n"), [("paired", 7), ("paired", 8), ("unpaired", 3), ("unpaired", 5)])
def test_power_is_that_of_the_test_that_decides_about_few_units(design: str, n: int) -> None:
    """The noncentral t promises 80 % where 69 to 77 % are found."""
    effect = minimum_detectable_effect(1.0, n, design=design)
    assert decided(design, n, effect, 1, 1_500)[0] == pytest.approx(0.8, abs=0.035)  # 3.4 standard errors
    assert t_power(effect, 1.0, n, design=design) > 0.82


@pytest.mark.slow
def test_any_and_all_power_are_those_of_holm_over_the_arms() -> None:
    effect = 1.1
    shares = decided("paired", 10, effect, 3, 800)
    for share, wanted in zip(shares[1:], ("any", "all"), strict=True):
        chance = chance_to_detect(effect, 1.0, 10, family=Multiplicity(3, wanted))
        assert share == pytest.approx(chance, abs=0.055)  # 3.4 standard errors and a point


def test_a_family_needs_more_and_fewer_than_three_units_detect_nothing() -> None:
    assert minimum_detectable_effect(1.0, 2) == math.inf and chance_to_detect(9.0, 1.0, 2) == 0.0
    for design in ("paired", "unpaired"):
        one, each, any_, all_ = (
            minimum_detectable_effect(1.0, 20, design=design, family=family)
            for family in (Multiplicity(), Multiplicity(4), Multiplicity(4, "any"), Multiplicity(4, "all"))
        )
        assert any_ < one < each < all_
        assert units_needed(1.0, 1.0, design=design, family=Multiplicity(4)) > units_needed(1.0, 1.0, design=design)
    assert minimum_detectable_effect(1.0, 30, family=Multiplicity(5)) == minimum_detectable_effect(1.0, 30, alpha=0.01)
    with pytest.raises(ValueError, match="at most 100"):
        chance_to_detect(1.0, 1.0, 20, family=Multiplicity(101, "any"))
