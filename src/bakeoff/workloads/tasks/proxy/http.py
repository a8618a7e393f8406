"""The server's side of HTTP/1.1, for clients that nobody should trust: every wait and every size has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h11
import msgspec

from bakeoff.workloads.tasks.proxy.wire.face import Json


@dataclass(frozen=True, slots=True)
class ServerLimits:
    header_bytes: int = 64 << 10
    body_bytes: int = 64 << 20
    header_s: float = 15.0
    """From the first byte of a request to the end of its headers."""
    body_s: float = 60.0
    """For a whole body."""
    idle_s: float = 3600.0
    """Between two requests on one connection."""
    write_s: float = 60.0
    """For a client that does not read."""
    connections: int = 1024


class Refused(Exception):
    """The request gets this answer and the connection is closed: the rest of what comes cannot be trusted."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ClientLeft(Exception):
    """Nobody is there to answer."""


Handler = Callable[["Exchange"], Awaitable[None]]


class Connection:
    """One client's connection: requests one after the other, each given to `handle`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ServerLimits) -> None:
        self.reader, self.writer, self.limits = reader, writer, limits
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)

    async def serve(self, handle: Handler) -> None:
        try:
            while await self._one(handle):
                pass
        except (ClientLeft, ConnectionError, TimeoutError, h11.ProtocolError):
            pass
        finally:
            self.writer.close()

    async def _one(self, handle: Handler) -> bool:
        """Answer one request; whether there can be another one."""
        try:
            request = await self._request()
        except h11.RemoteProtocolError as error:
            return await self._refuse(Refused(error.error_status_hint, "this is no HTTP request"))
        if request is None:
            return False
        exchange = Exchange(self, request)
        try:
            await handle(exchange)
        except Refused as refused:
            return await self._refuse(refused)
        except h11.RemoteProtocolError as error:
            return await self._refuse(Refused(error.error_status_hint, "the body is not what its headers say"))
        if self.h11.our_state is not h11.DONE or self.h11.their_state is not h11.DONE:
            return False
        self.h11.start_next_cycle()
        return True

    async def _request(self) -> h11.Request | None:
        """The next one; None when the client is done."""
        idle = self.h11.trailing_data[0] == b""
        try:
            async with asyncio.timeout(self.limits.idle_s if idle else self.limits.header_s) as waiting:
                while True:
                    event = self.h11.next_event()
                    if isinstance(event, h11.Request):
                        return event
                    if event is not h11.NEED_DATA:
                        return None
                    await self.read()
                    if idle:  # it has begun: from here on it may not dawdle
                        idle = False
                        waiting.reschedule(asyncio.get_running_loop().time() + self.limits.header_s)
        except TimeoutError:
            return None

    async def read(self) -> None:
        data = await self.reader.read(64 << 10)
        self.h11.receive_data(data)

    async def _refuse(self, refused: Refused) -> bool:
        if self.h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = msgspec.json.encode({"error": {"message": refused.message, "type": "invalid_request_error"}})
            await self.send(
                h11.Response(
                    status_code=refused.status,
                    headers=[
                        ("content-type", "application/json"),
                        ("content-length", str(len(body))),
                        ("connection", "close"),
                    ],
                ),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
        return False

    async def send(self, *events: h11.Event) -> None:
        data = b"".join(self.h11.send(event) or b"" for event in events)
        if self.writer.is_closing():
            raise ClientLeft
        self.writer.write(data)
        try:
            async with asyncio.timeout(self.limits.write_s):
                await self.writer.drain()
        except (TimeoutError, ConnectionError) as error:
            self.writer.transport.abort()
            raise ClientLeft from error


class Exchange:
    """One request and its answer."""

    def __init__(self, connection: Connection, request: h11.Request) -> None:
        self._connection = connection
        self.method = request.method.decode("ascii")
        self.path = request.target.decode("ascii", errors="replace").partition("?")[0]
        self.headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        self.status: int | None = None

    async def body(self) -> bytes:
        """The whole body, or Refused when it is too large, too slow or packed."""
        limits, connection = self._connection.limits, self._connection
        if self.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "send the body without content-encoding")
        length = self.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limits.body_bytes:
            raise Refused(413, f"the body is larger than {limits.body_bytes} bytes")
        if connection.h11.they_are_waiting_for_100_continue:
            await connection.send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_s):
                while True:
                    event = connection.h11.next_event()
                    if isinstance(event, h11.Data):
                        body += event.data
                        if len(body) > limits.body_bytes:
                            raise Refused(413, f"the body is larger than {limits.body_bytes} bytes")
                    elif event is h11.NEED_DATA:
                        await connection.read()
                    elif isinstance(event, h11.EndOfMessage):
                        return bytes(body)
                    else:
                        raise ClientLeft
        except TimeoutError as error:
            raise Refused(408, f"the body took longer than {limits.body_s:g} s") from error

    async def start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        await self._connection.send(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        if data:
            await self._connection.send(h11.Data(data=data))

    async def end(self) -> None:
        await self._connection.send(h11.EndOfMessage())

    async def answer(self, status: int, body: Json | bytes, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        given = {"content-type": "application/json", **(headers or {}), "content-length": str(len(data))}
        await self.start(status, given)
        if self.method != "HEAD":
            await self.send(data)
        await self.end()

    async def gone(self) -> None:
        """Returns when the client hangs up while it is being answered."""
        connection = self._connection
        while data := await connection.reader.read(64 << 10):
            connection.h11.receive_data(data)  # the next request, sent early
            if len(connection.h11.trailing_data[0]) > connection.limits.header_bytes:
                await asyncio.Event().wait()  # enough of that; it stays in the socket until this one is answered
