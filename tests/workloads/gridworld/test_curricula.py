"""Curricula choose training rooms, the same for all arms, and continue from a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld.curricula import (
    CURRICULA,
    FIXED_ROOMS,
    POOL,
    REPLACED_PLAYS,
    Curriculum,
    LearningProgress,
    make_curriculum,
    stages_to,
)
from bakeoff.workloads.gridworld.levels import find_level

ENVS = 16


def made(name: str, seed: int = 5, level: str = "terrain_2") -> Curriculum:
    return make_curriculum(name, find_level(level), ENVS, np.random.default_rng(seed))


def played(curriculum: Curriculum, rounds: int, hearts: int = 0) -> list[int]:
    """The rooms of episodes that start when every second environment ends, for some rounds."""
    started, done = [], np.arange(ENVS) % 2 == 0
    for _ in range(rounds):
        started += curriculum.next_tasks[done].tolist()
        curriculum.finish(done, np.full(ENVS, hearts, np.int32))
        assert curriculum.tasks[done].tolist() == started[-ENVS // 2 :]
    return started


@pytest.mark.parametrize("name", CURRICULA)
def test_all_rooms_are_of_the_training_half_and_come_from_the_seed(name: str) -> None:
    tasks = played(made(name), 20)
    assert all(task % 2 == 0 for task in tasks)
    assert tasks == played(made(name), 20) != played(made(name, seed=6), 20)


@pytest.mark.parametrize("name", ["fixed", "uniform", "staged"])
def test_what_an_arm_earns_does_not_change_its_rooms(name: str) -> None:
    assert played(made(name), 20, hearts=0) == played(made(name), 20, hearts=3)


@pytest.mark.parametrize("name", CURRICULA)
def test_a_restored_curriculum_goes_on_as_the_first_one_would(name: str) -> None:
    first, second = made(name), made(name)
    played(first, 10, hearts=1)
    second.restore(first.state())
    assert played(first, 30) == played(second, 30)


def test_the_fixed_rooms_come_in_turns_and_uniform_ones_never_again() -> None:
    curriculum, fixed = made("fixed"), []
    for _ in range(2 * FIXED_ROOMS // ENVS):
        fixed += curriculum.next_tasks.tolist()
        curriculum.finish(np.ones(ENVS, np.bool_), np.zeros(ENVS, np.int32))
    assert len(set(fixed)) == FIXED_ROOMS and fixed[:FIXED_ROOMS] == fixed[FIXED_ROOMS:]
    uniform = played(made("uniform"), 50)
    assert len(set(uniform)) == len(uniform)


def test_stages_lead_from_the_easiest_level_to_the_one_that_is_trained() -> None:
    names = [level.name for level in stages_to(find_level("terrain_2"))]
    assert names == ["level_0", "level_1", "level_2", "tiny", "tiny_small", "terrain_1", "terrain_2"]
    curriculum = made("staged")
    assert [curriculum.level_at(share).name for share in (0.0, 0.15, 0.5, 0.99, 1.0)] == [
        "level_0", "level_1", "tiny", "terrain_2", "terrain_2",
    ]  # fmt: skip
    assert made("uniform").level_at(0.0).name == "terrain_2"


def test_learning_progress_prefers_rooms_whose_success_changes() -> None:
    curriculum = made("learning_progress")
    assert isinstance(curriculum, LearningProgress)
    assert np.allclose(curriculum.weights(), 1 / POOL)
    changing, hopeless = curriculum.state()["pool"][:2]
    state = curriculum.state()
    state["plays"][:2] = 3
    state["fast"][0], state["slow"][0] = 0.3, 0.1
    curriculum.restore(state)
    weights = curriculum.weights()
    # By hand: reweight(.3) = .285 / .32, reweight(.1) = .095 / .14, and .1 * .3 for the success itself.
    assert curriculum.scores()[:3] == pytest.approx([0.285 / 0.32 - 0.095 / 0.14 + 0.03, 0.0, 0.1])
    assert weights[0] > weights[2] > weights[1] and weights.sum() == pytest.approx(1)
    assert changing % 2 == hopeless % 2 == 0


def test_learning_progress_replaces_rooms_that_were_played_often_without_progress() -> None:
    curriculum = made("learning_progress")
    task = curriculum.tasks[0]
    done = np.arange(ENVS) == 0
    for _ in range(REPLACED_PLAYS):
        assert task in curriculum.state()["pool"]
        curriculum.tasks[0] = task
        curriculum.finish(done, np.zeros(ENVS, np.int32))
    assert task not in curriculum.state()["pool"]
    curriculum.tasks[0] = task  # an episode in a room that is no longer in the pool may still end
    curriculum.finish(done, np.ones(ENVS, np.int32))
    assert len(set(curriculum.state()["pool"].tolist())) == POOL


def test_an_unknown_curriculum_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'learning_progress'"):
        made("learning-progress")
