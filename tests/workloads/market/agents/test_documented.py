"""The examples in docs/market-agents.md are played as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bakeoff.workloads.market.agents.load import load
from bakeoff.workloads.market.play import Episode, Player
from bakeoff.workloads.market.scenario import Scenario
from market_games import fresh_world

REPOSITORY = Path(__file__).parents[4]
LONGER = Scenario(duration_minutes=15)


def example(name: str) -> str:
    """The code block that begins with the file's name."""
    text = (REPOSITORY / "docs" / "market-agents.md").read_text()
    found = re.search(rf"```python\n(# {name}.*?)```", text, re.DOTALL)
    assert found, f"no example {name}"
    return found[1]


def play(spec: str, base: Path) -> Player:
    world = fresh_world(scenario=LONGER)
    agent = load(spec, base=base)
    return Episode(world, [agent], record=True, response_timeout=30).run().players[0]


@pytest.mark.parametrize("spec", ["my_agent.py:MyAgent", "process:my_agent.py:MyAgent"])
def test_the_class_in_the_documentation_plays(tmp_path: Path, spec: str) -> None:
    code = example("my_agent.py")
    assert len(code.splitlines()) <= 15
    (tmp_path / "my_agent.py").write_text(code)
    player = play(spec, tmp_path)
    assert {turn.conduct for turn in player.turns} == {"acted"}
    assert player.session.world.account(0).trades


def test_the_program_in_the_documentation_plays(tmp_path: Path) -> None:
    code = example("my_program.py")
    (tmp_path / "my_program.py").write_text(code)
    player = play(f"cmd:{sys.executable} my_program.py", tmp_path)
    assert {turn.conduct for turn in player.turns} == {"acted"}
    assert player.session.world.account(0).trades
