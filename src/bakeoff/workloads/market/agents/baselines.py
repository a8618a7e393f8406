"""Simple agents to compare others with: none of them knows more than the public.

Constructor options are dataclass fields, so `options = { stake = 50 }` in an experiment file sets them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.workloads.market.agents.base import Brief, Seat, attempt, signed_size, steer

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import MessageView, PostView


class Null:
    """Does nothing. Scores start from its result, which is exactly 0."""

    name = "null"

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None: ...


@dataclass
class BuyAndHold:
    """Goes long in each perpetual with a tenth of its money at the first tick, without leverage, and waits."""

    share: float = 0.1
    name = "buy-and-hold"

    def reset(self, brief: Brief) -> None:
        self.bought = False

    def act(self, seat: Seat) -> None:
        if self.bought:
            return
        self.bought = True
        stake = self.share * seat.account().cash
        for perp in seat.perpetuals():
            attempt(seat.open, perp.ticker, "LONG", stake)


@dataclass
class Random:
    """Places one random order per tick: buys or sells shares, opens or closes a perpetual."""

    activity: float = 1.0
    """Probability of doing anything in a tick."""
    stake: float = 100.0
    name = "random"

    def reset(self, brief: Brief) -> None:
        self.rng = brief.rng

    def act(self, seat: Seat) -> None:
        # The order of draws is part of the agent: changing it changes every run with a given seed.
        rng = self.rng
        if rng.random() >= self.activity:
            return
        action = ("buy", "sell", "open", "close")[rng.integers(4)]
        if action == "buy" and (markets := seat.markets()):
            market = markets[rng.integers(len(markets))]
            side = ("YES", "NO")[rng.integers(2)]
            attempt(seat.buy, market.id, side, float(self.stake * rng.uniform(0.2, 1.0)))
        elif action == "sell" and (shares := seat.positions().markets):
            held = shares[rng.integers(len(shares))]
            attempt(seat.sell, held.market_id, held.side, held.shares)
        elif action == "open" and (perps := seat.perpetuals()):
            perp = perps[rng.integers(len(perps))]
            leverage = float(rng.integers(1, int(perp.max_leverage) + 1))
            side = ("LONG", "SHORT")[rng.integers(2)]
            attempt(seat.open, perp.ticker, side, 3 * float(self.stake * rng.uniform(0.2, 1.0)), leverage)
        elif action == "close" and (positions := seat.positions().perps):
            attempt(seat.close, positions[rng.integers(len(positions))].ticker)


@dataclass
class Momentum:
    """Is long what rose over the last ticks and short what fell; buys the side of a market whose price rises."""

    window: int = 5
    threshold: float = 0.004
    """Relative move of a perpetual that is a signal; for shares ten times as much, in price points."""
    size: float = 1500.0
    stake: float = 30.0
    name = "momentum"
    direction = 1.0

    def reset(self, brief: Brief) -> None:
        self.prices: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window + 1))

    def act(self, seat: Seat) -> None:
        positions = seat.positions().perps
        for perp in seat.perpetuals():
            move = self._move(perp.ticker, perp.price) / perp.price
            if abs(move) > self.threshold:
                target = self.direction * self.size * (1 if move > 0 else -1)
                held = signed_size(positions, perp.ticker)
                if target * held <= 0:  # a position on the right side is left alone, whatever its size
                    steer(seat, perp.ticker, held, target, 2.0)
        for market in seat.markets():
            move = self.direction * self._move(market.id, market.yes_price)
            if abs(move) > 10 * self.threshold:
                attempt(seat.buy, market.id, "YES" if move > 0 else "NO", self.stake)
                self.prices[market.id].clear()  # trade on each move once

    def _move(self, name: str, price: float) -> float:
        """Remember the price and return its change over the window; 0 until the window is full."""
        prices = self.prices[name]
        prices.append(price)
        return price - prices[0] if len(prices) > self.window else 0.0


@dataclass
class MeanReversion(Momentum):
    """Bets that every move is an overreaction and will be undone."""

    name = "mean-reversion"
    direction = -1.0


@dataclass
class MarketForecaster:
    """Posts each market's price as its forecast, and trades only where two prices contradict each other.

    When a perpetual's mark is further from its index than a round trip costs, it takes the other side and holds it
    until the two have met again.
    """

    gap: float = 0.002
    size: float = 500.0
    every: int = 5
    """Ticks between two posts about one market."""
    name = "market-price"

    def reset(self, brief: Brief) -> None:
        self.posted: dict[str, int] = {}

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if seat.tick - self.posted.get(market.id, -self.every) >= self.every:
                self.posted[market.id] = seat.tick
                price = round(market.yes_price, 4)
                attempt(seat.post, f"I take {price:.0%} for it.", market.id, probability=price)
        positions = seat.positions().perps
        for perp in seat.perpetuals():
            premium, held = perp.price / perp.index_price - 1, signed_size(positions, perp.ticker)
            # Long below the index and short above it; the position is closed when the premium has changed its sign.
            if held and premium * held >= 0:
                steer(seat, perp.ticker, held, 0.0)
            elif not held and abs(premium) > self.gap:
                steer(seat, perp.ticker, 0.0, self.size if premium < 0 else -self.size)


@dataclass
class Follower:
    """Adds up the claims about each running story and trades the sign of the sum, in perpetuals and in markets.

    Subclasses say which claims they read. All claims count the same, however reliable their source is.
    """

    size: float = 1500.0
    stake: float = 30.0
    name = "follower"

    def reset(self, brief: Brief) -> None:
        self.read: set[str] = set()
        self.story: dict[str, int] = {}
        self.sums: dict[str, int] = defaultdict(int)
        self.bought: set[tuple[str, str]] = set()

    def act(self, seat: Seat) -> None:
        perps = seat.perpetuals()
        for perp in perps:
            if self.story.get(perp.ticker) != perp.story:  # claims about an earlier story say nothing about this one
                self.story[perp.ticker], self.sums[perp.ticker] = perp.story, 0
        for view in self.news(seat):
            if view.id not in self.read:
                self.read.add(view.id)
                if view.ticker is not None and view.claim is not None:
                    self.sums[view.ticker] += view.claim
        signs = {ticker: (total > 0) - (total < 0) for ticker, total in self.sums.items()}
        positions = seat.positions().perps
        for perp in perps:
            target = self.size * signs.get(perp.ticker, 0)
            held = signed_size(positions, perp.ticker)
            if target * held <= 0:
                steer(seat, perp.ticker, held, target, 2.0)
        # A side that is None has no claims: shares of such a market are kept.
        sides = {market.id: {1: "YES", -1: "NO"}.get(signs.get(market.ticker, 0)) for market in seat.markets()}
        for shares in seat.positions().markets:
            if sides.get(shares.market_id) not in (shares.side, None):
                attempt(seat.sell, shares.market_id, shares.side, shares.shares)
        for market_id, side in sides.items():
            if side is not None and (market_id, side) not in self.bought:
                self.bought.add((market_id, side))
                attempt(seat.buy, market_id, side, self.stake)

    def news(self, seat: Seat) -> Iterable[PostView | MessageView]:
        """Return the posts or messages to read; those read before are skipped."""
        raise NotImplementedError


@dataclass
class FollowTheNews(Follower):
    """Follows every source of the public feed, unreliable ones included."""

    name = "follow-the-news"

    def news(self, seat: Seat) -> Iterator[PostView]:
        return (post for post in seat.posts(200) if post.kind == "source")


@dataclass
class FollowInsider(Follower):
    """Joins every chat that invites it and follows the tips there, whoever gives them."""

    name = "follow-insider"

    def news(self, seat: Seat) -> Iterator[MessageView]:
        # Chats are read again after joining: a chat shows its messages to members only.
        for chat in seat.chats():
            if chat.invited and not chat.joined:
                attempt(seat.join, chat.id)
        return (message for chat in seat.chats() if chat.joined for message in chat.messages)
