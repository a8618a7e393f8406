"""What can be known about a world beyond its views: the model by those who are told reliabilities, the truth by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.workloads.market.world import calls, names
from bakeoff.workloads.market.world.belief import Belief
from bakeoff.workloads.market.world.chronicle import chronicle
from bakeoff.workloads.market.world.layout import (
    ASSET,
    CHATS,
    JOINED,
    MEMBER,
    RELIABILITY,
    SOURCES,
    WEIGHT,
    Floats,
)
from bakeoff.workloads.market.world.rules import REGIME_LAWS, TIER_LAWS, rules_of
from bakeoff.workloads.market.world.views import Question, Story

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario
    from bakeoff.workloads.market.world.world import World


def public_model(scenario: Scenario) -> dict[str, Any]:
    """Everything about the laws of a scenario that everyone may know, ready for JSON."""
    rules = rules_of(scenario)._asdict()
    tables = ("regime", "story")
    regimes = [scenario.regime] if scenario.regime != "mixed" else list(REGIME_LAWS)
    tier = TIER_LAWS[scenario.tier]
    return {
        **scenario.model_dump(mode="json"),
        "ticks": scenario.ticks,
        **{name: value for name, value in rules.items() if name not in tables},
        "regimes": {name: {k: v for k, v in REGIME_LAWS[name]._asdict().items()} for name in regimes},
        "source_reliabilities": list(tier.sources),
        "chat_reliabilities": list(tier.chats),
    }


class Model:
    """The world's laws and the reliabilities of its sources and chats, but nothing of what is to come."""

    def __init__(self, world: World) -> None:
        self._world = world
        row = world.state.header[0]
        told = [names.source_id(s) for s in range(SOURCES)] + [names.chat_id(c) for c in range(CHATS)]
        self.reliability: Mapping[str, float] = {
            name: int(row[RELIABILITY + at]) / 1000 for at, name in enumerate(told)
        }

    def belief(self, ticker: str, seat: int | None = None) -> Belief:
        """P(theta = -1, 0, +1) from public news; with a seat, also from the tips of the chats it has joined."""
        world = self._world
        asset = world.state.indices[0, world.asset(ticker)]
        weights: Floats = asset[WEIGHT : WEIGHT + 3].copy()
        for chat in range(CHATS):
            if seat is not None and world.state.books[0, seat, MEMBER + chat] == JOINED:
                weights += world.state.tips[0, world.asset(ticker), chat]
        shares = np.exp(weights - weights.max())
        shares /= shares.sum()
        return float(shares[0]), float(shares[1]), float(shares[2])

    def probability(self, market_id: str, seat: int | None = None) -> float:
        """P(YES) of an open market."""
        world = self._world
        m = world.slot(market_id)
        belief = self.belief(world.ticker(int(world.state.markets[0, m, ASSET])), seat)
        return float(calls.market_chance(world.state.ints, world.state.floats, world.r, m, *belief))

    def growth(self, ticker: str, due: int, seat: int | None = None) -> float:
        """Expected growth of an index until tick `due`, which lies in the running story."""
        world = self._world
        a, belief = world.asset(ticker), self.belief(ticker, seat)
        return float(calls.index_growth(world.state.ints, world.state.floats, world.r, a, due, *belief))


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything that will happen to indices, stories and questions, whatever anyone does."""

    prices: dict[str, list[float]]
    """Of each ticker, the index at every tick from 0 to the last."""
    stories: list[Story]
    questions: list[Question]
    reliability: dict[str, float]


def truth_of(scenario: Scenario, key: bytes, reliability: Mapping[str, float], tickers: list[str]) -> Truth:
    chapters = list(chronicle(scenario, key))
    prices = np.concatenate([chapter.prices for chapter in chapters])
    return Truth(
        prices={ticker: prices[:, a].tolist() for a, ticker in enumerate(tickers)},
        stories=[story for chapter in chapters for story in chapter.stories],
        questions=[question for chapter in chapters for question in chapter.questions],
        reliability=dict(reliability),
    )
