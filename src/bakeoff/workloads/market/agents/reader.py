"""Agents that believe what they read, and do not ask how often it was true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import sell_all, signed_size, steer, tried

Claim = tuple[str, int]
"""A ticker, and what was said of its story: -1, 0 or 1."""


class Follower:
    """Adds up what was said about each running story and holds what the sum says, in perpetuals and in markets."""

    name = "follower"

    def __init__(self, size: float = 1500.0, stake: float = 30.0) -> None:
        self.size = size
        self.stake = stake

    def reset(self, brief: Brief) -> None:
        self.read: set[str] = set()
        self.story: dict[str, int] = {}
        self.sums: dict[str, int] = defaultdict(int)
        self.bought: set[tuple[str, str]] = set()

    def act(self, seat: Seat) -> None:
        perps = seat.perpetuals()
        for perp in perps:
            if self.story.get(perp.ticker) != perp.story:
                self.story[perp.ticker], self.sums[perp.ticker] = perp.story, 0
        for ticker, claim in self._news(seat):
            self.sums[ticker] += claim
        held = seat.positions().perps
        for perp in perps:
            wanted = self.size * _sign(self.sums[perp.ticker])
            if wanted * signed_size(held, perp.ticker) <= 0:
                steer(seat, perp.ticker, signed_size(held, perp.ticker), wanted, 2.0)
        self._trade_markets(seat)

    def _trade_markets(self, seat: Seat) -> None:
        sides = {market.id: {1: "YES", -1: "NO"}.get(_sign(self.sums[market.ticker])) for market in seat.markets()}
        sell_all(seat, lambda market, side: sides.get(market) in (side, None))
        for market, side in sides.items():
            if side is not None and (market, side) not in self.bought:
                self.bought.add((market, side))
                tried(seat.buy, market, side, self.stake)

    def _news(self, seat: Seat) -> Iterable[Claim]:
        raise NotImplementedError

    def _unread(self, said: Iterable[Any]) -> Iterable[Claim]:
        """Claims of posts or messages that were not read before and are about a running story."""
        for view in said:
            if view.id not in self.read:
                self.read.add(view.id)
                if view.ticker is not None and view.claim is not None:
                    yield view.ticker, view.claim


class FollowTheNews(Follower):
    """Follows every source of the public feed, the rumour mills too."""

    name = "follow-the-news"

    def _news(self, seat: Seat) -> Iterable[Claim]:
        return self._unread(post for post in seat.posts(200) if post.kind == "source")


class FollowInsider(Follower):
    """Joins every chat that invites it and follows the tips, whoever gives them."""

    name = "follow-insider"

    def _news(self, seat: Seat) -> Iterable[Claim]:
        for chat in seat.chats():
            if chat.invited and not chat.joined:
                tried(seat.join, chat.id)
        return self._unread(message for chat in seat.chats() if chat.joined for message in chat.messages)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
