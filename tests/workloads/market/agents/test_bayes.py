"""The Bayes player: beliefs that agree with the world's own inference, and stakes that no search over sizes improves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.market.agents.base import Brief, Seat
from bakeoff.workloads.market.agents.bayes import (
    KellyBayes,
    Prospect,
    Shares,
    dollars_to_spend,
    notional_to_hold,
    shares_to_sell,
    stages,
)
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import scenario
from bakeoff.workloads.market.world.rules import REGIME_LAWS
from bakeoff.workloads.market.world.world import World
from workloads.market.world.model import Model


class Compared(KellyBayes):
    """Keeps its probabilities beside those of the world's own model."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.model = Model(world)
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
            self.growth.append(
                (self.outlook(perp).mean, self.model.growth(perp.ticker, perp.announcement_tick, seat=0))
            )

    def reset(self, brief: Brief) -> None:
        super().reset(replace(brief, model=self.model.reliability))  # an episode gives it to shipped agents only


def played(regime: str, seed: int) -> tuple[Compared, World]:
    world = World.create(scenario(regime=regime), seed, secret="beliefs")
    agent = Compared(world)
    assert not Episode(world, [agent]).run().players[0].errors
    return agent, world


@pytest.mark.slow
@pytest.mark.parametrize("regime", [*REGIME_LAWS, "mixed"])
def test_probabilities_and_growth_are_those_of_the_world_s_own_inference(regime: str) -> None:
    agent, _ = played(regime, 3)
    assert len(agent.pairs) > 100
    for believed, exact in agent.pairs:
        assert believed == pytest.approx(exact, abs=2e-3)  # the world shows prices in few digits
    for believed, exact in agent.growth:
        assert believed == pytest.approx(exact, abs=2e-4)


@pytest.mark.slow
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


# -- stakes

inner = st.floats(0.05, 0.95)


def growth_after_buying(market: Shares, pot: float, spent: float) -> float:
    b, kept = market.liquidity, spent * (1 - market.fee)
    shares = b * math.log(1 + (math.exp(kept / b) - 1) / market.price)
    won, lost = pot + market.held + shares - spent, pot + market.other - spent
    return market.probability * math.log(won) + (1 - market.probability) * math.log(lost)


def growth_after_selling(market: Shares, pot: float, sold: float) -> float:
    b = market.liquidity
    brought = -(1 - market.fee) * b * math.log(1 - market.price * (1 - math.exp(-sold / b)))
    won, lost = pot + market.held - sold + brought, pot + market.other + brought
    return market.probability * math.log(won) + (1 - market.probability) * math.log(lost)


@given(inner, inner, st.floats(50, 800), st.floats(500, 20_000))
def test_no_other_purchase_grows_the_pot_faster(probability: float, price: float, b: float, pot: float) -> None:
    market = Shares(probability, price, b, 0.005, 0.0, 0.0)
    best = dollars_to_spend(market, pot, pot)
    reached = growth_after_buying(market, pot, best)
    for share in (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 0.97):
        assert reached >= growth_after_buying(market, pot, share * pot) - 1e-9


@given(inner, inner, st.floats(50, 800), st.floats(1, 500))
def test_no_other_sale_grows_the_pot_faster(probability: float, price: float, b: float, held: float) -> None:
    market = Shares(probability, price, b, 0.005, held, 0.0)
    best = shares_to_sell(market, 5_000)
    assert 0 <= best <= held
    reached = growth_after_selling(market, 5_000, best)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        assert reached >= growth_after_selling(market, 5_000, share * held) - 1e-9


@given(inner, st.floats(50, 800))
def test_at_the_fair_price_nothing_is_bought_on_either_side(price: float, b: float) -> None:
    market = Shares(price, price, b, 0.005, 0.0, 0.0)
    assert dollars_to_spend(market, 5_000, 5_000) == 0 == dollars_to_spend(market.turned, 5_000, 5_000)


def test_a_larger_edge_buys_more_and_a_fee_above_the_edge_buys_nothing() -> None:
    def stake(probability: float, fee: float = 0.005) -> float:
        return dollars_to_spend(Shares(probability, 0.5, 400, fee, 0, 0), 5_000, 5_000)

    assert 0 < stake(0.55) < stake(0.7) < stake(0.9)
    assert stake(0.55, fee=0.11) == 0


def prospect(mean: float, premium: float = 0.0, variance: float = 1e-4) -> Prospect:
    return Prospect(mean, variance, premium, 0.0004, 100_000, 0.03, 0.006)


def test_a_perpetual_is_left_alone_when_the_way_in_and_out_costs_more_than_it_promises() -> None:
    assert notional_to_hold(prospect(0.0005), 0, 5_000, 50_000) == 0
    assert notional_to_hold(prospect(0.02), 0, 5_000, 50_000) > 5_000


@given(st.floats(-0.05, 0.05), st.floats(-0.01, 0.01), st.floats(-9_000, 9_000))
def test_long_and_short_are_mirror_images(mean: float, premium: float, held: float) -> None:
    long = notional_to_hold(prospect(mean, premium), held, 5_000, 50_000)
    short = notional_to_hold(prospect(-mean, -premium), -held, 5_000, 50_000)
    assert long == pytest.approx(-short)


@given(st.floats(0.001, 0.05), st.floats(0, 20_000))
def test_no_other_size_is_worth_more(mean: float, held: float) -> None:
    offered = prospect(mean)

    def way(size: float) -> float:
        displaced = size / offered.depth
        return size * (offered.fee + offered.linear * displaced / 2 + offered.root * 2 / 3 * math.sqrt(displaced))

    def worth(size: float) -> float:
        risk = size**2 * offered.variance / (2 * 5_000)
        return mean * size - risk - way(size) - way(abs(size - held))

    best = worth(notional_to_hold(offered, held, 5_000, 50_000))
    assert all(best >= worth(size) - 0.01 for size in (0, held, 500, 2_000, 5_000, 10_000, 20_000, 50_000))


def test_a_position_without_a_reason_is_left_in_several_steps() -> None:
    first = notional_to_hold(prospect(0.0), 20_000, 5_000, 50_000)
    assert 0 < first < 20_000
    assert notional_to_hold(prospect(0.0), first, 5_000, 50_000) < first
