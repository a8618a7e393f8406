"""The HTTP server: many agents at once, each in its own seat; correct statuses; and nothing that brings it down."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.serve import server as http_server
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.session import Session
from workloads.market.games import (
    SHORT,
    Client,
    Running,
    assert_same_state,
    fresh_world,
    moves,
    play_here,
    request,
    serving,
)
from workloads.market.test_rpc import ANY_JSON

TICKS = SHORT.ticks


def separate(count: int, **settings: Any) -> list[Game]:
    return [Game(fresh_world(), **settings) for _ in range(count)]


# -- playing


def test_a_game_over_http_is_the_game_in_process() -> None:
    world = fresh_world()
    with serving(Game(world)) as server:
        client = server.client()
        while not (seen := client.call("a2a.observe"))["done"]:
            for method, params in moves(seen):
                client.ask(f"a2a.{method}", **params)
            client.call("a2a.endTurn")
    here = fresh_world()
    play_here(Session(here))
    assert_same_state(world, here)


def test_agents_in_one_world_see_time_go_on_when_all_have_ended() -> None:
    with serving(Game(fresh_world(seats=3))) as server:
        clients = [server.client(number) for number in range(3)]
        with ThreadPoolExecutor(3) as pool:
            for tick in range(TICKS):
                answers = list(pool.map(lambda client: client.call("a2a.endTurn"), clients))
                assert [answer["tick"] for answer in answers] == [tick + 1] * 3
        assert clients[0].call("a2a.observe")["done"]


def test_the_end_of_a_turn_need_not_be_waited_for() -> None:
    with serving(Game(fresh_world(seats=2))) as server:
        one, other = server.client(0), server.client(1)
        assert one.call("a2a.endTurn", wait=False)["tick"] == 0
        assert other.call("a2a.endTurn")["tick"] == 1


def test_sealed_orders_are_filled_when_the_tick_closes() -> None:
    with serving(Game(fresh_world(seats=2))) as server:
        one, other = server.client(0), server.client(1)
        market = one.call("a2a.getPredictions")["predictions"][0]["id"]
        order = one.call("a2a.buyShares", marketId=market, outcome="YES", amount=50)
        assert (order["queued"], order["status"]) == (True, "sealed")
        assert not {"shares", "avgPrice", "cost", "fee"} & order.keys()  # nothing was bought yet
        assert other.call("a2a.getPositions")["marketPositions"] == []
        other.call("a2a.endTurn", wait=False)
        one.call("a2a.endTurn")
        (fill,) = one.call("a2a.observe")["fills"]
        assert (fill["status"], fill["target"]) == ("filled", market)
        assert other.call("a2a.observe")["fills"] == []


def test_separate_agents_have_separate_copies_of_the_same_world() -> None:
    with serving(*separate(2)) as server:
        one, other = server.client(0), server.client(1)
        market = one.call("a2a.getPredictions")["predictions"][0]
        assert other.call("a2a.getPredictions")["predictions"][0] == market
        one.call("a2a.buyShares", marketId=market["id"], outcome="YES", amount=500)
        one.call("a2a.endTurn")
        assert other.call("a2a.observe")["tick"] == 0
        assert other.call("a2a.getPredictions")["predictions"][0] == market


def test_a_batch_is_made_in_order_across_the_end_of_a_turn() -> None:
    with serving(Game(fresh_world())) as server:
        batch = [request("a2a.observe", 1), request("a2a.endTurn", 2), request("a2a.observe", 3)]
        answers = server.client().post(batch).json()
        assert [(one["id"], one["result"]["tick"]) for one in answers] == [(1, 0), (2, 1), (3, 1)]


def test_a_retried_request_acts_once() -> None:
    with serving(Game(fresh_world())) as server:
        client = server.client()
        body = request("a2a.createPost", content="hello")
        first, second = (client.post(body, **{"idempotency-key": "k"}).json() for _ in range(2))
        assert first == second
        other = client.post(request("a2a.createPost", content="bye"), **{"idempotency-key": "k"}).json()
        assert other["error"]["code"] == -32014


# -- deadlines


@pytest.mark.slow
def test_an_agent_that_does_not_end_its_turn_is_late_and_then_not_waited_for() -> None:
    with serving(Game(fresh_world(seats=2), tick_timeout=1.0)) as server:
        one, silent = server.client(0), server.client(1)
        silent.call("a2a.getBalance")
        while not one.call("a2a.endTurn")["done"]:
            pass
        kept = server.table.places[1].attendance
        assert (kept.late, kept.absent) == (3, TICKS - 3)
        assert server.table.places[0].attendance.late == 0


def test_a_world_that_everybody_left_plays_itself_out() -> None:
    with serving(Game(fresh_world(), tick_timeout=0.1), join_timeout=0.0) as server:
        deadline = time.monotonic() + 30
        while not server.http.get(f"{server.url}/health").json()["done"]:
            assert time.monotonic() < deadline
        assert server.table.places[0].attendance.late == 3


@pytest.mark.slow
def test_the_clock_of_a_game_starts_when_all_have_come() -> None:
    with serving(Game(fresh_world(seats=2), tick_timeout=1.0)) as server:
        one, other = server.client(0), server.client(1)
        (game,) = server.table.games
        one.call("a2a.getBalance")
        assert game.deadline is None
        other.call("a2a.getBalance")
        assert game.deadline is not None
        assert one.call("a2a.endTurn")["tick"] == 1
        assert server.table.places[1].attendance.late == 1


# -- who may do what


@pytest.mark.slow
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nonsense", "Basic abc", "Bearer \u00e9"])
def test_without_the_right_token_nothing_is_told(header: str) -> None:
    with serving(Game(fresh_world())) as server:
        answer = server.http.post(
            f"{server.url}/api/a2a", json=request("a2a.observe"), headers={b"authorization": header.encode("latin-1")}
        )
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["error"]["code"] in (-32000, -32001)


def test_an_agent_id_must_fit_the_token() -> None:
    with serving(Game(fresh_world(seats=2))) as server:
        one, other = server.client(0), server.client(1)
        place = server.table.places[0]
        for fitting in (place.name, place.session.agent_id):
            assert one.post(request("a2a.getBalance"), **{"x-agent-id": fitting}).status_code == 200
        wrong = other.post(request("a2a.getBalance"), **{"x-agent-id": place.session.agent_id})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, -32001)


def test_an_agent_id_alone_opens_nothing() -> None:
    with serving(Game(fresh_world())) as server:
        headers = {"x-agent-id": server.table.places[0].name}
        assert (
            server.http.post(f"{server.url}/api/a2a", json=request("a2a.observe"), headers=headers).status_code == 401
        )


# -- requests that are none


@pytest.fixture(scope="module")
def server() -> Any:
    """One server for all hostile requests: it must survive every one of them."""
    with serving(Game(fresh_world(seats=2), action_budget=10**6)) as running:
        yield running


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (b"[" * 200_000, 400, -32700),
        (b"[]", 400, -32600),
        (b"5", 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "a2a.observe", "params": [1]}', 200, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "a2a.nothing"}', 200, -32601),
        (b"x" * ((1 << 20) + 1), 413, -32600),
    ],
)
def test_a_request_that_is_none_gets_a_status_and_an_error(
    server: Running, body: bytes, status: int, code: int
) -> None:
    answer = server.client().post(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_body_without_a_length_is_cut_off_too(server: Running) -> None:
    answer = httpx.post(
        f"{server.url}/api/a2a",
        content=(b"x" * 65536 for _ in range(64)),
        headers={"authorization": f"Bearer {server.client().token}", "content-type": "application/json"},
    )
    assert answer.status_code == 413


def test_other_media_types_and_methods_are_refused(server: Running) -> None:
    assert server.client().post(b"{}", **{"content-type": "text/xml"}).status_code == 415
    assert server.http.get(f"{server.url}/api/a2a").status_code == 405
    assert server.http.post(f"{server.url}/nowhere").status_code == 404


def test_notifications_are_not_answered(server: Running) -> None:
    note = {"jsonrpc": "2.0", "method": "a2a.getBalance"}
    for body in (note, [note, note], {**note, "method": "a2a.nothing"}):
        answer = server.client().post(body)
        assert (answer.status_code, answer.content) == (204, b"")
    mixed = server.client().post([note, request("a2a.getBalance", "x")]).json()
    assert [one["id"] for one in mixed] == ["x"]


def test_a_batch_has_a_limit_and_its_faults_stay_their_own(server: Running) -> None:
    assert server.client().post([request("a2a.getBalance")] * 65).status_code == 400
    answers = server.client().post([1, request("a2a.nothing", 2), request("a2a.getBalance", 3)]).json()
    assert [(one["id"], one.get("error", {}).get("code")) for one in answers] == [
        (None, -32600), (2, -32601), (3, None),
    ]  # fmt: skip


def opened(server: Running) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_a_head_without_end_is_not_read(server: Running) -> None:
    with opened(server) as raw, pytest.raises(ConnectionError):
        raw.sendall(b"GET /health HTTP/1.1\r\nx-long: ")
        for _ in range(1000):
            raw.sendall(b"x" * http_server.MAX_HEAD)
    assert server.client().call("a2a.getBalance")


def test_a_connection_is_closed_when_a_head_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT", 0.05)
    whole = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    with serving(Game(fresh_world())) as server:
        for said in (b"", b"GET /hea", whole + b"GET /hea"):
            with opened(server) as raw:
                raw.sendall(said)
                heard = b"".join(iter(lambda: raw.recv(4096), b""))
                assert heard.startswith(b"HTTP/1.1 200" if whole in said else b"")


def test_connections_that_break_off_do_no_harm(server: Running) -> None:
    for start in (b"", b"POST", b"POST /api/a2a HTTP/1.1\r\ncontent-length: 100\r\n\r\n{", b"\x00\x01\x02\r\n\r\n"):
        with opened(server) as raw:
            raw.sendall(start)
    assert server.http.get(f"{server.url}/health").json()["status"] == "ok"


HOSTILE = st.one_of(
    st.binary(max_size=100),
    ANY_JSON,
    st.builds(
        lambda method, params, id: {"jsonrpc": "2.0", "id": id, "method": method, "params": params},
        st.sampled_from(sorted(METHODS.keys() - {"a2a.endTurn"})) | st.text(max_size=10),
        st.dictionaries(st.sampled_from(["marketId", "outcome", "amount", "userId", "limit", "content"]), ANY_JSON)
        | ANY_JSON,
        ANY_JSON,
    ),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(body=HOSTILE)
def test_no_request_brings_the_server_down_or_reaches_another_account(server: Running, body: Any) -> None:
    victim = server.table.places[1].session
    before = victim.call("a2a.getUserWallet")
    answer = server.client(0).post(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert answer.status_code in (200, 204, 400)
    for one in answer.json() if answer.status_code == 200 and isinstance(answer.json(), list) else []:
        assert "result" in one or one["error"]["code"] != -32603
    assert victim.call("a2a.getUserWallet") == before


# -- the server itself


def test_the_description_is_complete_and_answers_fit_it(server: Running) -> None:
    described = server.http.get(f"{server.url}/api/a2a/openapi.json").json()
    schemas = described["components"]["schemas"]
    assert {schema["properties"]["method"]["const"] for schema in schemas.values() if "method" in schema.get("properties", {})} == set(METHODS)  # fmt: skip
    answer = {**schemas["Answer"], "components": described["components"]}
    for body in (request("a2a.observe"), request("a2a.buyShares"), request("a2a.nothing")):
        jsonschema.validate(server.client().post(body).json(), answer)


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_sixty_four_agents_at_once_lose_no_action() -> None:
    """The short version of benchmarks/market_http.py."""
    done: list[int] = []
    errors: list[Exception] = []

    def agent(url: str, token: str) -> None:
        # Each its own connections, as agents have. The pool of a client that threads share (httpcore 1.0) closes an idle
        # connection that has expired although it was just given to another thread, whose request then fails with EBADF.
        try:
            with httpx.Client(timeout=60, verify=False) as http:  # quicker to make: no certificates are loaded
                client = Client(url, token, http)
                seen = client.call("a2a.observe")
                while not seen["done"]:
                    client.call("a2a.createPost", content="hello", tick=seen["tick"])
                    seen = client.call("a2a.endTurn", tick=seen["tick"])
                done.append(client.call("a2a.getSystemStats")["tick"])
        except (RpcError, httpx.HTTPError) as error:
            errors.append(error)

    with serving(Game(fresh_world(seats=32)), *separate(32)) as server:
        clients = [server.client(number) for number in range(64)]
        threads = [threading.Thread(target=agent, args=(client.url, client.token)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert done == [TICKS] * 64
        assert [place.session.actions_taken for place in server.table.places] == [TICKS] * 64
