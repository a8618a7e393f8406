from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from bakeoff.stats.binary import PairedBinary, UnpairedBinary, paired_binary, unpaired_binary, wilson
from bakeoff.stats.evidence import Test, with_margin


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_exact_mcnemar_is_statsmodels(b: int, c: int, rest: int) -> None:
    oracle = mcnemar([[rest, b], [c, 0]], exact=True).pvalue
    assert PairedBinary(b, c, b + c + rest).p_exact == pytest.approx(min(1.0, oracle), rel=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_the_half_tie_tail_is_the_binomial_tail_minus_half_the_observed(b: int, c: int) -> None:
    evidence = PairedBinary(b, c, b + c + 1)
    up = stats.binom.sf(b - 1, b + c, 0.5) - 0.5 * stats.binom.pmf(b, b + c, 0.5)
    assert evidence.tails(0.0).greater == pytest.approx(up, rel=1e-9)
    assert evidence.tails(0.0).greater + evidence.tails(0.0).less == pytest.approx(1.0)


def test_no_p_is_above_1_nor_below_its_floor_when_every_run_ends_the_same() -> None:
    test = unpaired_binary([1.0] * 3, [1.0] * 3, strict=True)
    assert test.p == test.floor == 1.0


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 30), st.integers(1, 30))
@settings(max_examples=80, deadline=None)
def test_exact_fisher_is_scipys(wins_a: int, n_a: int, wins_b: int, n_b: int) -> None:
    wins_a, wins_b = min(wins_a, n_a), min(wins_b, n_b)
    table = [[wins_a, n_a - wins_a], [wins_b, n_b - wins_b]]
    evidence = UnpairedBinary(wins_a, n_a, wins_b, n_b)
    assert evidence.p_exact == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-9)
    law = stats.hypergeom(n_a + n_b, wins_a + wins_b, n_b)
    assert evidence.tails(0.0).greater == pytest.approx(law.sf(wins_b) + 0.5 * law.pmf(wins_b), rel=1e-9)


def test_half_a_million_pairs_and_runs_are_counted_exactly() -> None:
    paired = PairedBinary(100_000, 101_000, 500_000)
    unpaired_ = UnpairedBinary(250_000, 500_000, 251_200, 500_000)
    values = (paired.p_exact, unpaired_.p_exact, with_margin(paired, 0.01).interval(0.95), unpaired_.interval(0.95))
    assert values[0] == pytest.approx(stats.binomtest(100_000, 201_000).pvalue, rel=1e-9)
    oracle = stats.fisher_exact([[250_000, 250_000], [251_200, 248_800]]).pvalue
    assert values[1] == pytest.approx(oracle, rel=1e-9)


def tango_by_optimisation(b: int, c: int, n: int, x: float) -> float:
    """Score z with the nuisance rate (only A succeeded) found by a numerical maximiser."""

    def negative(rate: float) -> float:
        cells = np.array([rate + x, rate, 1.0 - 2.0 * rate - x])
        return -float(np.sum(np.array([b, c, n - b - c]) * np.log(np.maximum(cells, 1e-300))))

    found = optimize.minimize_scalar(
        negative, bounds=(max(0.0, -x) + 1e-12, (1.0 - x) / 2.0 - 1e-12), method="bounded", options={"xatol": 1e-13}
    )
    return (b - c - n * x) / np.sqrt(n * (2.0 * found.x + x - x * x))


@pytest.mark.parametrize(("b", "c", "n"), [(12, 2, 50), (5, 9, 20), (1, 7, 30)])
@pytest.mark.parametrize("x", [-0.3, -0.05, 0.1, 0.4])
def test_tangos_score_has_its_nuisance_rate_at_the_maximum(b: int, c: int, n: int, x: float) -> None:
    assert PairedBinary(b, c, n).score(x) == pytest.approx(tango_by_optimisation(b, c, n, x), rel=1e-5)


def test_tangos_interval_inverts_its_score() -> None:
    evidence = PairedBinary(12, 2, 50)
    interval = evidence.interval(0.95)
    assert evidence.score(interval.low) == pytest.approx(stats.norm.isf(0.025), rel=1e-9)
    assert evidence.score(interval.high) == pytest.approx(-stats.norm.isf(0.025), rel=1e-9)
    assert (interval.low, interval.high) == pytest.approx((0.0611, 0.3447), abs=5e-5)


def test_miettinen_nurminen_gives_newcombes_published_example() -> None:
    # Newcombe 1998, table II: 56/70 against 48/80.
    interval = UnpairedBinary(48, 80, 56, 70).interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((0.0528, 0.3382), abs=5e-5)


@pytest.mark.parametrize("x", [-0.4, -0.1, 0.2, 0.6])
def test_miettinen_nurminens_score_has_its_nuisance_rate_at_the_maximum(x: float) -> None:
    def negative(rate: float) -> float:
        return -float(stats.binom.logpmf(10, 25, rate) + stats.binom.logpmf(18, 24, rate + x))

    low, high = max(0.0, -x) + 1e-12, min(1.0, 1.0 - x) - 1e-12
    rate = optimize.minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    variance = (rate * (1 - rate) / 25 + (rate + x) * (1 - rate - x) / 24) * 49 / 48
    expected = (18 / 24 - 10 / 25 - x) / np.sqrt(variance)
    assert UnpairedBinary(10, 25, 18, 24).score(x) == pytest.approx(expected, rel=1e-5)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 10), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=150, deadline=None)
def test_paired_p_and_interval_agree_about_zero(b: int, c: int, rest: int, a: float) -> None:
    test = with_margin(PairedBinary(b, c, max(1, b + c + rest)), 0.2)
    assert (test.p <= a) == test.interval(1 - a).excludes(0.0)
    assert (test.p_eq <= a) == test.interval(1 - 2 * a).lies_inside(0.2)


@given(st.integers(0, 12), st.integers(0, 15), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=150, deadline=None)
def test_unpaired_p_and_interval_agree_about_zero(wins_a: int, wins_b: int, a: float) -> None:
    test = with_margin(UnpairedBinary(wins_a, 12, wins_b, 15), 0.2)
    assert (test.p <= a) == test.interval(1 - a).excludes(0.0)
    assert (test.p_eq <= a) == test.interval(1 - 2 * a).lies_inside(0.2)


def mirrored(test: Test, other: Test) -> None:
    assert test.p == pytest.approx(other.p, rel=1e-12)
    back = other.interval(0.9).negated()
    assert (test.interval(0.9).low, test.interval(0.9).high) == pytest.approx((back.low, back.high), abs=1e-12)


def test_swapping_the_arms_mirrors_both_designs() -> None:
    mirrored(with_margin(PairedBinary(7, 2, 20), None), with_margin(PairedBinary(2, 7, 20), None))
    mirrored(with_margin(UnpairedBinary(3, 9, 8, 11), None), with_margin(UnpairedBinary(8, 11, 3, 9), None))


def test_arms_that_never_differ_give_p_one_and_can_be_equivalent() -> None:
    test = with_margin(PairedBinary(0, 0, 200), 0.05)
    assert test.p == 1.0 and test.p_eq <= 0.05
    nobody = with_margin(UnpairedBinary(0, 20, 0, 20), 0.2)
    assert nobody.p == 1.0 and nobody.interval(0.95).contains(0.0)


def test_outcomes_are_counted_from_zeros_and_ones_only() -> None:
    a, b = [0, 0, 1, 1, 0], [1, 1, 1, 0, 0]
    assert paired_binary(a, b) == PairedBinary(2, 1, 5)
    assert unpaired_binary(a, b) == UnpairedBinary(2, 5, 3, 5)
    with pytest.raises(ValueError, match="0 or 1"):
        paired_binary([0.5, 1], [0, 1])
    with pytest.raises(ValueError, match="one length"):
        paired_binary([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="fit"):
        PairedBinary(3, 3, 5)


@given(st.integers(0, 50), st.integers(1, 50), st.sampled_from([0.8, 0.95]))
@settings(max_examples=50, deadline=None)
def test_wilsons_interval_is_statsmodels(wins: int, n: int, level: float) -> None:
    wins = min(wins, n)
    ours = wilson(wins, n, level)
    low, high = proportion_confint(wins, n, alpha=1 - level, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


def test_half_tie_tests_keep_their_size() -> None:
    n, alpha = 30, 0.05
    for q in (0.1, 0.3, 0.6):  # chance that a pair is discordant
        size = 0.0
        for discordant in range(n + 1):
            weight = stats.binom.pmf(discordant, n, q)
            b = np.arange(discordant + 1)
            p = np.array([with_margin(PairedBinary(int(k), discordant - int(k), n), None).p for k in b])
            size += weight * stats.binom.pmf(b, discordant, 0.5)[p <= alpha].sum()
        assert size <= 0.053
