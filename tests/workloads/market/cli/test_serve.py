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
from bakeoff.workloads.market.serve.disk_journal import DiskJournal
from workloads.market.games import Client

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


# -- going on after a crash


@pytest.mark.slow
def test_the_same_command_goes_on_after_kill_9_with_its_tokens_and_the_secret_it_drew(tmp_path: Path) -> None:
    with served("--seats", "2", "--shared") as (process, told), httpx.Client(timeout=30) as http:
        one, other = players(told, http)
        other.call("a2a.endTurn", wait=False)
        assert one.call("a2a.endTurn")["tick"] == 1
        market = one.call("a2a.getPredictions")["predictions"][0]
        posted = one.post({"jsonrpc": "2.0", "id": 1, "method": "a2a.createPost", "params": {"content": "hello"}}, **{"idempotency-key": "k"}).json()  # fmt: skip
        seen = other.call("a2a.observe")
        process.kill()
        process.wait(30)
    assert len(list(Path("bakeoff-runs/.market").iterdir())) == 1
    with served("--seats", "2", "--shared") as (process, again), httpx.Client(timeout=30) as http:
        assert again["resumedAtTick"] == 1
        assert (again["tokens"], again["secret"]) == (told["tokens"], told["secret"])
        one, other = players(again, http)
        assert one.call("a2a.getPredictions")["predictions"][0] == market
        assert one.post({"jsonrpc": "2.0", "id": 1, "method": "a2a.createPost", "params": {"content": "hello"}}, **{"idempotency-key": "k"}).json() == posted  # fmt: skip
        assert other.call("a2a.observe") == seen
        for player in (one, other):
            player.call("a2a.endTurn", wait=False)
        other.call("a2a.endTurn", wait=False)
        one.call("a2a.endTurn")
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [row["actions"] for row in json.loads(output)["agents"]] == [1, 0]
    assert list(Path("bakeoff-runs/.market").iterdir()) == []  # the game is over


@pytest.mark.slow
def test_an_unfinished_game_of_another_secret_or_scenario_is_refused_with_its_file_and_the_way_out(tmp_path: Path) -> None:  # fmt: skip
    for name in ("one", "other"):
        Path(name).write_text(f"the secret called {name}, long enough")
    with served("--secret-file", "one", "-o", "out") as (process, told), httpx.Client(timeout=30) as http:
        players(told, http)[0].call("a2a.createPost", content="hello")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    small = [*SMALL, "--port", "0", "-o", "out", "--join-timeout", "0", "--tick-timeout", "0.01", "--linger", "0"]
    for options, said in (
        (["--secret-file", "other"], "another seed or secret"),
        (["--secret-file", "one", "--markets", "4"], "markets is 2 there and 4 here"),
        (["--secret-file", "one"], "--tick-timeout is 30.0 there and 0.01 here"),
    ):
        refused = CliRunner().invoke(serve, [*small, *options])
        assert all(part in str(refused.exception) for part in ("out/serve.journal", said, "--fresh")), refused.exception
    begun = CliRunner().invoke(serve, [*small, "--secret-file", "other", "--fresh"])
    assert begun.exit_code == 0 and "nobody played" in begun.output
    assert not Path("out/serve.journal").exists()


def test_a_journal_that_nobody_played_in_is_in_nobody_s_way(tmp_path: Path) -> None:
    Path("secret").write_text("a secret that is long enough")
    words = [*SMALL, "--port", "0", "--secret-file", "secret", "--join-timeout", "0", "--tick-timeout", "0.01", "--linger", "0"]  # fmt: skip
    with DiskJournal(Path("game.journal")) as journal:
        journal.begin({"scenario": {}, "options": {}, "key": "00", "secret": "private"}, {"player-1": "0" * 16})
    begun = CliRunner().invoke(serve, [*words, "--journal", "game.journal"])
    assert begun.exit_code == 0, begun.output
    assert "going on" not in begun.output
