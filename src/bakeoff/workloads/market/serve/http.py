"""The HTTP server: JSON-RPC at `POST /api/a2a` (and `/`), one seat for each token, many agents at once.

Everything happens on one event loop, call by call; nothing in a call waits except `a2a.endTurn`, whose answer comes
when the next tick has begun. Refused calls are answered with status 200 and an error inside, as JSON-RPC has it; other
statuses say that the request itself was not understood or not allowed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bakeoff.version import __version__
from bakeoff.workloads.market import requests, rpc
from bakeoff.workloads.market.methods import END_TURN
from bakeoff.workloads.market.rpc import RpcError, refusal
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.serve.guard import Refused, bearer, whole_body
from bakeoff.workloads.market.serve.openapi import IDEMPOTENCY_KEY, openapi
from bakeoff.workloads.market.serve.table import Place, Table

PATHS = ("/api/a2a", "/")
JOIN_TIMEOUT = 60.0
_STATUS = {
    "parse_error": 400,
    "invalid_request": 400,
    "not_authenticated": 401,
    "authentication_failed": 401,
    "internal_error": 500,
}
"""Of a request that was not understood as a whole."""

logger = logging.getLogger(__name__)


class HttpTable:
    """A table of seats behind HTTP. `app` is the ASGI application; `finished` is set when every game is over."""

    def __init__(self, table: Table, *, join_timeout: float = JOIN_TIMEOUT) -> None:
        """Deadlines begin when every agent of a game has called once, or `join_timeout` seconds after the start."""
        self.table = table
        self.finished = asyncio.Event()
        self.requests = 0
        self._join_timeout = join_timeout
        self._waiting: dict[int, list[asyncio.Future[None]]] = {id(game): [] for game in table.games}
        self._seen: set[str] = set()
        self._description = rpc.encode(openapi(PATHS))
        for game in table.games:
            game.on_advance = lambda game=game: self._advanced(game)  # type: ignore[misc]
        self.app = Starlette(
            routes=[
                *(Route(path, self._post, methods=["POST"]) for path in PATHS),
                Route("/health", self._health, methods=["GET"]),
                Route("/api/a2a/openapi.json", self._openapi, methods=["GET"]),
            ]
        )

    # -- time

    def start(self) -> None:
        """On the event loop, when the server is up: begin to watch the deadlines."""
        loop = asyncio.get_running_loop()
        for game in self.table.games:
            if game.tick_timeout is not None:
                loop.call_later(self._join_timeout, self._open, game)

    def stop(self) -> None:
        """Let go of everybody who waits for a tick."""
        for game in self.table.games:
            self._wake(game)

    def _open(self, game: Game) -> None:
        if not game.opened:
            game.open()
            self._watch(game)

    def _watch(self, game: Game) -> None:
        """One timer a game: when it rings in a later tick than it was set for, it is set anew."""
        if game.deadline is None or game.world.done:
            return
        left, loop = game.deadline - time.monotonic(), asyncio.get_running_loop()
        if left <= 0:
            game.expire(game.world.tick)
            left = game.tick_timeout or 0.0
        loop.call_later(left, self._watch, game)

    def _advanced(self, game: Game) -> None:
        self._wake(game)
        if self.table.done:
            self.finished.set()

    def _wake(self, game: Game) -> None:
        waiting, self._waiting[id(game)] = self._waiting[id(game)], []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _see(self, place: Place) -> None:
        """An agent has come. When the last of a game has, its clock begins to run."""
        if place.name not in self._seen:
            self._seen.add(place.name)
            game = place.game
            if game.tick_timeout is not None and all(
                other.name in self._seen for other in self.table.places if other.game is game
            ):
                self._open(game)

    # -- requests

    async def call(self, place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A call that came through another face of the table: it counts, and waits, as one over HTTP does."""
        self.requests += 1
        self._see(place)
        return await self._call(place, rpc.Request(method, params), None)

    async def _post(self, request: Request) -> Response:
        try:
            place = self.table.place(bearer(request.headers), request.headers.get("x-agent-id"))
            self._see(place)
            message = rpc.decode(await _body(request))
            answer = await self._answer(place, message, _idempotency_key(request))
        except Refused as refused:
            return _json(rpc.failure(None, refused.error), refused.status)
        except RpcError as error:
            headers = {"www-authenticate": "Bearer"} if _STATUS.get(error.type) == 401 else None
            return _json(rpc.failure(None, error), _STATUS.get(error.type, 400), headers)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(status_code=204) if answer is None else _json(*answer)

    async def _answer(self, place: Place, message: Any, key: str | None) -> tuple[Any, int] | None:
        if not isinstance(message, list):
            answer = await self._one(place, message, key)
            return None if answer is None else (answer, _status(answer))
        if not 1 <= len(message) <= rpc.LARGEST_BATCH:
            raise refusal("invalid_request", f"a batch has 1 to {rpc.LARGEST_BATCH} requests")
        answers = []
        for number, item in enumerate(message):
            answer = await self._one(place, item, key and f"{key}:{number}")
            if answer is not None:
                answers.append(answer)
        return (answers, 200) if answers else None

    async def _one(self, place: Place, message: Any, key: str | None) -> dict[str, Any] | None:
        """The answer to one request; None to a notification, whatever came of it."""
        self.requests += 1
        notification = False
        try:
            request = rpc.read_request(message)
            notification = request.notification
            result = await self._call(place, request, key)
        except RpcError as error:
            return None if notification else rpc.failure(rpc.id_of(message), error)
        except Exception:
            logger.exception("a call of %s failed", place.name)
            fault = refusal("internal_error", "the server failed at this call; it is not your fault")
            return None if notification else rpc.failure(rpc.id_of(message), fault)
        return None if notification else rpc.success(request.id, result)

    async def _call(self, place: Place, request: rpc.Request, key: str | None) -> dict[str, Any]:
        session = place.session
        if request.method.removeprefix("a2a.") != END_TURN.removeprefix("a2a."):
            return session.call(request.method, request.params, idempotency_key=key)
        tick = session.world.tick
        result = session.call(request.method, request.params, idempotency_key=key)
        wait = requests.read(requests.EndTurn, request.params).wait and not request.notification
        if wait and session.ended and session.world.tick == tick and not session.world.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[id(place.game)].append(future)
            await future
        return session.clock_facts() if result["tick"] == tick else result

    async def _health(self, request: Request) -> Response:
        games = self.table.games
        return _json(
            {
                "status": "ok",
                "version": __version__,
                "agents": len(self.table.places),
                "games": len(games),
                "done": self.table.done,
                "tick": min(game.world.tick for game in games),
                "ticks": games[0].world.ticks,
            },
            200,
        )

    async def _openapi(self, request: Request) -> Response:
        return Response(self._description, media_type="application/json")


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not re.fullmatch(IDEMPOTENCY_KEY, key):
        raise Refused(400, "Idempotency-Key has 1 to 100 printable characters without spaces")
    return key


async def _body(request: Request) -> bytes:
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refused(415, "send application/json")
    return await whole_body(request.headers, request.receive)


def _status(answer: dict[str, Any]) -> int:
    """Of a single request: whether it was a request at all."""
    return _STATUS.get(answer["error"]["data"].get("type", ""), 200) if "error" in answer else 200


def _json(value: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(rpc.encode(value), status, headers, media_type="application/json")
