"""Group-relative policy gradient: decisions of rollouts that did better than their group become likelier.

Every decision of a rollout gets the rollout's advantage. The ratio of new to old probability is clipped, so that one batch
can be used for several steps. There is no critic: the other rollouts of the same world are the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.market.training.network import Floats, Network, log_softmax


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided for the instruments of one kind, one row each."""

    features: Floats  # [n, features]
    choices: npt.NDArray[np.int64]  # [n]
    log_chance: Floats  # [n]: of the choice, under the policy that made it
    advantages: Floats  # [n]: of the rollout it belongs to


@dataclass(slots=True)
class Adam:
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
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient * gradient - square)
                scale = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
                weights -= self.rate * mean / (1 - 0.9**self.steps) / scale


def surrogate_gradient(network: Network, made: Decisions, clip: float, entropy: float) -> tuple[Network, Floats]:
    """Gradient of the clipped surrogate loss (its mean over decisions, less `entropy` times the policy's entropy), and
    how likely each choice has become, as a ratio."""
    chances = log_softmax(network.logits(made.features))
    rows = np.arange(len(made.choices))
    ratio = np.exp(chances[rows, made.choices] - made.log_chance)
    free = np.where(made.advantages >= 0, ratio < 1 + clip, ratio > 1 - clip)
    pull = np.where(free, ratio * made.advantages, 0.0)
    share = np.exp(chances)
    downstream = share * pull[:, None]
    downstream[rows, made.choices] -= pull
    disorder = -(share * chances).sum(axis=-1, keepdims=True)
    downstream += entropy * share * (chances + disorder)
    return network.gradient(made.features, downstream / len(rows)), ratio
