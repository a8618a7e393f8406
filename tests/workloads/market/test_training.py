"""Training on batches of worlds: repeatable, resumable, and played the same as an agent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.policy import FEATURES, FLAT, Policy, PolicyAgent, Reader, features, see
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.training import CHECKPOINT, FIRST_WORLD, LOG, Settings, Training, play
from bakeoff.workloads.market.world.advance import MarketBatch
from bakeoff.workloads.market.world.layout import OPEN
from bakeoff.workloads.market.world.world import World

SCENARIO = Scenario(duration_minutes=20, markets=4, perpetuals=2, agents=6)
SETTINGS = Settings(scenario=SCENARIO, iterations=3, windows=12, rollouts=4, learning_rate=0.03)


def train(directory: Path, settings: Settings = SETTINGS) -> Training:
    training = Training(settings, directory)
    list(training)
    return training


def opinionated() -> Policy:
    """A policy that does something everywhere."""
    policy, rng = Policy.start(FEATURES, 8, seed=3), np.random.default_rng(4)
    for network in policy.networks.values():
        network.outward[...] = rng.normal(size=network.outward.shape)
    return policy


@pytest.mark.slow
def test_the_same_seed_trains_the_same_policy_and_another_one_another(tmp_path: Path) -> None:
    first, second = train(tmp_path / "a"), train(tmp_path / "b")
    assert first.policy.version == second.policy.version != first.start.version
    assert first.log() == second.log()
    assert train(tmp_path / "c", replace(SETTINGS, seed=1)).policy.version != first.policy.version


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    stopped = Training(SETTINGS, tmp_path / "stopped")
    next(iter(stopped))
    with (tmp_path / "stopped" / LOG).open("a") as log:  # an iteration was logged, and its checkpoint never written
        log.write(json.dumps({"step": 2, "reward": 1e9}) + "\n")
    resumed = Training(SETTINGS, tmp_path / "stopped")
    assert resumed.done == 1
    list(resumed)
    assert resumed.policy.version == whole.policy.version
    assert resumed.log() == whole.log()


def test_a_training_does_not_go_on_with_other_settings(tmp_path: Path) -> None:
    train(tmp_path)
    other = replace(SETTINGS, learning_rate=0.5)
    with pytest.raises(UsageError, match="trained with other settings"):
        Training(other, tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    (tmp_path / "notes.txt").write_text("mine")
    assert Training(other, tmp_path, fresh=True).done == 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_training_does_not_go_on_from_what_is_broken_or_longer_than_asked_for(tmp_path: Path) -> None:
    train(tmp_path, replace(SETTINGS, iterations=2))
    with pytest.raises(UsageError, match="2 iterations already"):
        Training(replace(SETTINGS, iterations=1), tmp_path)
    (tmp_path / CHECKPOINT).write_bytes((tmp_path / CHECKPOINT).read_bytes()[:100])
    with pytest.raises(UsageError, match="--fresh"):
        Training(SETTINGS, tmp_path)


def test_groups_without_a_difference_teach_nothing(tmp_path: Path) -> None:
    """One tick is too short for anything to pay, but not for costs: only groups that all did nothing are equal."""
    flat = Training(Settings(scenario=SCENARIO, iterations=1, windows=6, rollouts=3, entropy=0.0), tmp_path)
    for network in flat.policy.networks.values():
        network.output[FLAT] = 50.0  # so likely that nothing else is ever drawn
    before = flat.policy.version
    (facts,) = flat
    assert (facts["groups"], facts["reward"]) == (0, 0.0)
    assert flat.policy.version == before


def test_training_worlds_are_none_that_an_experiment_would_use() -> None:
    assert FIRST_WORLD > 10**9


def test_what_a_seat_sees_gives_the_same_features_as_the_batch(tmp_path: Path) -> None:
    policy = opinionated()
    policy.save(tmp_path / "policy.json")
    seeds = np.arange(1, 4)
    batch = MarketBatch(SCENARIO, seeds)
    from_batch = []
    for tick in range(SCENARIO.ticks):
        seen = features(see(batch.state, tick))
        from_batch.append(
            {kind: rows.copy() for kind, rows in seen.items()} | {"open": batch.state.markets[:, :, OPEN] > 0}
        )
        targets = [policy.best(kind, seen[kind]) - 1 for kind in FEATURES]
        batch.step(np.concatenate(targets, axis=1))

    class Looking(PolicyAgent):
        def act(self, seat):  # type: ignore[no-untyped-def]
            perps, markets = seat.perpetuals(), seat.markets()
            mine = features(self.mine.see(seat, perps, markets, seat.positions()))
            expected = from_batch[seat.tick]
            is_open = expected["open"][self.world]
            np.testing.assert_allclose(mine["market"][0], expected["market"][self.world][is_open], atol=1e-5)
            np.testing.assert_allclose(mine["perp"][0], expected["perp"][self.world], atol=1e-5)
            super().act(seat)

    for number, seed in enumerate(seeds):
        agent = Looking(tmp_path / "policy.json")
        agent.mine, agent.world = Reader(), number
        episode = Episode(World.create(SCENARIO, int(seed)), [agent]).run()
        assert episode.players[0].errors == []


def test_a_policy_earns_as_an_agent_what_it_earns_in_the_batch(tmp_path: Path) -> None:
    policy = opinionated()
    policy.save(tmp_path / "policy.json")
    seeds = np.arange(1, 7)
    rewards = play(policy, SCENARIO, seeds, None).rewards
    assert len(set(rewards)) > 1
    for seed, reward in zip(seeds, rewards, strict=True):
        world = World.create(SCENARIO, int(seed))
        Episode(world, [load(f"policy:{tmp_path / 'policy.json'}")]).run()
        assert world.account(0).equity - 10_000 == pytest.approx(reward, abs=1e-3)


def test_a_policy_without_an_opinion_does_nothing(tmp_path: Path) -> None:
    start = Policy.start(FEATURES, 8, seed=0)
    assert (play(start, SCENARIO, np.arange(3), None).rewards == 0).all()
    assert (play(start, SCENARIO, np.arange(3), np.random.default_rng(0)).rewards != 0).all()


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    policy = opinionated()
    policy.save(tmp_path / "policy.json")
    again = Policy.load(tmp_path / "policy.json")
    assert again.version == policy.version == json.loads((tmp_path / "policy.json").read_text())["policy_version"]
    rows = np.random.default_rng(5).normal(size=(50, len(FEATURES["perp"])))
    assert (again.best("perp", rows) == policy.best("perp", rows)).all()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": "other"}'])
def test_a_file_that_is_no_policy_is_told_apart(tmp_path: Path, content: str) -> None:
    (tmp_path / "policy.json").write_text(content)
    with pytest.raises(UsageError, match="policy"):
        Policy.load(tmp_path / "policy.json")
    with pytest.raises(UsageError, match="cannot be read"):
        Policy.load(tmp_path / "absent.json")


def test_drawn_choices_come_as_often_as_their_chance_says() -> None:
    policy = opinionated()
    row = np.random.default_rng(6).normal(size=len(FEATURES["market"]))
    choices, chances = policy.sample("market", np.tile(row, (40_000, 1)), np.random.default_rng(7))
    for choice in range(3):
        drawn = choices == choice
        if drawn.any():
            assert drawn.mean() == pytest.approx(np.exp(chances[drawn][0]), abs=0.02)
