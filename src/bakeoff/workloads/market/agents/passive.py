"""Agents that decide nothing: the zero that scores start from, and the market's own drift."""

from __future__ import annotations

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import tried


class Null:
    """Does nothing, earns nothing, loses nothing."""

    name = "null"

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None: ...


class BuyAndHold:
    """Puts a tenth of its money into each perpetual without leverage at the first tick, and waits."""

    name = "buy-and-hold"

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    def reset(self, brief: Brief) -> None:
        self.bought = False

    def act(self, seat: Seat) -> None:
        if self.bought:
            return
        self.bought = True
        stake = self.share * seat.account().cash
        for perp in seat.perpetuals():
            tried(seat.open, perp.ticker, "LONG", stake)
