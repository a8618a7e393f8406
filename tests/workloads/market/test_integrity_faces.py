"""No face of the world tells anything that is hidden: not by name, not by value, and not in any other way."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from a2a.compat.v0_3.types import SendMessageResponse
from mcp import Client

from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import RpcError, encode
from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.serve import a2a
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.serve.mcp import seat_server
from bakeoff.workloads.market.serve.table import Table
from bakeoff.workloads.market.session import Session
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World
from market_faces import served

SEED = 771_188_204_340
"""In this world two chats have invited the seat by then, and one has brought tips."""
SCENARIO = Scenario(duration_minutes=16, markets=4, perpetuals=3, agents=6, tier="easy")
LOOKS = [name for name, method in METHODS.items() if not method.mutates]
Tell = Callable[[Session], dict[str, Any]]


def mid_game() -> Table:
    """A world in its middle, with money at work, a post with a stance, and every chat joined that invites."""
    game = Game(World.create(SCENARIO, SEED, secret="nobody knows"))
    session = game.seats[0].session
    while session.world.tick < 8:
        for method, params in opening_moves(session.observe()):
            try:
                session.call(method, params)
            except RpcError:
                pass
        session.end_turn()
    return Table([game], {"player-1": "token-of-one"})


def opening_moves(seen: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for market in seen["predictionMarkets"][:2]:
        yield "buyShares", {"marketId": market["id"], "outcome": "YES", "amount": 20}
        yield "createPost", {"content": "I think so", "marketId": market["id"], "probability": 0.7}
    yield "openPosition", {"ticker": seen["perpetualMarkets"][0]["ticker"], "side": "SHORT", "size": 100, "leverage": 2}
    for chat in seen["groupChats"]:
        yield "joinGroup", {"groupId": chat["id"]}


def parameters(session: Session, name: str) -> dict[str, Any]:
    """Good parameters for a method that only looks."""
    seen = session.observe()
    joined = [chat["id"] for chat in seen["groupChats"] if chat["joined"]]
    needed = {
        "marketId": seen["predictionMarkets"][0]["id"],
        "postId": seen["posts"][0]["id"],
        "chatId": (joined or ["chat-0"])[0],
        "userId": seen["agents"][0]["id"],
        "agentId": seen["agents"][0]["id"],
    }
    wanted = METHODS[name].schema.get("required", [])
    return {key: needed[key] for key in wanted}


# -- what each face tells


def told_in_process(table: Table) -> dict[str, Any]:
    session = table.places[0].session
    return {name: json.loads(encode(session.call(name, parameters(session, name)))) for name in LOOKS}


def told_over_json_rpc(table: Table) -> dict[str, Any]:
    from bakeoff.workloads.market.serve.http import HttpTable

    session = table.places[0].session

    async def ask() -> dict[str, Any]:
        app = HttpTable(table).app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://world") as http:
            told = {}
            for name in LOOKS:
                body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": parameters(session, name)}
                answer = await http.post("/api/a2a", json=body, headers={"Authorization": "Bearer token-of-one"})
                told[name] = answer.json()["result"]
            return told

    return asyncio.run(ask())


def told_over_a2a(table: Table) -> dict[str, Any]:
    session = table.places[0].session
    told: dict[str, Any] = {}
    with served(lambda url: a2a.a2a_routes(table, url)) as url, httpx.Client() as http:
        told["card"] = http.get(url + "/.well-known/agent-card.json").json() | {"url": "", "supportedInterfaces": []}
        for name in LOOKS:
            data = {"operation": name, "params": parameters(session, name)}
            message = {"messageId": "m", "role": "user", "parts": [{"kind": "data", "data": data}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
            answer = http.post(url + a2a.PATH, json=body, headers={"Authorization": "Bearer token-of-one"}).json()
            SendMessageResponse.model_validate(answer)
            told[name] = answer["result"]["parts"][0]["data"]["result"]
    return told


def told_over_mcp(table: Table) -> dict[str, Any]:
    session = table.places[0].session

    async def ask() -> dict[str, Any]:
        async with Client(seat_server(session)) as client:
            told: dict[str, Any] = {
                name: (await client.call_tool(METHODS[name].short, parameters(session, name))).structured_content
                for name in LOOKS
            }
            told["tools"] = [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]
            for resource in (await client.list_resources()).resources:
                told[str(resource.uri)] = (await client.read_resource(str(resource.uri))).contents[0].text
            return told

    return asyncio.run(ask())


FACES = {
    "in process": told_in_process,
    "JSON-RPC": told_over_json_rpc,
    "A2A": told_over_a2a,
    "MCP": told_over_mcp,
}


# -- what is hidden


def tamper(world: World) -> None:
    """Another truth behind the same public past: outcomes, reliabilities, beliefs, the key, what is felt."""
    state, rng = world.state, np.random.default_rng(3)
    state.assets[0, :, at.THETA] = -state.assets[0, :, at.THETA] + (state.assets[0, :, at.THETA] == 0)
    state.header[0, at.KEY0 : at.KEY3 + 1] = rng.integers(0, 2**32, 4)
    state.header[0, at.RELIABILITY : at.RELIABILITY + at.SOURCES + at.CHATS] = 333
    state.indices[0, :, at.WEIGHT : at.WEIGHT + 3] = rng.normal(size=(len(state.indices[0]), 3))
    state.indices[0, :, at.TIPS :] = rng.normal(size=state.indices[0, :, at.TIPS :].shape)
    state.indices[0, :, at.SENTIMENT] = 1.5
    world.key = bytes(16)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def hidden_numbers(world: World) -> set[float]:
    """Index prices that are still to come, as they are and as they would be shown; the key; the seed."""
    found: set[float] = set()
    for prices in world.truth().prices.values():
        past = {float(f"{price:.9g}") for price in prices[: world.tick + 1]}
        for price in prices[world.tick + 1 :]:
            found |= {price, *(float(f"{price:.{digits}g}") for digits in (6, 7, 8, 9))} - past
    found |= {float(number) for number in world.state.header[0, at.KEY0 : at.KEY3 + 1]}
    return found | {float(SEED), float(int.from_bytes(world.key, "big")), float(int.from_bytes(world.key, "little"))}


@pytest.mark.parametrize("face", FACES)
def test_another_truth_behind_the_same_past_looks_the_same(face: str) -> None:
    table = mid_game()
    before = FACES[face](table)
    tamper(table.games[0].world)
    after = FACES[face](table)
    assert set(LOOKS) <= set(before)
    assert before == after


@pytest.mark.parametrize("face", FACES)
def test_nothing_hidden_is_told_by_value_or_by_name(face: str) -> None:
    table = mid_game()
    world = table.games[0].world
    assert world.key == world_key(SCENARIO, SEED, "nobody knows")
    told = FACES[face](table)
    hidden = hidden_numbers(world)
    assert len(hidden) > 20
    words = re.compile(r"theta|truth|secret|seed\b|reliab|^key\d?$|posterior|belief", re.IGNORECASE)
    public = {"source_reliabilities", "chat_reliabilities", "sourceReliabilities", "chatReliabilities"}
    for leaf in leaves({name: answer for name, answer in told.items() if name != "tools"}):
        if isinstance(leaf, str):
            assert "nobody knows" not in leaf and world.key.hex() not in leaf and str(SEED) not in leaf
            if len(leaf) < 40 and leaf not in public:
                assert not words.search(leaf), leaf
            numbers = [float(number) for number in re.findall(r"\d+\.\d+|\d{5,}", leaf)]
        else:
            numbers = [float(leaf)] if isinstance(leaf, int | float) and not isinstance(leaf, bool) else []
        assert not hidden & set(numbers), leaf


def test_all_faces_tell_the_same() -> None:
    table = mid_game()
    told = told_in_process(table)
    for face in ("JSON-RPC", "A2A", "MCP"):
        heard = FACES[face](table)
        assert {name: heard[name] for name in LOOKS} == told, face
