"""Randomness: Philox 4x32-10, a counter-based generator. Each draw is a function of (key, domain, tick, index) and of
nothing else, so no draw depends on what was drawn before it, and what is public says nothing about what is not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import KEY0, KEY1, KEY2, KEY3, IntRow

# What a draw is for. Each domain has its own blocks.
BIRTH, SOURCE, STORY_START, ASSET_STEP, QUESTION, TIP, WAKE_UP, DECISION, SCHEME, INVITATION, SEAT_ORDER = range(11)

Word = Any
"""A 32-bit word in a uint64; numba must not mix it with signed integers."""
Words = tuple[Word, Word, Word, Word]

_signed: Any = np.int64

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@kernel
def philox(k0: Word, k1: Word, c0: Word, c1: Word, c2: Word, c3: Word) -> Words:
    """Ten rounds over four 32-bit words, all given and returned as uint64."""
    for _ in range(10):
        high = _M0 * c0
        low = _M1 * c2
        c0 = (low >> _32) ^ c1 ^ k0
        c1 = low & _LOW
        c2 = (high >> _32) ^ c3 ^ k1
        c3 = high & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@kernel
def draw(i: IntRow, tick: int, domain: int, index: int) -> Words:
    """The world's four words for (domain, tick, index). Tick fits 32 bits, index 24."""
    return philox(
        np.uint64(i[KEY0]),
        np.uint64(i[KEY1]),
        np.uint64(tick),
        np.uint64(domain << 24 | index),
        np.uint64(i[KEY2]),
        np.uint64(i[KEY3]),
    )


@kernel
def uniform(word: Word) -> float:
    """Inside (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32


@kernel
def below(word: Word, n: int) -> int:
    """Even over 0 .. n - 1; the bias is n / 2**32."""
    drawn: int = _signed((word * np.uint64(n)) >> _32)
    return drawn


@kernel
def normal(word: Word) -> float:
    """Standard normal deviate by the inverse of its distribution function (Wichura 1988, PPND7: seven digits)."""
    q = uniform(word) - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return (
            q
            * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179)
            / (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
        )
    r = math.sqrt(-math.log(0.5 + q if q < 0.0 else 0.5 - q))
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


@kernel
def low_bits(word: Word) -> int:
    """The twelve lowest bits, for choices that carry no information; what else a word decides, its high bits do."""
    bits: int = _signed(word & np.uint64(4095))
    return bits
