"""Fair looking: seats take turns however they ask, reads have a budget, and nobody without a token is in the way."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.serve import server as http_server
from bakeoff.workloads.market.serve.fair import FairQueue
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.session import Session
from workloads.market.games import Client, Running, fresh_world, request, serving

# -- turns


def test_a_round_has_one_job_of_each_lane() -> None:
    done: list[str] = []

    async def play() -> None:
        queue = FairQueue()
        jobs = [queue.submit("loud", lambda: done.append("loud")) for _ in range(20)]
        await asyncio.sleep(0)
        jobs += [queue.submit(lane, partial(done.append, lane)) for lane in ("quiet", "calm")]
        await asyncio.gather(*jobs)

    asyncio.run(play())
    assert done.count("loud") == 20
    assert max(done.index("quiet"), done.index("calm")) <= 4


def test_a_job_that_fails_or_is_given_up_is_only_its_own_trouble() -> None:
    async def play() -> None:
        queue = FairQueue()
        bad, gone, good = queue.submit("a", lambda: 1 / 0), queue.submit("a", lambda: 1), queue.submit("a", lambda: 2)
        gone.cancel()
        assert await good == 2
        with pytest.raises(ZeroDivisionError):
            await bad

    asyncio.run(play())


def test_a_turn_that_is_held_keeps_the_others_waiting_until_it_is_released_once() -> None:
    async def play() -> None:
        queue = FairQueue()
        release = await queue.hold("a")
        other = queue.submit("b", lambda: "done")
        second = asyncio.create_task(queue.hold("a"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not other.done()
        release()
        assert await other == "done"
        again = await second
        release()  # it is over: this must not end the second turn
        third = queue.submit("b", lambda: "done")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not third.done()
        again()
        assert await third == "done"

    asyncio.run(play())


@contextmanager
def counted(server: Running, monkeypatch: pytest.MonkeyPatch, quiet: int = 1) -> Iterator[list[int]]:
    """While the block runs: how many calls of each other seat were made while a request of seat `quiet` waited.

    A request waits from when its bytes reach the server's process, before anything of it is parsed.
    """
    waits: list[int] = []
    others: list[Session] | None = None
    received, make = http_server.Connection.data_received, Session.call
    token = list(server.table.tokens.values())[quiet].encode()
    session = server.table.places[quiet].session

    def data_received(self: Any, data: bytes) -> None:
        nonlocal others
        if token in data:
            others = []
        received(self, data)

    def call(self: Session, *arguments: Any, **keywords: Any) -> Any:
        nonlocal others
        if others is not None and self is not session:
            others.append(self)
        elif others is not None:
            waits.append(len(others))
            others = None
        return make(self, *arguments, **keywords)

    monkeypatch.setattr(http_server.Connection, "data_received", data_received)
    monkeypatch.setattr(Session, "call", call)
    yield waits


class Raw:
    """A connection that sends each request in one piece."""

    def __init__(self, server: Running, number: int = 0) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.token = list(server.table.tokens.values())[number]

    def send(self, body: Any) -> None:
        content = json.dumps(body).encode()
        head = f"POST /api/a2a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token}\r\ncontent-length: {len(content)}\r\n\r\n"  # fmt: skip
        self.socket.sendall(head.encode() + content)

    def ask(self, body: Any) -> Any:
        self.send(body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        head, _, content = answer.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(content) < length:
            content += self.socket.recv(65536)
        return json.loads(content)


def flood(server: Running, send: Callable[[httpx.Client], object], connections: int = 8) -> Callable[[], None]:
    """Send the same again and again over several connections, until the returned function is called."""
    stop = threading.Event()

    def one() -> None:
        with httpx.Client(timeout=60) as http:
            while not stop.is_set():
                send(http)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in threads:
            thread.join(30)

    return end


@pytest.mark.slow
@pytest.mark.parametrize("way", ["json-rpc", "mcp"])
def test_at_most_two_requests_of_another_seat_are_answered_while_one_waits(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Game(fresh_world(), read_budget=None), Game(fresh_world(), read_budget=None)) as server:
        loud, quiet = server.client(0), Raw(server, 1)
        head = {"authorization": f"Bearer {loud.token}", "accept": "application/json, text/event-stream"}

        def send(http: httpx.Client) -> None:
            if way == "json-rpc":
                http.post(loud.url, json=[request("a2a.observe", number) for number in range(64)], headers=head)
            else:
                body = request("tools/call", 1, name="observe", arguments={})
                http.post(f"{server.url}/mcp", json=body, headers=head)

        with httpx.Client(timeout=60) as http:
            send(http)  # loads the libraries of the other protocols
        with counted(server, monkeypatch) as waits:
            end = flood(server, send)
            try:
                for _ in range(40):
                    assert "result" in quiet.ask(request("a2a.observe"))
            finally:
                end()
        quiet.socket.close()
        assert len(waits) == 40
        assert max(waits) <= 2, waits


@pytest.mark.slow
def test_requests_without_a_token_wait_for_each_other_and_for_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[str] = []
    with serving(Game(fresh_world())) as server:
        submit = FairQueue.submit

        def noted(self: FairQueue, lane: Any, job: Callable[[], Any]) -> Any:
            def run() -> Any:
                answered.append(str(lane))
                return job()

            return submit(self, lane, run)

        monkeypatch.setattr(FairQueue, "submit", noted)
        wrong = {"authorization": "Bearer wrong"}
        end = flood(server, lambda http: http.post(f"{server.url}/api/a2a", content=b"x" * 5000, headers=wrong), 16)
        try:
            for _ in range(30):
                answered.append("asked")
                server.client().call("a2a.getBalance")
                assert server.http.get(f"{server.url}/health").status_code == 200
        finally:
            end()
    runs, count = [], 0
    for lane in answered:
        if lane == "asked":
            count = 0
        elif lane == "anonymous":
            count += 1
        elif lane == "player-1":
            runs.append(count)
    assert answered.count("anonymous") > 30, "the flood was no flood"
    assert sorted(runs)[len(runs) // 2] <= 4, runs  # the client's own way to the server is in it, too


# -- budgets


def test_reads_have_a_budget_for_each_tick_and_the_refusal_says_when_to_come_back() -> None:
    with serving(Game(fresh_world(), read_budget=5, action_budget=2, tick_timeout=60)) as server:
        client = server.client()
        for _ in range(5):
            client.call("a2a.observe")
        for method in ("a2a.observe", "getBalance", "a2a.nonsense"):
            with pytest.raises(RpcError) as refused:
                client.call(method)
            assert refused.value.type == "budget_exhausted"
            assert "all 5 reads of tick 0 are used; end the turn, and read again in tick 1" in refused.value.message
            assert (refused.value.data["readBudget"], refused.value.data["retryTick"]) == (5, 1)
            assert 0 < refused.value.data["retryAfter"] <= 60
        # Actions have a budget of their own, and a turn can always be ended.
        assert client.call("a2a.createPost", content="one") and client.call("a2a.createPost", content="two")
        with pytest.raises(RpcError, match="all 5 reads"):
            client.call("a2a.createPost", content="three")
        assert client.call("a2a.endTurn")["tick"] == 1
        assert client.call("a2a.observe")["tick"] == 1


def test_all_connections_and_batches_of_a_seat_share_one_budget() -> None:
    with serving(Game(fresh_world(), read_budget=100), Game(fresh_world(), read_budget=100)) as server:
        one, other = server.client(0), server.client(1)
        answers: list[dict[str, Any]] = []
        for _ in range(2):
            with httpx.Client() as http:
                mine = Client(one.url, one.token, http)
                answers += mine.post([request("a2a.getBalance", number) for number in range(64)]).json()
        assert sum("result" in answer for answer in answers) == 100
        assert other.call("a2a.getBalance")


def test_a_normal_agent_never_meets_the_budget() -> None:
    game = Game(fresh_world())
    for _ in range(game.world.ticks):
        for _ in range(900):
            game.call(0, "getBalance")
        game.call(0, "endTurn")
    assert game.world.done


def test_a_seat_has_a_limited_number_of_requests_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakeoff.workloads.market.serve.http.MOST_REQUESTS", 3)
    with serving(Game(fresh_world(seats=2))) as server:
        client, other = server.client(0), server.client(1)
        waiting = [Raw(server) for _ in range(3)]
        for one in waiting:
            one.send(request("a2a.endTurn"))
        deadline = time.monotonic() + 20
        while server.table.places[0].session.reads_used < 2:  # the second and the third end of the same turn
            assert time.monotonic() < deadline
            time.sleep(0.001)
        answer = client.post(request("a2a.getBalance"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["data"]["type"] == "budget_exhausted"
        other.call("a2a.endTurn")
        for one in waiting:
            assert one.socket.recv(20).startswith(b"HTTP/1.1 200")
            one.socket.close()
        assert client.call("a2a.observe")["tick"] == 1


# -- connections


def test_connections_without_a_token_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 40)
    with serving(Game(fresh_world())) as server:
        host, port = server.url.removeprefix("http://").split(":")
        client = server.client()
        assert client.call("a2a.getBalance")
        with socket.create_connection((host, int(port))) as kept:
            kept.sendall(b"GET /hea")
            idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(60)]
            assert client.call("a2a.getBalance"), "an agent's connection outlives them"
            assert idle[0].recv(1) == b""  # closed: one of the oldest
            with httpx.Client() as fresh:
                assert Client(client.url, client.token, fresh).call("a2a.getBalance")
        for each in idle:
            each.close()


def test_a_seat_has_a_limited_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_OF_SEAT", 5)
    with serving(Game(fresh_world())) as server:
        opened = []
        for _ in range(8):
            opened.append(Raw(server))
            assert "result" in opened[-1].ask(request("a2a.getBalance"))
        assert [one.socket.recv(1) for one in opened[:3]] == [b"", b"", b""]
        assert "result" in opened[-1].ask(request("a2a.getBalance"))
        for one in opened:
            one.socket.close()


def test_more_files_may_be_open_than_the_usual_limit() -> None:
    with serving(Game(fresh_world())) as server:
        assert server.client().call("a2a.getBalance")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft >= min(hard, 4 * http_server.MOST_CONNECTIONS) or hard == resource.RLIM_INFINITY


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answers_stops_nobody() -> None:
    batch = [request("a2a.observe", number) for number in range(64)]
    with serving(Game(fresh_world(), read_budget=None), Game(fresh_world())) as server:
        slow = [Raw(server) for _ in range(8)]
        for one in slow:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(4):
                one.send(batch)
        for _ in range(20):
            assert server.client(1).call("a2a.observe")
        for one in slow:
            one.socket.close()
        assert server.client(0).call("a2a.getBalance")
