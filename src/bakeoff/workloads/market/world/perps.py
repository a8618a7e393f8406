"""Perpetual futures: an index that nobody can move, and a mark price that trades push away from it.

`push` is net taker notional over depth, and mark = index * (1 + g(push)) with g(u) = linear * u + root * sign(u) * sqrt|u|.
An order pays the integral of that curve, so splitting an order changes nothing. Each tick the push relaxes.

A position has a margin of its own and never loses more: what is missing comes from the insurance fund, then from the venue.
So that nobody can make the house pay by pushing a mark, margins are checked against the index, and the venue takes over
positions without a trade.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.feed import append_trade
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    AT_HOURS,
    BAD_LEVERAGE,
    CLOSE_PERP,
    DUE_TICK,
    ENTRY,
    FEES,
    FEES_PAID,
    FUNDING_PAID,
    HOLDERS,
    HOUR_NOW,
    HOURS,
    INSURANCE,
    LIQUIDATION,
    LIQUIDATIONS,
    LONG_UNITS,
    MARGIN,
    MARKUP,
    MICRO,
    NO_POSITION,
    OPEN_PERP,
    POOR,
    PRICE,
    PUSH,
    REALIZED,
    REGIME,
    SAFE_ABOVE,
    SAFE_BELOW,
    SHORT_UNITS,
    SLACK,
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

LEAST_PERP = 10 * MICRO

EDGE = 1e-9
"""The safe range of `guard` is narrower than necessary by this share, which is far above the rounding of its ends."""

MOST_UNITS = 2.0**53
"""In one order. After a very long time an index may be so low that the units for a large order are not exact in a float."""


# -- prices


@kernel
def push_to(f: FloatRow, r: FloatRow, a: int, push: float) -> None:
    """Set the push, and the premium g(push) that it makes."""
    f[a * ASSET_FLOATS + PUSH] = push
    f[a * ASSET_FLOATS + MARKUP] = r[LINEAR] * push + math.copysign(r[ROOT] * math.sqrt(abs(push)), push)


@kernel
def depth_of(i: IntRow, r: FloatRow, a: int) -> float:
    return r[DEPTH] * r[regime_row(i[asset_of(i, a) + REGIME]) + LIQUIDITY]


@kernel
def requirement(i: IntRow, r: FloatRow, a: int) -> float:
    """Least margin for each dollar of position. In the tick before an announcement it covers the largest jump."""
    asset = asset_of(i, a)
    if i[TICK] + 1 == i[asset + DUE_TICK]:
        return max(r[MAINTENANCE], r[regime_row(i[asset + REGIME]) + GAP])
    return r[MAINTENANCE]


@kernel
def _area(push: float, r: FloatRow) -> float:
    """Integral of g from 0 to `push`; g is odd, so its integral is even."""
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
def perp_worth(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> int:
    """What closing the whole position now would bring, after the fee and never below 0."""
    at = position_of(i, a, h)
    units = i[at + UNITS]
    if units == 0:
        return 0
    fee = math.ceil(abs(units) * 1e-3 * f[a * ASSET_FLOATS + PRICE] * r[PERP_FEE])
    return max(0, i[at + MARGIN] + closing_value(i, f, r, a, units) - i[at + ENTRY] - fee)


# -- orders


@kernel
def open_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, sign: int, size: int, leverage: float) -> int:
    """Open or add to a position on the side `sign`, for `size` micro-dollars of notional at the index.

    Returns the units, or a negative code.
    """
    at, book, asset = position_of(i, a, h), book_of(i, h), asset_of(i, a)
    price, push, depth = f[a * ASSET_FLOATS + PRICE], f[a * ASSET_FLOATS + PUSH], depth_of(i, r, a)
    if size < LEAST_PERP:
        return TOO_SMALL
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
    count_volume(i, f, a, size)
    append_trade(i, h, OPEN_PERP, a, 0 if sign > 0 else 1, abs(entry), units)
    return units


@kernel
def close_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, units: int, forced: bool) -> int:
    """Close up to `units` (positive) of a position, or all of it when the rest could not stand alone.

    `forced` is a liquidation. Returns the units that were closed, or a negative code.
    """
    held = i[position_of(i, a, h) + UNITS]
    if held == 0:
        return NO_POSITION
    if units <= 0:
        return TOO_SMALL
    closed = abs(held) if units >= abs(held) or not _rest_stands(i, f, r, a, h, units) else units
    value = settle(i, f, r, a, h, closed, forced)
    count_volume(i, f, a, math.floor(closed * 1e-3 * f[a * ASSET_FLOATS + PRICE]))
    append_trade(i, h, LIQUIDATION if forced else CLOSE_PERP, a, 0 if held > 0 else 1, abs(value), closed)
    return closed


@kernel
def _rest_stands(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int) -> bool:
    """True when the rest of a position, after `units` of it are closed, can be closed from its own margin."""
    at = position_of(i, a, h)
    held, margin, entry = i[at + UNITS], i[at + MARGIN], i[at + ENTRY]
    share, out = units / abs(held), units if held > 0 else -units
    first = closing_value(i, f, r, a, out) - math.ceil(entry * share)
    both = closing_value(i, f, r, a, held) - entry
    freed = math.floor(margin * share)
    rest = abs(held - out) * 1e-3 * f[a * ASSET_FLOATS + PRICE]
    return margin - freed + min(0, freed + first) + both - first >= requirement(i, r, a) * rest


@kernel
def settle(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int, forced: bool) -> int:
    """Take `units` out of a position and pay the holder. Returns what they were worth.

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
        # A loss beyond the closed part's margin comes out of the rest's margin, which `_rest_stands` has checked.
        i[at + MARGIN] += payout
        payout = 0
    missing = 0
    if payout < 0:
        # The insurance fund pays what a position lost beyond its margin; the venue bears what the fund cannot pay.
        fund = house_of(i, INSURANCE)
        covered = min(-payout, i[fund])
        i[fund] -= covered
        missing = -payout - covered
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
def count_volume(i: IntRow, f: FloatRow, a: int, size: int) -> None:
    f[i[AT_HOURS] + (a * HOURS + i[HOUR_NOW]) * 2 + 1] += size * 1e-6


# -- margins and funding


@kernel
def guard(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> None:
    """Narrow the safe range (SAFE_ABOVE, SAFE_BELOW) of the index to prices at which this position needs no liquidation.

    A long stands while margin + units * index - entry >= maintenance * units * index; solve for the index. A range that
    is too narrow costs a look at all positions in `liquidate`, one that is too wide would miss a liquidation.
    """
    at, asset = position_of(i, a, h), a * ASSET_FLOATS
    units, lost = i[at + UNITS], i[at + ENTRY] - i[at + MARGIN]
    if units > 0:
        edge = lost / (units * 1e-3 * (1.0 - r[MAINTENANCE]))
        f[asset + SAFE_ABOVE] = max(f[asset + SAFE_ABOVE], edge * (1.0 + EDGE))
    elif units < 0:
        edge = lost / (units * 1e-3 * (1.0 + r[MAINTENANCE]))
        f[asset + SAFE_BELOW] = min(f[asset + SAFE_BELOW], edge * (1.0 - EDGE))


@kernel
def liquidate(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """Close positions whose margin and profit at the index no longer cover the requirement.

    Positions are only looked at when one may be in danger: when the index leaves the safe range, or in the tick before an
    announcement, which asks for more margin. Looking at all of them sets the safe range anew.
    """
    asset, need = a * ASSET_FLOATS, requirement(i, r, a)
    index = f[asset + PRICE]
    if f[asset + SAFE_ABOVE] < index < f[asset + SAFE_BELOW] and need == r[MAINTENANCE]:
        return
    f[asset + SAFE_ABOVE] = 0.0
    f[asset + SAFE_BELOW] = math.inf
    for h in range(i[HOLDERS]):
        at = position_of(i, a, h)
        if i[at + UNITS] == 0:
            continue
        size = i[at + UNITS] * 1e-3 * index
        if i[at + MARGIN] + size - i[at + ENTRY] < need * abs(size):
            close_perp(i, f, r, h, a, abs(i[at + UNITS]), True)
        else:
            guard(i, f, r, a, h)


@kernel
def pay_funding(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """The side that pushed the mark away from the index pays the other side.

    Longs pay when the mark is above the index, each from cash, then from margin. The other side shares what was paid, and
    gets at most the same rate; the venue keeps the rest.
    """
    markup = f[a * ASSET_FLOATS + MARKUP]
    rate = max(-r[FUNDING_CAP], min(r[FUNDING_CAP], r[FUNDING_SHARE] * markup))
    each, paid, owed = 1e-3 * (f[a * ASSET_FLOATS + PRICE] * (1.0 + markup)) * rate, 0, 0
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
                received = min(math.floor(-due * share), paid)
                i[cash_of(i, h)] += received
                i[book_of(i, h) + FUNDING_PAID] -= received
                paid -= received
    i[house_of(i, VENUE)] += paid
