"""Authentication for all protocols at a table: `Authorization: Bearer TOKEN`, before anything of a body is read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bakeoff.workloads.market.rpc import RpcError, encode, failure, refusal
from bakeoff.workloads.market.serve.game import Place, Table

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
