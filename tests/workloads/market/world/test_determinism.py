"""A world is a function of scenario, seed and secret, and what is to come does not show in what is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, Scenario
from bakeoff.workloads.market.snapshot import game_state
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import philox, seats
from bakeoff.workloads.market.world.advance import MarketBatch
from bakeoff.workloads.market.world.layout import allocate
from bakeoff.workloads.market.world.reader import digits
from bakeoff.workloads.market.world.world import World
from workloads.market.world.accounts import Move

SCENARIO = Scenario(duration_minutes=40, markets=4, perpetuals=3, agents=8)


def seen(world: World) -> dict[str, object]:
    """Everything that a seat can look at."""
    shown = game_state(world)
    return shown | {
        "account": world.account(0),
        "positions": world.positions(0),
        "trades": world.trades(50),
        "resolved": world.resolved_markets(),
        "sources": world.sources(),
    }


def played(world: World, ticks: int) -> World:
    for tick in range(ticks):
        market = world.markets()[tick % len(world.markets())]
        Move("buy", tick, tick % 2 == 0, 20.0 + tick, 1.0).make(world)
        Move("open", tick, market.yes_price > 0.5, 50.0, 3.0).make(world)
        world.advance()
    return world


def test_philox_gives_the_published_words() -> None:
    state = allocate(1, 1, 1, 1, 1)
    assert seats.word(state.ints, 0, 0, 0) == 0x6627E8D5
    ones = 0xFFFFFFFF
    state.ints[0, at.KEY0 : at.KEY3 + 1] = ones
    assert seats.word(state.ints, ones, 255, 0xFFFFFF) == 0x408F276D


def test_lanes_draw_the_words_that_each_world_would_draw_alone() -> None:
    keys = np.random.default_rng(3).integers(0, 1 << 32, (philox.KEY_ROWS, 5), np.uint64)
    out = np.zeros((6, 5), np.uint64)
    philox.draw_lanes.py_func(keys, 5, 7, 11, out, 2)  # type: ignore[attr-defined]
    for lane, (k0, k1, c2, c3, now, more) in enumerate(keys.T):
        c0, c1 = (now + np.uint64(7)) & philox.LOW, (more + np.uint64(11)) & philox.LOW
        assert tuple(out[2:, lane]) == philox.philox.py_func(k0, k1, c0, c1, c2, c3)  # type: ignore[attr-defined]
    assert not out[:2].any()


def test_the_same_seed_is_the_same_world_and_another_is_not() -> None:
    one, again = played(World.create(SCENARIO, 5), 30), played(World.create(SCENARIO, 5), 30)
    assert (one.state.ints == again.state.ints).all() and (one.state.floats == again.state.floats).all()
    other, secret = World.create(SCENARIO, 6), World.create(SCENARIO, 5, secret="another")
    for world in (other, secret):
        assert seen(world) != seen(World.create(SCENARIO, 5))


def test_a_seed_draws_the_world_that_earlier_versions_drew() -> None:
    """Experiments and scenario files of earlier versions stay valid. Digits beyond these may differ between processors."""
    world = World.create(SCENARIO, 5, secret=PUBLISHED_SECRET)
    truth = world.truth()
    ends = {ticker: (digits(path[0], 6), digits(path[-1], 6)) for ticker, path in truth.prices.items()}
    assert ends == {"BTCX": (59350.0, 58524.9), "ETHX": (2996.0, 2654.29), "SOLX": (158.7, 182.446)}
    outcomes = ["?" if question.outcome is None else "NY"[question.outcome] for question in truth.questions]
    assert "".join(outcomes) == "YNNNYNNNNYYYYYYNNN????"
    assert [story.theta for story in truth.stories] == [0, -1, 1, 1, 0, -1, 1, 0, -1]
    account = played(world, 30).account(0)
    assert (account.cash, account.equity) == pytest.approx((6512.839238, 8667.025659), abs=1e-3)
    profits = [32.4, 22.01, -2.54, 2.03, 3.58, 85.79, -16.61, 127.04]
    assert [trader.total_pnl for trader in world.background()] == pytest.approx(profits, abs=0.01)


def test_a_longer_world_begins_like_a_shorter_one() -> None:
    short, long = World.create(SCENARIO, 9), World.create(SCENARIO.model_copy(update={"duration_minutes": 4000}), 9)
    while not short.done:
        Move("buy", short.tick, True, 30.0, 1.0).make(short)
        Move("buy", long.tick, True, 30.0, 1.0).make(long)
        assert seen(short) == seen(long)
        short.advance()
        long.advance()


def test_nothing_hidden_shows() -> None:
    world = played(World.create(SCENARIO, 11), 25)
    before = seen(world)
    world.state.header[:, at.KEY0 : at.KEY3 + 1] ^= 0x5A5A5A5A
    world.state.header[:, at.RELIABILITY : at.RECORD] = 500
    world.state.assets[:, :, at.THETA] = -world.state.assets[:, :, at.THETA]
    world.state.indices[:, :, at.WEIGHT : at.WEIGHT + 3] = 0.0
    world.state.tips[...] = 0.0
    assert seen(world) == before


def test_another_future_leaves_the_past_as_it_was() -> None:
    """Two worlds with the same draws up to a tick: what comes later differs, what was seen does not."""
    one, other = World.create(SCENARIO, 3), World.create(SCENARIO, 3)
    for tick in range(30):
        if tick == 15:
            other.state.header[:, at.KEY0] ^= 1
        assert (seen(one) == seen(other)) == (tick <= 15)
        one.advance()
        other.advance()


def test_how_many_seats_there_are_does_not_change_what_happens() -> None:
    truths = [World.create(SCENARIO, 4, seats=seats) for seats in (1, 3)]
    for world in truths:
        while not world.done:
            world.advance()
    alone, crowd = truths
    assert [p.index_price for p in alone.perpetuals()] == [p.index_price for p in crowd.perpetuals()]
    assert alone.markets() == crowd.markets()
    assert alone.posts(limit=64) == crowd.posts(limit=64)


@settings(max_examples=15, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=5),
    turns=st.lists(st.lists(st.integers(-1, 1), min_size=7, max_size=7), min_size=1, max_size=15),
)
def test_a_world_of_a_batch_is_the_single_world(seeds: list[int], turns: list[list[int]]) -> None:
    batch = MarketBatch(SCENARIO, seeds)
    alone = [MarketBatch(SCENARIO, [seed]) for seed in seeds]
    for wanted in turns:
        actions = np.array([np.roll(wanted, world) for world in range(len(seeds))], np.int8)
        together = batch.step(actions)
        for number, single in enumerate(alone):
            for ours, theirs in zip(single.step(actions[number : number + 1]), together, strict=True):
                assert (ours[0] == theirs[number]).all()
    for number, single in enumerate(alone):
        assert (batch.state.ints[number] == single.state.ints[0]).all()
        assert (batch.state.floats[number] == single.state.floats[0]).all()


def test_orders_through_the_world_do_what_a_batch_does() -> None:
    batch, world = MarketBatch(SCENARIO, [21]), World.create(SCENARIO, 21)
    draws = np.random.default_rng(2)
    while not batch.done:
        dollars = (np.round(draws.normal(0, 300, 7), 6) * (draws.random(7) < 0.6)).tolist()
        slots = [int(m) for m in np.flatnonzero(batch.state.markets[0, :, at.OPEN])]
        for m, market in zip(slots, world.markets(), strict=True):
            if abs(dollars[m]) >= 1:
                _try(partial(world.buy, 0, market.id, "YES" if dollars[m] > 0 else "NO", abs(dollars[m])))
        for perp, size in zip(world.perpetuals(), dollars[4:], strict=True):
            if size:
                _try(partial(world.open, 0, perp.ticker, "LONG" if size > 0 else "SHORT", abs(size), 2.0))
        world.advance()
        batch.step(np.array([dollars]))
        assert world.equity(0) == batch.equity[0]
        assert (batch.state.ints == world.state.ints).all()
        assert (batch.state.floats == world.state.floats).all()


def _try(order: Callable[[], object]) -> None:
    from bakeoff.workloads.market.world.views import Rejected

    try:
        order()
    except Rejected:
        pass


def test_the_order_of_worlds_in_a_batch_does_not_matter() -> None:
    forward, backward = MarketBatch(SCENARIO, range(6)), MarketBatch(SCENARIO, range(5, -1, -1))
    draws = np.random.default_rng(1)
    for _ in range(20):
        actions = draws.integers(-1, 2, (6, 7))
        ours, theirs = forward.step(actions), backward.step(actions[::-1])
        assert (ours[0] == theirs[0][::-1]).all() and (ours[1] == theirs[1][::-1]).all()


def test_a_view_of_a_batch_is_its_world() -> None:
    batch = MarketBatch(SCENARIO, [1, 2, 3])
    view = World.view(batch, 1)
    batch.step()
    alone = World.create(SCENARIO, 2)
    alone.advance()
    assert seen(view) == seen(alone)
    view.buy(0, view.markets()[0].id, "YES", 100.0)
    assert batch.state.cash[1, 0] == 9900 * at.MICRO


def test_public_floats_are_rounded() -> None:
    world = played(World.create(SCENARIO, 2), 20)
    for perp in world.perpetuals():
        for value in (perp.price, perp.index_price):
            assert value == float(f"{value:.9g}")
    exact = world.state.indices[0, :, at.PRICE]
    assert [perp.index_price for perp in world.perpetuals()] != pytest.approx(exact.tolist(), rel=1e-15)
