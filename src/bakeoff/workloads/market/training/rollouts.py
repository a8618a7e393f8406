"""Rollouts of a policy in many worlds at once, with every decision kept for learning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.training.features import FEATURES, Floats, features, see
from bakeoff.workloads.market.training.learner import Decisions
from bakeoff.workloads.market.training.policy import Policy
from bakeoff.workloads.market.world.layout import OPEN


@dataclass(frozen=True, slots=True)
class Played:
    """n rollouts from the first tick to the last."""

    rewards: Floats  # [n]: change of equity, in dollars
    features: dict[str, Floats]  # by kind: [ticks, n, instruments, features]
    choices: dict[str, npt.NDArray[np.int64]]  # [ticks, n, instruments]
    log_chances: dict[str, Floats]
    there: dict[str, npt.NDArray[np.bool_]]
    """Whether there was anything to decide: a market slot can be between two questions."""

    def decisions(self, kind: str, advantages: Floats, useful: npt.NDArray[np.bool_]) -> Decisions:
        """Those of the useful rollouts, each with its rollout's advantage."""
        chosen = self.there[kind] & useful[None, :, None]
        spread = np.broadcast_to(advantages[None, :, None], chosen.shape)
        return Decisions(
            self.features[kind][chosen], self.choices[kind][chosen], self.log_chances[kind][chosen], spread[chosen]
        )


def play(policy: Policy, scenario: Scenario, seeds: npt.NDArray[np.int64], rng: np.random.Generator | None) -> Played:
    """One rollout for each seed; equal seeds are the same world. Without `rng` the likeliest choices are made."""
    batch = MarketBatch(scenario, seeds)
    total = np.zeros(len(seeds))
    kept: dict[str, list[list[npt.NDArray[np.generic]]]] = {kind: [] for kind in FEATURES}
    for tick in range(scenario.ticks):
        seen = features(see(batch.state, tick))
        there = {"market": batch.state.markets[:, :, OPEN] > 0}
        targets = []
        for kind, inputs in seen.items():
            if rng is None:
                choices, chances = policy.best(kind, inputs), np.zeros(inputs.shape[:-1])
            else:
                choices, chances = policy.sample(kind, inputs, rng)
            targets.append(choices - 1)
            kept[kind].append([inputs, choices, chances, there.get(kind, np.ones(choices.shape, dtype=bool))])
        _, reward, _ = batch.step(np.concatenate(targets, axis=1).astype(np.int8))
        total += reward
    columns = {kind: [np.stack(parts) for parts in zip(*rows, strict=True)] for kind, rows in kept.items()}
    return Played(total, *({kind: parts[at] for kind, parts in columns.items()} for at in range(4)))
