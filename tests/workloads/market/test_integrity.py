"""No face of the world tells anything that is hidden: not by name, not by value, and not in any other way."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from a2a.compat.v0_3.types import SendMessageResponse
from mcp import Client

from bakeoff.workloads.market.envs.gymnasium_env import MarketEnv
from bakeoff.workloads.market.envs.pettingzoo_env import MarketParallelEnv
from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import RpcError, encode
from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.serve import a2a
from bakeoff.workloads.market.serve.game import Game, Seats
from bakeoff.workloads.market.serve.http import HttpTable
from bakeoff.workloads.market.serve.mcp import game_server
from bakeoff.workloads.market.session import Session
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World
from workloads.market.games import served

SEED = 771_188_204_339
SCENARIO = Scenario(duration_minutes=16, markets=4, perpetuals=3, agents=6, tier="easy")
LOOKS = [name for name, method in METHODS.items() if not method.mutates]


def mid_game() -> Seats:
    """A world in its middle, with money at work, a post with a stance, and every chat joined."""
    game = Game(World.create(SCENARIO, SEED, secret="nobody knows"))
    session = game.seats[0].session
    game.world.state.books[0, 0, at.MEMBER : at.MEMBER + at.CHATS] = at.INVITED
    while session.world.tick < 8:
        for method, params in opening_moves(session.observe()):
            try:
                session.call(method, params)
            except RpcError:
                pass
        session.end_turn()
    return Seats([game], {"player-1": "token-of-one"})


def opening_moves(seen: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for market in seen["predictionMarkets"][:2]:
        yield "buyShares", {"marketId": market["id"], "outcome": "YES", "amount": 20}
        yield "createPost", {"content": "I think so", "marketId": market["id"], "probability": 0.7}
    yield "openPosition", {"ticker": seen["perpetualMarkets"][0]["ticker"], "side": "SHORT", "size": 100, "leverage": 2}
    for chat in seen["groupChats"]:
        yield "joinGroup", {"groupId": chat["id"]}
        yield "sendMessage", {"chatId": chat["id"], "content": "well?"}


def parameters(session: Session, name: str) -> dict[str, Any]:
    """Good parameters for a method that only looks."""
    seen = session.observe()
    needed = {
        "marketId": seen["predictionMarkets"][0]["id"],
        "postId": seen["posts"][0]["id"],
        "chatId": seen["groupChats"][0]["id"],
        "userId": seen["agents"][0]["id"],
        "agentId": seen["agents"][0]["id"],
    }
    wanted = METHODS[name].schema.get("required", [])
    return {key: needed[key] for key in wanted}


# -- what each face tells


def told_in_process(table: Seats) -> dict[str, Any]:
    session = table.places[0].session
    return {name: json.loads(encode(session.call(name, parameters(session, name)))) for name in LOOKS}


def told_over_json_rpc(table: Seats) -> dict[str, Any]:
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


def told_over_a2a(table: Seats) -> dict[str, Any]:
    session = table.places[0].session
    told: dict[str, Any] = {}
    with served(lambda _: a2a.a2a_routes(table)) as url, httpx.Client() as http:
        told["card"] = http.get(url + "/.well-known/agent-card.json").json() | {"url": "", "supportedInterfaces": []}
        for name in LOOKS:
            data = {"operation": name, "params": parameters(session, name)}
            message = {"messageId": "m", "role": "user", "parts": [{"kind": "data", "data": data}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
            answer = http.post(url + a2a.PATH, json=body, headers={"Authorization": "Bearer token-of-one"}).json()
            SendMessageResponse.model_validate(answer)
            told[name] = answer["result"]["parts"][0]["data"]["result"]
    return told


def told_over_mcp(table: Seats) -> dict[str, Any]:
    session = table.places[0].session

    async def ask() -> dict[str, Any]:
        async with Client(game_server(table.games[0])) as client:
            told: dict[str, Any] = {
                name: (await client.call_tool(METHODS[name].short, parameters(session, name))).structured_content
                for name in LOOKS
            }
            told["tools"] = [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]
            for resource in (await client.list_resources()).resources:
                told[str(resource.uri)] = (await client.read_resource(str(resource.uri))).contents[0].text
            return told

    return asyncio.run(ask())


def told_by_gymnasium(table: Seats) -> dict[str, Any]:
    """The single environment over the very world of the table."""
    env = MarketEnv(SCENARIO)
    env.reset(seed=SEED)
    state, theirs = env.batch.state, table.games[0].world.state
    state.ints[...], state.floats[...] = theirs.ints, theirs.floats
    seen, info = env.observe()
    return {"observation": seen.tolist(), "info": _listed(info)}


def told_by_pettingzoo(table: Seats) -> dict[str, Any]:
    env = MarketParallelEnv(2, SCENARIO, secret="nobody knows")
    env.reset(seed=SEED)
    for tick in range(8):
        row = np.array([2, 0, 1, 2, 2, 0, 1]) if tick % 2 else np.ones(7, np.int64)
        env.step({"player-1": row, "player-2": 2 - row})
    if table.games[0].world.key == bytes(16):
        tamper(env.world)
    seen = {agent: env.observe(agent) for agent in env.agents}
    return {agent: {"observation": row.tolist(), "info": _listed(info)} for agent, (row, info) in seen.items()}


def _listed(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "action_mask": [row.tolist() for row in info["action_mask"]]}


FACES = {
    "in process": told_in_process,
    "JSON-RPC": told_over_json_rpc,
    "A2A": told_over_a2a,
    "MCP": told_over_mcp,
}
ENVIRONMENTS = {"Gymnasium": told_by_gymnasium, "PettingZoo": told_by_pettingzoo}
ALL = FACES | ENVIRONMENTS


# -- what is hidden


def tamper(world: World) -> None:
    """Another truth behind the same public past: outcomes, reliabilities, exact beliefs, the key."""
    state, rng = world.state, np.random.default_rng(3)
    state.assets[0, :, at.THETA] = -state.assets[0, :, at.THETA] + (state.assets[0, :, at.THETA] == 0)
    state.header[0, at.KEY0 : at.KEY3 + 1] = rng.integers(0, 2**32, 4)
    state.header[0, at.RELIABILITY : at.RELIABILITY + at.SOURCES + at.CHATS] = 333
    state.indices[0, :, at.WEIGHT : at.WEIGHT + 3] = rng.normal(size=(len(state.indices[0]), 3))
    state.tips[0] = rng.normal(size=state.tips[0].shape)
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


@pytest.mark.slow
@pytest.mark.parametrize("face", ALL)
def test_another_truth_behind_the_same_past_looks_the_same(face: str) -> None:
    table = mid_game()
    before = ALL[face](table)
    tamper(table.games[0].world)
    assert ALL[face](table) == before
    assert face in ENVIRONMENTS or set(LOOKS) <= set(before)


@pytest.mark.slow
@pytest.mark.parametrize("face", [*FACES, "Gymnasium"])
def test_another_public_past_looks_different(face: str) -> None:
    """So that the test above cannot be passed by a face that tells nothing."""
    table = mid_game()
    before = ALL[face](table)
    table.games[0].world.state.indices[0, :, at.PRICE] *= 1.01
    assert ALL[face](table) != before


@pytest.mark.slow
@pytest.mark.parametrize("face", ALL)
def test_nothing_hidden_is_told_by_value_or_by_name(face: str) -> None:
    table = mid_game()
    world = table.games[0].world
    assert world.key == world_key(SCENARIO, SEED, "nobody knows")
    told = ALL[face](table)
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


@pytest.mark.slow
def test_all_faces_tell_the_same() -> None:
    table = mid_game()
    told = told_in_process(table)
    for face in ("JSON-RPC", "A2A", "MCP"):
        heard = FACES[face](table)
        assert {name: heard[name] for name in LOOKS} == told, face
