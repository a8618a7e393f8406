"""Planning for success rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import power_proportions_2indep

from bakeoff.stats.rates import detectable_rate_difference, independent_discordance, outcomes_needed, rate_power


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
    assert alone == outcomes_needed(0.5, 0.1, design="paired", discordant=independent_discordance(0.5, 0.1))
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
