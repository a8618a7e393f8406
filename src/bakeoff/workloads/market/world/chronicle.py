"""The world as it will be: prices, stories and questions do not depend on what anyone does, so they can be told ahead.

Told in chunks of ticks, so that a chronicle of any length needs the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import names
from bakeoff.workloads.market.world.advance import NOBODY, advance
from bakeoff.workloads.market.world.compiled import compiling_once
from bakeoff.workloads.market.world.layout import (
    ASSET,
    BORN,
    DUE,
    DUE_TICK,
    ID,
    KEY0,
    KEY3,
    KIND,
    MICRO,
    OFFSET,
    OPEN,
    OUTCOME,
    PAST,
    PAST_BORN,
    PAST_KEPT,
    PAST_MADE,
    PAST_OPENED,
    PAST_STRIKE,
    PRICE,
    REGIME,
    START,
    STORY,
    STRIKE,
    THETA,
    TICK,
    Floats,
    Ints,
    State,
    allocate,
)
from bakeoff.workloads.market.world.rules import KINDS, packed_rules, ticker_price
from bakeoff.workloads.market.world.views import Question, Story

QUESTION_KINDS = ("above", "event", "rise")
CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Chapter:
    """Some ticks of a chronicle, the first of them `first`."""

    first: int
    prices: Floats
    """[tick, asset]: index prices."""
    stories: tuple[Story, ...]
    """Those that began."""
    questions: tuple[Question, ...]
    """Those that were resolved; in the last chapter also those that never were."""


def newborn(scenario: Scenario, keys: list[bytes], seats: int) -> State:
    """Worlds at tick 0, one for each key."""
    state = allocate(len(keys), scenario.markets, scenario.perpetuals, seats, scenario.agents)
    state.ints[:, KEY0 : KEY3 + 1] = np.frombuffer(b"".join(keys), "<u4").reshape(len(keys), 4)
    with compiling_once():
        advance(state.ints, state.floats, packed_rules(scenario), *NOBODY)
    return state


def chronicle(scenario: Scenario, key: bytes) -> Iterator[Chapter]:
    """All ticks of a world, from 0 to the last."""
    state, r = newborn(scenario, [key], 0), packed_rules(scenario)
    header, indices, assets = state.header[0], state.indices[0, :, PRICE], state.assets[0]
    starts = assets[:, START]
    yield Chapter(0, indices[None].copy(), tuple(_story(a, row) for a, row in enumerate(assets)), ())
    for done in range(0, scenario.ticks, CHUNK):
        prices = np.zeros((min(CHUNK, scenario.ticks - done), scenario.assets))
        stories: list[Story] = []
        questions: list[Question] = []
        for line in prices:
            ended = header.item(PAST_MADE)
            advance(state.ints, state.floats, r, *NOBODY)
            line[:] = indices
            if (starts == header.item(TICK)).any():
                stories += [_story(a, row) for a, row in enumerate(assets) if row[START] == header[TICK]]
            past = range(ended, header.item(PAST_MADE))
            questions += [_question(state.past[0, number % PAST_KEPT]) for number in past]
        if done + len(prices) == scenario.ticks:
            questions += _open(state)
        yield Chapter(done + 1, prices, tuple(stories), tuple(questions))


def _story(a: int, row: Ints) -> Story:
    return Story(
        ticker=ticker_price(a)[0],
        number=int(row[STORY]),
        regime=KINDS[row[REGIME]],
        start_tick=int(row[START]),
        event_tick=int(row[DUE_TICK]),
        theta=int(row[THETA]),
    )


def _question(row: Ints) -> Question:
    return Question(
        id=names.market_id(int(row[ID])),
        ticker=ticker_price(int(row[ASSET]))[0],
        kind=QUESTION_KINDS[row[KIND]],
        strike=int(row[PAST_STRIKE]) / MICRO,
        created_tick=int(row[PAST_BORN]),
        resolve_tick=int(row[DUE]),
        opening_price=int(row[PAST_OPENED]) / MICRO,
        outcome=bool(row[OUTCOME]) if row[OUTCOME] >= 0 else None,
    )


def _open(state: State) -> tuple[Question, ...]:
    """Questions that the world ends too soon for."""
    found = []
    for slot, prices in zip(state.markets[0], state.prices[0], strict=True):
        if slot[OPEN]:
            row = np.zeros(PAST, np.int64)
            row[: len(slot)] = slot
            opened = 1.0 / (1.0 + math.exp(-prices[OFFSET]))
            row[PAST_STRIKE], row[PAST_OPENED] = round(prices[STRIKE] * MICRO), round(opened * MICRO)
            row[OUTCOME], row[PAST_BORN] = -1, prices[BORN]
            found.append(_question(row))
    return tuple(found)
