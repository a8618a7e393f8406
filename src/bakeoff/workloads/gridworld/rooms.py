"""Kernels that make a room from its task number: chain, stations, sinks, cooldown, terrain and the agent's start.

A room is a rectangle of wall with stations in it. The floor inside may have blocks of wall, and is always connected,
so every station can be reached. A task number and a level give the whole room and nothing else does: draw k of a room
is output k of the generator splitmix64 with the task number as seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.gridworld.jit import kernel
from bakeoff.workloads.gridworld.levels import APPEARANCES, LAPS, RESOURCES

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]

# -- memory of one room

VIEW = 7
"""Side of the square that an agent sees. The agent is in its middle."""
PAD = VIEW // 2
"""Cells of wall around a room's memory, so that a view never leaves it. Positions count from the padded corner."""
CHANNELS = 2
"""Of a cell: what is there, and whether it is a station that is cooling down."""

FLOOR, WALL, STATION = 0, 1, 2
"""What is in a cell. A station of appearance a is STATION + a."""

(X, Y, WIDTH, HEIGHT, CHAIN, SINKS, COOLDOWN, HORIZON, CARRIED, NEXT_READY, STEP, HEARTS) = range(12)
"""Numbers of a room and its episode. CARRIED has a bit for each resource of the chain, in its order.

NEXT_READY is the step in which the next cooling station is ready. STEP, HEARTS and
THIRDS are those of the episode that the last step belonged to; the others are already those of the next one if it ended.
"""
THIRDS = 12
"""Hearts by third of the episode."""
PLACE_Y, PLACE_X, READY = 16, 16 + APPEARANCES, 16 + 2 * APPEARANCES
"""For each station, its place, and the step from which it can be used again. Stations 0 to CHAIN are the chain, then sinks."""
STATION_OF = 16 + 3 * APPEARANCES
"""For each appearance, the number of the station that looks like this."""
RESOURCE = 16 + 4 * APPEARANCES
"""For each resource of the chain, which of all resources it is."""
FIELDS = RESOURCE + RESOURCES

NEVER = 2**31 - 1
SINK_COOLDOWN = 10
BLOCK_TRIES = 4
"""Places that are tried for a block of terrain before it is left out."""

_CHAIN_LENGTHS, _SINK_COUNTS, _LOWS, _HIGHS, _TERRAINS, _LIMIT = range(6)
"""Rows of `Level.packed`."""
_BLOCKS = np.array(
    [
        [[0, 0], [0, 1], [1, 0], [1, 1], [0, 0]],  # square
        [[1, 1], [0, 1], [1, 0], [1, 2], [2, 1]],  # cross
        [[0, 0], [1, 0], [1, 1], [0, 0], [0, 0]],  # L, in four directions
        [[0, 1], [1, 1], [1, 0], [0, 0], [0, 0]],
        [[0, 0], [0, 1], [1, 0], [0, 0], [0, 0]],
        [[0, 0], [0, 1], [1, 1], [0, 0], [0, 0]],
    ],
    np.int64,
)
_CELLS = np.array([4, 5, 3, 3, 3, 3], np.int64)


@kernel
def draw(task: np.uint64, count: int) -> np.uint64:
    """Output `count` of splitmix64 (Steele, Lea and Flood 2014) with the seed `task`."""
    z = task + np.uint64(count + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def below(task: np.uint64, count: int, n: int) -> int:
    """Draw `count` as a number from 0 to n - 1, n below 2^32."""
    return int(np.int64(((draw(task, count) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)))


@kernel
def draw_room(level: NDArray[np.int64], task: np.uint64, grid: Bytes, room: Ints) -> None:
    """Write the room of a task, at the start of an episode, into `grid` [side, side * CHANNELS] and `room` [FIELDS]."""
    chain = level[_CHAIN_LENGTHS, 1 + below(task, 0, level[_CHAIN_LENGTHS, 0])]
    sinks = level[_SINK_COUNTS, 1 + below(task, 1, level[_SINK_COUNTS, 0])]
    size = 1 + below(task, 2, level[_LOWS, 0])
    sides = level[_HIGHS, size] - level[_LOWS, size] + 1
    width = level[_LOWS, size] + below(task, 3, sides)
    height = level[_LOWS, size] + below(task, 4, sides)
    terrain = level[_TERRAINS, 1 + below(task, 5, level[_TERRAINS, 0])]

    for y in range(grid.shape[0]):
        inside = PAD < y < PAD + height - 1
        for x in range(grid.shape[1] // CHANNELS):
            floor = inside and PAD < x < PAD + width - 1
            grid[y, CHANNELS * x] = FLOOR if floor else WALL
            grid[y, CHANNELS * x + 1] = 0
    for field in range(FIELDS):
        room[field] = 0
    room[X], room[Y] = PAD + width // 2, PAD + height // 2
    room[WIDTH], room[HEIGHT], room[CHAIN], room[SINKS] = width, height, chain, sinks
    # The mean side is the length of an average hop between stations.
    room[COOLDOWN] = (width + height) * chain // 2
    room[HORIZON] = min((width + height) * (LAPS * chain + sinks) // 2, level[_LIMIT, 1])
    room[NEXT_READY] = NEVER

    count = 6
    looks = 0
    for station in range(chain + 1 + sinks):
        y, x = PAD, PAD
        while True:  # a place in the wall, not in a corner, that is still free
            place = below(task, count, 2 * (width + height - 4))
            count += 1
            if place < 2 * (width - 2):
                x, y = PAD + 1 + place // 2, PAD + (place % 2) * (height - 1)
            else:
                place -= 2 * (width - 2)
                x, y = PAD + (place % 2) * (width - 1), PAD + 1 + place // 2
            if grid[y, CHANNELS * x] == WALL:
                break
        while True:
            look = below(task, count, APPEARANCES)
            count += 1
            if not looks >> look & 1:
                break
        looks |= 1 << look
        grid[y, CHANNELS * x] = STATION + look
        room[PLACE_Y + station], room[PLACE_X + station] = y, x
        room[STATION_OF + look] = station
    kinds = 0
    for position in range(chain):
        while True:
            kind = below(task, count, RESOURCES)
            count += 1
            if not kinds >> kind & 1:
                break
        kinds |= 1 << kind
        room[RESOURCE + position] = kind
    if terrain > 0:
        add_blocks(task, count, terrain, grid, room)


@kernel
def add_blocks(task: np.uint64, count: int, terrain: int, grid: Bytes, room: Ints) -> None:
    """Put blocks of one kind (square, cross or L) on the floor, as many as the terrain asks for and as have a place.

    The floor stays connected, and the agent's start and the cell in front of each station stay free.
    """
    width, height, area = room[WIDTH], room[HEIGHT], room[WIDTH] * room[HEIGHT]
    shape = below(task, count, 3)
    if terrain == 1:
        blocks = max(1, area // 30)
    elif terrain == 2 or shape == 0:
        blocks = max(2, area // 12)
    elif shape == 1:
        blocks = max(2, area // 15)
    else:
        blocks = max(3, area // 8)
    # Channel 1 marks cells that stay free until the blocks are placed.
    mark_free(grid, room, 1)
    for _ in range(blocks):
        for _ in range(BLOCK_TRIES):
            spot = draw(task, count + 1)
            count += 1
            block = shape + (np.int64(spot >> np.uint64(60)) & 3 if shape == 2 else 0)
            top = PAD + 1 + np.int64(((spot & np.uint64(0xFFFFF)) * np.uint64(height - 2)) >> np.uint64(20))
            left = (
                PAD
                + 1
                + np.int64((((spot >> np.uint64(20)) & np.uint64(0xFFFFF)) * np.uint64(width - 2)) >> np.uint64(20))
            )
            cells = _CELLS[block]
            placed = 0
            while placed < cells:
                y, x = top + _BLOCKS[block, placed, 0], left + _BLOCKS[block, placed, 1]
                if not may_be_wall(grid, y, x):
                    break
                grid[y, CHANNELS * x] = WALL
                placed += 1
            if placed == cells:
                break
            for cell in range(placed):
                grid[top + _BLOCKS[block, cell, 0], CHANNELS * (left + _BLOCKS[block, cell, 1])] = FLOOR
    mark_free(grid, room, 0)


@kernel
def mark_free(grid: Bytes, room: Ints, mark: int) -> None:
    grid[room[Y], CHANNELS * room[X] + 1] = mark
    for station in range(room[CHAIN] + 1 + room[SINKS]):
        y = min(max(room[PLACE_Y + station], PAD + 1), PAD + room[HEIGHT] - 2)
        x = min(max(room[PLACE_X + station], PAD + 1), PAD + room[WIDTH] - 2)
        grid[y, CHANNELS * x + 1] = mark


@kernel
def may_be_wall(grid: Bytes, y: int, x: int) -> bool:
    """Whether a cell is free floor that can become wall without cutting the floor in two.

    That is sure if the free cells beside it are connected with each other through the eight cells around it.
    """
    if grid[y, CHANNELS * x] != FLOOR or grid[y, CHANNELS * x + 1] != 0:
        return False
    north, south = grid[y - 1, CHANNELS * x] == FLOOR, grid[y + 1, CHANNELS * x] == FLOOR
    west, east = grid[y, CHANNELS * (x - 1)] == FLOOR, grid[y, CHANNELS * (x + 1)] == FLOOR
    neighbours = north + east + south + west
    links = (north and east and grid[y - 1, CHANNELS * (x + 1)] == FLOOR) + 0
    links += (east and south and grid[y + 1, CHANNELS * (x + 1)] == FLOOR) + 0
    links += (south and west and grid[y + 1, CHANNELS * (x - 1)] == FLOOR) + 0
    links += (west and north and grid[y - 1, CHANNELS * (x - 1)] == FLOOR) + 0
    return bool(neighbours > 0 and neighbours - links <= 1)
