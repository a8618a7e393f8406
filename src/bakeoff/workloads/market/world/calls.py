"""Kernels that Python calls for one world of a batch: an order, an equity, a chance."""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.belief import chance, chance_above, growth_ahead
from bakeoff.workloads.market.world.compiled import entry
from bakeoff.workloads.market.world.feed import publish, whisper
from bakeoff.workloads.market.world.layout import BUY, OPEN_PERP, SELL, Floats, Ints, holding_of
from bakeoff.workloads.market.world.lmsr import proceeds
from bakeoff.workloads.market.world.orders import buy_shares, close_perp, equity_of, open_perp, sell_shares
from bakeoff.workloads.market.world.perps import worth
from bakeoff.workloads.market.world.rules import FEE
from bakeoff.workloads.market.world.streams import draw


@entry
def order(ints: Ints, floats: Floats, r: Floats, kind: int, h: int, target: int, side: int, amount: int, leverage: float) -> int:
    """One order of holder `h`, by kind; `side` is that of the shares, or 0 for LONG and 1 for SHORT."""
    i, f = ints[0], floats[0]
    if kind == BUY:
        return buy_shares(i, f, r, h, target, side, amount)
    if kind == SELL:
        return sell_shares(i, f, r, h, target, side, amount)
    if kind == OPEN_PERP:
        return open_perp(i, f, r, h, target, 1 - 2 * side, amount, leverage)
    return close_perp(i, f, r, h, target, amount, False)


@entry
def equity(ints: Ints, floats: Floats, r: Floats, h: int) -> int:
    return equity_of(ints[0], floats[0], r, h)


@entry
def shares_worth(ints: Ints, floats: Floats, r: Floats, m: int, h: int, side: int) -> int:
    """What selling all shares of one side now would bring."""
    i = ints[0]
    gross = proceeds(i, floats[0], m, side, i[holding_of(i, m, h) + side])
    return max(0, gross - math.ceil(gross * r[FEE]))


@entry
def position_worth(ints: Ints, floats: Floats, r: Floats, a: int, h: int) -> int:
    return worth(ints[0], floats[0], r, a, h)


@entry
def market_chance(ints: Ints, floats: Floats, r: Floats, m: int, down: float, flat: float, up: float) -> float:
    return chance(ints[0], floats[0], r, m, (down, flat, up))


@entry
def index_chance(ints: Ints, floats: Floats, r: Floats, a: int, due: int, strike: float, down: float, flat: float, up: float) -> float:
    return chance_above(ints[0], floats[0], r, a, due, strike, (down, flat, up))


@entry
def index_growth(ints: Ints, floats: Floats, r: Floats, a: int, due: int, down: float, flat: float, up: float) -> float:
    return growth_ahead(ints[0], r, a, due, (down, flat, up))


@entry
def say(ints: Ints, chat: int, kind: int, author: int, asset: int, claim: int, market: int, style: int) -> None:
    """A post for the feed, or a message when `chat` is not negative."""
    if chat < 0:
        publish(ints[0], kind, author, asset, claim, market, style)
    else:
        whisper(ints[0], chat, kind, author, asset, claim, style)


@entry
def word(ints: Ints, tick: int, domain: int, index: int) -> int:
    """The first of the world's four words for (domain, tick, index)."""
    first, _, _, _ = draw(ints[0], tick, domain, index)
    return first
