from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.market.scenario import (
    PRESETS,
    PUBLISHED_SECRET,
    SECRET_VARIABLE,
    Scenario,
    read_secret,
    scenario,
    world_key,
)
from bakeoff.workloads.market.world.world import World


def test_ticks_are_whole_intervals() -> None:
    assert scenario().ticks == 30
    assert scenario(duration_minutes=10, tick_interval=7).ticks == 85
    assert scenario(duration_minutes=1, tick_interval=60).ticks == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"markets": 0, "perpetuals": 0}, "nothing to trade"),
        ({"duration_minutes": 1, "tick_interval": 61}, "no tick"),
        ({"duration_minutes": 0}, "duration_minutes"),
        ({"duration_minutes": -5}, "duration_minutes"),
        ({"tick_interval": 0}, "tick_interval"),
        ({"markets": -1}, "markets"),
        ({"markets": 65}, "markets"),
        ({"perpetuals": 33}, "perpetuals"),
        ({"agents": -1}, "agents"),
        ({"agents": 10**9}, "agents"),
        ({"duration_minutes": 10**12, "tick_interval": 1}, "ticks"),
        ({"regime": "boom"}, "regime"),
        ({"tier": "brutal"}, "tier"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_by_name(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        scenario(**given)


@pytest.mark.parametrize(
    "odd",
    [
        {"markets": 0},
        {"perpetuals": 0},
        {"agents": 0},
        {"duration_minutes": 1},
        {"duration_minutes": 4},
        {"perpetuals": 32, "markets": 64},
        {"agents": 256},
        {"markets": 1, "perpetuals": 1, "agents": 1},
    ],
)
def test_odd_sizes_make_worlds_that_run_to_their_end(odd: dict[str, int]) -> None:
    world = World.create(scenario(**odd), 1)
    while not world.done:
        world.advance()
    assert len(world.perpetuals()) == world.scenario.perpetuals
    assert len({perp.ticker for perp in world.assets()}) == world.scenario.assets
    assert len(world.background()) == world.scenario.agents
    assert world.account(0).equity == 10_000.0
    assert len(world.truth().prices[world.assets()[0].ticker]) == world.ticks + 1


def test_presets_are_scenarios_by_name() -> None:
    assert PRESETS["default"] == Scenario()
    assert PRESETS["crash"].regime == "crash" and PRESETS["hard"].tier == "hard"


def test_the_key_depends_on_law_seed_and_secret_but_not_on_the_duration() -> None:
    base = world_key(Scenario(), 1, "s")
    assert base == world_key(Scenario(duration_minutes=500), 1, "s")
    others = [
        world_key(Scenario(), 2, "s"),
        world_key(Scenario(), 1, "t"),
        world_key(Scenario(markets=6), 1, "s"),
        world_key(Scenario(tier="hard"), 1, "s"),
    ]
    assert len({base, *others}) == 5
    with pytest.raises(UsageError, match="seed -1"):
        world_key(Scenario(), -1)


def test_a_secret_comes_from_file_environment_or_is_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    assert read_secret() == PUBLISHED_SECRET
    monkeypatch.setenv(SECRET_VARIABLE, "from the environment")
    assert read_secret() == "from the environment"
    file = tmp_path / "secret"
    file.write_text("  from the file\n")
    assert read_secret(file) == "from the file"
    file.write_text("\n")
    with pytest.raises(UsageError, match="empty"):
        read_secret(file)
    with pytest.raises(UsageError, match="absent"):
        read_secret(tmp_path / "absent")
