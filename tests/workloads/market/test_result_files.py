"""Directories of `bakeoff market run` are results: two agents' directories compare as if they had run together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main

WORLD = ("--duration", "4", "--markets", "2", "--perpetuals", "1", "--agents", "2", "--demo")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code in (0, 3), result.output
        return result

    return run


@pytest.mark.slow
def test_directories_of_two_agents_compare_as_their_common_directory_does(call: Callable[..., Result]) -> None:
    for agents, place in ((("random",), "a"), (("momentum",), "b"), (("momentum", "random"), "both")):
        named = [word for agent in agents for word in ("--agent", agent)]
        call("market", "run", *WORLD, *named, "--runs", "4", "--output", place)
    apart, together = (json.loads(call("compare", *names, "--json").stdout) for names in (("b", "a"), ("both",)))
    assert [each["comparisons"][0]["effect"] for each in (apart, together)] == [apart["comparisons"][0]["effect"]] * 2
    told = " ".join(call("compare", "b", "a").output.split())
    assert "arm = agent" in told and "momentum draws nothing: its 4 runs are the same" in told
    assert "not about other worlds" in told
