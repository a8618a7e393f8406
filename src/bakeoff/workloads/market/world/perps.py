"""Perpetual futures: an index that nobody can move, and a mark price that trades push away from it.

`push` is net taker notional over depth, and mark = index * (1 + g(push)) with g(u) = linear * u + root * sign(u) *
sqrt|u|. An order pays the integral of that curve, so splitting an order changes nothing. Each tick the push relaxes.

Every position has its own margin and never loses more: what is missing comes from the insurance fund, then from the
venue. So that nobody can make the house pay by pushing a mark, margins are checked against the index, and the venue
takes over positions without a trade.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import rules
from bakeoff.workloads.market.world.feed import append_trade
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import FloatRow, IntRow

LEAST_PERP = 10 * at.MICRO

EDGE = 1e-9
"""The safe range of `guard` is narrower than necessary by this share, which is far above the rounding of its ends."""

MOST_UNITS = 2.0**53
"""In one order. After a very long time an index may be so low that the units for a large order are not exact in a
float."""


# -- prices


@kernel
def push_to(f: FloatRow, r: FloatRow, a: int, push: float) -> None:
    """Set the push, and the premium g(push) that it makes."""
    f[a * at.ASSET_FLOATS + at.PUSH] = push
    f[a * at.ASSET_FLOATS + at.MARKUP] = r[rules.LINEAR] * push + math.copysign(
        r[rules.ROOT] * math.sqrt(abs(push)), push
    )


@kernel
def depth_of(i: IntRow, r: FloatRow, a: int) -> float:
    """Dollars of notional that move the push by 1. In a drought there is less."""
    return r[rules.DEPTH] * r[rules.regime_row(i[at.asset_of(i, a) + at.REGIME]) + rules.LIQUIDITY]


@kernel
def requirement(i: IntRow, r: FloatRow, a: int) -> float:
    """Least margin for each dollar of position. In the tick before an announcement it covers the largest jump."""
    asset = at.asset_of(i, a)
    if i[at.TICK] + 1 == i[asset + at.DUE_TICK]:
        return max(r[rules.MAINTENANCE], r[rules.regime_row(i[asset + at.REGIME]) + rules.GAP])
    return r[rules.MAINTENANCE]


@kernel
def _area(push: float, r: FloatRow) -> float:
    """Integral of g from 0 to `push`; g is odd, so its integral is even."""
    size = abs(push)
    return size * (0.5 * r[rules.LINEAR] * size + r[rules.ROOT] * (2.0 / 3.0) * math.sqrt(size))


@kernel
def traded_value(notional: float, push: float, depth: float, r: FloatRow) -> float:
    """Dollars paid (received when negative) for a signed notional at index prices.

    The integral of the mark along the order: notional + depth * (integral of g from push to push + notional / depth).
    """
    return notional + depth * (_area(push + notional / depth, r) - _area(push, r))


@kernel
def closing_value(i: IntRow, f: FloatRow, r: FloatRow, a: int, units: int) -> int:
    """Micro-dollars that closing `units` (signed) would bring, rounded down; negative for a short."""
    floats = a * at.ASSET_FLOATS
    paid = traded_value(-units * 1e-9 * f[floats + at.PRICE], f[floats + at.PUSH], depth_of(i, r, a), r)
    return math.floor(-paid * 1e6 - at.SLACK)


@kernel
def perp_worth(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> int:
    """What closing the whole position now would bring, after the fee and never below 0."""
    position = at.position_of(i, a, h)
    units = i[position + at.UNITS]
    if units == 0:
        return 0
    fee = math.ceil(abs(units) * 1e-3 * f[a * at.ASSET_FLOATS + at.PRICE] * r[rules.PERP_FEE])
    return max(0, i[position + at.MARGIN] + closing_value(i, f, r, a, units) - i[position + at.ENTRY] - fee)


# -- orders


@kernel
def open_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, sign: int, size: int, leverage: float) -> int:
    """Open or add to a position on the side `sign`, for `size` micro-dollars of notional at the index.

    Returns the units, or a negative code.
    """
    position, book, asset = at.position_of(i, a, h), at.book_of(i, h), at.asset_of(i, a)
    price, push, depth = f[a * at.ASSET_FLOATS + at.PRICE], f[a * at.ASSET_FLOATS + at.PUSH], depth_of(i, r, a)
    if size < LEAST_PERP:
        return at.TOO_SMALL
    units = math.floor(min(size * 1e3 / price, MOST_UNITS))
    if units <= 0:
        return at.TOO_SMALL
    # Margin and fee come out of cash; the entry price is settled against the venue when the position is closed.
    margin, fee = math.ceil(size / leverage), math.ceil(size * r[rules.PERP_FEE])
    if margin + fee > i[at.cash_of(i, h)]:
        return at.POOR
    # 1e-9 turns nano-units into units; 1e-3 below turns nano-units times dollars into micro-dollars.
    notional = sign * units * 1e-9 * price
    total = abs(i[position + at.UNITS]) * 1e-9 * price + abs(notional)
    if total > depth or units >= MOST_UNITS:
        return at.TOO_LARGE
    entry = math.ceil(traded_value(notional, push, depth, r) * 1e6 + at.SLACK)
    # Profit of the whole position at the index; slippage makes it negative.
    gain = (i[position + at.UNITS] + sign * units) * 1e-3 * price - (i[position + at.ENTRY] + entry)
    if i[position + at.MARGIN] + margin + min(gain, 0.0) < requirement(i, r, a) * total * 1e6:
        return at.BAD_LEVERAGE
    i[at.cash_of(i, h)] -= margin + fee
    i[at.house_of(i, at.FEES)] += fee
    i[position + at.UNITS] += sign * units
    i[position + at.MARGIN] += margin
    i[position + at.ENTRY] += entry
    push_to(f, r, a, push + notional / depth)
    i[asset + (at.LONG_UNITS if sign > 0 else at.SHORT_UNITS)] += units
    i[book + at.FEES_PAID] += fee
    i[book + at.TRADES] += 1
    i[book + at.VOLUME] += size
    guard(i, f, r, a, h)
    count_volume(i, f, a, size)
    append_trade(i, h, at.OPEN_PERP, a, 0 if sign > 0 else 1, abs(entry), units)
    return units


@kernel
def close_perp(i: IntRow, f: FloatRow, r: FloatRow, h: int, a: int, units: int, forced: bool) -> int:
    """Close up to `units` (positive) of a position, or all of it when the rest could not stand alone.

    `forced` is a liquidation. Returns the units that were closed, or a negative code.
    """
    held = i[at.position_of(i, a, h) + at.UNITS]
    if held == 0:
        return at.NO_POSITION
    if units <= 0:
        return at.TOO_SMALL
    closed = abs(held) if units >= abs(held) or not _rest_stands(i, f, r, a, h, units) else units
    value = settle(i, f, r, a, h, closed, forced)
    count_volume(i, f, a, math.floor(closed * 1e-3 * f[a * at.ASSET_FLOATS + at.PRICE]))
    append_trade(i, h, at.LIQUIDATION if forced else at.CLOSE_PERP, a, 0 if held > 0 else 1, abs(value), closed)
    return closed


@kernel
def _rest_stands(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int) -> bool:
    """True when the rest of a position, after `units` of it are closed, can be closed from its own margin.

    Otherwise a holder could close the part of a losing position that its margin covers and leave the rest to the house.
    """
    position = at.position_of(i, a, h)
    held, margin, entry = i[position + at.UNITS], i[position + at.MARGIN], i[position + at.ENTRY]
    share, out = units / abs(held), units if held > 0 else -units
    first = closing_value(i, f, r, a, out) - math.ceil(entry * share)
    both = closing_value(i, f, r, a, held) - entry
    freed = math.floor(margin * share)
    rest = abs(held - out) * 1e-3 * f[a * at.ASSET_FLOATS + at.PRICE]
    return margin - freed + min(0, freed + first) + both - first >= requirement(i, r, a) * rest


@kernel
def settle(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, units: int, forced: bool) -> int:
    """Take `units` out of a position and pay the holder. Returns what they were worth.

    They are traded, unless the venue takes the position over: at the index when it must be closed, and for its whole
    margin when trading it would cost more than that.
    """
    position, book = at.position_of(i, a, h), at.book_of(i, h)
    held, entry, margin = i[position + at.UNITS], i[position + at.ENTRY], i[position + at.MARGIN]
    whole = units == abs(held)
    if not whole:
        share = units / abs(held)
        entry, margin = math.ceil(entry * share), math.floor(margin * share)
    notional = units * 1e-9 * f[a * at.ASSET_FLOATS + at.PRICE]
    if forced:
        value = math.floor(math.copysign(notional * 1e6, held) - at.SLACK)
    else:
        value = closing_value(i, f, r, a, units if held > 0 else -units)
        if whole and value < entry - margin:
            value = entry - margin
        else:
            push_to(f, r, a, f[a * at.ASSET_FLOATS + at.PUSH] - math.copysign(notional / depth_of(i, r, a), held))
    gain = value - entry
    i[position + at.UNITS] -= units if held > 0 else -units
    i[position + at.MARGIN] -= margin
    i[position + at.ENTRY] -= entry
    i[at.asset_of(i, a) + (at.LONG_UNITS if held > 0 else at.SHORT_UNITS)] -= units
    payout = margin + gain
    if payout < 0 and not whole:
        # A loss beyond the closed part's margin comes out of the rest's margin, which `_rest_stands` has checked.
        i[position + at.MARGIN] += payout
        payout = 0
    missing = 0
    if payout < 0:
        # The insurance fund pays what a position lost beyond its margin; the venue bears what the fund cannot pay.
        fund = at.house_of(i, at.INSURANCE)
        covered = min(-payout, i[fund])
        i[fund] -= covered
        missing = -payout - covered
    payout = max(payout, 0)
    # The venue is the other side of every position: it pays gains and receives losses.
    i[at.house_of(i, at.VENUE)] -= gain + missing
    if forced:
        penalty = min(payout, math.ceil(notional * 1e6 * r[rules.PENALTY]))
        i[at.house_of(i, at.INSURANCE)] += penalty
        payout -= penalty
        gain -= penalty
        i[book + at.LIQUIDATIONS] += 1
    fee = min(math.ceil(notional * 1e6 * r[rules.PERP_FEE]), payout + i[at.cash_of(i, h)])
    i[at.cash_of(i, h)] += payout - fee
    i[at.house_of(i, at.FEES)] += fee
    i[book + at.REALIZED] += max(gain, -margin) if whole else gain
    i[book + at.FEES_PAID] += fee
    i[book + at.TRADES] += 1
    i[book + at.VOLUME] += math.floor(notional * 1e6)
    guard(i, f, r, a, h)
    return value


@kernel
def count_volume(i: IntRow, f: FloatRow, a: int, size: int) -> None:
    """Add `size` micro-dollars to the volume of the running hour."""
    f[i[at.AT_HOURS] + (a * at.HOURS + i[at.HOUR_NOW]) * 2 + 1] += size * 1e-6


# -- margins and funding


@kernel
def guard(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int) -> None:
    """Narrow the safe range of the index (SAFE_ABOVE, SAFE_BELOW) to where this position needs no liquidation.

    A long stands while margin + units * index - entry >= maintenance * units * index; solve for the index. A range that
    is too narrow costs a look at all positions in `liquidate`, one that is too wide would miss a liquidation.
    """
    position, floats = at.position_of(i, a, h), a * at.ASSET_FLOATS
    units, lost = i[position + at.UNITS], i[position + at.ENTRY] - i[position + at.MARGIN]
    if units > 0:
        edge = lost / (units * 1e-3 * (1.0 - r[rules.MAINTENANCE]))
        f[floats + at.SAFE_ABOVE] = max(f[floats + at.SAFE_ABOVE], edge * (1.0 + EDGE))
    elif units < 0:
        edge = lost / (units * 1e-3 * (1.0 + r[rules.MAINTENANCE]))
        f[floats + at.SAFE_BELOW] = min(f[floats + at.SAFE_BELOW], edge * (1.0 - EDGE))


@kernel
def liquidate(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """Close positions whose margin and profit at the index no longer cover the requirement.

    Positions are only looked at when one may be in danger: when the index leaves the safe range, or in the tick
    before an announcement, which asks for more margin. Looking at all of them sets the safe range anew.
    """
    floats, need = a * at.ASSET_FLOATS, requirement(i, r, a)
    index = f[floats + at.PRICE]
    if f[floats + at.SAFE_ABOVE] < index < f[floats + at.SAFE_BELOW] and need == r[rules.MAINTENANCE]:
        return
    f[floats + at.SAFE_ABOVE] = 0.0
    f[floats + at.SAFE_BELOW] = math.inf
    for h in range(i[at.HOLDERS]):
        position = at.position_of(i, a, h)
        if i[position + at.UNITS] == 0:
            continue
        size = i[position + at.UNITS] * 1e-3 * index
        if i[position + at.MARGIN] + size - i[position + at.ENTRY] < need * abs(size):
            close_perp(i, f, r, h, a, abs(i[position + at.UNITS]), True)
        else:
            guard(i, f, r, a, h)


@kernel
def pay_funding(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """The side that pushed the mark away from the index pays the other side.

    Longs pay when the mark is above the index, each from cash, then from margin. The other side shares what was paid,
    and gets at most the same rate; the venue keeps the rest.
    """
    markup = f[a * at.ASSET_FLOATS + at.MARKUP]
    rate = max(-r[rules.FUNDING_CAP], min(r[rules.FUNDING_CAP], r[rules.FUNDING_SHARE] * markup))
    each, paid, owed = 1e-3 * (f[a * at.ASSET_FLOATS + at.PRICE] * (1.0 + markup)) * rate, 0, 0
    for h in range(i[at.HOLDERS]):
        position = at.position_of(i, a, h)
        due = math.ceil(i[position + at.UNITS] * each)
        if due <= 0:
            owed -= due
            continue
        from_cash = min(due, i[at.cash_of(i, h)])
        from_margin = min(due - from_cash, i[position + at.MARGIN])
        i[at.cash_of(i, h)] -= from_cash
        i[position + at.MARGIN] -= from_margin
        i[at.book_of(i, h) + at.FUNDING_PAID] += from_cash + from_margin
        paid += from_cash + from_margin
        if from_margin != 0:
            guard(i, f, r, a, h)
    # Rounding is against the receivers, and none of them gets more than is left.
    if owed > 0:
        share = min(1.0, paid / owed)
        for h in range(i[at.HOLDERS]):
            due = math.ceil(i[at.position_of(i, a, h) + at.UNITS] * each)
            if due < 0:
                received = min(math.floor(-due * share), paid)
                i[at.cash_of(i, h)] += received
                i[at.book_of(i, h) + at.FUNDING_PAID] -= received
                paid -= received
    i[at.house_of(i, at.VENUE)] += paid
