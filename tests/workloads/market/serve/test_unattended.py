"""Worlds that nobody plays: the server answers, agents that come back find their seat, and nobody has a result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from bakeoff.workloads.market.cli.serve import serve
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.serve.game import Game
from workloads.market.games import fresh_world, serving

SERVE = [sys.executable, "-m", "bakeoff", "market", "serve", "--port", "0", "--json", "--linger", "0"]
CROWD = ["--shared", "--seats", "64", "--tick-timeout", "0.05", "--join-timeout", "0", "--save-trajectories"]
LONG = Scenario(duration_minutes=200, markets=2, perpetuals=1, agents=2)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def left_alone(game: Game, clock: Time) -> None:
    """Nobody calls until nobody is waited for any more."""
    game.open()
    while not game.unattended:
        clock.now += game.tick_timeout or 0.0
        game.expire(game.world.tick)


def test_a_world_that_all_have_left_waits_for_its_driver_and_is_played_in_slices() -> None:
    clock = Time()
    game = Game(fresh_world(seats=2), tick_timeout=1.0, clock=clock)
    left_alone(game, clock)
    assert game.world.tick == 3
    game.work_off(seconds=0.0)
    assert game.world.tick == 4
    game.work_off(ticks=1)
    assert game.world.tick == 5
    game.work_off(seconds=60.0)
    assert game.world.done and not game.unattended
    game.work_off(seconds=1.0)  # nothing is left to do


def test_any_call_of_an_agent_that_comes_back_stops_the_slices_and_it_is_waited_for_again() -> None:
    clock = Time()
    game = Game(fresh_world(seats=2), tick_timeout=1.0, clock=clock)
    left_alone(game, clock)
    assert game.call(1, "getBalance")["balance"] == 10_000
    assert not game.unattended
    game.work_off(seconds=60.0)
    assert game.world.tick == 3
    game.call(1, "createPost", {"content": "here again"})
    game.call(1, "endTurn")  # the other seat is still away
    assert game.world.tick == 4
    assert [(seat.late, seat.absent) for seat in game.seats] == [(3, 1), (3, 0)]


@pytest.mark.slow
def test_an_agent_that_comes_back_over_http_finds_its_seat_by_its_token() -> None:
    with serving(Game(fresh_world(seats=2, scenario=LONG), tick_timeout=1.0)) as server:
        one, other = server.client(0), server.client(1)
        other.call("a2a.createPost", content="before")
        while server.table.places[1].attendance.absent == 0:
            assert not one.call("a2a.endTurn")["done"]
        other.http = httpx.Client(timeout=30)  # a new connection
        tick = other.call("a2a.observe")["tick"]
        assert other.call("a2a.createPost", content="after", tick=tick)
        assert not server.table.places[1].attendance.gone
        assert server.table.places[1].session.actions_taken == 2
        other.http.close()


def test_absent_seats_are_not_recorded_and_rewards_still_add_up() -> None:
    clock = Time()
    game = Game(fresh_world(), tick_timeout=1.0, clock=clock, record=True)
    market = game.call(0, "getPredictions")["predictions"][0]["id"]
    game.call(0, "buyShares", {"marketId": market, "outcome": "YES", "amount": 500})
    game.call(0, "endTurn")
    left_alone(game, clock)
    game.work_off(seconds=60.0)
    (turn,) = game.seats[0].turns
    account = game.world.account(0)
    assert turn.tick == 0
    assert turn.reward == pytest.approx(account.equity - account.initial)


def test_a_server_that_nobody_called_says_so_and_has_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--duration", "4", "--markets", "2", "--perpetuals", "1", "--agents", "2", "--port", "0", "--linger", "0"]
    words += ["--seats", "2", "--tick-timeout", "0.01", "--join-timeout", "0", "-o", "out"]
    told = CliRunner().invoke(serve, [*words, "--save-trajectories"])
    assert told.exit_code == 0, told.output
    assert "nobody played" in told.output
    assert "player-1  +" not in told.output and "results are in" not in told.output
    comparison = json.loads(Path("out/comparison.json").read_text())
    assert (comparison["agents"], comparison["best"]) == ([], None)
    assert comparison["neverCalled"] == ["player-1", "player-2"]
    assert not list(Path("out").rglob("result.json")) and not list(Path("out").rglob("*.zst"))
    as_json = CliRunner().invoke(serve, [*words, "--json"])
    assert json.loads(as_json.stdout.splitlines()[-1])["agents"] == []


@pytest.mark.slow
def test_a_seat_that_nobody_called_from_is_named_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("tokens.json").write_text(json.dumps({"player-1": "0123456789abcdef", "player-2": "0123456789abcdeg"}))
    words = [*SERVE, "--duration", "4", "--shared", "--seats", "2", "--tick-timeout", "0.1", "--join-timeout", "2"]
    process = subprocess.Popen([*words, "--token-file", "tokens.json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    url = json.loads(process.stdout.readline())["url"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "a2a.getBalance"}
    head = {"authorization": "Bearer 0123456789abcdef"}
    assert httpx.post(url, json=body, headers=head, timeout=30).status_code == 200
    told = json.loads(process.communicate(timeout=60)[0])
    assert ([row["agent"] for row in told["agents"]], told["neverCalled"]) == (["player-1"], ["player-2"])


def healthy(url: str, until: int) -> set[int]:
    """Ask /health until the world has reached a tick. Returns the ticks that the answers named before."""
    ticks: set[int] = set()
    with httpx.Client(timeout=60) as http:
        while (tick := http.get(url.replace("/api/a2a", "/health")).json()["tick"]) < until:
            ticks.add(tick)
            time.sleep(0.002)
    return ticks


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_health_and_signals_answer_while_2000_ticks_of_64_recorded_seats_are_worked_off(tmp_path: Path) -> None:
    def started(name: str, ticks: int, *more: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        words = [*SERVE, *CROWD, "--duration", str(ticks), "-o", str(tmp_path / name), *more]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        return process, json.loads(process.stdout.readline())

    process, told = started("whole", 2000, "--linger", "60")
    try:
        assert max(healthy(told["url"], 2000)) > 10, "it answers between ticks, not after all of them"
    finally:
        process.kill()
        process.communicate()
    process, told = started("half", 1_000_000)
    try:
        healthy(told["url"], 50)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()
