"""Money and shares are neither made nor lost, nobody owes anything, and no trade is worth more than it costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.scenario import REGIMES, TIERS, Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World
from workloads.market.world.accounts import MOVES, Move, money, outstanding_is_held

SCENARIO = Scenario(duration_minutes=60, markets=4, perpetuals=3, agents=8)
TURNS = st.lists(st.lists(MOVES, max_size=4), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), turns=TURNS)
def test_whatever_a_seat_does_money_and_shares_add_up_and_nobody_is_in_debt(seed: int, turns: list[list[Move]]) -> None:
    world = World.create(SCENARIO, seed)
    whole = 9 * at.STAKE
    for moves in turns:
        for move in moves:
            move.make(world)
            assert money(world.state)[0] == whole
        world.advance()
        assert money(world.state)[0] == whole
        assert outstanding_is_held(world.state)
        assert (world.state.cash[0, :9] >= 0).all()
        assert (world.state.positions[0, :, :, at.MARGIN] >= 0).all()
        assert world.state.cash[0, 9 + at.INSURANCE] >= 0
        account = world.account(0)
        assert account.equity >= 0 and account.cash >= 0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), ticks=st.integers(0, 20), moves=st.lists(MOVES, min_size=1, max_size=10))
def test_no_trade_raises_the_equity_of_the_one_who_makes_it(seed: int, ticks: int, moves: list[Move]) -> None:
    world = World.create(SCENARIO, seed)
    for _ in range(ticks):
        world.advance()
    for number, move in enumerate(moves):
        before = world.equity(0)
        move.make(world)
        assert world.equity(0) <= before + 2e-6, (number, move)
        if number == len(moves) // 2:
            world.advance()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), dollars=st.floats(1.0, 9000.0), side=st.sampled_from(["YES", "NO"]))
def test_a_round_trip_through_a_market_never_gains(seed: int, dollars: float, side: str) -> None:
    world = World.create(SCENARIO, seed)
    market = world.markets()[0].id
    got = world.buy(0, market, side, dollars)
    world.sell(0, market, side, got.shares)
    assert world.account(0).cash < 10_000.0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), shares=st.floats(5.0, 3000.0), first=st.booleans())
def test_the_same_number_of_yes_and_no_costs_at_least_what_it_pays(seed: int, shares: float, first: bool) -> None:
    world = World.create(SCENARIO, seed)
    market = world.markets()[0]
    sides = ("YES", "NO") if first else ("NO", "YES")
    held = world.buy(0, market.id, sides[0], shares * 0.5).shares
    while (missing := held - sum(p.shares for p in world.positions(0).markets if p.side == sides[1])) > 2:
        world.buy(0, market.id, sides[1], max(1.0, 0.5 * missing))
    pairs = min(position.shares for position in world.positions(0).markets)
    extra = sum(position.shares for position in world.positions(0).markets) - 2 * pairs
    assert world.account(0).cash + pairs + extra <= 10_000.0 + 1e-9 or extra > 0
    assert world.account(0).cash + pairs < 10_000.0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), parts=st.lists(st.floats(1.0, 300.0), min_size=2, max_size=6))
def test_splitting_a_purchase_changes_nothing_but_rounding(seed: int, parts: list[float]) -> None:
    split, whole = World.create(SCENARIO, seed), World.create(SCENARIO, seed)
    market = whole.markets()[0].id
    cents = [round(part, 2) for part in parts]
    shares = sum(split.buy(0, market, "YES", part).shares for part in cents)
    once = whole.buy(0, market, "YES", round(sum(cents), 2)).shares
    assert shares == pytest.approx(once, abs=1e-4)
    assert shares <= once + 1e-4
    assert split.markets()[0].yes_price == pytest.approx(whole.markets()[0].yes_price, abs=2e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), parts=st.lists(st.floats(10.0, 4000.0), min_size=2, max_size=5), long=st.booleans())
def test_splitting_a_perpetual_order_changes_nothing_but_rounding(seed: int, parts: list[float], long: bool) -> None:
    split, whole = World.create(SCENARIO, seed), World.create(SCENARIO, seed)
    side, ticker = "LONG" if long else "SHORT", whole.perpetuals()[0].ticker
    cents = [round(part, 2) for part in parts]
    for part in cents:
        split.open(0, ticker, side, part, 4.0)
    whole.open(0, ticker, side, round(sum(cents), 2), 4.0)
    one, many = whole.positions(0).perps[0], split.positions(0).perps[0]
    assert many.entry_price == pytest.approx(one.entry_price, rel=1e-7)
    assert split.equity(0) == pytest.approx(whole.equity(0), abs=1e-2)
    assert split.equity(0) <= whole.equity(0) + 2e-6 * len(parts) + 1e-2


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("tier", TIERS)
def test_accounts_add_up_in_every_regime_and_tier_with_reckless_players(regime: str, tier: str) -> None:
    scenario = Scenario(duration_minutes=150, markets=4, perpetuals=3, agents=8, regime=regime, tier=tier)  # type: ignore[arg-type]
    batch = MarketBatch(scenario, range(40))
    draws = np.random.default_rng(7)
    while not batch.done:
        batch.step(draws.normal(0, 4000, (40, batch.actions)) * (draws.random((40, batch.actions)) < 0.3))
        assert (money(batch.state) == 9 * at.STAKE).all()
    assert outstanding_is_held(batch.state)
    assert (batch.state.cash[:, :9] >= 0).all()
    assert (batch.equity >= 0).all()


def test_a_liquidation_leaves_the_penalty_in_the_insurance_fund() -> None:
    scenario = Scenario(duration_minutes=600, markets=0, perpetuals=3, agents=0, regime="crash")
    for seed in range(20):
        world = World.create(scenario, seed)
        for perp in world.perpetuals():
            world.open(0, perp.ticker, "LONG", 20_000.0, 10.0)
        while not world.done and world.account(0).liquidations == 0:
            before = world.account(0)
            world.advance()
        after = world.account(0)
        if after.liquidations:
            break
    assert after.liquidations > 0
    assert after.margin < before.margin
    fund = world.state.cash[0, 1 + at.INSURANCE]
    assert fund > 0
    assert money(world.state)[0] == at.STAKE
    assert world.trades(10)[0].kind == "liquidation"
