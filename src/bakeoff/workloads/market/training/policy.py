"""A policy: for each instrument, what it looks like as numbers, and a network that chooses short, flat or long.

The file is JSON, so that it can be read, compared and mailed; `policy_version` is a digest of everything that decides how it
plays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market.training.network import TARGETS, Floats, Network, log_softmax
from bakeoff.workloads.market.world.layout import MICRO
from bakeoff.workloads.market.world.seats import BET, LEVERAGE, SIZE

FORMAT = "bakeoff-market-policy-1"
FLAT = 1
"""The choice that holds nothing."""


@dataclass(frozen=True, slots=True)
class Stakes:
    """What a choice is worth, in dollars: shares bought for a YES or NO, and the notional of a long or short.

    As in a batch's targets; kept with the policy, which has learnt with these.
    """

    market: float = BET / MICRO
    perp: float = SIZE / MICRO
    leverage: float = LEVERAGE


@dataclass(slots=True)
class Policy:
    networks: dict[str, Network]
    """By kind of instrument."""
    features: Mapping[str, Sequence[str]]
    """The names of each kind's features, in the order of its network's inputs."""
    stakes: Stakes = Stakes()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it came about; does not decide how it plays."""

    @classmethod
    def start(cls, features: Mapping[str, Sequence[str]], hidden: int, seed: int) -> Policy:
        """A policy without an opinion."""
        rng = np.random.default_rng([seed, 0])
        return cls({kind: Network.start(len(names), hidden, rng) for kind, names in features.items()}, features)

    def sample(self, kind: str, features: Floats, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], Floats]:
        """A choice for each row of features, drawn by its chance, and the logarithm of that chance."""
        chances = log_softmax(self.networks[kind].logits(features))
        drawn = rng.random(chances.shape[:-1])[..., None]
        choices = np.minimum((np.exp(chances).cumsum(axis=-1) < drawn).sum(axis=-1), TARGETS - 1)
        return choices, np.take_along_axis(chances, choices[..., None], axis=-1)[..., 0]

    def best(self, kind: str, features: Floats) -> npt.NDArray[np.int64]:
        """The likeliest choice; flat unless another one is likelier."""
        logits = self.networks[kind].logits(features)
        best = logits.argmax(axis=-1)
        undecided = np.take_along_axis(logits, best[..., None], axis=-1)[..., 0] <= logits[..., FLAT]
        return np.where(undecided, FLAT, best)

    @property
    def version(self) -> str:
        return hashlib.sha256(canonical_json(self._plays()).encode()).hexdigest()[:12]

    def _plays(self) -> dict[str, Any]:
        """Everything that decides how it plays."""
        weights = {
            kind: {part.name: getattr(network, part.name).tolist() for part in fields(network)}
            for kind, network in self.networks.items()
        }
        names = {kind: list(names) for kind, names in self.features.items()}
        return {"features": names, "stakes": asdict(self.stakes), "weights": weights}

    def save(self, path: Path) -> None:
        content = {"format": FORMAT, "policy_version": self.version, "facts": dict(self.facts), **self._plays()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Policy:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise UsageError(
                    f"{path}: is a policy of the format {content['format']!r}; this bakeoff reads {FORMAT!r}"
                )
            networks = {
                kind: Network(**{part.name: np.array(weights[part.name], dtype=np.float64) for part in fields(Network)})
                for kind, weights in content["weights"].items()
            }
            found = cls(networks, content["features"], Stakes(**content["stakes"]), content["facts"])
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: is no policy; `bakeoff market train` writes one ({error!r})") from error
        return found
