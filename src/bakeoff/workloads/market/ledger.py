"""A seat's trades, statements and holdings, read from the record of its turns.

Prices inside a tick are replayed: with one seat nobody else trades there, so the market's own rule says what each order
found and what it left behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.workloads.market import render
from bakeoff.workloads.market.journal import Turn
from bakeoff.workloads.market.world.views import Fill

MICRO = 1_000_000


def micro(dollars: float) -> int:
    """Exact: the world counts in these and shows them as dollars."""
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
    """Price of this side when the order came; for perpetuals the index."""
    after: float
    """Price of YES that it left behind; for perpetuals the index."""
    realized: float
    """Profit of what was sold or closed; of perpetuals without the fee."""

    @property
    def of_market(self) -> bool:
        return self.kind in ("buy", "sell")

    @property
    def notional(self) -> float:
        """Dollars that changed hands, without the fee; of a perpetual the value at the price paid."""
        return self.shares * self.price

    @property
    def impact(self) -> float:
        """Dollars lost against the price that was there before: of the market, or of the perpetual's index."""
        bought = self.kind == "buy" if self.of_market else (self.side == "LONG") == (self.kind == "open")
        worse = self.price - self.before if bought else self.before - self.price
        return self.shares * worse


@dataclass(frozen=True, slots=True)
class Statement:
    """A probability of YES that the seat posted, and the market's at that moment."""

    tick: int
    market: str
    probability: float
    price: float


@dataclass(slots=True)
class Ledger:
    trades: list[Trade] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    posts: int = 0
    messages: int = 0
    joined: int = 0
    refused: int = 0
    """Actions that the world did not take."""


class _Book:
    """Markets as the tick began, moved on by the seat's own orders."""

    def __init__(self, observation: Mapping[str, Any]) -> None:
        self.odds = {view["id"]: _logit(view["yesPrice"]) for view in observation["predictionMarkets"]}
        self.liquidity = {view["id"]: view["liquidity"] for view in observation["predictionMarkets"]}
        self.index = {view["ticker"]: view["indexPrice"] for view in observation["perpetualMarkets"]}

    def price(self, market: str) -> float:
        return 1 / (1 + math.exp(-self.odds[market]))

    def trade(self, fill: Mapping[str, Any]) -> Trade:
        target, side, kind = fill["target"], fill["side"], fill["kind"]
        if kind in ("buy", "sell"):
            before = self.price(target)
            toward = 1 if (side == "YES") == (kind == "buy") else -1
            self.odds[target] += toward * fill["shares"] / self.liquidity[target]
            before, after = before if side == "YES" else 1 - before, self.price(target)
        else:
            before = after = self.index[target]
        return Trade(
            fill["tick"],
            kind,
            target,
            side,
            fill["amount"],
            fill["shares"],
            fill["price"],
            fill["fee"],
            before,
            after,
            fill["realizedPnl"],
        )


def read(turns: Sequence[Turn], last_fills: Iterable[Mapping[str, Any]] = ()) -> Ledger:
    """`last_fills` is what came of orders that were sealed in the last tick, when several seats play."""
    ledger = Ledger()
    for number, turn in enumerate(turns):
        book = _Book(turn.observation)
        sealed = False
        for call in turn.actions:
            if call.error is not None:
                ledger.refused += 1
            elif call.method in _ORDERS:
                sealed = sealed or call.result["status"] == "sealed"
                if call.result["status"] == "filled":
                    ledger.trades.append(book.trade(call.result))
            else:
                _social(ledger, turn, book, call)
        if sealed:
            fills = turns[number + 1].observation["fills"] if number + 1 < len(turns) else last_fills
            ledger.trades += [
                book.trade(fill) for fill in fills if fill["status"] == "filled" and fill["tick"] == turn.tick
            ]
    return ledger


_ORDERS = frozenset({"a2a.buyShares", "a2a.sellShares", "a2a.openPosition", "a2a.closePosition"})


def _social(ledger: Ledger, turn: Turn, book: _Book, call: Any) -> None:
    if call.method == "a2a.createPost":
        ledger.posts += 1
        market, probability = call.params.get("marketId"), call.params.get("probability")
        if probability is not None:
            ledger.statements.append(Statement(turn.tick, market, probability, book.price(market)))
    elif call.method == "a2a.sendMessage":
        ledger.messages += 1
    elif call.method in ("a2a.joinGroup", "a2a.acceptGroupInvite"):
        ledger.joined += 1


def as_json(fill: Fill) -> dict[str, Any]:
    return render.plain(fill)


def _logit(price: float) -> float:
    held = min(max(price, 1e-9), 1 - 1e-9)
    return math.log(held / (1 - held))
