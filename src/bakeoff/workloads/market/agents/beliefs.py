"""What can be known: the exact posterior about every running story, from what a seat sees and the known reliabilities.

The same inference as the world's own kernel (world/belief.py), made from public views and the tips of chats one is in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.world.rules import REGIME_LAWS, Regime

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import MarketView, PerpView

THETAS = range(3)
"""Down, flat and up; theta + 1."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the law of a story has brought about up to one of its ticks."""

    exposure: float
    variance: float
    log_z: float
    """Logarithm of the mean growth over the prior, which is taken out of every path."""


@lru_cache(maxsize=256)
def stages(regime: str, length: int) -> tuple[Stage, ...]:
    """The law of a story of this length, from its start to its announcement."""
    law = REGIME_LAWS[regime]
    thirds = [min(2, 3 * tick // length) for tick in range(length)]
    exposures = [0.0, *accumulate(law.drift_stages[third] for third in thirds)]
    variances = [0.0, *accumulate((law.sigma * law.sigma_stages[third]) ** 2 for third in thirds)]
    rows = []
    for tick, (exposure, variance) in enumerate(zip(exposures, variances, strict=True)):
        growth = [law.drift[theta] * exposure + (law.jump[theta] if tick == length else 0.0) for theta in THETAS]
        mean = sum(share * math.exp(each) for share, each in zip(law.prior, growth, strict=True))
        rows.append(Stage(exposure, variance, math.log(mean)))
    return tuple(rows)


@dataclass(slots=True)
class Story:
    """A running story: its public law, and log-weights of the three directions."""

    number: int
    start: int
    due: int
    law: Regime
    stages: Sequence[Stage]
    weights: list[float]
    tick: int
    price: float

    @property
    def belief(self) -> list[float]:
        """P(down), P(flat), P(up)."""
        top = max(self.weights)
        raised = [math.exp(weight - top) for weight in self.weights]
        total = sum(raised)
        return [each / total for each in raised]

    def hear(self, claim: int, reliability: float) -> None:
        self.weights[claim + 1] += math.log(2 * reliability / (1 - reliability))

    def move(self, tick: int, price: float) -> None:
        """Learn from the index, which has gone to `price` by `tick`."""
        if tick <= self.tick:
            return
        before, now = self.stages[self.tick - self.start], self.stages[tick - self.start]
        variance, exposure = now.variance - before.variance, now.exposure - before.exposure
        moved = math.log(price / self.price) + now.log_z - before.log_z + variance / 2
        for theta in THETAS:
            drift = self.law.drift[theta] * exposure
            self.weights[theta] += drift * (moved - drift / 2) / variance
        self.tick, self.price = tick, price

    def ahead(self, tick: int) -> tuple[list[float], float]:
        """Mean logarithmic growth of the index up to `tick` for each direction (noise left out), and its variance."""
        now, then = self.stages[self.tick - self.start], self.stages[tick - self.start]
        exposure, normal = then.exposure - now.exposure, then.log_z - now.log_z
        jump = self.law.jump if tick == self.due else (0.0, 0.0, 0.0)
        growth = [self.law.drift[theta] * exposure + jump[theta] - normal for theta in THETAS]
        return growth, then.variance - now.variance


class Beliefs:
    """All running stories, kept up to date by `see`."""

    def __init__(self, reliability: Mapping[str, float]) -> None:
        """`reliability` by the id of the source or chat."""
        self._reliability = reliability
        self.stories: dict[str, Story] = {}
        self._heard: set[str] = set()

    def see(self, tick: int, perps: Iterable[PerpView], posts: Iterable[Any], chats: Iterable[Any]) -> None:
        for perp in perps:
            story = self.stories.get(perp.ticker)
            if story is None or story.number != perp.story:
                self.stories[perp.ticker] = self._begun(tick, perp)
            else:
                story.move(tick, perp.index_price)
        for post in posts:
            if post.kind == "source":
                self._hear(post, post.author_id)
        for chat in chats:
            for message in chat.messages:
                if message.author_id == chat.id:
                    self._hear(message, chat.id)

    def _begun(self, tick: int, perp: PerpView) -> Story:
        law = REGIME_LAWS[perp.regime]
        return Story(
            number=perp.story,
            start=perp.story_tick,
            due=perp.announcement_tick,
            law=law,
            stages=stages(perp.regime, perp.announcement_tick - perp.story_tick),
            weights=[math.log(each) for each in law.prior],
            tick=tick,
            price=perp.index_price,
        )

    def _hear(self, said: Any, teller: str) -> None:
        if said.claim is None or said.ticker is None or said.id in self._heard:
            return
        self._heard.add(said.id)
        story = self.stories.get(said.ticker)
        if story is not None and said.tick >= story.start:
            story.hear(said.claim, self._reliability[teller])

    def chance(self, market: MarketView) -> float | None:
        """P(YES); None for a market whose asset cannot be seen."""
        story = self.stories.get(market.ticker)
        if story is None:
            return None
        if market.kind == "event":
            return story.belief[2]
        growth, variance = story.ahead(market.resolve_tick)
        if variance <= 0:
            return float(story.price > market.strike)
        middle = math.log(story.price / market.strike) - variance / 2
        scale = math.sqrt(2 * variance)
        return sum(
            share * 0.5 * math.erfc(-(middle + each) / scale) for share, each in zip(story.belief, growth, strict=True)
        )

    def prospect(self, ticker: str) -> tuple[float, float, float]:
        """Of the index until the announcement: mean return, its variance, and the worst move that is not a surprise."""
        story = self.stories[ticker]
        growth, variance = story.ahead(story.due)
        factors = [math.exp(each) for each in growth]
        mean = sum(share * factor for share, factor in zip(story.belief, factors, strict=True))
        square = sum(share * factor**2 for share, factor in zip(story.belief, factors, strict=True))
        worst = max(abs(factor - 1) for factor in factors) + 4 * math.sqrt(variance)
        return mean - 1, square * math.exp(variance) - mean**2, worst
