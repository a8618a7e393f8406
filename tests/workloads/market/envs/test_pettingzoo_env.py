"""Several seats in one world as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from pettingzoo.test import parallel_api_test, parallel_seed_test

from bakeoff.workloads.market.envs.gymnasium_env import MarketEnv
from bakeoff.workloads.market.envs.pettingzoo_env import MarketParallelEnv
from bakeoff.workloads.market.scenario import Scenario

SMALL = Scenario(duration_minutes=8, markets=3, perpetuals=2, agents=4)
KINDS = ["targets", "dollars"]


@pytest.mark.parametrize("actions", KINDS)
def test_it_passes_pettingzoos_own_checks_without_a_warning(actions: Any) -> None:
    parallel_api_test(MarketParallelEnv(3, SMALL, actions), num_cycles=20)
    parallel_seed_test(lambda: MarketParallelEnv(2, SMALL, actions), num_cycles=20)


@pytest.mark.parametrize("actions", KINDS)
def test_a_world_with_one_seat_is_the_single_environment(actions: Any) -> None:
    single, shared = MarketEnv(SMALL, actions), MarketParallelEnv(1, SMALL, actions)
    (agent,) = shared.possible_agents
    for seed in range(6):
        seen, _ = single.reset(seed=seed)
        np.testing.assert_array_equal(seen, shared.reset(seed=seed)[0][agent])
        single.action_space.seed(seed)
        while shared.agents:
            chosen = single.action_space.sample()
            seen, reward, ended, _, info = single.step(chosen)
            there = [part[agent] for part in shared.step({agent: chosen})]
            np.testing.assert_array_equal(seen, there[0])
            assert (ended, info["tick"]) == (there[2], there[4]["tick"])
            assert reward == pytest.approx(there[1], abs=1e-9)


def test_seats_see_the_same_world_and_their_own_account() -> None:
    env = MarketParallelEnv(2, SMALL)
    env.reset(seed=4)
    long, idle = np.array([1, 1, 1, 2, 1]), np.ones(5, np.int64)
    seen, rewards, *_ = env.step({"player-1": idle, "player-2": long})
    names = list(env.feature_names)
    own = [names.index(name) for name in ("BTCX.position", "cash", "equity")]
    rest = [at for at in range(len(names)) if at not in own]
    np.testing.assert_array_equal(seen["player-1"][rest], seen["player-2"][rest])
    assert seen["player-1"][own].tolist() == [0.0, 1.0, 1.0]
    assert seen["player-2"][own[0]] == pytest.approx(1.0, rel=0.05)
    assert rewards["player-1"] == 0 and rewards["player-2"] != 0


def test_nobody_is_first_because_of_the_order_in_which_actions_are_given() -> None:
    row = np.array([2, 2, 2, 2, 2])
    ends = []
    for order in (("player-1", "player-2"), ("player-2", "player-1")):
        env = MarketParallelEnv(2, SMALL)
        env.reset(seed=4)
        ends.append([env.step({agent: row for agent in order})[1] for _ in range(4)])
    assert ends[0] == ends[1]


def test_an_agent_without_an_action_does_nothing_and_everybody_leaves_at_the_end() -> None:
    env = MarketParallelEnv(2, SMALL, render_mode="ansi")
    env.reset(seed=4)
    while env.agents:
        _, rewards, ended, cut, _ = env.step({})
    assert rewards == {"player-1": 0.0, "player-2": 0.0}
    assert all(ended.values()) and not any(cut.values())
    assert "player-2" in (env.render() or "")


@pytest.mark.parametrize(
    ("actions", "action", "words"),
    [
        ("targets", [1, 1, 1], "5 numbers"),
        ("targets", [1, 1, 1, 1, 3], "a target is"),
        ("targets", [1, 1, 1, 1, 0.5], "a target is"),
        ("targets", None, "5 numbers"),
        ("dollars", [0.5], "5 numbers"),
        ("dollars", [0.5, 0, 0, 0, np.nan], "finite"),
    ],
)
def test_what_is_no_action_is_refused_here_and_in_the_single_environment(actions: Any, action: Any, words: str) -> None:
    single, shared = MarketEnv(SMALL, actions), MarketParallelEnv(2, SMALL, actions)
    single.reset(seed=1), shared.reset(seed=1)
    for step in (lambda: single.step(action), lambda: shared.step({"player-2": action})):
        with pytest.raises(ValueError, match=words):
            step()
    with pytest.raises(ValueError, match="there is no agent 'nobody'"):
        shared.step({"nobody": shared.action_space("player-1").sample()})


def test_a_world_comes_with_the_first_reset() -> None:
    with pytest.raises(ResetNeeded):
        MarketParallelEnv(scenario="quick").step({})
