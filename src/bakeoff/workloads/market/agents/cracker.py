"""An agent that wants to know the generator's state: from what it sees, or by making worlds until one looks the same.

Where it finds nothing it bets on its best guess all the same, as somebody would who trusts the method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import tried
from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, Scenario

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

WORD = 2**32
LCGS = {"numerical recipes": (1664525, 1013904223), "ansi c": (1103515245, 12345), "borland": (22695477, 1)}
"""Multiplier and increment of generators that benchmarks have been built on, all modulo 2^32."""


@dataclass(frozen=True, slots=True)
class State:
    """A generator's state that would have made what was seen."""

    generator: str
    word: int

    def draws(self, count: int) -> Iterator[float]:
        """What it draws next, from 0 to below 1."""
        multiplier, increment = LCGS[self.generator]
        word = self.word
        for _ in range(count):
            word = (multiplier * word + increment) % WORD
            yield word / WORD


def states(values: Sequence[float]) -> Iterator[State]:
    """Every state that one of the values can be an affine image of, and that gives another of them as its next draw."""
    for generator in LCGS:
        for unit in _units(values):
            state = State(generator, int(unit * WORD) % WORD)
            following = list(state.draws(3))
            if any(abs(draw - other) < 1e-5 for draw in following for other in _units(values)):
                yield state


def _units(values: Sequence[float]) -> list[float]:
    """The values as draws from 0 to 1, in the ways public numbers have been made from draws."""
    found = [(value - low) / width for value in values for low, width in ((0, 1), (-0.5, 1), (-5, 10), (-0.001, 0.002),
             (1e6, 2e6), (5e5, 1e6), (50, 50), (-500, 1000))]  # fmt: skip
    return [unit for unit in found if 0 < unit < 1]


class GeneratorCracker:
    """Tries known generators on every public number, then the published secret with small seeds."""

    name = "generator-cracker"

    def __init__(self, seeds: int = 64, stake: float = 60.0) -> None:
        self.seeds = seeds
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.scenario = {name: brief.scenario[name] for name in Scenario.model_fields if name in brief.scenario}
        self.state: State | None = None
        self.twin: World | None = None
        """A world of our own that looks exactly like the one we sit in."""
        self.outcomes: dict[str, bool] = {}

    def act(self, seat: Seat) -> None:
        markets = seat.markets()
        if seat.tick == 0:
            self.state = next(states(_public_numbers(seat)), None) or State("numerical recipes", _word(seat))
            self.twin = self._twin(markets)
        if self.twin is not None:
            self._bet_known(seat, markets)
        else:
            self._bet_drawn(seat, markets)

    def _twin(self, markets: Sequence[Any]) -> World | None:
        from bakeoff.workloads.market.world.world import World

        scenario = Scenario.model_validate(self.scenario)
        for seed in range(self.seeds):
            world = World.create(scenario, seed, secret=PUBLISHED_SECRET)
            if markets and _same(world.markets(), markets):
                return world
        return None

    def _bet_known(self, seat: Seat, markets: Sequence[Any]) -> None:
        assert self.twin is not None
        known = {question.id: question.outcome for question in self.twin.truth().questions}
        for market in markets:
            if (outcome := known.get(market.id)) is not None:
                tried(seat.buy, market.id, "YES" if outcome else "NO", self.stake)

    def _bet_drawn(self, seat: Seat, markets: Sequence[Any]) -> None:
        """Outcomes as fair coins of the guessed state, one for each market in the order of their opening."""
        assert self.state is not None
        fresh = [market for market in markets if market.id not in self.outcomes]
        for market, draw in zip(fresh, self.state.draws(len(fresh)), strict=True):
            self.outcomes[market.id] = draw > 0.5
            tried(seat.buy, market.id, "YES" if draw > 0.5 else "NO", self.stake)


def _public_numbers(seat: Seat) -> list[float]:
    """Every float that the first tick shows."""
    views = [*seat.markets(), *seat.perpetuals()]
    return [
        value for view in views for name in view.__slots__ if isinstance(value := getattr(view, name), float) and value
    ]


def _word(seat: Seat) -> int:
    return int(sum(perp.open_interest + perp.price for perp in seat.perpetuals()) * 1e4) % WORD


def _same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return [(view.id, view.strike, view.yes_price) for view in ours] == [
        (view.id, view.strike, view.yes_price) for view in theirs
    ]
