"""Rooms as Gymnasium environments. Importing this registers `bakeoff/Gridworld-v0`, single and vector.

An observation has a `view` (7x7 cells with the agent in the middle) and the `inventory`; `world.OBSERVATION` says what the
numbers mean. The reward is 1 for a heart, and `shaping` for a resource. Episodes are cut off at the room's horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError, install

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise UsageError(f"environments need gymnasium: {install('environments')}") from error

from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bakeoff.workloads.gridworld.episode import as_text, snapshot
from bakeoff.workloads.gridworld.levels import RESOURCES, Level, find_level
from bakeoff.workloads.gridworld.replay import picture
from bakeoff.workloads.gridworld.rooms import CHANNELS, VIEW
from bakeoff.workloads.gridworld.world import ACTIONS, OBSERVATION, Split, Worlds, task_numbers

ENV_ID = "bakeoff/Gridworld-v0"
Observation = dict[str, NDArray[np.uint8]]
Step = tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        ENV_ID, entry_point=f"{__name__}:GridworldEnv", vector_entry_point=f"{__name__}:GridworldVectorEnv"
    )


def _observation_space() -> spaces.Space[Any]:
    largest = np.broadcast_to(np.array(OBSERVATION, np.uint8) - 1, (VIEW, VIEW, CHANNELS))
    return spaces.Dict(
        {
            "inventory": spaces.Box(0, 1, (RESOURCES,), np.uint8),
            "view": spaces.Box(np.zeros_like(largest), largest.copy(), dtype=np.uint8),
        }
    )


def _task(options: dict[str, Any] | None, rng: np.random.Generator, split: Split) -> int:
    """The task number that `options` fix, or else one of the split."""
    fixed = (options or {}).get("task")
    if fixed is None:
        return int(task_numbers(rng, 1, split)[0])
    if not 0 <= int(fixed) < 2**64:
        raise UsageError(f"task = {fixed}: a task number is from 0 to 2^64 - 1")
    return int(fixed)


class Rooms:
    """The rooms of an environment, which are drawn at its first reset."""

    level: Level
    shaping: float
    _worlds: Worlds | None = None

    @property
    def worlds(self) -> Worlds:
        """The rooms; those of a single environment are a batch of one. Raises ResetNeeded before the first reset."""
        if self._worlds is None:
            raise ResetNeeded("call reset() first")
        return self._worlds

    def _enter(self, tasks: NDArray[np.uint64]) -> None:
        """Start an episode in the room of each task."""
        if self._worlds is None:
            self._worlds = Worlds(self.level, tasks, shaping=self.shaping)
        else:
            self._worlds.reset(tasks)


class GridworldEnv(Rooms, gymnasium.Env[Observation, int]):
    """One agent in one room. `reset(seed=s)` draws a room of the split, `reset(options={"task": n})` is that of a task.

    `level` is a name or a `Level`. `render_mode` is "ansi" (text) or "rgb_array".
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # type: ignore[misc]

    def __init__(
        self,
        level: str | Level = "level_0",
        shaping: float = 0.25,
        split: Split = "train",
        render_mode: str | None = None,
    ) -> None:
        self.level = level if isinstance(level, Level) else find_level(level)
        self.shaping, self.split, self.render_mode = shaping, split, render_mode
        self.observation_space = _observation_space()
        self.action_space: spaces.Space[Any] = spaces.Discrete(ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        tasks = np.array([_task(options, self.np_random, self.split)], np.uint64)
        self._enter(tasks)
        return self._observe(self.worlds.observations, self.worlds.inventory), self._info()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Returns observation, reward, terminated (never), truncated (at the horizon) and info."""
        worlds = self.worlds
        worlds.step(np.array([action], np.int64), worlds.tasks)
        ended = bool(worlds.done[0])
        seen = (worlds.final_observations, worlds.final_inventory) if ended else (worlds.observations, worlds.inventory)
        return self._observe(*seen), float(worlds.rewards[0]), False, ended, self._info()

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        episode = snapshot(self.worlds)
        return as_text(episode) if self.render_mode == "ansi" else picture(episode)

    def _observe(self, views: NDArray[np.uint8], inventory: NDArray[np.uint8]) -> Observation:
        return {"inventory": inventory[0].copy(), "view": views[0].copy()}

    def _info(self) -> dict[str, Any]:
        worlds = self.worlds
        return {"task": worlds.tasks[0], "hearts": worlds.hearts[0], "step": worlds.steps[0]}


class GridworldVectorEnv(Rooms, VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """Many rooms in one call. An episode that ends starts again in the same step (Gymnasium's SAME_STEP mode).

    Room i of `reset(seed=s)` is that of `GridworldEnv.reset(seed=s + i)`, and so are those after it.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # type: ignore[misc]

    def __init__(
        self,
        num_envs: int = 1,
        level: str | Level = "level_0",
        shaping: float = 0.25,
        split: Split = "train",
    ) -> None:
        self.level = level if isinstance(level, Level) else find_level(level)
        self.num_envs, self.shaping, self.split = num_envs, shaping, split
        self.single_observation_space, self.single_action_space = _observation_space(), spaces.Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._draws = [np_random()[0] for _ in range(num_envs)]
        self._next = np.zeros(num_envs, np.uint64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """New rooms in all environments. `seed` is that of the first or one for each; without one, rooms are drawn."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds = [seed] * self.num_envs if seed is None or isinstance(seed, int) else [*seed]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        for number, fixed in enumerate(seeds):
            if fixed is not None:
                self._draws[number] = np_random(fixed + number if isinstance(seed, int) else fixed)[0]
        tasks = np.array([_task(options, rng, self.split) for rng in self._draws], np.uint64)
        self._enter(tasks)
        self._next = np.array([_task(None, rng, self.split) for rng in self._draws], np.uint64)
        return self._observe(), self._info()

    def step(self, actions: NDArray[Any]) -> Step:
        worlds = self.worlds
        played = worlds.tasks.copy()
        worlds.step(actions, self._next)
        info = self._info()
        if worlds.done.any():
            self._end(played, info)
        nothing = np.zeros(self.num_envs, np.bool_)
        return self._observe(), worlds.rewards.astype(np.float64), nothing, worlds.done.copy(), info

    def _end(self, played: NDArray[np.uint64], info: dict[str, Any]) -> None:
        """Add to `info` what episodes ended with, as Gymnasium's vector environments do, and draw rooms after the next."""
        worlds = self.worlds
        done = worlds.done.copy()
        last = {name: np.where(done, values, 0) for name, values in (info | {"task": played}).items() if name[0] != "_"}
        final = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(done):
            final[env] = {
                "inventory": worlds.final_inventory[env].copy(),
                "view": worlds.final_observations[env].copy(),
            }
            self._next[env] = _task(None, self._draws[env], self.split)
        info["hearts"][done], info["step"][done] = 0, 0
        info |= {"final_obs": final, "final_info": last | {f"_{name}": done.copy() for name in last}}
        info |= {"_final_obs": done, "_final_info": done.copy()}

    def _observe(self) -> Observation:
        return {"inventory": self.worlds.inventory.copy(), "view": self.worlds.observations.copy()}

    def _info(self) -> dict[str, Any]:
        """Arrays over rooms. By Gymnasium's convention `_key` says in which environments `key` is set."""
        worlds = self.worlds
        info = {"task": worlds.tasks.copy(), "hearts": worlds.hearts.copy(), "step": worlds.steps.copy()}
        everywhere = np.ones(self.num_envs, np.bool_)
        return info | {f"_{name}": everywhere.copy() for name in info}
