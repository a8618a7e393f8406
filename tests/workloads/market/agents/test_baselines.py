"""Agents come out in the order they should, and the probes find no hole. `benchmarks/market_baselines.py` is the long form."""

from __future__ import annotations

from functools import cache

import pytest

import bakeoff
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import scenario
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
    return bakeoff.compare(rows, metric="pnl", control=control, margin=50.0)[0].verdict


@pytest.mark.parametrize("other", ["null", "momentum", "follow-the-news", "follow-insider", "market-price"])
def test_knowing_the_likelihoods_beats_everything_that_does_not_know_the_future(other: str) -> None:
    assert verdict("kelly-bayes", other) == "better"


def test_knowing_the_future_beats_knowing_the_likelihoods() -> None:
    assert verdict("clairvoyant", "kelly-bayes") == "better"


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
