"""The birth of worlds, and their step from one tick to the next. A single world is a batch of one.

A tick runs in this order: seats act, background traders act, indices and stories move, tips arrive, questions resolve and
open, funding is paid, positions are liquidated, chats invite.

A batch of a thousand worlds does not fit the cache, so `advance` prefetches: four worlds ahead the lines that every tick
touches, two worlds ahead those that this tick will write to, as far as the header tells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bakeoff.workloads.market.world.jit import compiling_once, entry, kernel, prefetch, row
from bakeoff.workloads.market.world.layout import (
    AGENTS,
    ASSET_FLOATS,
    ASSETS,
    AT_CLAIM_WEIGHTS,
    AT_HOURS,
    AT_PAST,
    AT_POSITIONS,
    AT_POSTS,
    AT_SHARES,
    AT_TIPS,
    CHATS,
    DUE,
    HOLDERS,
    HOLDING,
    HOUR_NOW,
    HOURS,
    INVITED,
    KEY0,
    KEY3,
    LAST,
    MARKETS,
    MEMBER,
    MICRO,
    NEXT_DUE,
    NEXT_FUNDING,
    NEXT_HOUR,
    NO_NEWS,
    PAST,
    PAST_KEPT,
    PAST_MADE,
    PERPS,
    POST,
    POSTS_KEPT,
    POSTS_MADE,
    PRICE,
    RELIABILITY,
    REPUTATION,
    SAFE_BELOW,
    SEATS,
    SOURCES,
    STAKE,
    STORY,
    STRANGER,
    TICK,
    FloatRow,
    Floats,
    IntRow,
    Ints,
    Observations,
    State,
    WordRow,
    allocate,
    asset_of,
    book_of,
    cash_of,
    holding_of,
    market_of,
    position_of,
    tape_end,
)
from bakeoff.workloads.market.world.markets import four_digits, renew_markets
from bakeoff.workloads.market.world.numerics import exp
from bakeoff.workloads.market.world.perps import liquidate, pay_funding
from bakeoff.workloads.market.world.philox import (
    BIRTH,
    INVITATION,
    LANES,
    NEWS,
    SOURCE,
    TURN_ROWS,
    below,
    draw,
    draw_tick,
    uniform,
)
from bakeoff.workloads.market.world.rules import (
    CHAT_GATE,
    CHAT_GRID,
    FIRST_PRICES,
    FUNDING_EVERY,
    GRID,
    HOUR,
    SOURCE_GRID,
    packed_rules,
)
from bakeoff.workloads.market.world.seats import PASSIVE, equity_of_player, observe, play
from bakeoff.workloads.market.world.stories import begin_story, claim_weight, drop_tip, step_asset
from bakeoff.workloads.market.world.traders import traders_act

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario

FIRST_REPUTATION = 50 * MICRO
INVITE_EVERY = 4  # ticks; a power of two
INVITE_CHANCE = 0.5
AHEAD = 2  # worlds

NOBODY: tuple[Floats, int, Observations, Ints, Ints] = (
    np.zeros((0, 0)),
    PASSIVE,
    np.zeros((0, 0), np.float32),
    np.zeros(0, np.int64),
    np.zeros((0, 0), np.int64),
)
"""The last arguments of `advance` when nobody plays or looks: `advance(state.ints, state.floats, r, *NOBODY)`."""


def newborn(scenario: Scenario, keys: list[bytes], seats: int) -> State:
    """Worlds at tick 0, one for each key of 16 bytes. The first call on a machine compiles the kernels."""
    state = allocate(len(keys), scenario.markets, scenario.perpetuals, seats, scenario.agents)
    state.ints[:, KEY0 : KEY3 + 1] = np.frombuffer(b"".join(keys), "<u4").reshape(len(keys), 4)
    with compiling_once():
        advance(state.ints, state.floats, packed_rules(scenario), *NOBODY)
    return state


@entry
def advance(
    ints: Ints, floats: Floats, r: Floats, actions: Floats, mode: int, seen: Observations, equity: Ints, memory: Ints
) -> None:
    """One tick of every world; one that is not born yet comes to tick 0.

    `actions` has what seat 0 of each world does first, read by `mode` (see `seats.play`). `seen` and `equity` receive what
    seat 0 then sees and owns; `memory` is their cache, -1 at the start. Where nobody plays or looks they have no rows.
    """
    shocks = np.empty((ints[0, ASSETS], LANES))
    words = np.empty((NEWS + ints[0, ASSETS], LANES), np.uint64)
    turns = np.empty((TURN_ROWS, min(LANES, ints.shape[0]) * ints[0, AGENTS] + 1), np.uint64)
    rules, look = row(r, 0), len(equity) > 0
    for w in range(ints.shape[0]):
        lane = w % LANES
        if lane == 0:
            draw_tick(ints, r, w, min(LANES, ints.shape[0] - w), shocks, words, turns)
        soon, later = min(w + AHEAD, ints.shape[0] - 1), min(w + 2 * AHEAD, ints.shape[0] - 1)
        fetch(row(ints, later), row(floats, later))
        fetch_due(row(ints, soon), mode != PASSIVE)
        i, f = row(ints, w), row(floats, w)
        if i[TICK] < 0:
            begin_world(i, f, rules)
        else:
            if mode != PASSIVE:
                play(i, f, rules, row(actions, w), mode)
            step(i, f, rules, row(shocks, 0), row(words, 0), row(turns, 0), turns.shape[1], lane)
        if look:
            equity[w] = equity_of_player(i, f, rules, row(memory, w))
            observe(i, f, rules, 0, row(seen, w), equity[w])


@kernel
def fetch(i: IntRow, f: FloatRow) -> None:
    """Prefetch the lines of a world that every tick touches."""
    for at in range(0, position_of(i, 0, min(1, i[SEATS])), 8):
        prefetch(i, at)
    for at in range(0, i[AT_TIPS], 8):
        prefetch(f, at)


@kernel
def fetch_due(i: IntRow, playing: bool) -> None:
    """Prefetch what the next tick of a world writes to or looks through; with `playing` also what seat 0 may trade."""
    prefetch(i, i[AT_POSTS] + (i[POSTS_MADE] % POSTS_KEPT) * POST)
    prefetch(i, tape_end(i))
    if i[TICK] + 1 >= i[NEXT_DUE]:
        past = i[AT_PAST] + (i[PAST_MADE] % PAST_KEPT) * PAST
        prefetch(i, past)
        prefetch(i, past + 8)
        for m in range(i[MARKETS]):
            if i[market_of(i, m) + DUE] == i[TICK] + 1:
                for at in range(0, i[HOLDERS] * HOLDING, 8):
                    prefetch(i, holding_of(i, m, 0) + at)
    if i[TICK] + 1 == i[NEXT_FUNDING]:
        for at in range(i[AT_POSITIONS], i[AT_SHARES], 8):
            prefetch(i, at)
    if playing:
        prefetch(i, book_of(i, 0))
        prefetch(i, book_of(i, 0) + 8)
        for m in range(i[MARKETS]):
            prefetch(i, holding_of(i, m, 0))


@kernel
def begin_world(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Bring a world to tick 0. Its shape and key are in its header; everything else is zero."""
    i[TICK] = 0
    i[NEXT_FUNDING] = int(r[FUNDING_EVERY])
    i[NEXT_HOUR] = int(r[HOUR])
    for h in range(i[HOLDERS]):
        i[cash_of(i, h)] = STAKE
        i[book_of(i, h) + REPUTATION] = FIRST_REPUTATION
    for source in range(SOURCES + CHATS):
        word, _, _, _ = draw(i, 0, SOURCE, source)
        grid = SOURCE_GRID if source < SOURCES else CHAT_GRID
        i[RELIABILITY + source] = math.floor(r[grid + below(word, GRID)] * 1000.0 + 0.5)
        f[i[AT_CLAIM_WEIGHTS] + source] = claim_weight(i[RELIABILITY + source] * 1e-3)
    for a in range(i[ASSETS]):
        word, _, _, _ = draw(i, 0, BIRTH, a)
        price = four_digits(r[FIRST_PRICES + a] * exp(0.5 * uniform(word) - 0.25))
        f[a * ASSET_FLOATS + PRICE] = price
        f[i[AT_HOURS] + a * HOURS * 2] = price
        i[asset_of(i, a) + STORY] = -1
        i[asset_of(i, a) + LAST] = NO_NEWS
        f[a * ASSET_FLOATS + SAFE_BELOW] = math.inf
        begin_story(i, f, r, a)
    renew_markets(i, f, r)


@kernel
def step(
    i: IntRow, f: FloatRow, r: FloatRow, shocks: FloatRow, words: WordRow, turns: WordRow, width: int, lane: int
) -> None:
    """Background traders act; then the world moves on. `shocks` and `words` have rows of LANES, `turns` of `width`."""
    traders_act(i, f, r, words, turns, width, lane)
    i[TICK] += 1
    for a in range(i[ASSETS]):
        step_asset(i, f, r, a, shocks[a * LANES + lane], words[(NEWS + a) * LANES + lane])
    drop_tip(i, f, r, words, lane)
    if i[TICK] >= i[NEXT_DUE]:
        renew_markets(i, f, r)
    for a in range(i[PERPS]):
        if i[TICK] == i[NEXT_FUNDING]:
            pay_funding(i, f, r, a)
        liquidate(i, f, r, a)
    if i[TICK] == i[NEXT_FUNDING]:
        i[NEXT_FUNDING] += int(r[FUNDING_EVERY])
    if i[TICK] == i[NEXT_HOUR]:
        begin_hour(i, f, r)
    if i[TICK] & (INVITE_EVERY - 1) == 0:
        invite(i, r)


@kernel
def begin_hour(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Open the next hour of the price and volume rings."""
    i[NEXT_HOUR] += int(r[HOUR])
    i[HOUR_NOW] = (i[HOUR_NOW] + 1) % HOURS
    for a in range(i[ASSETS]):
        at = i[AT_HOURS] + (a * HOURS + i[HOUR_NOW]) * 2
        f[at] = f[a * ASSET_FLOATS + PRICE]
        f[at + 1] = 0.0


@kernel
def invite(i: IntRow, r: FloatRow) -> None:
    """Each chat invites, by chance, the seats whose reputation is high enough."""
    for seat in range(i[SEATS]):
        book = book_of(i, seat)
        for chat in range(CHATS):
            if i[book + MEMBER + chat] != STRANGER or i[book + REPUTATION] < r[CHAT_GATE + chat] * MICRO:
                continue
            word, _, _, _ = draw(i, i[TICK], INVITATION, seat * CHATS + chat)
            if uniform(word) < INVITE_CHANCE:
                i[book + MEMBER + chat] = INVITED
