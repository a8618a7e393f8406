"""A world's birth, and its step from one tick to the next. The single world is a batch of one."""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import entry, kernel, row
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    ASSET_INTS,
    ASSETS,
    AT_HOURS,
    AT_PAST,
    CASH,
    CHATS,
    DUE,
    ENTRY,
    HOLDERS,
    HOURS,
    INVITED,
    LAST,
    MARGIN,
    MARKETS,
    MEMBER,
    MICRO,
    NO_NEWS,
    OPEN,
    PAST,
    PAST_KEPT,
    PAST_MADE,
    PERPS,
    PRICE,
    PRICE_YES,
    RELIABILITY,
    REPUTATION,
    SEATS,
    SLOW,
    SOURCES,
    STAKE,
    START,
    STORY,
    STRANGER,
    TICK,
    UNITS,
    Floats,
    Ints,
    asset_of,
    book_of,
    market_of,
    position_of,
    prices_of,
)
from bakeoff.workloads.market.world.orders import close_perp
from bakeoff.workloads.market.world.perps import mark_price, pay_funding, requirement
from bakeoff.workloads.market.world.questions import four_digits, open_market, resolve
from bakeoff.workloads.market.world.rules import (
    CHAT_GATE,
    CHAT_GRID,
    FIRST_PRICES,
    FUNDING_EVERY,
    GRID,
    HOUR,
    SOURCE_GRID,
)
from bakeoff.workloads.market.world.stories import begin_story, drop_tip, step_asset
from bakeoff.workloads.market.world.streams import BIRTH, INVITATION, SOURCE, below, draw, uniform
from bakeoff.workloads.market.world.traders import traders_act

FIRST_REPUTATION = 50 * MICRO
INVITE_EVERY = 4
INVITE_CHANCE = 0.5


@entry
def begin(ints: Ints, floats: Floats, r: Floats) -> None:
    """Bring worlds to tick 0. Their shape and key are in their headers; everything else is zero."""
    for w in range(ints.shape[0]):
        born(row(ints, w), row(floats, w), row(r, 0))


@kernel
def born(i: Ints, f: Floats, r: Floats) -> None:
    for h in range(i[HOLDERS]):
        i[book_of(i, h) + CASH] = STAKE
        i[book_of(i, h) + REPUTATION] = FIRST_REPUTATION
    for source in range(SOURCES + CHATS):
        word, _, _, _ = draw(i, 0, SOURCE, source)
        grid = SOURCE_GRID if source < SOURCES else CHAT_GRID
        i[RELIABILITY + source] = math.floor(r[grid + below(word, GRID)] * 1000.0 + 0.5)
    for a in range(i[ASSETS]):
        word, _, _, _ = draw(i, 0, BIRTH, a)
        price = four_digits(r[FIRST_PRICES + a] * math.exp(0.5 * uniform(word) - 0.25))
        f[a * ASSET_FLOATS + PRICE] = price
        f[i[AT_HOURS] + a * HOURS * 2] = price
        i[asset_of(i, a) + STORY] = -1
        i[asset_of(i, a) + LAST] = NO_NEWS
        begin_story(i, f, r, a)
    for m in range(i[MARKETS]):
        open_market(i, f, r, m)


@entry
def advance(ints: Ints, floats: Floats, r: Floats) -> None:
    """One tick of every world."""
    for w in range(ints.shape[0]):
        step(row(ints, w), row(floats, w), row(r, 0))


@kernel
def step(i: Ints, f: Floats, r: Floats) -> None:
    """Traders act; then the world moves on: stories, news, questions, funding, liquidations, invitations."""
    traders_act(i, f, r)
    i[TICK] += 1
    for a in range(i[ASSETS]):
        step_asset(i, f, r, a)
    drop_tip(i, f, r)
    for m in range(i[MARKETS]):
        slot, at = market_of(i, m), prices_of(i, m)
        if i[slot + OPEN] and i[slot + DUE] == i[TICK]:
            resolve(i, f, m)
        if i[slot + OPEN]:
            f[at + SLOW] += 0.2 * (f[at + PRICE_YES] - f[at + SLOW])
        else:
            open_market(i, f, r, m)
    funding_due = i[TICK] % int(r[FUNDING_EVERY]) == 0
    for a in range(i[PERPS]):
        if funding_due:
            pay_funding(i, f, r, a)
        liquidate(i, f, r, a)
    if i[TICK] % int(r[HOUR]) == 0:
        turn_hour(i, f, r)
    if i[TICK] % INVITE_EVERY == 0:
        invite(i, r)


@kernel
def liquidate(i: Ints, f: Floats, r: Floats, a: int) -> None:
    """Close positions whose margin and profit at the mark no longer cover the requirement."""
    mark, need = mark_price(f, r, a), requirement(i, r, a)
    for h in range(i[HOLDERS]):
        at = position_of(i, a, h)
        if i[at + UNITS] == 0:
            continue
        size = i[at + UNITS] * 1e-3 * mark
        if i[at + MARGIN] + size - i[at + ENTRY] < need * abs(size):
            close_perp(i, f, r, h, a, abs(i[at + UNITS]), True)


@kernel
def turn_hour(i: Ints, f: Floats, r: Floats) -> None:
    hour = (i[TICK] // int(r[HOUR])) % HOURS
    for a in range(i[ASSETS]):
        at = i[AT_HOURS] + (a * HOURS + hour) * 2
        f[at] = f[a * ASSET_FLOATS + PRICE]
        f[at + 1] = 0.0


@kernel
def invite(i: Ints, r: Floats) -> None:
    """Chats invite seats whose reputation is high enough, now and then."""
    for seat in range(i[SEATS]):
        book = book_of(i, seat)
        for chat in range(CHATS):
            if i[book + MEMBER + chat] != STRANGER or i[book + REPUTATION] < r[CHAT_GATE + chat] * MICRO:
                continue
            word, _, _, _ = draw(i, i[TICK], INVITATION, seat * CHATS + chat)
            if uniform(word) < INVITE_CHANCE:
                i[book + MEMBER + chat] = INVITED


@entry
def advance_recording(ints: Ints, floats: Floats, r: Floats, prices: Floats, stories: Ints, past: Ints) -> tuple[int, int]:
    """As many ticks of world 0 as `prices` has rows, written down. Returns how many stories began and questions ended."""
    i, f, p = row(ints, 0), row(floats, 0), row(r, 0)
    begun = ended = 0
    for line in range(prices.shape[0]):
        seen = i[PAST_MADE]
        step(i, f, p)
        for a in range(i[ASSETS]):
            prices[line, a] = f[a * ASSET_FLOATS + PRICE]
            if i[asset_of(i, a) + START] == i[TICK]:
                stories[begun, 0] = a
                for field in range(ASSET_INTS):
                    stories[begun, 1 + field] = i[asset_of(i, a) + field]
                begun += 1
        for number in range(seen, i[PAST_MADE]):
            for field in range(PAST):
                past[ended, field] = i[i[AT_PAST] + (number % PAST_KEPT) * PAST + field]
            ended += 1
    return begun, ended
