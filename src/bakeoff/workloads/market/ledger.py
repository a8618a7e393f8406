"""A seat's trades, statements and holdings, read from the record of its turns.

Prices inside a tick are replayed: with one seat nobody else trades there, so the market's own rule gives the price that each
order met and the price that it left behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.workloads.market.journal import Turn

MICRO = 1_000_000
_ORDERS = frozenset({"a2a.buyShares", "a2a.sellShares", "a2a.openPosition", "a2a.closePosition"})


def micro(dollars: float) -> int:
    """Micro-dollars. Exact, since the world counts in these and shows them as dollars."""
    return round(dollars * MICRO)


@dataclass(frozen=True, slots=True)
class Trade:
    """One order that was filled."""

    tick: int
    kind: str
    """buy, sell, open or close."""
    target: str
    side: str
    amount: float
    shares: float
    price: float
    fee: float
    before: float
    """Price of this side when the turn began; of a perpetual the index."""
    after: float
    """Price of YES that the order left behind; of a perpetual the index."""
    realized: float
    """Profit of what was sold or closed; of perpetuals without the fee."""

    @property
    def of_market(self) -> bool:
        return self.kind in ("buy", "sell")

    @property
    def impact(self) -> float:
        """Dollars that an order for shares lost against the price when the turn began."""
        worse = self.price - self.before if self.kind == "buy" else self.before - self.price
        return self.shares * worse


@dataclass(frozen=True, slots=True)
class Statement:
    """A probability of YES that the seat posted, and the market's when the turn began, before the seat's own orders."""

    tick: int
    market: str
    probability: float
    price: float


@dataclass(slots=True)
class Ledger:
    """Everything a seat did in an episode."""

    trades: list[Trade] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    posts: int = 0
    messages: int = 0
    joined: int = 0
    refused: int = 0
    """Actions that the world refused."""
    index_pnl: float = 0.0
    """Dollars that the perpetual positions would have earned if they had been traded and closed at the index."""


class _Book:
    """Markets and positions as the tick began, moved on by the seat's own orders."""

    def __init__(self, observation: Mapping[str, Any]) -> None:
        self.opening = {view["id"]: view["yesPrice"] for view in observation["predictionMarkets"]}
        self.liquidity = {view["id"]: view["liquidity"] for view in observation["predictionMarkets"]}
        self.index = {view["ticker"]: view["indexPrice"] for view in observation["perpetualMarkets"]}
        self.units = {
            view["ticker"]: view["units"] * (1 if view["side"] == "LONG" else -1)
            for view in observation["positions"]["perpPositions"]
        }
        self.odds: dict[str, float] = {}
        for market, price in self.opening.items():
            inside = min(max(price, 1e-9), 1 - 1e-9)  # a price is shown with six digits and may be 0 or 1
            self.odds[market] = math.log(inside / (1 - inside))

    def trade(self, fill: Mapping[str, Any]) -> Trade:
        """The trade of a fill; moves the book."""
        target, side, kind = fill["target"], fill["side"], fill["kind"]
        if kind in ("buy", "sell"):
            # With a logarithmic scoring rule an order moves the log-odds by shares / b (see world.markets).
            toward = 1 if (side == "YES") == (kind == "buy") else -1
            self.odds[target] += toward * fill["shares"] / self.liquidity[target]
            before = self.opening[target] if side == "YES" else 1 - self.opening[target]
            after = 1 / (1 + math.exp(-self.odds[target]))
        else:
            before = after = self.index[target]
            self.units[target] = _units_after(self.units.get(target, 0.0), kind, side, fill["shares"])
        return Trade(
            tick=fill["tick"],
            kind=kind,
            target=target,
            side=side,
            amount=fill["amount"],
            shares=fill["shares"],
            price=fill["price"],
            fee=fill["fee"],
            before=before,
            after=after,
            realized=fill["realizedPnl"],
        )


def _units_after(held: float, kind: str, side: str, units: float) -> float:
    """Signed units after an order. One against the position first closes it; the rest then stands on the other side."""
    sign = 1 if side == "LONG" else -1
    if kind == "open" and held * sign >= 0:
        return held + sign * units
    if kind == "open" and units > abs(held):
        return sign * (units - abs(held))
    return held - math.copysign(units, held)


def read(turns: Sequence[Turn], end: Mapping[str, Any]) -> Ledger:
    """The ledger of all turns. `end` is what the seat would see after the last tick."""
    ledger = Ledger()
    keys: set[str] = set()
    for number, turn in enumerate(turns):
        book = _Book(turn.observation)
        sealed = False
        for call in turn.actions:
            key = call.params.get("idempotencyKey") if call.error is None else None
            if call.error is not None:
                ledger.refused += 1
            elif key is not None and key in keys:
                continue  # the call only got the first one's answer again
            elif call.method in _ORDERS:
                sealed = sealed or call.result["status"] == "sealed"
                if call.result["status"] == "filled":
                    ledger.trades.append(book.trade(call.result))
            elif call.method == "a2a.createPost":
                ledger.posts += 1
                if (probability := call.params.get("probability")) is not None:
                    market = call.params["marketId"]
                    ledger.statements.append(Statement(turn.tick, market, float(probability), book.opening[market]))
            elif call.method == "a2a.sendMessage":
                ledger.messages += 1
            elif call.method in ("a2a.joinGroup", "a2a.acceptGroupInvite"):
                ledger.joined += 1
            if key is not None:
                keys.add(key)
        after = turns[number + 1].observation if number + 1 < len(turns) else end
        if sealed:
            ledger.trades += [book.trade(fill) for fill in after["fills"] if fill["status"] == "filled"]
        for view in after["perpetualMarkets"]:
            ledger.index_pnl += book.units.get(view["ticker"], 0.0) * (view["indexPrice"] - book.index[view["ticker"]])
    return ledger
