"""An agent without an opinion of its own: the market's price is its forecast."""

from __future__ import annotations

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import signed_size, steer, tried


class MarketForecaster:
    """States each market's price as its probability, and trades only where two prices contradict each other.

    That is where a perpetual stands further from its index than getting in and out costs: it takes the other side
    until they have come together again.
    """

    name = "market-price"

    def __init__(self, gap: float = 0.002, size: float = 500.0, every: int = 5) -> None:
        self.gap = gap
        self.size = size
        self.every = every

    def reset(self, brief: Brief) -> None:
        self.said: dict[str, int] = {}

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if seat.tick - self.said.get(market.id, -self.every) >= self.every:
                self.said[market.id] = seat.tick
                price = round(market.yes_price, 4)
                tried(seat.post, f"I take {price:.0%} for it.", market.id, probability=price)
        held = seat.positions().perps
        for perp in seat.perpetuals():
            premium, position = perp.price / perp.index_price - 1, signed_size(held, perp.ticker)
            if position and premium * position >= 0:
                steer(seat, perp.ticker, position, 0.0)
            elif not position and abs(premium) > self.gap:
                steer(seat, perp.ticker, 0.0, self.size if premium < 0 else -self.size)
