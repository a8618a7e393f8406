"""MCP with the SDK's own client, over stdio and over streamable HTTP, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.serve.game import Game, Place, Seats
from bakeoff.workloads.market.serve.mcp import game_server, mcp_routes
from bakeoff.workloads.market.session import Session
from workloads.market.games import SEED, SHORT, assert_same_state, fresh_world, play_here, play_there, served, table

ERAS = ["auto", "legacy"]


@pytest.fixture
def shared() -> Iterator[tuple[Seats, str]]:
    with table(seats=2) as seats, served(lambda _: mcp_routes(seats)) as url:
        yield seats, url + "/mcp"


@asynccontextmanager
async def connected(url: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def called(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    answer = await client.call_tool(name, arguments)
    (text,) = answer.content
    assert json.loads(text.text) == answer.structured_content
    return None if answer.is_error else answer.structured_content


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_an_episode_over_http_ends_in_the_same_world_as_in_process(mode: str) -> None:
    async def play(url: str) -> int:
        async with connected(url + "/mcp", "token-of-one", mode) as client:
            return await play_there(lambda name, arguments: called(client, name, arguments))

    with table() as seats, served(lambda _: mcp_routes(seats)) as url:
        assert asyncio.run(play(url)) >= 6
        here = Session(fresh_world())
        play_here(here)
        assert_same_state(seats.games[0].world, here.world)


@pytest.mark.slow
def test_an_episode_over_stdio_tells_what_the_same_moves_tell_in_process(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def play() -> None:
        size = [
            "--duration",
            "6",
            "--markets",
            "3",
            "--perpetuals",
            "2",
            "--agents",
            "4",
            "--seed",
            str(SEED),
            "-o",
            str(tmp_path),
        ]
        command = ["-m", "bakeoff", "market", "mcp", *size]
        server = StdioServerParameters(
            command=sys.executable, args=command, env={"BAKEOFF_MARKET_SECRET": "for tests", "PATH": "/usr/bin"}
        )
        async with Client(server) as client:

            async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
                answer = await client.call_tool(name, arguments)
                heard.append(answer.structured_content)
                return None if answer.is_error else answer.structured_content

            await play_there(call)

    asyncio.run(play())
    with table() as seats:
        told = asyncio.run(told_here(seats.games[0]))
    assert len(heard) > 6 * SHORT.ticks
    assert heard == json.loads(json.dumps(told))
    result = json.loads((tmp_path / "player-1" / "result.json").read_text())
    assert (result["done"], result["equity"]) == (True, heard[-1]["account"]["equity"])


@pytest.mark.slow
def test_a_signal_ends_a_server_that_waits_for_input_and_keeps_the_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bakeoff", "market", "mcp", "--duration", "3", "-o", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}\n')
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 130
    assert json.loads((tmp_path / "comparison.json").read_text())["neverCalled"] == [
        "player-1"
    ]  # it only looked around


async def told_here(game: Game) -> list[Any]:
    """Everything that the script hears when it calls the server's handlers without a wire."""
    heard: list[Any] = []
    async with Client(game_server(game)) as client:

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
            answer = await client.call_tool(name, arguments)
            heard.append(answer.structured_content)
            return None if answer.is_error else answer.structured_content

        await play_there(call)
    return heard


def test_every_method_is_a_tool_with_its_own_schema(shared: tuple[Seats, str]) -> None:
    async def tools() -> dict[str, Any]:
        async with connected(shared[1], "token-of-one") as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    found = asyncio.run(tools())
    assert {method.short: method.schema for method in METHODS.values()} == {
        name: tool.input_schema for name, tool in found.items()
    }
    assert found["observe"].annotations.read_only_hint and not found["buyShares"].annotations.read_only_hint


def test_rules_and_scenario_are_resources(shared: tuple[Seats, str]) -> None:
    seats, url = shared

    async def read() -> tuple[str, str]:
        async with connected(url, "token-of-one") as client:
            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            rules, scenario = [(await client.read_resource(uri)).contents[0].text for uri in uris]
            with pytest.raises(MCPError, match="market://rules"):
                await client.read_resource("market://truth")
            return rules, scenario

    rules, scenario = asyncio.run(read())
    assert "Prediction markets" in rules
    assert json.loads(scenario)["ticks"] == seats.games[0].world.ticks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("buyShares", {"marketId": "market-99999", "outcome": "YES", "amount": 5}, "market_not_found"),
        ("buyShares", {"marketId": "market-1", "outcome": "YES", "amount": "five"}, "invalid_params"),
        ("openPosition", {"ticker": "BTCX", "side": "LONG", "size": 9e8}, "insufficient_funds"),
    ],
)
def test_a_refusal_is_a_tool_error_with_our_type(name: str, arguments: dict[str, Any], kind: str) -> None:
    async def ask(url: str) -> Any:
        async with connected(url + "/mcp", "token-of-one") as client:
            return await client.call_tool(name, arguments)

    with table() as seats, served(lambda _: mcp_routes(seats)) as url:
        answer = asyncio.run(ask(url))
    assert answer.is_error and answer.structured_content["error"]["data"]["type"] == kind


def test_an_unknown_tool_is_an_error_of_the_protocol(shared: tuple[Seats, str]) -> None:
    async def ask() -> None:
        async with connected(shared[1], "token-of-one") as client:
            with pytest.raises(MCPError, match="flyToTheMoon"):
                await client.call_tool("flyToTheMoon", {})

    asyncio.run(ask())


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_without_a_right_token_nothing_is_told(shared: tuple[Seats, str], headers: dict[str, str]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    answer = httpx.post(shared[1], json=body, headers={**headers, "Accept": "application/json, text/event-stream"})
    assert answer.status_code == 401
    assert "tools" not in answer.text


@pytest.mark.parametrize("mode", ERAS)
def test_each_token_sits_in_its_own_seat(shared: tuple[Seats, str], mode: str) -> None:
    seats, url = shared

    async def play() -> list[Any]:
        async with connected(url, "token-of-one", mode) as one, connected(url, "token-of-two", mode) as two:
            await called(one, "openPosition", {"ticker": "BTCX", "side": "LONG", "size": 500})
            await called(one, "endTurn", {})
            await called(two, "endTurn", {})
            return [await called(client, "observe", {}) for client in (one, two)]

    first, second = asyncio.run(play())
    assert [first["agentId"], second["agentId"]] == [place.session.agent_id for place in seats.places]
    assert len(first["positions"]["perpPositions"]) == 1
    assert second["positions"]["perpPositions"] == []


def test_a_fault_of_the_server_is_told_without_its_text() -> None:
    async def broken(place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("the key is 42")

    async def ask(url: str) -> None:
        async with connected(url + "/mcp", "token-of-one") as client:
            with pytest.raises(MCPError, match="server failed"):
                await client.call_tool("observe", {})

    with table() as seats, served(lambda _: mcp_routes(seats, broken)) as url:
        asyncio.run(ask(url))


@pytest.mark.slow
def test_a_client_that_thinks_too_long_misses_the_tick() -> None:
    async def dream(game: Game) -> list[int]:
        async with Client(game_server(game)) as client:
            ticks = []
            while not ticks or ticks[-1] < 2:
                await asyncio.sleep(0.01)
                answer = await client.call_tool("getSystemStats", {})
                ticks.append(answer.structured_content["tick"])
            return ticks

    game = Game(fresh_world(), tick_timeout=0.7)
    ticks = asyncio.run(dream(game))
    assert ticks[0] == 0
    assert game.seats[0].late >= 2


def test_a_body_without_end_is_not_read(shared: tuple[Seats, str]) -> None:
    headers = {"Authorization": "Bearer token-of-one", "Content-Type": "application/json"}
    assert httpx.post(shared[1], content=b"x" * 2_000_000, headers=headers).status_code == 413
    assert httpx.post(shared[1], content=iter([b"x" * 600_000] * 3), headers=headers).status_code == 413
