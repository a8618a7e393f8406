"""One agent, one world, from the first tick to the last: played, recorded and measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from bakeoff.spec.trajectory import Step
from bakeoff.workloads.market import journal, metrics, reference
from bakeoff.workloads.market.agents.base import Agent
from bakeoff.workloads.market.journal import Attendance
from bakeoff.workloads.market.metrics import Number, Result
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.world import World


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, slots=True)
class Rollout:
    agent: Agent
    scenario: Scenario
    world: World
    world_id: str
    """Names the world without giving it away."""
    player: Attendance
    result: Result
    groups: metrics.Groups
    """The result's, and how it compares with the Bayes player."""

    @property
    def metrics(self) -> dict[str, Number]:
        return {name: value for group in self.groups.values() for name, value in group.items()}

    @property
    def never_acted(self) -> bool:
        """Every turn was lost (late, crashed, or not waited for any more) before anything was done in it."""
        turns = self.player.turns
        return not any(turn.conduct == "acted" or any(call.error is None for call in turn.actions) for turn in turns)

    @property
    def trouble(self) -> str:
        """What went wrong first."""
        return self.player.errors[0] if self.player.errors else "no turn was taken"

    def steps(self) -> Iterator[Step]:
        """The trajectory. What was hidden is in `truth` of the last step, and nowhere else.

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
    """`seed` drives the agent's own chance; the key has drawn the world."""
    world = World.from_key(scenario, key)
    episode = Episode(world, [agent], response_timeout=response_timeout, record=True, seed=seed, stop=stop).run()
    player = episode.players[0]
    result = metrics.measure(world, player)
    groups = {
        **result.groups,
        "reference": against_bayes(result, scenario, key),
        "cost": cost(result, prices or Prices()),
    }
    world_id = hashlib.sha256(scenario.digest.encode() + key).hexdigest()[:16]
    return Rollout(agent, scenario, world, world_id, player, result, groups)


def against_bayes(result: Result, scenario: Scenario, key: bytes) -> dict[str, Number]:
    pnl = result.flat["total_pnl"]
    assert pnl is not None
    bayes = reference.bayes_pnl(scenario, key)
    return {"bayes_pnl": bayes, "regret": bayes - pnl, "optimality": reference.optimality(pnl, scenario)}


def cost(result: Result, prices: Prices) -> dict[str, Number]:
    spent = prices.prompt * (result.flat["prompt_tokens"] or 0) + prices.completion * (
        result.flat["completion_tokens"] or 0
    )
    return {"cost_usd": spent / 1e6}


def truth(world: World) -> dict[str, Any]:
    """What was hidden, ready for JSON."""
    found: dict[str, Any] = msgspec.to_builtins(world.truth(), enc_hook=lambda number: number.item())
    return found
