"""A table of seats on a port, from the first agent's call until the last tick or a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.routing import Router

from bakeoff.errors import UsageError
from bakeoff.workloads.market.serve.connection import Connection
from bakeoff.workloads.market.serve.http import JOIN_TIMEOUT, HttpTable
from bakeoff.workloads.market.serve.table import Table

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

GRACE = 3.0
"""Seconds for answers that are on their way when the server ends."""
KEEP_ALIVE = 600
"""Seconds that a connection may be silent: agents think for long, and one that is closed under them loses a call."""


@dataclass(frozen=True, slots=True)
class Served:
    """How it ended. `interrupted` names the signal, if there was one."""

    requests: int
    finished: bool
    interrupted: signal.Signals | None


_OTHER_PATHS = ("/a2a/", "/mcp", "/.well-known/")


class _OtherFaces:
    """A2A and MCP, below their own paths. Their libraries take seconds to import: they come when first asked for."""

    def __init__(self, http: HttpTable) -> None:
        self._http = http
        self._router: Router | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(_OTHER_PATHS):
            await PlainTextResponse("Not Found", status_code=404)(scope, receive, send)
            return
        async with self._building:
            if self._router is None:
                self._router = await asyncio.to_thread(self._build)
        await self._router(scope, receive, send)

    def _build(self) -> Router:
        from bakeoff.workloads.market.serve.a2a import a2a_routes
        from bakeoff.workloads.market.serve.mcp import mcp_routes

        table, call = self._http.table, self._http.call
        return Router([*a2a_routes(table, call=call), *mcp_routes(table, call)])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are ours: results are written before the process ends."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port that is taken is told before anything else happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio would not switch Nagle's algorithm off: every answer would wait 40 ms.
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
    table: Table,
    bound: socket.socket,
    *,
    join_timeout: float = JOIN_TIMEOUT,
    linger: float = 0.0,
    on_finished: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
) -> Served:
    """Serve until every game is over (and `linger` seconds more, for agents to look at the end), or a signal comes.

    `on_finished` is called when the last tick is over; `stop` ends the server from another thread.
    """
    return asyncio.run(_serve(table, bound, join_timeout, linger, on_finished, stop))


async def _serve(
    table: Table,
    bound: socket.socket,
    join_timeout: float,
    linger: float,
    on_finished: Callable[[], None] | None,
    stop: threading.Event | None,
) -> Served:
    http = HttpTable(table, join_timeout=join_timeout)
    http.app.router.default = _OtherFaces(http)
    settings = uvicorn.Config(
        http.app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        http=Connection,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(GRACE),
    )
    server = _Server(settings)
    ended = asyncio.Event()
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        received.append(number)
        ended.set()

    _on_signals(interrupt)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    serving.add_done_callback(lambda _: ended.set())
    http.start()
    watchers = [asyncio.create_task(_end_after(http, linger, ended, on_finished))]
    if stop is not None:
        watchers.append(asyncio.create_task(_end_when(stop, ended)))
    await ended.wait()
    for watcher in watchers:
        watcher.cancel()
    server.should_exit = True
    http.stop()
    await serving
    return Served(http.requests, table.done, received[0] if received else None)


async def _end_after(
    http: HttpTable, linger: float, ended: asyncio.Event, on_finished: Callable[[], None] | None
) -> None:
    await http.finished.wait()
    if on_finished:
        on_finished()
    await asyncio.sleep(linger)
    ended.set()


async def _end_when(stop: threading.Event, ended: asyncio.Event) -> None:
    while not stop.is_set():
        await asyncio.sleep(0.05)
    ended.set()


def _on_signals(told: Callable[[signal.Signals], object]) -> None:
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told, number)
