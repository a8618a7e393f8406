"""A small network in NumPy: one hidden layer, three outputs (short, flat, long), shared by all instruments of a kind."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
TARGETS = 3
"""Short or NO, nothing, long or YES: the target is the choice less one."""


@dataclass(slots=True)
class Network:
    """Weights, and anything of their shape: a gradient, or a moment of one."""

    inward: Floats  # [features, hidden]
    hidden: Floats  # [hidden]
    outward: Floats  # [hidden, TARGETS]
    output: Floats  # [TARGETS]

    @classmethod
    def start(cls, features: int, hidden: int, rng: np.random.Generator) -> Network:
        """All choices alike: the outward weights are 0, so only training gives the network an opinion."""
        inward = rng.normal(0.0, 1 / np.sqrt(features), (features, hidden))
        return cls(inward, np.zeros(hidden), np.zeros((hidden, TARGETS)), np.zeros(TARGETS))

    @property
    def arrays(self) -> list[Floats]:
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
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
