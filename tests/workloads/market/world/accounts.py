"""What worlds own in total, and orders that a player might give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.layout import State
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World


def money(state: State) -> Any:
    """Of each world: all cash and all margins, in micro-dollars."""
    return state.cash.sum(1) + state.positions[..., at.MARGIN].sum((1, 2))


def outstanding_is_held(state: State) -> bool:
    """Shares of every open market: what the maker sold is what the holders have. Units likewise."""
    is_open = state.markets[..., at.OPEN] == 1
    sold = state.markets[..., at.Q_YES : at.Q_NO + 1]
    held = state.shares[..., : at.NO + 1].sum(2)
    units = state.positions[..., at.UNITS]
    longs, shorts = units.clip(min=0).sum(2), (-units).clip(min=0).sum(2)
    return bool(
        (sold == held)[is_open].all()
        and (longs == state.assets[..., at.LONG_UNITS]).all()
        and (shorts == state.assets[..., at.SHORT_UNITS]).all()
    )


@dataclass(frozen=True)
class Move:
    """Something a seat tries; `which` picks the market or perpetual."""

    what: str
    which: int
    side: bool
    amount: float
    leverage: float

    def make(self, world: World, seat: int = 0) -> bool:
        """False when the world refused it."""
        markets, perps = world.markets(), world.perpetuals()
        try:
            if self.what == "buy":
                world.buy(seat, markets[self.which % len(markets)].id, "YES" if self.side else "NO", self.amount)
            elif self.what == "sell":
                world.sell(seat, markets[self.which % len(markets)].id, "YES" if self.side else "NO", self.amount)
            elif self.what == "open":
                ticker, side = perps[self.which % len(perps)].ticker, "LONG" if self.side else "SHORT"
                world.open(seat, ticker, side, self.amount * 20, self.leverage)
            elif self.what == "close":
                world.close(seat, perps[self.which % len(perps)].ticker, self.amount * 20 if self.side else None)
            else:
                world.post(seat, "mine", markets[self.which % len(markets)].id, probability=0.9 if self.side else 0.1)
        except Rejected:
            return False
        return True


MOVES = st.builds(
    Move,
    what=st.sampled_from(["buy", "buy", "sell", "open", "open", "close", "post"]),
    which=st.integers(0, 7),
    side=st.booleans(),
    amount=st.one_of(st.floats(0.5, 4000.0), st.sampled_from([1.0, 1.000001, 33.333333])),
    leverage=st.sampled_from([1.0, 2.0, 3.7, 10.0]),
)
