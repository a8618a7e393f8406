"""Money and shares are neither made nor lost, nobody owes anything, and no trade is worth more than it costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.scenario import REGIMES, TIERS, Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.advance import MarketBatch
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
        assert money(world.state)[0] == 11 * at.STAKE
        assert outstanding_is_held(world.state)
        assert (world.state.cash[0, :11] >= 0).all() and (world.state.positions[0, :, :, at.MARGIN] >= 0).all()


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
