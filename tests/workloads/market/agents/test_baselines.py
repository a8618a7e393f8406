"""Agents come out in the order they should, and the probes find no hole. `benchmarks/market_baselines.py` is the long form."""

from __future__ import annotations

from functools import cache

import pytest

import bakeoff
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.agents.baselines import LCGS, GeneratorCracker, State, states
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, scenario
from bakeoff.workloads.market.world.rules import REGIME_LAWS
from bakeoff.workloads.market.world.world import World

WORLDS = [(regime, seed) for regime in REGIME_LAWS for seed in (1, 2)]
PROBES = ("cheap-side", "both-sides", "always-long", "unbounded-stake", "wash-trader", "price-pusher")


@cache
def earned(agent: str) -> tuple[float, ...]:
    """In twelve worlds: two of each regime."""
    return tuple(_pnl(agent, regime, seed) for regime, seed in WORLDS)


def _pnl(agent: str, regime: str, seed: int) -> float:
    world = World.create(scenario(regime=regime), seed, secret="baselines")
    options = {"seeds": 3} if agent == "generator-cracker" else {}
    player = Episode(world, [load(agent, options)], seed=seed).run().players[0]
    assert not player.errors
    return world.account(0).equity - world.account(0).initial


def verdict(candidate: str, control: str) -> str:
    rows = [
        {"arm": arm, "task": f"{regime}-{seed}", "pnl": pnl}
        for arm in (control, candidate)
        for (regime, seed), pnl in zip(WORLDS, earned(arm), strict=True)
    ]
    return bakeoff.compare(rows, metric="pnl", control=control, margin=50.0, cluster="none")[0].verdict


@pytest.mark.slow
@pytest.mark.parametrize("other", ["null", "momentum", "follow-the-news", "follow-insider", "market-price"])
def test_knowing_the_likelihoods_beats_everything_that_does_not_know_the_future(other: str) -> None:
    assert verdict("kelly-bayes", other) == "better"


@pytest.mark.slow
def test_knowing_the_future_beats_knowing_the_likelihoods() -> None:
    assert verdict("clairvoyant", "kelly-bayes") == "better"


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["generator-cracker", *PROBES])
def test_no_probe_earns_anything(probe: str) -> None:
    assert verdict(probe, "null") != "better"
    assert sum(earned(probe)) / len(WORLDS) < 50


def test_absurd_amounts_are_refused() -> None:
    agent = load("unbounded-stake")
    world = World.create(scenario(duration_minutes=3), 1)
    Episode(world, [agent]).run()
    assert agent.accepted == []  # type: ignore[attr-defined]
    assert world.account(0).equity >= 0


def test_an_agent_s_own_chance_is_seeded() -> None:
    assert _pnl("random", "calm", 1) == _pnl("random", "calm", 1) != _pnl("random", "calm", 2)


# -- probes


SCENARIO = scenario(duration_minutes=12)


def cracked(secret: str, seed: int = 7) -> tuple[GeneratorCracker, float]:
    world = World.create(SCENARIO, seed, secret=secret)
    agent = GeneratorCracker(seeds=10)
    player = Episode(world, [agent]).run().players[0]
    assert not player.errors
    return agent, world.account(0).equity - world.account(0).initial


@pytest.mark.parametrize("generator", LCGS)
def test_a_linear_congruential_generator_is_found_from_two_of_its_draws(generator: str) -> None:
    hidden = State(generator, 123456789)
    first, second, third = hidden.draws(3)
    public = [5e5 + 1e6 * first, (second - 0.5) * 0.002]  # as open interest and a funding rate
    found = list(states(public))
    assert any(state.generator == generator and abs(next(state.draws(1)) - second) < 1e-6 for state in found)
    assert third not in public


def test_with_the_published_secret_and_a_small_seed_the_world_is_found_and_outcomes_are_known() -> None:
    agent, earned = cracked(PUBLISHED_SECRET)
    assert agent.twin is not None
    assert earned > 300


def test_with_a_secret_of_one_s_own_there_is_nothing_to_find() -> None:
    agent, _ = cracked("something else")
    assert agent.twin is None


def test_no_public_number_of_the_world_is_an_image_of_a_known_generator() -> None:
    world = World.create(SCENARIO, 3, secret="something else")
    views = [*world.markets(), *world.perpetuals()]
    numbers = [value for view in views for name in view.__slots__ if isinstance(value := getattr(view, name), float)]
    ahead = list(states([number for number in numbers if number]))
    following = [round(perp.index_price, 4) for perp in world.perpetuals()]
    for state in ahead:  # a chance hit within 1e-5 is possible; one that foretells prices is not
        assert not any(abs(draw - price % 1) < 1e-9 for draw in state.draws(50) for price in following)
