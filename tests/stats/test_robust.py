"""Ranks and trimmed means: scipy agrees, and p, interval and equivalence come from one inversion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.evidence import Evidence, with_margin, worst_case
from bakeoff.stats.robust import RankSum, SignedRanks, Statistic, paired_robust, trimmed_mean, unpaired_robust
from bakeoff.stats.ttests import TStatistic
from stats.strategies import samples

QUICK = settings(max_examples=60, deadline=None)
STATISTICS: tuple[Statistic, ...] = ("rank", "trimmed")
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


def corner(evidence: Evidence, kind: type[Evidence]) -> Evidence:
    """The part of a guarded test that is of this kind."""
    (found,) = [each for each in getattr(evidence, "corners", (evidence,)) if isinstance(each, kind)]
    return found


@pytest.mark.parametrize("n", [10, 17, 40])
@pytest.mark.parametrize("x", [0.0, 0.25])
def test_signed_ranks_are_wilcoxons_exact_test(n: int, x: float) -> None:
    d = np.random.default_rng(n).standard_t(2, n) + 0.5
    tails = SignedRanks(d).tails(x)
    for found, alternative in ((tails.greater, "greater"), (tails.less, "less")):
        assert found == pytest.approx(stats.wilcoxon(d - x, alternative=alternative, method="exact").pvalue, rel=1e-9)


def test_beyond_a_hundred_units_signed_ranks_are_normal() -> None:
    d = np.random.default_rng(5).normal(0.15, 1.0, 400)
    oracle = stats.wilcoxon(d, method="asymptotic", correction=True).pvalue
    assert SignedRanks(d).p == pytest.approx(oracle, rel=1e-6)


@pytest.mark.parametrize(("m", "n"), [(10, 10), (12, 30), (15, 11)])
def test_rank_sums_are_mann_and_whitneys_exact_test(m: int, n: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.normal(size=m), rng.normal(0.8, 1.0, n)
    tails = RankSum(a, b).tails(0.1)
    for found, alternative in ((tails.greater, "greater"), (tails.less, "less")):
        oracle = stats.mannwhitneyu(b - 0.1, a, alternative=alternative, method="exact").pvalue
        assert found == pytest.approx(oracle, rel=1e-9)


def test_large_samples_get_mann_and_whitneys_normal_test() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=80), rng.normal(0.3, 1.0, 90)
    oracle = stats.mannwhitneyu(b, a, method="asymptotic", use_continuity=True).pvalue
    assert RankSum(a, b).p == pytest.approx(oracle, rel=1e-9)


def test_points_too_many_to_sort_give_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    d, a = rng.normal(0.2, 1.0, 40), rng.normal(size=31)
    sorted_ = SignedRanks(d), RankSum(a, d)
    monkeypatch.setattr("bakeoff.stats.robust.SORTED_POINTS", 0)
    for known, counted in zip(sorted_, (SignedRanks(d), RankSum(a, d)), strict=True):
        assert counted.effect == pytest.approx(known.effect, rel=1e-12)
        assert counted.tails(0.3) == known.tails(0.3)
        found, expected = counted.interval(0.95), known.interval(0.95)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_estimates_are_hodges_lehmann_and_the_trimmed_mean() -> None:
    rng = np.random.default_rng(2)
    d, a = rng.standard_t(2, 23), rng.normal(size=14)
    pairs = [(d[i] + d[j]) / 2.0 for i in range(d.size) for j in range(i, d.size)]
    assert paired_robust(d, "rank").effect == pytest.approx(np.median(pairs), rel=1e-12)
    assert unpaired_robust(a, d, "rank").effect == pytest.approx(np.median(np.subtract.outer(d, a)), rel=1e-12)
    assert paired_robust(d, "trimmed").effect == pytest.approx(stats.trim_mean(d, 0.2), rel=1e-12)
    assert trimmed_mean(d) == pytest.approx(stats.trim_mean(d, 0.2), rel=1e-12)


def test_yuens_t_is_scipys() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_t(2, 14), rng.standard_t(2, 21) + 1.0
    found = corner(unpaired_robust(a, b, "trimmed"), TStatistic)
    oracle = stats.ttest_ind(b, a, trim=0.2, equal_var=False)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    # Against an arm whose middle is one value, the error is that of the other arm alone.
    alone, oracle = (
        corner(paired_robust(b, "trimmed"), TStatistic),
        stats.ttest_ind(b, np.zeros(21), trim=0.2, equal_var=False),
    )
    assert alone.p == pytest.approx(oracle.pvalue, rel=1e-6)


@QUICK
@given(samples(10, 16), st.sampled_from(STATISTICS), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 10**6))
def test_p_interval_and_equivalence_come_from_one_inversion(
    d: np.ndarray, statistic: Statistic, relative: float, seed: int
) -> None:
    scale = float(np.abs(d).max()) or 1.0
    other = np.random.default_rng(seed).permutation(d)[: max(10, d.size - 3)]
    for evidence in (paired_robust(d, statistic), unpaired_robust(other, d, statistic)):
        test = with_margin(evidence, relative * scale)
        for level in LEVELS:
            alpha = 1.0 - level
            assert test.interval(level).excludes(0.0) == (test.p <= alpha * (1.0 + 1e-12))
            inside = test.equivalence_interval(level)
            assert inside is not None and test.p_eq is not None
            assert inside.lies_inside(relative * scale) == (test.p_eq <= alpha / 2.0 * (1.0 + 1e-12))


@QUICK
@given(samples(10, 16), st.sampled_from(STATISTICS))
def test_swapped_arms_swap_the_verdict(d: np.ndarray, statistic: Statistic) -> None:
    forth, back = paired_robust(d, statistic), paired_robust(-d, statistic)
    assert forth.p == pytest.approx(back.p, rel=1e-9)
    assert forth.effect == pytest.approx(-back.effect, rel=1e-9, abs=1e-12 * float(np.abs(d).max()))
    one, other = forth.interval(0.95), back.interval(0.95).negated()
    assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9, abs=1e-9 * float(np.abs(d).max()))


@QUICK
@given(
    st.integers(0, 10**6), st.sampled_from(STATISTICS), st.sampled_from([1e-6, 3.0, 1e6]), st.sampled_from([-2.0, 5.0])
)
def test_a_positive_scale_and_a_common_offset_change_nothing(
    seed: int, statistic: Statistic, scale: float, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=11), rng.normal(0.4, 2.0, 13)
    plain = unpaired_robust(a, b, statistic)
    moved = unpaired_robust(scale * (a + offset), scale * (b + offset), statistic)
    assert moved.p == pytest.approx(plain.p, rel=1e-6)
    assert moved.effect == pytest.approx(scale * plain.effect, rel=1e-6)
    assert moved.interval(0.9).low == pytest.approx(scale * plain.interval(0.9).low, rel=1e-6)


@QUICK
@given(samples(10, 14), st.integers(0, 13), st.sampled_from([-1.0, 1.0, 40.0]))
def test_ranks_move_one_way_with_every_value(d: np.ndarray, place: int, step: float) -> None:
    assume(place < d.size)
    changed = d.copy()
    changed[place] += abs(step) * (float(np.abs(d).max()) or 1.0)
    before, after = SignedRanks(d).tails(0.0), SignedRanks(changed).tails(0.0)
    assert after.greater <= before.greater and after.less >= before.less


def test_missing_runs_at_both_ends_have_one_p_and_one_interval() -> None:
    d = np.random.default_rng(12).normal(1.0, 1.0, 14)
    ends = [np.concatenate((d, [value])) for value in (-30.0, 30.0)]
    for statistic in STATISTICS:
        both = worst_case([with_margin(paired_robust(each, statistic), 2.0) for each in ends])
        assert both.interval(0.95).excludes(0.0) == (both.p <= 0.05)
        assert both.p == pytest.approx(max(paired_robust(each, statistic).p for each in ends))


def test_one_wild_value_moves_neither_much() -> None:
    d = np.random.default_rng(3).normal(1.0, 1.0, 30)
    wild = np.concatenate((d[:-1], [-1e6]))
    for statistic in STATISTICS:
        assert paired_robust(wild, statistic).p < 0.01
        assert paired_robust(wild, statistic).effect == pytest.approx(paired_robust(d, statistic).effect, abs=0.2)


def test_a_middle_of_equal_values_never_decides_alone() -> None:
    d = np.concatenate((np.zeros(80), np.ones(20)))  # the trimmed mean is 0, and ranks alone would say better
    assert SignedRanks(d).p < 0.05
    assert paired_robust(d, "trimmed").p == 1.0
    assert paired_robust(np.concatenate((np.full(8, 0.5), [-9.0, 9.0])), "trimmed").p > 0.01


def test_arms_that_never_differ_are_certain_of_nothing_but_equivalence() -> None:
    for statistic in STATISTICS:
        test = with_margin(paired_robust(np.zeros(10), statistic), 0.1)
        assert test.p == 1.0 and test.p_eq is not None and test.p_eq < 0.01
