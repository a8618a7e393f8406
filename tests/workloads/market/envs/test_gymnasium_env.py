"""One seat as a Gymnasium environment, and many worlds as a vector of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.workloads.market.envs import ENV_ID
from bakeoff.workloads.market.envs.gymnasium_env import MarketEnv, MarketVectorEnv
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.world import World

SMALL = Scenario(duration_minutes=8, markets=3, perpetuals=2, agents=4)
KINDS = ["targets", "dollars"]
SEEDS = st.integers(0, 2**63 - 1)


def rollout(env: gymnasium.Env[Any, Any], seed: int, actions_seed: int = 0) -> list[Any]:
    env.action_space.seed(actions_seed)
    steps: list[Any] = [env.reset(seed=seed)]
    while True:
        step = env.step(env.action_space.sample())
        steps.append(step)
        if step[2]:
            return steps


@pytest.mark.parametrize("actions", KINDS)
def test_it_passes_gymnasiums_own_checks_without_a_warning(actions: str) -> None:
    check_env(gymnasium.make(ENV_ID, actions=actions, scenario=SMALL).unwrapped)  # warnings are errors here


@pytest.mark.parametrize("actions", KINDS)
@given(seed=SEEDS, actions_seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_the_same_seed_and_actions_give_the_same_episode(actions: Any, seed: int, actions_seed: int) -> None:
    one, other = (rollout(MarketEnv(SMALL, actions), seed, actions_seed) for _ in range(2))
    assert data_equivalence(one, other, exact=True)
    assert len(one) == SMALL.ticks + 1


def test_the_seed_draws_the_world_that_every_other_face_has_for_it() -> None:
    env = MarketEnv(SMALL, secret="for tests")
    env.reset(seed=5)
    assert env.world.key == World.create(SMALL, 5, secret="for tests").key


def test_rewards_add_up_to_the_change_of_equity() -> None:
    env = MarketEnv(SMALL)
    steps = rollout(env, seed=9)
    total = sum(step[1] for step in steps[1:])
    assert total == pytest.approx(env.world.account(0).equity - 10_000, abs=1e-6)
    assert total != 0


def test_a_target_is_a_position_and_flat_is_none() -> None:
    env = MarketEnv(SMALL)
    env.reset(seed=9)
    env.step(np.array([2, 0, 1, 2, 0]))
    held = env.world.positions(0)
    assert [view.side for view in held.markets] == ["YES", "NO"]
    assert [(view.ticker, view.side) for view in held.perps] == [("BTCX", "LONG"), ("ETHX", "SHORT")]
    env.step(np.ones(5, np.int64))
    held = env.world.positions(0)
    assert held.markets == held.perps == ()


def test_dollars_are_shares_of_a_full_size() -> None:
    env = MarketEnv(SMALL, "dollars")
    env.reset(seed=9)
    env.step(np.array([0.5, 0, 0, 0, -0.25], np.float32))
    held = env.world.positions(0)
    assert held.markets[0].cost == pytest.approx(50, abs=0.01)
    assert held.perps[0].side == "SHORT" and held.perps[0].size == pytest.approx(250, rel=0.05)


def test_a_slot_without_a_question_can_only_be_left_alone() -> None:
    env = MarketEnv({"duration_minutes": 60, "markets": 6, "perpetuals": 1})
    closed = 0
    for seed in range(3):
        for seen, *_, info in rollout(env, seed):
            *markets, perp = info["action_mask"]
            prices = seen[[env.feature_names.index(f"slot{m}.price") for m in range(6)]]
            assert [row.tolist() for row in markets] == [[1, 1, 1] if price > 0 else [0, 1, 0] for price in prices]
            assert perp.all()
            closed += int((prices == 0).sum())
            assert (
                env.action_space.sample(mask=info["action_mask"])[:6][prices == 0].tolist() == [1] * (prices == 0).sum()
            )
    assert closed, "no slot was ever between two questions"


def test_options_change_the_scenario_of_one_episode_but_not_its_size() -> None:
    env = MarketEnv(SMALL)
    env.reset(seed=1, options={"scenario": {"regime": "crash", "tier": "hard"}})
    assert (env.world.scenario.regime, env.world.scenario.markets) == ("crash", 3)
    env.reset(seed=1)
    assert env.world.scenario == SMALL
    with pytest.raises(UsageError, match="3 markets"):
        env.reset(options={"scenario": {"markets": 4}})
    with pytest.raises(UsageError, match="preset"):
        MarketEnv("no-such-preset")
    with pytest.raises(UsageError, match="targets"):
        MarketEnv(SMALL, "pounds")  # type: ignore[arg-type]


def test_it_is_rendered_as_text() -> None:
    env = gymnasium.make(ENV_ID, scenario=SMALL, render_mode="ansi")
    env.reset(seed=3)
    env.step(np.array([2, 1, 1, 1, 1]))
    drawn = env.render()
    assert isinstance(drawn, str)
    assert "tick 1 of 8" in drawn and "YES" in drawn and "BTCX" in drawn


@pytest.mark.parametrize("actions", KINDS)
def test_a_vector_is_bit_for_bit_so_many_single_environments(actions: Any) -> None:
    together = MarketVectorEnv(3, SMALL, actions)
    apart = SyncVectorEnv([lambda: MarketEnv(SMALL, actions)] * 3)
    assert together.observation_space == apart.observation_space
    assert together.action_space == apart.action_space
    together.action_space.seed(4)
    np.testing.assert_array_equal(together.reset(seed=20)[0], apart.reset(seed=20)[0])
    for _ in range(2 * SMALL.ticks + 3):  # over two ends, so that new worlds are drawn
        chosen = together.action_space.sample()
        for one, other in zip(together.step(chosen)[:4], apart.step(chosen)[:4], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_vector_is_made_by_name_and_masks_all_worlds_at_once() -> None:
    envs = gymnasium.make_vec(ENV_ID, num_envs=4, scenario=SMALL)
    assert isinstance(envs.unwrapped, MarketVectorEnv)
    _, info = envs.reset(seed=0)
    assert info["action_mask"].shape == (4, 5, 3)
    seen, rewards, ended, cut, after = envs.step(envs.action_space.sample())
    assert (info["tick"].tolist(), after["tick"].tolist()) == ([0] * 4, [1] * 4)
    assert seen in envs.observation_space
    assert rewards.shape == ended.shape == cut.shape == (4,)
    with pytest.raises(ValueError, match="3 seeds for 4"):
        envs.unwrapped.reset(seed=[1, 2, 3])


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        MarketEnv(SMALL).step(np.ones(5))
    with pytest.raises(gymnasium.error.ResetNeeded):
        MarketVectorEnv(2, SMALL).step(np.ones((2, 5)))
