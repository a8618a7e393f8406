"""Rooms come from task numbers alone, can always be solved, and follow the rules, in batches as one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld import rooms as at
from bakeoff.workloads.gridworld.episode import Episode, snapshot
from bakeoff.workloads.gridworld.levels import APPEARANCES, LEVELS, RESOURCES, Level, find_level
from bakeoff.workloads.gridworld.walkers import Clairvoyant, make_walker, unreachable_stations
from bakeoff.workloads.gridworld.world import ACTIONS, OBSERVATION, Worlds, task_numbers
from workloads.gridworld.plain import PlainRoom

TASKS = st.integers(0, 2**64 - 1)
NAMES = st.sampled_from(sorted(LEVELS))


def numbers(*tasks: int) -> np.ndarray:
    return np.array(tasks, np.uint64)


def batch(level: str, count: int, seed: int = 1, **settings: float) -> Worlds:
    return Worlds(find_level(level), task_numbers(np.random.default_rng(seed), count, "train"), **settings)


# -- rooms


@given(task=TASKS, name=NAMES)
@settings(max_examples=30, deadline=None)
def test_the_same_number_is_the_same_room(task: int, name: str) -> None:
    one, other = (snapshot(Worlds(find_level(name), numbers(task))) for _ in range(2))
    assert one == other


def test_other_numbers_are_other_rooms() -> None:
    worlds = batch("terrain_2", 1000)
    assert len({grid.tobytes() for grid in worlds.grid}) == 1000


@pytest.mark.parametrize("name", LEVELS)
def test_rooms_are_as_their_level_says(name: str) -> None:
    level, worlds = find_level(name), batch(name, 400)
    room = worlds.rooms
    assert set(room[:, at.CHAIN]) == set(level.chain_lengths)
    assert set(room[:, at.SINKS]) == set(level.sinks)
    sides = set(room[:, at.WIDTH]) | set(room[:, at.HEIGHT])
    assert sides == {side for low, high in level.sizes for side in range(low, high + 1)}
    assert worlds.horizons.max() <= level.horizon
    blocks = [any("#" in row[1:-1] for row in snapshot_of(worlds, env).walls[1:-1]) for env in range(400)]
    assert any(blocks) == (level.terrains != ("none",))
    assert not all(blocks)


def snapshot_of(worlds: Worlds, env: int) -> Episode:
    return snapshot(Worlds(worlds.level, worlds.tasks[env : env + 1]))


@given(task=TASKS, name=NAMES)
@settings(max_examples=50, deadline=None)
def test_stations_look_different_and_stand_in_the_wall_but_not_in_corners(task: int, name: str) -> None:
    room = snapshot(Worlds(find_level(name), numbers(task)))
    assert len({station.look for station in room.stations}) == len(room.stations)
    right, bottom = len(room.walls[0]) - 1, len(room.walls) - 1
    for station in room.stations:
        assert (station.x in (0, right)) != (station.y in (0, bottom))


@pytest.mark.slow
def test_every_station_of_a_hundred_thousand_rooms_can_be_reached() -> None:
    rng = np.random.default_rng(2026)
    for name, count in {"terrain_2": 50_000, "level_0": 20_000, "terrain_4": 20_000, "full": 10_000}.items():
        for split in ("train", "held_out"):
            worlds = Worlds(find_level(name), task_numbers(rng, count // 2, split))  # type: ignore[arg-type]
            side = worlds.grid.shape[1]
            scratch = np.zeros((side, side), np.int16), np.zeros(side * side, np.int32)
            assert unreachable_stations(worlds.grid, worlds.rooms, *scratch) == 0


def test_a_station_behind_a_wall_would_be_found() -> None:
    worlds = batch("level_0", 1)
    worlds.grid[0, worlds.rooms[0, at.Y] - 1 : worlds.rooms[0, at.Y] + 2, ::2] = at.WALL
    side = worlds.grid.shape[1]
    scratch = np.zeros((side, side), np.int16), np.zeros(side * side, np.int32)
    assert unreachable_stations(worlds.grid, worlds.rooms, *scratch) > 0


# -- task numbers


@given(seed=st.integers(0, 2**32), count=st.integers(1, 50))
def test_training_and_held_out_numbers_cannot_meet(seed: int, count: int) -> None:
    train, held_out = (task_numbers(np.random.default_rng(seed), count, split) for split in ("train", "held_out"))
    assert not (train % 2).any() and (held_out % 2).all()
    assert train.dtype == np.uint64 and len(set(train.tolist())) == count


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match='"train" or "held_out"'):
        task_numbers(np.random.default_rng(0), 1, "test")  # type: ignore[arg-type]


# -- rules


@given(task=TASKS, name=NAMES, seed=st.integers(0, 99), knowing=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_kernels_play_by_the_rules_of_the_plain_room(task: int, name: str, seed: int, knowing: bool) -> None:
    worlds = Worlds(find_level(name), numbers(task), shaping=0.25)
    start = snapshot(worlds)
    plain = PlainRoom(start, int(worlds.rooms[0, at.COOLDOWN]), at.SINK_COOLDOWN)
    rng, guide, hearts = np.random.default_rng(seed), Clairvoyant(), 0
    for step in range(1, min(start.horizon, 250)):
        assert worlds.observations[0].tolist() == [[list(cell) for cell in row] for row in plain.view()]
        action = int(guide(worlds)[0]) if knowing and rng.random() < 0.8 else int(rng.integers(ACTIONS))
        worlds.step(np.array([action]), numbers(0))
        heart, gained = plain.step(action)
        hearts += heart
        assert worlds.rewards[0] == heart + 0.25 * gained
        assert (worlds.hearts[0], worlds.steps[0], worlds.done[0]) == (hearts, step, False)
        carried = {int(worlds.rooms[0, at.RESOURCE + number - 1]) for number in plain.carried}
        assert set(np.flatnonzero(worlds.inventory[0]).tolist()) == carried


@given(name=NAMES, seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_batch_is_its_rooms_one_by_one(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks, following = task_numbers(rng, 5, "train"), task_numbers(rng, 5, "train")
    together = Worlds(find_level(name), tasks)
    alone = [Worlds(find_level(name), tasks[env : env + 1]) for env in range(5)]
    arrays = (
        "observations",
        "inventory",
        "rewards",
        "hearts",
        "hearts_in_thirds",
        "done",
        "steps",
        "horizons",
        "tasks",
    )
    for _ in range(150):
        actions = rng.integers(0, ACTIONS, 5)
        together.step(actions, following)
        for env, single in enumerate(alone):
            single.step(actions[env : env + 1], following[env : env + 1])
            for array in arrays:
                assert (getattr(single, array)[0] == getattr(together, array)[env]).all(), array


def test_an_episode_ends_at_its_horizon_and_the_next_room_begins() -> None:
    worlds, other = Worlds(find_level("level_0"), numbers(8)), Worlds(find_level("level_0"), numbers(10))
    walker, horizon = Clairvoyant(), int(worlds.horizons[0])
    for _ in range(horizon):
        assert not worlds.done[0]
        worlds.step(walker(worlds), numbers(10))
    assert worlds.done[0] and worlds.steps[0] == horizon and worlds.tasks[0] == 10
    assert worlds.hearts[0] == worlds.hearts_in_thirds[0].sum() > 3
    assert (worlds.observations == other.observations).all() and not worlds.inventory.any()
    assert (worlds.grid == other.grid).all() and worlds.horizons[0] == other.horizons[0]
    worlds.step(np.array([0]), numbers(10))
    assert (worlds.steps[0], worlds.hearts[0], worlds.done[0]) == (1, 0, False)


def test_the_last_observation_of_an_episode_is_kept() -> None:
    worlds, longer = Worlds(find_level("level_0"), numbers(8)), Worlds(find_level("level_0"), numbers(8))
    longer.rooms[0, at.HORIZON] += 1
    walker = Clairvoyant()
    while not worlds.done[0]:
        action = walker(worlds)
        worlds.step(action, numbers(10))
        longer.step(action, numbers(10))
    assert (worlds.final_observations == longer.observations).all()
    assert (worlds.final_inventory == longer.inventory).all()


def test_a_station_works_again_only_when_it_has_cooled_down() -> None:
    worlds = Worlds(find_level("tiny", 200), numbers(8))
    guide, horizon = Clairvoyant(), int(worlds.horizons[0])
    uses: dict[int, list[int]] = {}
    ready = worlds.rooms[0, at.READY : at.READY + APPEARANCES].copy()
    for step in range(1, horizon):
        worlds.step(guide(worlds), numbers(10))
        now = worlds.rooms[0, at.READY : at.READY + APPEARANCES]
        for station in np.flatnonzero(now != ready):
            uses.setdefault(int(station), []).append(step)
        ready = now.copy()
    gaps = [later - earlier for steps in uses.values() for earlier, later in pairwise(steps)]
    assert min(gaps) >= worlds.rooms[0, at.COOLDOWN] > 0


def test_shaping_can_be_switched_off_and_changes_nothing_else() -> None:
    shaped, bare = batch("level_1", 64), batch("level_1", 64, shaping=0.0)
    walker, total = make_walker("clairvoyant", np.random.default_rng(0)), 0.0
    for _ in range(60):
        actions = walker(shaped)
        for worlds in (shaped, bare):
            worlds.step(actions, worlds.tasks)
        assert (shaped.observations == bare.observations).all()
        assert set(np.unique(bare.rewards)) <= {0.0, 1.0}
        total += float((shaped.rewards - bare.rewards).sum())
    assert total > 1 and total % 0.25 == 0


def test_observations_stay_in_their_ranges() -> None:
    worlds, rng = batch("full", 64), np.random.default_rng(0)
    for _ in range(200):
        worlds.step(rng.integers(0, ACTIONS, 64), worlds.tasks)
        assert (worlds.observations.max(axis=(0, 1, 2)) < OBSERVATION).all()
    assert worlds.observations[..., 1].any() and worlds.inventory.shape == (64, RESOURCES)


# -- bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chain_lengths": (6,), "sinks": (2,), "sizes": ((4, 5),)}, "a room of 4x4 has 8 places"),
        ({"chain_lengths": (9,), "sinks": (3,), "sizes": ((7, 9),)}, "only 12 appearances"),
        ({"chain_lengths": (10,)}, "from 1 to 9"),
        ({"sinks": (-1,)}, "0 or more"),
        ({"sizes": ((7, 5),)}, "the shortest and the longest side"),
        ({"terrains": ("dence",)}, "did you mean 'dense'"),
        ({"terrains": ()}, "terrains is empty"),
        ({"limit": 10}, "a horizon of 10 steps is too short"),
    ],
)
def test_a_level_that_cannot_be_says_why(changes: dict[str, object], message: str) -> None:
    whole = {"chain_lengths": (2,), "sinks": (0,), "sizes": ((5, 7),)} | changes
    with pytest.raises(UsageError, match=message):
        Level("mine", **whole)  # type: ignore[arg-type]


def test_an_unknown_level_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match="did you mean 'terrain_2'"):
        find_level("terain_2")


def test_a_batch_refuses_actions_of_another_size_and_levels_with_larger_rooms() -> None:
    worlds = batch("level_0", 3)
    with pytest.raises(ValueError, match="2 actions and 3 next tasks for 3 rooms"):
        worlds.step(np.zeros(2, np.int64), worlds.tasks)
    with pytest.raises(UsageError, match="up to 25 cells wide; this batch has memory for 7"):
        worlds.level = find_level("full")
    with pytest.raises(UsageError, match="at least one task"):
        Worlds(find_level("level_0"), numbers())
