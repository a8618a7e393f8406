"""JSON-RPC over HTTP at `POST /api/a2a` (and `/`): one seat for each token, many agents at once.

Everything happens on one event loop, call by call, and the seats take turns (see `fair`). An answer is sent when all that
it rests on is in the journal. The answer to `a2a.endTurn` comes when the next tick has begun. A refused call is answered with status 200 and an error inside, as JSON-RPC prescribes; other statuses
mean that the request itself was not understood or not allowed.

`GET /api/a2a/openapi.json` describes all of it. The document is generated from the models in `rpc`.

All protocols at a table authenticate in the same way: `Authorization: Bearer TOKEN`, before anything of a body is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bakeoff.errors import StorageError
from bakeoff.version import __version__
from bakeoff.workloads.market import rpc
from bakeoff.workloads.market.methods import END_TURN, METHODS, PREFIX
from bakeoff.workloads.market.rpc import RpcError, encode, failure, refusal
from bakeoff.workloads.market.serve.disk_journal import DiskJournal
from bakeoff.workloads.market.serve.fair import SLICE, FairQueue
from bakeoff.workloads.market.serve.game import Game, Place, Seats

PATHS = ("/api/a2a", "/")
JOIN_TIMEOUT = 60.0
"""Seconds."""
IDEMPOTENCY_KEY = "[!-~]{1,100}"
"""Pattern of the header: printable ASCII without spaces."""
_STATUS = {"parse_error": 400, "invalid_request": 400, "internal_error": 500}
"""HTTP status of a single request with such an error; all other errors are answered with 200."""
_END_TURN = (END_TURN, END_TURN.removeprefix(PREFIX))
MOST_REQUESTS = 64
"""Requests of one seat at a time, whether they wait for their turn, for a tick or for a slow client."""
_LARGE_BODY = 1 << 14
"""Bytes of a body from which on decoding it takes a turn."""
_ANONYMOUS, _HEALTH = "anonymous", "health"
"""Lanes of requests without a token. No seat has such a name (see `Seats`)."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made. `events` must be in the journal before anybody hears of it."""

    result: dict[str, Any]
    error: RpcError | None
    events: int


class HttpTable:
    """A table of seats behind HTTP. `app` is the ASGI application; `finished` is set when every game is over."""

    def __init__(self, table: Seats, *, join_timeout: float = JOIN_TIMEOUT, journal: DiskJournal | None = None) -> None:
        """Deadlines begin when every agent of a game has called once, or `join_timeout` seconds after the start."""
        self.table = table
        self.finished = asyncio.Event()
        self.requests = 0
        self.queue = FairQueue()
        self._journal = journal
        self._join_timeout = join_timeout
        self._waiting: dict[int, list[asyncio.Future[None]]] = {id(game): [] for game in table.games}
        self._joined: set[str] = set()
        self._stopped = False
        self._open_requests: Counter[str] = Counter()
        for game in table.games:
            game.on_advance = lambda game=game: self._advanced(game)  # type: ignore[misc]
        self.routes = Starlette(
            routes=[
                *(Route(path, self._post, methods=["POST"]) for path in PATHS),
                Route("/health", self._health, methods=["GET"]),
                Route("/api/a2a/openapi.json", self._openapi, methods=["GET"]),
            ]
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in. Whoever has no token takes turns with all others who have none."""
        try:
            place = authenticate(self.table, Headers(scope=scope))
        except BadRequest:
            await self.queue.submit(_HEALTH if scope["path"] == "/health" else _ANONYMOUS, lambda: None)
            await self.routes(scope, receive, send)
            return
        scope[_PLACE] = place
        if (connection := scope.get(CONNECTION)) is not None:
            connection.belongs_to(place.name)
        if self._open_requests[place.name] >= MOST_REQUESTS:
            error = refusal(
                "budget_exhausted", f"you have {MOST_REQUESTS} requests open; wait for answers", retryAfter=1
            )
            await BadRequest(429, error).response()(scope, receive, send)
            return
        self._open_requests[place.name] += 1
        try:
            if scope["path"] in PATHS and scope["method"] == "POST":
                # Straight to the handler. Every time a request waits, Python resumes all coroutines above it, and with
                # Starlette's routing and middleware that would be a fifth of a call.
                response = await self._post(Request(scope, receive))
                await response(scope, receive, send)
            else:
                await self.routes(scope, receive, send)
        finally:
            self._open_requests[place.name] -= 1

    # -- time

    def start(self) -> None:
        """Start the join timeouts. Called on the event loop, when the server is up."""
        loop = asyncio.get_running_loop()
        for game in self.table.games:
            if game.tick_timeout is not None:
                loop.call_later(self._join_timeout, self._open, game)
        if self.table.done:  # a journal of a game that was over
            self.finished.set()

    def stop(self) -> None:
        """Answer everybody who waits for a tick, and leave the ticks that nobody plays."""
        self._stopped = True
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
        if game.clock() >= game.deadline:
            game.expire(game.world.tick)
        if game.unattended:
            self._work_off(game)
        elif game.deadline is not None:
            left = max(0.0, game.deadline - game.clock())
            asyncio.get_running_loop().call_later(left, self._watch, game)

    def _work_off(self, game: Game) -> None:
        """Play the ticks that nobody plays in slices, with everybody's calls in between."""
        if self._stopped:
            return
        slice_ = self.queue.submit(game, partial(game.work_off, seconds=SLICE))
        slice_.add_done_callback(lambda _: self._work_off(game) if game.unattended else self._watch(game))

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
            others = (other.name for other in self.table.places if other.game is game and not other.attendance.gone)
            if game.tick_timeout is not None and self._joined.issuperset(others):
                self._open(game)

    # -- requests

    async def call(self, place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a call that came over another protocol, which holds the turn of its seat (see `Authenticated`)."""
        request = rpc.Request(method, params)
        made = self._make(place, request, None)
        _end_of_turn.get()()
        made = await self._await_tick(place, request, made)
        await self._durable(made.events)
        if made.error is not None:
            raise made.error
        return made.result

    async def _post(self, request: Request) -> Response:
        """Answer a request, a notification or a batch."""
        headers = request.headers
        try:
            place = request.scope.get(_PLACE) or authenticate(self.table, headers)
            media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            if media != "application/json":
                raise BadRequest(415, "send application/json")
            body = await read_body(headers, request.receive)
            decode = partial(rpc.decode, body)
            message = decode() if len(body) < _LARGE_BODY else await self.queue.submit(place.name, decode)
            key = headers.get("idempotency-key")
            if key is not None and not re.fullmatch(IDEMPOTENCY_KEY, key):
                raise BadRequest(400, "Idempotency-Key has 1 to 100 printable characters without spaces")
            if not isinstance(message, list):
                content, made = await self._answer(place, message, key)
                await self._durable(made.events)
                if content is None:
                    return Response(status_code=204)
                return _json(content, _STATUS.get(made.error.type if made.error else "", 200))
            if not 1 <= len(message) <= rpc.LARGEST_BATCH:
                raise refusal("invalid_request", f"a batch has 1 to {rpc.LARGEST_BATCH} requests")
            # In order, one after another: [buy, endTurn, observe] observes the next tick.
            answers = []
            for number, item in enumerate(message):
                content, made = await self._answer(place, item, key and f"{key}:{number}")
                if content is not None:
                    answers.append(content)
            await self._durable(made.events)
            return _json(b"[" + b",".join(answers) + b"]") if answers else Response(status_code=204)
        except BadRequest as error:
            return error.response()
        except RpcError as error:
            return BadRequest(_STATUS.get(error.type, 400), error).response()
        except ClientDisconnect:
            return Response(status_code=400)

    async def _answer(self, place: Place, message: Any, key: str | None) -> tuple[bytes | None, Made]:
        """Return the answer to one request, encoded; None for a notification, whether it succeeded or not."""
        try:
            request = rpc.read_request(message)
        except RpcError as error:
            self.requests += 1
            return rpc.encode(rpc.failure(rpc.id_of(message), error)), Made({}, error, 0)
        made = await self.queue.submit(place.name, partial(self._make, place, request, key))
        made = await self._await_tick(place, request, made)
        if request.notification:
            return None, made
        if made.error is not None:
            return rpc.encode(rpc.failure(request.id, made.error)), made
        return rpc.encode(rpc.success(request.id, made.result)), made

    def _make(self, place: Place, request: rpc.Request, key: str | None) -> Made:
        """Make a call, in the seat's turn."""
        self.requests += 1
        self._join(place)
        result: dict[str, Any] = {}
        failed = None
        try:
            result = place.call(request.method, request.params, key)
        except RpcError as error:
            failed = error
        except Exception as error:
            failed = internal_error(error, place.name)
        return Made(result, failed, self._journal.needed if self._journal else 0)

    async def _await_tick(self, place: Place, request: rpc.Request, made: Made) -> Made:
        """Hold the answer to the end of a turn back until the world has advanced, unless the request says otherwise.

        The answer is the clock, also when the request was sent again and its turn was over long ago.
        """
        session = place.session
        if request.method not in _END_TURN or made.error is not None:
            return made
        # A notification gets no answer, so there is nothing to hold back.
        wait = rpc.read(rpc.EndTurn, request.params).wait and not request.notification
        if wait and session.ended and made.result["tick"] == session.world.tick and not session.world.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[id(place.game)].append(future)
            await future
        return Made(session.clock_facts(), None, self._journal.needed if self._journal else 0)

    async def _durable(self, events: int) -> None:
        """Return when the journal has the first `events` events. Raises RpcError when it cannot be written."""
        if self._journal is not None and self._journal.synced < events:
            try:
                await self._journal.reached(events)
            except (OSError, StorageError) as error:
                raise refusal(
                    "internal_error", "the server cannot write its journal; call again when it is back"
                ) from error

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
        return _json(rpc.encode(health))

    async def _openapi(self, request: Request) -> Response:
        """`GET /api/a2a/openapi.json`. Needs no token."""
        return _json(rpc.encode(openapi()))


def _json(content: bytes, status: int = 200) -> Response:
    """A response with JSON that is encoded already."""
    return Response(content, status, media_type="application/json")


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
    "429": "The seat has too many requests open.",
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
CONNECTION = "bakeoff.connection"
"""Keys of the ASGI scope."""
_end_of_turn: ContextVar[Callable[[], None]] = ContextVar("end_of_turn", default=lambda: None)
"""Ends the turn that a request over another protocol holds."""

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """A request that is refused as a whole, with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, reason: RpcError | str) -> None:
        super().__init__(str(reason))
        self.status = status
        self.error = refusal("invalid_request", reason) if isinstance(reason, str) else reason

    def response(self) -> Response:
        # RFC 9110 (11.6.1) requires the header in every answer with status 401; RFC 6585 (4) allows the other.
        headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}.get(self.status)
        return Response(encode(failure(None, self.error)), self.status, headers, media_type="application/json")


def authenticate(table: Seats, headers: Headers) -> Place:
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
    """An ASGI app behind the tokens of a table. The app finds the seat's place with `place_in(scope)`.

    With a `queue` each request is one turn of its seat: from when its body is read until the call in it is made, or the
    answer begins. What the libraries of A2A and MCP do meanwhile costs more than the call.
    """

    def __init__(self, app: ASGIApp, table: Seats, queue: FairQueue | None = None) -> None:
        self._app = app
        self._table = table
        self._queue = queue

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

        release = await self._queue.hold(place.name) if self._queue is not None else lambda: None
        _end_of_turn.set(release)

        async def send_released(message: Message) -> None:
            """A client may be slow to read, so the turn ends before anything is sent."""
            release()
            await send(message)

        try:
            await self._app({**scope, _PLACE: place}, receive_again, send_released)
        finally:
            release()


def place_in(scope: Scope) -> Place:
    """Return the place whose token opened this request."""
    return cast("Place", scope[_PLACE])


async def call_now(place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Call a method without waiting for other seats at the end of a turn."""
    return place.call(method, params)


def internal_error(error: Exception, agent: str) -> RpcError:
    """Log an exception that no call should raise, and return the error to answer with, which does not reveal it."""
    logger.error("a call of %s failed", agent, exc_info=error)
    return refusal("internal_error", "the server failed at this call; it is not your fault")
