"""The network's gradients are right, and learning makes better choices likelier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bakeoff.workloads.market.policy import Network, log_softmax
from bakeoff.workloads.market.training import Adam, Decisions, surrogate_gradient

CLIP = 0.2


def made(network: Network, rng: np.random.Generator, n: int = 40) -> Decisions:
    inputs = rng.normal(size=(n, 4))
    chances = log_softmax(network.logits(inputs))
    choices = rng.integers(3, size=n)
    old = chances[np.arange(n), choices] + rng.normal(0, 0.2, n)  # as if from an earlier policy, so that some clip
    return Decisions(inputs, choices, old, rng.normal(size=n))


def loss(network: Network, decisions: Decisions, entropy: float) -> float:
    chances = log_softmax(network.logits(decisions.features))
    rows = np.arange(len(decisions.choices))
    ratio = np.exp(chances[rows, decisions.choices] - decisions.log_chance)
    clipped = np.clip(ratio, 1 - CLIP, 1 + CLIP)
    surrogate = np.minimum(ratio * decisions.advantages, clipped * decisions.advantages)
    disorder = -(np.exp(chances) * chances).sum(axis=-1)
    return float(-(surrogate + entropy * disorder).mean())


def test_the_gradient_is_that_of_the_clipped_surrogate() -> None:
    rng = np.random.default_rng(1)
    network = Network(*(rng.normal(size=array.shape) for array in Network.start(4, 5, rng).arrays))
    decisions, step = made(network, rng), 1e-6
    gradient, ratio = surrogate_gradient(network, decisions, CLIP, 0.1)
    assert (abs(ratio - 1) > CLIP).any()  # otherwise clipping would not have been tried
    for weights, slopes in zip(network.arrays, gradient.arrays, strict=True):
        for at in np.ndindex(weights.shape):
            middle = weights[at]
            weights[at] = middle + step
            above = loss(network, decisions, 0.1)
            weights[at] = middle - step
            below = loss(network, decisions, 0.1)
            weights[at] = middle
            assert slopes[at] == pytest.approx((above - below) / (2 * step), abs=1e-6)


def test_learning_finds_the_choice_that_pays() -> None:
    """Long pays where the first feature is positive, short where it is negative."""
    rng = np.random.default_rng(2)
    network = Network.start(2, 8, rng)
    adam = Adam(0.05)
    for _ in range(60):
        inputs = rng.normal(size=(200, 2))
        chances = log_softmax(network.logits(inputs))
        choices = np.array([rng.choice(3, p=np.exp(row)) for row in chances])
        rewards = (choices - 1) * np.sign(inputs[:, 0])
        decisions = Decisions(inputs, choices, chances[np.arange(200), choices], rewards - rewards.mean())
        gradient, _ = surrogate_gradient(network, decisions, CLIP, 0.0)
        adam.descend({"one": network}, {"one": gradient})
    best = network.logits(np.array([[1.0, 0.3], [-1.0, 0.3]])).argmax(axis=-1)
    assert best.tolist() == [2, 0]


def test_advantages_of_nothing_change_nothing() -> None:
    rng = np.random.default_rng(3)
    network = Network.start(4, 5, rng)
    gradient, _ = surrogate_gradient(network, replace(made(network, rng), advantages=np.zeros(40)), CLIP, 0.0)
    assert all((array == 0).all() for array in gradient.arrays)
