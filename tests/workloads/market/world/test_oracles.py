"""Trades against plain implementations of their rules: many digits for the market maker, numerical integration for perpetuals."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.rules import LIQUIDITY
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World
from workloads.market.world.accounts import MOVES, Move, money, outstanding_is_held

SCENARIO = Scenario(duration_minutes=60, markets=2, perpetuals=2, agents=4)


def cost(world: World, yes: int, no: int) -> Decimal:
    """C(q) of the first market in dollars, up to a constant, for so many micro-shares outstanding."""
    prices = world.state.prices[0, 0]
    b, offset = Decimal(float(prices[at.B])), Decimal(float(prices[at.OFFSET]))
    return b * ((offset + Decimal(yes) / at.MICRO / b).exp() + (Decimal(no) / at.MICRO / b).exp()).ln()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    orders=st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(1.0, 2500.0)), min_size=1, max_size=8),
)
def test_a_market_takes_and_pays_what_fifty_digits_say_rounded_against_the_trader(
    seed: int, orders: list[tuple[bool, bool, float]]
) -> None:
    world = World.create(SCENARIO, seed)
    market, slot = world.markets()[0].id, world.state.markets[0, 0]
    with localcontext() as context:
        context.prec = 50
        for selling, yes, amount in orders:
            side, before = "YES" if yes else "NO", cost(world, int(slot[at.Q_YES]), int(slot[at.Q_NO]))
            try:
                fill = (world.sell if selling else world.buy)(0, market, side, round(amount, 6))
            except Rejected:
                continue
            paid = Decimal(round((fill.amount + fill.fee if selling else fill.amount - fill.fee) * at.MICRO))
            exact = (cost(world, int(slot[at.Q_YES]), int(slot[at.Q_NO])) - before) * at.MICRO
            assert 0 <= (-exact - paid if selling else paid - exact) <= 2


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    ticks=st.integers(0, 12),
    orders=st.lists(st.tuples(st.booleans(), st.floats(10.0, 30_000.0)), min_size=1, max_size=6),
)
def test_a_perpetual_order_costs_the_integral_of_the_mark(
    seed: int, ticks: int, orders: list[tuple[bool, float]]
) -> None:
    world = World.create(SCENARIO, seed)
    for _ in range(ticks):
        world.advance()
    rules, asset = world.rules, world.state.indices[0, 0]
    ticker, regime = world.perpetuals()[0].ticker, int(world.state.assets[0, 0, at.REGIME])
    depth = rules.depth * rules.regime[regime, LIQUIDITY]
    for long, size in orders:
        start = float(asset[at.PUSH])
        try:
            fill = world.open(0, ticker, "LONG" if long else "SHORT", round(size, 2), 3.0)
        except Rejected:
            continue
        push = np.linspace(start, float(asset[at.PUSH]), 20_001)
        mark = asset[at.PRICE] * (1 + rules.linear * push + rules.root * np.sign(push) * np.sqrt(np.abs(push)))
        assert abs(push[-1] - push[0]) == pytest.approx(fill.shares * float(asset[at.PRICE]) / depth, rel=1e-6)
        assert fill.price == pytest.approx(float(np.trapezoid(mark, dx=1 / 20_000)), rel=1e-6)


def test_an_order_against_a_position_that_can_only_be_closed_tells_what_was_closed() -> None:
    """The rest, which there is no margin for, is left out; what happened is never told as a refusal."""
    world = World.create(SCENARIO, 1)
    ticker = world.perpetuals()[0].ticker
    world.open(0, ticker, "LONG", 5000.0, 5.0)
    fill = world.open(0, ticker, "SHORT", 90_000.0, 1.0)
    assert (fill.status, fill.side, fill.amount) == ("filled", "LONG", pytest.approx(5000.0, abs=1e-3))
    assert world.positions(0).perps == ()


def test_a_seat_finds_all_its_trades_and_liquidations_long_after_the_tape_has_forgotten_them() -> None:
    world = World.create(Scenario(duration_minutes=400, markets=2, perpetuals=3, agents=8, regime="crash"), 3)
    made: list[tuple[str, str]] = []
    while not world.done:
        for perp in world.perpetuals():
            try:
                world.open(0, perp.ticker, "LONG", 300.0, world.rules.max_leverage)
                made.append(("open", perp.ticker))
            except Rejected:
                pass
        world.advance()
    trades = world.own_trades(0, 10_000)
    liquidated = [trade for trade in trades if trade.kind == "liquidation"]
    assert [(t.kind, t.target) for t in reversed(trades) if t.kind != "liquidation"] == made and len(made) > 100
    assert len(liquidated) == world.account(0).liquidations > 0
    assert [trade.tick for trade in trades] == sorted((trade.tick for trade in trades), reverse=True)
    assert world.own_trades(0, 2) == trades[:2]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), turns=st.lists(st.lists(st.tuples(st.integers(0, 2), MOVES), max_size=9), max_size=8))
def test_whatever_three_seats_do_to_each_other_everything_adds_up(
    seed: int, turns: list[list[tuple[int, Move]]]
) -> None:
    world = World.create(SCENARIO, seed, seats=3)
    for moves in turns:
        for seat, move in moves:
            move.make(world, seat)
        world.advance()
        assert money(world.state)[0] == 7 * at.STAKE
        assert outstanding_is_held(world.state)
        assert (world.state.cash[0, :7] >= 0).all() and (world.state.positions[0, :, :, at.MARGIN] >= 0).all()


@pytest.mark.parametrize(
    ("markets", "perpetuals", "agents", "ticks"),
    [(0, 1, 0, 1), (1, 0, 0, 1), (3, 0, 8, 40), (0, 2, 20, 40), (64, 32, 256, 25), (8, 5, 9, 60)],
)
def test_worlds_of_any_shape_add_up_and_are_the_same_alone(
    markets: int, perpetuals: int, agents: int, ticks: int
) -> None:
    """66 worlds are two groups of those that are drawn side by side; 9 and more traders wake in several groups."""
    count = 66 if agents < 100 else 3
    scenario = Scenario(duration_minutes=ticks, markets=markets, perpetuals=perpetuals, agents=agents)
    batch, alone = MarketBatch(scenario, range(count)), MarketBatch(scenario, [count - 1])
    draws = np.random.default_rng(1)
    while not batch.done:
        actions = draws.integers(-1, 2, (count, batch.actions))
        seen, rewards, _ = batch.step(actions)
        ours, reward, _ = alone.step(actions[-1:])
        assert (ours[0] == seen[-1]).all() and reward[0] == rewards[-1]
        assert (money(batch.state) == (1 + agents) * at.STAKE).all()
    assert (alone.state.ints[0] == batch.state.ints[-1]).all()
    assert outstanding_is_held(batch.state) and (batch.equity >= 0).all() and np.isfinite(seen).all()


def test_a_perpetual_whose_index_has_all_but_vanished_is_traded_only_in_units_that_can_be_counted() -> None:
    world = World.create(SCENARIO, 2)
    ticker = world.perpetuals()[0].ticker
    world.state.indices[0, 0, at.PRICE] = 1e-4
    with pytest.raises(Rejected) as caught:
        world.open(0, ticker, "LONG", 20_000.0, 4.0)
    assert caught.value.code == "too_large"
    world.open(0, ticker, "SHORT", 10.0, 1.0)
    world.close(0, ticker)
    assert money(world.state)[0] == 5 * at.STAKE and outstanding_is_held(world.state)
