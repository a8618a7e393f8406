"""One agent in one world: played, recorded, measured and compared with the Bayes player.

Regret is the Bayes player's profit in the same world less the agent's. Optimality is 100 * (agent - null) / (Bayes -
null), where the null agent earns exactly 0. In a single world the Bayes player's profit is partly luck and may be
negative, so the denominator is its mean over calibration worlds of the same scenario, in which nobody else plays.
That is a constant, so the mean of the score is the score of the mean.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any

import msgspec

from bakeoff.spec.workload import Step
from bakeoff.workloads.market import journal, metrics
from bakeoff.workloads.market.agents.base import Agent
from bakeoff.workloads.market.agents.bayes import KellyBayes
from bakeoff.workloads.market.journal import Attendance
from bakeoff.workloads.market.metrics import MICRO, Number, Result, micro
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world.world import World

CALIBRATION_SECRET = "bakeoff-market-calibration"
"""Draws the calibration worlds, so that they are not among anyone's test worlds."""
FEWEST_WORLDS, WORLDS, TICKS = 2, 16, 1_000
"""Long scenarios vary less from world to world: fewer worlds, and about as many ticks in all."""
DOUBLINGS = 2
PRECISE, SIGNIFICANT = 4.0, 2.0
"""The mean in standard errors: above the first no more worlds are needed; below the second there is no score."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished episode of one agent."""

    agent: Agent
    scenario: Scenario
    world: World
    world_id: str
    """Names the world without revealing its key."""
    player: Attendance
    result: Result
    groups: metrics.Groups
    """The result's metrics, and the groups `reference` and `cost`."""

    @property
    def metrics(self) -> dict[str, Number]:
        """All metrics by name."""
        return {name: value for group in self.groups.values() for name, value in group.items()}

    @property
    def never_acted(self) -> bool:
        """True when every turn was lost (late, crashed or no longer waited for) before anything was done in it."""
        turns = self.player.turns
        return not any(turn.conduct == "acted" or any(call.error is None for call in turn.actions) for turn in turns)

    @property
    def trouble(self) -> str:
        """The first thing that went wrong."""
        return self.player.errors[0] if self.player.errors else "no turn was taken"

    def steps(self) -> Iterator[Step]:
        """The trajectory. Hidden facts are in `truth` of the last step and nowhere else.

        `info` of the first step has what training data needs: the world, since groups are rollouts of one world, and a
        language model's tools, to render its prompts.
        """
        version = getattr(self.agent, "policy_version", None)
        info = {"world": self.world_id}
        if tools := getattr(self.agent, "tool_definitions", None):
            info["tools"] = tools
        for step in journal.steps(self.player.turns, agent=self.agent.name, policy_version=version):
            hidden = truth(self.world) if step.done else None
            yield msgspec.structs.replace(step, info={**step.info, **info}, truth=hidden)
            info = {}


def roll_out(
    scenario: Scenario,
    key: bytes,
    agent: Agent,
    *,
    seed: int = 0,
    response_timeout: float | None = None,
    prices: Prices | None = None,
    stop: Callable[[], bool] | None = None,
) -> Rollout:
    """Play the world of `key` with one agent, from the first tick to the last.

    `seed` drives the agent's own randomness. `response_timeout` is seconds for a turn. `prices` turn the tokens that the
    agent reports into dollars. `stop` is asked between turns and ends the episode early.
    """
    world = World.from_key(scenario, key)
    episode = Episode(world, [agent], response_timeout=response_timeout, record=True, seed=seed, stop=stop).run()
    player = episode.players[0]
    result = metrics.measure(world, player)
    flat, prices = result.flat, prices or Prices()
    pnl, bayes = flat["total_pnl"] or 0.0, bayes_pnl(scenario, key)
    cost = prices.prompt * (flat["prompt_tokens"] or 0) + prices.completion * (flat["completion_tokens"] or 0)
    groups: metrics.Groups = {
        **result.groups,
        "reference": {"bayes_pnl": bayes, "regret": bayes - pnl, "optimality": optimality(pnl, scenario)},
        "cost": {"cost_usd": cost / 1e6},
    }
    world_id = hashlib.sha256(scenario.digest.encode() + key).hexdigest()[:16]
    return Rollout(agent, scenario, world, world_id, player, result, groups)


def truth(world: World) -> dict[str, Any]:
    """Everything hidden, ready for JSON."""
    hidden: dict[str, Any] = msgspec.to_builtins(world.truth(), enc_hook=lambda number: number.item())
    return hidden


# -- the Bayes player


@lru_cache(maxsize=4096)
def bayes_pnl(scenario: Scenario, key: bytes) -> float:
    """Dollars that the Bayes player earns in the world of this key."""
    world = World.from_key(scenario, key)
    Episode(world, [KellyBayes()]).run()
    account = world.account(0)
    return (micro(account.equity) - micro(account.initial)) / MICRO


@lru_cache(maxsize=64)
def bayes_gain(scenario: Scenario) -> float | None:
    """The Bayes player's mean profit over the calibration worlds; None where it does not differ significantly from 0.

    A few ticks leave it nothing to earn, and dividing by noise would make any score.
    """
    count = max(FEWEST_WORLDS, min(WORLDS, TICKS // scenario.ticks))
    # Equal seeds are the same worlds, so each doubling only plays the new ones: `bayes_pnl` remembers the others.
    for worlds in (count << doubling for doubling in range(DOUBLINGS + 1)):
        earned = [bayes_pnl(scenario, world_key(scenario, seed, CALIBRATION_SECRET)) for seed in range(worlds)]
        mean, error = fmean(earned), stdev(earned) / math.sqrt(worlds)
        if mean > PRECISE * error:
            break
    return mean if mean > SIGNIFICANT * error else None


def optimality(pnl: float, scenario: Scenario) -> float | None:
    """A profit in percent of the Bayes player's; None where the Bayes player itself finds nothing to earn."""
    gain = bayes_gain(scenario)
    return None if gain is None else 100 * pnl / gain
