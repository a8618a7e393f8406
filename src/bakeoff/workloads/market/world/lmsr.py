"""Prediction markets: a logarithmic market scoring rule with liquidity b, C = b log(e^(yes/b) + e^(no/b)).

A slot keeps the log-odds of YES and C/b up to a constant, log(1 + e^log_odds), so that a trade takes few transcendental
functions. What a trader pays is rounded up and what he gets is rounded down, to a micro-unit; SLACK is far above the
error of the floating-point part and far below one unit, so no sequence of trades gains from rounding.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    COST,
    COST_YES,
    FEES,
    FEES_PAID,
    ID,
    LOG_ODDS,
    MAKER,
    MEMORY,
    NET,
    NO,
    OFFSET,
    POOR,
    PRICE_YES,
    Q_NO,
    Q_YES,
    REALIZED,
    SEATS,
    SLOW,
    TOO_FEW,
    TOO_SMALL,
    TRADED,
    TRADES,
    VOLUME,
    WORTH,
    WORTH_ID,
    WORTH_TRADED,
    YES,
    B,
    FloatRow,
    IntRow,
    book_of,
    cash_of,
    holding_of,
    house_of,
    market_of,
    note_of,
    prices_of,
)
from bakeoff.workloads.market.world.numerics import exp, log, shrinkage, softplus

SLACK = 0.01


@kernel
def reprice(i: IntRow, f: FloatRow, m: int) -> None:
    """Refresh what is cached after the outstanding shares have changed."""
    slot, at = market_of(i, m), prices_of(i, m)
    odds = f[at + OFFSET] + (i[slot + Q_YES] - i[slot + Q_NO]) * 1e-6 / f[at + B]
    e = exp(-abs(odds))
    f[at + LOG_ODDS] = odds
    f[at + COST] = max(odds, 0.0) + log(1.0 + e)
    f[at + PRICE_YES] = (1.0 if odds >= 0.0 else e) / (1.0 + e)
    f[at + SLOW] += 0.3 * (f[at + PRICE_YES] - f[at + SLOW])


@kernel
def buy(i: IntRow, f: FloatRow, m: int, h: int, side: int, amount: int, fee_rate: float) -> int:
    """Spend `amount`, the fee included, on shares of `side`. Returns the shares, or a negative code."""
    slot, at, book, held = market_of(i, m), prices_of(i, m), book_of(i, h), holding_of(i, m, h)
    if amount > i[cash_of(i, h)]:
        return POOR
    fee = math.ceil(amount * fee_rate)
    odds, cost = f[at + LOG_ODDS], f[at + COST]
    if side != YES:
        cost -= odds
        odds = -odds
    after = cost + (amount - fee) * 1e-6 / f[at + B]
    got = math.floor((after + log(shrinkage(after)) - odds) * f[at + B] * 1e6 - SLACK)
    if got <= 0:
        return TOO_SMALL
    i[cash_of(i, h)] -= amount
    i[house_of(i, MAKER)] += amount - fee
    i[house_of(i, FEES)] += fee
    i[held + side] += got
    i[held + COST_YES + side] += amount
    note(i, m, h)
    i[slot + Q_YES + side] += got
    i[slot + TRADED] += amount
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += amount
    reprice(i, f, m)
    return got


@kernel
def sell(i: IntRow, f: FloatRow, m: int, h: int, side: int, count: int, fee_rate: float) -> int:
    """Sell `count` shares of `side`. Returns what they brought after the fee, or a negative code."""
    slot, book, held = market_of(i, m), book_of(i, h), holding_of(i, m, h)
    had = i[held + side]
    if count > had:
        return TOO_FEW
    gross = proceeds(i, f, m, side, count)
    fee = math.ceil(gross * fee_rate)
    if gross - fee <= 0:
        return TOO_SMALL
    spent = i[held + COST_YES + side]
    part = spent if count == had else math.floor(spent * (count / had))
    i[cash_of(i, h)] += gross - fee
    i[house_of(i, MAKER)] -= gross
    i[house_of(i, FEES)] += fee
    i[held + side] -= count
    i[held + COST_YES + side] -= part
    note(i, m, h)
    i[slot + Q_YES + side] -= count
    i[slot + TRADED] += gross
    i[book + REALIZED] += gross - fee - part
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += gross
    reprice(i, f, m)
    return gross - fee


@kernel
def proceeds(i: IntRow, f: FloatRow, m: int, side: int, count: int) -> int:
    """What `count` shares of one side would bring, before the fee."""
    at = prices_of(i, m)
    odds = f[at + LOG_ODDS] if side == YES else -f[at + LOG_ODDS]
    cost = f[at + COST] if side == YES else f[at + COST] + odds
    left = odds - count * 1e-6 / f[at + B]
    drop = cost - softplus(left)
    return math.floor(drop * f[at + B] * 1e6 - SLACK)


@kernel
def note(i: IntRow, m: int, h: int) -> None:
    """After a holding has changed: a seat's is noted where all of its markets lie together."""
    if h < i[SEATS]:
        held = holding_of(i, m, h)
        i[note_of(i, m, h) + NET] = i[held + YES] - i[held + NO]


@kernel
def remembered_worth(i: IntRow, f: FloatRow, memory: IntRow, m: int, fee_rate: float) -> int:
    """The worth of seat 0's holding, computed anew only after someone has traded in the market: every trade adds volume."""
    slot, at = market_of(i, m), m * MEMORY
    if memory[at + WORTH_TRADED] != i[slot + TRADED] or memory[at + WORTH_ID] != i[slot + ID]:
        memory[at + WORTH] = worth(i, f, m, 0, fee_rate)
        memory[at + WORTH_TRADED] = i[slot + TRADED]
        memory[at + WORTH_ID] = i[slot + ID]
    return memory[at + WORTH]


@kernel
def worth(i: IntRow, f: FloatRow, m: int, h: int, fee_rate: float) -> int:
    """What holder `h` would get for selling everything in market `m` now, after the fee."""
    held = holding_of(i, m, h)
    yes, no = i[held + YES], i[held + NO]
    if yes == 0 and no == 0:
        return 0
    at = prices_of(i, m)
    left = f[at + LOG_ODDS] - (yes - no) * 1e-6 / f[at + B]
    gross = math.floor((f[at + COST] - softplus(left)) * f[at + B] * 1e6 + no - SLACK)
    return max(0, gross - math.ceil(gross * fee_rate))
