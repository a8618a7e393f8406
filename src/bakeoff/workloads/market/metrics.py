"""Metrics of one seat in an episode: money, forecasts, trading, risk, social, conduct. docs/market.md has the formulas.

`measure` turns the ledger of a seat (`journal.read_ledger`) into metrics. Money is added up in micro-dollars, so that
parts give the whole exactly. The formulas of the scores come last: plain numbers in, plain numbers out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from bakeoff.workloads.market.journal import Attendance, Ledger, Trade, Turn, read_ledger

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import Account, PositionsView
    from bakeoff.workloads.market.world.world import World


Number = float | int | None
Groups = dict[str, dict[str, Number]]
MICRO = 1_000_000


def micro(dollars: float) -> int:
    """Micro-dollars. Exact, since the world counts in these and shows them as dollars."""
    return round(dollars * MICRO)


@dataclass(frozen=True, slots=True)
class Result:
    """One seat of a finished episode, measured."""

    groups: Groups
    """Metrics by topic: money, forecasts, trading, risk, social, conduct."""
    equity: list[float]
    """At the beginning of each turn, and after the last one."""
    cash: list[float]
    bins: list[Bin]
    """Forecasts against outcomes. One episode has few: add bins up over episodes."""
    ledger: Ledger
    outcomes: dict[str, bool]
    """Of the markets that have resolved."""


def measure(world: World, player: Attendance) -> Result:
    """Measure a seat that kept a journal, after the last tick."""
    turns, seat = player.turns, player.session.seat
    account, positions = world.account(seat), world.positions(seat)
    equity = [*(turn.equity for turn in turns), account.equity]
    cash = [*(turn.observation["account"]["cash"] for turn in turns), account.cash]
    ledger = read_ledger(turns, player.session.recorded())
    outcomes = {
        question.id: question.outcome
        for question in world.truth().questions
        if question.outcome is not None and question.resolve_tick <= world.tick
    }
    stated = forecasts(ledger, outcomes)
    bins = calibration(stated)
    returns = tick_returns(equity)
    groups: Groups = {
        "money": money(ledger, outcomes, account, positions),
        "forecasts": {**judged(stated), "calibration": calibration_error(bins)},
        "trading": trading(ledger, outcomes, account, positions),
        "risk": {
            "max_drawdown": max(drawdowns(equity)),
            "sharpe": sharpe(returns),
            "sortino": sortino(returns),
            "liquidations": account.liquidations,
        },
        "social": social(turns, ledger, account),
        "conduct": conduct(player),
    }
    return Result(groups, equity, cash, bins, ledger, outcomes)


def money(
    ledger: Ledger, outcomes: Mapping[str, bool], account: Account, positions: PositionsView
) -> dict[str, Number]:
    """Profit, and where it came from: total = prediction + perp = gross - fees - impact - funding, exactly."""
    total = micro(account.equity) - micro(account.initial)
    # Equity is cash, shares and perpetuals; what is left when the other two are taken off is the worth of the shares.
    shares = micro(account.equity) - micro(account.cash) - sum(micro(view.value) for view in positions.perps)
    prediction = market_flows(ledger, outcomes) + shares
    perp = total - prediction
    fees, funding = micro(account.fees), micro(account.funding)
    market_trades = [trade for trade in ledger.trades if trade.of_market]
    perp_fees = fees - sum(micro(trade.fee) for trade in market_trades)
    # Of perpetuals: what the positions would have earned at the index, less what they did earn before fees and funding.
    impact = sum(micro(trade.impact) for trade in market_trades)
    impact += micro(ledger.index_pnl) - perp_fees - funding - perp
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
    """Micro-shares by (market, side) after all trades, whether or not the market is still open."""
    held: dict[tuple[str, str], int] = defaultdict(int)
    for trade in trades:
        if trade.of_market:
            held[trade.target, trade.side] += micro(trade.shares) if trade.kind == "buy" else -micro(trade.shares)
    return held


def forecasts(ledger: Ledger, outcomes: Mapping[str, bool]) -> list[Forecast]:
    """The probabilities that the seat stated or, if it stated none, those that its trades implied.

    Who buys YES up to a price thinks that YES is at least that likely, so a trade implies the price that it left
    behind. Only markets that have resolved count.
    """
    if ledger.statements:
        stated = [(each.market, each.tick, each.probability, each.price) for each in ledger.statements]
    else:
        stated = [
            (trade.target, trade.tick, trade.after, trade.before if trade.side == "YES" else 1 - trade.before)
            for trade in ledger.trades
            if trade.of_market
        ]
    return [
        Forecast(market, tick, probability, price, outcomes[market])
        for market, tick, probability, price in stated
        if market in outcomes
    ]


def judged(stated: Sequence[Forecast]) -> dict[str, Number]:
    """Scores of the forecasts, beside those of the market's price at the same moments."""
    own = mean_by_market(stated, [brier(each.probability, each.outcome) for each in stated])
    market = mean_by_market(stated, [brier(each.price, each.outcome) for each in stated])
    log_own = mean_by_market(stated, [log_score(each.probability, each.outcome) for each in stated])
    log_market = mean_by_market(stated, [log_score(each.price, each.outcome) for each in stated])
    return {
        "forecasts": len(stated),
        "brier": own,
        "brier_market": market,
        "brier_edge": None if own is None or market is None else market - own,
        "log_score": log_own,
        "log_score_market": log_market,
    }


def trading(
    ledger: Ledger, outcomes: Mapping[str, bool], account: Account, positions: PositionsView
) -> dict[str, Number]:
    """How much was traded, and how often the seat was right."""
    net: dict[str, int] = defaultdict(int)
    for (market, side), shares in holdings(ledger.trades).items():
        net[market] += shares if side == "YES" else -shares
    right = [float(outcomes[market] == (shares > 0)) for market, shares in net.items() if shares and market in outcomes]
    # Each closing of a perpetual wins when it gained more than its fee. Liquidations are losses, and what is still open
    # counts at its exit value.
    wins = [
        float(trade.realized > trade.fee)
        for trade in ledger.trades
        if not trade.of_market and (trade.kind == "close" or trade.realized)
    ]
    wins += [0.0] * account.liquidations + [float(view.value > view.margin) for view in positions.perps]
    return {
        "trades": len(ledger.trades),
        "turnover": account.volume / account.initial,
        "prediction_accuracy": mean(right),
        "predictions_settled": len(right),
        "perp_win_rate": mean(wins),
        "refused": ledger.refused,
    }


def social(turns: Sequence[Turn], ledger: Ledger, account: Account) -> dict[str, Number]:
    """What the seat said and how the crowd reacted. The likes of a post are those seen last."""
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
    """Time, lost turns and tokens."""
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


# -- formulas

LEAST = 1e-4
"""The log score keeps forecasts this far from 0 and 1, so that one certain mistake costs 9.2 and not infinity."""
BINS = 5


@dataclass(frozen=True, slots=True)
class Forecast:
    """A probability of YES for one market, the market's own when the turn began, and the outcome."""

    market: str
    tick: int
    probability: float
    price: float
    outcome: bool


@dataclass(frozen=True, slots=True)
class Bin:
    """Forecasts between `low` and `high` against how often they came true."""

    low: float
    high: float
    count: int
    forecast: float
    """Mean forecast."""
    share: float
    """How often YES happened."""


# -- forecasts. Brier and log score are proper: no forecast has a better expectation than the true probability (Gneiting
# and Raftery 2007, Strictly Proper Scoring Rules).


def brier(probability: float, outcome: bool) -> float:
    """Squared error: 0 is perfect, higher is worse."""
    return (probability - outcome) ** 2


def log_score(probability: float, outcome: bool) -> float:
    """The logarithm of the probability given to what happened: 0 is perfect, lower is worse."""
    inside = min(max(probability, LEAST), 1 - LEAST)
    return math.log(inside if outcome else 1 - inside)


def mean_by_market(forecasts: Iterable[Forecast], values: Iterable[float]) -> float | None:
    """Mean over markets of the mean in each: a market weighs the same however many forecasts it got."""
    by_market: dict[str, list[float]] = {}
    for forecast, value in zip(forecasts, values, strict=True):
        by_market.setdefault(forecast.market, []).append(value)
    return mean([mean(inside) or 0.0 for inside in by_market.values()])


def calibration(forecasts: Sequence[Forecast]) -> list[Bin]:
    """Forecasts in equal bins; empty bins are left out."""
    bins: list[list[Forecast]] = [[] for _ in range(BINS)]
    for forecast in forecasts:
        bins[min(int(forecast.probability * BINS), BINS - 1)].append(forecast)
    return [
        Bin(
            low=index / BINS,
            high=(index + 1) / BINS,
            count=len(inside),
            forecast=math.fsum(forecast.probability for forecast in inside) / len(inside),
            share=sum(forecast.outcome for forecast in inside) / len(inside),
        )
        for index, inside in enumerate(bins)
        if inside
    ]


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """Mean distance between forecast and share, weighted by count. With few forecasts it is mostly noise: pool bins."""
    total = sum(each.count for each in bins)
    return math.fsum(each.count * abs(each.forecast - each.share) for each in bins) / total if total else None


# -- equity curves


def drawdowns(equity: Sequence[float]) -> list[float]:
    """At each tick, the distance to the highest point so far, as a share of that point."""
    falls, peak = [], -math.inf
    for value in equity:
        peak = max(peak, value)
        falls.append((peak - value) / peak if peak > 0 else 0.0)
    return falls


def tick_returns(equity: Sequence[float]) -> list[float]:
    """Relative change of equity from tick to tick; 0 once nothing is left."""
    return [after / before - 1 if before > 0 else 0.0 for before, after in pairwise(equity)]


def sharpe(returns: Sequence[float]) -> float:
    """Mean over standard deviation of the returns per tick, not annualised; 0 where nothing moves."""
    average = mean(returns) or 0.0
    return _ratio(returns, math.fsum((value - average) ** 2 for value in returns))


def sortino(returns: Sequence[float]) -> float | None:
    """Mean over downside deviation (root mean square of the losses) per tick.

    None where there are gains and no losses.
    """
    losses = math.fsum(min(value, 0.0) ** 2 for value in returns)
    if not losses and any(value > 0 for value in returns):
        return None
    return _ratio(returns, losses)


def _ratio(returns: Sequence[float], squares: float) -> float:
    """Mean over the root of a mean square; 0 where there is no spread."""
    return (mean(returns) or 0.0) / math.sqrt(squares / len(returns)) if squares > 0 else 0.0


def mean(values: Sequence[float]) -> float | None:
    """None for no values."""
    return math.fsum(values) / len(values) if values else None
