"""One episode in one room, recorded frame by frame: to be looked at as text, or drawn by `replay`.

A level, a task number and the actions are the whole episode, so `replay_actions` plays a recorded one again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld import rooms as at
from bakeoff.workloads.gridworld.levels import Level, find_level
from bakeoff.workloads.gridworld.rooms import CHANNELS, FLOOR, PAD, STATION
from bakeoff.workloads.gridworld.walkers import Actions, Walker
from bakeoff.workloads.gridworld.world import Worlds

HELD_OUT = "held_out.json"
"""In the directory of a run: its last evaluation, room by room."""
ARROWS = ("·", "↑", "→", "↓", "←")
"""The actions, for people."""


@dataclass(frozen=True, slots=True)
class Station:
    """A station, and what it does. `takes` and `gives` are resources by number in the chain, from 1."""

    x: int
    y: int
    look: str
    """A letter from A to L: its appearance."""
    takes: int | None = None
    gives: int | None = None
    """None for the last station of the chain, which gives a heart, and for sinks."""
    sink: bool = False

    @property
    def does(self) -> str:
        if self.sink:
            return "takes all"
        given = "heart" if self.gives is None else f"r{self.gives}"
        return given if self.takes is None else f"r{self.takes} → {given}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The room after a step. The first frame of an episode has no action yet."""

    step: int
    x: int
    y: int
    action: int | None
    reward: float
    hearts: int
    carried: tuple[int, ...]
    """Resources by number in the chain, from 1."""
    cooling: tuple[str, ...]
    """Looks of stations that cool down."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A whole episode. `walls` has one line of text for each row of the room: `#` wall, `.` floor."""

    agent: str
    level: str
    task: int
    horizon: int
    walls: tuple[str, ...]
    stations: tuple[Station, ...]
    frames: tuple[Frame, ...]

    @property
    def hearts(self) -> int:
        return self.frames[-1].hearts

    @property
    def actions(self) -> list[int]:
        return [frame.action for frame in self.frames if frame.action is not None]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"hearts": self.hearts}


def snapshot(worlds: Worlds, agent: str = "") -> Episode:
    """The first room of a batch as it is now: an episode of one frame."""
    width, height, horizon = (int(worlds.rooms[0, field]) for field in (at.WIDTH, at.HEIGHT, at.HORIZON))
    columns = slice(CHANNELS * PAD, CHANNELS * (PAD + width), CHANNELS)
    walls = tuple(
        "".join("." if cell == FLOOR else "#" for cell in row)
        for row in worlds.grid[0, PAD : PAD + height, columns].tolist()
    )
    stations = _stations(worlds)
    frame = _frame(worlds, stations, None)
    return Episode(agent, worlds.level.name, int(worlds.tasks[0]), horizon, walls, stations, (frame,))


def play(level: Level, task: int, walker: Walker, agent: str) -> Episode:
    """Let a walker play the room of a task, until the episode ends."""
    tasks = np.array([task], np.uint64)
    worlds = Worlds(level, tasks, shaping=0.0)
    start = snapshot(worlds, agent)
    worlds.rooms[0, at.HORIZON] += 1  # else the batch would show the next episode after the last step
    frames = [*start.frames]
    for _ in range(start.horizon):
        action = walker(worlds)
        worlds.step(action, tasks)
        frames.append(_frame(worlds, start.stations, int(action[0])))
    return replace(start, frames=tuple(frames))


def replay_actions(level: Level, task: int, actions: Iterable[int], agent: str) -> Episode:
    """Play recorded actions again. Missing ones at the end count as 0."""
    recorded = iter(actions)

    def walker(worlds: Worlds) -> Actions:
        return np.array([next(recorded, 0)], np.int64)

    return play(level, task, walker, agent)


@dataclass(frozen=True, slots=True)
class Recording:
    """An evaluation that a run recorded: of each held-out room, by task number, the actions and the hearts."""

    level: Level
    rooms: Mapping[int, tuple[str, int]]

    def replay(self, task: int, agent: str) -> Episode:
        """Play the episode of a task again. Raises UsageError if there is none, or if it goes another way now."""
        if task not in self.rooms:
            raise UsageError(f"{agent}: was not evaluated in the room of task {task}; --task lets it play any room")
        actions, hearts = self.rooms[task]
        episode = replay_actions(self.level, task, map(int, actions), agent)
        if episode.hearts != hearts:
            raise UsageError(
                f"{agent}: the recorded actions of task {task} give {episode.hearts} hearts and not {hearts}: "
                "it was recorded with another version of the world"
            )
        return episode


def read_recording(path: Path) -> Recording:
    """Read `held_out.json` of a run's directory, or such a file. Raises UsageError that names the file and the key."""
    file = path / HELD_OUT if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        level = find_level(content["level"], content["horizon"])
        rooms = {int(room["task"]): (str(room["actions"]), int(room["hearts"])) for room in content["rooms"]}
        if not rooms or not all(set(actions) <= set("01234") for actions, _ in rooms.values()):
            raise ValueError("rooms: each needs a task, its hearts and its actions, digits from 0 to 4")
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file; a run of the workload gridworld writes it at its end") from None
    except KeyError as error:
        raise UsageError(f"{file}: has no key {error}; is it {HELD_OUT} of a run of the workload gridworld?") from error
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"{file}: is not {HELD_OUT} of a run of the workload gridworld ({error})") from error
    return Recording(level, rooms)


def as_text(episode: Episode, number: int = -1) -> str:
    """A frame as text: `@` the agent, capital letters stations, small ones stations that cool down."""
    frame = episode.frames[number]
    cells = [list(row.replace(".", " ")) for row in episode.walls]
    for station in episode.stations:
        cells[station.y][station.x] = station.look.lower() if station.look in frame.cooling else station.look
    cells[frame.y][frame.x] = "@"
    carried = " ".join(f"r{resource}" for resource in frame.carried) or "nothing"
    action = "" if frame.action is None else ARROWS[frame.action]
    notes = [
        f"step {frame.step} of {episode.horizon} {action}".rstrip(),
        f"hearts {frame.hearts}",
        f"carries {carried}",
        *(f"{station.look} {station.does}" for station in episode.stations),
    ]
    rows = ["".join(row) for row in cells]
    lines = max(len(rows), len(notes))
    rows += [" " * len(rows[0])] * (lines - len(rows))
    notes += [""] * (lines - len(notes))
    return "\n".join(f"{row}   {note}".rstrip() for row, note in zip(rows, notes, strict=True))


def _stations(worlds: Worlds) -> tuple[Station, ...]:
    room, grid = worlds.rooms[0], worlds.grid[0]
    chain, stations = int(room[at.CHAIN]), []
    for number in range(chain + 1 + int(room[at.SINKS])):
        y, x = int(room[at.PLACE_Y + number]), int(room[at.PLACE_X + number])
        look = chr(ord("A") + int(grid[y, CHANNELS * x]) - STATION)
        sink = number > chain
        takes = number if 0 < number <= chain else None
        gives = number + 1 if number < chain else None
        stations.append(Station(x - PAD, y - PAD, look, takes, gives, sink))
    return tuple(stations)


def _frame(worlds: Worlds, stations: tuple[Station, ...], action: int | None) -> Frame:
    room, grid = worlds.rooms[0], worlds.grid[0]
    cooling = tuple(
        station.look for station in stations if grid[PAD + station.y, CHANNELS * (PAD + station.x) + 1] == 1
    )
    carried = tuple(number + 1 for number in range(room[at.CHAIN]) if room[at.CARRIED] >> number & 1)
    return Frame(
        int(worlds.steps[0]), int(room[at.X]) - PAD, int(room[at.Y]) - PAD, action, float(worlds.rewards[0]),
        int(worlds.hearts[0]), carried, cooling,
    )  # fmt: skip
