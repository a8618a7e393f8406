"""Curricula: in which room an environment plays its next episode, and of which level it is.

| name | rooms |
|---|---|
| `fixed` | the same 64 rooms in turns |
| `uniform` | a new one for every episode |
| `staged` | a new one for every episode, from easier levels first; each gets an equal share of the training |
| `learning_progress` | from a pool of 10,000, more often where the success rate is changing |

A trainer asks for the level, steps, and reports what ended:

    curriculum = make_curriculum("uniform", level, envs, ctx.rng("curriculum"))
    worlds = Worlds(level, curriculum.tasks)
    worlds.level = curriculum.level_at(0.0)
    worlds.reset(curriculum.tasks)
    worlds.step(actions, curriculum.next_tasks)
    curriculum.finish(worlds.done, worlds.hearts)

Only `learning_progress` looks at hearts, so with the others all arms of a seed meet the same rooms in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.gridworld.levels import LEVELS, Level

Tasks = NDArray[np.uint64]
State = dict[str, NDArray[Any]]

FIXED_ROOMS = 64

# Of learning progress, as in the original.
POOL = 10_000
FAST = 0.001
"""Weight of a new result in the fast average of a room's success."""
SLOW = 0.2 * FAST
BASELINE = 0.5
"""A success rate that counts as nothing learnt."""
REWEIGHT = 0.05
PREFERENCE = 0.1
"""How much success itself counts beside its change."""
UNSEEN = 0.1
"""Score of a room that was never played."""
REPLACED_SHARE, REPLACED_PLAYS = 0.4, 5
"""A room among the lowest 40 % that was played this often is replaced by a new one."""


class Curriculum:
    """`uniform`, and what all curricula share. `rng` must not depend on the arm; only one number is drawn from it."""

    tasks: Tasks
    """[envs]: the rooms of the running episodes."""
    next_tasks: Tasks
    """[envs]: the room that each environment goes to when its episode ends."""

    def __init__(self, level: Level, envs: int, rng: np.random.Generator) -> None:
        self.level = level
        self._key = rng.integers(0, 2**64, dtype=np.uint64)
        self._drawn = 0
        self.tasks = self._choose(envs)
        self.next_tasks = self._choose(envs)

    def level_at(self, progress: float) -> Level:
        """The level of rooms that start when this share of the training is done."""
        return self.level

    def finish(self, done: NDArray[np.bool_], hearts: NDArray[np.int32]) -> None:
        """Take note of episodes that ended, with their hearts, and choose the rooms after the next."""
        ended = np.flatnonzero(done)
        if len(ended):
            self._learn(self.tasks[ended], hearts[ended])
            self.tasks[ended] = self.next_tasks[ended]
            self.next_tasks[ended] = self._choose(len(ended))

    def state(self) -> State:
        """Arrays from which `restore` continues, for a checkpoint."""
        return {"tasks": self.tasks.copy(), "next_tasks": self.next_tasks.copy(), "drawn": np.array(self._drawn)}

    def restore(self, state: State) -> None:
        """Continue from a state of a curriculum that was made with the same arguments."""
        self.tasks[:], self.next_tasks[:] = state["tasks"], state["next_tasks"]
        self._drawn = int(state["drawn"])

    def _learn(self, tasks: Tasks, hearts: NDArray[np.int32]) -> None:
        """Take note of the hearts in rooms whose episodes ended."""

    def _choose(self, count: int) -> Tasks:
        """Choose the rooms of further episodes."""
        return self._draw(count) & ~np.uint64(1)

    def _draw(self, count: int) -> Tasks:
        """The next numbers of splitmix64, seeded by the key: all of a curriculum's randomness is (key, how many drawn)."""
        numbers = np.arange(self._drawn + 1, self._drawn + count + 1, dtype=np.uint64)
        self._drawn += count
        z = self._key + numbers * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Tasks = z ^ (z >> np.uint64(31))
        return mixed


class Fixed(Curriculum):
    """The same rooms in turns."""

    def __init__(self, level: Level, envs: int, rng: np.random.Generator) -> None:
        self._rooms: Tasks | None = None
        super().__init__(level, envs, rng)

    def _choose(self, count: int) -> Tasks:
        if self._rooms is None:
            self._rooms = super()._choose(FIXED_ROOMS)
            self._drawn = 0
        turns = np.arange(self._drawn, self._drawn + count) % FIXED_ROOMS
        self._drawn += count
        return self._rooms[turns]


class Staged(Curriculum):
    """Easier levels first."""

    def level_at(self, progress: float) -> Level:
        stages = stages_to(self.level)
        return stages[min(int(progress * len(stages)), len(stages) - 1)]


def stages_to(level: Level) -> tuple[Level, ...]:
    """The levels on the way to `level`: those before it in the table with chains and rooms that are not larger."""
    easier = []
    for other in LEVELS.values():
        if other.name == level.name:
            break
        if other.side <= level.side and max(other.chain_lengths) <= max(level.chain_lengths):
            easier.append(other)
    return (*easier, level)


class LearningProgress(Curriculum):
    """Rooms whose success rate changes are played more often.

    An episode is a success if it has a heart. Two averages of a room's success forget at different speeds, and their
    distance is its progress.
    """

    def __init__(self, level: Level, envs: int, rng: np.random.Generator) -> None:
        self._pool: Tasks = np.zeros(0, np.uint64)
        self._plays = np.zeros(POOL, np.int64)
        self._fast, self._slow = np.zeros(POOL), np.zeros(POOL)
        super().__init__(level, envs, rng)

    def state(self) -> State:
        pool = {"pool": self._pool, "plays": self._plays, "fast": self._fast, "slow": self._slow}
        return super().state() | {name: values.copy() for name, values in pool.items()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._pool, self._plays = state["pool"].copy(), state["plays"].copy()
        self._fast, self._slow = state["fast"].copy(), state["slow"].copy()

    def scores(self) -> NDArray[np.float64]:
        """[POOL]: how much there is to learn in each room of the pool."""
        progress = np.abs(_reweighted(self._fast) - _reweighted(self._slow)) + PREFERENCE * self._fast
        return np.where(self._plays > 0, progress, UNSEEN)

    def weights(self) -> NDArray[np.float64]:
        """[POOL]: the probability of each room of the pool to be played next."""
        scores = self.scores()
        spread = scores.std()
        standard = (scores - scores.mean()) / spread if spread > 0 else np.zeros(POOL)
        weights = 1.0 / (1.0 + np.exp(-standard))
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares

    def _learn(self, tasks: Tasks, hearts: NDArray[np.int32]) -> None:
        successes = np.maximum((np.clip(hearts, 0, 1) - BASELINE) / (1 - BASELINE), 0.0)
        order = np.argsort(self._pool)
        places = order[np.minimum(np.searchsorted(self._pool, tasks, sorter=order), POOL - 1)]
        for place, task, success in zip(places, tasks, successes, strict=True):
            if self._pool[place] != task:
                continue  # the room was replaced while this episode ran
            first = self._plays[place] == 0
            self._fast[place] += (success - self._fast[place]) * (1.0 if first else FAST)
            self._slow[place] += (success - self._slow[place]) * (1.0 if first else SLOW)
            self._plays[place] += 1
        scores = self.scores()
        low = scores <= np.quantile(scores, REPLACED_SHARE)
        stale = [place for place in places if low[place] and self._plays[place] >= REPLACED_PLAYS]
        for place in stale:
            self._pool[place] = super()._choose(1)[0]
            self._plays[place], self._fast[place], self._slow[place] = 0, 0.0, 0.0

    def _choose(self, count: int) -> Tasks:
        if not len(self._pool):
            self._pool = super()._choose(POOL)
        draws = (self._draw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        places = np.searchsorted(np.cumsum(self.weights()), draws, side="right")
        return self._pool[np.minimum(places, POOL - 1)]


def _reweighted(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch low success rates, so that the first successes in a room count most."""
    stretched: NDArray[np.float64] = rate * (1 - REWEIGHT) / (rate + REWEIGHT * (1 - 2 * rate))
    return stretched


CURRICULA: Mapping[str, type[Curriculum]] = {
    "fixed": Fixed,
    "uniform": Curriculum,
    "staged": Staged,
    "learning_progress": LearningProgress,
}


def make_curriculum(name: str, level: Level, envs: int, rng: np.random.Generator) -> Curriculum:
    """Return the curriculum called `name` for this many environments. Raises UsageError."""
    if name not in CURRICULA:
        hint = did_you_mean(name, CURRICULA, f"there are {', '.join(CURRICULA)}")
        raise UsageError(f"there is no curriculum {name!r}; {hint}")
    return CURRICULA[name](level, envs, rng)
