"""Group-relative advantages: how much better a rollout was than the others of its group, in their standard deviations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EPSILON = 1e-6


def group_relative(rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """`(r - mean) / (std + 1e-6)` along the last axis, which is the group; std divides by n.

    A group whose rewards are all equal says nothing about its rollouts: its advantages are exactly 0, whatever rounding
    makes of its mean.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    centred = rewards - rewards.mean(axis=-1, keepdims=True)
    advantages = centred / (rewards.std(axis=-1, keepdims=True) + EPSILON)
    return np.where(varies(rewards)[..., None], advantages, 0.0)


def varies(rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which groups (last axis) have rewards that differ."""
    return np.asarray(rewards.max(axis=-1) > rewards.min(axis=-1))
