"""Group-relative advantages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bakeoff.stats.advantages import group_relative, varies

REWARDS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.floats(-1e6, 1e6))


@given(REWARDS)
def test_advantages_are_centred_and_ordered_like_rewards(rewards: np.ndarray) -> None:
    advantages = group_relative(rewards)
    assert np.abs(advantages.mean(axis=-1)).max() < 1e-6
    for reward, advantage in zip(rewards, advantages, strict=True):
        assert (np.diff(advantage[np.argsort(reward)]) >= 0).all()


@given(REWARDS)
def test_equal_rewards_say_exactly_nothing(rewards: np.ndarray) -> None:
    advantages = group_relative(rewards)
    assert (advantages[~varies(rewards)] == 0).all()
    assert (group_relative(np.full(3, 0.1)) == 0).all()  # whose mean is not 0.1 in floating point


def test_the_scale_of_rewards_does_not_matter() -> None:
    rewards = np.array([1.0, 2.0, 6.0])
    assert group_relative(rewards) == pytest.approx(group_relative(1000 * rewards - 7), rel=1e-5)
    assert group_relative(rewards).std() == pytest.approx(1, rel=1e-5)
