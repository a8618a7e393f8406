"""The tables of tiers and latencies (`tiers.toml`, or a user's file), and random service times drawn by their laws.

No draw comes from a shared stream, so no policy can shift another draw: arms with the same seed meet the same
latencies, failures and hangs. A draw is keyed by (seed, workflow, node, attempt, purpose). `stream` mixes the first
two into a state, `position` counts the rest, and the draw is the output of SplitMix64 (Steele, Lea and Flood 2014)
at that state and position. Like the counter-based generators of Salmon, Moraes, Dror and Shaw (SC 2011; Philox is
one), it can be asked for any position in any order. The purposes of one attempt:

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

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.problems import problems
from bakeoff.workloads.schedsim.world import (
    GOLDEN,
    HALF,
    KINDS,
    MASK,
    PLAN,
    PROVIDERS,
    Shape,
    Words,
    mix,
    mix_array,
    threshold,
)  # fmt: skip

SERVICE, LUCK, SLOW, MORE = range(4)
_PURPOSE_BITS = 4
_ATTEMPT_BITS = 16
SHORTEST = 1000
"""No attempt takes less than a millisecond."""
LONGEST = 1 << 62
"""Nor more than 146,000 years, so that times fit into 64 bits."""
_UNIT, _TURN, _LOW = 1.0 / HALF, 2 * math.pi / HALF, HALF - 1
_TO_UNIT = 2.0**-53  # the upper 53 bits of a word become a float without rounding
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


# -- the tables

DEFAULT = Path(__file__).with_name("tiers.toml")
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TiersFileTable(BaseModel):
    """A table of the file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TierTable(TiersFileTable):
    """A tier of a provider: how many calls at a time, how many a second, what a call costs and how it goes wrong."""

    provider: Literal["embed_provider", "llm_provider"]
    id: Annotated[int, Field(ge=0)]
    concurrency: Annotated[int, Field(ge=1)]
    rate: Positive
    burst: Annotated[int, Field(ge=1)]
    price: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    p_fail: Share
    timeout_ms: Positive
    max_retries: Annotated[int, Field(ge=0)]
    speed: Positive = 1.0


class Pools(TiersFileTable):
    """How many slots this machine's own work has."""

    cpu: Annotated[int, Field(ge=1)]
    io: Annotated[int, Field(ge=1)]


class Slow(TiersFileTable):
    """What every law has: with `slow_prob`, a draw is `slow_factor` times as long."""

    slow_prob: Share = 0.0
    slow_factor: Positive = 1.0


class Lognormal(Slow):
    law: Literal["lognormal"]
    mu: float
    sigma: Annotated[float, Field(ge=0)]
    per_token: float = 0.0


class Gamma(Slow):
    law: Literal["gamma"]
    shape: Annotated[int, Field(ge=1, le=12)]
    """A whole number: the draw is a sum of that many exponential ones."""
    scale: Positive


class Linear(Slow):
    law: Literal["linear"]
    base: float
    per_unit: float = 0.0
    units: float = 0.0
    spread: Annotated[float, Field(ge=0)] = 0.0


Law = Annotated[Lognormal | Gamma | Linear, Field(discriminator="law")]


class Tables(TiersFileTable):
    """The whole file. `latency` has one law for each kind of node."""

    pools: Pools
    tiers: Annotated[list[TierTable], Field(min_length=2)]
    latency: dict[str, Law]

    @model_validator(mode="after")
    def _complete(self) -> Tables:
        names = [(tier.provider, tier.id) for tier in self.tiers]
        if len(set(names)) != len(names):
            raise ValueError("two tiers have the same provider and id")
        if missing := [provider for provider in PROVIDERS if provider not in {name for name, _ in names}]:
            raise ValueError(f"no tier of {missing[0]}")
        if set(self.latency) != set(KINDS):
            raise ValueError(f"latency needs exactly {', '.join(KINDS)}")
        return self


@cache
def load_tables(path: Path | None = None) -> Tables:
    """Read tables from TOML, or from JSON if the file is called so (default: `tiers.toml` beside this module).

    Raises UsageError when the file cannot be read, SpecError with every problem in it.
    """
    path = path or DEFAULT
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        return Tables.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, Tables, given=tree), path) from error


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
