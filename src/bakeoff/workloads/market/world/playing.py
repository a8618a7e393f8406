"""How seat 0 of each world of a batch acts and what it sees, as numbers. All of it is public or its own."""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import kernel, rarely
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
def play(i: IntRow, f: FloatRow, r: FloatRow, actions: IntRow, mode: int) -> None:
    """Carry out one row of actions: a number for each market, then one for each perpetual. What is refused is skipped."""
    markets = i[MARKETS]
    for m in range(markets):
        if i[market_of(i, m) + OPEN]:
            if mode == DOLLARS:
                bet_on(i, f, r, m, actions[m])
            else:
                turn_market(i, f, r, m, actions[m])
    for a in range(i[PERPS]):
        if mode == DOLLARS:
            trade_perp(i, f, r, a, actions[markets + a])
        else:
            turn_perp(i, f, r, a, actions[markets + a])


@kernel
def bet_on(i: IntRow, f: FloatRow, r: FloatRow, m: int, dollars: int) -> None:
    """Buy YES for positive dollars, NO for negative ones."""
    if dollars != 0:
        buy_shares(i, f, r, 0, m, YES if dollars > 0 else NO, abs(dollars))


@kernel
def turn_market(i: IntRow, f: FloatRow, r: FloatRow, m: int, want: int) -> None:
    net = i[note_of(i, m, 0) + NET]
    have = int(net > 0) - int(net < 0)  # no branch: it would be guessed wrong
    if not rarely(want != have):
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
    have = int(held > 0) - int(held < 0)
    if not rarely(want != have):
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
    if rarely(i[slot + OPEN] == 0):
        for feature in range(8):
            seen[at + feature] = 0.0
        return
    asset = i[slot + ASSET] * ASSET_FLOATS
    event = i[slot + KIND] == EVENT
    index, strike = f[asset + PRICE], f[prices + STRIKE]
    index, strike = (1.0, 1.0) if event else (index, strike)  # an event has no strike; no branch either
    price, odds, left = f[prices + PRICE_YES], f[prices + OFFSET], (i[slot + DUE] - i[TICK]) * (1.0 / LONGEST)
    shares, since, claims = i[note_of(i, m, seat) + NET] * (0.01 / MICRO), f[asset + SINCE] * 100.0, f[asset + SCORE]
    seen[at] = price
    seen[at + 1] = odds
    seen[at + 2] = left
    seen[at + 3] = (index / strike - 1.0) * 100.0
    seen[at + 4] = 1.0 if event else 0.0
    seen[at + 5] = shares
    seen[at + 6] = since
    seen[at + 7] = claims


@kernel
def see_asset(i: IntRow, f: FloatRow, r: FloatRow, seat: int, a: int, seen: FloatRow, at: int) -> None:
    asset, floats = asset_of(i, a), a * ASSET_FLOATS
    moved, since, claims, sentiment = f[floats + RETURN], f[floats + SINCE], f[floats + SCORE], f[floats + SENTIMENT]
    left, last = i[asset + DUE_TICK] - i[TICK], i[asset + LAST]
    markup, position = f[floats + MARKUP], i[position_of(i, a, seat) + UNITS] * 1e-12 * f[floats + PRICE]
    seen[at] = moved * 100.0
    seen[at + 1] = since * 100.0
    seen[at + 2] = claims
    seen[at + 3] = sentiment
    seen[at + 4] = left * (1.0 / LONGEST)
    seen[at + 5] = markup * 1000.0
    seen[at + 6] = position
    seen[at + 7] = 0.0 if last == NO_NEWS else last * 1.0
