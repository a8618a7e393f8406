"""What views do not show: the truth, everything that will happen.

Indices, stories and questions do not depend on what anyone does, so a second copy of the world that nobody plays
tells them ahead. `chronicle` does so in chunks of ticks: any length needs the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.advance import NOBODY, advance, newborn
from bakeoff.workloads.market.world.rules import KINDS, packed_rules, ticker_of
from bakeoff.workloads.market.world.views import Question, Story

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario

CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything that will happen to indices, stories and questions, whatever anyone does."""

    prices: dict[str, list[float]]
    """Of each ticker, the index at every tick from 0 to the last."""
    stories: list[Story]
    questions: list[Question]
    reliability: dict[str, float]
    """Of each source and chat, by its id: the probability that a claim is true."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Some ticks of a chronicle."""

    first: int
    """The first of these ticks."""
    prices: at.Floats
    """[tick, asset]: index prices."""
    stories: tuple[Story, ...]
    """Those that began."""
    questions: tuple[Question, ...]
    """Those that resolved; in the last chapter also those that never do."""


def chronicle(scenario: Scenario, key: bytes) -> Iterator[Chapter]:
    """All ticks of a world, from 0 to the last, without any seats."""
    # Views of the rows: they show the new tick after every advance.
    state, r = newborn(scenario, [key], 0), packed_rules(scenario)
    header, indices, assets = state.header[0], state.indices[0, :, at.PRICE], state.assets[0]
    starts = assets[:, at.START]
    yield Chapter(0, indices[None].copy(), tuple(_story(a, row) for a, row in enumerate(assets)), ())
    for done in range(0, scenario.ticks, CHUNK):
        prices = np.zeros((min(CHUNK, scenario.ticks - done), scenario.assets))
        stories: list[Story] = []
        questions: list[Question] = []
        for line in prices:
            resolved = header.item(at.PAST_MADE)
            advance(state.ints, state.floats, r, *NOBODY)
            line[:] = indices
            if (starts == header.item(at.TICK)).any():
                stories += [_story(a, row) for a, row in enumerate(assets) if row[at.START] == header[at.TICK]]
            for number in range(resolved, header.item(at.PAST_MADE)):
                past = state.past[0, number % at.PAST_KEPT].tolist()
                strike, opened = past[at.PAST_STRIKE] / at.MICRO, past[at.PAST_OPENED] / at.MICRO
                questions.append(_question(past, strike, opened, past[at.PAST_BORN], bool(past[at.OUTCOME])))
        if done + len(prices) == scenario.ticks:
            for slot, floats in zip(state.markets[0].tolist(), state.prices[0].tolist(), strict=True):
                if slot[at.OPEN]:
                    # Rounded to micro-units like those that have resolved.
                    strike = round(floats[at.STRIKE] * at.MICRO) / at.MICRO
                    opened = round(at.MICRO * (1.0 / (1.0 + math.exp(-floats[at.OFFSET])))) / at.MICRO
                    questions.append(_question(slot, strike, opened, int(floats[at.BORN]), None))
        yield Chapter(done + 1, prices, tuple(stories), tuple(questions))


def _story(a: int, row: at.Ints) -> Story:
    """The running story of asset `a`, given its row."""
    return Story(
        ticker=ticker_of(a),
        number=int(row[at.STORY]),
        regime=KINDS[row[at.REGIME]],
        start_tick=int(row[at.START]),
        event_tick=int(row[at.DUE_TICK]),
        theta=int(row[at.THETA]),
    )


def _question(slot: list[int], strike: float, opened: float, born: int, outcome: bool | None) -> Question:
    """A question, given the integers of its slot or of its row in the ring of past markets, which begin alike."""
    return Question(
        id=f"market-{slot[at.ID]}",
        ticker=ticker_of(slot[at.ASSET]),
        kind=at.QUESTION_KINDS[slot[at.KIND]],
        strike=strike,
        created_tick=born,
        resolve_tick=slot[at.DUE],
        opening_price=opened,
        outcome=outcome,
    )
