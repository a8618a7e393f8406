"""Many rooms at once: `Worlds` owns a batch of episodes and steps them in one compiled call.

A move into a station uses it. Station i of a chain takes resource i (the first takes nothing) and gives resource i + 1;
the last one gives a heart. It works if the agent carries what it takes and does not carry what it gives, and then
cools down. A sink takes everything that the agent carries. Nothing shows what a station does: that has to be found out
in the episode.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld import rooms as at
from bakeoff.workloads.gridworld.jit import compiling_once, entry, kernel
from bakeoff.workloads.gridworld.levels import APPEARANCES, RESOURCES, Level
from bakeoff.workloads.gridworld.rooms import CHANNELS, FLOOR, PAD, STATION, VIEW, Bytes, Ints, draw_room

ACTIONS = 5
"""0 stays, 1 to 4 move up, right, down and left."""
OBSERVATION = (STATION + APPEARANCES, 2)
"""Values of each channel of an observed cell: 0 floor, 1 wall, 2 and more a station's appearance; 1 if it cools down."""

Split = Literal["train", "held_out"]
Tasks = NDArray[np.uint64]


def task_numbers(rng: np.random.Generator, count: int, split: Split) -> Tasks:
    """Draw task numbers: even ones for training, odd ones for evaluation, so the two never meet.

    Give it a generator that does not depend on the arm, such as `ctx.rng("held-out rooms")`.
    """
    if split not in get_args(Split):
        raise UsageError(f'split = {split!r}: choose "train" or "held_out"')
    numbers = rng.integers(0, 2**63, count, dtype=np.uint64) << np.uint64(1)
    return numbers | np.uint64(split == "held_out")


class Worlds:
    """A batch of rooms of one level, one episode in each. All arrays are written in place by `step`.

    >>> worlds = Worlds(find_level("level_0"), task_numbers(rng, 128, "train"))
    >>> worlds.step(actions, task_numbers(rng, 128, "train"))
    >>> worlds.observations.shape, worlds.rewards.sum()
    """

    observations: Bytes
    """[envs, VIEW, VIEW, CHANNELS]: what each agent sees, itself in the middle. Values are described by OBSERVATION."""
    inventory: Bytes
    """[envs, RESOURCES]: 1 for each resource that the agent carries. It sees this too."""
    rewards: NDArray[np.float32]
    """[envs]: 1 for a heart, and `shaping` for each resource gained."""
    done: NDArray[np.bool_]
    """[envs]: the episode ended with this step. Observation and inventory are then those of the next episode."""
    hearts: Ints
    """[envs]: hearts of the episode that the step belonged to, so the final number when it is done."""
    hearts_in_thirds: Ints
    """[envs, 3]: the same by third of the episode."""
    steps: Ints
    """[envs]: steps of the episode that the step belonged to."""
    horizons: Ints
    """[envs]: steps of the episode to come; `level.horizon` at most."""
    final_observations: Bytes
    """[envs, VIEW, VIEW, CHANNELS]: where `done`, what the agent saw last in the episode that ended."""
    final_inventory: Bytes
    """[envs, RESOURCES]: where `done`, what it carried."""
    tasks: Tasks
    """[envs]: the task numbers of the rooms, after a `done` that of the next episode."""

    def __init__(self, level: Level, tasks: Tasks, *, shaping: float = 0.25) -> None:
        envs, side = len(tasks), level.side + 2 * PAD
        if not envs:
            raise UsageError("a batch of rooms needs at least one task number")
        self.shaping = shaping
        self._memory = side
        self.grid = np.empty((envs, side, side * CHANNELS), np.uint8)
        self.rooms = np.zeros((envs, at.FIELDS), np.int32)
        self.tasks = np.zeros(envs, np.uint64)
        self.observations = np.zeros((envs, VIEW, VIEW, CHANNELS), np.uint8)
        self.inventory = np.zeros((envs, RESOURCES), np.uint8)
        self.final_observations = np.zeros_like(self.observations)
        self.final_inventory = np.zeros_like(self.inventory)
        self.rewards = np.zeros(envs, np.float32)
        self.done = np.zeros(envs, np.bool_)
        self.hearts, self.steps = self.rooms[:, at.HEARTS], self.rooms[:, at.STEP]
        self.hearts_in_thirds = self.rooms[:, at.THIRDS : at.THIRDS + 3]
        self.horizons = self.rooms[:, at.HORIZON]
        self.level = level
        self.reset(tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def level(self) -> Level:
        """The level of rooms to come. A curriculum may set another one whose rooms are not larger."""
        return self._level

    @level.setter
    def level(self, level: Level) -> None:
        if level.side + 2 * PAD > self._memory:
            raise UsageError(
                f"rooms of {level.name} are up to {level.side} cells wide; this batch has memory for "
                f"{self._memory - 2 * PAD}: make it with the largest level"
            )
        self._level, self._packed = level, level.packed()

    def reset(self, tasks: Tasks) -> None:
        """Start a new episode in every room. The first call on a machine compiles the kernels."""
        self.tasks[:] = tasks
        self.rewards[:], self.done[:] = 0.0, False
        with compiling_once():
            _reset(self._packed, self.tasks, self.grid, self.rooms, self._seen, self.inventory)
            self._act(np.zeros(0, np.int64), self.tasks[:0])  # compiles `_step`

    def step(self, actions: NDArray[np.integer], next_tasks: Tasks) -> None:
        """Act once in every room. Episodes that end start again at once in the room of their next task.

        Actions outside 0 to 4 count as 0. Raises ValueError unless there is an action and a task for each room.
        """
        if len(actions) != len(self) or len(next_tasks) != len(self):  # the kernel would read past their end
            raise ValueError(f"{len(actions)} actions and {len(next_tasks)} next tasks for {len(self)} rooms")
        self._act(np.ascontiguousarray(actions, np.int64), np.ascontiguousarray(next_tasks, np.uint64))

    def _act(self, actions: NDArray[np.int64], next_tasks: Tasks) -> None:
        _step(
            self._packed, actions, next_tasks, self.shaping, self.grid, self.rooms, self.tasks, self._seen,
            self.inventory, self.rewards, self.done, self._seen_last, self.final_inventory,
        )  # fmt: skip

    @property
    def _seen(self) -> Bytes:
        return self.observations.reshape(len(self), VIEW, VIEW * CHANNELS)

    @property
    def _seen_last(self) -> Bytes:
        return self.final_observations.reshape(len(self), VIEW, VIEW * CHANNELS)


@kernel
def look(grid: Bytes, room: Ints, seen: Bytes) -> None:
    """Copy what the agent of a room sees."""
    top, left = room[at.Y] - PAD, (room[at.X] - PAD) * CHANNELS
    for y in range(VIEW):
        for byte in range(VIEW * CHANNELS):
            seen[y, byte] = grid[top + y, left + byte]


@kernel
def cool(grid: Bytes, room: Ints) -> None:
    """Unmark stations that have cooled down, and find out when the next one will have."""
    now, following = room[at.STEP], at.NEVER
    for station in range(room[at.CHAIN] + 1 + room[at.SINKS]):
        ready = room[at.READY + station]
        if ready > now:
            following = min(following, ready)
        else:
            grid[room[at.PLACE_Y + station], CHANNELS * room[at.PLACE_X + station] + 1] = 0
    room[at.NEXT_READY] = following


@kernel
def use(station: int, grid: Bytes, room: Ints, inventory: Bytes) -> int:
    """Use a station if it works now. Returns 0 if nothing was gained, 1 for a resource, 2 for a heart."""
    if room[at.READY + station] > room[at.STEP]:
        return 0
    chain, carried = room[at.CHAIN], room[at.CARRIED]
    gained = 0
    cooldown = room[at.COOLDOWN]
    if station > chain:
        if carried == 0:
            return 0
        carried = 0
        for position in range(chain):
            inventory[room[at.RESOURCE + position]] = 0
        cooldown = at.SINK_COOLDOWN
    else:
        takes, gives = (1 << station) >> 1, 1 << station
        if (station > 0 and not carried & takes) or (station < chain and carried & gives):
            return 0
        if station > 0:
            carried &= ~takes
            inventory[room[at.RESOURCE + station - 1]] = 0
        gained = 2
        if station < chain:
            carried |= gives
            inventory[room[at.RESOURCE + station]] = 1
            gained = 1
    room[at.CARRIED] = carried
    ready = room[at.STEP] + cooldown
    room[at.READY + station] = ready
    room[at.NEXT_READY] = min(room[at.NEXT_READY], ready)
    grid[room[at.PLACE_Y + station], CHANNELS * room[at.PLACE_X + station] + 1] = 1
    return gained


@kernel
def begin(level: NDArray[np.int64], task: np.uint64, grid: Bytes, room: Ints, seen: Bytes, inventory: Bytes) -> None:
    """Start an episode in the room of a task."""
    draw_room(level, task, grid, room)
    for resource in range(RESOURCES):
        inventory[resource] = 0
    look(grid, room, seen)


@entry
def _reset(level: NDArray[np.int64], tasks: Tasks, grid: Bytes, rooms: Ints, seen: Bytes, inventory: Bytes) -> None:
    for env in range(len(tasks)):
        begin(level, tasks[env], grid[env], rooms[env], seen[env], inventory[env])


@entry
def _step(
    level: NDArray[np.int64],
    actions: NDArray[np.int64],
    next_tasks: Tasks,
    shaping: float,
    grids: Bytes,
    rooms: Ints,
    tasks: Tasks,
    seen: Bytes,
    inventory: Bytes,
    rewards: NDArray[np.float32],
    done: NDArray[np.bool_],
    seen_last: Bytes,
    inventory_last: Bytes,
) -> None:
    for env in range(len(actions)):
        grid, room = grids[env], rooms[env]
        if done[env]:
            room[at.STEP], room[at.HEARTS] = 0, 0
            room[at.THIRDS], room[at.THIRDS + 1], room[at.THIRDS + 2] = 0, 0, 0
        room[at.STEP] += 1
        if room[at.NEXT_READY] <= room[at.STEP]:
            cool(grid, room)
        action = actions[env]
        y = room[at.Y] + (action == 3) - (action == 1)
        x = room[at.X] + (action == 2) - (action == 4)
        there = grid[y, CHANNELS * x]
        reward = 0.0
        if there == FLOOR:
            room[at.Y], room[at.X] = y, x
        elif there >= STATION:
            gained = use(room[at.STATION_OF + there - STATION], grid, room, inventory[env])
            if gained == 1:
                reward = shaping
            elif gained == 2:
                reward = 1.0
                room[at.HEARTS] += 1
                room[at.THIRDS + (room[at.STEP] - 1) * 3 // room[at.HORIZON]] += 1
        rewards[env] = reward
        ended = room[at.STEP] >= room[at.HORIZON]
        done[env] = ended
        if ended:
            look(grid, room, seen_last[env])
            for resource in range(RESOURCES):
                inventory_last[env, resource] = inventory[env, resource]
            steps, hearts = room[at.STEP], room[at.HEARTS]
            first, second, third = room[at.THIRDS], room[at.THIRDS + 1], room[at.THIRDS + 2]
            tasks[env] = next_tasks[env]
            begin(level, tasks[env], grid, room, seen[env], inventory[env])
            room[at.STEP], room[at.HEARTS] = steps, hearts
            room[at.THIRDS], room[at.THIRDS + 1], room[at.THIRDS + 2] = first, second, third
        else:
            look(grid, room, seen[env])
