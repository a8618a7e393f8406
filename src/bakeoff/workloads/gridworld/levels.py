"""The levels: from which chains, sinks, room sizes and terrains the rooms of a level are drawn.

They are those of the original benchmark (Metta's "assembly lines"), scaled for training on a processor: agents see 7x7
cells instead of 11x11, rooms are smaller by the same factor, and episodes of a room have three tenths of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError, did_you_mean

RESOURCES = 9
"""Kinds of resources. A room with a chain of n uses n of them."""
APPEARANCES = 12
"""What a station can look like. No two stations of a room look the same, so a room has this many stations at most."""
TERRAINS = ("none", "sparse", "balanced", "dense")
"""How much of a room is filled with wall blocks."""
SMALLEST_SIDE, LARGEST_SIDE = 3, 100
"""Of a room, its walls included."""
LAPS = 18
"""Steps of an episode, in hops (mean sides of the room) for each resource of the chain. A sink adds one hop."""

TINY, SMALL, MEDIUM, LARGE = (5, 7), (7, 13), (13, 19), (19, 25)
"""Shortest and longest side of a room, walls included: the original's 5, 10, 20, 30 and 40 times 7/11, but at least 5."""


@dataclass(frozen=True, slots=True)
class Level:
    """What rooms are drawn from: each property uniformly from its tuple, each side of a room from its size.

    Raises UsageError if a room could be too small for its stations, or an episode too short for its chain.
    """

    name: str
    chain_lengths: tuple[int, ...]
    """Resources between nothing and a heart. A chain of n has n + 1 stations."""
    sinks: tuple[int, ...]
    """Stations that take everything and give nothing."""
    sizes: tuple[tuple[int, int], ...]
    """Ranges of sides, walls included."""
    terrains: tuple[str, ...] = ("none",)
    limit: int | None = None
    """Steps of an episode at most (default: what LAPS gives)."""

    def __post_init__(self) -> None:
        where = f"level {self.name!r}"
        for key in ("chain_lengths", "sinks", "sizes", "terrains"):
            if not getattr(self, key):
                raise UsageError(f"{where}: {key} is empty; name at least one")
        for terrain in self.terrains:
            if terrain not in TERRAINS:
                hint = did_you_mean(terrain, TERRAINS, f"there are {', '.join(TERRAINS)}")
                raise UsageError(f"{where}: there is no terrain {terrain!r}; {hint}")
        if min(self.chain_lengths) < 1 or max(self.chain_lengths) > RESOURCES:
            raise UsageError(f"{where}: chain_lengths = {self.chain_lengths}: choose from 1 to {RESOURCES}")
        if min(self.sinks) < 0:
            raise UsageError(f"{where}: sinks = {self.sinks}: a number of sinks is 0 or more")
        for low, high in self.sizes:
            if not SMALLEST_SIDE <= low <= high <= LARGEST_SIDE:
                raise UsageError(
                    f"{where}: sizes has ({low}, {high}): give the shortest and the longest side, "
                    f"from {SMALLEST_SIDE} to {LARGEST_SIDE}"
                )
        if self.stations > APPEARANCES:
            raise UsageError(
                f"{where}: {self.stations} stations (a chain of {max(self.chain_lengths)} has one more, and "
                f"{max(self.sinks)} sinks), but there are only {APPEARANCES} appearances; shorten the chain or "
                "leave out sinks"
            )
        side = min(low for low, _ in self.sizes)
        places = 4 * (side - 2)
        if self.stations > places:
            raise UsageError(
                f"{where}: a room of {side}x{side} has {places} places for stations along its walls, but up to "
                f"{self.stations} stations; make rooms at least {2 - -self.stations // 4} wide or shorten the chain"
            )
        longest = max(high for _, high in self.sizes)
        lap = longest * (max(self.chain_lengths) + 1)
        if self.limit is not None and self.limit < lap:
            raise UsageError(
                f"{where}: a horizon of {self.limit} steps is too short: one lap through a chain of "
                f"{max(self.chain_lengths)} in a room of {longest}x{longest} may take {lap}; set at least that"
            )

    @property
    def stations(self) -> int:
        """The most stations that a room has."""
        return max(self.chain_lengths) + 1 + max(self.sinks)

    @property
    def side(self) -> int:
        """The longest side that a room has, its walls included."""
        return max(high for _, high in self.sizes)

    @property
    def horizon(self) -> int:
        """Steps of the longest episode."""
        steps = self.side * (LAPS * max(self.chain_lengths) + max(self.sinks))
        return steps if self.limit is None else min(steps, self.limit)

    def packed(self) -> NDArray[np.int64]:
        """The level as the kernels read it: row by row a count and that many values (see `rooms.draw_room`)."""
        rows: list[list[int]] = [
            [*self.chain_lengths],
            [*self.sinks],
            [low for low, _ in self.sizes],
            [high for _, high in self.sizes],
            [TERRAINS.index(terrain) for terrain in self.terrains],
            [self.horizon],
        ]
        table = np.zeros((len(rows), 1 + max(len(row) for row in rows)), np.int64)
        for line, row in zip(table, rows, strict=True):
            line[0], line[1 : 1 + len(row)] = len(row), row
        return table


def _between(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            Level("level_0", (1,), _between(0, 1), (TINY,)),
            Level("level_1", _between(1, 2), _between(0, 1), (TINY,)),
            Level("level_2", _between(1, 3), _between(0, 2), (TINY,)),
            Level("tiny", _between(1, 4), _between(0, 2), (TINY,)),
            Level("tiny_small", _between(1, 4), _between(0, 1), (TINY, SMALL)),
            Level("all_room_sizes", _between(1, 4), _between(0, 2), (TINY, SMALL, MEDIUM)),
            Level("longer_chains", _between(1, 6), _between(0, 2), (TINY, SMALL, MEDIUM)),
            Level("terrain_1", _between(2, 3), _between(0, 1), (TINY, SMALL), TERRAINS),
            Level("terrain_2", _between(2, 4), _between(0, 2), (TINY, SMALL), TERRAINS),
            Level("terrain_3", _between(2, 5), _between(0, 2), (TINY, SMALL, MEDIUM), TERRAINS),
            Level("terrain_4", _between(2, 5), _between(0, 2), (TINY, SMALL, MEDIUM), TERRAINS),
            Level("full", _between(2, 6), _between(0, 2), (TINY, SMALL, MEDIUM, LARGE), TERRAINS),
        )
    }
)
"""The levels of the original by name, from easy to hard."""


def find_level(name: str, horizon: int | None = None) -> Level:
    """Return the level called `name`, with episodes of at most `horizon` steps. Raises UsageError."""
    if name not in LEVELS:
        hint = did_you_mean(name, LEVELS, f"there are {', '.join(LEVELS)}")
        raise UsageError(f"there is no level {name!r}; {hint}")
    return LEVELS[name] if horizon is None else replace(LEVELS[name], limit=horizon)
