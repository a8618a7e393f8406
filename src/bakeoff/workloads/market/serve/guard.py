"""What the faces of a table share: who has a seat's token gets in, and calls go the table's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from bakeoff.workloads.market.rpc import RpcError, failure, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bakeoff.workloads.market.serve.table import Place, Table

    Call = Callable[[Place, str, dict[str, Any]], Awaitable[dict[str, Any]]]
    """How a face calls a method for a place."""

_PLACE = "bakeoff.place"
LARGEST_BODY = 1 << 20
BODY_TIMEOUT = 30.0

logger = logging.getLogger(__name__)


async def call_now(place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Straight to the session: the end of a turn is answered without waiting for other seats."""
    return place.session.call(method, params)


def unexpected(error: Exception, who: str) -> RpcError:
    """What is told after an exception that no call should raise: not its text, which goes to the log."""
    logger.error("a call of %s failed", who, exc_info=error)
    return refusal("internal_error", "the server failed at this call; it is not your fault")


class Guarded:
    """An ASGI app behind the table's tokens: `Authorization: Bearer TOKEN`, and `x-agent-id` if it is told.

    Nothing of a body is read before the token is known.
    """

    def __init__(self, app: ASGIApp, table: Table) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the app's start and end
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            place = self._table.place(bearer(headers), headers.get("x-agent-id"))
            body = await whole_body(headers, receive)
        except RpcError as error:
            refused = JSONResponse(failure(None, error), status_code=401, headers={"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
        except Refused as error:
            await JSONResponse(failure(None, error.error), error.status)(scope, receive, send)
        except ClientDisconnect:
            pass
        else:
            await self._app({**scope, _PLACE: place}, _again(body, receive), send)


class Refused(Exception):
    """A request that is refused before it is read as JSON, with its own status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = refusal("invalid_request", message)


async def whole_body(headers: Headers, receive: Receive) -> bytes:
    """At most `LARGEST_BODY` bytes, within `BODY_TIMEOUT` seconds."""
    length = headers.get("content-length", "0")
    if length.isdigit() and len(length) < 20 and int(length) > LARGEST_BODY:
        raise _too_large()
    content = bytearray()
    message: Message = {"more_body": True}
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while message.get("more_body"):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                content += message.get("body", b"")
                if len(content) > LARGEST_BODY:
                    raise _too_large()
    except TimeoutError:
        raise Refused(408, f"the request did not come within {BODY_TIMEOUT:g} seconds") from None
    return bytes(content)


def _too_large() -> Refused:
    return Refused(413, f"a request has at most {LARGEST_BODY} bytes")


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then what else comes."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return rest.pop() if rest else await receive()

    return next_message


def bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def place_in(scope: Scope) -> Place:
    """The place whose token the request brought."""
    return cast("Place", scope[_PLACE])
