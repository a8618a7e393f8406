"""The files of a run, for people and for report pages. What was hidden goes into `truth.json` and nowhere else."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bakeoff.records.layout import atomic_write
from bakeoff.workloads.market import scores
from bakeoff.workloads.market.journal import Turn, action_json
from bakeoff.workloads.market.ledger import Trade
from bakeoff.workloads.market.rollout import Rollout, truth
from bakeoff.workloads.market.world.views import TradeView

Row = Sequence[Any]


def write(rollout: Rollout, directory: Path) -> list[Path]:
    """All of them; the directory is made."""
    turns = rollout.player.turns
    return [
        write_csv(directory / "actions.csv", ACTIONS, actions(turns)),
        write_csv(directory / "trades.csv", TRADES, trades(rollout)),
        write_csv(directory / "equity.csv", EQUITY, equity(rollout)),
        write_csv(directory / "prices.csv", PRICES, prices(turns)),
        write_csv(directory / "markets.csv", MARKETS, markets(rollout)),
        write_csv(directory / "posts.csv", POSTS, posts(turns)),
        write_csv(directory / "messages.csv", MESSAGES, messages(turns)),
        write_json(directory / "metrics.json", metrics_json(rollout)),
        write_json(directory / "truth.json", truth(rollout.world)),
    ]


def metrics_json(rollout: Rollout) -> dict[str, Any]:
    bins = [{name: getattr(each, name) for name in each.__slots__} for each in rollout.result.bins]
    return {**rollout.groups, "calibration_bins": bins}


ACTIONS = ("tick", "type", "params", "success", "error", "think_ms", "conduct", "result")


def actions(turns: Sequence[Turn]) -> Iterator[Row]:
    """Everything the agent tried to change, in order; a turn without actions has one row without a type if it went wrong."""
    for turn in turns:
        facts = (f"{1000 * turn.think_s:.3f}", turn.conduct)
        for call in turn.actions:
            told = action_json(call)
            error = told["error"]["message"] if call.error is not None else ""
            result = "" if call.result is None else json.dumps(call.result)
            yield turn.tick, told["type"], json.dumps(told["params"]), told["success"], error, *facts, result
        if turn.conduct != "acted" and not turn.actions:
            yield turn.tick, "", "", False, turn.error or "", *facts, ""


TRADES = ("tick", "kind", "target", "side", "amount", "shares", "price", "fee", "price_before", "price_after")


def trades(rollout: Rollout) -> Iterator[Row]:
    """The agent's own, and where the venue closed its positions: at the index, before the turn of that tick."""
    own = [
        (*_trade(trade), trade.fee, round(trade.before, 6), round(trade.after, 6))
        for trade in rollout.result.ledger.trades
    ]
    everything = rollout.world.own_trades(rollout.player.session.seat, sys.maxsize)
    forced = [(*_trade(view), "", view.price, view.price) for view in everything if view.kind == "liquidation"]
    yield from sorted([*forced[::-1], *own], key=lambda row: row[0])


def _trade(trade: Trade | TradeView) -> tuple[Any, ...]:
    return trade.tick, trade.kind, trade.target, trade.side, trade.amount, trade.shares, trade.price


EQUITY = ("tick", "equity", "cash", "drawdown", "reputation")


def equity(rollout: Rollout) -> Iterator[Row]:
    """When each turn began, and after the last one."""
    result, player = rollout.result, rollout.player
    falls = scores.drawdowns(result.equity)
    esteem = [turn.observation["account"]["reputation"] for turn in player.turns]
    esteem.append(rollout.world.account(player.session.seat).reputation)
    columns = zip(result.equity, result.cash, falls, esteem, strict=True)
    for tick, (value, cash, fall, reputation) in enumerate(columns):
        yield tick, value, cash, round(fall, 9), reputation


PRICES = ("tick", "target", "price", "index_price")


def prices(turns: Sequence[Turn]) -> Iterator[Row]:
    """What every market and perpetual stood at when each turn began."""
    for turn in turns:
        for market in turn.observation["predictionMarkets"]:
            yield turn.tick, market["id"], market["yesPrice"], ""
        for perp in turn.observation["perpetualMarkets"]:
            yield turn.tick, perp["ticker"], perp["price"], perp["indexPrice"]


MARKETS = (
    "id",
    "question",
    "ticker",
    "kind",
    "strike",
    "created_tick",
    "resolve_tick",
    "opening_price",
    "resolved",
    "outcome",
)


def markets(rollout: Rollout) -> Iterator[Row]:
    """Every question that the agent could see; the outcome of those that have resolved."""
    seen: dict[str, dict[str, Any]] = {}
    for turn in rollout.player.turns:
        seen.update((view["id"], view) for view in turn.observation["predictionMarkets"])
    for identity, view in seen.items():
        outcome = rollout.result.outcomes.get(identity)
        names = ("id", "question", "ticker", "kind", "strike", "createdTick", "resolveTick", "openingPrice")
        yield *(view[name] for name in names), outcome is not None, "" if outcome is None else outcome


POSTS = ("tick", "id", "author", "kind", "content", "ticker", "market", "claim", "likes", "comments")


def posts(turns: Sequence[Turn]) -> Iterator[Row]:
    """The feed as the agent could read it, each post once."""
    last: dict[str, dict[str, Any]] = {}
    for turn in turns:
        for post in turn.observation["posts"]:
            last[post["id"]] = post
    for post in last.values():
        names = ("tick", "id", "authorName", "kind", "content", "ticker", "marketId", "claim", "likes", "comments")
        yield tuple("" if post[name] is None else post[name] for name in names)


MESSAGES = ("tick", "id", "chat", "author", "content", "ticker", "claim")


def messages(turns: Sequence[Turn]) -> Iterator[Row]:
    """Group chats as the agent could read them: those it had joined, each message once."""
    last: dict[str, Row] = {}
    for turn in turns:
        for chat in turn.observation["groupChats"]:
            for message in chat["messages"]:
                names = ("authorName", "content", "ticker", "claim")
                told = ("" if message[name] is None else message[name] for name in names)
                last[message["id"]] = (message["tick"], message["id"], chat["id"], *told)
    yield from last.values()


def write_csv(path: Path, header: Row, rows: Iterable[Row]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return _write(path, text.getvalue())


def write_json(path: Path, value: Any) -> Path:
    return _write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8", errors="replace"))
    return path
