"""Games of the market world for tests: one script of moves, worlds to play it in, real servers, and a JSON-RPC client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.serve.game import Game, Seats
from bakeoff.workloads.market.serve.server import listen, serve
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
def table(seats: int = 1, **settings: Any) -> Iterator[Seats]:
    yield Seats([Game(fresh_world(seats), **settings)], {"player-1": "token-of-one", "player-2": "token-of-two"})


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


# -- JSON-RPC over HTTP


@dataclass
class Client:
    """One agent's way to the server."""

    url: str
    token: str
    http: httpx.Client
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def post(self, body: Any, **headers: str) -> httpx.Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        known = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        return self.http.post(self.url, **content, headers={**known, **headers})

    def ask(self, method: str, **params: Any) -> Any:
        """The whole answer."""
        return self.post(request(method, next(self.numbers), **params)).json()

    def call(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        if "error" in answer:
            raise RpcError(**answer["error"])
        return answer["result"]


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@dataclass
class Running:
    table: Seats
    url: str
    http: httpx.Client

    def client(self, number: int = 0) -> Client:
        return Client(f"{self.url}/api/a2a", list(self.table.tokens.values())[number], self.http)


@contextmanager
def serving(*games: Game, join_timeout: float = 60.0) -> Iterator[Running]:
    """The server runs on a thread of its own until the block ends."""
    table, stop = Seats(games), threading.Event()
    bound = listen("127.0.0.1", 0)
    settings = {"join_timeout": join_timeout, "stop": stop, "linger": 1e6}
    thread = threading.Thread(target=serve, args=(table, bound), kwargs=settings)
    thread.start()
    try:
        with httpx.Client(timeout=30) as http:
            yield Running(table, f"http://127.0.0.1:{bound.getsockname()[1]}", http)
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the server does not end"
