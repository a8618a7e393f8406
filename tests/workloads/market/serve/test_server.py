"""One table, one port, every protocol: agents that speak differently play in the same world."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_data_parts, new_data_part
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.testclient import TestClient

from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.serve.game import Seats
from bakeoff.workloads.market.serve.server import OtherProtocols, listen, serve
from workloads.market.games import assert_same_state, moves, play_there, table

Answer = dict[str, Any] | None


@contextmanager
def on_a_port(seats: Seats) -> Iterator[str]:
    bound, stop = listen("127.0.0.1", 0), threading.Event()
    thread = threading.Thread(target=serve, args=(seats, bound), kwargs={"stop": stop, "linger": 30.0}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


async def play_over_a2a(url: str, token: str) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        client = await create_client(url, ClientConfig(httpx_client=http))

        async def call(operation: str, params: dict[str, Any]) -> Answer:
            part = new_data_part({"operation": operation, "params": params})
            message = pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[part])
            try:
                (answer,) = [event async for event in client.send_message(pb.SendMessageRequest(message=message))]
            except A2AError:
                return None
            result: dict[str, Any] = get_data_parts(answer.message.parts)[0]["result"]
            return result

        await play_there(call)


async def play_over_mcp(url: str, token: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url + "/mcp", http_client=http)) as client,
    ):

        async def call(name: str, arguments: dict[str, Any]) -> Answer:
            answer = await client.call_tool(name, arguments)
            return None if answer.is_error else answer.structured_content

        await play_there(call)


async def play_over_json_rpc(url: str, token: str) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:

        async def call(method: str, params: dict[str, Any]) -> Answer:
            body = {"jsonrpc": "2.0", "id": 1, "method": f"a2a.{method}", "params": params}
            result: Answer = (await http.post(url + "/api/a2a", json=body)).json().get("result")
            return result

        await play_there(call)


@pytest.mark.slow
def test_three_protocols_share_a_world_which_ends_as_it_does_in_process() -> None:
    with table(seats=3) as seats:

        async def play(url: str) -> None:
            tokens = [seats.tokens[place.name] for place in seats.places]
            await asyncio.gather(
                play_over_json_rpc(url, tokens[0]), play_over_a2a(url, tokens[1]), play_over_mcp(url, tokens[2])
            )

        with on_a_port(seats) as url:
            asyncio.run(play(url))
    with table(seats=3) as here:
        play_all_here(here)
    assert seats.games[0].world.done
    assert_same_state(seats.games[0].world, here.games[0].world)


def play_all_here(seats: Seats) -> None:
    """The script in every seat. Orders are sealed, so it does not matter whose turn is played first."""
    while not seats.done:
        for place in reversed(seats.places):
            for method, params in moves(place.session.observe()):
                try:
                    place.session.call(method, params)
                except RpcError:
                    pass
            place.session.end_turn()


def test_a_path_that_nobody_serves_is_told_at_once_without_loading_the_other_faces() -> None:
    nothing_to_build_from: Any = None
    client = TestClient(OtherProtocols(nothing_to_build_from))
    assert client.get("/favicon.ico").status_code == client.post("/api/a2").status_code == 404
