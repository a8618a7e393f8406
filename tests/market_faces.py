"""Playing the market world through its faces: one script of moves, a real server, and a look at what came of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.serve.table import Table
from bakeoff.workloads.market.session import Session
from bakeoff.workloads.market.world.world import World

SHORT = Scenario(duration_minutes=6, markets=3, perpetuals=2, agents=4)
SEED = 11

Move = tuple[str, dict[str, Any]]


def moves(seen: dict[str, Any]) -> list[Move]:
    """What the scripted agent does after this observation. Some of it is refused, which is part of the script."""
    tick = int(seen["tick"])
    markets, perps = seen["predictionMarkets"], seen["perpetualMarkets"]
    found: list[Move] = []
    if markets:
        market = markets[tick % len(markets)]
        side = "YES" if tick % 2 else "NO"
        found.append(("buyShares", {"marketId": market["id"], "outcome": side, "amount": 37.5 + tick}))
        found.append(
            ("createPost", {"content": f"tick {tick}", "marketId": market["id"], "probability": 0.25, "outcome": "NO"})
        )
    found.append(
        ("openPosition", {"ticker": perps[0]["ticker"], "side": "long", "amount": 100 + 10 * tick, "leverage": 3})
    )
    if tick % 3 == 2:
        found.append(("closePosition", {"positionId": seen["positions"]["perpPositions"][0]["id"], "size": 50}))
        for held in seen["positions"]["marketPositions"][:1]:
            found.append(("sellShares", {"positionId": held["id"], "shares": held["shares"] / 2}))
    found += [("joinGroup", {"groupId": chat["id"]}) for chat in seen["groupChats"] if not chat["joined"]]
    found.append(("buyShares", {"marketId": "market-999999", "outcome": "YES", "amount": 5}))
    return found


def play_here(session: Session) -> None:
    """The script, in this process."""
    while not session.world.done:
        for method, params in moves(session.observe()):
            try:
                session.call(method, params)
            except RpcError:
                pass
        session.end_turn()


async def play_there(call: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]) -> int:
    """The script through `call`, which gives None where the world refuses. The number of refusals."""
    refusals = 0
    while True:
        seen = await call("observe", {})
        assert seen is not None
        if seen["done"]:
            return refusals
        for method, params in moves(seen):
            refusals += await call(method, params) is None
        assert await call("endTurn", {}) is not None


def fresh_world(seats: int = 1, scenario: Scenario = SHORT, seed: int = SEED) -> World:
    return World.create(scenario, seed, seats=seats, secret="for tests")


def assert_same_state(one: World, other: World) -> None:
    """Bit for bit, everything that changes in a world."""
    assert one.tick == other.tick
    np.testing.assert_array_equal(one.state.ints, other.state.ints)
    np.testing.assert_array_equal(one.state.floats, other.state.floats)


@contextmanager
def table(seats: int = 1, **settings: Any) -> Iterator[Table]:
    yield Table([Game(fresh_world(seats), **settings)], {"player-1": "token-of-one", "player-2": "token-of-two"})


@contextmanager
def served(make: Callable[[str], list[Route]]) -> Iterator[str]:
    """The base URL of a real server on a free port with the routes that `make(base_url)` gives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it queues who comes before the server is up
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = uvicorn.Config(Starlette(routes=make(url)), log_level="warning", lifespan="off")
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
