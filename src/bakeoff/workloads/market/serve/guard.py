"""What the faces of a table share: who has a seat's token gets in, and calls go the table's way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bakeoff.workloads.market.rpc import RpcError, failure, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bakeoff.workloads.market.serve.table import Place, Table

    Call = Callable[[Place, str, dict[str, Any]], Awaitable[dict[str, Any]]]
    """How a face calls a method for a place."""

_PLACE = "bakeoff.place"
LARGEST_BODY = 1 << 20

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

    Nothing of a body is read before the token is known, and no more of it than `LARGEST_BODY` bytes.
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
        except RpcError as error:
            refused = JSONResponse(failure(None, error), status_code=401, headers={"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        await self._app({**scope, _PLACE: place}, _limited(receive), send)


def _limited(receive: Receive) -> Receive:
    left = LARGEST_BODY

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"a request has at most {LARGEST_BODY} bytes")
        return message

    return counted


def bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def place_in(scope: Scope) -> Place:
    """The place whose token the request brought."""
    return cast("Place", scope[_PLACE])
