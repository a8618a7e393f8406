"""The recording proxy between agents and models: one thread, one event loop, any number of runs.

Agents reach it over a unix socket (from a box without network) or loopback, with a token that is good for one run;
it adds the real key on the way out. Every call is recorded before the run is told to be over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bakeoff.errors import BakeoffError, StorageError, UsageError
from bakeoff.spec.workload import Step
from bakeoff.workloads.tasks.proxy.budget import Budget, Limit
from bakeoff.workloads.tasks.proxy.calls import read_calls
from bakeoff.workloads.tasks.proxy.http import Connection, Exchange, Refused, ServerLimits
from bakeoff.workloads.tasks.proxy.providers import Providers
from bakeoff.workloads.tasks.proxy.relay import Relay
from bakeoff.workloads.tasks.proxy.runs import Run
from bakeoff.workloads.tasks.proxy.totals import Totals, add_up
from bakeoff.workloads.tasks.proxy.transcript import MAIN, steps
from bakeoff.workloads.tasks.proxy.wire import WIRES, wire_at

STARTING_S = 10.0
LAST_CALLS_S = 2.0
"""How long calls that are under way when a run is closed may take to end by themselves."""
MAX_SOCKET_PATH = 107


class ProxiedRun:
    """The caller's end of a run: the token for its agent, and what came of its calls."""

    def __init__(self, proxy: ModelProxy, run: Run) -> None:
        self._proxy, self._run = proxy, run
        self.token = run.token
        self.model = run.route("").model
        """What to tell the agent's client; any other name that it asks for means the same."""
        self.record = run.record_path

    @property
    def limit(self) -> Limit | None:
        """The budget that a call has met, as soon as it has: nothing good comes from the agent any more."""
        return self._run.limit

    def close(self) -> Totals:
        """No further calls; those under way are ended. What was recorded, added up."""
        self._proxy._close_run(self._run)
        return self.totals()

    def totals(self) -> Totals:
        """StorageError when something could not be recorded: then nobody knows what the run did."""
        if self._run.unrecorded is not None:
            raise StorageError(f"{self.record}: model calls could not be recorded: {self._run.unrecorded}")
        records = list(read_calls(self.record))
        totals = add_up(records)
        return totals if records else replace(totals, broken=self._proxy.turned_away)

    def steps(self, agent: str = MAIN) -> list[Step]:
        """The transcript so far as a trajectory; `agent` is whose the conversation with the work in it was."""
        return steps(read_calls(self.record), agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._proxy._close_run(self._run)


class ModelProxy:
    """A context manager. `socket` is where to listen for boxes; `loopback` adds a port on 127.0.0.1 (see `url`)."""

    def __init__(
        self, *, socket: Path | None = None, loopback: bool = False, limits: ServerLimits | None = None
    ) -> None:
        if socket is None and not loopback:
            raise UsageError("a model proxy needs a socket, a loopback port or both to listen on")
        if socket is not None and len(str(socket)) > MAX_SOCKET_PATH:
            raise UsageError(f"{socket}: a socket's path may have {MAX_SOCKET_PATH} bytes; choose a shorter directory")
        self.socket = socket
        self.port: int | None = None
        self._loopback = loopback
        self._limits = limits or ServerLimits()
        self._runs: dict[str, Run] = {}
        self.turned_away: str | None = None
        """Why a client was not even listened to: a key or an API that is not ours, which no model can help."""
        self._connections: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._client: httpx.AsyncClient | None = None
        self._thread = threading.Thread(target=self._main, name="model-proxy", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens on loopback; an agent's base URL is below it."""
        if self.port is None:
            raise UsageError("this model proxy has no loopback port; create it with loopback=True")
        return f"http://127.0.0.1:{self.port}"

    def open(
        self,
        providers: Providers,
        model: str,
        *,
        record: Path,
        budget: Budget | None = None,
        others: Mapping[str, str] | None = None,
    ) -> ProxiedRun:
        """A run that may call `model` (and `others`: name the client uses -> model). UsageError if it could not work."""
        run = Run(providers, model, record, budget or Budget(), others or {})
        self._runs[run.token] = run
        return ProxiedRun(self, run)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(STARTING_S) or self._failure is not None:
            raise BakeoffError(f"the model proxy did not start: {self._failure or 'no answer'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        servers = []
        try:
            if self.socket is not None:
                servers.append(await asyncio.start_unix_server(self._connected, self.socket))
                self.socket.chmod(0o666)  # a box may run as anybody; the token decides
            if self._loopback:
                servers.append(await asyncio.start_server(self._connected, "127.0.0.1", 0))
                self.port = servers[-1].sockets[0].getsockname()[1]
            self._ready.set()
            await self._stop.wait()
        finally:
            for server in servers:
                server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            for run in self._runs.values():
                run.close()
            if self._client is not None:
                await self._client.aclose()
            if self.socket is not None:
                self.socket.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._limits.connections:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await Connection(reader, writer, self._limits).serve(self._handle)
        except asyncio.CancelledError:
            pass  # the proxy is being stopped
        finally:
            self._connections.discard(task)

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.method == "HEAD":  # some clients look whether anybody is there
            await exchange.answer(200, b"")
            return
        run = self._run_of(exchange)
        wire = wire_at(exchange.path)
        if run is None:
            await exchange.body()
            self.turned_away = "the agent's client did not send the key of its run, {api_key}"
            error = (wire or WIRES["chat"]).error(401, "invalid_api_key", "this key is not the token of a running run")
            await exchange.answer(401, error)
        elif wire is not None and exchange.method == "POST":
            await self._relay(exchange, run, Relay(exchange, run, wire, self._http()))
        else:
            await exchange.body()
            await self._other(exchange, run)

    async def _relay(self, exchange: Exchange, run: Run, relay: Relay) -> None:
        """The call as a task of the run's, so that closing the run can end it without ending the connection's loop."""
        task = asyncio.ensure_future(relay.serve())
        run.active.add(task)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        except Refused:
            raise
        except Exception as error:  # a fault of ours: recorded by the relay, told as such, and the proxy goes on
            if exchange.status is None:
                await exchange.answer(500, relay.wire.error(500, "proxy_error", type(error).__name__))
        finally:
            run.active.discard(task)

    async def _other(self, exchange: Exchange, run: Run) -> None:
        if exchange.method == "GET" and exchange.path.rstrip("/").endswith("/models"):
            listed = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in run.models]
            await exchange.answer(200, {"object": "list", "data": listed, "has_more": False})
            return
        known = ", ".join(f"/v1/{wire.path}" for wire in WIRES.values())
        status = 405 if wire_at(exchange.path) else 404
        message = f"POST to one of {known}; {exchange.path} is not served"
        self.turned_away = f"the agent's client speaks another API: {message}"
        error = WIRES["chat"].error(status, "not_found", message)
        await exchange.answer(status, error)

    def _run_of(self, exchange: Exchange) -> Run | None:
        key = exchange.headers.get("x-api-key") or exchange.headers.get("authorization", "").removeprefix("Bearer ")
        return self._runs.get(key.strip())

    def _http(self) -> httpx.AsyncClient:
        """Made at the first call: loading certificates takes longer than starting the proxy."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            # A proxy of the user's network is heeded, but not on the way to this machine.
            here = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}
            self._client = httpx.AsyncClient(limits=limits, mounts=here, follow_redirects=False)
        return self._client

    def _close_run(self, run: Run) -> None:
        if self._runs.pop(run.token, None) is None or self._loop is None or not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(_ended(run), self._loop).result()


async def _ended(run: Run) -> None:
    """Every call of the run is over and recorded."""
    if run.active:
        await asyncio.wait(run.active, timeout=LAST_CALLS_S)
    for task in list(run.active):
        task.cancel()
    await asyncio.gather(*run.active, return_exceptions=True)
    run.close()
