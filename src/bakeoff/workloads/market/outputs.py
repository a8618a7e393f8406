"""The files of a run, for people and for report pages. What was hidden from the agent is in `truth.json` alone."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.records.layout import atomic_write
from bakeoff.workloads.market import scores
from bakeoff.workloads.market.journal import Turn, action_json
from bakeoff.workloads.market.metrics import Trade
from bakeoff.workloads.market.rollout import Rollout, truth
from bakeoff.workloads.market.world.views import TradeView

Row = Sequence[Any]

ACTIONS = ("tick", "type", "params", "success", "error", "think_ms", "conduct", "result")
TRADES = ("tick", "kind", "target", "side", "amount", "shares", "price", "fee", "price_before", "price_after")
EQUITY = ("tick", "equity", "cash", "drawdown", "reputation")
PRICES = ("tick", "target", "price", "index_price")
MARKETS = (
    "id", "question", "ticker", "kind", "strike", "created_tick", "resolve_tick", "opening_price", "resolved", "outcome",
)  # fmt: skip
POSTS = ("tick", "id", "author", "kind", "content", "ticker", "market", "claim", "likes", "comments")
MESSAGES = ("tick", "id", "chat", "author", "content", "ticker", "claim")


def write(rollout: Rollout, directory: Path) -> list[Path]:
    """Write all files of a run into `directory`, which is created, and return their paths."""
    turns = rollout.player.turns
    bins = [{name: getattr(each, name) for name in each.__slots__} for each in rollout.result.bins]
    return [
        write_csv(directory / "actions.csv", ACTIONS, actions(turns)),
        write_csv(directory / "trades.csv", TRADES, trades(rollout)),
        write_csv(directory / "equity.csv", EQUITY, equity(rollout)),
        write_csv(directory / "prices.csv", PRICES, prices(turns)),
        write_csv(directory / "markets.csv", MARKETS, markets(rollout)),
        write_csv(directory / "posts.csv", POSTS, posts(turns)),
        write_csv(directory / "messages.csv", MESSAGES, messages(turns)),
        write_json(directory / "metrics.json", {**rollout.groups, "calibration_bins": bins}),
        write_json(directory / "truth.json", truth(rollout.world)),
    ]


def actions(turns: Sequence[Turn]) -> Iterator[Row]:
    """Yield every attempt to change something, in order. A lost turn without any has one row without a type."""
    for turn in turns:
        conduct = (f"{1000 * turn.think_s:.3f}", turn.conduct)
        for call in turn.actions:
            action = action_json(call)
            error = action["error"]["message"] if call.error is not None else ""
            result = "" if call.result is None else json.dumps(call.result)
            yield turn.tick, action["type"], json.dumps(action["params"]), action["success"], error, *conduct, result
        if turn.conduct != "acted" and not turn.actions:
            yield turn.tick, "", "", False, turn.error or "", *conduct, ""


def trades(rollout: Rollout) -> Iterator[Row]:
    """Yield the agent's trades, and its liquidations: at the index, before the agent's turn in that tick."""

    def common(trade: Trade | TradeView) -> Row:
        return trade.tick, trade.kind, trade.target, trade.side, trade.amount, trade.shares, trade.price

    own = [
        (*common(trade), trade.fee, round(trade.before, 6), round(trade.after, 6))
        for trade in rollout.result.ledger.trades
    ]
    everything = rollout.world.own_trades(rollout.player.session.seat, sys.maxsize)
    forced = [(*common(view), "", view.price, view.price) for view in everything if view.kind == "liquidation"]
    # The world lists the newest first. The sort is stable, so liquidations come before the trades of their tick.
    yield from sorted([*forced[::-1], *own], key=lambda row: row[0])


def equity(rollout: Rollout) -> Iterator[Row]:
    """Yield the account at the beginning of each turn, and after the last one."""
    result, player = rollout.result, rollout.player
    reputations = [turn.observation["account"]["reputation"] for turn in player.turns]
    reputations.append(rollout.world.account(player.session.seat).reputation)
    columns = zip(result.equity, result.cash, scores.drawdowns(result.equity), reputations, strict=True)
    for tick, (value, cash, drawdown, reputation) in enumerate(columns):
        yield tick, value, cash, round(drawdown, 9), reputation


def prices(turns: Sequence[Turn]) -> Iterator[Row]:
    """Yield the price of every market and perpetual at the beginning of each turn."""
    for turn in turns:
        for market in turn.observation["predictionMarkets"]:
            yield turn.tick, market["id"], market["yesPrice"], ""
        for perp in turn.observation["perpetualMarkets"]:
            yield turn.tick, perp["ticker"], perp["price"], perp["indexPrice"]


def markets(rollout: Rollout) -> Iterator[Row]:
    """Yield every question that the agent could see, with the outcome if it has resolved."""
    views: dict[str, Mapping[str, Any]] = {}
    for turn in rollout.player.turns:
        views.update((view["id"], view) for view in turn.observation["predictionMarkets"])
    names = ("id", "question", "ticker", "kind", "strike", "createdTick", "resolveTick", "openingPrice")
    for identity, view in views.items():
        outcome = rollout.result.outcomes.get(identity)
        yield *(view[name] for name in names), outcome is not None, "" if outcome is None else outcome


def posts(turns: Sequence[Turn]) -> Iterator[Row]:
    """Yield the feed as the agent could read it: each post once, with the likes it last had."""
    last: dict[str, Mapping[str, Any]] = {}
    for turn in turns:
        last.update((post["id"], post) for post in turn.observation["posts"])
    names = ("tick", "id", "authorName", "kind", "content", "ticker", "marketId", "claim", "likes", "comments")
    for post in last.values():
        yield tuple("" if post[name] is None else post[name] for name in names)


def messages(turns: Sequence[Turn]) -> Iterator[Row]:
    """Yield the messages of group chats that the agent had joined, each once."""
    last: dict[str, Row] = {}
    for turn in turns:
        for chat in turn.observation["groupChats"]:
            for message in chat["messages"]:
                names = ("authorName", "content", "ticker", "claim")
                values = ("" if message[name] is None else message[name] for name in names)
                last[message["id"]] = (message["tick"], message["id"], chat["id"], *values)
    yield from last.values()


def csv_text(header: Row, rows: Iterable[Row]) -> str:
    """Return a table as CSV; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def write_csv(path: Path, header: Row, rows: Iterable[Row]) -> Path:
    return _write(path, csv_text(header, rows))


def write_json(path: Path, value: Any) -> Path:
    return _write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> Path:
    """Write a file atomically. Lone surrogates, which agents may send in posts, become question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8", errors="replace"))
    return path
