"""Perpetuals against numerical integration of their mark, and what nobody gets from the house by moving marks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.rules import LIQUIDITY
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World
from workloads.market.world.accounts import money, outstanding_is_held

SCENARIO = Scenario(duration_minutes=60, markets=2, perpetuals=2, agents=4)
ORDERS = 10
"""A seat splits what it trades, so that longs and shorts of one tick meet near the index."""


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


def test_an_order_against_a_position_that_can_only_be_closed_tells_what_was_closed() -> None:
    """The rest, which there is no margin for, is left out; what happened is never told as a refusal."""
    world = World.create(SCENARIO, 1)
    ticker = world.perpetuals()[0].ticker
    world.open(0, ticker, "LONG", 5000.0, 5.0)
    fill = world.open(0, ticker, "SHORT", 90_000.0, 1.0)
    assert (fill.status, fill.side, fill.amount) == ("filled", "LONG", pytest.approx(5000.0, abs=1e-3))
    assert world.positions(0).perps == ()


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


def play_until(world: World, ticks_before_news: int) -> None:
    while world.perpetuals()[0].announcement_tick - world.tick != ticks_before_news:
        world.advance()


def test_seats_that_let_each_other_be_liquidated_get_nothing_from_the_house() -> None:
    """Longs have so little margin that the eve of the news closes them all at once; as many shorts wait for that."""
    longs, shorts = range(8), range(8, 24)
    world = World.create(
        Scenario(regime="crash", markets=0, perpetuals=1, agents=0, duration_minutes=60), seed=3, seats=24
    )
    play_until(world, 2)
    perp = world.perpetuals()[0]
    for _ in range(ORDERS):
        for seat in longs:
            world.open(seat, perp.ticker, "LONG", 0.93 * perp.depth / ORDERS, perp.max_leverage)
        for seat in shorts:
            world.open(seat, perp.ticker, "SHORT", 0.46 * perp.depth / ORDERS, 6.0)
    world.advance()
    assert all(world.account(seat).liquidations for seat in longs)
    for _ in range(2):
        for seat in shorts:
            for _ in range(ORDERS):
                world.close(seat, perp.ticker, 0.5 * perp.depth / ORDERS)
        world.advance()
    assert not any(world.positions(seat).perps for seat in shorts)
    assert sum(world.equity(seat) for seat in (*longs, *shorts)) < 24 * 10_000
    assert world.state.cash[0, 24 + at.INSURANCE] > 0


def test_closing_a_position_for_more_than_its_margin_costs_the_margin_and_moves_no_mark() -> None:
    world = World.create(Scenario(regime="calm", markets=0, perpetuals=1, agents=0), seed=1, seats=13)
    ticker, depth = world.perpetuals()[0].ticker, world.perpetuals()[0].depth
    world.open(0, ticker, "LONG", 0.5 * depth, 10.0)
    world.advance()
    for seat in range(1, 13):
        world.open(seat, ticker, "SHORT", 0.45 * depth, 5.0)
    world.advance()
    account, mark = world.account(0), world.perpetuals()[0]
    assert account.liquidations == 0, "the index has not moved enough"
    assert 1 - mark.price / mark.index_price > 1 / 10, "and the mark is further away than the margin reaches"
    world.close(0, ticker)
    world.advance()
    after, gap = world.account(0), 1 - world.perpetuals()[0].price / world.perpetuals()[0].index_price
    assert world.fills(0)[0].realized_pnl == -account.margin
    assert after.cash == account.cash - world.fills(0)[0].fee
    assert gap < 1 - mark.price / mark.index_price, "it relaxes, and nobody traded"


def test_a_mark_pushed_in_a_shallow_market_cannot_be_sold_into_a_deeper_one() -> None:
    """Long and short together, so that the index cancels out: what is left is what pushing brought."""
    scenario = Scenario(regime="mixed", markets=0, perpetuals=1, agents=0, duration_minutes=60)
    seed = next(seed for seed in range(100) if pushed_into_depth(scenario, seed, "LONG"))
    assert pushed_into_depth(scenario, seed, "LONG") + pushed_into_depth(scenario, seed, "SHORT") < 0


def test_funding_is_what_the_other_side_paid() -> None:
    """A crowd is short before an accomplice pushes the mark up: it gets the accomplice's funding and not a cent of the house's."""
    world = World.create(Scenario(regime="calm", markets=0, perpetuals=1, agents=0), seed=1, seats=13)
    ticker, depth = world.perpetuals()[0].ticker, world.perpetuals()[0].depth
    for seat in range(1, 13):
        world.open(seat, ticker, "SHORT", 0.1 * depth, 2.0)
    while world.perpetuals()[0].next_funding_tick - world.tick > 1:
        world.advance()
    world.open(0, ticker, "LONG", 0.5 * depth, 10.0)
    world.advance()
    paid = world.account(0).funding
    got = [-world.account(seat).funding for seat in range(1, 13)]
    assert paid > 0 and min(got) > 0
    assert paid - 0.0001 < sum(got) <= paid


def pushed_into_depth(scenario: Scenario, seed: int, side: str) -> float:
    """What pushing in the last tick of a first story and letting go in the next brings; 0 where depth does not grow."""
    world = World.create(scenario, seed)
    play_until(world, 1)
    before = world.perpetuals()[0]
    world.open(0, before.ticker, side, 0.2 * before.depth, 4.0)
    world.advance()
    return world.close(0, before.ticker).realized_pnl if world.perpetuals()[0].depth > before.depth else 0.0
