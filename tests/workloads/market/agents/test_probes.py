"""The generator cracker is a real attack: it succeeds where the secret is the published one, and only there."""

from __future__ import annotations

import pytest

from bakeoff.workloads.market.agents.baselines import LCGS, GeneratorCracker, State, states
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, scenario
from bakeoff.workloads.market.world.world import World

SCENARIO = scenario(duration_minutes=12)


def cracked(secret: str, seed: int = 7) -> tuple[GeneratorCracker, float]:
    world = World.create(SCENARIO, seed, secret=secret)
    agent = GeneratorCracker(seeds=10)
    player = Episode(world, [agent]).run().players[0]
    assert not player.errors
    return agent, world.account(0).equity - world.account(0).initial


@pytest.mark.parametrize("generator", LCGS)
def test_a_linear_congruential_generator_is_found_from_two_of_its_draws(generator: str) -> None:
    hidden = State(generator, 123456789)
    first, second, third = hidden.draws(3)
    public = [5e5 + 1e6 * first, (second - 0.5) * 0.002]  # as open interest and a funding rate
    found = list(states(public))
    assert any(state.generator == generator and abs(next(state.draws(1)) - second) < 1e-6 for state in found)
    assert third not in public


def test_with_the_published_secret_and_a_small_seed_the_world_is_found_and_outcomes_are_known() -> None:
    agent, earned = cracked(PUBLISHED_SECRET)
    assert agent.twin is not None
    assert earned > 300


def test_with_a_secret_of_one_s_own_there_is_nothing_to_find() -> None:
    agent, _ = cracked("something else")
    assert agent.twin is None


def test_no_public_number_of_the_world_is_an_image_of_a_known_generator() -> None:
    world = World.create(SCENARIO, 3, secret="something else")
    views = [*world.markets(), *world.perpetuals()]
    numbers = [value for view in views for name in view.__slots__ if isinstance(value := getattr(view, name), float)]
    ahead = list(states([number for number in numbers if number]))
    following = [round(perp.index_price, 4) for perp in world.perpetuals()]
    for state in ahead:  # a chance hit within 1e-5 is possible; one that foretells prices is not
        assert not any(abs(draw - price % 1) < 1e-9 for draw in state.draws(50) for price in following)
