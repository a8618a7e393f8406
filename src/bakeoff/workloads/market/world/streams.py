"""Randomness: Philox 4x32-10, a counter-based generator. Each draw is a function of (key, domain, tick, index) and of
nothing else, so no draw depends on what was drawn before it, and what is public says nothing about what is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bakeoff.workloads.market.world.compiled import as_float, kernel
from bakeoff.workloads.market.world.layout import KEY0, KEY1, KEY2, KEY3, IntRow

# What a draw is for. Each domain has its own blocks.
BIRTH, SOURCE, STORY_START, ASSET_STEP, QUESTION, TIP, WAKE_UP, DECISION, SCHEME, INVITATION, SEAT_ORDER = range(11)

Word = Any
"""A 32-bit word in a uint64; numba must not mix it with signed integers."""
Words = tuple[Word, Word, Word, Word]

signed: Any = np.int64
_float: Any = as_float
_EXPONENT = np.uint64(0x4330000000000000)

LOW = np.uint64(0xFFFFFFFF)
THIRTY_TWO = np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@kernel
def philox(k0: Word, k1: Word, c0: Word, c1: Word, c2: Word, c3: Word) -> Words:
    """Ten rounds over four 32-bit words, all given and returned as uint64."""
    for _ in range(10):
        high = M0 * c0
        low = M1 * c2
        c0 = (low >> THIRTY_TWO) ^ c1 ^ k0
        c1 = low & LOW
        c2 = (high >> THIRTY_TWO) ^ c3 ^ k1
        c3 = high & LOW
        k0 = (k0 + W0) & LOW
        k1 = (k1 + W1) & LOW
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
    """Inside (0, 1). The word becomes the low bits of a float at 2^52, which is exact and quick."""
    drawn: float = (_float(word | _EXPONENT) - 4503599627370496.0 + 0.5) * 2.0**-32
    return drawn


@kernel
def below(word: Word, n: int) -> int:
    """Even over 0 .. n - 1; the bias is n / 2**32."""
    drawn: int = signed((word * np.uint64(n)) >> THIRTY_TWO)
    return drawn


@kernel
def rough_normal(word: Word) -> float:
    """Roughly normal, of mean 0 and variance 1: four bytes added up. Good enough for a trader's mood."""
    total = bits_of(word, 0, 8) + bits_of(word, 8, 8) + bits_of(word, 16, 8) + bits_of(word, 24, 8)
    return (total - 510.0) * (1.0 / 147.8)


@kernel
def bits_of(word: Word, shift: int, count: int) -> int:
    """`count` bits of a word, from bit `shift` up."""
    bits: int = signed(word >> np.uint64(shift)) & ((1 << count) - 1)
    return bits


@kernel
def low_bits(word: Word) -> int:
    """The twelve lowest bits, for choices that carry no information; what else a word decides, its high bits do."""
    bits: int = signed(word & np.uint64(4095))
    return bits
