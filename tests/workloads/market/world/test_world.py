"""Orders of one seat and of several: when they execute, in which order, and what the world refuses."""

from __future__ import annotations

import math
from itertools import permutations

import pytest

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World

SCENARIO = Scenario(duration_minutes=200, markets=3, perpetuals=2, agents=4)
NAMED = SCENARIO.model_copy(update={"tape": "named"})


def test_orders_are_sealed_until_the_tick_closes() -> None:
    world = World.create(SCENARIO, 1, seats=2)
    market = world.markets()[0]
    given = world.buy(0, market.id, "YES", 100.0)
    assert given.status == "sealed"
    assert world.markets()[0] == market
    assert world.account(0).cash == 10_000.0
    assert not world.end_turn(0)
    assert world.end_turn(1)
    (fill,) = world.fills(0)
    assert (fill.status, fill.order_id, fill.tick) == ("filled", given.order_id, 0)
    assert world.account(0).cash == 9_900.0
    world.advance()
    assert world.fills(0) == []


def test_a_sealed_order_that_cannot_be_filled_is_told_when_the_tick_closes() -> None:
    world = World.create(SCENARIO, 1, seats=2)
    market = world.markets()[0].id
    world.buy(0, market, "YES", 6000.0)
    world.buy(0, market, "YES", 6000.0)
    world.advance()
    first, second = world.fills(0)
    assert (first.status, second.status, second.code) == ("filled", "rejected", "insufficient_funds")


def test_orders_of_seats_take_turns() -> None:
    """The second order of a seat never comes before the first of another."""
    world = World.create(NAMED, 5, seats=3)
    market = world.markets()[0].id
    for seat in (0, 1, 2):
        for _ in range(3):
            world.buy(seat, market, "YES", 20.0)
    world.advance()
    tape = [str(trade.trader_id) for trade in world.trades(32) if str(trade.trader_id).startswith("player")][::-1]
    assert len(tape) == 9
    assert tape[0:3] == tape[3:6] == tape[6:9] and sorted(tape[0:3]) == ["player-1", "player-2", "player-3"]


def test_every_order_of_seats_is_equally_likely() -> None:
    counts = dict.fromkeys(permutations(range(3)), 0)
    for seed in range(4):
        world = World.create(NAMED, seed, seats=3)
        while not world.done:
            for seat in range(3):
                world.open(seat, "BTCX", "LONG" if world.tick % 2 else "SHORT", 20.0, 1.0)
            tick = world.tick
            world.advance()
            traders = [str(trade.trader_id) for trade in world.trades(20) if trade.tick == tick]
            order = [int(trader[-1]) - 1 for trader in reversed(traders) if trader.startswith("player")]
            counts[tuple(order)] += 1  # type: ignore[index]
    total = sum(counts.values())
    assert total == 800
    expected = total / 6
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 20.5  # chi-squared, 5 df, p = 0.001


@pytest.mark.slow
def test_seats_that_do_the_same_earn_the_same_on_average() -> None:
    short, differences = Scenario(duration_minutes=15, markets=3, perpetuals=2, agents=4), []
    for seed in range(120):
        world = World.create(short, seed, seats=2)
        while not world.done:
            for seat in range(2):
                for market in world.markets()[:1]:
                    world.buy(seat, market.id, "YES", 50.0)
                world.open(seat, world.perpetuals()[0].ticker, "LONG", 500.0, 2.0)
            world.advance()
        differences.append(world.equity(0) - world.equity(1))
    mean = sum(differences) / len(differences)
    spread = math.sqrt(sum((each - mean) ** 2 for each in differences) / (len(differences) - 1))
    assert spread > 0
    assert abs(mean) < 4 * spread / math.sqrt(len(differences))


def test_swapping_what_two_seats_do_swaps_what_they_get_when_the_order_is_swapped_too() -> None:
    """One seat alone in a tick is not touched by which chair it sits on."""
    left, right = World.create(SCENARIO, 9, seats=2), World.create(SCENARIO, 9, seats=2)
    for tick in range(30):
        actor = tick % 2
        for market in left.markets()[:2]:
            left.buy(actor, market.id, "YES", 40.0)
            right.buy(1 - actor, market.id, "YES", 40.0)
        left.advance()
        right.advance()
    assert left.account(0) == right.account(1) and left.account(1) == right.account(0)


def test_with_one_seat_an_order_executes_at_once() -> None:
    world = World.create(SCENARIO, 1)
    assert world.buy(0, world.markets()[0].id, "no", 50.0).status == "filled"
    assert world.account(0).cash == 9950.0


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (lambda w, m: w.buy(1, m, "YES", 10), "unknown_seat"),
        (lambda w, m: w.buy(0, "market-999", "YES", 10), "unknown_market"),
        (lambda w, m: w.buy(0, "market-00", "YES", 10), "unknown_market"),
        (lambda w, m: w.buy(0, m, "MAYBE", 10), "unknown_side"),
        (lambda w, m: w.buy(0, m, "YES", 0), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", -5), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", math.nan), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", math.inf), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", 1e300), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", True), "bad_amount"),
        (lambda w, m: w.buy(0, m, "YES", 0.5), "below_minimum"),
        (lambda w, m: w.buy(0, m, "YES", 10_001), "insufficient_funds"),
        (lambda w, m: w.sell(0, m, "YES", 1), "insufficient_shares"),
        (lambda w, m: w.open(0, "NOPE", "LONG", 100, 1), "unknown_ticker"),
        (lambda w, m: w.open(0, "BTCX", "UP", 100, 1), "unknown_side"),
        (lambda w, m: w.open(0, "BTCX", "LONG", 9, 1), "below_minimum"),
        (lambda w, m: w.open(0, "BTCX", "LONG", 100, 0.5), "bad_leverage"),
        (lambda w, m: w.open(0, "BTCX", "LONG", 100, 11), "bad_leverage"),
        (lambda w, m: w.open(0, "BTCX", "LONG", 100, math.nan), "bad_leverage"),
        (lambda w, m: w.open(0, "BTCX", "LONG", 20_000, 1), "insufficient_funds"),
        (lambda w, m: w.close(0, "BTCX"), "no_position"),
        (lambda w, m: w.post(0, ""), "bad_content"),
        (lambda w, m: w.post(0, "x" * 5001), "bad_content"),
        (lambda w, m: w.post(0, "x", m, probability=1.5), "bad_probability"),
        (lambda w, m: w.post(0, "x", None, probability=0.5), "unknown_market"),
        (lambda w, m: w.join(0, "chat-0"), "not_invited"),
        (lambda w, m: w.join(0, "chat-9"), "unknown_chat"),
        (lambda w, m: w.message(0, "chat-0", "hello"), "not_member"),
    ],
)
def test_what_the_world_refuses_has_a_name_and_changes_nothing(order, code: str) -> None:  # type: ignore[no-untyped-def]
    world = World.create(SCENARIO, 1)
    ints, floats = world.state.ints.copy(), world.state.floats.copy()
    with pytest.raises(Rejected) as caught:
        order(world, world.markets()[0].id)
    assert caught.value.code == code
    assert (world.state.ints == ints).all() and (world.state.floats == floats).all()


def test_nothing_happens_after_the_end() -> None:
    world = World.create(Scenario(duration_minutes=1), 1)
    world.advance()
    assert world.done
    for late in (lambda: world.buy(0, world.markets()[0].id, "YES", 10), world.advance, lambda: world.post(0, "late")):
        with pytest.raises(Rejected) as caught:
            late()
        assert caught.value.code == "world_over"


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
