"""Prediction markets against a plain implementation of their rule in fifty digits, and what no trade can gain."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World

SCENARIO = Scenario(duration_minutes=60, markets=4, perpetuals=3, agents=8)


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
def test_the_same_number_of_yes_and_no_costs_more_than_it_pays(seed: int, shares: float, first: bool) -> None:
    world = World.create(SCENARIO, seed)
    market = world.markets()[0]
    one, other = ("YES", "NO") if first else ("NO", "YES")
    world.buy(0, market.id, one, shares * 0.5)
    while (missing := held(world, one) - held(world, other)) > 2:
        world.buy(0, market.id, other, max(1.0, 0.5 * missing))
    surplus = max(one, other, key=lambda side: held(world, side))
    with suppress(Rejected):  # a few micro-shares are below the minimum
        world.sell(0, market.id, surplus, abs(held(world, "YES") - held(world, "NO")))
    assert held(world, "YES") == pytest.approx(held(world, "NO"), abs=1e-4)
    assert world.account(0).cash + held(world, "YES") < 10_000.0


def held(world: World, side: str) -> float:
    return sum(position.shares for position in world.positions(0).markets if position.side == side)


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
