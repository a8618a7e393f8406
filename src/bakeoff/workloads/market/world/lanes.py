"""What every world draws in every tick, drawn for many worlds side by side.

The same words as `streams.draw` gives one by one, but in loops over worlds that the compiler turns into vector
instructions, which makes a block of words eight times cheaper. Worlds are taken in groups of LANES.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import AGENTS, ASSETS, KEY0, TICK, Floats, Ints
from bakeoff.workloads.market.world.numerics import log
from bakeoff.workloads.market.world.rules import WAKE, trader_row
from bakeoff.workloads.market.world.streams import (
    ASSET_STEP,
    DECISION,
    LOW,
    M0,
    M1,
    THIRTY_TWO,
    TIP,
    W0,
    W1,
    WAKE_UP,
    signed,
    uniform,
)

Words = NDArray[np.uint64]

LANES = 64

# Rows of words: a tip's four, where a world's turns begin and end, then each asset's news.
TIP_WORDS, FIRST_TURN, LAST_TURN, NEWS = 0, 4, 5, 6

# Rows of turns: which trader takes it, the world's lane, then the four words of its decision.
TRADER, LANE, DECISION_WORDS, TURN_ROWS = 0, 1, 2, 6

# Rows of keys: the world's key, its tick, and what is added to the index of a draw.
KEY_ROWS, NOW, MORE = 6, 4, 5

_FOUR, _FOURTEEN, _SIGN, _NONE = np.uint64(15), np.uint64(16383), np.uint64(63), np.uint64(0)


@kernel
def foresee(ints: Ints, rules: Floats, first: int, count: int, shocks: Floats, words: Words, turns: Words) -> None:
    """Fill a column of `shocks` and `words` for each of `count` worlds from `first` on, and their traders' turns."""
    keys, block, tails = (
        np.empty((KEY_ROWS, LANES), np.uint64),
        np.empty((4, LANES), np.uint64),
        np.empty(LANES, np.int64),
    )
    for lane in range(count):
        for word in range(4):
            keys[word, lane] = np.uint64(ints[first + lane, KEY0 + word])
        keys[NOW, lane] = np.uint64(ints[first + lane, TICK])
        keys[MORE, lane] = _NONE
    assets, agents = ints[first, ASSETS], ints[first, AGENTS]
    draw_lanes(keys, count, 1, TIP << 24, words, 0)
    for a in range(0, assets, 2):
        draw_lanes(keys, count, 1, ASSET_STEP << 24 | a >> 1, block, 0)
        for odd in range(min(2, assets - a)):
            for lane in range(count):
                words[NEWS + a + odd, lane] = block[2 * odd + 1, lane]
            normal_lanes(block, 2 * odd, count, shocks, a + odd, tails)
    awake = np.empty(((agents + 7) >> 3, LANES), np.uint64)
    for group in range((agents + 7) >> 3):
        draw_lanes(keys, count, 0, WAKE_UP << 24 | group, block, 0)
        wake_lanes(rules, count, group, agents, block, awake, words)
    decide(keys, count, list_turns(count, agents, awake, words, turns), turns)


@kernel
def draw_lanes(keys: Words, count: int, later: int, index: int, out: Words, line: int) -> None:
    """Philox words of all lanes into four rows of `out` from `line` on; the tick is `later` ticks on."""
    ahead, place = np.uint64(later), np.uint64(index)
    for lane in range(count):
        k0, k1 = keys[0, lane] & LOW, keys[1, lane] & LOW
        c0, c1 = (keys[NOW, lane] + ahead) & LOW, (place + keys[MORE, lane]) & LOW
        c2, c3 = keys[2, lane] & LOW, keys[3, lane] & LOW
        for _ in range(10):
            high = M0 * c0
            low = M1 * c2
            c0 = (low >> THIRTY_TWO) ^ c1 ^ k0
            c1 = low & LOW
            c2 = (high >> THIRTY_TWO) ^ c3 ^ k1
            c3 = high & LOW
            k0 = (k0 + W0) & LOW
            k1 = (k1 + W1) & LOW
        out[line, lane] = c0
        out[line + 1, lane] = c1
        out[line + 2, lane] = c2
        out[line + 3, lane] = c3


@kernel
def wake_lanes(rules: Floats, count: int, group: int, agents: int, block: Words, awake: Words, words: Words) -> None:
    """Which of eight traders wake, 14 bits each; the first group also says with whom the turn begins."""
    for lane in range(count):
        awake[group, lane] = _NONE
    for member in range(min(8, agents - 8 * group)):
        chance = np.uint64(rules[trader_row(8 * group + member) + WAKE] * 16384.0)
        shift = np.uint64(18 if member & 1 == 0 else 4)
        place = np.uint64(member)
        for lane in range(count):
            bits = (block[member >> 1, lane] >> shift) & _FOURTEEN
            awake[group, lane] |= ((bits - chance) >> _SIGN) << place  # 1 where bits < chance
    if group == 0:
        for lane in range(count):
            spare = (block[0, lane] & _FOUR) << np.uint64(8) | (block[1, lane] & _FOUR) << np.uint64(4)
            spare |= block[2, lane] & _FOUR
            words[FIRST_TURN, lane] = (spare * np.uint64(agents)) >> np.uint64(12)


@kernel
def list_turns(count: int, agents: int, awake: Words, words: Words, turns: Words) -> int:
    """List the traders that wake, world by world, each in an order that starts anywhere. Returns how many there are."""
    made = 0
    for lane in range(count):
        start: int = signed(words[FIRST_TURN, lane]) if agents > 0 else 0
        words[FIRST_TURN, lane] = np.uint64(made)
        for turn in range(agents):
            trader = start + turn if start + turn < agents else start + turn - agents
            turns[TRADER, made] = np.uint64(trader)
            turns[LANE, made] = np.uint64(lane)
            made += signed(awake[trader >> 3, lane]) >> (trader & 7) & 1  # no branch: it would be guessed wrong
        words[LAST_TURN, lane] = np.uint64(made)
    return made


@kernel
def decide(keys: Words, count: int, made: int, turns: Words) -> None:
    """Draw the words of all decisions."""
    own = np.empty((KEY_ROWS, turns.shape[1]), np.uint64)
    for turn in range(made):
        lane = signed(turns[LANE, turn])
        for word in range(NOW + 1):
            own[word, turn] = keys[word, lane]
        own[MORE, turn] = turns[TRADER, turn]
    draw_lanes(own, made, 0, DECISION << 24, turns, DECISION_WORDS)


@kernel
def normal_lanes(block: Words, line: int, count: int, shocks: Floats, a: int, tails: Ints) -> None:
    """Standard normal deviates by the inverse of the distribution function (Wichura 1988, PPND7: seven digits)."""
    for lane in range(count):
        q = uniform(block[line, lane]) - 0.5
        r = 0.180625 - q * q
        shocks[a, lane] = (
            q
            * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179)
            / (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
        )
    found = 0
    for lane in range(count):
        tails[found] = lane
        found += 1 if abs(uniform(block[line, lane]) - 0.5) > 0.425 else 0
    for each in range(found):
        shocks[a, tails[each]] = normal_tail(uniform(block[line, tails[each]]) - 0.5)


@kernel
def normal_tail(q: float) -> float:
    """The deviate where the probability lies more than 0.425 from a half."""
    r = math.sqrt(-log(0.5 - abs(q)))
    if r <= 5.0:
        r -= 1.6
        z = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) / (
            (0.12021132975 * r + 0.73700164250) * r + 1.0
        )
    else:
        r -= 5.0
        z = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) / (
            (0.012258202635 * r + 0.24197894225) * r + 1.0
        )
    return -z if q < 0.0 else z
