"""Who may read the pages: requests to a foreign name, from another site or without the token are refused.

A page from anywhere can make a browser send requests to a server on loopback, and a name of its own can lead there (DNS
rebinding), so the Host header is checked. Outside of loopback the first part of every path is the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No script and no style in a page's text, and nothing from another host."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware around the pages."""

    def __init__(self, app: ASGIApp, host: str, token: str = "") -> None:
        """`host` is what the server listens on. Without a `token` it must be loopback."""
        self._app, self._token = app, token
        self._names = {"localhost", host.lower(), f"[{host.lower()}]"}
        if not is_loopback(host):
            self._names |= {name.lower() for name in (socket.gethostname(), socket.getfqdn())}
        self._is_local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to a request that is refused; None for any other."""
        headers = Headers(scope=scope)
        if not self._knows(headers.get("host", "")):
            return PlainTextResponse("This server is not known by that name.\n", 403)
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Another site asked for this.\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Pages are only read.\n", 405)
        if self._token:
            given = scope["path"].split("/")[1]
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return PlainTextResponse("The address lacks the token, or has another one.\n", 403)
        return None

    def _knows(self, header: str) -> bool:
        """Whether a Host header names this server: loopback, its address, or its own name."""
        name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
        name = name.lower()
        if name in self._names or is_loopback(name):
            return True
        return not self._is_local and _is_address(name)  # a name of somebody else's is what rebinding needs
