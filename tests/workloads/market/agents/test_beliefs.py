"""The Bayes player's own inference agrees with the world's kernel, and what it believes comes true as often as it says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bakeoff.workloads.market.agents.bayes import KellyBayes
from bakeoff.workloads.market.agents.beliefs import stages
from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import scenario
from bakeoff.workloads.market.world.rules import REGIME_LAWS
from bakeoff.workloads.market.world.world import World


class Compared(KellyBayes):
    """Keeps its probabilities beside those of the world's own model."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.model = world.model()
        self.pairs: list[tuple[float, float]] = []
        self.growth: list[tuple[float, float]] = []
        self.stated_at: list[tuple[str, float]] = []

    def act(self, seat: Seat) -> None:
        super().act(seat)
        for market in seat.markets():
            believed = self.chance(market)
            assert believed is not None
            self.pairs.append((believed, self.model.probability(market.id, seat=0)))
            self.stated_at.append((market.id, believed))
        for perp in seat.perpetuals():
            self.growth.append((self.prospect(perp)[0], self.model.growth(perp.ticker, perp.announcement_tick, seat=0)))

    def reset(self, brief: Brief) -> None:
        super().reset(replace(brief, model=self.model))  # an episode gives it to shipped agents only


def played(regime: str, seed: int) -> tuple[Compared, World]:
    world = World.create(scenario(regime=regime), seed, secret="beliefs")
    agent = Compared(world)
    assert not Episode(world, [agent]).run().players[0].errors
    return agent, world


@pytest.mark.parametrize("regime", [*REGIME_LAWS, "mixed"])
def test_probabilities_and_growth_are_those_of_the_world_s_own_inference(regime: str) -> None:
    agent, _ = played(regime, 3)
    assert len(agent.pairs) > 100
    for believed, exact in agent.pairs:
        assert believed == pytest.approx(exact, abs=2e-3)  # the world shows prices in few digits
    for believed, exact in agent.growth:
        assert believed == pytest.approx(exact, abs=2e-4)


def test_beliefs_come_true_as_often_as_they_say() -> None:
    said: list[tuple[float, bool]] = []
    for seed in range(12):
        agent, world = played("mixed", seed)
        outcomes = {each.id: each.outcome for each in world.truth().questions}
        said += [(p, bool(outcomes[market])) for market, p in agent.stated_at if outcomes[market] is not None]
    sure = [outcome for p, outcome in said if p > 0.9]
    unsure = [outcome for p, outcome in said if 0.35 < p < 0.65]
    assert len(sure) > 150 and sum(sure) / len(sure) > 0.85
    assert len(unsure) > 150 and 0.3 < sum(unsure) / len(unsure) < 0.7


@pytest.mark.parametrize("regime", list(REGIME_LAWS))
@pytest.mark.parametrize("length", [8, 13, 24])
def test_under_the_prior_no_tick_of_a_story_has_an_expected_return(regime: str, length: int) -> None:
    law = REGIME_LAWS[regime]
    for tick, stage in enumerate(stages(regime, length)):
        jump = law.jump if tick == length else (0.0, 0.0, 0.0)
        growth = [law.drift[theta] * stage.exposure + jump[theta] - stage.log_z for theta in range(3)]
        assert sum(share * math.exp(each) for share, each in zip(law.prior, growth, strict=True)) == pytest.approx(1.0)
