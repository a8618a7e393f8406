"""What an episode says about one seat: money, forecasts, risk, conduct. docs/market.md has the formulas.

Money is added up in micro-dollars, so that parts give the whole exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import ledger as ledgers
from bakeoff.workloads.market import scores
from bakeoff.workloads.market.ledger import MICRO, Ledger, Trade, micro
from bakeoff.workloads.market.scores import Forecast

if TYPE_CHECKING:
    from bakeoff.workloads.market.journal import Attendance
    from bakeoff.workloads.market.world.world import World

Number = float | int | None
Groups = dict[str, dict[str, Number]]


@dataclass(frozen=True, slots=True)
class Result:
    """One seat of a finished episode, measured."""

    groups: Groups
    """Metrics by what they are about."""
    equity: list[float]
    """When each turn began, and after the last one."""
    cash: list[float]
    bins: list[scores.Bin]
    """Forecasts against outcomes. One episode has few: add bins up over episodes."""
    ledger: Ledger
    outcomes: dict[str, bool]
    """Of the markets that have resolved."""

    @property
    def flat(self) -> dict[str, Number]:
        """All metrics under their own names."""
        return {name: value for group in self.groups.values() for name, value in group.items()}


def measure(world: World, player: Attendance) -> Result:
    """`player` must have kept a journal."""
    turns, seat = player.turns, player.session.seat
    account = world.account(seat)
    equity = [*(turn.equity for turn in turns), account.equity]
    cash = [*(turn.observation["account"]["cash"] for turn in turns), account.cash]
    ledger = ledgers.read(turns, player.session.observe())
    resolved = {
        each.id: each.outcome
        for each in world.truth().questions
        if each.outcome is not None and each.resolve_tick <= world.tick
    }
    said = forecasts(ledger, resolved)
    bins = scores.calibration(said)
    groups = {
        "money": money(world, ledger, resolved, seat),
        "forecasts": {**judged(said), "calibration": scores.calibration_error(bins)},
        "trading": trading(ledger, resolved, account, world.positions(seat)),
        "risk": risk(equity, account),
        "social": social(turns, ledger, account),
        "conduct": conduct(player),
    }
    return Result(groups, equity, cash, bins, ledger, resolved)


# -- money


def money(world: World, ledger: Ledger, outcomes: Mapping[str, bool], seat: int) -> dict[str, Number]:
    account = world.account(seat)
    total = micro(account.equity) - micro(account.initial)
    held = micro(account.equity) - micro(account.cash) - sum(micro(view.value) for view in world.positions(seat).perps)
    prediction = market_flows(ledger, outcomes) + held
    perp = total - prediction
    fees, funding = micro(account.fees), micro(account.funding)
    market_fees = sum(micro(trade.fee) for trade in ledger.trades if trade.of_market)
    impact = sum(micro(trade.impact) for trade in ledger.trades if trade.of_market)
    impact += micro(ledger.index_pnl) - (fees - market_fees) - funding - perp
    return {
        "total_pnl": total / MICRO,
        "return": total / micro(account.initial),
        "prediction_pnl": prediction / MICRO,
        "perp_pnl": perp / MICRO,
        "gross_pnl": (total + fees + impact + funding) / MICRO,
        "fees": fees / MICRO,
        "impact": impact / MICRO,
        "funding": funding / MICRO,
    }


def market_flows(ledger: Ledger, outcomes: Mapping[str, bool]) -> int:
    """Micro-dollars that prediction markets have brought: sales and payouts less purchases, fees in both."""
    flow = 0
    for trade in ledger.trades:
        if trade.of_market:
            flow += micro(trade.amount) if trade.kind == "sell" else -micro(trade.amount)
    for (market, side), shares in holdings(ledger.trades).items():
        if market in outcomes and outcomes[market] == (side == "YES"):
            flow += shares
    return flow


def holdings(trades: Sequence[Trade]) -> dict[tuple[str, str], int]:
    """Micro-shares of each (market, side) after all trades, whether the market is still open or not."""
    held: dict[tuple[str, str], int] = defaultdict(int)
    for trade in trades:
        if trade.of_market:
            held[trade.target, trade.side] += micro(trade.shares) if trade.kind == "buy" else -micro(trade.shares)
    return held


# -- forecasts


def forecasts(ledger: Ledger, outcomes: Mapping[str, bool]) -> list[Forecast]:
    """What the seat said, or, if it said nothing, what its trades implied: the price that each one left behind.

    Whoever buys YES up to a price holds YES to be at least that likely. Only markets that have resolved count.
    """
    said = [(each.market, each.tick, each.probability, each.price) for each in ledger.statements]
    if not said:
        said = [(each.target, each.tick, each.after, _yes_before(each)) for each in ledger.trades if each.of_market]
    return [
        Forecast(market, tick, probability, price, outcomes[market])
        for market, tick, probability, price in said
        if market in outcomes
    ]


def _yes_before(trade: Trade) -> float:
    return trade.before if trade.side == "YES" else 1 - trade.before


def judged(said: Sequence[Forecast]) -> dict[str, Number]:
    own = scores.mean_by_market(said, [scores.brier(each.probability, each.outcome) for each in said])
    market = scores.mean_by_market(said, [scores.brier(each.price, each.outcome) for each in said])
    return {
        "forecasts": len(said),
        "brier": own,
        "brier_market": market,
        "brier_edge": None if own is None or market is None else market - own,
        "log_score": scores.mean_by_market(said, [scores.log_score(each.probability, each.outcome) for each in said]),
        "log_score_market": scores.mean_by_market(said, [scores.log_score(each.price, each.outcome) for each in said]),
    }


# -- trading


def trading(ledger: Ledger, outcomes: Mapping[str, bool], account: Any, positions: Any) -> dict[str, Number]:
    right = [
        outcome == (side == "YES")
        for market, side in sides_held(ledger.trades)
        if (outcome := outcomes.get(market)) is not None
    ]
    return {
        "trades": len(ledger.trades),
        "turnover": account.volume / account.initial,
        "prediction_accuracy": scores.mean([float(each) for each in right]),
        "predictions_settled": len(right),
        "perp_win_rate": scores.mean([float(each) for each in perp_wins(ledger.trades, account, positions)]),
        "refused": ledger.refused,
    }


def sides_held(trades: Sequence[Trade]) -> list[tuple[str, str]]:
    """Each market in which one side outweighed the other at the end, and that side."""
    held = holdings(trades)
    markets = dict.fromkeys(market for market, _ in held)
    net = {market: held.get((market, "YES"), 0) - held.get((market, "NO"), 0) for market in markets}
    return [(market, "YES" if shares > 0 else "NO") for market, shares in net.items() if shares]


def perp_wins(trades: Sequence[Trade], account: Any, positions: Any) -> list[bool]:
    """For each closing of a perpetual, whether it gained more than its fee; what is still open counts at its exit value."""
    closed = [
        trade.realized > trade.fee
        for trade in trades
        if not trade.of_market and (trade.kind == "close" or trade.realized)
    ]
    return [*closed, *[False] * account.liquidations, *(view.value > view.margin for view in positions.perps)]


# -- risk


def risk(equity: Sequence[float], account: Any) -> dict[str, Number]:
    returns = scores.tick_returns(equity)
    return {
        "max_drawdown": max(scores.drawdowns(equity)),
        "sharpe": scores.sharpe(returns),
        "sortino": scores.sortino(returns),
        "liquidations": account.liquidations,
    }


# -- the feed, and how the seat behaved


def social(turns: Sequence[Any], ledger: Ledger, account: Any) -> dict[str, Number]:
    liked: dict[str, int] = {}
    for turn in turns:
        for post in turn.observation["posts"]:
            if post["authorId"] == turn.observation["agentId"]:
                liked[post["id"]] = post["likes"] + post["comments"]
    return {
        "posts": ledger.posts,
        "messages": ledger.messages,
        "groups_joined": ledger.joined,
        "reputation": account.reputation,
        "engagement": sum(liked.values()),
    }


def conduct(player: Attendance) -> dict[str, Number]:
    turns = player.turns
    calls = [call for turn in turns for call in turn.llm_calls]
    return {
        "ticks": len(turns),
        "think_ms_mean": 1000 * player.think_s / len(turns) if turns else 0.0,
        "think_ms_max": 1000 * player.longest_think_s,
        "no_ops": player.late + player.crashed + player.absent,
        "timeouts": player.late + player.absent,
        "crashes": player.crashed,
        "prompt_tokens": sum(call.prompt_tokens for call in calls),
        "completion_tokens": sum(call.completion_tokens for call in calls),
        "tokens": sum(call.prompt_tokens + call.completion_tokens for call in calls),
    }
