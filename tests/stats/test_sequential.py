from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.stats.sequential import SequentialRule, betting_log_e, confidence_sequence, symmetric_log_e
from stats.strategies import samples


def by_definition(d: np.ndarray) -> tuple[float, float]:
    up, down = [], []
    for k in (0.25, 0.5, 1.0, 2.0, 4.0):
        plus = minus = 1.0
        for i in range(d.size):
            rms = math.sqrt(np.mean(d[: i + 1] ** 2))
            y = k * d[i] / rms if rms else 0.0
            plus *= 1.0 + math.tanh(y)
            minus *= 1.0 + math.tanh(-y)
        up.append(plus)
        down.append(minus)
    return float(np.mean(up)), float(np.mean(down))


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=15))
@settings(max_examples=60, deadline=None)
def test_the_paths_follow_the_definition(values: list[int]) -> None:
    d = np.array(values) / 4.0
    up, down = symmetric_log_e(d)
    plus, minus = by_definition(d)
    assert (math.exp(up[-1]), math.exp(down[-1])) == pytest.approx((plus, minus), rel=1e-9)


@given(samples(min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_path_is_the_same_alone_and_among_replicates(d: np.ndarray) -> None:
    up, down = symmetric_log_e(d)
    many_up, _ = symmetric_log_e(np.stack([d, -d]))
    assert many_up[0] == pytest.approx(up) and many_up[1] == pytest.approx(down)


def test_each_pair_at_most_doubles_the_score() -> None:
    up, down = symmetric_log_e(np.full(12, 3.0))
    assert np.all(np.diff(up) <= math.log(2.0) + 1e-12) and up[-1] > 6.0
    assert down[-1] < 0.0


def test_the_expected_score_is_one_under_every_sign_pattern_of_any_magnitudes() -> None:
    size = np.array([0.1, 5.0, 1.0, 1.0, 0.0, 2.5])
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1).T
    up, down = symmetric_log_e(signs * size)
    assert np.exp(up[:, -1]).mean() == pytest.approx(1.0, rel=1e-12)
    assert np.exp(down[:, -1]).mean() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("law", ["normal", "t2", "quarters"])
def test_looking_after_every_pair_decides_at_most_alpha_of_null_experiments(law: str) -> None:
    rng = np.random.default_rng(0)
    draws = {
        "normal": rng.normal(size=(2000, 100)),
        "t2": rng.standard_t(2, size=(2000, 100)),
        "quarters": (rng.integers(0, 5, (2000, 100)) - rng.integers(0, 5, (2000, 100))) / 4.0,
    }[law]
    _, words = SequentialRule(100).stops(draws)
    assert (words > 0).mean() <= 0.05


def test_a_strong_effect_stops_early() -> None:
    stops, words = SequentialRule(100).stops(np.random.default_rng(1).normal(1.5, 1.0, (2000, 100)))
    assert np.median(stops) <= 9 and (words == 1).mean() > 0.99


def test_the_rule_stops_where_the_bars_are_reached() -> None:
    d = np.random.default_rng(2).normal(1.2, 1.0, 40)
    rule = SequentialRule(40)
    stop = int(rule.stops(d[None, :])[0][0])
    up = symmetric_log_e(d)[0]
    assert up[stop - 1] >= math.log(40.0) > up[: stop - 1].max()
    assert rule.look(d[: stop - 1]) == "continue"
    assert rule.look(d[:stop]) == "better"
    assert rule.look(-d[:stop]) == "worse"
    assert SequentialRule(40, comparisons=5).stops(d[None, :])[0][0] > stop


def test_equivalence_needs_thirty_pairs_and_both_margins_cleared_at_once() -> None:
    d = np.random.default_rng(3).normal(0.0, 0.2, 60)
    rule = SequentialRule(60, margin=0.5)
    stop = int(rule.stops(d[None, :])[0][0])
    assert stop == 30 and rule.look(d[:29]) == "continue" and rule.look(d[:30]) == "equivalent"
    late = np.concatenate((d[:20], np.full(15, 2.0)))  # both margins were cleared once, one is not any more
    above, below = symmetric_log_e(late + 0.5)[0], symmetric_log_e(late - 0.5)[1]
    assert min(above.max(), below.max()) >= math.log(20.0) > below[29:].max()
    assert SequentialRule(40, margin=0.5).look(late) != "equivalent"


def test_bets_on_a_declared_range_need_no_thirty_pairs_for_equivalence() -> None:
    d = np.random.default_rng(3).normal(0.0, 0.05, 60)
    rule = SequentialRule(60, margin=0.5, log_e=betting_log_e(-1.0, 1.0))
    stop = int(rule.stops(d[None, :])[0][0])
    above, below = rule.log_e(d, -0.5)[0], rule.log_e(d, 0.5)[1]
    assert stop < 30
    assert min(above[:stop].max(), below[:stop].max()) >= math.log(20.0)


@pytest.mark.slow
@pytest.mark.parametrize("skewed", ["exponential", "lognormal"])
def test_skewed_differences_at_the_margin_are_seldom_called_equivalent(skewed: str) -> None:
    rng = np.random.default_rng(11)
    x = rng.exponential(size=(2000, 100)) if skewed == "exponential" else rng.lognormal(sigma=0.5, size=(2000, 100))
    mean = 1.0 if skewed == "exponential" else math.exp(0.125)
    for sign in (1.0, -1.0):
        d = sign * (x - mean) / x.std() + 0.8  # true difference at the margin
        words = SequentialRule(100, margin=0.8).stops(d)[1]
        assert (words == 3).mean() <= 0.066 + 3 * math.sqrt(0.066 * 0.934 / 2000)


def test_the_planned_end_and_hopelessness_are_undecided() -> None:
    d = np.random.default_rng(4).normal(0.0, 1.0, 30)
    assert SequentialRule(30).look(d) == "undecided"
    # Two pairs are left and the score is near 1: doubling twice cannot reach 40.
    assert SequentialRule(30).look(d[:28]) == "undecided"
    assert SequentialRule(30).look(d[:5]) == "continue"


def test_the_chance_to_decide_is_small_for_noise_and_large_for_an_effect() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0.0, 1.0, 30)
    assert SequentialRule(40).chance_to_decide(noise - noise.mean()) < 0.2
    assert SequentialRule(60).chance_to_decide(np.linspace(0.2, 2.0, 10)) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.8, -1.5])
def test_the_confidence_sequence_excludes_zero_exactly_when_the_test_has_decided(shift: float) -> None:
    rng = np.random.default_rng(6)
    rule = SequentialRule(100)
    for _ in range(6):
        d = rng.normal(shift, 1.0, 25)
        for n in (3, 8, 15, 25):
            interval = confidence_sequence(d[:n])
            assert interval.excludes(0.0) == (rule.look(d[:n]) in ("better", "worse"))


@pytest.mark.slow
def test_the_confidence_sequence_is_unbounded_at_first_then_covers_and_shrinks() -> None:
    rng = np.random.default_rng(7)
    d = rng.normal(2.0, 1.0, 60)
    assert not confidence_sequence(d[:4]).is_bounded
    wide, narrow = confidence_sequence(d[:15]), confidence_sequence(d)
    assert narrow.high - narrow.low < wide.high - wide.low
    covered = [confidence_sequence(rng.normal(2.0, 1.0, 20)).contains(2.0) for _ in range(60)]
    assert np.mean(covered) >= 0.9


def test_bets_on_bounded_values_keep_alpha_even_when_they_are_skewed() -> None:
    rng = np.random.default_rng(8)
    values = np.where(rng.random((2000, 100)) < 0.1, 0.9, -0.1)  # mean 0, nine losses for each win
    _, words = SequentialRule(100, log_e=betting_log_e(-0.1, 0.9)).stops(values)
    assert (words > 0).mean() <= 0.05
    _, symmetric = SequentialRule(100).stops(values)
    assert (symmetric > 0).mean() > 0.2  # the symmetric process is not meant for this


def test_bets_find_a_difference_of_binary_outcomes() -> None:
    rng = np.random.default_rng(9)
    d = (rng.random((300, 250)) < 0.6).astype(float) - (rng.random((300, 250)) < 0.4)
    stops, words = SequentialRule(250, log_e=betting_log_e(-1.0, 1.0)).stops(d)
    assert (words == 1).mean() > 0.85 and np.median(stops) < 130
    interval = confidence_sequence(d[0], log_e=betting_log_e(-1.0, 1.0))
    assert -1.0 <= interval.low < d[0].mean() < interval.high <= 1.0


def test_rules_and_values_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="7 planned"):
        SequentialRule(6)
    with pytest.raises(ValueError, match="margin"):
        SequentialRule(10, margin=0.0)
    with pytest.raises(ValueError, match="range"):
        betting_log_e(0.0, 1.0)(np.array([0.5, 1.2]), 0.5)
    with pytest.raises(ValueError, match="low < high"):
        betting_log_e(1.0, 1.0)
