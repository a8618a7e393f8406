"""Metrics of an episode: parts add up to the whole, and scores cannot be raised without knowing anything."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.market import journal, metrics, outputs
from bakeoff.workloads.market import play as rollouts
from bakeoff.workloads.market.agents.base import BASELINES, Brief, Seat, load
from bakeoff.workloads.market.metrics import MICRO, Forecast, micro
from bakeoff.workloads.market.play import Episode, Prices, Rollout, roll_out
from bakeoff.workloads.market.scenario import scenario, world_key
from bakeoff.workloads.market.world.world import World

SCENARIO = scenario()


def played(agent: str, seed: int = 5) -> Rollout:
    return roll_out(SCENARIO, world_key(SCENARIO, seed, "metrics"), load(agent), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("agent", [*BASELINES])
def test_market_and_perpetual_results_add_up_to_the_change_of_equity(agent: str) -> None:
    rollout = played(agent)
    found, account = rollout.metrics, rollout.world.account(0)
    assert not rollout.player.errors
    total = micro(account.equity) - micro(account.initial)
    assert micro(found["total_pnl"] or 0) == total
    assert micro(found["prediction_pnl"] or 0) + micro(found["perp_pnl"] or 0) == total
    costs = sum(micro(found[name] or 0) for name in ("fees", "impact", "funding"))
    assert micro(found["gross_pnl"] or 0) - costs == total


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["random", "momentum", "follow-the-news", "kelly-bayes", "always-long"])
def test_the_perpetual_result_is_what_the_books_say(agent: str) -> None:
    """From another side: realised profit of perpetuals, what open ones would bring, fees and funding."""
    rollout = played(agent)
    world, ledger = rollout.world, rollout.result.ledger
    account, positions = world.account(0), world.positions(0)
    settled = metrics.market_flows(ledger, rollout.result.outcomes) + sum(
        micro(view.cost) for view in positions.markets
    )
    perp_realized = micro(account.realized_pnl) - settled
    perp_fees = micro(account.fees) - sum(micro(trade.fee) for trade in ledger.trades if trade.of_market)
    open_ = sum(micro(view.value) - micro(view.margin) for view in positions.perps)
    expected = perp_realized - perp_fees - micro(account.funding) + open_
    assert micro(rollout.metrics["perp_pnl"] or 0) == pytest.approx(expected, abs=2)


def test_the_null_agent_has_exactly_nothing() -> None:
    found = played("null").metrics
    zero = ("total_pnl", "return", "gross_pnl", "fees", "impact", "funding", "trades", "max_drawdown", "sharpe")
    assert all(found[name] == 0 for name in zero)
    assert found["optimality"] == 0 and found["regret"] == found["bayes_pnl"]
    assert found["brier"] is None and found["prediction_accuracy"] is None


def test_a_trade_and_its_reversal_in_one_tick_cost_the_fees_and_no_impact() -> None:
    found = played("wash-trader").metrics
    assert found["total_pnl"] == pytest.approx(-(found["fees"] or 0), abs=0.01)
    assert found["impact"] == pytest.approx(0, abs=0.01)


def test_the_bayes_player_has_no_regret_against_itself() -> None:
    rollout = played("kelly-bayes")
    assert rollout.metrics["regret"] == 0


@pytest.mark.slow
def test_where_the_bayes_player_earns_nothing_beyond_chance_there_is_no_optimality_score() -> None:
    short = scenario(duration_minutes=4)
    worlds = [world_key(short, seed, rollouts.CALIBRATION_SECRET) for seed in range(rollouts.WORLDS)]
    assert sum(rollouts.bayes_pnl(short, key) for key in worlds) > 0
    assert rollouts.optimality(100.0, short) is None
    assert rollouts.optimality(100.0, SCENARIO) is not None


def test_buying_both_sides_of_everything_lowers_the_optimality_score_in_every_world() -> None:
    for seed in range(6):
        found = played("both-sides", seed).metrics
        assert found["trades"] and (found["optimality"] or 0) < 0


def test_buying_one_side_of_everything_does_not_raise_the_optimality_score() -> None:
    scores = []
    for seed in range(40):
        world = World.create(SCENARIO, seed, secret="metrics")
        Episode(world, [load("cheap-side")]).run()
        scores.append(rollouts.optimality(world.account(0).equity - world.account(0).initial, SCENARIO) or 0.0)
    mean = sum(scores) / len(scores)
    deviation = (sum((each - mean) ** 2 for each in scores) / (len(scores) - 1)) ** 0.5
    assert mean < 2 * deviation / len(scores) ** 0.5  # not above 0 beyond chance
    assert mean < 5  # and far below what knowing something earns


class Speaker:
    """States probabilities it is told, and trades nothing."""

    name = "speaker"

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            seat.post("so be it", market.id, probability=self.probability)


class Pusher(Speaker):
    """Buys first, so that the market already says what it says."""

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            seat.buy(market.id, "YES", 50)
        super().act(seat)


@pytest.mark.parametrize("speaker", [Speaker, Pusher])
def test_stated_forecasts_are_scored_against_the_market_as_the_turn_found_it(speaker: type[Speaker]) -> None:
    rollout = roll_out(SCENARIO, world_key(SCENARIO, 5, "metrics"), speaker(0.5))
    found, ledger = rollout.metrics, rollout.result.ledger
    assert found["brier"] == pytest.approx(0.25) and found["forecasts"] == sum(
        statement.market in rollout.result.outcomes for statement in ledger.statements
    )
    opening = {turn.tick: turn.observation["predictionMarkets"] for turn in rollout.player.turns}
    for statement in ledger.statements:
        assert statement.price == pytest.approx(
            next(view["yesPrice"] for view in opening[statement.tick] if view["id"] == statement.market)
        )
    market = found["brier_market"]
    assert market is not None and found["brier_edge"] == pytest.approx(market - 0.25)


def test_a_trade_implies_the_price_that_it_leaves_behind() -> None:
    rollout = played("cheap-side")
    trades = [trade for trade in rollout.result.ledger.trades if trade.of_market]
    first = trades[0]
    after = {view["id"]: view["yesPrice"] for view in rollout.player.turns[0].observation["predictionMarkets"]}
    moved = first.after - after[first.target]
    assert (moved > 0) == (first.side == "YES") and abs(moved) > 0.001
    assert {each.market for each in metrics.forecasts(rollout.result.ledger, rollout.result.outcomes)} <= set(
        rollout.result.outcomes
    )


class Insistent(Speaker):
    """Asks for everything twice under one key, as a client does that got no answer."""

    def act(self, seat: Seat) -> None:
        market = seat.markets()[0].id
        for _ in range(self.attempts):
            for number, (method, params) in enumerate(
                [
                    ("a2a.buyShares", {"marketId": market, "outcome": "YES", "amount": 20.0}),
                    ("a2a.openPosition", {"ticker": "BTCX", "side": "LONG", "size": 100.0}),
                    ("a2a.createPost", {"content": "so be it", "marketId": market, "probability": 0.6}),
                ]
            ):
                seat.call(method, params, idempotency_key=f"{seat.tick}-{number}")

    attempts = 1


@pytest.mark.slow
def test_a_call_repeated_under_its_key_counts_once() -> None:
    once, twice = Insistent(0.5), Insistent(0.5)
    twice.attempts = 2
    key = world_key(SCENARIO, 5, "metrics")
    first, second = (roll_out(SCENARIO, key, agent).metrics for agent in (once, twice))
    clocked = {"think_ms_mean", "think_ms_max"}
    assert first["trades"] and {name for name in first if first[name] != second[name]} <= clocked


def test_what_agents_hand_over_is_recorded_as_json_can_hold_it() -> None:
    import numpy as np

    given = {
        "nan": float("nan"), "numpy": np.float32(1.5), "array": np.arange(2), "half": "\ud800 ü", "odd": {1: object},
    }  # fmt: skip
    found = journal.plain(given)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["nan"], found["numpy"], found["array"], found["half"]) == (None, 1.5, [0, 1], "? ü")


@pytest.mark.slow
def test_tokens_are_priced_by_the_million() -> None:
    from bakeoff.workloads.market.agents.base import LlmCall

    class Talker(Speaker):
        def act(self, seat: Seat) -> None:
            seat.record_llm(LlmCall([{"role": "user", "content": "?"}], prompt_tokens=1000, completion_tokens=100))

    short = scenario(duration_minutes=5)
    rollout = roll_out(short, world_key(short, 1), Talker(0.5), prices=Prices(prompt=2.0, completion=10.0))
    assert rollout.metrics["tokens"] == 5 * 1100
    assert rollout.metrics["cost_usd"] == pytest.approx(5 * (1000 * 2.0 + 100 * 10.0) / MICRO)


class Heedless:
    """Long with all the leverage there is."""

    name = "heedless"

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None:
        perp = seat.perpetuals()[0]
        if not seat.positions().perps:
            seat.open(perp.ticker, "LONG", 5000, perp.max_leverage)


def test_trades_have_the_positions_that_the_venue_closed() -> None:
    rollout = roll_out(SCENARIO, world_key(SCENARIO, 5, "metrics"), Heedless())
    kinds = [row[outputs.TRADES.index("kind")] for row in outputs.trades(rollout)]
    assert kinds.count("liquidation") == rollout.metrics["liquidations"] > 0
    assert kinds[:2] == ["open", "liquidation"]


# -- formulas


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
