"""The two walkers are floor and ceiling of every level."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld.levels import LEVELS, find_level
from bakeoff.workloads.gridworld.walkers import Clairvoyant, make_walker, walk
from bakeoff.workloads.gridworld.world import Worlds, task_numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_the_clairvoyant_walker_beats_the_random_one_in_every_room(name: str) -> None:
    level, tasks = find_level(name), task_numbers(np.random.default_rng(3), 60, "held_out")
    floor, ceiling = (
        walk(level, tasks, make_walker(each, np.random.default_rng(1))) for each in ("random", "clairvoyant")
    )
    assert (ceiling.hearts > floor.hearts).all()
    assert ceiling.hearts.mean() > 5 and floor.hearts.mean() < 1
    assert (ceiling.in_thirds.sum(axis=1) == ceiling.hearts).all()
    assert (floor.steps == ceiling.steps).all()


def test_what_the_clairvoyant_walker_does_does_not_depend_on_the_batch() -> None:
    level, tasks = find_level("terrain_2", 100), task_numbers(np.random.default_rng(3), 12, "train")
    together = walk(level, tasks, Clairvoyant()).hearts
    walker = Clairvoyant()  # one for all: it has to notice that the room is another
    alone = [walk(level, tasks[room : room + 1], walker).hearts[0] for room in range(12)]
    assert together.tolist() == alone


def test_the_random_walker_is_repeatable() -> None:
    level, tasks = find_level("level_0"), task_numbers(np.random.default_rng(3), 50, "train")
    one, other = (walk(level, tasks, make_walker("random", np.random.default_rng(7))).hearts for _ in range(2))
    assert (one == other).all() and one.any()


def test_the_clairvoyant_walker_waits_in_front_of_a_station_that_cools_down() -> None:
    worlds = Worlds(find_level("level_0"), task_numbers(np.random.default_rng(3), 100, "train"))
    walker, waited = Clairvoyant(), 0
    for _ in range(60):
        actions = walker(worlds)
        waited += int((actions == 0).sum())
        hearts = worlds.hearts.copy()
        worlds.step(actions, worlds.tasks)
        assert (worlds.hearts >= hearts).all()
    assert waited > 0


def test_an_unknown_walker_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'clairvoyant'"):
        make_walker("clairvoiant", np.random.default_rng(0))
