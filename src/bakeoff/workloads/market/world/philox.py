"""Randomness: Philox 4x32-10, a counter-based generator, for one world and for many side by side.

Philox (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011) encrypts a counter of four
32-bit words under a key of two. Here the world's 128-bit key fills the key and half of the counter; tick, domain and
index fill the rest. So every draw is a function of (key, domain, tick, index) and of nothing else: no draw depends on
what was drawn before, worlds of a batch do not depend on each other, and public numbers reveal nothing about hidden
ones.

`draw` gives the four words of one world. `draw_tick` gives the same words for up to LANES worlds at once, in loops over
worlds that the compiler turns into vector instructions: a block of words becomes eight times cheaper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.jit import as_float, kernel
from bakeoff.workloads.market.world.layout import Floats, IntRow, Ints
from bakeoff.workloads.market.world.numerics import normal_middle, normal_tail
from bakeoff.workloads.market.world.rules import WAKE, trader_row

# What a draw is for. Each domain has its own blocks.
BIRTH, SOURCE, STORY_START, ASSET_STEP, QUESTION, TIP, WAKE_UP, DECISION, SCHEME, INVITATION, SEAT_ORDER = range(11)

# A word is 32 bits in a uint64. numba turns a mix of uint64 and int64 into float64, as NumPy does, so all constants
# that meet a word are uint64 too, and `signed` converts explicitly.
Word = Any
FourWords = tuple[Word, Word, Word, Word]
Words = NDArray[np.uint64]
signed: Any = np.int64
_float: Any = as_float

LOW = np.uint64(0xFFFFFFFF)
THIRTY_TWO = np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # multipliers of the rounds
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # Weyl constants of the key: golden ratio and sqrt(3) - 1
_EXPONENT = np.uint64(0x4330000000000000)  # the bits of 2.0**52


@kernel
def philox(k0: Word, k1: Word, c0: Word, c1: Word, c2: Word, c3: Word) -> FourWords:
    """Ten rounds over the counter c0 .. c3 under the key k0, k1; all are 32-bit words in uint64."""
    for _ in range(10):
        p0 = M0 * c0
        p1 = M1 * c2
        c0 = (p1 >> THIRTY_TWO) ^ c1 ^ k0
        c1 = p1 & LOW
        c2 = (p0 >> THIRTY_TWO) ^ c3 ^ k1
        c3 = p0 & LOW
        k0 = (k0 + W0) & LOW
        k1 = (k1 + W1) & LOW
    return c0, c1, c2, c3


@kernel
def draw(i: IntRow, tick: int, domain: int, index: int) -> FourWords:
    """The world's four words for (domain, tick, index). Tick fits 32 bits, index 24."""
    return philox(
        np.uint64(i[at.KEY0]),
        np.uint64(i[at.KEY1]),
        np.uint64(tick),
        np.uint64(domain << 24 | index),
        np.uint64(i[at.KEY2]),
        np.uint64(i[at.KEY3]),
    )


# -- what a word is turned into


@kernel
def uniform(word: Word) -> float:
    """A number inside (0, 1): (word + 1/2) / 2^32.

    As the low bits of a float at 2^52 the word is exact, which avoids the slow conversion from uint64.
    """
    drawn: float = (_float(word | _EXPONENT) - 4503599627370496.0 + 0.5) * 2.0**-32
    return drawn


@kernel
def below(word: Word, n: int) -> int:
    """A number even over 0 .. n - 1, by multiplying and shifting (Lemire 2019, Fast Random Integer Generation).

    Without the rejection step of that paper the bias is n / 2^32.
    """
    drawn: int = signed((word * np.uint64(n)) >> THIRTY_TWO)
    return drawn


@kernel
def rough_normal(word: Word) -> float:
    """Roughly normal with mean 0 and variance 1: the sum of four bytes. Good enough for a trader's mood."""
    total = bits_of(word, 0, 8) + bits_of(word, 8, 8) + bits_of(word, 16, 8) + bits_of(word, 24, 8)
    return (total - 510.0) * (1.0 / 147.8)


@kernel
def bits_of(word: Word, shift: int, count: int) -> int:
    """`count` bits of a word, from bit `shift` up.

    The lowest twelve bits serve for choices that carry no information, such as wording; high bits decide what does.
    """
    bits: int = signed(word >> np.uint64(shift)) & ((1 << count) - 1)
    return bits


# -- many worlds side by side

LANES = 64

# Rows of `words`: the four words of a tip, where a world's turns begin and end, then each asset's news.
TIP_WORDS, FIRST_TURN, LAST_TURN, NEWS = 0, 4, 5, 6

# Rows of `turns`: which trader takes it, the world's lane, then the four words of its decision.
TRADER, LANE, DECISION_WORDS, TURN_ROWS = 0, 1, 2, 6

# Rows of `keys`: the world's key, its tick, and a number that is added to the index of a draw.
KEY_ROWS, NOW, MORE = 6, 4, 5

_FOUR_BITS, _FOURTEEN_BITS, _SIGN, _ZERO = np.uint64(15), np.uint64(16383), np.uint64(63), np.uint64(0)


@kernel
def draw_tick(ints: Ints, rules: Floats, first: int, count: int, shocks: Floats, words: Words, turns: Words) -> None:
    """Draw everything that `count` worlds from `first` on need in every tick.

    Fills one column of `shocks` [asset, lane] and `words` for each world, and lists the turns of all their traders.
    """
    keys, block = np.empty((KEY_ROWS, LANES), np.uint64), np.empty((4, LANES), np.uint64)
    tails = np.empty(LANES, np.int64)
    for lane in range(count):
        for word in range(4):
            keys[word, lane] = np.uint64(ints[first + lane, at.KEY0 + word])
        keys[NOW, lane] = np.uint64(ints[first + lane, at.TICK])
        keys[MORE, lane] = _ZERO
    assets, agents = ints[first, at.ASSETS], ints[first, at.AGENTS]
    draw_lanes(keys, count, 1, TIP << 24, words, 0)
    # One block serves two assets: a word for the shock and a word for the news of each.
    for a in range(0, assets, 2):
        draw_lanes(keys, count, 1, ASSET_STEP << 24 | a >> 1, block, 0)
        for odd in range(min(2, assets - a)):
            for lane in range(count):
                words[NEWS + a + odd, lane] = block[2 * odd + 1, lane]
            normal_lanes(block, 2 * odd, count, shocks, a + odd, tails)
    # One block wakes eight traders.
    awake = np.empty(((agents + 7) >> 3, LANES), np.uint64)
    for group in range((agents + 7) >> 3):
        draw_lanes(keys, count, 0, WAKE_UP << 24 | group, block, 0)
        wake_lanes(rules, count, group, agents, block, awake, words)
    made = list_turns(count, agents, awake, words, turns)
    decisions = np.empty((KEY_ROWS, turns.shape[1]), np.uint64)
    for turn in range(made):
        lane = signed(turns[LANE, turn])
        for word in range(NOW + 1):
            decisions[word, turn] = keys[word, lane]
        decisions[MORE, turn] = turns[TRADER, turn]
    draw_lanes(decisions, made, 0, DECISION << 24, turns, DECISION_WORDS)


@kernel
def draw_lanes(keys: Words, count: int, later: int, index: int, out: Words, line: int) -> None:
    """Philox words of all lanes into four rows of `out` from `line` on, for the tick `later` ticks on.

    The rounds are those of `philox`, written out: only so the loop over lanes vectorises. The masks tell the compiler
    that the factors fit 32 bits, for which there is a vector multiplication. A test compares both.
    """
    ahead, place = np.uint64(later), np.uint64(index)
    for lane in range(count):
        k0, k1 = keys[0, lane] & LOW, keys[1, lane] & LOW
        c0, c1 = (keys[NOW, lane] + ahead) & LOW, (place + keys[MORE, lane]) & LOW
        c2, c3 = keys[2, lane] & LOW, keys[3, lane] & LOW
        for _ in range(10):
            p0 = M0 * c0
            p1 = M1 * c2
            c0 = (p1 >> THIRTY_TWO) ^ c1 ^ k0
            c1 = p1 & LOW
            c2 = (p0 >> THIRTY_TWO) ^ c3 ^ k1
            c3 = p0 & LOW
            k0 = (k0 + W0) & LOW
            k1 = (k1 + W1) & LOW
        out[line, lane] = c0
        out[line + 1, lane] = c1
        out[line + 2, lane] = c2
        out[line + 3, lane] = c3


@kernel
def wake_lanes(rules: Floats, count: int, group: int, agents: int, block: Words, awake: Words, words: Words) -> None:
    """Decide which of eight traders wake, 14 bits each. The first group also says whose turn is first."""
    for lane in range(count):
        awake[group, lane] = _ZERO
    for member in range(min(8, agents - 8 * group)):
        chance = np.uint64(rules[trader_row(8 * group + member) + WAKE] * 16384.0)
        shift = np.uint64(18 if member & 1 == 0 else 4)
        place = np.uint64(member)
        for lane in range(count):
            bits = (block[member >> 1, lane] >> shift) & _FOURTEEN_BITS
            awake[group, lane] |= ((bits - chance) >> _SIGN) << place  # 1 where bits < chance
    if group == 0:
        # Twelve bits that are left over from three words.
        for lane in range(count):
            spare = (block[0, lane] & _FOUR_BITS) << np.uint64(8) | (block[1, lane] & _FOUR_BITS) << np.uint64(4)
            spare |= block[2, lane] & _FOUR_BITS
            words[FIRST_TURN, lane] = (spare * np.uint64(agents)) >> np.uint64(12)


@kernel
def list_turns(count: int, agents: int, awake: Words, words: Words, turns: Words) -> int:
    """List the traders that wake, world by world, in an order that starts anywhere. Returns how many there are."""
    made = 0
    for lane in range(count):
        start: int = signed(words[FIRST_TURN, lane]) if agents > 0 else 0
        words[FIRST_TURN, lane] = np.uint64(made)
        for turn in range(agents):
            trader = start + turn if start + turn < agents else start + turn - agents
            turns[TRADER, made] = np.uint64(trader)
            turns[LANE, made] = np.uint64(lane)
            # Write always, and count only those awake: a branch here would often be mispredicted.
            made += signed(awake[trader >> 3, lane]) >> (trader & 7) & 1
        words[LAST_TURN, lane] = np.uint64(made)
    return made


@kernel
def normal_lanes(block: Words, line: int, count: int, shocks: Floats, a: int, tails: Ints) -> None:
    """Standard normal deviates of all lanes from one row of words; the few in a tail are computed a second time."""
    for lane in range(count):
        shocks[a, lane] = normal_middle(uniform(block[line, lane]) - 0.5)
    tail_count = 0
    for lane in range(count):
        tails[tail_count] = lane
        tail_count += 1 if abs(uniform(block[line, lane]) - 0.5) > 0.425 else 0
    for position in range(tail_count):
        shocks[a, tails[position]] = normal_tail(uniform(block[line, tails[position]]) - 0.5)
