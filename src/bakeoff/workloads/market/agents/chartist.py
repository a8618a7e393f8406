"""Agents that look at prices only: one goes with what moved, the other against it."""

from __future__ import annotations

from collections import defaultdict, deque

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import signed_size, steer, tried


class Momentum:
    """Holds what rose over the last ticks and is short what fell; buys the side of a market whose price rises."""

    name = "momentum"
    direction = 1.0

    def __init__(self, window: int = 5, threshold: float = 0.004, size: float = 1500.0, stake: float = 30.0) -> None:
        self.window = window
        self.threshold = threshold
        self.size = size
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.seen: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window + 1))

    def act(self, seat: Seat) -> None:
        held = seat.positions().perps
        for perp in seat.perpetuals():
            move = self._move(perp.ticker, perp.price) / perp.price
            if abs(move) > self.threshold:
                wanted = self.direction * self.size * (1 if move > 0 else -1)
                if wanted * signed_size(held, perp.ticker) <= 0:
                    steer(seat, perp.ticker, signed_size(held, perp.ticker), wanted, 2.0)
        for market in seat.markets():
            move = self.direction * self._move(market.id, market.yes_price)
            if abs(move) > 10 * self.threshold:
                tried(seat.buy, market.id, "YES" if move > 0 else "NO", self.stake)
                self.seen[market.id].clear()  # one move is one reason

    def _move(self, what: str, price: float) -> float:
        prices = self.seen[what]
        prices.append(price)
        return price - prices[0] if len(prices) > self.window else 0.0


class MeanReversion(Momentum):
    """Takes every move for an exaggeration and bets that it is undone."""

    name = "mean-reversion"
    direction = -1.0
