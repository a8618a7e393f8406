"""Scores of forecasts and of an equity curve: plain numbers in, plain numbers out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    return _ratio(returns, math.fsum((value - (mean(returns) or 0.0)) ** 2 for value in returns))


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
