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
from typing import TYPE_CHECKING, Any

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
from bakeoff.workloads.tasks.proxy.gemini import Gemini
from bakeoff.workloads.tasks.proxy.openai import Chat, Responses
from bakeoff.workloads.tasks.proxy.relay import Relay, open_client
from bakeoff.workloads.tasks.proxy.wire import BadRequest, Json, Wire, WireName

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.proxy.server import ModelProxy

LINGER_BYTES, LINGER_S = 1 << 20, 1.0
"""What is thrown away of a body that nobody reads, before its connection is closed."""
WIRES: dict[WireName, Wire] = {
    "chat": Chat(), "responses": Responses(), "messages": Messages(), "gemini": Gemini(),
}  # fmt: skip


def wire_at(path: str, query: Mapping[str, str]) -> tuple[Wire, Json] | None:
    """The API at this request path, and what the path says about the request; None if there is none.

    Raises HTTPException for an address of an API that is not served.
    """
    for wire in WIRES.values():
        try:
            found = wire.match(path, query)
        except BadRequest as error:
            raise HTTPException(400, str(error)) from error
        if found is not None:
            return wire, found
    return None


def error_body(message: str) -> bytes:
    """The body of a refusal for a request whose API is not known yet."""
    return msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error"}})


class Connection(H11Protocol):
    """One client connection. Every wait for the client has a limit.

    uvicorn parses requests with h11, which enforces the size of a request's head, and runs the application for each
    one.
    """

    def __init__(self, proxy: ModelProxy, config: Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.proxy, self.limits = proxy, proxy.limits
        self._head_ends: float | None = None
        """When a head that has begun must be complete, on the loop's clock."""
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # With more connections than that the process would run out of file descriptors, which runs share.
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.proxy.limits_met.add("connections")
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
        if status == 431:
            self.proxy.limits_met.add("header")
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

    def __init__(self, scope: Scope, receive: Receive, send: Send, proxy: ModelProxy) -> None:
        self._scope, self._receive, self._send, self._proxy = scope, receive, send, proxy
        self._request = Request(scope, receive)
        self._held = 0
        """Bytes of the body, as long as they count against the memory of the proxy."""
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("ascii")  # h11 accepts no other characters
        self.headers = self._request.headers
        self.query = self._request.query_params
        self.status: int | None = None
        """The status of the answer, once it has begun."""

    @property
    def head_bytes(self) -> int:
        return len(self.path) + sum(len(name) + len(value) for name, value in self._scope["headers"])

    async def body(self) -> bytes:
        """The whole body.

        Raises HTTPException when it is too large, too slow or compressed (a small body may be huge when unpacked), and
        ClientDisconnect when the client leaves before its end. Its bytes count against the memory that all bodies
        share until `release`.
        """
        limits = self._proxy.limits
        if self.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "send the body without content-encoding")
        length = self.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limits.body:
            raise self.exceeded("body", 413, f"the body is larger than {limits.body} bytes")
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_s):
                async for chunk in self._request.stream():
                    body += chunk
                    self._held += len(chunk)
                    self._proxy.held += len(chunk)
                    if len(body) > limits.body:
                        raise self.exceeded("body", 413, f"the body is larger than {limits.body} bytes")
                    if self._proxy.held > limits.memory:
                        raise self.exceeded("memory", 503, "the bodies of all open requests are too large together")
        except TimeoutError as error:
            raise HTTPException(408, f"the body took longer than {limits.body_s:g} s") from error
        # Two bytes of JSON can become an object of a hundred. Counting these characters is quick and never too low.
        if body.count(b",") + body.count(b"[") + body.count(b"{") > limits.values:
            raise self.exceeded("values", 413, f"the body has more than {limits.values} values")
        return bytes(body)

    def check_size(self, body: Json) -> None:
        """Raise HTTPException for a body whose lists are too long, or nested too deeply, for what is done with it."""
        limits = self._proxy.limits
        level: list[Json | list[Any]] = [body]
        for _ in range(limits.depth):
            level = [
                inside
                for value in level
                for inside in (value.values() if isinstance(value, dict) else value)
                if isinstance(inside, dict | list)
            ]
            if any(isinstance(value, list) and len(value) > limits.elements for value in level):
                raise self.exceeded("elements", 413, f"a list in the body has more than {limits.elements} elements")
            if not level:
                return
        raise self.exceeded("depth", 413, f"the body is nested more than {limits.depth} deep")

    def exceeded(self, limit: str, status: int, message: str) -> HTTPException:
        """The refusal of a request that meets a limit, which the run's results will show."""
        self._proxy.limits_met.add(limit)
        return HTTPException(status, message)

    def release(self) -> None:
        """Give back the memory of the body."""
        self._proxy.held -= self._held
        self._held = 0

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

    async def turn_away(self, status: int, body: Json | bytes) -> None:
        """Answer without reading the body, and close the connection.

        A connection that is closed while the other side is sending is reset, and a reset may overtake the answer
        (RFC 9112, 9.6). So for a moment what still comes is thrown away.
        """
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        length = str(len(content))
        await self.start(status, {"content-type": "application/json", "content-length": length, "connection": "close"})
        await self.send(content)
        left = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_S):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):  # it has all come, or the client has left
                        break
        except TimeoutError:
            pass
        await self.send(b"", more=False)


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
            h11_max_incomplete_event_size=proxy.limits.header,
        )

    async def start(self, socket: Path | None, loopback: bool) -> int | None:
        """Listen. Returns the port on loopback, if that was asked for. Raises OSError.

        This does not go through `uvicorn.Server`, which looks for the end only ten times a second and then sleeps for
        another 0.1 s: too long for a proxy that lives for one run of a few tenths of a second.
        """
        self._config.load()
        loop, port = asyncio.get_running_loop(), None
        connection = partial(Connection, self._proxy, self._config, self._state)
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
        exchange = Exchange(scope, receive, send, self._proxy)
        try:
            await self._handle(exchange)
        except HTTPException as refusal:  # the rest of what this client sends cannot be trusted
            exchange.release()
            await exchange.turn_away(refusal.status_code, error_body(refusal.detail))
        except ClientDisconnect:
            pass
        finally:
            exchange.release()

    async def _handle(self, exchange: Exchange) -> None:
        """Find the run by its token and the API by its path, and answer."""
        # h11 checks the size of a head only while it is incomplete, and one read may bring all of a larger one.
        if exchange.head_bytes > self._proxy.limits.header:
            raise exchange.exceeded("header", 431, "the headers are too large")
        if exchange.method == "HEAD":  # some clients check that the server is there
            await exchange.answer(200, b"")
            return
        # Clients of the messages API send `x-api-key`, Gemini's another header or a query, the others a bearer token.
        sent = [exchange.headers.get(name) for name in ("x-api-key", "x-goog-api-key")]
        sent += [exchange.query.get("key"), exchange.headers.get("authorization", "").removeprefix("Bearer ")]
        run = self._proxy.runs.get(next(filter(None, sent), "").strip())
        address = wire_at(exchange.path, exchange.query) if run is not None else None
        wire, found = address or (None, {})
        if run is not None and wire is not None and exchange.method == "POST":
            if self._client is None:  # loading certificates takes longer than starting the proxy
                self._client = open_client()
            task = asyncio.current_task()
            assert task is not None
            run.active.add(task)  # the run cancels it when it closes
            try:
                await Relay(exchange, run, wire, found, self._client).serve()
            except (HTTPException, ClientDisconnect):
                raise
            except Exception as error:  # a bug or a full disk: recorded if that was possible, and the proxy goes on
                if exchange.status is None:
                    await exchange.answer(500, wire.error(500, "proxy_error", type(error).__name__))
            finally:
                run.active.discard(task)
            return
        if run is None:
            self._proxy.turned_away = "the agent's client did not send the key of its run, {api_key}"
            body = WIRES["messages" if exchange.path.endswith("/messages") else "chat"].error(
                401, "invalid_api_key", "this key is not the token of a running run"
            )
            await exchange.turn_away(401, body)
        elif exchange.method == "GET" and exchange.path.rstrip("/").endswith("/models"):
            # Both vendors' shapes at once: OpenAI's has `object`, Anthropic's `type`, `display_name` and `has_more`.
            models = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in run.models]
            named = [{"name": f"models/{name}", "displayName": name} for name in run.models]  # Gemini's
            await exchange.answer(200, {"object": "list", "data": models, "has_more": False, "models": named})
        else:
            known = ", ".join(f"/v1/{wire.path}" for wire in WIRES.values())
            message = f"POST to one of {known}; {exchange.path} is not served"
            self._proxy.turned_away = f"the agent's client speaks another API: {message}"
            status = 405 if wire is not None else 404
            await exchange.turn_away(status, WIRES["chat"].error(status, "not_found", message))
