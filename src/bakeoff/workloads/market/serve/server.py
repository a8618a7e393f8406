"""A table of seats on a port, from the first call until the last tick or a signal.

JSON-RPC is always there. A2A and MCP are served at their own paths of the same port; their libraries take seconds to
import, so they are loaded with the first request for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.routing import Router
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bakeoff.errors import UsageError
from bakeoff.workloads.market.serve.disk_journal import DiskJournal
from bakeoff.workloads.market.serve.game import Seats
from bakeoff.workloads.market.serve.http import CONNECTION, JOIN_TIMEOUT, HttpTable

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_HEAD = 1 << 16
"""Bytes of a request's line and headers."""
HEAD_TIMEOUT = 30.0
"""Seconds from the start of a connection or request until its headers are complete."""
GRACE = 3.0
"""Seconds for answers that are being sent when the server ends."""
KEEP_ALIVE = 600
"""Seconds that a connection may be silent between requests: agents think for long, and a call on a connection that
was closed meanwhile is lost."""
MOST_CONNECTIONS = 4096
"""Open at a time; half of the process's limit for files if that is less. The oldest one without a token is closed then."""
MOST_OF_SEAT = 128
"""Connections of one seat. Its oldest idle one is closed then."""
SWITCH_INTERVAL = 0.0005
"""Seconds until Python's other threads get their turn. The journal's thread needs one after every sync, and five
milliseconds, the default, would be most of an answer's time."""
_OTHER_PROTOCOLS = ("/a2a/", "/mcp", "/.well-known/")


class Connection(HttpToolsProtocol):
    """A connection whose request heads are limited in size and time, one of a limited number.

    Before its headers are complete a client has shown no token, and it could hold connections and memory for any time
    (a slowloris attack). uvicorn 0.54 has no settings for this: with httptools it limits neither the size of headers nor
    the time until they are complete (`h11_max_incomplete_event_size` is for its slower h11 parser, and
    `timeout_keep_alive` starts only after a response).
    """

    _size = 0
    _timer: asyncio.TimerHandle | None = None
    """Runs while a head is awaited."""
    _owner: str | None = None
    """The seat whose token came with the last request."""
    most = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._number = next(_numbers)
        self._await_head()  # also for a client that connects and sends nothing
        if len(self.connections) > self.most:
            self._make_room(None, self.most)

    def belongs_to(self, seat: str) -> None:
        """Note whose connection this is, by the token of a request."""
        if self._owner != seat:
            self._owner = seat
            self._make_room(seat, MOST_OF_SEAT)

    def _make_room(self, owner: str | None, most: int) -> None:
        """Close the oldest connection of a seat, or without one, if there are more than `most` of them, or in all.

        A seat's connection is closed only while nothing is being answered on it; without such a one this one is closed.
        """
        open_ones = [each for each in self.connections if not each.transport.is_closing()]
        own = [each for each in open_ones if isinstance(each, Connection) and each._owner == owner]
        if len(open_ones if owner is None else own) > most:
            idle = [each for each in own if owner is None or each.cycle is None or each.cycle.response_complete]
            min(idle, key=lambda each: each._number, default=self).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Parsed first: the callbacks below reset the count when a head begins and stop the timer when it is complete.
        super().data_received(data)
        self._size += len(data)
        if self._timer is not None and self._size > MAX_HEAD:
            self.send_400_response(f"The head of a request has at most {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _await_head(self) -> None:
        """Start to count the bytes and the time of a head."""
        self._stop_timer()
        self._size = 0
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_numbers = itertools.count()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `serve`, which writes results before the process ends."""
        yield


class OtherProtocols:
    """A2A and MCP as an ASGI app, loaded with the first request below one of their paths."""

    def __init__(self, http: HttpTable) -> None:
        self._http = http
        self._router: Router | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(_OTHER_PROTOCOLS):
            await PlainTextResponse("Not Found", status_code=404)(scope, receive, send)
            return
        async with self._loading:  # two first requests at the same time load once
            if self._router is None:
                self._router = await asyncio.to_thread(self._load)
        await self._router(scope, receive, send)

    def _load(self) -> Router:
        """Import both libraries, on a thread, so that the other agents are served meanwhile."""
        from bakeoff.workloads.market.serve.a2a import a2a_routes
        from bakeoff.workloads.market.serve.mcp import mcp_routes

        table, call, queue = self._http.table, self._http.call, self._http.queue
        return Router([*a2a_routes(table, call, queue), *mcp_routes(table, call, queue)])


@dataclass(frozen=True, slots=True)
class Served:
    """How serving ended. `interrupted` is the signal, if there was one."""

    requests: int
    finished: bool
    interrupted: signal.Signals | None


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UsageError when the address is taken or not valid."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given as TCP. Without it every answer could wait 40 ms for the
    # delayed acknowledgement of the one before (Nagle's algorithm).
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error}; choose another with --host and --port") from error
    bound.listen(1024)
    return bound


def serve(
    table: Seats,
    bound: socket.socket,
    *,
    join_timeout: float = JOIN_TIMEOUT,
    linger: float = 0.0,
    on_finished: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    journal: DiskJournal | None = None,
) -> Served:
    """Serve until every game is over and `linger` seconds more, or until a signal comes.

    `on_finished` is called after the last tick, before the lingering; `stop` ends the server from another thread. With a
    journal nothing is answered before it is on disk. Raises StorageError when the journal cannot be written.

        with listen("127.0.0.1", 8080) as bound:
            serve(Seats([Game(world)]), bound)
    """

    async def run() -> Served:
        http = HttpTable(table, join_timeout=join_timeout, journal=journal)
        http.routes.router.default = OtherProtocols(http)
        config = uvicorn.Config(
            http.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            interface="asgi3",
            http=Connection,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(GRACE),
        )
        server = _Server(config)
        ended = asyncio.Event()
        received: list[signal.Signals] = []

        def interrupt(number: signal.Signals) -> None:
            """Called on the event loop, between two calls."""
            received.append(number)
            ended.set()

        async def end_after_last_tick() -> None:
            await http.finished.wait()
            if journal is not None:
                await journal.reached(journal.events)
            if on_finished:
                on_finished()
            await asyncio.sleep(linger)
            ended.set()

        async def end_when_stopped(stopped: threading.Event) -> None:
            while not stopped.is_set():
                await asyncio.sleep(0.05)
            ended.set()

        if threading.current_thread() is threading.main_thread():  # only there can signals be handled
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
        if journal is not None:
            journal.on_failure = ended.set
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        serving.add_done_callback(lambda _: ended.set())  # uvicorn may end by itself, for example when startup fails
        http.start()
        watchers = [asyncio.create_task(end_after_last_tick())]
        if stop is not None:
            watchers.append(asyncio.create_task(end_when_stopped(stop)))
        await ended.wait()
        for watcher in watchers:
            watcher.cancel()
        server.should_exit = True
        http.stop()
        await serving
        if journal is not None:
            with contextlib.suppress(OSError):  # `flush` tells it
                await journal.reached(journal.events)
            journal.flush()
        return Served(http.requests, table.done, received[0] if received else None)

    # Each connection is an open file, and the usual soft limit of 1,024 is for programs that use select(2).
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = max(soft, min(hard, 4 * MOST_CONNECTIONS) if hard != resource.RLIM_INFINITY else 4 * MOST_CONNECTIONS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    Connection.most = min(MOST_CONNECTIONS, soft // 2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        return asyncio.run(run())
    finally:
        sys.setswitchinterval(interval)
