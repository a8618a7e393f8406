"""JSON-RPC over HTTP at `POST /api/a2a` (and `/`): one seat for each token, many agents at once.

Everything happens on one event loop, call by call. No call waits except `a2a.endTurn`, whose answer comes when the next
tick has begun. A refused call is answered with status 200 and an error inside, as JSON-RPC prescribes; other statuses
mean that the request itself was not understood or not allowed.

`GET /api/a2a/openapi.json` describes all of it. The document is generated from the models in `rpc`.

All protocols at a table authenticate in the same way: `Authorization: Bearer TOKEN`, before anything of a body is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bakeoff.version import __version__
from bakeoff.workloads.market import rpc
from bakeoff.workloads.market.methods import END_TURN, METHODS, PREFIX
from bakeoff.workloads.market.rpc import RpcError, encode, failure, refusal
from bakeoff.workloads.market.serve.game import Game, Place, Table

PATHS = ("/api/a2a", "/")
JOIN_TIMEOUT = 60.0
"""Seconds."""
IDEMPOTENCY_KEY = "[!-~]{1,100}"
"""Pattern of the header: printable ASCII without spaces."""
_STATUS = {"parse_error": 400, "invalid_request": 400, "internal_error": 500}
"""HTTP status of a single request with such an error; all other errors are answered with 200."""
_END_TURN = (END_TURN, END_TURN.removeprefix(PREFIX))


class HttpTable:
    """A table of seats behind HTTP. `app` is the ASGI application; `finished` is set when every game is over."""

    def __init__(self, table: Table, *, join_timeout: float = JOIN_TIMEOUT) -> None:
        """Deadlines begin when every agent of a game has called once, or `join_timeout` seconds after the start."""
        self.table = table
        self.finished = asyncio.Event()
        self.requests = 0
        self._join_timeout = join_timeout
        self._waiting: dict[int, list[asyncio.Future[None]]] = {id(game): [] for game in table.games}
        self._joined: set[str] = set()
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
        """Start the join timeouts. Called on the event loop, when the server is up."""
        loop = asyncio.get_running_loop()
        for game in self.table.games:
            if game.tick_timeout is not None:
                loop.call_later(self._join_timeout, self._open, game)

    def stop(self) -> None:
        """Answer everybody who waits for a tick."""
        for game in self.table.games:
            self._wake(game)

    def _open(self, game: Game) -> None:
        """Start the clock of a game, once."""
        if not game.opened:
            game.open()
            self._watch(game)

    def _watch(self, game: Game) -> None:
        """End the tick if its deadline has passed, and call this again at the next deadline.

        There is one timer for each game: when it fires in a later tick than it was set for, it is set again.
        """
        if game.deadline is None or game.world.done:
            return
        left = game.deadline - time.monotonic()
        if left <= 0:
            game.expire(game.world.tick)
            left = game.tick_timeout or 0.0
        asyncio.get_running_loop().call_later(left, self._watch, game)

    def _advanced(self, game: Game) -> None:
        """Called by a game after each tick."""
        self._wake(game)
        if self.table.done:
            self.finished.set()

    def _wake(self, game: Game) -> None:
        """Answer the agents that wait for the next tick of a game."""
        waiting, self._waiting[id(game)] = self._waiting[id(game)], []
        for future in waiting:
            if not future.done():  # cancelled when its client has gone
                future.set_result(None)

    def _join(self, place: Place) -> None:
        """Note that an agent has called. The clock of a game starts when the last of its agents has."""
        if place.name not in self._joined:
            self._joined.add(place.name)
            game = place.game
            others = (other.name for other in self.table.places if other.game is game)
            if game.tick_timeout is not None and self._joined.issuperset(others):
                self._open(game)

    # -- requests

    async def call(self, place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a call that came over another protocol. It counts and waits like one over HTTP."""
        self.requests += 1
        self._join(place)
        return await self._call(place, rpc.Request(method, params), None)

    async def _post(self, request: Request) -> Response:
        """Answer a request, a notification or a batch."""
        headers = request.headers
        try:
            place = authenticate(self.table, headers)
            self._join(place)
            media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            if media != "application/json":
                raise BadRequest(415, "send application/json")
            message = rpc.decode(await read_body(headers, request.receive))
            key = headers.get("idempotency-key")
            if key is not None and not re.fullmatch(IDEMPOTENCY_KEY, key):
                raise BadRequest(400, "Idempotency-Key has 1 to 100 printable characters without spaces")
            if not isinstance(message, list):
                answer = await self._answer(place, message, key)
                if answer is None:
                    return Response(status_code=204)
                error = answer["error"]["data"].get("type", "") if "error" in answer else ""
                return _json(answer, _STATUS.get(error, 200))
            if not 1 <= len(message) <= rpc.LARGEST_BATCH:
                raise refusal("invalid_request", f"a batch has 1 to {rpc.LARGEST_BATCH} requests")
            # In order, one after another: [buy, endTurn, observe] observes the next tick.
            answers = []
            for number, item in enumerate(message):
                answer = await self._answer(place, item, key and f"{key}:{number}")
                if answer is not None:
                    answers.append(answer)
            return _json(answers) if answers else Response(status_code=204)
        except BadRequest as error:
            return error.response()
        except RpcError as error:
            return BadRequest(400, error).response()
        except ClientDisconnect:
            return Response(status_code=400)

    async def _answer(self, place: Place, message: Any, key: str | None) -> dict[str, Any] | None:
        """Return the answer to one request; None for a notification, whether it succeeded or not."""
        self.requests += 1
        notification = False
        try:
            request = rpc.read_request(message)
            notification = request.notification
            answer = rpc.success(request.id, await self._call(place, request, key))
        except RpcError as error:
            answer = rpc.failure(rpc.id_of(message), error)
        except Exception as error:
            answer = rpc.failure(rpc.id_of(message), internal_error(error, place.name))
        return None if notification else answer

    async def _call(self, place: Place, request: rpc.Request, key: str | None) -> dict[str, Any]:
        """Make a call. The end of a turn waits until the world has advanced, unless the request says otherwise."""
        session = place.session
        if request.method not in _END_TURN:
            return session.call(request.method, request.params, idempotency_key=key)
        tick = session.world.tick
        result = session.call(request.method, request.params, idempotency_key=key)
        # A notification gets no answer, so there is nothing to hold back.
        wait = rpc.read(rpc.EndTurn, request.params).wait and not request.notification
        if wait and session.ended and session.world.tick == tick and not session.world.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[id(place.game)].append(future)
            await future
        # A result of another tick stands: the call itself advanced the world, or it repeated an earlier answer. Else the
        # world may have advanced while we waited.
        return session.clock_facts() if result["tick"] == tick else result

    async def _health(self, request: Request) -> Response:
        """`GET /health`: how far the games are. Needs no token."""
        games = self.table.games
        health = {
            "status": "ok",
            "version": __version__,
            "agents": len(self.table.places),
            "games": len(games),
            "done": self.table.done,
            "tick": min(game.world.tick for game in games),
            "ticks": games[0].world.ticks,
        }
        return _json(health)

    async def _openapi(self, request: Request) -> Response:
        """`GET /api/a2a/openapi.json`. Needs no token."""
        return _json(openapi())


def _json(value: Any, status: int = 200) -> Response:
    """A JSON response, by msgspec: starlette's JSONResponse uses the much slower `json`."""
    return Response(rpc.encode(value), status, media_type="application/json")


# -- OpenAPI


RequestId = (
    Annotated[str, Field(max_length=rpc.LONGEST_ID)] | Annotated[float, Field(gt=-rpc.LARGEST_ID, lt=rpc.LARGEST_ID)]
)


class ErrorData(BaseModel):
    """What a program should look at: the type of an error."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[str, Field(json_schema_extra={"enum": sorted(rpc.CODES)})]


class Error(BaseModel):
    """A refused call."""

    code: Annotated[int, Field(json_schema_extra={"enum": sorted(rpc.CODES.values())})]
    message: str
    data: ErrorData


class Envelope(BaseModel):
    """What all answers have."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None


class Success(Envelope):
    """The answer to a call that was made."""

    result: dict[str, Any]


class Failure(Envelope):
    """The answer to a call that was refused."""

    error: Error


class Answer(RootModel[Success | Failure]):
    """The answer to one request."""


_FAULTS = {
    "400": "The body is not a JSON-RPC request.",
    "401": "The token is missing or opens no seat.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "A fault of the server; nothing was lost.",
}
"""What an HTTP status means; the body is a JSON-RPC error."""


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the server."""
    envelopes: list[type[BaseModel]] = []
    for method in METHODS.values():
        required = any(field.is_required() for field in method.params.model_fields.values())
        fields: dict[str, Any] = {
            "jsonrpc": (Literal["2.0"], ...),
            "method": (Literal[method.name], ...),
            # A default factory makes a field optional without a default in the schema.
            "id": (RequestId, Field(default_factory=int)),
            "params": (method.params, ... if required else Field(default_factory=method.params)),
        }
        name = f"{method.short[0].upper()}{method.short[1:]}Request"
        doc = f"{method.description} Returns {method.result}"
        envelopes.append(create_model(name, __config__=ConfigDict(extra="forbid"), __doc__=doc, **fields))
    models: list[type[BaseModel]] = [Answer, *envelopes]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    call = {"oneOf": [{"$ref": f"#/components/schemas/{model.__name__}"} for model in envelopes]}
    batch = {"type": "array", "minItems": 1, "maxItems": rpc.LARGEST_BATCH, "items": call}
    answer = {"$ref": "#/components/schemas/Answer"}

    def content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"description": description, "content": {"application/json": {"schema": schema}}}

    operation = {
        "summary": "Call one method, or several in a batch.",
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A second request with the same key gets the first one's answers and changes nothing.",
                "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": [call, batch]}}}},
        "responses": {
            "200": content(
                "Answers; refused calls have an error.", {"anyOf": [answer, {"type": "array", "items": answer}]}
            ),
            "204": {"description": "There were only notifications."},
            **{status: content(meaning, answer) for status, meaning in _FAULTS.items()},
        },
    }
    health = content("The server is up.", {"type": "object", "required": ["status"]})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bakeoff market",
            "version": __version__,
            "description": "JSON-RPC 2.0, one seat for each token.",
        },
        "security": [{"token": []}],
        "paths": {
            **{
                path: {"post": {"operationId": name, **operation}}
                for path, name in zip(PATHS, ("a2a", "call"), strict=True)
            },
            "/health": {"get": {"operationId": "health", "security": [], "responses": {"200": health}}},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas["$defs"],
        },
    }


# -- authentication

Call = Callable[[Place, str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""How a protocol calls a method for a place."""

MAX_BODY = 1 << 20
"""Bytes."""
BODY_TIMEOUT = 30.0
"""Seconds."""
_TOO_LARGE = f"a request has at most {MAX_BODY} bytes"
_PLACE = "bakeoff.place"
"""Key of the ASGI scope."""

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """A request that is refused as a whole, with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, reason: RpcError | str) -> None:
        super().__init__(str(reason))
        self.status = status
        self.error = refusal("invalid_request", reason) if isinstance(reason, str) else reason

    def response(self) -> Response:
        # RFC 9110 (11.6.1) requires the header in every answer with status 401.
        headers = {"www-authenticate": "Bearer"} if self.status == 401 else None
        return Response(encode(failure(None, self.error)), self.status, headers, media_type="application/json")


def authenticate(table: Table, headers: Headers) -> Place:
    """Return the place whose token a request has. Raises BadRequest 401."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    try:
        return table.place(token.strip() if scheme.lower() == "bearer" else None, headers.get("x-agent-id"))
    except RpcError as error:
        raise BadRequest(401, error) from error


async def read_body(headers: Headers, receive: Receive) -> bytes:
    """Read a request's body: at most `MAX_BODY` bytes, within `BODY_TIMEOUT` seconds.

    Raises BadRequest 413 or 408, and ClientDisconnect. uvicorn itself has no limit for either.
    """
    # Refused before anything is read. The header is text of the client: a number of 5,000 digits would cost time too.
    length = headers.get("content-length", "0")
    if length.isdigit() and len(length) < 20 and int(length) > MAX_BODY:
        raise BadRequest(413, _TOO_LARGE)
    content = bytearray()
    message: Message = {"more_body": True}
    try:
        # Chunked bodies have no length, so what arrives is counted as well.
        async with asyncio.timeout(BODY_TIMEOUT):
            while message.get("more_body"):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                content += message.get("body", b"")
                if len(content) > MAX_BODY:
                    raise BadRequest(413, _TOO_LARGE)
    except TimeoutError:
        raise BadRequest(408, f"the request did not arrive within {BODY_TIMEOUT:g} seconds") from None
    return bytes(content)


class Authenticated:
    """An ASGI app behind the tokens of a table. The app finds the seat's place with `place_in(scope)`."""

    def __init__(self, app: ASGIApp, table: Table) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan events of the app
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            place = authenticate(self._table, headers)
            body = await read_body(headers, receive)
        except BadRequest as error:
            await error.response()(scope, receive, send)
            return
        except ClientDisconnect:
            return
        replayed: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            """Hand the app the body that was read, and then whatever else comes."""
            return replayed.pop() if replayed else await receive()

        await self._app({**scope, _PLACE: place}, receive_again, send)


def place_in(scope: Scope) -> Place:
    """Return the place whose token opened this request."""
    return cast("Place", scope[_PLACE])


async def call_now(place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Call a method without waiting for other seats at the end of a turn."""
    return place.session.call(method, params)


def internal_error(error: Exception, agent: str) -> RpcError:
    """Log an exception that no call should raise, and return the error to answer with, which does not reveal it."""
    logger.error("a call of %s failed", agent, exc_info=error)
    return refusal("internal_error", "the server failed at this call; it is not your fault")
