"""Questions: every market slot asks one about a running story, and the next one after it has resolved.

A market opens at the chance that public information gives it, so its price is calibrated and never points the wrong way.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.belief import chance, public_belief
from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    ABOVE,
    ASSET,
    ASSET_FLOATS,
    ASSETS,
    AT_PAST,
    BORN,
    COST_NO,
    COST_YES,
    DUE,
    DUE_TICK,
    EVENT,
    HOLDERS,
    HOLDING,
    ID,
    KIND,
    LAST,
    MAKER,
    MARKET_INTS,
    MARKETS,
    MARKETS_MADE,
    MICRO,
    NET,
    NEXT_DUE,
    NO,
    OFFSET,
    OPEN,
    OUTCOME,
    PAST,
    PAST_B,
    PAST_BORN,
    PAST_KEPT,
    PAST_MADE,
    PAST_OPENED,
    PAST_PRICE,
    PAST_STRIKE,
    PRICE,
    PRICE_YES,
    Q_NO,
    Q_YES,
    REALIZED,
    REGIME,
    REPUTATION,
    RISE,
    SEATS,
    SLOW,
    START,
    STATED,
    STRIKE,
    TICK,
    TRADED,
    YES,
    B,
    FloatRow,
    IntRow,
    asset_of,
    book_of,
    cash_of,
    holding_of,
    house_of,
    market_of,
    note_of,
    prices_of,
)
from bakeoff.workloads.market.world.lmsr import reprice
from bakeoff.workloads.market.world.numerics import exp, log
from bakeoff.workloads.market.world.rules import LIQUIDITY, LIQUIDITY_B, VARIANCE, regime_row, story_row
from bakeoff.workloads.market.world.streams import QUESTION, below, draw, uniform

LEAD = 4
"""A question stays open for at least this many ticks."""

WIDEST = 1.05
"""Strikes lie within this many standard deviations, so chances spread over about 0.15 to 0.85."""

SMALLEST_CHANCE = 0.02
NEVER = 1 << 40
REPUTATION_SCALE = 24.0


@kernel
def open_market(i: IntRow, f: FloatRow, r: FloatRow, m: int) -> None:
    """Ask a new question in slot `m`, unless the story that was drawn for it ends too soon; then the next tick tries."""
    about, what, when, where = draw(i, i[TICK], QUESTION, m)
    a = below(about, i[ASSETS])
    left = i[asset_of(i, a) + DUE_TICK] - i[TICK]
    slot, at, kind = market_of(i, m), prices_of(i, m), below(what, 3)
    if left < LEAD:
        i[slot + DUE] = i[TICK] + 1
        return
    due = i[TICK] + (left if kind == EVENT else LEAD + below(when, left - LEAD + 1))
    i[slot + OPEN] = 1
    i[slot + ID] = i[MARKETS_MADE]
    i[MARKETS_MADE] += 1
    i[slot + ASSET] = a
    i[slot + KIND] = kind
    i[slot + DUE] = due
    i[slot + Q_YES] = 0
    i[slot + Q_NO] = 0
    i[slot + TRADED] = 0
    f[at + STRIKE] = 0.0
    if kind == RISE:
        f[at + STRIKE] = f[a * ASSET_FLOATS + PRICE]
    elif kind == ABOVE:
        f[at + STRIKE] = strike_price(i, f, r, a, due, (2.0 * uniform(where) - 1.0) * WIDEST)
    p = chance(i, f, r, m, public_belief(f, a))
    p = max(SMALLEST_CHANCE, min(1.0 - SMALLEST_CHANCE, p))
    f[at + B] = r[LIQUIDITY_B] * r[regime_row(i[asset_of(i, a) + REGIME]) + LIQUIDITY]
    f[at + OFFSET] = log(p / (1.0 - p))
    f[at + SLOW] = p
    f[at + BORN] = i[TICK]
    reprice(i, f, m)
    for seat in range(i[SEATS]):
        note = note_of(i, m, seat)
        i[note + STATED] = -1
        i[note + NET] = 0


@kernel
def strike_price(i: IntRow, f: FloatRow, r: FloatRow, a: int, due: int, deviations: float) -> float:
    """A strike that many standard deviations from the index, in four significant digits."""
    asset = asset_of(i, a)
    kind, start = i[asset + REGIME], i[asset + START]
    length = i[asset + DUE_TICK] - start
    now, then = story_row(kind, length, i[TICK] - start), story_row(kind, length, due - start)
    return four_digits(
        f[a * ASSET_FLOATS + PRICE] * exp(deviations * math.sqrt(r[then + VARIANCE] - r[now + VARIANCE]))
    )


@kernel
def four_digits(price: float) -> float:
    """Rounded to four significant digits."""
    finer, coarser = 1.0, 1.0
    while price * finer < 1000.0:
        finer *= 10.0
    while price >= 10000.0 * coarser:
        coarser *= 10.0
    return math.floor(price * finer / coarser + 0.5) * coarser / finer


@kernel
def turn_over(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Resolve what is due, ask new questions in free slots, and note when to look again."""
    soonest = NEVER
    for m in range(i[MARKETS]):
        slot = market_of(i, m)
        if i[slot + DUE] <= i[TICK]:
            if i[slot + OPEN]:
                resolve(i, f, m)
            open_market(i, f, r, m)
        soonest = min(soonest, i[slot + DUE])
    i[NEXT_DUE] = soonest


@kernel
def resolve(i: IntRow, f: FloatRow, m: int) -> None:
    """Settle market `m`: winning shares pay 1, stated probabilities are scored, and the slot is free.

    It comes after the index has moved. A story that ended with this tick was announced, and the next has begun.
    """
    slot, maker = market_of(i, m), house_of(i, MAKER)
    a = i[slot + ASSET]
    if i[slot + KIND] == EVENT:
        won = i[asset_of(i, a) + LAST] == 1
    else:
        won = f[a * ASSET_FLOATS + PRICE] > f[prices_of(i, m) + STRIKE]
    i[slot + OPEN] = 0
    for h in range(i[HOLDERS]):
        held, book = holding_of(i, m, h), book_of(i, h)
        if i[held + YES] == 0 and i[held + NO] == 0:
            continue
        paid = i[held + (YES if won else NO)]
        i[cash_of(i, h)] += paid
        i[maker] -= paid
        i[book + REALIZED] += paid - i[held + COST_YES] - i[held + COST_NO]
        for field in range(HOLDING):
            i[held + field] = 0
    for seat in range(i[SEATS]):
        stated = i[note_of(i, m, seat) + STATED]
        if stated >= 0:
            score(i, seat, stated * 1e-6 - (1.0 if won else 0.0))
    remember(i, f, m, won)


@kernel
def score(i: IntRow, seat: int, miss: float) -> None:
    """The Brier score of a stated probability moves reputation; a half moves nothing, and honesty is the best policy."""
    at = book_of(i, seat) + REPUTATION
    i[at] = max(0, min(100 * MICRO, i[at] + math.floor(REPUTATION_SCALE * (0.25 - miss * miss) * MICRO)))


@kernel
def remember(i: IntRow, f: FloatRow, m: int, won: bool) -> None:
    """Keep what a resolved market was."""
    past, slot, at = i[AT_PAST] + (i[PAST_MADE] % PAST_KEPT) * PAST, market_of(i, m), prices_of(i, m)
    for field in range(MARKET_INTS):
        i[past + field] = i[slot + field]
    i[past + OUTCOME] = 1 if won else 0
    i[past + PAST_BORN] = int(f[at + BORN])
    i[past + PAST_STRIKE] = math.floor(f[at + STRIKE] * MICRO + 0.5)
    i[past + PAST_OPENED] = math.floor(MICRO / (1.0 + exp(-f[at + OFFSET])) + 0.5)
    i[past + PAST_PRICE] = math.floor(f[at + PRICE_YES] * MICRO + 0.5)
    i[past + PAST_B] = math.floor(f[at + B] * MICRO + 0.5)
    i[PAST_MADE] += 1
