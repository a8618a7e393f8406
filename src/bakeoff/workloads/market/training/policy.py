"""A policy: a small network for each kind of instrument that chooses short, flat or long from its features.

Its file is JSON, so that it can be read, compared and mailed; `policy_version` is a digest of everything that decides
how it plays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market.world.layout import MICRO, Floats, Ints
from bakeoff.workloads.market.world.seats import BET, LEVERAGE, SIZE

FORMAT = "bakeoff-market-policy-1"
TARGETS = 3
"""Short or NO, nothing, long or YES: the target is the choice less one."""
FLAT = 1
"""The choice that holds nothing."""


@dataclass(slots=True)
class Network:
    """A network with one hidden layer in NumPy. Also anything of its shape: a gradient, or a moment of one."""

    inward: Floats  # [features, hidden]
    hidden: Floats  # [hidden]
    outward: Floats  # [hidden, TARGETS]
    output: Floats  # [TARGETS]

    @classmethod
    def start(cls, features: int, hidden: int, rng: np.random.Generator) -> Network:
        """All choices are equally likely: the outward weights are 0, so only training gives the network an opinion."""
        inward = rng.normal(0.0, 1 / np.sqrt(features), (features, hidden))
        return cls(inward, np.zeros(hidden), np.zeros((hidden, TARGETS)), np.zeros(TARGETS))

    @property
    def arrays(self) -> list[Floats]:
        """All weights, in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]

    def zeros(self) -> Network:
        return Network(*(np.zeros_like(array) for array in self.arrays))

    def logits(self, features: Floats) -> Floats:
        """[..., features] -> [..., TARGETS]"""
        return np.asarray(np.tanh(features @ self.inward + self.hidden) @ self.outward + self.output)

    def gradient(self, features: Floats, downstream: Floats) -> Network:
        """Of a loss whose gradient by the logits [n, TARGETS] is `downstream`, for features [n, features]."""
        active = np.tanh(features @ self.inward + self.hidden)
        back = (downstream @ self.outward.T) * (1 - active * active)
        return Network(features.T @ back, back.sum(axis=0), active.T @ downstream, downstream.sum(axis=0))


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities over the last axis. The maximum is subtracted first, so that exp does not overflow."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True, slots=True)
class Stakes:
    """The size of a choice in dollars: shares bought for a YES or NO, and the notional of a long or short.

    These are the sizes of a batch's targets. They are kept with the policy, which has learnt with them.
    """

    market: float = BET / MICRO
    perp: float = SIZE / MICRO
    leverage: float = LEVERAGE


@dataclass(slots=True)
class Policy:
    """Networks with the names of their inputs and the stakes of their choices."""

    networks: dict[str, Network]
    """By kind of instrument, "market" and "perp"."""
    features: Mapping[str, Sequence[str]]
    """The names of each kind's features, in the order of its network's inputs."""
    stakes: Stakes = Stakes()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained; this does not decide how it plays."""

    @classmethod
    def start(cls, features: Mapping[str, Sequence[str]], hidden: int, seed: int) -> Policy:
        """A policy without an opinion."""
        rng = np.random.default_rng([seed, 0])
        return cls({kind: Network.start(len(names), hidden, rng) for kind, names in features.items()}, features)

    def sample(self, kind: str, features: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """For each row of features a choice, drawn by its probability, and the logarithm of that probability."""
        chances = log_softmax(self.networks[kind].logits(features))
        # Inverse transform sampling; rounding may leave the last sum below 1, hence the minimum.
        drawn = rng.random(chances.shape[:-1])[..., None]
        choices = np.minimum((np.exp(chances).cumsum(axis=-1) < drawn).sum(axis=-1), TARGETS - 1)
        return choices, np.take_along_axis(chances, choices[..., None], axis=-1)[..., 0]

    def best(self, kind: str, features: Floats) -> Ints:
        """The likeliest choice; flat unless another one is likelier."""
        logits = self.networks[kind].logits(features)
        best = logits.argmax(axis=-1)
        undecided = np.take_along_axis(logits, best[..., None], axis=-1)[..., 0] <= logits[..., FLAT]
        return np.where(undecided, FLAT, best)

    @property
    def version(self) -> str:
        """Twelve hex digits of a digest over everything that decides how it plays."""
        return hashlib.sha256(canonical_json(self._plays()).encode()).hexdigest()[:12]

    def _plays(self) -> dict[str, Any]:
        weights = {
            kind: {part.name: getattr(network, part.name).tolist() for part in fields(network)}
            for kind, network in self.networks.items()
        }
        names = {kind: list(names) for kind, names in self.features.items()}
        return {"features": names, "stakes": asdict(self.stakes), "weights": weights}

    def save(self, path: Path) -> None:
        """Write the policy as JSON; `load` reads it."""
        content = {"format": FORMAT, "policy_version": self.version, "facts": dict(self.facts), **self._plays()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Raises UsageError, with the path and the fix, when the file is not a policy."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise UsageError(f"{path}: a policy of format {content['format']!r}; this bakeoff reads {FORMAT!r}")
            networks = {
                kind: Network(**{part.name: np.array(weights[part.name], dtype=np.float64) for part in fields(Network)})
                for kind, weights in content["weights"].items()
            }
            return cls(networks, content["features"], Stakes(**content["stakes"]), content["facts"])
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not a policy; `bakeoff market train` writes one ({error!r})") from error
