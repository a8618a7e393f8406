"""Exact inference by the world's own kernels, for tests to compare with."""

from __future__ import annotations

import numpy as np

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.jit import entry, row
from bakeoff.workloads.market.world.layout import Floats, Ints
from bakeoff.workloads.market.world.stories import Belief, chance, growth_ahead
from bakeoff.workloads.market.world.world import World


@entry
def market_chance(ints: Ints, floats: Floats, r: Floats, m: int, down: float, flat: float, up: float) -> float:
    """P(YES) of an open market, given P(theta = -1, 0, 1)."""
    return chance(row(ints, 0), row(floats, 0), row(r, 0), m, (down, flat, up))


@entry
def index_growth(ints: Ints, floats: Floats, r: Floats, a: int, due: int, down: float, flat: float, up: float) -> float:
    """Expected growth of an index until tick `due` of the running story, given P(theta = -1, 0, 1)."""
    return growth_ahead(row(ints, 0), row(r, 0), a, due, (down, flat, up))


class Model:
    """What the world itself makes of the news, and the reliabilities of its sources and chats."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.reliability = world.reliability()

    def belief(self, ticker: str, seat: int | None = None) -> Belief:
        """P(theta = -1, 0, +1) given public news; with a seat, also given the tips of the chats it has joined."""
        state, a = self._world.state, self._world.asset(ticker)
        weights = state.indices[0, a, at.WEIGHT : at.WEIGHT + 3].copy()
        for chat in range(at.CHATS):
            if seat is not None and state.books[0, seat, at.MEMBER + chat] == at.JOINED:
                weights += state.tips[0, a, chat]
        shares = np.exp(weights - weights.max())
        shares /= shares.sum()
        return float(shares[0]), float(shares[1]), float(shares[2])

    def probability(self, market_id: str, seat: int | None = None) -> float:
        """P(YES) of an open market."""
        world = self._world
        m = world.slot(market_id)
        belief = self.belief(world.tickers[world.state.markets[0, m, at.ASSET]], seat)
        return float(market_chance(world.state.ints, world.state.floats, world.r, m, *belief))

    def growth(self, ticker: str, due: int, seat: int | None = None) -> float:
        """Expected growth of an index until tick `due`, which lies in the running story."""
        world = self._world
        a, belief = world.asset(ticker), self.belief(ticker, seat)
        return float(index_growth(world.state.ints, world.state.floats, world.r, a, due, *belief))
