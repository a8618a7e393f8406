"""A real JSON-RPC server on a free port, and a client that speaks to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from bakeoff.workloads.market.rpc import RpcError
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.serve.run import listen, serve
from bakeoff.workloads.market.serve.table import Table


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
    table: Table
    url: str
    http: httpx.Client

    def client(self, number: int = 0) -> Client:
        return Client(f"{self.url}/api/a2a", list(self.table.tokens.values())[number], self.http)


@contextmanager
def serving(*games: Game, join_timeout: float = 60.0) -> Iterator[Running]:
    """The server runs on a thread of its own until the block ends."""
    table, stop = Table(games), threading.Event()
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
