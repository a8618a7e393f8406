"""The rules of a room in plain Python, written apart from the kernels, for tests to compare with."""

from __future__ import annotations

from bakeoff.workloads.gridworld.episode import Episode

MOVES = [(0, 0), (0, -1), (1, 0), (0, 1), (-1, 0)]


class PlainRoom:
    """A room from the first frame of an episode. `step` returns the reward without shaping, and resources gained."""

    def __init__(self, start: Episode, cooldown: int, sink_cooldown: int) -> None:
        self.walls = start.walls
        self.stations = {(station.x, station.y): station for station in start.stations}
        self.x, self.y = start.frames[0].x, start.frames[0].y
        self.carried: set[int] = set()
        self.now = 0
        self.busy_until: dict[str, int] = {}
        self.cooldown, self.sink_cooldown = cooldown, sink_cooldown

    def cell(self, x: int, y: int) -> tuple[int, int]:
        """What is seen there: (code, cooling)."""
        if (x, y) in self.stations:
            look = self.stations[x, y].look
            return 2 + ord(look) - ord("A"), int(self.busy_until.get(look, 0) > self.now)
        inside = 0 <= y < len(self.walls) and 0 <= x < len(self.walls[0])
        return (0 if inside and self.walls[y][x] == "." else 1), 0

    def view(self) -> list[list[tuple[int, int]]]:
        return [[self.cell(x, y) for x in range(self.x - 3, self.x + 4)] for y in range(self.y - 3, self.y + 4)]

    def step(self, action: int) -> tuple[int, int]:
        self.now += 1
        x, y = self.x + MOVES[action][0], self.y + MOVES[action][1]
        station = self.stations.get((x, y))
        if station is None:
            if self.walls[y][x] == ".":
                self.x, self.y = x, y
            return 0, 0
        if self.busy_until.get(station.look, 0) > self.now:
            return 0, 0
        if station.sink:
            if self.carried:
                self.carried.clear()
                self.busy_until[station.look] = self.now + self.sink_cooldown
            return 0, 0
        if station.takes is not None and station.takes not in self.carried:
            return 0, 0
        if station.gives in self.carried:
            return 0, 0
        self.carried.discard(station.takes or 0)
        self.busy_until[station.look] = self.now + self.cooldown
        if station.gives is None:
            return 1, 0
        self.carried.add(station.gives)
        return 0, 1
