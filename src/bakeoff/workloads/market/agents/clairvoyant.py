"""What somebody would earn who knows the future: a bound, not a rival."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bakeoff.workloads.market.agents.bayes import KellyBayes
from bakeoff.workloads.market.agents.face import Brief

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import MarketView, PerpView

SURE = 0.999
"""Less than 1: a stake that may be lost altogether has no logarithm."""


class Clairvoyant(KellyBayes):
    """Trades as Kelly-Bayes does, with the outcomes and the path of every index in place of beliefs."""

    name = "clairvoyant"
    needs: ClassVar[str] = "truth"

    def reset(self, brief: Brief) -> None:
        super().reset(brief)
        self.outcomes = {question.id: question.outcome for question in brief.truth.questions}
        self.paths = brief.truth.prices
        self.last = brief.ticks

    def chance(self, market: MarketView) -> float | None:
        outcome = self.outcomes.get(market.id)
        return None if outcome is None else SURE if outcome else 1 - SURE

    def prospect(self, perp: PerpView) -> tuple[float, float, float]:
        """The return until the announcement or the end, whichever comes first, as a certainty; and the worst on the way."""
        _, _, worst = super().prospect(perp)
        path = self.paths[perp.ticker]
        until = min(perp.announcement_tick, self.last)
        now = self.beliefs.stories[perp.ticker].tick
        ahead = [price / path[now] - 1 for price in path[now : until + 1]]
        return ahead[-1], 1e-6, max(worst, *map(abs, ahead))
