"""Group-relative policy gradient: decisions of rollouts that did better than their group become likelier.

`play` rolls a policy out in many worlds at once and keeps every decision. Every decision of a rollout gets the rollout's
advantage over its group, the other rollouts of the same world (Shao et al. 2024, DeepSeekMath: GRPO); there is no critic.
`surrogate_gradient` clips the ratio of new to old probability (Schulman et al. 2017, PPO), so one batch serves several steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.training.features import FEATURES, features, see
from bakeoff.workloads.market.training.policy import Network, Policy, log_softmax
from bakeoff.workloads.market.world.layout import OPEN, Floats, Ints


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided for the instruments of one kind, one row each."""

    features: Floats  # [n, features]
    choices: Ints  # [n]
    log_chance: Floats  # [n]: of the choice, under the policy that made it
    advantages: Floats  # [n]: of the rollout it belongs to


@dataclass(frozen=True, slots=True)
class Played:
    """n rollouts from the first tick to the last; what was decided is kept by kind of instrument."""

    rewards: Floats  # [n]: change of equity, in dollars
    features: dict[str, Floats]  # [ticks, n, instruments, features]
    choices: dict[str, Ints]  # [ticks, n, instruments]
    log_chances: dict[str, Floats]
    present: dict[str, NDArray[np.bool_]]
    """Whether there was anything to decide: a market slot can be between two questions."""

    def decisions(self, kind: str, advantages: Floats, useful: NDArray[np.bool_]) -> Decisions:
        """Those of the useful rollouts [n], each with its rollout's advantage [n]."""
        chosen = self.present[kind] & useful[None, :, None]
        spread = np.broadcast_to(advantages[None, :, None], chosen.shape)
        return Decisions(
            self.features[kind][chosen], self.choices[kind][chosen], self.log_chances[kind][chosen], spread[chosen]
        )


def play(policy: Policy, scenario: Scenario, seeds: Ints, rng: np.random.Generator | None) -> Played:
    """One rollout for each seed; equal seeds are the same world. Without `rng` the likeliest choices are made."""
    batch = MarketBatch(scenario, seeds)
    total = np.zeros(len(seeds))
    kept: dict[str, list[list[NDArray[np.generic]]]] = {kind: [] for kind in FEATURES}
    for tick in range(scenario.ticks):
        targets = []
        for kind, inputs in features(see(batch.state, tick)).items():
            if rng is None:
                choices, chances = policy.best(kind, inputs), np.zeros(inputs.shape[:-1])
            else:
                choices, chances = policy.sample(kind, inputs, rng)
            is_open = batch.state.markets[:, :, OPEN] > 0
            present = is_open if kind == "market" else np.ones(choices.shape, dtype=bool)
            targets.append(choices - 1)
            kept[kind].append([inputs, choices, chances, present])
        _, reward, _ = batch.step(np.concatenate(targets, axis=1).astype(np.int8))
        total += reward
    columns = {kind: [np.stack(parts) for parts in zip(*rows, strict=True)] for kind, rows in kept.items()}
    return Played(total, *({kind: parts[number] for kind, parts in columns.items()} for number in range(4)))


def surrogate_gradient(network: Network, made: Decisions, clip: float, entropy: float) -> tuple[Network, Floats]:
    """Gradient of the clipped surrogate loss, and the ratio of new to old probability of each choice.

    The loss is the negative mean over decisions of min(ratio * A, clip(ratio) * A) + entropy * (entropy of the policy). Where
    the clipped term is the smaller one, it does not depend on the weights and the gradient is 0.
    """
    chances = log_softmax(network.logits(made.features))
    rows = np.arange(len(made.choices))
    ratio = np.exp(chances[rows, made.choices] - made.log_chance)
    # Where clipping does not bind: the ratio may still grow (or shrink, for a negative advantage).
    free = np.where(made.advantages >= 0, ratio < 1 + clip, ratio > 1 - clip)
    pull = np.where(free, ratio * made.advantages, 0.0)
    share = np.exp(chances)
    # d log p(choice) / d logits = one_hot(choice) - share, times -ratio * advantage.
    downstream = share * pull[:, None]
    downstream[rows, made.choices] -= pull
    disorder = -(share * chances).sum(axis=-1, keepdims=True)
    downstream += entropy * share * (chances + disorder)
    return network.gradient(made.features, downstream / len(rows)), ratio


@dataclass(slots=True)
class Adam:
    """Adam (Kingma and Ba 2015) with the usual decay rates 0.9 and 0.999; `first` and `second` are its moments."""

    rate: float
    steps: int = 0
    first: dict[str, Network] = field(default_factory=dict)
    second: dict[str, Network] = field(default_factory=dict)

    def descend(self, networks: Mapping[str, Network], gradients: Mapping[str, Network]) -> None:
        """One step against the gradients, in place."""
        self.steps += 1
        for name, network in networks.items():
            first = self.first.setdefault(name, network.zeros())
            second = self.second.setdefault(name, network.zeros())
            parts = zip(network.arrays, gradients[name].arrays, first.arrays, second.arrays, strict=True)
            for weights, gradient, mean, square in parts:
                # Moments start at 0; the denominators below correct that bias.
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient * gradient - square)
                scale = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
                weights -= self.rate * mean / (1 - 0.9**self.steps) / scale
