"""An agent that trades without a reason."""

from __future__ import annotations

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import tried


class Random:
    """Each tick one order drawn by chance: buy shares, sell shares, open or close a perpetual; often none."""

    name = "random"

    def __init__(self, activity: float = 1.0, stake: float = 100.0) -> None:
        self.activity = activity
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.rng = brief.rng

    def act(self, seat: Seat) -> None:
        if self.rng.random() >= self.activity:
            return
        deeds = (self._buy, self._sell, self._open, self._close)
        deeds[self.rng.integers(len(deeds))](seat)

    def _buy(self, seat: Seat) -> None:
        if markets := seat.markets():
            market = markets[self.rng.integers(len(markets))]
            tried(seat.buy, market.id, ("YES", "NO")[self.rng.integers(2)], self._dollars())

    def _sell(self, seat: Seat) -> None:
        if held := seat.positions().markets:
            position = held[self.rng.integers(len(held))]
            tried(seat.sell, position.market_id, position.side, position.shares)

    def _open(self, seat: Seat) -> None:
        if perps := seat.perpetuals():
            perp = perps[self.rng.integers(len(perps))]
            leverage = float(self.rng.integers(1, int(perp.max_leverage) + 1))
            tried(seat.open, perp.ticker, ("LONG", "SHORT")[self.rng.integers(2)], 3 * self._dollars(), leverage)

    def _close(self, seat: Seat) -> None:
        if held := seat.positions().perps:
            tried(seat.close, held[self.rng.integers(len(held))].ticker)

    def _dollars(self) -> float:
        return float(self.stake * self.rng.uniform(0.2, 1.0))
