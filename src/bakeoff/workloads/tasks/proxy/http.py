"""HTTP between clients and the proxy: uvicorn and starlette do the protocol, this module sets limits and finds the run.

The clients run in sandboxes and nobody should trust them. uvicorn alone waits forever for a client that sends
nothing or half a request, so `Connection` adds the timeouts. The module is imported when a proxy starts, not
before: httpx, starlette and uvicorn take longer to import than everything else that a run needs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import httpx
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bakeoff.workloads.tasks.proxy.anthropic import Messages
from bakeoff.workloads.tasks.proxy.openai import Chat, Responses
from bakeoff.workloads.tasks.proxy.relay import Relay, open_client
from bakeoff.workloads.tasks.proxy.wire import Json, Wire, WireName

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.proxy.server import ModelProxy, ServerLimits

WIRES: dict[WireName, Wire] = {"chat": Chat(), "responses": Responses(), "messages": Messages()}


def wire_at(path: str) -> Wire | None:
    """The API at this request path, with or without the `/v1` that some clients add to the base URL.

    None for others.
    """
    rest = path.strip("/").removeprefix("v1/")
    return next((wire for wire in WIRES.values() if rest == wire.path), None)


def error_body(message: str) -> bytes:
    """The body of a refusal for a request whose API is not known yet."""
    return msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error"}})


class Connection(H11Protocol):
    """One client connection. Every wait for the client has a limit.

    uvicorn parses requests with h11, which enforces the size of a request's head, and runs the application for each
    one.
    """

    def __init__(self, limits: ServerLimits, config: Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.limits = limits
        self._head_ends: float | None = None
        """When a head that has begun must be complete, on the loop's clock."""
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # With more connections than that the process would run out of file descriptors, which runs share.
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.close()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        """Start the timer for the next request, unless one is being answered.

        The timer takes the place of uvicorn's keep-alive timer, which does not run before the first request and starts
        again with every byte of a head.
        """
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_ends = None
            return
        # `trailing_data` is what h11 has received and not parsed yet: here, the beginning of the next head.
        if not self.conn.trailing_data[0]:
            ends, self._head_ends = self.loop.time() + self.limits.idle_s, None
        else:
            ends = self._head_ends = self._head_ends or self.loop.time() + self.limits.header_s
        self.timeout_keep_alive_task = self.loop.call_at(ends, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        """The buffer for a client that does not read is full. Closing would wait for it to be sent; abort does not."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        # Also called when the connection is lost.
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls this while it handles h11's exception, which knows the fitting status: 431 for a head that
        # is too large, 501 for an unknown transfer encoding, else 400.
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun already
            body = error_body("this is not a valid HTTP request")
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Exchange:
    """One request and its answer, which is whole (`answer`) or in pieces (`start`, then `send`).

    A `send` to a client that has left does nothing; `gone` is how the caller learns about it.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: ServerLimits) -> None:
        self._scope, self._receive, self._send, self._limits = scope, receive, send, limits
        self._request = Request(scope, receive)
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("ascii")  # h11 accepts no other characters
        self.headers = self._request.headers
        self.status: int | None = None
        """The status of the answer, once it has begun."""

    async def body(self) -> bytes:
        """The whole body.

        Raises HTTPException when it is too large, too slow or compressed (a small body may be huge when unpacked), and
        ClientDisconnect when the client leaves before its end.
        """
        limits = self._limits
        if self.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "send the body without content-encoding")
        too_large = HTTPException(413, f"the body is larger than {limits.body_bytes} bytes")
        length = self.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limits.body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_s):
                async for chunk in self._request.stream():
                    body += chunk
                    if len(body) > limits.body_bytes:
                        raise too_large
        except TimeoutError as error:
            raise HTTPException(408, f"the body took longer than {limits.body_s:g} s") from error
        return bytes(body)

    async def gone(self) -> None:
        """Return when the client hangs up. Call it after `body`, which uses the same channel."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer of unknown length.

        `send` its pieces, the last with `more=False`: else the client sees a cut.
        """
        self.status = status
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def send(self, data: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(self, status: int, body: Json | bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        self.status = status
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        response = Response(content, status, {"content-type": "application/json", **(headers or {})})
        await response(self._scope, self._receive, self._send)


class Server:
    """The ASGI application of a proxy, and the sockets that it listens on."""

    def __init__(self, proxy: ModelProxy) -> None:
        self._proxy = proxy
        self._client: httpx.AsyncClient | None = None
        self._listeners: list[asyncio.Server] = []
        self._state = ServerState()
        self._config = Config(
            self,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            access_log=False,
            log_config=None,
            log_level="critical",  # a client that hangs up or sends nonsense is not worth a line
            h11_max_incomplete_event_size=proxy.limits.header_bytes,
        )

    async def start(self, socket: Path | None, loopback: bool) -> int | None:
        """Listen. Returns the port on loopback, if that was asked for. Raises OSError.

        This does not go through `uvicorn.Server`, which looks for the end only ten times a second and then sleeps for
        another 0.1 s: too long for a proxy that lives for one run of a few tenths of a second.
        """
        self._config.load()
        loop, port = asyncio.get_running_loop(), None
        connection = partial(Connection, self._proxy.limits, self._config, self._state)
        if socket is not None:
            self._listeners.append(await loop.create_unix_server(connection, socket))
            socket.chmod(0o666)  # a sandbox may run as any user; the token decides who may ask
        if loopback:
            self._listeners.append(await loop.create_server(connection, "127.0.0.1", 0))
            port = self._listeners[-1].sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening, end running calls and close all connections."""
        for listener in self._listeners:
            listener.close()
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()  # first, or a task could wait for a client that does not read
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
        await asyncio.sleep(0)  # asyncio closes an aborted connection in the next round of the loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, called by uvicorn. Whatever a client sends, it gets an answer and the proxy goes on."""
        exchange = Exchange(scope, receive, send, self._proxy.limits)
        try:
            await self._handle(exchange)
        except HTTPException as refusal:  # the rest of what this client sends cannot be trusted
            await exchange.answer(refusal.status_code, error_body(refusal.detail), {"connection": "close"})
        except ClientDisconnect:
            pass

    async def _handle(self, exchange: Exchange) -> None:
        """Find the run by its token and the API by its path, and answer."""
        if exchange.method == "HEAD":  # some clients check that the server is there
            await exchange.answer(200, b"")
            return
        # Clients of the messages API send `x-api-key`, the others a bearer token.
        key = exchange.headers.get("x-api-key") or exchange.headers.get("authorization", "").removeprefix("Bearer ")
        run, wire = self._proxy.runs.get(key.strip()), wire_at(exchange.path)
        if run is not None and wire is not None and exchange.method == "POST":
            if self._client is None:  # loading certificates takes longer than starting the proxy
                self._client = open_client()
            task = asyncio.current_task()
            assert task is not None
            run.active.add(task)  # the run cancels it when it closes
            try:
                await Relay(exchange, run, wire, self._client).serve()
            except (HTTPException, ClientDisconnect):
                raise
            except Exception as error:  # a bug or a full disk: recorded if that was possible, and the proxy goes on
                if exchange.status is None:
                    await exchange.answer(500, wire.error(500, "proxy_error", type(error).__name__))
            finally:
                run.active.discard(task)
            return
        await exchange.body()
        if run is None:
            self._proxy.turned_away = "the agent's client did not send the key of its run, {api_key}"
            body = (wire or WIRES["chat"]).error(401, "invalid_api_key", "this key is not the token of a running run")
            await exchange.answer(401, body)
        elif exchange.method == "GET" and exchange.path.rstrip("/").endswith("/models"):
            # Both vendors' shapes at once: OpenAI's has `object`, Anthropic's `type`, `display_name` and `has_more`.
            models = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in run.models]
            await exchange.answer(200, {"object": "list", "data": models, "has_more": False})
        else:
            known = ", ".join(f"/v1/{wire.path}" for wire in WIRES.values())
            message = f"POST to one of {known}; {exchange.path} is not served"
            self._proxy.turned_away = f"the agent's client speaks another API: {message}"
            status = 405 if wire is not None else 404
            await exchange.answer(status, WIRES["chat"].error(status, "not_found", message))
