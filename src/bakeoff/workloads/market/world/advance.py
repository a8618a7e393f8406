"""The birth of worlds, and their step from one tick to the next. A single world is a batch of one.

A tick runs in this order: seats act, background traders act, indices and stories move, tips arrive, questions resolve
and open, funding is paid, positions are liquidated, chats invite.

A batch of a thousand worlds does not fit the cache, so `advance` prefetches: four worlds ahead the lines that every
tick touches, two worlds ahead those that this tick will write to, as far as the header tells.

`MarketBatch` is the Python interface of many worlds of one scenario, one seat each: for training and for statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import philox, rules, seats
from bakeoff.workloads.market.world.jit import compiling_once, entry, kernel, prefetch, row
from bakeoff.workloads.market.world.layout import (
    MEMORY,
    MICRO,
    TICK,
    FloatRow,
    Floats,
    IntRow,
    Ints,
    Observations,
    State,
    WordRow,
)
from bakeoff.workloads.market.world.markets import four_digits, renew_markets
from bakeoff.workloads.market.world.numerics import exp
from bakeoff.workloads.market.world.perps import liquidate, pay_funding
from bakeoff.workloads.market.world.philox import LANES, below, draw, uniform
from bakeoff.workloads.market.world.rules import packed_rules, ticker_of
from bakeoff.workloads.market.world.seats import PASSIVE, equity_of_player, observe, play, traders_act
from bakeoff.workloads.market.world.stories import begin_story, claim_weight, drop_tip, step_asset

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario


FIRST_REPUTATION = 50 * at.MICRO
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
    state = at.allocate(len(keys), scenario.markets, scenario.perpetuals, seats, scenario.agents)
    state.ints[:, at.KEY0 : at.KEY3 + 1] = np.frombuffer(b"".join(keys), "<u4").reshape(len(keys), 4)
    with compiling_once():
        advance(state.ints, state.floats, rules.packed_rules(scenario), *NOBODY)
    return state


@entry
def advance(
    ints: Ints,
    floats: Floats,
    r: Floats,
    actions: Floats,
    mode: int,
    observations: Observations,
    equity: Ints,
    memory: Ints,
) -> None:
    """One tick of every world; one that is not born yet comes to tick 0.

    `actions` has what seat 0 of each world does first, read by `mode` (see `seats.play`). `observations` and `equity`
    receive what seat 0 then sees and owns; `memory` is their cache, -1 at the start. Where nobody plays or looks they
    have no rows.
    """
    shocks = np.empty((ints[0, at.ASSETS], LANES))
    words = np.empty((philox.NEWS + ints[0, at.ASSETS], LANES), np.uint64)
    turns = np.empty((philox.TURN_ROWS, min(LANES, ints.shape[0]) * ints[0, at.AGENTS] + 1), np.uint64)
    laws, look = row(r, 0), len(equity) > 0
    for w in range(ints.shape[0]):
        lane = w % LANES
        if lane == 0:
            philox.draw_tick(ints, r, w, min(LANES, ints.shape[0] - w), shocks, words, turns)
        soon, later = min(w + AHEAD, ints.shape[0] - 1), min(w + 2 * AHEAD, ints.shape[0] - 1)
        fetch(row(ints, later), row(floats, later))
        fetch_due(row(ints, soon), mode != PASSIVE)
        i, f = row(ints, w), row(floats, w)
        if i[at.TICK] < 0:
            begin_world(i, f, laws)
        else:
            if mode != PASSIVE:
                play(i, f, laws, row(actions, w), mode)
            step(i, f, laws, row(shocks, 0), row(words, 0), row(turns, 0), turns.shape[1], lane)
        if look:
            equity[w] = equity_of_player(i, f, laws, row(memory, w))
            observe(i, f, 0, row(observations, w), equity[w])


@kernel
def fetch(i: IntRow, f: FloatRow) -> None:
    """Prefetch the lines of a world that every tick touches: one for every 8 words.

    In the integers these are the sections from the header to the positions of seat 0, in the floats everything before
    the tips; `layout.allocate` has put them first.
    """
    for line in range(0, at.position_of(i, 0, min(1, i[at.SEATS])), 8):
        prefetch(i, line)
    for line in range(0, i[at.AT_TIPS], 8):
        prefetch(f, line)


@kernel
def fetch_due(i: IntRow, playing: bool) -> None:
    """Prefetch what the next tick of a world writes to or looks through; with `playing` also what seat 0 may trade."""
    # The places where the next post and the next trade are written.
    prefetch(i, i[at.AT_POSTS] + (i[at.POSTS_MADE] % at.POSTS_KEPT) * at.POST)
    prefetch(i, at.tape_end(i))
    # Markets that resolve: their holdings, and two lines of the ring of past ones.
    if i[at.TICK] + 1 >= i[at.NEXT_DUE]:
        past = i[at.AT_PAST] + (i[at.PAST_MADE] % at.PAST_KEPT) * at.PAST
        prefetch(i, past)
        prefetch(i, past + 8)
        for m in range(i[at.MARKETS]):
            if i[at.market_of(i, m) + at.DUE] == i[at.TICK] + 1:
                for line in range(0, i[at.HOLDERS] * at.HOLDING, 8):
                    prefetch(i, at.holding_of(i, m, 0) + line)
    # Funding looks through all positions.
    if i[at.TICK] + 1 == i[at.NEXT_FUNDING]:
        for line in range(i[at.AT_POSITIONS], i[at.AT_SHARES], 8):
            prefetch(i, line)
    if playing:
        prefetch(i, at.book_of(i, 0))
        prefetch(i, at.book_of(i, 0) + 8)
        for m in range(i[at.MARKETS]):
            prefetch(i, at.holding_of(i, m, 0))


@kernel
def begin_world(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Bring a world to tick 0. Its shape and key are in its header; everything else is zero."""
    i[at.TICK] = 0
    i[at.NEXT_FUNDING] = int(r[rules.FUNDING_EVERY])
    i[at.NEXT_HOUR] = int(r[rules.HOUR])
    for h in range(i[at.HOLDERS]):
        i[at.cash_of(i, h)] = at.STAKE
        i[at.book_of(i, h) + at.REPUTATION] = FIRST_REPUTATION
    # Reliabilities are kept in thousandths, so that they are exact when they are shown.
    for source in range(at.SOURCES + at.CHATS):
        word, _, _, _ = draw(i, 0, philox.SOURCE, source)
        grid = rules.SOURCE_GRID if source < at.SOURCES else rules.CHAT_GRID
        i[at.RELIABILITY + source] = math.floor(r[grid + below(word, rules.GRID)] * 1000.0 + 0.5)
        f[i[at.AT_CLAIM_WEIGHTS] + source] = claim_weight(i[at.RELIABILITY + source] * 1e-3)
    for a in range(i[at.ASSETS]):
        word, _, _, _ = draw(i, 0, philox.BIRTH, a)
        # Within about a quarter of the usual price; four digits hide the word that was drawn.
        price = four_digits(r[rules.FIRST_PRICES + a] * exp(0.5 * uniform(word) - 0.25))
        f[a * at.ASSET_FLOATS + at.PRICE] = price
        f[i[at.AT_HOURS] + a * at.HOURS * 2] = price
        i[at.asset_of(i, a) + at.STORY] = -1
        i[at.asset_of(i, a) + at.LAST] = at.NO_NEWS
        f[a * at.ASSET_FLOATS + at.SAFE_BELOW] = math.inf
        begin_story(i, f, r, a)
    renew_markets(i, f, r)


@kernel
def step(
    i: IntRow, f: FloatRow, r: FloatRow, shocks: FloatRow, words: WordRow, turns: WordRow, width: int, lane: int
) -> None:
    """Background traders act; then the world moves on. `shocks` and `words` have rows of LANES, `turns` of `width`."""
    traders_act(i, f, r, words, turns, width, lane)
    i[at.TICK] += 1
    for a in range(i[at.ASSETS]):
        step_asset(i, f, r, a, shocks[a * LANES + lane], words[(philox.NEWS + a) * LANES + lane])
    drop_tip(i, f, r, words, lane)
    if i[at.TICK] >= i[at.NEXT_DUE]:
        renew_markets(i, f, r)
    for a in range(i[at.PERPS]):
        if i[at.TICK] == i[at.NEXT_FUNDING]:
            pay_funding(i, f, r, a)
        liquidate(i, f, r, a)
    if i[at.TICK] == i[at.NEXT_FUNDING]:
        i[at.NEXT_FUNDING] += int(r[rules.FUNDING_EVERY])
    # The 24 hours of prices and volumes are a ring too.
    if i[at.TICK] == i[at.NEXT_HOUR]:
        i[at.NEXT_HOUR] += int(r[rules.HOUR])
        i[at.HOUR_NOW] = (i[at.HOUR_NOW] + 1) % at.HOURS
        for a in range(i[at.ASSETS]):
            hour = i[at.AT_HOURS] + (a * at.HOURS + i[at.HOUR_NOW]) * 2
            f[hour] = f[a * at.ASSET_FLOATS + at.PRICE]
            f[hour + 1] = 0.0
    if i[at.TICK] & (INVITE_EVERY - 1) == 0:
        invite(i, r)


@kernel
def invite(i: IntRow, r: FloatRow) -> None:
    """Each chat invites, by chance, the seats whose reputation is high enough."""
    for seat in range(i[at.SEATS]):
        book = at.book_of(i, seat)
        for chat in range(at.CHATS):
            if (
                i[book + at.MEMBER + chat] != at.STRANGER
                or i[book + at.REPUTATION] < r[rules.CHAT_GATE + chat] * at.MICRO
            ):
                continue
            word, _, _, _ = draw(i, i[at.TICK], philox.INVITATION, seat * at.CHATS + chat)
            if uniform(word) < INVITE_CHANCE:
                i[book + at.MEMBER + chat] = at.INVITED


# -- many worlds at once


class MarketBatch:
    """n worlds that step together. World i of a batch is, bit for bit, the world that its seed draws alone.

        batch = MarketBatch(Scenario(), range(1024))
        while not batch.done:
            observations, rewards, done = batch.step(np.zeros((1024, batch.actions), np.int8))

    `names` says what each number of an observation is, `actions` how many numbers an action has. `state` has the rows
    of all worlds; `World.view(batch, i)` is the Python interface of one.
    """

    def __init__(self, scenario: Scenario, seeds: Sequence[int] | NDArray[np.int64], secret: str | None = None) -> None:
        """One world for each seed; raises ValueError without any. `secret` defaults to that of `read_secret()`."""
        self.scenario = scenario
        self.seeds = [int(seed) for seed in seeds]
        self.keys = [world_key(scenario, seed, secret) for seed in self.seeds]
        if not self.keys:
            raise ValueError("a batch needs at least one seed")
        self.r = packed_rules(scenario)
        self.names = feature_names(scenario)
        self.actions = scenario.markets + scenario.perpetuals
        self._equity = np.zeros(len(self.keys), np.int64)
        self._memory = np.zeros((len(self.keys), scenario.markets * MEMORY), np.int64)
        self.reset()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def done(self) -> bool:
        """All worlds of a batch end together."""
        return self.state.ints.item(0, TICK) >= self.scenario.ticks

    @property
    def equity(self) -> Floats:
        """[n] in dollars."""
        return self._equity / MICRO

    def reset(self) -> Observations:
        """Bring all worlds to tick 0. Returns what their seats see, [n, D]."""
        self.state = newborn(self.scenario, self.keys, 1)
        self._memory[:] = -1  # no market has this number: nothing is cached
        return self.observe()

    def observe(self) -> Observations:
        """What the seats see now, [n, D], without a step."""
        observations = np.empty((len(self), len(self.names)), np.float32)
        seats.look(self.state.ints, self.state.floats, self.r, 0, observations, self._equity)
        return observations

    def step(
        self, actions: NDArray[np.generic] | None = None, out: Observations | None = None
    ) -> tuple[Observations, Floats, NDArray[np.bool_]]:
        """Act, then one tick. Returns observations [n, D], rewards [n] in dollars, and whether each world is done.

        `actions` is [n, markets + perpetuals]. Whole numbers are wanted positions: -1, 0 or 1 stands for NO or SHORT,
        nothing, YES or LONG. Floats are signed dollars to trade now. Orders that a world refuses are skipped. The
        observations go into a new array, or into `out`.
        """
        if self.done:
            raise ValueError("the worlds have ended; reset() starts them again")
        mode, orders = seats.PASSIVE, np.zeros((len(self), 0))
        if actions is not None:
            if actions.shape != (len(self), self.actions):
                raise ValueError(f"actions have shape {actions.shape}, not {(len(self), self.actions)}")
            mode = seats.TARGETS if np.issubdtype(actions.dtype, np.integer) else seats.DOLLARS
            most = 1 if mode == seats.TARGETS else MICRO
            if actions.size and not (-most <= actions.min() and actions.max() <= most):
                raise ValueError(
                    "a whole-number action is -1, 0 or 1; give floats to trade dollars"
                    if mode == seats.TARGETS
                    else f"an action in dollars is finite and at most {MICRO}"
                )
            orders = np.ascontiguousarray(actions, np.float64)
        before = self._equity.copy()  # `advance` overwrites it
        observations = np.empty((len(self), len(self.names)), np.float32) if out is None else out
        advance(self.state.ints, self.state.floats, self.r, orders, mode, observations, self._equity, self._memory)
        rewards = (self._equity - before) / MICRO
        return observations, rewards, np.full(len(self), self.done)


def feature_names(scenario: Scenario) -> tuple[str, ...]:
    """The name of each number of an observation: "slot0.price", ..., "BTCX.return", ..., "cash", "equity"."""
    markets = [f"slot{m}.{name}" for m in range(scenario.markets) for name in seats.MARKET_FEATURES]
    assets = [f"{ticker_of(a)}.{name}" for a in range(scenario.perpetuals) for name in seats.ASSET_FEATURES]
    return (*markets, *assets, *seats.ACCOUNT_FEATURES)
