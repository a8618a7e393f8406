"""Orders: what a holder may do to a market or a perpetual, printed on the tape."""

from __future__ import annotations

import math

from bakeoff.workloads.market.world import lmsr, perps
from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.feed import print_trade
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    AT_HOURS,
    BUY,
    CLOSE_PERP,
    ENTRY,
    HOUR_NOW,
    HOURS,
    ID,
    LIQUIDATION,
    MARKETS,
    MICRO,
    NO_POSITION,
    OPEN,
    OPEN_PERP,
    PERPS,
    PRICE,
    SELL,
    TOO_SMALL,
    UNITS,
    UNKNOWN,
    FloatRow,
    IntRow,
    cash_of,
    market_of,
    position_of,
)
from bakeoff.workloads.market.world.rules import FEE

LEAST_BET = MICRO
LEAST_PERP = 10 * MICRO

_buy, _sell, _market_worth, _remembered_worth = lmsr.buy, lmsr.sell, lmsr.worth, lmsr.remembered_worth
_increase, _closable, _reduce, _perp_worth = perps.increase, perps.closable, perps.reduce, perps.worth


@kernel
def buy_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, amount: int) -> int:
    """Micro-shares bought for `amount` micro-dollars, or a negative code."""
    slot = market_of(i, m)
    if i[slot + OPEN] == 0:
        return UNKNOWN
    if amount < LEAST_BET:
        return TOO_SMALL
    got = _buy(i, f, m, h, side, amount, r[FEE])
    if got > 0:
        print_trade(i, h, BUY, i[slot + ID], side, amount, got)
    return got


@kernel
def sell_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, count: int) -> int:
    """Micro-dollars that `count` micro-shares brought, or a negative code."""
    slot = market_of(i, m)
    if i[slot + OPEN] == 0:
        return UNKNOWN
    if count <= 0:
        return TOO_SMALL
    got = _sell(i, f, m, h, side, count, r[FEE])
    if got > 0:
        print_trade(i, h, SELL, i[slot + ID], side, got, count)
    return got


@kernel
def open_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, sign: int, size: int, leverage: float) -> int:
    """Units added to a position on the side `sign` for `size` micro-dollars of notional, or a negative code."""
    if size < LEAST_PERP:
        return TOO_SMALL
    at = position_of(i, a, h)
    before = i[at + ENTRY]
    got = _increase(i, f, r, a, h, sign, size, leverage)
    if got > 0:
        count_volume(i, f, a, size)
        print_trade(i, h, OPEN_PERP, a, 0 if sign > 0 else 1, abs(i[at + ENTRY] - before), got)
    return got


@kernel
def close_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, units: int, forced: bool) -> int:
    """Units closed of a position, or a negative code."""
    held = i[position_of(i, a, h) + UNITS]
    if held == 0:
        return NO_POSITION
    if units <= 0:
        return TOO_SMALL
    got = _closable(i, f, r, a, h, units)
    value = _reduce(i, f, r, a, h, got, forced)
    count_volume(i, f, a, math.floor(got * 1e-3 * f[a * ASSET_FLOATS + PRICE]))
    print_trade(i, h, LIQUIDATION if forced else CLOSE_PERP, a, 0 if held > 0 else 1, abs(value), got)
    return got


@kernel
def count_volume(i: IntRow, f: FloatRow, a: int, size: int) -> None:
    f[i[AT_HOURS] + (a * HOURS + i[HOUR_NOW]) * 2 + 1] += size * 1e-6


@kernel
def equity_of(i: IntRow, f: FloatRow, r: FloatRow, h: int) -> int:
    """Cash and what selling everything now would bring, in micro-dollars."""
    total = i[cash_of(i, h)]
    for m in range(i[MARKETS]):
        if i[market_of(i, m) + OPEN]:
            total += _market_worth(i, f, m, h, r[FEE])
    for a in range(i[PERPS]):
        total += _perp_worth(i, f, r, a, h)
    return total


@kernel
def equity_of_player(i: IntRow, f: FloatRow, r: FloatRow, memory: IntRow) -> int:
    """The same for seat 0, with a memory of what its shares were worth when they were last looked at."""
    total = i[cash_of(i, 0)]
    for m in range(i[MARKETS]):
        if i[market_of(i, m) + OPEN]:
            total += _remembered_worth(i, f, memory, m, r[FEE])
    for a in range(i[PERPS]):
        total += _perp_worth(i, f, r, a, 0)
    return total
