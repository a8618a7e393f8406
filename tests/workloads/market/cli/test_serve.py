"""`bakeoff market serve` as a process: tokens, results, signals, exit codes."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import read_trajectory
from bakeoff.workloads.market.cli.serve import read_tokens, serve
from market_games import Client

SERVE = [sys.executable, "-m", "bakeoff", "market", "serve", "--port", "0", "--json", "--linger", "0"]
SMALL = ["--duration", "3", "--markets", "2", "--perpetuals", "1", "--agents", "2"]


@contextmanager
def served(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen([*SERVE, *SMALL, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process, json.loads(process.stdout.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def players(told: dict[str, Any], http: httpx.Client) -> list[Client]:
    return [Client(told["url"], token, http) for token in told["tokens"].values()]


@pytest.mark.slow
def test_a_game_is_played_to_its_end_and_leaves_results(tmp_path: Path) -> None:
    with served("--seats", "2", "--output", str(tmp_path / "out"), "--save-trajectories") as (process, told):
        with httpx.Client(timeout=30) as http:
            one, other = players(told, http)
            assert one.call("a2a.createPost", content="hello")
            for player in (one, other):
                while not player.call("a2a.endTurn")["done"]:
                    pass
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    ended = json.loads(output)
    assert [agent["actions"] for agent in ended["agents"]] == [1, 0]
    result = json.loads((tmp_path / "out" / "player-1" / "result.json").read_text())
    assert (result["done"], result["ticksProcessed"], result["lateTurns"]) == (True, 3, 0)
    assert {agent["agent"] for agent in json.loads((tmp_path / "out" / "comparison.json").read_text())["agents"]} == {
        "player-1", "player-2",
    }  # fmt: skip
    steps = list(read_trajectory(tmp_path / "out" / "player-1" / FILE))
    assert [len(step.action) for step in steps] == [1, 0, 0]
    assert steps[0].observation["tick"] == 0


@pytest.mark.slow
def test_a_signal_ends_it_cleanly_with_what_there_is(tmp_path: Path) -> None:
    with served("--seats", "2", "--shared", "--output", str(tmp_path)) as (process, told):
        with httpx.Client(timeout=30) as http:
            one, _ = players(told, http)
            assert one.call("a2a.endTurn", wait=False)["tick"] == 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert json.loads((tmp_path / "player-1" / "result.json").read_text())["done"] is False


@pytest.mark.slow
def test_tokens_are_kept_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with served("--token-file", str(file)) as (process, told):
        assert told["tokens"] == str(file)
        tokens = json.loads(file.read_text())
        with httpx.Client(timeout=30) as http:
            assert Client(told["url"], tokens["player-1"], http).call("a2a.getBalance")["balance"] == 10_000
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_tokens(file) == tokens


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--save-trajectories"], "needs --output"),
        (["--host", "no.such.host.invalid"], "cannot listen on"),
        (["--duration", "0"], "duration"),
        (["--regime", "sunny"], "regime"),
    ],
)
def test_a_wrong_call_is_told(options: list[str], said: str) -> None:
    result = CliRunner().invoke(serve, options)
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"player-1": "short"}',
        '{"a": "0123456789abcdef", "b": "0123456789abcdef"}',
        '{"player-2": "0123456789abcdef"}',
    ],
)
def test_a_token_file_that_is_none_is_told(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(content)
    result = CliRunner().invoke(serve, ["--token-file", str(file), "--port", "0"])
    assert "tokens.json" in str(result.exception)
