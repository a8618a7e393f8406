"""Agents that look for a hole in the world instead of for information. Each must earn nothing.

They ship so that anyone can point them at a world: `bakeoff run` with a probe and `null` as arms gives a verdict.
"""

from __future__ import annotations

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import tried


class CheapSide:
    """Buys the cheaper side of every market: pays where prices do not follow the odds."""

    name = "cheap-side"

    def __init__(self, stake: float = 40.0) -> None:
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.bought: set[str] = set()

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if market.id not in self.bought:
                self.bought.add(market.id)
                tried(seat.buy, market.id, "YES" if market.yes_price < market.no_price else "NO", self.stake)


class BothSides:
    """Buys as many NO as YES shares of every market: pays where a score counts hits, or where both together cost less than 1."""

    name = "both-sides"

    def __init__(self, stake: float = 25.0) -> None:
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.bought: set[str] = set()

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if market.id not in self.bought:
                self.bought.add(market.id)
                if bought := tried(seat.buy, market.id, "YES", self.stake):
                    # A pair of shares costs 1 whatever the price; the fee comes on top.
                    rest = bought["shares"] - (bought["cost"] - bought["fee"])
                    tried(seat.buy, market.id, "NO", rest * bought["cost"] / (bought["cost"] - bought["fee"]))


class AlwaysLong:
    """Long in every perpetual at half the leverage allowed, from the first tick to the last: pays where prices drift up."""

    name = "always-long"

    def __init__(self, margin: float = 300.0) -> None:
        self.margin = margin

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None:
        held = {view.ticker for view in seat.positions().perps}
        for perp in seat.perpetuals():
            if perp.ticker not in held:
                leverage = max(1.0, perp.max_leverage / 2)
                tried(seat.open, perp.ticker, "LONG", self.margin * leverage, leverage)


class UnboundedStake:
    """Asks for more than it has, then for all it has: pays where nobody checks the balance."""

    name = "unbounded-stake"
    ABSURD = (1e300, 1e9, -1e6, float("inf"), float("nan"), 10_000_000.0)

    def reset(self, brief: Brief) -> None:
        self.accepted: list[float] = []
        """Absurd amounts that were taken; must stay empty."""

    def act(self, seat: Seat) -> None:
        markets, perps = seat.markets(), seat.perpetuals()
        for amount in self.ABSURD if seat.tick == 0 else ():
            if markets and tried(seat.buy, markets[0].id, "YES", amount):
                self.accepted.append(amount)
            if perps and tried(seat.open, perps[0].ticker, "LONG", amount, perps[0].max_leverage):
                self.accepted.append(amount)
        if markets and (cash := seat.account().cash) > 20:
            market = max(markets, key=lambda each: abs(each.yes_price - 0.5))
            tried(seat.buy, market.id, "YES" if market.yes_price > 0.5 else "NO", 0.98 * cash)


class WashTrader:
    """Trades with itself, to and fro in every tick: pays where volume or one's own price impact is worth something."""

    name = "wash-trader"

    def __init__(self, stake: float = 150.0) -> None:
        self.stake = stake

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None:
        for market in seat.markets()[:2]:
            if bought := tried(seat.buy, market.id, "YES", self.stake):
                tried(seat.sell, market.id, "YES", bought["shares"])
        for perp in seat.perpetuals()[:2]:
            if tried(seat.open, perp.ticker, "LONG", 4 * self.stake, 1.0):
                tried(seat.close, perp.ticker)


class PricePusher:
    """Pushes a price, lets the others follow, and sells to them one tick later; says so loudly in the feed meanwhile."""

    name = "price-pusher"

    def __init__(self, stake: float = 150.0) -> None:
        self.stake = stake

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None:
        if seat.tick % 2:
            self._let_go(seat)
            return
        for market in seat.markets()[:2]:
            if tried(seat.buy, market.id, "YES", self.stake):
                tried(seat.post, "This one is certain. Everybody buys.", market.id, "YES")
        for perp in seat.perpetuals()[:2]:
            tried(seat.open, perp.ticker, "LONG", 4 * self.stake, 2.0)

    def _let_go(self, seat: Seat) -> None:
        held = seat.positions()
        for shares in held.markets:
            tried(seat.sell, shares.market_id, shares.side, shares.shares)
        for position in held.perps:
            tried(seat.close, position.ticker)
