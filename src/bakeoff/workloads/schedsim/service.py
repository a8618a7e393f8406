"""Latency laws: how long attempts take before failures and timeouts have their say.

A law draws for many attempts at once from columns of random words, one column for each purpose that it needs. The
formulas are fixed here and call nothing but `math`, so that results do not depend on a library's version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, exp, log, pi, sqrt

from bakeoff.workloads.schedsim.draws import (
    HALF,
    LUCK,
    MORE,
    SERVICE,
    SLOW,
    Steps,
    position,
    steps,
    threshold,
    word,
    words,
)  # fmt: skip
from bakeoff.workloads.schedsim.tiers import Gamma, Law, Linear, Lognormal, Tables
from bakeoff.workloads.schedsim.workflow import KINDS, PLAN, Shape

Columns = Sequence[Sequence[int]]
Draw = Callable[[Columns, int], list[int]]
"""(columns, how many) to microseconds."""
SHORTEST = 1000
"""No attempt takes less than a millisecond."""
_UNIT, _TURN, _LOW = 1.0 / HALF, 2 * pi / HALF, HALF - 1
_TO_UNIT = 2.0**-53


def mean_ms(law: Law, tokens: int = 0) -> float:
    """The expected base draw."""
    match law:
        case Lognormal():
            mean = exp(law.mu + law.per_token * tokens + law.sigma**2 / 2)
        case Gamma():
            mean = law.shape * law.scale
        case Linear():
            mean = law.base + law.per_unit * law.units
    return mean * (1 + law.slow_prob * (law.slow_factor - 1))


def median_ms(law: Law, tokens: int = 0) -> float:
    """The median of the base draw, for laws that have a plain one; else the mean."""
    return exp(law.mu + law.per_token * tokens) if isinstance(law, Lognormal) else mean_ms(law, tokens)


def compiled(law: Law, tokens: int = 0) -> tuple[tuple[int, ...], Draw]:
    """The purposes that a law needs words for, and the law."""
    purposes: tuple[int, ...]
    match law:
        case Lognormal():
            purposes, draw = (SERVICE,), _lognormal(law.mu + law.per_token * tokens, law.sigma)
        case Gamma():
            purposes, draw = (SERVICE, *range(MORE, MORE + law.shape - 1)), _gamma(law.shape, law.scale)
        case Linear() if law.spread:
            purposes, draw = (SERVICE,), _linear(law.base + law.per_unit * law.units, law.spread)
        case Linear():
            purposes, draw = (), _constant(law.base + law.per_unit * law.units)
    if not law.slow_prob:
        return purposes, draw
    return (*purposes, SLOW), _sometimes_slow(draw, law.slow_prob, law.slow_factor)


def _lognormal(mu: float, sigma: float) -> Draw:
    """A normal by Box and Muller: the halves of one word are its two uniforms."""
    mu += log(1000.0)  # to microseconds
    return lambda columns, count: [
        int(exp(mu + sigma * sqrt(-2.0 * log(((x >> 32) + 0.5) * _UNIT)) * cos((x & _LOW) * _TURN))) for x in columns[0]
    ]


def _gamma(shape: int, scale: float) -> Draw:
    """With a whole shape, a sum of that many exponential draws: minus the logarithm of a product of uniforms."""
    scale *= 1000.0
    zero = shape * 53 * log(2.0)  # the uniforms are taken times 2**53

    def draw(columns: Columns, count: int) -> list[int]:
        products = [1.0] * count
        for column in columns:
            products = [product * ((x >> 11) + 0.5) for product, x in zip(products, column, strict=True)]
        return [int((zero - log(product)) * scale) for product in products]

    return draw


def _linear(centre: float, spread: float) -> Draw:
    lowest, width = 1000.0 * (centre - spread), 2000.0 * spread * _TO_UNIT
    return lambda columns, count: [int(lowest + (x >> 11) * width) for x in columns[0]]


def _constant(value: float) -> Draw:
    return lambda columns, count: [int(1000.0 * value)] * count


def _sometimes_slow(base: Draw, probability: float, factor: float) -> Draw:
    below = threshold(probability)

    def draw(columns: Columns, count: int) -> list[int]:
        times = base(columns[:-1], count)
        return [int(time * factor) if x >> 32 < below else time for time, x in zip(times, columns[-1], strict=True)]

    return draw


class Service:
    """Draws of whole iterations at a time for first attempts, one by one for later ones; the numbers are the same."""

    def __init__(self, shape: Shape, tables: Tables, heavy_tail_prob: float, heavy_tail_mult: float) -> None:
        self._shape = shape
        self._heavy_below = threshold(heavy_tail_prob)
        self._heavy = heavy_tail_mult
        tokens = [shape.plan_tokens(0), shape.plan_tokens(1)]
        self._laws = [
            [
                compiled(tables.latency[kind], tokens[later] if number == PLAN else 0)
                for number, kind in enumerate(KINDS)
            ]
            for later in (0, 1)
        ]
        self._places = [[p for p, kind in enumerate(shape.kinds) if kind == number] for number in range(len(KINDS))]
        listed = [place for places in self._places for place in places]
        self._order = sorted(range(shape.size), key=listed.__getitem__)
        """Where each place's time is in a list that goes kind by kind."""
        self._ready: dict[int, Steps] = {}

    def _steps(self, first: int) -> Steps:
        """Of an iteration: luck for all nodes, then each law's columns."""
        if first not in self._ready:
            luck = [position(first + place, 1, LUCK) for place in range(self._shape.size)]
            rest = [
                position(first + place, 1, purpose)
                for (purposes, _), places in zip(self._laws[0], self._places, strict=True)
                for purpose in purposes
                for place in places
            ]
            self._ready[first] = steps(luck + rest)
        return self._ready[first]

    def iteration(self, state: int, first: int) -> tuple[list[int], list[int]]:
        """For each node of the iteration that starts at `first`: the time of its first attempt, and its luck."""
        drawn = words(state, self._steps(first))
        size = at = self._shape.size
        luck = drawn[:size]
        by_kind: list[int] = []
        for (purposes, draw), places in zip(self._laws[first > 0], self._places, strict=True):
            count = len(places)
            columns = [drawn[at + number * count : at + (number + 1) * count] for number in range(len(purposes))]
            at += count * len(purposes)
            by_kind += draw(columns, count)
        times = [by_kind[where] for where in self._order]
        if min(times) < SHORTEST:
            times = [max(SHORTEST, time) for time in times]
        below = self._heavy_below << 32
        for place in [place for place, x in enumerate(luck) if x < below]:
            times[place] = self._stretched(times[place])
        return times, luck

    def again(self, state: int, node: int, kind: int, attempt: int) -> tuple[int, int]:
        """The same for any attempt of one node."""
        time, luck = self.base(state, node, kind, attempt)
        return self.with_tail(time, luck), luck

    def base(self, state: int, node: int, kind: int, attempt: int) -> tuple[int, int]:
        """Without the heavy tail."""
        purposes, draw = self._laws[node >= self._shape.size][kind]
        (time,) = draw([[word(state, position(node, attempt, purpose))] for purpose in purposes], 1)
        return max(SHORTEST, time), word(state, position(node, attempt, LUCK))

    def with_tail(self, time: int, luck: int) -> int:
        return self._stretched(time) if luck >> 32 < self._heavy_below else time

    def _stretched(self, time: int) -> int:
        return max(1, int(time * self._heavy))
