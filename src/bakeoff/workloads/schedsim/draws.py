"""Random numbers and latencies: hashes of what a number is for, and the laws that turn them into service times.

No draw comes from a shared stream, so no policy can shift another draw: arms with the same seed meet the same
latencies, failures and hangs. A draw is keyed by (seed, workflow, node, attempt, purpose). `stream` mixes the first
two into a state, `position` counts the rest, and the draw is the output of SplitMix64 (Steele, Lea and Flood 2014)
at that state and position. The purposes of one attempt:

    SERVICE   its base service time
    LUCK      upper half: the heavy tail; lower half: whether the provider fails
    SLOW      whether the slow factor of its law applies
    MORE      further numbers of laws that need several, from here on

Each law is written down once and draws either for one attempt or for tables of attempts. Logarithms, cosines and
exponentials come from `math` either way: numpy's own differ from the C library's in the last bit on some processors,
and results must not depend on the processor. What is left to numpy (hashing, products, square roots) is exact or
correctly rounded everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.schedsim.tiers import Gamma, Law, Linear, Lognormal, Tables
from bakeoff.workloads.schedsim.world import GOLDEN, KINDS, MASK, PLAN, Shape, Words, mix, mix_array

SERVICE, LUCK, SLOW, MORE = range(4)
_PURPOSE_BITS = 4
_ATTEMPT_BITS = 16
HALF = 1 << 32
SHORTEST = 1000
"""No attempt takes less than a millisecond."""
LONGEST = 1 << 62
"""Nor more than 146,000 years, so that times fit into 64 bits."""
_UNIT, _TURN, _LOW = 1.0 / HALF, 2 * math.pi / HALF, HALF - 1
_TO_UNIT = 2.0**-53
_TOGETHER = 128
"""Workflows whose draws are made together."""


def stream(seed: int, workflow: int) -> int:
    """The state that all draws of one workflow start from."""
    return mix((mix((seed + GOLDEN) & MASK) + workflow * GOLDEN) & MASK)


def position(node: int, attempt: int, purpose: int) -> int:
    """The place of a draw in its workflow's stream."""
    return (node << _ATTEMPT_BITS | attempt) << _PURPOSE_BITS | purpose


def word(state: int, place: int) -> int:
    """64 random bits."""
    return mix(state + place * GOLDEN & MASK)


def steps(places: Sequence[int]) -> Words:
    """Positions prepared for `words`: each times the increment of SplitMix64."""
    return np.array([place * GOLDEN & MASK for place in places], dtype=np.uint64)


def words(states: Sequence[int], prepared: Words) -> Words:
    """`word` for many states (rows) and positions (columns) at once."""
    return mix_array(np.add.outer(np.array(states, dtype=np.uint64), prepared))


def threshold(probability: float) -> int:
    """Half of a word is below this number with that probability."""
    return round(min(1.0, max(0.0, probability)) * HALF)


# -- latency laws


def mean_ms(law: Law, tokens: int = 0) -> float:
    """The expected base draw in milliseconds."""
    match law:
        case Lognormal():
            mean = math.exp(law.mu + law.per_token * tokens + law.sigma**2 / 2)
        case Gamma():
            mean = law.shape * law.scale
        case Linear():
            mean = law.base + law.per_unit * law.units
    return mean * (1 + law.slow_prob * (law.slow_factor - 1))


def median_ms(law: Law, tokens: int = 0) -> float:
    """The median of the base draw for a lognormal law; the mean for the others, whose medians have no closed form."""
    return math.exp(law.mu + law.per_token * tokens) if isinstance(law, Lognormal) else mean_ms(law, tokens)


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that laws call: for numbers (`ONE`) or, with the same results, for tables of numbers (`MANY`)."""

    log: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    whole: Callable[[Any], Any]
    """Cut to a whole number, and to `LONGEST`."""
    where: Callable[[Any, Any, Any], Any]


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """The function for every number of a table. Python calls it, because numpy's own may round differently."""
    return lambda table: np.fromiter(map(function, table.ravel().tolist()), float, table.size).reshape(table.shape)


ONE = Functions(
    math.log, math.cos, math.exp, math.sqrt,
    whole=lambda x: int(min(x, LONGEST)),
    where=lambda condition, yes, no: yes if condition else no,
)  # fmt: skip
MANY = Functions(
    _each(math.log), _each(math.cos), _each(math.exp), np.sqrt,
    whole=lambda x: np.trunc(np.minimum(x, LONGEST)),
    where=np.where,
)  # fmt: skip

Draw = Callable[[Functions, Sequence[Any]], Any]
"""(functions, random words or tables of them, one for each purpose) to microseconds."""


def compile_law(law: Law, tokens: int = 0) -> tuple[tuple[int, ...], Draw]:
    """The purposes that a law needs words for, and the law as a function of these words."""
    purposes: tuple[int, ...] = (SERVICE,)
    match law:
        case Lognormal():
            mu, sigma = law.mu + law.per_token * tokens + math.log(1000.0), law.sigma  # in microseconds

            def draw(fn: Functions, columns: Sequence[Any]) -> Any:
                # Box and Muller (1958): the two halves of one word are the two uniform numbers.
                radius = fn.sqrt(-2.0 * fn.log(((columns[0] >> 32) + 0.5) * _UNIT))
                return fn.whole(fn.exp(mu + sigma * radius * fn.cos((columns[0] & _LOW) * _TURN)))

        case Gamma():
            purposes = (SERVICE, *range(MORE, MORE + law.shape - 1))
            scale, zero = 1000.0 * law.scale, law.shape * 53 * math.log(2.0)

            def draw(fn: Functions, columns: Sequence[Any]) -> Any:
                # With a whole shape, a sum of exponential draws: minus the logarithm of a product of uniform numbers,
                # here each times 2**53.
                product = 1.0
                for column in columns:
                    product = product * ((column >> 11) + 0.5)
                return fn.whole((zero - fn.log(product)) * scale)

        case Linear():
            centre, spread = law.base + law.per_unit * law.units, law.spread
            lowest, width = 1000.0 * (centre - spread), 2000.0 * spread * _TO_UNIT
            if not spread:
                purposes = ()

            def draw(fn: Functions, columns: Sequence[Any]) -> Any:
                return fn.whole(lowest + (columns[0] >> 11) * width) if columns else int(1000.0 * centre)

    if not law.slow_prob:
        return purposes, draw
    below, factor = threshold(law.slow_prob), law.slow_factor

    def sometimes_slow(fn: Functions, columns: Sequence[Any]) -> Any:
        time = draw(fn, columns[:-1])
        return fn.where(columns[-1] >> 32 < below, fn.whole(time * factor), time)

    return (*purposes, SLOW), sometimes_slow


class Service:
    """Service times before failures and timeouts: whole iterations at once for first attempts, one by one for later."""

    def __init__(self, shape: Shape, tables: Tables, heavy_tail_prob: float, heavy_tail_mult: float) -> None:
        self._size = shape.size
        self._heavy_below = threshold(heavy_tail_prob)
        self._heavy = heavy_tail_mult
        self._laws = [
            [
                compile_law(tables.latency[kind], shape.plan_tokens(iteration) if number == PLAN else 0)
                for number, kind in enumerate(KINDS)
            ]
            for iteration in (0, 1)
        ]
        """For the first iteration and for later ones, whose Plan has another prompt: the law of each kind of node."""
        self._places = [[p for p, kind in enumerate(shape.kinds) if kind == number] for number in range(len(KINDS))]
        self._prepared: dict[int, Words] = {}

    def iteration(self, state: int, first: int) -> tuple[list[int], list[int]]:
        """`iterations` for one workflow."""
        return next(self.iterations([state], first))

    def iterations(self, states: Sequence[int], first: int) -> Iterator[tuple[list[int], list[int]]]:
        """For each workflow and each node of its iteration that starts at node `first`: time and luck of attempt 1."""
        laws, size = self._laws[first > 0], self._size
        if first not in self._prepared:
            # Columns: the luck of all nodes, then for each kind and each of its purposes the nodes of that kind.
            positions = [position(first + place, 1, LUCK) for place in range(size)]
            for (purposes, _), places in zip(laws, self._places, strict=True):
                positions += [position(first + place, 1, purpose) for purpose in purposes for place in places]
            self._prepared[first] = steps(positions)
        for start in range(0, len(states), _TOGETHER):
            drawn = words(states[start : start + _TOGETHER], self._prepared[first])
            luck = drawn[:, :size]
            times: npt.NDArray[np.float64] = np.empty(luck.shape)
            at = size
            for (purposes, draw), places in zip(laws, self._places, strict=True):
                if places:
                    count = len(places)
                    columns = [drawn[:, at + n * count : at + (n + 1) * count] for n in range(len(purposes))]
                    times[:, places] = draw(MANY, columns)
                    at += len(purposes) * count
            # As in `base` and `with_tail`: the floor comes before the heavy tail.
            times = np.maximum(times, SHORTEST)
            heavy = luck >> 32 < self._heavy_below
            times[heavy] = np.maximum(1, MANY.whole(times[heavy] * self._heavy))
            whole_times: Any = times.astype(np.int64).tolist()  # numpy types a 2-D list as int
            yield from zip(whole_times, (luck & _LOW).tolist(), strict=True)

    def again(self, state: int, node: int, kind: int, attempt: int) -> tuple[int, int]:
        """Time and luck of any attempt of one node."""
        time, luck = self.base(state, node, kind, attempt)
        return self.with_tail(time, luck), luck & _LOW

    def base(self, state: int, node: int, kind: int, attempt: int) -> tuple[int, int]:
        """The same without the heavy tail, which the upper half of the luck decides."""
        purposes, draw = self._laws[node >= self._size][kind]
        time = draw(ONE, [word(state, position(node, attempt, purpose)) for purpose in purposes])
        return max(SHORTEST, time), word(state, position(node, attempt, LUCK))

    def with_tail(self, time: int, luck: int) -> int:
        """The time, stretched when the attempt is one of the few that hang."""
        return max(1, ONE.whole(time * self._heavy)) if luck >> 32 < self._heavy_below else time
