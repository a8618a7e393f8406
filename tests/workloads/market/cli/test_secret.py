"""The secret that draws a world: random unless the caller chose one, kept from everybody but the owner, never unnoticed."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from bakeoff.workloads.market import scenario as scenarios
from bakeoff.workloads.market import snapshot
from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, Scenario, world_key
from bakeoff.workloads.market.world.views import plains
from bakeoff.workloads.market.world.world import World
from workloads.market.games import Client

Bakeoff = Callable[..., Result]
SMALL = ["--duration", "4", "--markets", "2", "--perpetuals", "1", "--agents", "2"]
LONG_SECRET = "a secret of our own contest 2026"


def generated(bakeoff: Bakeoff, *words: str) -> dict[str, Any]:
    result = bakeoff("market", "generate", *SMALL, "--json", *words)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def serve(*words: str) -> tuple[list[str], str]:
    """What a server prints until it is interrupted right after its start, and its standard error."""
    command = [sys.executable, "-m", "bakeoff", "market", "serve", "--port", "0", "--linger", "0", *SMALL, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    lines = []
    while not (lines and ("player-1" in lines[-1] or lines[-1].startswith("{"))):
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
    # Signals are handled once it answers.
    address = re.search(r"http://[^/]+", "".join(lines))
    assert address and httpx.get(f"{address[0]}/health", timeout=30).status_code == 200
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=30)
    return [*lines, *rest.splitlines()], errors


def test_generate_draws_a_secret_that_nobody_can_try_seeds_for(bakeoff: Bakeoff) -> None:
    one, other = generated(bakeoff), generated(bakeoff)
    assert one["id"] != other["id"]
    scenario = Scenario.model_validate(one["config"])
    key = snapshot.load(Path(one["public"])).key
    assert key not in {world_key(scenario, seed, PUBLISHED_SECRET) for seed in (12345, *range(1000))}
    assert one["secret"] != "published"


def test_the_drawn_secret_is_in_the_private_file_which_only_its_owner_reads(bakeoff: Bakeoff) -> None:
    told = generated(bakeoff)
    private = Path(told["private"])
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    kept = json.loads(private.read_text())
    assert len(kept["secret"]) >= 32
    assert kept["key"] == world_key(Scenario.model_validate(told["config"]), 12345, kept["secret"]).hex()
    assert kept["secret"] not in Path(told["public"]).read_text()
    assert kept["secret"] not in json.dumps(told)


def test_the_demo_s_world_is_the_same_for_everybody_and_says_so_on_the_first_line(bakeoff: Bakeoff) -> None:
    assert generated(bakeoff, "--demo")["secret"] == "published"
    again = bakeoff("market", "generate", *SMALL, "--demo")
    assert "published secret" in again.stdout.splitlines()[0]
    assert "already there" in again.stdout
    private = next(Path("benchmarks").glob("*.private.json"))
    assert "secret" not in json.loads(private.read_text())


def test_a_world_of_the_published_secret_warns_on_the_first_line_and_in_its_results(bakeoff: Bakeoff) -> None:
    result = bakeoff("market", "run", *SMALL, "--agent", "momentum", "--output", "out")
    assert "published secret" in result.stdout.splitlines()[0]
    assert json.loads(Path("out/comparison.json").read_text())["secret"] == "published"
    assert json.loads(Path("out/result.json").read_text())["secret"] == "published"
    assert "published secret" in Path("out/index.html").read_text()


def test_a_benchmark_file_of_the_published_secret_warns_too(bakeoff: Bakeoff) -> None:
    public = generated(bakeoff, "--demo")["public"]
    result = bakeoff("market", "run", "--benchmark", public, "--agent", "null", "--output", "out")
    assert "published secret" in result.stdout.splitlines()[0]


def test_an_experiment_with_the_published_secret_says_so_in_one_note(bakeoff: Bakeoff) -> None:
    Path("trial.toml").write_text('workload = "market"\n[params]\nduration_minutes = 2\nagent = "null"\n')
    told = bakeoff("run", "trial.toml").output
    assert "note: this world is drawn with the published secret" in told and "warning" not in told


def test_a_secret_of_the_owner_s_is_recorded_as_a_digest_only(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(LONG_SECRET + "\n")
    run = ("market", "run", *SMALL, "--agent", "momentum", "--secret-file", "secret.txt", "--output", "out")
    result = bakeoff(*run)
    assert "secret" not in result.stdout.splitlines()[0]
    comparison = json.loads(Path("out/comparison.json").read_text())
    assert comparison["secret"].startswith("sha256:")
    everything = b"".join(path.read_bytes() for path in Path("out").rglob("*") if path.is_file())
    assert LONG_SECRET.encode() not in everything
    # Another secret is another world, so it has another id.
    (tmp_path / "secret.txt").write_text("another secret of our contest")
    bakeoff(*run)
    assert json.loads(Path("out/comparison.json").read_text())["benchmarkId"] != comparison["benchmarkId"]


def test_a_secret_that_can_be_guessed_warns(bakeoff: Bakeoff, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_MARKET_SECRET", "hunter2")
    result = bakeoff("market", "run", *SMALL, "--agent", "null", "--output", "out")
    assert "fewer than 16 characters" in result.stdout.splitlines()[0]


def test_a_secret_has_one_way_into_a_world_and_none_back() -> None:
    """Every bit of the secret counts, seeds and secrets do not mix, and the digest is not the key."""
    keys = {world_key(Scenario(), seed, f"{LONG_SECRET}{end}") for seed in range(50) for end in ("", "0", "1", "10")}
    assert len(keys) == 200
    assert world_key(Scenario(), 1, "s2") != world_key(Scenario(), 12, "s")
    assert world_key(Scenario(), 0, LONG_SECRET).hex() not in scenarios.secret_label(LONG_SECRET)
    assert len({scenarios.draw_secret() for _ in range(100)}) == 100


@pytest.mark.slow
def test_a_server_draws_its_world_and_keeps_the_secret_in_a_private_file(tmp_path: Path) -> None:
    lines, errors = serve("--output", str(tmp_path / "out"))
    assert errors == "" and lines[0].startswith("serving 1 seat")
    private = tmp_path / "out" / "private.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    secret = json.loads(private.read_text())["secret"]
    assert len(secret) >= 32
    assert secret not in "".join(lines)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["secret"] == scenarios.secret_label(secret)
    serve("--output", str(tmp_path / "out"))
    assert json.loads(private.read_text())["secret"] == secret, "the same command serves the same world"


@pytest.mark.slow
def test_a_server_with_a_known_secret_says_so_first(tmp_path: Path) -> None:
    lines, _ = serve("--demo", "--output", str(tmp_path))
    assert "published secret" in lines[0]
    assert json.loads((tmp_path / "comparison.json").read_text())["secret"] == "published"
    lines, errors = serve("--demo", "--json")
    assert json.loads(lines[0])["secret"] == "published"
    assert "published secret" in errors


def found_by_trying(*words: str) -> list[int]:
    """Return the seeds with which the published secret draws what a client of a new server sees first."""
    command = [sys.executable, "-m", "bakeoff", "market", "serve", "--port", "0", "--json", *SMALL, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        with httpx.Client(timeout=30) as http:
            seen = Client(told["url"], next(iter(told["tokens"].values())), http).call("a2a.observe")
    finally:
        process.kill()
        process.communicate()
    scenario = Scenario(duration_minutes=4, markets=2, perpetuals=1, agents=2)
    shown = [seen["predictionMarkets"], seen["perpetualMarkets"]]
    worlds = {seed: World.create(scenario, seed, secret=PUBLISHED_SECRET) for seed in (12345, *range(50))}
    return [seed for seed, w in worlds.items() if [plains(w.markets()), plains(w.perpetuals())] == shown]


@pytest.mark.slow
def test_a_client_with_only_its_token_cannot_find_the_world_of_a_default_server() -> None:
    assert found_by_trying("--demo") == [12345], "the published secret is found"
    assert found_by_trying() == [], "an unfinished demo is not gone on with either"


@pytest.mark.slow
def test_a_server_does_not_go_on_with_a_game_of_a_published_world_unless_it_is_told(tmp_path: Path) -> None:
    journal = ["--journal", str(tmp_path / "game")]
    assert found_by_trying("--demo", *journal) == [12345]
    command = [sys.executable, "-m", "bakeoff", "market", "serve", "--port", "0", *SMALL, *journal]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "add --demo" in refused.stderr
