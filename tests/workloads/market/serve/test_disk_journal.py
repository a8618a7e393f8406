"""The journal of a server: what was acknowledged outlives `kill -9`, and nothing happens twice."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from bakeoff.errors import StorageError, UsageError
from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.serve.disk_journal import DiskJournal, JournalHeld
from bakeoff.workloads.market.serve.game import Clock, Game, Seats
from bakeoff.workloads.market.serve.results import Results, summaries, summary
from bakeoff.workloads.market.world.world import World
from workloads.market.games import SHORT, Client, assert_same_state, fresh_world, moves

IDENTITY = {"scenario": SHORT.model_dump(mode="json"), "options": {"seats": 2}, "key": "00", "secret": "private"}


class Server:
    """What `market serve` makes of a journal, without a port."""

    def __init__(self, path: Path, *, seats: int = 2, output: Path | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.game = Game(fresh_world(seats), clock=self.clock, record=output is not None, **settings)
        self.table = Seats([self.game])
        self.results = Results(self.table, output) if output else None
        self.journal = DiskJournal(path)
        if self.journal.header is None:
            self.journal.begin(IDENTITY, self.table.tokens)
        self.resumed = self.journal.attach([self.game], self.clock)

    def call(self, seat: int, method: str, params: dict[str, Any] | None = None, key: str | None = None) -> Any:
        """One call, acknowledged: its result, or its error."""
        try:
            return self.game.call(seat, method, params, key)
        except RpcError as error:
            return error.as_json()
        finally:
            self.journal.flush()

    def die(self) -> None:
        if self.results is not None:
            self.results.write()
        self.journal.close()


def play_tick(server: Server) -> None:
    for seat in range(server.game.world.seats):
        for number, (method, params) in enumerate(moves(server.call(seat, "observe"))):
            server.call(seat, method, params, key=f"{server.game.world.tick}-{number}" if number % 2 else None)
    for seat in range(server.game.world.seats):
        server.call(seat, "endTurn")


def books(server: Server) -> list[dict[str, Any]]:
    """Everything that a seat owns, did and may still do."""
    seats = [(seat.session, seat) for seat in server.game.seats]
    rows = [
        {
            **summary(place),
            "used": session.actions_used,
            "ended": session.ended,
            "late": seat.late,
            "think": seat.think_s,
        }
        for place, (session, seat) in zip(server.table.places, seats, strict=True)
    ]
    return copy.deepcopy(rows)


def test_a_journal_cut_anywhere_gives_the_world_as_it_was_acknowledged_then(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    server = Server(path, tick_timeout=60.0)
    server.game.open()
    points = []
    for _ in range(3):
        play_tick(server)
        points.append((path.stat().st_size, server.game.digest(), books(server)))
    server.game.expire(3)
    for _ in range(2):
        server.game.expire(server.game.world.tick)
    server.journal.flush()
    points.append((path.stat().st_size, server.game.digest(), books(server)))
    server.die()
    content = path.read_bytes()
    for number, (size, digest, accounts) in enumerate(points):
        for torn in (b"", content[size : size + 30], b"deadbeef [[0,[\n"):
            cut = tmp_path / f"cut-{number}.journal"
            cut.write_bytes(content[:size] + torn)
            again = Server(cut, tick_timeout=60.0)
            assert again.resumed
            assert (again.game.digest(), books(again)) == (digest, accounts)
            again.die()


def test_a_game_goes_on_from_its_journal_and_ends_like_one_that_never_stopped(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    for _ in range(SHORT.ticks):
        server = Server(path, output=tmp_path / "stopped")
        play_tick(server)
        server.die()
    again = Server(path, output=tmp_path / "stopped")
    whole = Server(tmp_path / "whole.journal", output=tmp_path / "whole")
    while not whole.game.world.done:
        play_tick(whole)
    assert_same_state(again.game.world, whole.game.world)
    for each in (again, whole):
        each.die()
    for file in (tmp_path / "whole").rglob("*"):
        if file.name == "result.json":
            one, other = (json.loads((tmp_path / way / file.parent.name / file.name).read_text()) for way in ("whole", "stopped"))  # fmt: skip
            for clocked in ("avgResponseTime", "maxResponseTime"):
                assert one.pop(clocked) >= 0 and other.pop(clocked) >= 0
            assert one == other
    assert len(list((tmp_path / "stopped").rglob("trajectory.jsonl.zst"))) == 2


def test_a_request_that_is_sent_again_after_a_crash_acts_once_and_gets_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    server = Server(path, seats=1)
    market = server.call(0, "getPredictions")["predictions"][0]["id"]
    order = {"marketId": market, "outcome": "YES", "amount": 50}
    filled = server.call(0, "buyShares", order, key="one")
    refused = server.call(0, "buyShares", {**order, "amount": 1e8}, key="two")
    ended = server.call(0, "endTurn", key="three")
    server.die()
    again = Server(path, seats=1)
    assert again.call(0, "buyShares", order, key="one") == filled
    assert again.call(0, "buyShares", {**order, "amount": 1e8}, key="two") == refused
    assert again.call(0, "endTurn", key="three") == ended
    assert (again.game.world.tick, again.game.seats[0].session.actions_taken) == (1, 2)
    again.die()


def test_values_that_no_journal_can_hold_are_refused_and_stay_refused(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    path = tmp_path / "game.journal"
    server = Server(path)
    for params in ({"tick": deep}, {"tick": 10**400}, {"idempotencyKey": "\ud800"}, {"tick": float("nan")}):
        assert server.call(0, "endTurn", params)["data"]["type"] in ("invalid_params", "internal_error")
        assert server.game.seats[0].session.ended is False
        server.die()
        server = Server(path)
    server.die()


def test_an_answer_waits_for_the_disk_and_so_do_answers_that_rest_on_it(tmp_path: Path) -> None:
    server = Server(tmp_path / "game.journal")
    writing, written = threading.Event(), threading.Event()
    write, journal = server.journal._write, server.journal

    def slow(line: bytes) -> None:
        writing.set()
        written.wait()
        write(line)

    async def play() -> None:
        journal._write = slow  # type: ignore[method-assign]
        server.game.call(0, "createPost", {"content": "hello"})
        acknowledged = asyncio.create_task(journal.reached(journal.events))
        await asyncio.to_thread(writing.wait)
        assert not acknowledged.done() and journal.synced == 0
        for _ in range(10):  # one group, however many calls
            server.game.call(1, "observe")
        later = asyncio.create_task(journal.reached(journal.events))
        written.set()
        await acknowledged
        await later
        assert journal.synced == journal.events == 11

    asyncio.run(play())
    assert len((tmp_path / "game.journal").read_bytes().splitlines()) == 3  # the head and two groups
    server.die()


def test_a_disk_that_is_full_ends_the_server_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    server = Server(tmp_path / "game.journal")
    failed: list[bool] = []
    server.journal.on_failure = lambda: failed.append(True)

    def full(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    async def play() -> None:
        server.journal._write = full  # type: ignore[method-assign]
        server.game.call(0, "createPost", {"content": "hello"})
        with pytest.raises(OSError, match="No space"):
            await server.journal.reached(server.journal.events)

    asyncio.run(play())
    assert failed == [True]
    with pytest.raises(StorageError, match=r"game\.journal: cannot be written: No space left.*same command"):
        server.journal.flush()
    server.die()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scenario": {**IDENTITY["scenario"], "markets": 9}}, "scenario: markets is 3 there and 9 here"),  # type: ignore[dict-item]
        ({"options": {"seats": 5}}, "options: seats is 2 there and 5 here"),
        ({"key": "ff"}, "another seed or secret"),
    ],
)
def test_the_journal_of_another_game_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "game.journal"
    Server(path).die()
    with DiskJournal(path) as journal, pytest.raises(UsageError, match=rf"game\.journal: .*{problem}.*--fresh"):
        journal.check({**IDENTITY, **change})


def test_the_journal_of_another_version_or_of_nothing_is_refused_unless_it_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    path.write_bytes(b'{"journal":1,"version":"0.0.1"}\n')
    with pytest.raises(UsageError, match=r"written by bakeoff 0\.0\.1.*--fresh"):
        DiskJournal(path)
    with DiskJournal(path, fresh=True) as journal:
        assert journal.header is None
    path.write_bytes(b"name,score\n")
    with pytest.raises(UsageError, match=r"not a journal"):
        DiskJournal(path)
    assert path.read_bytes() == b"name,score\n"


def test_a_damaged_disk_is_told_apart_from_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    server = Server(path)
    for _ in range(2):
        play_tick(server)
    server.die()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"call", b"cXll")
    path.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match=rf"damaged at byte {sum(map(len, lines[:3]))}.*--fresh"):
        Server(path)


def test_a_journal_that_gives_another_world_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "game.journal"
    server = Server(path)
    play_tick(server)
    server.die()
    clock = Clock()
    other = Game(World.create(SHORT, 99, seats=2, secret="another"), clock=clock)
    with DiskJournal(path) as journal, pytest.raises(UsageError, match=r"tick 1 is not as it was.*--fresh"):
        journal.attach([other], clock)


def test_a_journal_is_its_owner_s_and_one_server_s(tmp_path: Path) -> None:
    server = Server(tmp_path / "new" / "game.journal")
    assert stat.S_IMODE(server.journal.path.stat().st_mode) == 0o600
    with pytest.raises(JournalHeld, match="another server"):
        DiskJournal(server.journal.path)
    server.die()


# -- the real server, killed

ZYGOTE = """
import os, sys
from bakeoff.cli import main
import bakeoff.workloads.market.serve.server, bakeoff.workloads.market.serve.results, bakeoff.workloads.market.cli.serve
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.world.world import World
Game(World.create(Scenario(), 1, seats=2, secret="x")).call(0, "observe")
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        main(line.split(), prog_name="bakeoff")
    print(child, flush=True)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""
"""Starts the command again and again: a fork of a process that has imported everything takes no seconds to start."""


class Killed:
    """`bakeoff market serve`, which is killed and started again by the same command."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        self.command = " ".join(["market", "serve", "--port", str(port), *options])
        log = open(directory / "log", "wb")  # noqa: SIM115
        self.zygote = subprocess.Popen(
            [sys.executable, "-c", ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        assert self.zygote.stdin and self.zygote.stdout
        self.told: list[str] = []
        assert self.zygote.stdout.readline() == "ready\n"

    def start(self) -> None:
        assert self.zygote.stdin and self.zygote.stdout
        self.zygote.stdin.write(self.command + "\n")
        self.zygote.stdin.flush()
        while not self.told or not self.told[-1].strip().isdigit():
            self.told.append(self.zygote.stdout.readline())
        self.pid = int(self.told.pop())

    def end(self, number: int | None = None) -> int:
        """Wait for the server's end, after a signal if one is given. Returns its status."""
        assert self.zygote.stdout
        if number is not None:
            os.kill(self.pid, number)
        while not self.told or not self.told[-1].startswith("ended"):
            self.told.append(self.zygote.stdout.readline())
            assert self.told[-1]
        return int(self.told.pop().split()[1])


class Stubborn:
    """An agent that plays `moves` with a key for every request, and sends a request again until it is answered."""

    def __init__(self, url: str, token: str) -> None:
        self.client = Client(url, token, httpx.Client(timeout=20))
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def ask(self, key: str, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": key, "method": f"a2a.{method}", "params": params}
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = self.client.post(body, **{"idempotency-key": key})
                if answer.status_code == 200:
                    self.acknowledged += 1
                    return dict(answer.json())
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, "the server does not come back"
            time.sleep(0.01)

    def play(self) -> None:
        try:
            tick = -1
            while not (seen := self.ask("look", "observe")["result"])["done"]:
                assert seen["tick"] > tick, "what was acknowledged is gone"
                tick = seen["tick"]
                for number, (method, params) in enumerate(moves(seen)):
                    self.ask(f"{tick}-{number}", method, **params)
                if self.ask(f"{tick}-end", "endTurn", tick=tick)["result"]["done"]:
                    return  # the server may end now
        except BaseException as error:
            self.failure = error


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_twenty_kills_under_load_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    scenario = Scenario(duration_minutes=30, markets=3, perpetuals=2, agents=4)
    (tmp_path / "secret").write_text("a secret of the kill test, long enough")
    (tmp_path / "tokens").write_text(json.dumps({f"player-{n}": f"token-of-player-number-{n}" for n in (1, 2, 3)}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = (
        "--shared --seats 3 --duration 30 --markets 3 --perpetuals 2 --agents 4 --seed 5 --tick-timeout 600 --json"
    )
    files = f"--secret-file {tmp_path}/secret --token-file {tmp_path}/tokens -o {tmp_path}/out --linger 2"
    server = Killed(tmp_path, port, *options.split(), *files.split())
    agents = [Stubborn(f"http://127.0.0.1:{port}/api/a2a", f"token-of-player-number-{n}") for n in (1, 2, 3)]
    threads = [threading.Thread(target=agent.play, daemon=True) for agent in agents]
    draw = random.Random(7)
    server.start()
    for thread in threads:
        thread.start()
    for _ in range(20):
        before = sum(agent.acknowledged for agent in agents)
        after = before + draw.randrange(1, 20)
        while sum(agent.acknowledged for agent in agents) < after:
            assert all(agent.failure is None for agent in agents), [agent.failure for agent in agents]
            time.sleep(0.001)
        assert server.end(signal.SIGKILL) == signal.SIGKILL
        server.start()
    for thread in threads:
        thread.join(60)
    assert [agent.failure for agent in agents] == [None] * 3
    assert server.end() == 0, (tmp_path / "log").read_text()
    for agent in agents:
        agent.client.http.close()
    assert server.zygote.stdin
    server.zygote.stdin.close()
    server.zygote.wait(10)
    assert server.zygote.stdout
    server.zygote.stdout.close()
    # The same game, in this process and without an interruption.
    here = Seats([Game(World.create(scenario, 5, seats=3, secret="a secret of the kill test, long enough"))])
    while not here.done:
        for place in here.places:
            for method, params in moves(place.call("observe")):
                try:
                    place.call(method, params)
                except RpcError:
                    pass
            place.call("endTurn")
    told = json.loads(server.told[-1])["agents"]
    clocked = {"avgResponseTime", "maxResponseTime"}
    for ours, theirs in zip(summaries(here)["agents"], told, strict=True):
        assert {k: v for k, v in theirs.items() if k not in clocked} == {
            k: v for k, v in ours.items() if k not in clocked
        }
    assert not (tmp_path / "out" / "serve.journal").exists()
