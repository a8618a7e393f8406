"""The files of a run, for people and for report pages. What was hidden from the agent is in `truth.json` alone.

`bakeoff market run` makes one `Run` for each rollout, writes it with `write_run`, and puts the `summary` of each agent's
runs into comparison.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from bakeoff.records.layout import atomic_write
from bakeoff.spec.identity import canonical_json
from bakeoff.stats.ttests import one_sample_t
from bakeoff.text import csv_text
from bakeoff.workloads.market.journal import Turn, action_json
from bakeoff.workloads.market.metrics import drawdowns
from bakeoff.workloads.market.play import Rollout, truth
from bakeoff.workloads.market.workload import CLOCKED

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
    common = attrgetter(*TRADES[:7])
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
    columns = zip(result.equity, result.cash, drawdowns(result.equity), reputations, strict=True)
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


def write_csv(path: Path, header: Row, rows: Iterable[Row]) -> Path:
    return _write(path, csv_text(header, rows))


def write_json(path: Path, value: Any) -> Path:
    return _write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> Path:
    """Write a file atomically. Lone surrogates, which agents may send in posts, become question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8", errors="replace"))
    return path


# -- several runs of agents on one world

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Run:
    """One agent's run, with the seed of its own randomness."""

    number: int
    seed: int
    agent: str
    benchmark: str
    """The world's id."""
    secret: str
    """How the secret that drew the world is named; see `scenario.secret_label`."""
    rollout: Rollout

    @property
    def id(self) -> str:
        """A digest of what was played, not when."""
        return hashlib.sha256(canonical_json([self.benchmark, self.agent, self.seed]).encode()).hexdigest()[:16]


# -- files


def write_run(run: Run, directory: Path, *, trajectory: bool) -> list[Path]:
    """Write result.json (what was played, every action, profit by tick, errors) and the files of `write`.

    With `trajectory` also trajectory.json. Returns the paths of all of them.
    """
    rollout, files = run.rollout, write(run.rollout, directory)
    identity = {"id": run.id, "agentId": run.agent, "benchmarkId": run.benchmark, "seed": run.seed}
    start, turns = rollout.result.equity[0], rollout.player.turns
    actions = []
    for turn in turns:
        for call in turn.actions:
            action = action_json(call)
            actions.append({"tick": turn.tick, "timestamp": turn.timestamp, "data": action.pop("params"), **action})
    result = {
        **identity,
        "secret": run.secret,
        "startTime": turns[0].timestamp,
        "endTime": rollout.world.time,
        "ticksProcessed": len(turns),
        "scenario": rollout.scenario.model_dump(mode="json"),
        "metrics": rollout.metrics,
        "actions": actions,
        "pnlHistory": [
            {"tick": tick, "pnl": round(value - start, 6)} for tick, value in enumerate(rollout.result.equity)
        ],
        "errors": rollout.player.errors,
    }
    files.append(write_json(directory / "result.json", result))
    if trajectory:
        steps = [msgspec.to_builtins(msgspec.structs.replace(step, truth=None)) for step in rollout.steps()]
        files.append(write_json(directory / "trajectory.json", {**identity, "steps": steps}))
    return files


def remove_earlier(directory: Path) -> None:
    """Remove the files of an earlier campaign, so that none of them is taken for one of this campaign's."""
    try:
        names = json.loads((directory / "comparison.json").read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in map(PurePosixPath, names):
        # The file may have been edited: never delete outside the directory.
        if name.is_absolute() or ".." in name.parts:
            continue
        (directory / name).unlink(missing_ok=True)
        for parent in list(name.parents)[:-1]:
            with contextlib.suppress(OSError):  # it holds something else
                (directory / parent).rmdir()


# -- summaries


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """An agent's runs: mean, standard deviation and interval of every metric, and which runs were best and worst.

    Without a difference in profit there is neither a best nor a worst one.
    """
    # Runs with the same metrics are one run, however many there are. The clock's own are left out.
    steady = [{name: run.rollout.metrics[name] for name in run.rollout.metrics.keys() - CLOCKED} for run in runs]
    same = len(runs) > 1 and all(metrics == steady[0] for metrics in steady)
    by_pnl = sorted(runs, key=lambda run: (run.rollout.metrics["total_pnl"] or 0.0, -run.number))
    # Two names for one result would suggest a difference.
    spread = by_pnl[-1].rollout.metrics["total_pnl"] != by_pnl[0].rollout.metrics["total_pnl"]
    idle = [run.rollout for run in runs if run.rollout.never_acted]
    if idle:
        note = f"it never acted in {len(idle)} of {len(runs)} runs: {idle[0].trouble}"
    elif same:
        note = f"{len(runs)} identical runs: the agent is deterministic, so they count as one and show no spread"
    elif len(runs) == 1:
        note = "one run has no spread; give --runs"
    else:
        note = "runs share one world: the interval is about this agent's own randomness, not about other worlds"
    return {
        "agent": runs[0].agent,
        "runs": len(runs),
        "deterministic": same,
        "neverActed": len(idle),
        "note": note,
        "metrics": {name: _statistics(runs, name, same) for name in runs[0].rollout.metrics},
        "bestRun": by_pnl[-1].number if spread else None,
        "worstRun": by_pnl[0].number if spread else None,
    }


def _statistics(runs: Sequence[Run], metric: str, same: bool) -> dict[str, Any]:
    """Mean, spread and t-interval of a metric over the runs that have it.

    Without spread (one run, or `same`: identical ones) there is no interval.
    """
    numbers = [float(value) for run in runs if (value := run.rollout.metrics[metric]) is not None]
    if not numbers:
        return {"n": 0, "mean": None, "sd": None, "low": None, "high": None, "min": None, "max": None}
    mean = sum(numbers) / len(numbers)
    facts = {"n": len(numbers), "mean": mean, "min": min(numbers), "max": max(numbers)}
    if len(numbers) < 2 or same:
        return {**facts, "sd": None, "low": None, "high": None}
    if min(numbers) == max(numbers):
        return {**facts, "sd": 0.0, "low": mean, "high": mean}
    estimate = one_sample_t(numbers)
    interval = estimate.interval(LEVEL)
    return {**facts, "sd": estimate.se * len(numbers) ** 0.5, "low": interval.low, "high": interval.high}
