"""Random numbers without a stream: each is a hash of what it is for, so no policy can shift another draw.

A draw is keyed by (seed, workflow, node, attempt, purpose). `stream` mixes the first two into a state; `position`
counts the rest; the draw is the output of SplitMix64 at that state and position. Purposes of one attempt:

    SERVICE   its base service time
    LUCK      upper half: the heavy tail; lower half: whether the provider fails
    SLOW      whether the type's own slow factor applies
    MORE      further numbers of laws that need several, from here on
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.schedsim.hashing import GOLDEN, MASK, mix

SERVICE, LUCK, SLOW, MORE = range(4)
_PURPOSES = 4  # bits
_ATTEMPTS = 16
HALF = 1 << 32
Steps = npt.NDArray[np.uint64]


def stream(seed: int, workflow: int) -> int:
    """The state that all draws of one workflow start from."""
    return mix((mix((seed + GOLDEN) & MASK) + workflow * GOLDEN) & MASK)


def position(node: int, attempt: int, purpose: int) -> int:
    return (node << _ATTEMPTS | attempt) << _PURPOSES | purpose


def word(state: int, place: int) -> int:
    """64 random bits."""
    return mix(state + place * GOLDEN & MASK)


def steps(positions: Sequence[int]) -> Steps:
    """Positions made ready for `words`."""
    return np.array([place * GOLDEN & MASK for place in positions], dtype=np.uint64)


def words(state: int, made_ready: Steps) -> list[int]:
    """`word` for many positions at once: whole numbers only, so it is the same on every machine."""
    x = made_ready + np.uint64(state)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    found: list[int] = x.tolist()
    return found


def threshold(probability: float) -> int:
    """A half of a word is below this with that probability."""
    return round(min(1.0, max(0.0, probability)) * HALF)
