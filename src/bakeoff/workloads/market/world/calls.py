"""Kernels that Python calls for one world of a batch: an order, an equity, a chance."""

from __future__ import annotations

import math
from typing import Any

from bakeoff.workloads.market.world.belief import chance, chance_above, growth_ahead
from bakeoff.workloads.market.world.compiled import entry, row
from bakeoff.workloads.market.world.feed import publish, whisper
from bakeoff.workloads.market.world.layout import BUY, OPEN_PERP, SELL, Floats, Ints, Seen, holding_of
from bakeoff.workloads.market.world.lmsr import proceeds
from bakeoff.workloads.market.world.orders import buy_shares, close_perp, equity_of, open_perp, sell_shares
from bakeoff.workloads.market.world.perps import worth
from bakeoff.workloads.market.world.playing import observe
from bakeoff.workloads.market.world.rules import FEE
from bakeoff.workloads.market.world.streams import draw


@entry
def order(
    ints: Ints, floats: Floats, r: Floats, kind: int, h: int, target: int, side: int, amount: int, leverage: float
) -> int:
    """One order of holder `h`, by kind; `side` is that of the shares, or 0 for LONG and 1 for SHORT."""
    i, f, p = row(ints, 0), row(floats, 0), row(r, 0)
    if kind == BUY:
        return buy_shares(i, f, p, h, target, side, amount)
    if kind == SELL:
        return sell_shares(i, f, p, h, target, side, amount)
    if kind == OPEN_PERP:
        return open_perp(i, f, p, h, target, 1 - 2 * side, amount, leverage)
    return close_perp(i, f, p, h, target, amount, False)


@entry
def equity(ints: Ints, floats: Floats, r: Floats, h: int) -> int:
    return equity_of(row(ints, 0), row(floats, 0), row(r, 0), h)


@entry
def look(ints: Ints, floats: Floats, r: Floats, seat: int, seen: Seen, equity: Ints) -> None:
    """What a seat of each world sees and owns."""
    for w in range(ints.shape[0]):
        equity[w] = equity_of(row(ints, w), row(floats, w), row(r, 0), seat)
        observe(row(ints, w), row(floats, w), row(r, 0), seat, row(seen, w), equity[w])


@entry
def shares_worth(ints: Ints, floats: Floats, r: Floats, m: int, h: int, side: int) -> int:
    """What selling all shares of one side now would bring."""
    i = row(ints, 0)
    gross = proceeds(i, row(floats, 0), m, side, i[holding_of(i, m, h) + side])
    net: int = max(0, gross - math.ceil(gross * r[FEE]))
    return net


@entry
def position_worth(ints: Ints, floats: Floats, r: Floats, a: int, h: int) -> int:
    return worth(row(ints, 0), row(floats, 0), row(r, 0), a, h)


@entry
def market_chance(ints: Ints, floats: Floats, r: Floats, m: int, down: float, flat: float, up: float) -> float:
    return chance(row(ints, 0), row(floats, 0), row(r, 0), m, (down, flat, up))


@entry
def index_chance(
    ints: Ints, floats: Floats, r: Floats, a: int, due: int, strike: float, down: float, flat: float, up: float
) -> float:
    return chance_above(row(ints, 0), row(floats, 0), row(r, 0), a, due, strike, (down, flat, up))


@entry
def index_growth(ints: Ints, floats: Floats, r: Floats, a: int, due: int, down: float, flat: float, up: float) -> float:
    return growth_ahead(row(ints, 0), row(r, 0), a, due, (down, flat, up))


@entry
def say(ints: Ints, chat: int, kind: int, author: int, asset: int, claim: int, market: int, style: int) -> None:
    """A post for the feed, or a message when `chat` is not negative."""
    if chat < 0:
        publish(row(ints, 0), kind, author, asset, claim, market, style)
    else:
        whisper(row(ints, 0), chat, kind, author, asset, claim, style)


@entry
def word(ints: Ints, tick: int, domain: int, index: int) -> Any:
    """The first of the world's four words for (domain, tick, index)."""
    first, _, _, _ = draw(row(ints, 0), tick, domain, index)
    return first
