"""The invariants of the decision: p, interval and verdict say the same, whatever the data and the design."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bakeoff.stats.binary import paired_binary, unpaired_binary
from bakeoff.stats.decision import (
    CAMPAIGN_WORDS,
    Decision,
    benjamini_hochberg,
    crossed_test,
    decide,
    flips_suffice,
    holm,
    paired_test,
    seed_has_no_effect,
    skew_check,
    stratified_paired_test,
    stratified_test,
    unpaired_test,
)
from bakeoff.stats.evidence import Guarded, Test, with_margin
from bakeoff.stats.permutation import SignFlip
from bakeoff.stats.ttests import one_sample_t
from stats.strategies import samples, spread_samples

MARGIN = 9.0
ALPHAS = st.sampled_from([0.01, 0.05, 0.1, 0.2])


@st.composite
def comparisons_of_any_design(draw: st.DrawFn, margin: bool = True, comparisons: int = 1) -> Test:
    """A Test from data of some design, with a margin of some size."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shift = draw(st.sampled_from([0.0, 0.0, 0.7, -1.5]))
    lumpy = draw(st.booleans())

    def data(*shape: int) -> np.ndarray:
        x = rng.normal(shift, 1.0, shape)
        return np.round(2.0 * x) / 2.0 if lumpy else x

    d = draw(st.sampled_from([0.3, 0.5, 1.0, 2.0])) if margin else None
    n = draw(st.integers(3, 12))
    strict = draw(st.booleans())
    match draw(st.sampled_from(["paired", "unpaired", "binary", "stratified", "crossed", "binary unpaired", "strata"])):
        case "paired":
            return paired_test(data(n), 0.05, comparisons, d, strict=strict)
        case "unpaired":
            other = rng.normal(0.0, 1.0, draw(st.sampled_from([n, n + 2])))
            return unpaired_test(other, data(n), 0.05, comparisons, d, strict=strict)
        case "binary":
            outcome = (data(n) > 0).astype(float)
            return with_margin(paired_binary(rng.integers(0, 2, n), outcome, strict), None if d is None else d / 3)
        case "binary unpaired":
            outcome = (data(n + 1) > 0).astype(float)
            return with_margin(unpaired_binary(rng.integers(0, 2, n), outcome, strict), None if d is None else d / 3)
        case "stratified":
            sizes = draw(st.sampled_from([(3, 5, 4), (2, 2), (4, 4, 4)]))
            return stratified_paired_test([data(size) for size in sizes], d, strict=strict)
        case "strata":
            return stratified_test([rng.normal(size=3), rng.normal(size=4)], [data(3), data(5)], d, strict=strict)
        case _:
            return crossed_test(data(*draw(st.sampled_from([(5, 4), (9, 2), (3, 7), (8, 9)]))), d)


@pytest.mark.slow
@given(st.lists(comparisons_of_any_design(comparisons=3), min_size=1, max_size=5), ALPHAS)
@settings(max_examples=120, deadline=None)
def test_adjusted_p_is_at_most_alpha_exactly_when_the_decision_interval_excludes_zero(
    family: list[Test], alpha: float
) -> None:
    for decision in decide(family, alpha):
        assert (decision.p_adjusted <= alpha) == decision.decision_interval.excludes(0.0)
        assert decision.interval.excludes(0.0) == (decision.p <= alpha)
        assert 0.0 < decision.p <= 1.0


@pytest.mark.slow
@given(st.lists(comparisons_of_any_design(comparisons=3), min_size=1, max_size=5), ALPHAS)
@settings(max_examples=120, deadline=None)
def test_adjusted_equivalence_p_is_at_most_alpha_exactly_when_the_interval_lies_inside_the_margin(
    family: list[Test], alpha: float
) -> None:
    for test, decision in zip(family, decide(family, alpha), strict=True):
        inside = decision.equivalence_interval.lies_inside(test.margin)
        assert (decision.p_eq_adjusted <= alpha) == inside == (decision.verdict == "equivalent")


@given(st.lists(comparisons_of_any_design(comparisons=2), min_size=1, max_size=4), ALPHAS)
@settings(max_examples=80, deadline=None)
def test_the_verdict_follows_from_the_two_adjusted_p_values(family: list[Test], alpha: float) -> None:
    for decision in decide(family, alpha):
        if decision.p_eq_adjusted <= alpha:
            assert decision.verdict == "equivalent" and decision.differs == (decision.p_adjusted <= alpha)
        elif decision.p_adjusted <= alpha:
            assert decision.verdict == ("better" if decision.effect > 0 else "worse")
            low, high = decision.decision_interval.low, decision.decision_interval.high
            assert (low >= 0.0) if decision.verdict == "better" else (high <= 0.0)
        else:
            assert decision.verdict == "undecided"
            # Fewer than 8 units may lie within the margin, if only they were not skewed.
            assert decision.reason in ("inconclusive", "too_few_for_equivalence")


MIRROR = {"better": "worse", "worse": "better", "equivalent": "equivalent", "undecided": "undecided"}


def assert_mirrored(one: Decision, other: Decision) -> None:
    assert other.verdict == MIRROR[one.verdict]
    assert other.p == pytest.approx(one.p, rel=1e-9)
    assert other.p_eq == pytest.approx(one.p_eq, rel=1e-9)
    back = other.decision_interval.negated()
    assert (one.decision_interval.low, one.decision_interval.high) == pytest.approx((back.low, back.high), rel=1e-9)


@pytest.mark.slow
@given(samples(min_size=3, max_size=24), st.sampled_from([0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_swapping_paired_arms_swaps_the_verdict_and_negates_the_interval(d: np.ndarray, share: float) -> None:
    margin = share * float(np.abs(d).max() or 1.0)
    one, other = (decide([paired_test(x, margin=margin)])[0] for x in (d, -d))
    assert_mirrored(one, other)


@given(spread_samples(min_size=3, max_size=9), spread_samples(min_size=3, max_size=9))
@settings(max_examples=40, deadline=None)
def test_swapping_unpaired_arms_swaps_the_verdict_and_negates_the_interval(a: np.ndarray, b: np.ndarray) -> None:
    margin = float(np.abs(np.concatenate((a, b))).max())
    one, other = decide([unpaired_test(a, b, margin=margin)])[0], decide([unpaired_test(b, a, margin=margin)])[0]
    # The 1e-9 tie tolerance is relative to the pooled values, which differ between +D and -D shifts by rounding only.
    assert other.verdict == MIRROR[one.verdict]
    assert other.p == pytest.approx(one.p, rel=1e-9)


@given(st.integers(3, 24), st.integers(0, 10**6), st.sampled_from([1e-3, 7.0, 1e9]), st.sampled_from([0.0, 3.0, -50.0]))
@settings(max_examples=40, deadline=None)
def test_row_order_common_offset_and_positive_scale_change_nothing(
    n: int, seed: int, scale: float, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(0.4, 1.0, n)
    order = rng.permutation(n)
    base = decide([paired_test(b - a, margin=0.5)])[0]
    d = (scale * b[order] + offset) - (scale * a[order] + offset)
    moved = decide([paired_test(d, margin=0.5 * scale)])[0]
    assert (moved.verdict, moved.method) == (base.verdict, base.method)
    assert moved.p == pytest.approx(base.p, rel=1e-6) and moved.p_eq == pytest.approx(base.p_eq, rel=1e-6)
    assert moved.decision_interval.low == pytest.approx(scale * base.decision_interval.low, rel=1e-6)


@given(samples(min_size=3, max_size=40))
@settings(max_examples=60, deadline=None)
def test_p_is_never_zero_and_never_below_its_named_floor(d: np.ndarray) -> None:
    test = paired_test(d)
    assert test.p >= test.evidence.floor > 0.0
    if test.evidence.method == "sign-flip" and d.size <= 20:
        assert test.evidence.floor == 2.0 / 2**d.size


def test_the_method_follows_from_units_alpha_and_comparisons_alone() -> None:
    assert [flips_suffice(n) for n in (6, 7)] == [False, True]
    assert [flips_suffice(n, comparisons=3) for n in (7, 8, 9)] == [False, False, True]
    assert [flips_suffice(n, alpha=0.01) for n in (9, 10)] == [False, True]
    # 20 units count a million patterns, 21 draw 100,000: the smallest p must stay well below alpha / m.
    assert [flips_suffice(n, comparisons=1000) for n in (20, 21, 10_000)] == [True, False, False]
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert paired_test(rng.standard_cauchy(6)).evidence.method == "paired t"
        assert paired_test(rng.standard_cauchy(7)).evidence.method == "sign-flip"


def test_small_samples_are_judged_by_t_and_larger_ones_by_sign_flips() -> None:
    rng = np.random.default_rng(1)
    small, large = rng.normal(1.0, 1.0, 5), rng.normal(1.0, 1.0, 9)
    assert paired_test(small).p == one_sample_t(small).p
    assert "normal" in paired_test(small).evidence.assumes
    assert paired_test(large).p == SignFlip(large).p


def test_fewer_than_three_units_are_too_few_and_still_count_in_the_family() -> None:
    few, strong = paired_test([5.0, 5.1]), paired_test(np.arange(1.0, 9.0))
    decisions = decide([few, strong])
    assert (decisions[0].verdict, decisions[0].reason, decisions[0].n) == ("undecided", "too_few", 2)
    assert decisions[1].p_adjusted == pytest.approx(2 * strong.p)
    assert decide([Decision("undecided", "seed_has_no_effect"), strong])[0].reason == "seed_has_no_effect"


def test_constant_differences_are_undecided_below_six_units() -> None:
    for n in (3, 5, 6):
        decision = decide([paired_test(np.full(n, 2.0))])[0]
        assert decision.p == 2.0 / 2**n
        assert decision.verdict == ("better" if n >= 6 else "undecided")
        assert decision.decision_interval.is_bounded == (n >= 6)


def test_all_zero_differences_are_equivalent_from_five_units_and_called_identical() -> None:
    for n in (4, 5, 9):
        decision = decide([paired_test(np.zeros(n), margin=0.1)])[0]
        assert decision.p == 1.0
        assert decision.verdict == ("equivalent" if n >= 5 else "undecided")
        assert decision.identical
    assert not decide([paired_test([0.0, 0.1, -0.1, 0.0, 0.2, 0.0, 0.0])])[0].identical


def test_without_a_margin_nothing_is_equivalent() -> None:
    decision = decide([paired_test(np.random.default_rng(0).normal(0.0, 1e-9, 12))])[0]
    assert decision.p_eq is None and decision.verdict != "equivalent"


def test_an_equivalent_pair_may_still_differ() -> None:
    d = 0.01 + 0.001 * np.random.default_rng(0).normal(size=12)
    decision = decide([paired_test(d, margin=0.1)])[0]
    assert decision.verdict == "equivalent" and decision.differs


def test_simultaneous_intervals_are_at_least_as_wide() -> None:
    rng = np.random.default_rng(2)
    family = [paired_test(rng.normal(m, 1.0, 12), comparisons=3) for m in (2.0, 1.0, 0.1)]
    plain, wide = decide(family), decide(family, simultaneous=True)
    for one, other in zip(plain, wide, strict=True):
        assert other.decision_interval.low <= one.decision_interval.low
        assert other.decision_interval.level == pytest.approx(1 - 0.05 / 3)
        assert one.verdict == other.verdict


@pytest.mark.parametrize("margin", [0.0, -1.0, np.inf, np.nan])
def test_a_margin_must_be_positive_and_finite(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        paired_test([1.0, 2.0, 3.0], margin=margin)


def test_an_arm_that_the_seed_does_not_move_is_noticed() -> None:
    assert seed_has_no_effect([0.5, 0.5, 0.5], [0.7, 0.7, 0.7])
    assert not seed_has_no_effect([0.5, 0.5, 0.5], [0.7, 0.7, 0.8])
    assert not seed_has_no_effect([0.5], [0.7])


def test_the_skew_check_speaks_from_eight_units_and_flags_a_disagreement() -> None:
    rng = np.random.default_rng(4)
    d = rng.normal(0.5, 1.0, 12)
    check = skew_check(d, SignFlip(d).interval(0.95))
    assert check.interval.low < d.mean() < check.interval.high
    assert check.sensitive == (check.interval.contains(0.0) != SignFlip(d).interval(0.95).contains(0.0))
    assert skew_check(d[:7], SignFlip(d).interval(0.95)) is None
    assert skew_check(np.ones(9), SignFlip(np.ones(9)).interval(0.95)) is None
    skewed = np.append(np.full(14, 0.05) + 0.01 * rng.normal(size=14), -1.5)
    flags = [skew_check(skewed + s, SignFlip(skewed + s).interval(0.95)).sensitive for s in np.linspace(0, 0.3, 31)]
    assert any(flags) and not all(flags)


def test_every_verdict_has_a_campaign_word() -> None:
    assert set(CAMPAIGN_WORDS) == set(MIRROR)


def test_zero_spread_in_every_design_falls_back_to_counting_units() -> None:
    cases: list[tuple[Callable[[], Test], int]] = [
        (lambda: stratified_paired_test([[1.0, 1.0], [2.0, 2.0, 2.0]]), 5),
        (lambda: stratified_test([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]]), 4),
        (lambda: crossed_test(np.full((4, 3), 0.5)), 3),
    ]
    for make, units in cases:
        assert make().p == pytest.approx(2.0 / 2**units)
        assert make().evidence.n == units
    assert stratified_paired_test([[1.0, 1.0], [2.0, 2.0, 2.0]]).evidence.effect == pytest.approx(1.5)


def test_false_verdicts_stay_within_alpha_over_a_family_of_three_metrics() -> None:
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(600):
        shared = rng.normal(size=(8, 1))
        d = shared + rng.normal(size=(8, 3))
        family = [paired_test(d[:, k], comparisons=3) for k in range(3)]
        wrong += any(x.verdict != "undecided" for x in decide(family))
    assert wrong / 600 <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / 600)


p_values = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.01, 0.025, 0.05, 0.05 / 3]), min_size=1, max_size=8)


@pytest.mark.slow
@given(p_values, st.sampled_from([0.01, 0.05, 0.1]))
@settings(max_examples=12, deadline=None)  # theirs takes a tenth of a second
def test_holm_is_statsmodels(p: list[float], alpha: float) -> None:
    ours = holm(p, alpha)
    rejected, adjusted, *_ = multipletests(p, alpha, method="holm")
    assert ours.adjusted == pytest.approx(adjusted, rel=1e-9, abs=1e-12)
    near = np.isclose(adjusted, alpha, rtol=1e-9)
    assert np.array_equal(np.array(ours.rejected)[~near], rejected[~near])


@given(p_values, st.sampled_from([0.01, 0.05, 0.1]))
def test_holms_levels_adjusted_p_and_rejections_say_the_same(p: list[float], alpha: float) -> None:
    ours = holm(p, alpha)
    for value, adjusted, level, rejected in zip(p, ours.adjusted, ours.levels, ours.rejected, strict=True):
        assert rejected == (value <= level) == (adjusted <= alpha)
        assert alpha / len(p) <= level <= alpha


def test_what_was_not_rejected_carries_the_level_of_the_first_failure() -> None:
    ours = holm([0.2, 0.001, 0.03, 0.04], 0.05)
    assert ours.rejected == (False, True, False, False)
    assert ours.levels == pytest.approx((0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3))


@given(p_values)
def test_benjamini_hochberg_is_scipys(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("bad", [[0.5, np.nan], [-0.1], [1.1], [[0.1]]])
def test_numbers_that_are_no_p_values_are_refused(bad: list) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm(bad)


def test_strict_counts_ties_in_full_at_every_number_of_units() -> None:
    """Five wins and three ties: the exact p is that of five fair coins."""
    d = [1.0] * 5 + [0.0] * 3
    half, full = paired_test(d), paired_test(d, strict=True)
    assert (half.p, half.evidence.p_exact, full.p) == (pytest.approx(9 / 256), 0.0625, 0.0625)
    decided, undecided = decide([half])[0], decide([full])[0]
    assert (decided.verdict, undecided.verdict) == ("better", "undecided")
    assert decided.decision_interval.low_open and decided.decision_interval.excludes(0.0)
    assert not undecided.decision_interval.low_open and undecided.decision_interval.contains(0.0)
    for n in range(3, 9):
        found = decide([paired_test(np.arange(1.0, n + 1.0), strict=True)])[0]
        assert found.p == pytest.approx(2 / 2**n)
        assert found.verdict == ("better" if n >= 6 else "undecided")


@given(st.integers(6, 12), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_strict_intervals_of_pairs_have_closed_ends(n: int, seed: int) -> None:
    d = np.round(np.random.default_rng(seed).normal(0.5, 1.0, n) * 2) / 2
    interval = paired_test(d, strict=True).evidence.interval(0.95)
    assert not interval.low_open and not interval.high_open


def test_strict_flips_signs_within_tasks_and_weighs_tasks_equally() -> None:
    rng = np.random.default_rng(3)
    for sizes in ((3, 3), (2, 5)):
        ds = [rng.normal(0.7, 1.0, size) for size in sizes]
        test = stratified_paired_test(ds, strict=True)
        flat, weights = np.concatenate(ds), np.concatenate([np.full(d.size, 0.5 / d.size) for d in ds])
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * flat.size)).reshape(flat.size, -1)
        for x in (0.0, 0.4):
            total = (weights * (flat - x)) @ signs
            observed = float(weights @ (flat - x))
            assert test.evidence.tails(x).greater == pytest.approx((total >= observed - 1e-12).mean())
        assert test.evidence.effect == pytest.approx(np.mean([d.mean() for d in ds]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda rng: stratified_paired_test([rng.normal(0, sd, 2) for sd in (1.0, 1.0, 10.0)]), 0.065),
        (
            lambda rng: crossed_test(rng.normal(size=(3, 1)) + rng.normal(size=(1, 20)) + rng.normal(size=(3, 20))),
            0.065,
        ),
        (lambda rng: crossed_test(rng.normal(size=(40, 1)) + rng.normal(size=(1, 2)) + rng.normal(size=(40, 2))), 0.02),
    ],
    ids=["3 x 2 strata", "3 x 20 crossed", "40 x 2 crossed"],
)
def test_few_strata_and_few_crossed_units_keep_to_alpha(
    make: Callable[[np.random.Generator], Test], most: float
) -> None:
    rng, replicates = np.random.default_rng(12), 3000
    wrong = sum(make(rng).p <= 0.05 for _ in range(replicates)) / replicates
    assert wrong <= most + 2 * math.sqrt(most * (1 - most) / replicates)


def test_two_crossed_seeds_are_tested_with_one_degree_of_freedom() -> None:
    d = np.random.default_rng(1).normal(3.0, 0.1, (20, 2))
    test = crossed_test(d)
    decision = decide([test])[0]
    assert (test.evidence.df, decision.verdict) == (1.0, "better")
    assert decide([crossed_test(d[:2])])[0].reason == "too_few"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda d, rng: stratified_paired_test(d((3, 8)), MARGIN), 0.08),
        (lambda d, rng: stratified_paired_test(d((5, 4)), MARGIN), 0.08),
        (lambda d, rng: unpaired_test(rng.normal(0, 0.05, 15), d((15,)), margin=MARGIN), 0.09),
        (lambda d, rng: crossed_test(d((8, 1)) + d((1, 8)) - MARGIN + rng.normal(size=(8, 8)), MARGIN), 0.09),
    ],
    ids=["3 x 8 strata", "5 x 4 strata", "15 + 15 unpaired", "8 x 8 crossed"],
)
def test_skewed_values_at_the_margin_are_seldom_called_equivalent_in_any_design(
    make: Callable[[Callable[[tuple[int, ...]], np.ndarray], np.random.Generator], Test], most: float
) -> None:
    rng, replicates = np.random.default_rng(8), 250
    tests = [make(lambda shape: MARGIN + rng.exponential(size=shape) - 1.0, rng) for _ in range(replicates)]
    false = sum(test.p_eq is not None and test.p_eq <= 0.05 for test in tests) / replicates
    assert false <= most + 2 * math.sqrt(most * (1 - most) / replicates)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "most"), [(8, 0.09), (15, 0.08)])  # 10: tests/calibration
def test_skewed_differences_at_the_margin_are_seldom_called_equivalent(n: int, most: float) -> None:
    """The true difference is the margin itself, so 'equivalent' is an error."""
    rng, replicates, margin = np.random.default_rng(n), 1000, 3.0
    false = 0
    for _ in range(replicates):
        p_eq = paired_test(margin + rng.exponential(size=n) - 1.0, margin=margin).p_eq
        assert p_eq is not None
        false += p_eq <= 0.05
    assert false / replicates <= most + 2 * math.sqrt(most * (1 - most) / replicates)


MOSTLY_ZERO = [[0.0] * 6, [-10.4] + [0.0] * 5, [-8.5, -0.1] + [0.0] * 4, *[[0.0] * 6 for _ in range(3)]]
"""Six tasks with six seeds each, of which only two ever differ."""


@pytest.mark.parametrize(
    "make", [stratified_paired_test, lambda d, margin: paired_test(np.concatenate(d), margin=margin)]
)
def test_units_that_are_mostly_equal_are_equivalent_within_a_margin_that_none_of_them_comes_near(
    make: Callable[[list[list[float]], float], Test],
) -> None:
    test = make(MOSTLY_ZERO, 25.0)
    assert test.p_eq is not None and test.p_eq <= 0.05 / 8
    interval = test.equivalence_interval(0.9)
    assert interval is not None and -10.4 <= interval.low < interval.high < 10.4
    # Inside the range of the units the bootstrap votes as before: a few large losses are skew.
    inside = make(MOSTLY_ZERO, 2.0)
    assert inside.p_eq is not None and inside.p_eq > 0.05 >= inside.evidence.p_equivalent(2.0)


def test_few_units_say_nothing_about_a_margin_beyond_all_of_them_when_most_are_equal() -> None:
    assert (paired_test([0.0] * 7 + [-1.0], margin=2.0).p_eq or 0.0) > 0.05
    assert (paired_test([0.0] * 13 + [-1.0], margin=2.0).p_eq or 1.0) <= 0.05


@pytest.mark.slow
def test_seldom_large_differences_at_the_margin_are_seldom_called_equivalent() -> None:
    rng, replicates, most, shape = np.random.default_rng(9), 200, 0.08, (4, 4)
    false = 0
    for _ in range(replicates):
        d = MARGIN + np.where(rng.random(shape) < 0.3, rng.exponential(size=shape) / 0.3, 0.0) - 1.0
        p_eq = stratified_paired_test(list(d), MARGIN).p_eq
        false += p_eq is not None and p_eq <= 0.05
    assert false / replicates <= most + 2 * math.sqrt(most * (1 - most) / replicates)


@pytest.mark.parametrize("unpaired", [False, True])
def test_equivalence_of_skewed_data_does_not_depend_on_row_order_or_on_the_names_of_arms(unpaired: bool) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=12), rng.exponential(size=12)
    shuffled = rng.permutation(12)
    if unpaired:
        there, back = unpaired_test(a, b, margin=1.5), unpaired_test(b, a, margin=1.5)
        again = unpaired_test(a[shuffled], b, margin=1.5)
    else:
        there, back = paired_test(b - a, margin=1.5), paired_test(a - b, margin=1.5)
        again = paired_test((b - a)[shuffled], margin=1.5)
    assert there.p_eq == back.p_eq == again.p_eq
    interval, mirrored = there.equivalence_interval(0.9), back.equivalence_interval(0.9)
    assert interval is not None and mirrored is not None
    assert interval == again.equivalence_interval(0.9)
    assert (interval.low, interval.high) == pytest.approx((-mirrored.high, -mirrored.low))


@pytest.mark.parametrize("n", [7, 8])
def test_from_8_units_on_equivalence_needs_the_bootstrap_too(n: int) -> None:
    d = np.array([*np.linspace(-0.1, 0.1, n - 1), 3.0])
    test = paired_test(d, margin=2.0)
    assert test.p_eq is not None
    assert test.p_eq > test.evidence.p_equivalent(2.0), "few units need a wider interval instead"
    assert test.upper is not None and isinstance(test.upper.evidence, Guarded) == (n == 8)
