"""Agents are found by name, an unknown one with a hint, and the examples of docs/market-agents.md play as they are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.market.agents.base import BASELINES, Agent, load, shipped
from bakeoff.workloads.market.agents.process import LinesAgent
from bakeoff.workloads.market.play import Episode, Player
from bakeoff.workloads.market.scenario import Scenario
from workloads.market.games import fresh_world

MINE = """
class Mine:
    def __init__(self, stake=5): self.stake = stake
    def reset(self, brief): ...
    def act(self, seat): ...
class Useless: ...
class Async(Mine):
    async def act(self, seat): ...
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine_of_load.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_shipped_agent_loads_by_its_name(name: str) -> None:
    agent = load(name)
    assert isinstance(agent, Agent)
    assert agent.name == name
    assert shipped(agent)


@pytest.mark.parametrize("spec", ["mine_of_load.py:Mine", "mine_of_load:Mine"])
def test_a_class_of_the_user_s_loads_from_a_file_or_a_module_with_its_options(base: Path, spec: str) -> None:
    agent = load(spec, {"stake": 7}, base=base)
    assert vars(agent)["stake"] == 7
    assert agent.name == spec
    assert not shipped(agent)


def test_a_program_is_started_where_the_experiment_lies(base: Path) -> None:
    agent = load("cmd:python agent.py --fast", base=base)
    assert isinstance(agent, LinesAgent)
    assert agent.argv == ["python", "agent.py", "--fast"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("momentun", "did you mean 'momentum'"),
        ("nothing-like-it", "one of null"),
        ("mine_of_load.py:Other", "has no class 'Other'"),
        ("nowhere.py:Mine", "there is no file"),
        ("no.such.module:Mine", "cannot be imported"),
        ("mine_of_load.py:Useless", "has no method 'reset'"),
        ("mine_of_load.py:Async", "plain function that acts and returns"),
        ("http://localhost:8000/agent", "bakeoff market serve"),
        ("cmd:", "names no program"),
        ("process:mine_of_load.py:Other", "has no class 'Other'"),
    ],
)
def test_an_agent_that_cannot_be_found_is_a_usage_error(base: Path, spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(spec, base=base)


def test_wrong_options_are_a_usage_error(base: Path) -> None:
    with pytest.raises(UsageError, match="does not accept these options"):
        load("mine_of_load.py:Mine", {"steak": 7}, base=base)


# -- the examples in the documentation

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


@pytest.mark.slow
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
