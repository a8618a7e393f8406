"""Rooms as Gymnasium environments, single and vector."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld.envs import ENV_ID, GridworldEnv, GridworldVectorEnv


@pytest.mark.parametrize("level", ["level_0", "terrain_2"])
def test_it_passes_gymnasiums_own_checks_without_a_warning(level: str) -> None:
    check_env(gymnasium.make(ENV_ID, level=level).unwrapped)  # warnings are errors here


def test_a_vector_is_bit_for_bit_its_single_environments() -> None:
    envs, rng = 4, np.random.default_rng(0)
    ours: Any = gymnasium.make_vec(ENV_ID, num_envs=envs, level="level_0", vectorization_mode="vector_entry_point")
    assert isinstance(ours.unwrapped, GridworldVectorEnv)
    theirs = SyncVectorEnv([lambda: GridworldEnv("level_0")] * envs, autoreset_mode=AutoresetMode.SAME_STEP)
    assert data_equivalence(plain(ours.reset(seed=7)), plain(theirs.reset(seed=7)))
    ends = 0
    for _ in range(300):
        actions = rng.integers(0, 5, envs)
        one, other = ours.step(actions), theirs.step(actions)
        assert data_equivalence(plain(one), plain(other))
        ends += int(one[3].sum())
        assert not one[2].any()
    assert ends >= 2 * envs


def plain(value: Any) -> Any:
    """Nested data with arrays as lists, so that only values count: Gymnasium gives its infos other integer types."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return plain(value.tolist()) if isinstance(value, np.ndarray) else value


def test_a_task_number_or_a_seed_draws_the_room_and_the_split_decides_which_half() -> None:
    env = GridworldEnv("level_1", split="held_out")
    _, info = env.reset(seed=3)
    assert info["task"] % 2 == 1
    first, _ = env.reset(options={"task": int(info["task"])})
    again, info_again = env.reset(seed=3)
    assert data_equivalence(first, again) and info_again == info
    assert GridworldEnv("level_1").reset(seed=3)[1]["task"] % 2 == 0
    with pytest.raises(UsageError, match="from 0 to"):
        env.reset(options={"task": -1})


def test_the_reward_has_the_declared_shaping_and_the_episode_is_cut_at_the_horizon() -> None:
    env = GridworldEnv("level_0", shaping=0.0)
    env.reset(seed=1)
    rewards, steps, cut = set(), 0, False
    while not cut:
        _, reward, terminated, cut, info = env.step(steps % 5)
        rewards.add(reward)
        steps += 1
        assert not terminated
    assert rewards <= {0.0, 1.0} and steps == info["step"] == env.worlds.steps[0]


def test_it_is_rendered_as_text_and_as_a_picture() -> None:
    text = gymnasium.make(ENV_ID, render_mode="ansi")
    text.reset(seed=1)
    assert "@" in str(text.render()) and "hearts 0" in str(text.render())
    drawn = gymnasium.make(ENV_ID, render_mode="rgb_array")
    drawn.reset(seed=1)
    picture = drawn.render()
    assert isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2] == 3


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'terrain_1'"):
        gymnasium.make(ENV_ID, level="terain_1")
    with pytest.raises(ValueError, match="2 seeds for 3"):
        GridworldVectorEnv(3).reset(seed=[1, 2])
    with pytest.raises(gymnasium.error.ResetNeeded):
        GridworldEnv().step(0)
