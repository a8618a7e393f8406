"""Prices are calibrated, nobody earns by being long, and the exact belief is what enumeration and simulation say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bakeoff.workloads.market.scenario import REGIMES, Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.advance import MarketBatch
from bakeoff.workloads.market.world.rules import DRIFT, EXPOSURE, JUMP, KINDS, LOG_Z, PRIOR, SIGMA, VARIANCE, rules_of
from bakeoff.workloads.market.world.truth import chronicle
from bakeoff.workloads.market.world.world import World
from workloads.market.world.model import Model, market_chance

WORLDS = 1500


@pytest.fixture(scope="module")
def many() -> MarketBatch:
    return MarketBatch(Scenario(duration_minutes=40, markets=4, perpetuals=3, agents=0), range(WORLDS))


def reliability_gap(chances: np.ndarray, outcomes: np.ndarray) -> float:
    """The largest standard score of outcomes against chances over ten bins."""
    worst = 0.0
    for lower in np.linspace(0.0, 0.9, 10):
        inside = (chances >= lower) & (chances < lower + 0.1)
        if inside.sum() >= 50:
            p = chances[inside]
            worst = max(worst, abs(outcomes[inside].sum() - p.sum()) / math.sqrt((p * (1 - p)).sum()))
    return worst


@pytest.mark.slow
def test_opening_prices_the_public_belief_and_the_index_are_calibrated(many: MarketBatch) -> None:
    opened, won, mid, mid_won, growth = [], [], [], [], []
    first = many.state.indices[:, :, at.PRICE].copy()
    asked: dict[tuple[int, int], float] = {}
    while not many.done:
        many.step()
        tick = many.state.ints[0, at.TICK]
        state = many.state
        ended = state.past[:, :, at.DUE] == tick
        for w, slot in zip(*np.nonzero(ended & (state.past[:, :, at.OUTCOME] >= 0)), strict=True):
            row = state.past[w, slot]
            opened.append(row[at.PAST_OPENED] / at.MICRO)
            won.append(row[at.OUTCOME])
            if (w, row[at.ID]) in asked:
                mid.append(asked[w, row[at.ID]])
                mid_won.append(row[at.OUTCOME])
        if tick in (5, 13, 22):
            for w in range(0, WORLDS, 2):
                world = World.view(many, w)
                model = Model(world)
                for m in range(4):
                    if state.markets[w, m, at.OPEN]:
                        number = int(state.markets[w, m, at.ID])
                        asked[w, number] = model.probability(f"market-{number}")
        if tick in (1, 7, 20, 40):
            growth.append(state.indices[:, :, at.PRICE] / first)
    assert len(opened) > 10_000 and len(mid) > 2000
    assert reliability_gap(np.array(opened), np.array(won)) < 4.0
    assert reliability_gap(np.array(mid), np.array(mid_won)) < 4.0
    for grown in growth:
        each = grown.mean(1)
        assert abs(each.mean() - 1.0) < 4.0 * each.std() / math.sqrt(WORLDS)


def test_the_belief_is_bayes_rule_over_claims_tips_and_returns() -> None:
    """Brute force: every theta's likelihood of everything that was said and every return, multiplied out."""
    scenario = Scenario(duration_minutes=30, markets=3, perpetuals=3)
    rules = rules_of(scenario)
    for seed in range(6):
        world = World.create(scenario, seed)
        model = Model(world)
        likelihood = np.ones((3, 3))
        with_tips = np.ones((3, 3))
        before, before_exact = world.perpetuals(), world.state.indices[0, :, at.PRICE].copy()
        for chat in range(at.CHATS):
            world.state.books[0, 0, at.MEMBER + chat] = at.JOINED
        while not world.done:
            world.advance()
            fresh = [post for post in world.posts(limit=64) if post.tick == world.tick]
            tips = [said for chat in world.chats(0) for said in chat.messages if said.tick == world.tick]
            teller = {said.id: chat.id for chat in world.chats(0) for said in chat.messages}
            for a, perp in enumerate(world.perpetuals()):
                if perp.story != before[a].story:
                    likelihood[a] = with_tips[a] = 1.0
                else:
                    kind, length = KINDS.index(perp.regime), perp.announcement_tick - perp.story_tick
                    now = rules.story[kind, length, world.tick - perp.story_tick]
                    then = rules.story[kind, length, world.tick - 1 - perp.story_tick]
                    moved = math.log(world.state.indices[0, a, at.PRICE] / before_exact[a])
                    mean = rules.regime[kind, DRIFT : DRIFT + 3] * (now[EXPOSURE] - then[EXPOSURE])
                    mean = mean - (now[LOG_Z] - then[LOG_Z]) - now[SIGMA] ** 2 / 2
                    density = np.exp(-((moved - mean) ** 2) / (2 * now[SIGMA] ** 2))
                    likelihood[a] *= density
                    with_tips[a] *= density
                for said in fresh:
                    if said.kind == "source" and said.ticker == perp.ticker:
                        likelihood[a] *= _claim(said.claim, model.reliability[said.author_id])
                        with_tips[a] *= _claim(said.claim, model.reliability[said.author_id])
                for said in tips:
                    if said.ticker == perp.ticker:
                        with_tips[a] *= _claim(said.claim, model.reliability[teller[said.id]])
                prior = rules.regime[KINDS.index(perp.regime), PRIOR : PRIOR + 3]
                for seat, known in ((None, likelihood), (0, with_tips)):
                    exact = prior * known[a] / (prior * known[a]).sum()
                    assert model.belief(perp.ticker, seat) == pytest.approx(exact, abs=1e-9)
            before, before_exact = world.perpetuals(), world.state.indices[0, :, at.PRICE].copy()
        assert world.tick == 30


def _claim(claim: int | None, reliability: float) -> np.ndarray:
    assert claim is not None
    chances = np.full(3, (1 - reliability) / 2)
    chances[claim + 1] = reliability
    return chances


@pytest.mark.parametrize("regime", [name for name in REGIMES if name != "mixed"])
def test_the_chance_of_a_question_is_what_simulation_says(regime: str) -> None:
    scenario = Scenario(regime=regime, markets=1, perpetuals=1)  # type: ignore[arg-type]
    world = World.create(scenario, 3)
    kind, rules = KINDS.index(regime), rules_of(scenario)
    start, due = world.perpetuals()[0].story_tick, world.perpetuals()[0].announcement_tick
    price = float(world.state.indices[0, 0, at.PRICE])
    draws = np.random.default_rng(1)
    prior = rules.regime[kind, PRIOR : PRIOR + 3]
    theta = draws.choice(3, 200_000, p=prior)
    for until in (start + 3, due - 1, due):
        rows = rules.story[kind, due - start, : until - start + 1]
        growth = rules.regime[kind, DRIFT + theta] * rows[-1, EXPOSURE] - rows[-1, LOG_Z] - rows[-1, VARIANCE] / 2
        growth += math.sqrt(rows[-1, VARIANCE]) * draws.normal(size=len(theta))
        growth += rules.regime[kind, JUMP + theta] * (until == due)
        assert np.exp(growth).mean() == pytest.approx(1.0, abs=5 * np.exp(growth).std() / math.sqrt(len(theta)))
        for strike in (0.99, 1.0, 1.012):
            world.state.markets[0, 0, [at.OPEN, at.KIND, at.ASSET, at.DUE]] = 1, at.ABOVE, 0, until
            world.state.prices[0, 0, at.STRIKE] = price * strike
            chance = market_chance(world.state.ints, world.state.floats, world.r, 0, *map(float, prior))
            assert chance == pytest.approx((np.exp(growth) > strike).mean(), abs=0.006)


@pytest.mark.slow
def test_stories_follow_their_prior_and_claims_their_reliability() -> None:
    scenario = Scenario(duration_minutes=20_000, markets=0, perpetuals=4, agents=0, regime="crash")
    world = World.create(scenario, 1)
    stories = [story for chapter in chronicle(scenario, world.key) for story in chapter.stories]
    thetas = np.array([story.theta for story in stories])
    for theta, p in zip((-1, 0, 1), (0.15, 0.25, 0.60), strict=True):
        assert abs((thetas == theta).mean() - p) < 4 * math.sqrt(p * (1 - p) / len(thetas))
    lengths = np.array([story.event_tick - story.start_tick for story in stories])
    assert set(lengths) == set(range(8, 25))
    said: dict[str, list[bool]] = {}
    truth = {
        (story.ticker, tick): story.theta for story in stories for tick in range(story.start_tick + 1, story.event_tick)
    }
    for _ in range(6000):
        world.advance()
        for post in world.posts(limit=8):
            if post.kind == "source" and post.tick == world.tick:
                said.setdefault(post.author_id, []).append(post.claim == truth[post.ticker or "", post.tick])
    for source, right in said.items():
        p = world.reliability()[source]
        assert abs(np.mean(right) - p) < 4 * math.sqrt(p * (1 - p) / len(right))
