"""Whoever moves nothing but marks earns nothing from the house, alone or together with others."""

from __future__ import annotations

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World

ORDERS = 10
"""A seat splits what it trades, so that longs and shorts of one tick meet near the index."""


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
