"""Reference walkers: `random` presses any button; `clairvoyant` knows what every station does and walks there directly.

They are the floor and the ceiling between which scores are normalised. Both play through the same `Worlds` as trained
policies do. The clairvoyant walker always goes to the station that it can use soonest, so it is very good, not optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.gridworld import rooms as at
from bakeoff.workloads.gridworld.jit import entry, kernel
from bakeoff.workloads.gridworld.levels import APPEARANCES, Level
from bakeoff.workloads.gridworld.rooms import CHANNELS, FLOOR, PAD, Bytes, Ints
from bakeoff.workloads.gridworld.world import ACTIONS, Tasks, Worlds

Actions = NDArray[np.int64]
Walker = Callable[[Worlds], Actions]
"""Chooses the next action of every agent of a batch."""
WALKERS = ("random", "clairvoyant")

UNREACHED = 2**14
"""Moves to a station that cannot be reached; more than any room has cells."""


def make_walker(name: str, rng: np.random.Generator) -> Walker:
    """Return the walker called `name`; `rng` is what the random one draws from. Raises UsageError."""
    if name == "random":
        return lambda worlds: rng.integers(0, ACTIONS, len(worlds))
    if name == "clairvoyant":
        return Clairvoyant()
    hint = did_you_mean(name, WALKERS, f"there are {', '.join(WALKERS)}")
    raise UsageError(f"there is no walker {name!r}; {hint}")


class Clairvoyant:
    """Walks to the station that it can use soonest. Paths are measured once for each room."""

    def __init__(self) -> None:
        self._moves = np.zeros((0, 0, 0, 0), np.int16)
        self._tasks: Tasks = np.zeros(0, np.uint64)

    def __call__(self, worlds: Worlds) -> Actions:
        side = worlds.grid.shape[1]
        if self._moves.shape != (len(worlds), APPEARANCES, side, side):
            self._moves = np.zeros((len(worlds), APPEARANCES, side, side), np.int16)
            self._tasks = ~worlds.tasks  # differs from every task, so all rooms are measured
        actions = np.zeros(len(worlds), np.int64)
        queue = np.zeros(side * side, np.int32)
        _walk_to_soonest(worlds.grid, worlds.rooms, worlds.done, worlds.tasks, self._tasks, self._moves, queue, actions)
        return actions


@dataclass(frozen=True, slots=True)
class Scores:
    """What a walker or policy got in one episode of each of several rooms."""

    hearts: NDArray[np.int64]
    """[rooms]"""
    in_thirds: NDArray[np.int64]
    """[rooms, 3]: hearts by third of the episode."""
    steps: NDArray[np.int64]
    """[rooms]: the length of the episode."""


def walk(level: Level, tasks: Tasks, walker: Walker) -> Scores:
    """Let a walker play one episode in the room of each task."""
    worlds = Worlds(level, tasks, shaping=0.0)
    rooms = len(tasks)
    scores = Scores(np.zeros(rooms, np.int64), np.zeros((rooms, 3), np.int64), np.zeros(rooms, np.int64))
    playing = np.ones(rooms, np.bool_)
    while playing.any():
        worlds.step(walker(worlds), tasks)
        ended = playing & worlds.done
        scores.hearts[ended], scores.steps[ended] = worlds.hearts[ended], worlds.steps[ended]
        scores.in_thirds[ended] = worlds.hearts_in_thirds[ended]
        playing &= ~ended
    return scores


@kernel
def front_of(room: Ints, station: int) -> tuple[int, int]:
    """Row and column of the only cell from which a station can be used: stations are in the wall, not in a corner."""
    y = min(max(room[at.PLACE_Y + station], PAD + 1), PAD + room[at.HEIGHT] - 2)
    x = min(max(room[at.PLACE_X + station], PAD + 1), PAD + room[at.WIDTH] - 2)
    return y, x


@kernel
def measure_moves(grid: Bytes, room: Ints, station: int, moves: NDArray[np.int16], queue: Ints) -> None:
    """Write the number of moves from every cell of a room to the front of a station, by breadth-first search."""
    side = grid.shape[0]
    for y in range(PAD, PAD + room[at.HEIGHT]):
        for x in range(PAD, PAD + room[at.WIDTH]):
            moves[y, x] = UNREACHED
    y, x = front_of(room, station)
    moves[y, x], queue[0] = 0, y * side + x
    head, tail = 0, 1
    while head < tail:
        cell = queue[head]
        head += 1
        for turn in range(4):
            y = cell // side + (turn == 2) - (turn == 0)
            x = cell % side + (turn == 1) - (turn == 3)
            if moves[y, x] == UNREACHED and grid[y, CHANNELS * x] == FLOOR:
                moves[y, x] = moves[cell // side, cell % side] + 1
                queue[tail] = y * side + x
                tail += 1


@entry
def _walk_to_soonest(
    grids: Bytes,
    rooms: Ints,
    done: NDArray[np.bool_],
    tasks: Tasks,
    measured: Tasks,
    fields: NDArray[np.int16],
    queue: Ints,
    actions: Actions,
) -> None:
    for env in range(len(rooms)):
        room = rooms[env]
        if done[env] or measured[env] != tasks[env]:
            for station in range(room[at.CHAIN] + 1):
                measure_moves(grids[env], room, station, fields[env, station], queue)
            measured[env] = tasks[env]
        next_step = 1 if done[env] else room[at.STEP] + 1
        chain, carried, y, x = room[at.CHAIN], room[at.CARRIED], room[at.Y], room[at.X]
        target, soonest = 0, 2**31 - 1
        for station in range(chain, -1, -1):
            takes, gives = (1 << station) >> 1, 1 << station
            if (station == 0 or carried & takes) and (station == chain or not carried & gives):
                when = max(next_step + fields[env, station, y, x], room[at.READY + station])
                if when < soonest:
                    target, soonest = station, when
        moves = fields[env, target]
        left = moves[y, x]
        if left > 0:
            for turn in range(1, ACTIONS):
                if moves[y + (turn == 3) - (turn == 1), x + (turn == 2) - (turn == 4)] == left - 1:
                    actions[env] = turn
                    break
        elif soonest == next_step:
            down, right = room[at.PLACE_Y + target] - y, room[at.PLACE_X + target] - x
            actions[env] = 1 if down < 0 else 3 if down > 0 else 2 if right > 0 else 4


@entry
def unreachable_stations(grids: Bytes, rooms: Ints, moves: NDArray[np.int16], queue: Ints) -> int:
    """Count stations that the agent of their room can never use. In rooms of `rooms.draw_room` there is none."""
    count = 0
    for env in range(len(rooms)):
        grid, room = grids[env], rooms[env]
        measure_moves(grid, room, 0, moves, queue)
        agent = moves[room[at.Y], room[at.X]] < UNREACHED
        for station in range(room[at.CHAIN] + 1 + room[at.SINKS]):
            y, x = front_of(room, station)
            count += not (agent and grid[y, CHANNELS * x] == FLOOR and moves[y, x] < UNREACHED)
    return count
