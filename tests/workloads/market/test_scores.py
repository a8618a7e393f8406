"""Scores of forecasts and equity curves: known values, and properties that hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.market import metrics
from bakeoff.workloads.market.metrics import Forecast

probabilities = st.floats(0, 1)
curves = st.lists(st.floats(1, 1e6), min_size=2, max_size=40)


def said(probability: float, outcome: bool, market: str = "market-0", price: float = 0.5) -> Forecast:
    return Forecast(market, 0, probability, price, outcome)


@given(probabilities, probabilities)
def test_no_forecast_has_a_better_expected_brier_or_log_score_than_the_truth(truth: float, other: float) -> None:
    def expected(score: object, stated: float) -> float:
        return truth * score(stated, True) + (1 - truth) * score(stated, False)  # type: ignore[operator]

    assert expected(metrics.brier, truth) <= expected(metrics.brier, other) + 1e-12
    held = min(max(truth, metrics.LEAST), 1 - metrics.LEAST)
    assert expected(metrics.log_score, held) >= expected(metrics.log_score, other) - 1e-9


def test_a_sure_mistake_costs_much_and_not_infinitely_much() -> None:
    assert metrics.log_score(0.0, True) == pytest.approx(math.log(metrics.LEAST))


def test_a_market_weighs_the_same_however_often_one_spoke_about_it() -> None:
    often = [said(0.9, True, "a")] * 9 + [said(0.2, True, "b")]
    assert metrics.mean_by_market(often, [each.probability for each in often]) == pytest.approx(0.55)
    assert metrics.mean_by_market([], []) is None


def test_forecasts_that_come_true_as_often_as_they_say_have_no_calibration_error() -> None:
    forecasts = [said(0.75, True)] * 3 + [said(0.75, False)] + [said(0.25, True)] + [said(0.25, False)] * 3
    assert metrics.calibration_error(metrics.calibration(forecasts)) == pytest.approx(0.0)
    assert metrics.calibration_error(metrics.calibration([said(1.0, False)])) == 1.0
    assert metrics.calibration_error([]) is None


@given(st.lists(st.tuples(probabilities, st.booleans()), max_size=30))
def test_calibration_bins_hold_every_forecast_once(given_: list[tuple[float, bool]]) -> None:
    bins = metrics.calibration([said(probability, outcome) for probability, outcome in given_])
    assert sum(each.count for each in bins) == len(given_)
    assert all(each.low - 1e-9 <= each.forecast <= each.high + 1e-9 for each in bins)


def test_drawdown_is_the_deepest_fall_from_the_highest_point_before() -> None:
    assert metrics.drawdowns([100, 120, 90, 130, 117]) == pytest.approx([0, 0, 0.25, 0, 0.1])


@given(curves)
def test_drawdowns_lie_between_nothing_and_everything(equity: list[float]) -> None:
    assert all(0 <= fall < 1 for fall in metrics.drawdowns(equity))


@given(curves, st.floats(0.1, 10))
def test_ratios_do_not_depend_on_the_currency(equity: list[float], rate: float) -> None:
    ours, theirs = metrics.tick_returns(equity), metrics.tick_returns([rate * value for value in equity])
    assert metrics.sharpe(ours) == pytest.approx(metrics.sharpe(theirs), rel=1e-6, abs=1e-6)


def test_sharpe_is_mean_over_deviation_per_tick_and_sortino_looks_at_losses_only() -> None:
    returns = [0.02, -0.01, 0.02, -0.01]
    assert metrics.sharpe(returns) == pytest.approx(0.005 / 0.015)
    assert metrics.sortino(returns) == pytest.approx(0.005 / math.sqrt(0.0001 / 2))


def test_an_agent_that_did_nothing_has_ratios_of_zero_and_one_that_only_gained_has_no_sortino() -> None:
    assert metrics.sharpe([0.0, 0.0]) == 0.0 and metrics.sortino([0.0, 0.0]) == 0.0
    assert metrics.sortino([0.01, 0.02]) is None
