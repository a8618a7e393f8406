"""Perpetual futures: an index nobody can move, and a mark price that trades push away from it.

`push` is net taker notional over depth; mark = index * (1 + g(push)) with g(u) = linear * u + root * sign(u) * sqrt|u|.
An order pays the integral of that curve, so splitting it changes nothing; each tick the push relaxes. A position has its
own margin and never loses more: what is missing comes from the insurance fund, then from the venue. So that nobody can make
the house pay by pushing a mark, margins are held against the index, and the venue takes positions over without a trade.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    BAD_LEVERAGE,
    DUE_TICK,
    ENTRY,
    FEES,
    FEES_PAID,
    FUNDING_PAID,
    HOLDERS,
    INSURANCE,
    LIQUIDATIONS,
    LONG_UNITS,
    MARGIN,
    MARKUP,
    POOR,
    PRICE,
    PUSH,
    REALIZED,
    REGIME,
    SAFE_ABOVE,
    SAFE_BELOW,
    SHORT_UNITS,
    TICK,
    TOO_LARGE,
    TOO_SMALL,
    TRADES,
    UNITS,
    VENUE,
    VOLUME,
    FloatRow,
    IntRow,
    asset_of,
    book_of,
    cash_of,
    house_of,
    position_of,
)
from bakeoff.workloads.market.world.lmsr import SLACK
from bakeoff.workloads.market.world.rules import (
    DEPTH,
    FUNDING_CAP,
    FUNDING_SHARE,
    GAP,
    LINEAR,
    LIQUIDITY,
    MAINTENANCE,
    PENALTY,
    PERP_FEE,
    ROOT,
    regime_row,
)

EDGE = 1e-9
"""The safe range is narrower than need be by this share, which is far above the rounding of its ends."""


MOST_UNITS = 2.0**53
"""Of one order. An index that has run for very long may be so low that more dollars could not be counted in units."""


@kernel
def premium(push: float, r: FloatRow) -> float:
    return r[LINEAR] * push + math.copysign(r[ROOT] * math.sqrt(abs(push)), push)


@kernel
def push_to(f: FloatRow, r: FloatRow, a: int, push: float) -> None:
    f[a * ASSET_FLOATS + PUSH] = push
    f[a * ASSET_FLOATS + MARKUP] = premium(push, r)


@kernel
def mark_price(f: FloatRow, a: int) -> float:
    return f[a * ASSET_FLOATS + PRICE] * (1.0 + f[a * ASSET_FLOATS + MARKUP])


@kernel
def depth_of(i: IntRow, r: FloatRow, a: int) -> float:
    return r[DEPTH] * r[regime_row(i[asset_of(i, a) + REGIME]) + LIQUIDITY]


@kernel
def requirement(i: IntRow, r: FloatRow, a: int) -> float:
    """Least margin for each dollar of position. On the eve of an announcement it covers the largest jump."""
    asset = asset_of(i, a)
    if i[TICK] + 1 == i[asset + DUE_TICK]:
        return max(r[MAINTENANCE], r[regime_row(i[asset + REGIME]) + GAP])
    return r[MAINTENANCE]


@kernel
def _area(push: float, r: FloatRow) -> float:
    """Integral of the premium from 0."""
    size = abs(push)
    return size * (0.5 * r[LINEAR] * size + r[ROOT] * (2.0 / 3.0) * math.sqrt(size))


@kernel
def traded_value(notional: float, push: float, depth: float, r: FloatRow) -> float:
    """Dollars paid (received when negative) for a signed notional at index prices."""
    return notional + depth * (_area(push + notional / depth, r) - _area(push, r))


@kernel
def closing_value(i: IntRow, f: FloatRow, r: FloatRow, a: int, units: int) -> int:
    """Micro-dollars that closing `units` (signed) would bring, rounded down; negative for a short."""
    at = a * ASSET_FLOATS
    paid = traded_value(-units * 1e-9 * f[at + PRICE], f[at + PUSH], depth_of(i, r, a), r)
    return math.floor(-paid * 1e6 - SLACK)


@kernel
def worth(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> int:
    """What closing the whole position now would bring, after the fee and never below 0."""
    at = position_of(i, a, h)
    units = i[at + UNITS]
    if units == 0:
        return 0
    fee = math.ceil(abs(units) * 1e-3 * f[a * ASSET_FLOATS + PRICE] * r[PERP_FEE])
    return max(0, i[at + MARGIN] + closing_value(i, f, r, a, units) - i[at + ENTRY] - fee)


@kernel
def increase(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, sign: int, size: int, leverage: float) -> int:
    """Open or add to a position on the side `sign`. Returns the units, or a negative code."""
    at, book, asset = position_of(i, a, h), book_of(i, h), asset_of(i, a)
    price, push, depth = f[a * ASSET_FLOATS + PRICE], f[a * ASSET_FLOATS + PUSH], depth_of(i, r, a)
    units = math.floor(min(size * 1e3 / price, MOST_UNITS))
    if units <= 0:
        return TOO_SMALL
    margin, fee = math.ceil(size / leverage), math.ceil(size * r[PERP_FEE])
    if margin + fee > i[cash_of(i, h)]:
        return POOR
    notional = sign * units * 1e-9 * price
    total = abs(i[at + UNITS]) * 1e-9 * price + abs(notional)
    if total > depth or units >= MOST_UNITS:
        return TOO_LARGE
    entry = math.ceil(traded_value(notional, push, depth, r) * 1e6 + SLACK)
    gain = (i[at + UNITS] + sign * units) * 1e-3 * price - (i[at + ENTRY] + entry)
    if i[at + MARGIN] + margin + min(gain, 0.0) < requirement(i, r, a) * total * 1e6:
        return BAD_LEVERAGE
    i[cash_of(i, h)] -= margin + fee
    i[house_of(i, FEES)] += fee
    i[at + UNITS] += sign * units
    i[at + MARGIN] += margin
    i[at + ENTRY] += entry
    push_to(f, r, a, push + notional / depth)
    i[asset + (LONG_UNITS if sign > 0 else SHORT_UNITS)] += units
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += size
    guard(i, f, r, a, h)
    return units


@kernel
def _rest_stands(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int) -> bool:
    """True when the rest of the position, after `units` of it are closed, can be closed from its own margin."""
    at = position_of(i, a, h)
    held, margin, entry = i[at + UNITS], i[at + MARGIN], i[at + ENTRY]
    share, out = units / abs(held), units if held > 0 else -units
    first = closing_value(i, f, r, a, out) - math.ceil(entry * share)
    both = closing_value(i, f, r, a, held) - entry
    freed = math.floor(margin * share)
    rest = abs(held - out) * 1e-3 * f[a * ASSET_FLOATS + PRICE]
    return margin - freed + min(0, freed + first) + both - first >= requirement(i, r, a) * rest


@kernel
def closable(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int) -> int:
    """`units` (positive) of a position, or all of it when there are no more or when the rest could not stand alone."""
    held = abs(i[position_of(i, a, h) + UNITS])
    return held if units >= held or not _rest_stands(i, f, r, a, h, units) else units


@kernel
def reduce(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int, forced: bool) -> int:
    """Close `closable` units of a position. Returns what they were worth.

    They are traded, unless the venue takes the position over: at the index when it must be closed, and for its whole margin
    when trading it would cost more than that.
    """
    at, book = position_of(i, a, h), book_of(i, h)
    held, entry, margin = i[at + UNITS], i[at + ENTRY], i[at + MARGIN]
    whole = units == abs(held)
    if not whole:
        share = units / abs(held)
        entry, margin = math.ceil(entry * share), math.floor(margin * share)
    notional = units * 1e-9 * f[a * ASSET_FLOATS + PRICE]
    if forced:
        value = math.floor(math.copysign(notional * 1e6, held) - SLACK)
    else:
        value = closing_value(i, f, r, a, units if held > 0 else -units)
        if whole and value < entry - margin:
            value = entry - margin
        else:
            push_to(f, r, a, f[a * ASSET_FLOATS + PUSH] - math.copysign(notional / depth_of(i, r, a), held))
    gain = value - entry
    i[at + UNITS] -= units if held > 0 else -units
    i[at + MARGIN] -= margin
    i[at + ENTRY] -= entry
    i[asset_of(i, a) + (LONG_UNITS if held > 0 else SHORT_UNITS)] -= units
    payout = margin + gain
    if payout < 0 and not whole:
        i[at + MARGIN] += payout
        payout = 0
    missing = cover(i, -payout) if payout < 0 else 0
    payout = max(payout, 0)
    i[house_of(i, VENUE)] -= gain + missing
    if forced:
        penalty = min(payout, math.ceil(notional * 1e6 * r[PENALTY]))
        i[house_of(i, INSURANCE)] += penalty
        payout -= penalty
        gain -= penalty
        i[book + LIQUIDATIONS] += 1
    fee = min(math.ceil(notional * 1e6 * r[PERP_FEE]), payout + i[cash_of(i, h)])
    i[cash_of(i, h)] += payout - fee
    i[house_of(i, FEES)] += fee
    i[book + REALIZED] += max(gain, -margin) if whole else gain
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += math.floor(notional * 1e6)
    guard(i, f, r, a, h)
    return value


@kernel
def guard(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> None:
    """Narrow the prices between which nobody is liquidated to those at which this position stands."""
    at, asset = position_of(i, a, h), a * ASSET_FLOATS
    units, lost = i[at + UNITS], i[at + ENTRY] - i[at + MARGIN]
    if units > 0:
        edge = lost / (units * 1e-3 * (1.0 - r[MAINTENANCE]))
        f[asset + SAFE_ABOVE] = max(f[asset + SAFE_ABOVE], edge * (1.0 + EDGE))
    elif units < 0:
        edge = lost / (units * 1e-3 * (1.0 + r[MAINTENANCE]))
        f[asset + SAFE_BELOW] = min(f[asset + SAFE_BELOW], edge * (1.0 - EDGE))


@kernel
def cover(i: IntRow, missing: int) -> int:
    """The insurance fund pays what a position lost beyond its margin. Returns what it could not pay."""
    fund = house_of(i, INSURANCE)
    paid = min(missing, i[fund])
    i[fund] -= paid
    return missing - paid


@kernel
def funding_rate(f: FloatRow, r: FloatRow, a: int) -> float:
    rate = r[FUNDING_SHARE] * f[a * ASSET_FLOATS + MARKUP]
    return max(-r[FUNDING_CAP], min(r[FUNDING_CAP], rate))


@kernel
def pay_funding(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """The side that pushed the mark away from the index pays the other, which gets no more than that; the venue keeps the rest."""
    each, paid, owed = 1e-3 * mark_price(f, a) * funding_rate(f, r, a), 0, 0
    for h in range(i[HOLDERS]):
        at = position_of(i, a, h)
        due = math.ceil(i[at + UNITS] * each)
        if due <= 0:
            owed -= due
            continue
        from_cash = min(due, i[cash_of(i, h)])
        from_margin = min(due - from_cash, i[at + MARGIN])
        i[cash_of(i, h)] -= from_cash
        i[at + MARGIN] -= from_margin
        i[book_of(i, h) + FUNDING_PAID] += from_cash + from_margin
        paid += from_cash + from_margin
        if from_margin != 0:
            guard(i, f, r, a, h)
    if owed > 0:
        share = min(1.0, paid / owed)
        for h in range(i[HOLDERS]):
            due = math.ceil(i[position_of(i, a, h) + UNITS] * each)
            if due < 0:
                gets = min(math.floor(-due * share), paid)
                i[cash_of(i, h)] += gets
                i[book_of(i, h) + FUNDING_PAID] -= gets
                paid -= gets
    i[house_of(i, VENUE)] += paid
