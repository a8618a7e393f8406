"""How seat 0 of each world of a batch acts and what it sees, as numbers. All of it is public or its own."""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    ASSET,
    ASSET_FLOATS,
    DUE,
    DUE_TICK,
    EVENT,
    KIND,
    LAST,
    MARKETS,
    MARKUP,
    MICRO,
    NET,
    NO,
    NO_NEWS,
    OFFSET,
    OPEN,
    PERPS,
    PRICE,
    PRICE_YES,
    RETURN,
    SCORE,
    SENTIMENT,
    SINCE,
    STAKE,
    STRIKE,
    TICK,
    UNITS,
    YES,
    FloatRow,
    IntRow,
    asset_of,
    cash_of,
    holding_of,
    market_of,
    note_of,
    position_of,
    prices_of,
)
from bakeoff.workloads.market.world.orders import buy_shares, close_perp, open_perp, sell_shares
from bakeoff.workloads.market.world.rules import LONGEST

PASSIVE, TARGETS, DOLLARS = range(3)
"""How actions are read: not at all; as wanted positions -1, 0, 1; as signed dollars to trade now."""

BET = 100 * MICRO
SIZE = 1000 * MICRO
LEVERAGE = 2.0
"""What a target of 1 or -1 means: shares for 100 dollars, or 1000 dollars of a perpetual at leverage 2."""

MARKET_FEATURES = ("price", "opening_odds", "left", "moneyness", "event", "shares", "story_return", "claims")
ASSET_FEATURES = ("return", "story_return", "claims", "sentiment", "left", "premium", "position", "last")
ACCOUNT_FEATURES = ("cash", "equity")


@kernel
def play(i: IntRow, f: FloatRow, r: FloatRow, actions: FloatRow, mode: int) -> None:
    """Carry out one row of actions: a number for each market, then one for each perpetual. What is refused is skipped."""
    markets = i[MARKETS]
    for m in range(markets):
        if i[market_of(i, m) + OPEN]:
            if mode == DOLLARS:
                bet_on(i, f, r, m, math.floor(actions[m] * MICRO + 0.5))
            else:
                turn_market(i, f, r, m, int(actions[m]))
    for a in range(i[PERPS]):
        if mode == DOLLARS:
            trade_perp(i, f, r, a, math.floor(actions[markets + a] * MICRO + 0.5))
        else:
            turn_perp(i, f, r, a, int(actions[markets + a]))


@kernel
def bet_on(i: IntRow, f: FloatRow, r: FloatRow, m: int, dollars: int) -> None:
    """Buy YES for positive dollars, NO for negative ones."""
    if dollars != 0:
        buy_shares(i, f, r, 0, m, YES if dollars > 0 else NO, abs(dollars))


@kernel
def turn_market(i: IntRow, f: FloatRow, r: FloatRow, m: int, want: int) -> None:
    net = i[note_of(i, m, 0) + NET]
    have = 1 if net > 0 else (-1 if net < 0 else 0)
    if want == have:
        return
    held = holding_of(i, m, 0)
    if have != 0:
        side = YES if have > 0 else NO
        sell_shares(i, f, r, 0, m, side, i[held + side])
    bet_on(i, f, r, m, want * BET)


@kernel
def trade_perp(i: IntRow, f: FloatRow, r: FloatRow, a: int, dollars: int) -> None:
    """Trade a signed notional: an opposite position is reduced first, and a rest opens the other side."""
    held = i[position_of(i, a, 0) + UNITS]
    if dollars == 0:
        return
    sign = 1 if dollars > 0 else -1
    size, price = abs(dollars), f[a * ASSET_FLOATS + PRICE]
    if held * sign < 0:
        units = math.floor(size * 1e3 / price)
        close_perp(i, f, r, 0, a, min(units, abs(held)), False)
        if units < abs(held) or i[position_of(i, a, 0) + UNITS] != 0:
            return
        size -= math.floor(abs(held) * 1e-3 * price)
    open_perp(i, f, r, 0, a, sign, size, LEVERAGE)


@kernel
def turn_perp(i: IntRow, f: FloatRow, r: FloatRow, a: int, want: int) -> None:
    held = i[position_of(i, a, 0) + UNITS]
    have = 1 if held > 0 else (-1 if held < 0 else 0)
    if want == have:
        return
    if have != 0:
        close_perp(i, f, r, 0, a, abs(held), False)
    if want != 0:
        open_perp(i, f, r, 0, a, want, SIZE, LEVERAGE)


@kernel
def observe(i: IntRow, f: FloatRow, r: FloatRow, seat: int, seen: FloatRow, equity: int) -> None:
    """Write what a seat sees, in the order of the feature names."""
    at = 0
    for m in range(i[MARKETS]):
        see_market(i, f, seat, m, seen, at)
        at += 8
    for a in range(i[PERPS]):
        see_asset(i, f, r, seat, a, seen, at)
        at += 8
    seen[at] = i[cash_of(i, seat)] * (1.0 / STAKE)
    seen[at + 1] = equity * (1.0 / STAKE)


@kernel
def see_market(i: IntRow, f: FloatRow, seat: int, m: int, seen: FloatRow, at: int) -> None:
    slot, prices = market_of(i, m), prices_of(i, m)
    if i[slot + OPEN] == 0:
        for feature in range(8):
            seen[at + feature] = 0.0
        return
    asset = i[slot + ASSET] * ASSET_FLOATS
    event = i[slot + KIND] == EVENT
    seen[at] = f[prices + PRICE_YES]
    seen[at + 1] = f[prices + OFFSET]
    seen[at + 2] = (i[slot + DUE] - i[TICK]) * (1.0 / LONGEST)
    seen[at + 3] = 0.0 if event else (f[asset + PRICE] / f[prices + STRIKE] - 1.0) * 100.0
    seen[at + 4] = 1.0 if event else 0.0
    seen[at + 5] = i[note_of(i, m, seat) + NET] * (0.01 / MICRO)
    seen[at + 6] = f[asset + SINCE] * 100.0
    seen[at + 7] = f[asset + SCORE]


@kernel
def see_asset(i: IntRow, f: FloatRow, r: FloatRow, seat: int, a: int, seen: FloatRow, at: int) -> None:
    asset, floats = asset_of(i, a), a * ASSET_FLOATS
    seen[at] = f[floats + RETURN] * 100.0
    seen[at + 1] = f[floats + SINCE] * 100.0
    seen[at + 2] = f[floats + SCORE]
    seen[at + 3] = f[floats + SENTIMENT]
    seen[at + 4] = (i[asset + DUE_TICK] - i[TICK]) * (1.0 / LONGEST)
    seen[at + 5] = f[floats + MARKUP] * 1000.0
    seen[at + 6] = i[position_of(i, a, seat) + UNITS] * 1e-12 * f[floats + PRICE]
    seen[at + 7] = 0.0 if i[asset + LAST] == NO_NEWS else i[asset + LAST] * 1.0
