"""The recording proxy between agents and models: one thread, one event loop, any number of runs.

Agents reach it over a unix socket (from a sandbox without network) or over loopback, with a token that is valid for one
run. The proxy adds the real key on the way out. All calls of a run are recorded before `ProxiedRun.close` returns.

    with ModelProxy(socket=path) as proxy:
        with proxy.open(providers, "local/small", record=directory / "calls.jsonl", budget=Budget(calls=50)) as run:
            ...  # start an agent with run.token
            totals, trajectory = run.close(), run.steps()
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Collection, Mapping
from concurrent import futures
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from bakeoff.errors import StorageError, UsageError
from bakeoff.spec.experiment import Duration, Size
from bakeoff.spec.workload import Step
from bakeoff.workloads.tasks.proxy.providers import (
    PROVIDER_PATIENCE,
    Budget,
    Limit,
    Patience,
    Providers,
    Route,
    check_installed,
)
from bakeoff.workloads.tasks.proxy.records import (
    MAIN,
    Call,
    CallLog,
    Conversations,
    LimitsMet,
    ToolSet,
    Totals,
    add_up,
    read_calls,
    steps,
)
from bakeoff.workloads.tasks.proxy.shared import ExperimentBudget
from bakeoff.workloads.tasks.proxy.spending import Spending
from bakeoff.workloads.tasks.proxy.thread import ThreadedServer
from bakeoff.workloads.tasks.proxy.wire import ModelRequest

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.proxy.http import Server

TOKEN = "sk-bakeoff-"
"""How tokens begin: some clients reject a key that does not look like one."""
LAST_CALLS_S = 2.0
"""How long calls that are running when a run is closed may take to end on their own."""
MAX_SOCKET_PATH = 107
"""Bytes of a unix socket's path: `sun_path` has 108 with its final NUL, see unix(7)."""


class GatewayLimits(BaseModel):
    """`[gateway_limits]` of an experiment file: limits for the clients of a proxy, by the names in `limits_met`.

    A run that stays below them never notices. The proxy refuses a request that exceeds one, and closes its connection.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    header: Size = 64 << 10
    body: Size = 32 << 20
    """Of one request. Providers accept about as much."""
    values: Annotated[int, Field(ge=1)] = 500_000
    """Objects, lists and their elements in one body."""
    depth: Annotated[int, Field(ge=1)] = 128
    """Objects and lists inside one another in one body."""
    elements: Annotated[int, Field(ge=1)] = 20_000
    """Of one list in a body: messages, parts, tools."""
    memory: Size = 128 << 20
    """The bodies of all requests that are open at once."""
    connections: Annotated[int, Field(ge=1)] = 256
    answer: Size = 64 << 20
    """Of one answer as the provider sends it, unpacked. In a stream, a token takes a few hundred bytes."""
    record: Size = 512 << 20
    """Of a run's `calls.jsonl`. Every call must be recorded, so none is let through after that."""
    log: Size = 256 << 20
    """Of what the agent prints in a step. The sandbox drops the rest."""
    header_s: Duration = 15.0
    """From the first byte of a request to the end of its headers."""
    body_s: Duration = 60.0
    """For a whole body."""
    idle_s: Duration = 3600.0
    """Between two requests on one connection; agents may work for long before they ask again."""
    write_s: Duration = 60.0
    """For a client that does not read its answer."""
    drain_s: Duration = 30.0
    """For the rest of an answer whose client has hung up: its end says what it used."""


class ProxiedRun:
    """One run: the token for its agent, what it may spend, and the record of its calls.

    `open` of a `ModelProxy` makes it. The proxy's thread uses `route`, `write` and the mutable attributes; everything
    else is for the caller.
    """

    def __init__(
        self,
        proxy: ModelProxy,
        providers: Providers,
        model: str,
        record: Path,
        budget: Budget,
        others: Mapping[str, str],
        patience: float,
        allowed: frozenset[str],
        together: ExperimentBudget | None,
        share_cache: bool,
    ) -> None:
        self.token = TOKEN + secrets.token_urlsafe(24)
        self.record = record
        self.providers = providers
        self.began = time.monotonic()
        self.spending = Spending(budget)
        self.patience = Patience(patience)
        self.limit: Limit | None = None
        """The budget that a call has met, as soon as it has: the agent cannot do anything more."""
        self.refusals = 0
        """Calls that were refused for a budget."""
        self.over = asyncio.Event()
        """Set when the run is closed and calls that are still running have had LAST_CALLS_S."""
        self.active: set[asyncio.Task[None]] = set()
        """Tasks of the proxy's event loop that serve calls of this run."""
        self._proxy = proxy
        self._own = providers.route(model)
        self._others = {name: providers.route(target) for name, target in others.items()}
        for route in (self._own, *self._others.values()):
            route.key(providers.environment)  # a missing key is reported here, and not to the agent
            budget.check(route)
        self.model = self._own.model
        """The name to give to the agent's client. Any other name that it uses means the same model, except `others`."""
        self.together = together
        self.allowed = allowed
        """Tools and services of the provider that the agent may use, by the names of `powers.py`."""
        self.share_cache = share_cache
        """Whether the provider may find in its cache what another run has sent."""
        self.models = [model, *others]
        """What the client sees when it lists models."""
        self._count = 0
        self._refused_for_good = False
        """The record is full and says so."""
        self._unrecorded: OSError | None = None
        """Why a call could not be written to the record."""
        self._log: CallLog | None = None
        self._conversations = Conversations()
        self._tool_sets: set[str] = set()

    def close(self) -> Totals:
        """End the run: no further calls, and those that are running are ended. What was recorded, added up."""
        self._proxy.close_run(self)
        return self.totals()

    def totals(self) -> Totals:
        """What the calls so far add up to. Raises StorageError when a call could not be recorded: then nobody knows."""
        if self._unrecorded is not None:
            raise StorageError(f"{self.record}: model calls could not be recorded: {self._unrecorded}")
        totals = replace(add_up(read_calls(self.record)), limits_met=tuple(sorted(self._proxy.limits_met)))
        return totals if self._count else replace(totals, broken=self._proxy.turned_away)

    def steps(self, agent: str = MAIN) -> list[Step]:
        """The calls so far as a trajectory; `agent` is the name for the conversation in which the work was done."""
        return steps(read_calls(self.record), agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._proxy.close_run(self)

    @property
    def record_full(self) -> bool:
        """Whether no more calls can be recorded, so that none may be made."""
        return self._log is not None and self._log.size >= self._proxy.limits.record

    @property
    def answer_bytes(self) -> int:
        return self._proxy.limits.answer

    @property
    def drain_s(self) -> float:
        return self._proxy.limits.drain_s

    def scoped(self, key: str) -> str:
        """A key of a cache that the provider shares, as one that only this run has."""
        return hashlib.blake2b(f"{self.token}\0{key}".encode(), digest_size=16).hexdigest()

    def met(self, limit: str) -> None:
        """Note in the run's results that one of the proxy's limits was met."""
        self._proxy.limits_met.add(limit)

    def route(self, model: str) -> Route:
        """Where a call for this model name goes: to the run's own model, unless the name is one of `others`."""
        return self._others.get(model, self._own)

    def write(self, call: Call, request: ModelRequest | None, route: Route | None, reply_id: str | None) -> None:
        """Record a call together with what is new in its request. Raises OSError, which `totals` reports, too."""
        self._count += 1
        call.number = self._count
        if self.record_full:
            if self._refused_for_good:
                return  # the refusal is on record already; an agent could repeat it as often as it likes
            self._refused_for_good, request = call.limit == "record", None
        try:
            if self._log is None:
                self._log = CallLog(self.record)
            if request is not None and route is not None:
                self._conversations.add(call, request, reply_id)
                if request.tools:
                    call.tools = hashlib.blake2b(msgspec.json.encode(request.tools), digest_size=8).hexdigest()
                    if call.tools not in self._tool_sets:
                        self._log.add(ToolSet(call.tools, request.tools))
                        self._tool_sets.add(call.tools)
                call.provider, call.model = route.provider_name, route.model
                call.asked_model = None if request.model in (self.models[0], route.model) else request.model
                call.stream, call.parameters = request.stream, request.parameters
            self._log.add(call)
        except OSError as error:
            self._unrecorded = error
            raise

    async def finish(self) -> None:
        """Wait until every call is over and recorded, then close the record. Runs in the proxy's event loop.

        A client that has just read the end of its stream may leave its call running for a moment, so calls get
        LAST_CALLS_S. After that their clients are treated as if they had hung up: the proxy alone reads on, for the
        usage. What is left then is cancelled, and recorded, too.
        """
        if self.active:
            await asyncio.wait(self.active, timeout=LAST_CALLS_S)
        self.over.set()
        if self.active:
            await asyncio.wait(self.active, timeout=self.drain_s + 1.0)
        for task in list(self.active):
            task.cancel()
        await asyncio.gather(*self.active, return_exceptions=True)
        try:
            if self._proxy.limits_met:
                self._log = self._log or CallLog(self.record)
                self._log.add(LimitsMet(sorted(self._proxy.limits_met)))
        except OSError as error:
            self._unrecorded = error  # `totals` reports it
        finally:
            if self._log is not None:
                self._log.close()
                self._log = None


class ModelProxy(ThreadedServer):
    """The proxy: a context manager that runs an HTTP server in a thread while it is open.

    `socket` is the path of a unix socket, which can be mounted into a sandbox without network; `loopback` adds a
    port on 127.0.0.1 (see `url`) for agents without a sandbox. Raises UsageError for a path that is too long, and
    BakeoffError from `with` when it cannot listen.
    """

    title = "model proxy"

    def __init__(
        self, *, socket: Path | None = None, loopback: bool = False, limits: GatewayLimits | None = None
    ) -> None:
        if socket is None and not loopback:
            raise UsageError("a model proxy needs a socket, a loopback port or both to listen on")
        if socket is not None and len(str(socket)) > MAX_SOCKET_PATH:
            raise UsageError(
                f"{socket}: a socket's path may have {MAX_SOCKET_PATH} bytes at most\n  fix: choose a shorter directory"
            )
        super().__init__()
        self.socket = socket
        self.port: int | None = None
        self.limits = limits or GatewayLimits()
        self.runs: dict[str, ProxiedRun] = {}
        """Open runs by token."""
        self.turned_away: str | None = None
        """Why a client was rejected before its run was known: a wrong key or another API, which says nothing about
        a model."""
        self.limits_met: set[str] = set()
        """Which of `limits` a client has met."""
        self.held = 0
        """Bytes of all bodies that are in memory."""
        self._loopback = loopback
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """The address on loopback; an agent's base URL is `/v1` below it."""
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
        patience: float = PROVIDER_PATIENCE,
        allowed: Collection[str] = (),
        together: ExperimentBudget | None = None,
        share_cache: bool = True,
    ) -> ProxiedRun:
        """Begin a run that may call `model`. Raises UsageError for a missing key or price.

        `others` are further models: the name that the client uses -> the model. Calls are recorded in the file
        `record`. `patience` is how many seconds a call is repeated while its provider fails. `allowed` names tools and
        services of the provider that the agent may use, `together` is what all runs of the experiment may spend. Without
        `share_cache` each prompt begins with a text that only this run has.
        """
        run = ProxiedRun(
            self,
            providers,
            model,
            record,
            budget or Budget(),
            others or {},
            patience,
            frozenset(allowed),
            together,
            share_cache,
        )
        self.runs[run.token] = run
        return run

    def close_run(self, run: ProxiedRun) -> None:
        """Make the run's token invalid, and wait until its calls are over and recorded.

        Raises BakeoffError if the thread has failed: calls may be missing.
        """
        if self.runs.pop(run.token, None) is None or self._loop is None:
            return
        if self._thread.is_alive():
            ended = asyncio.run_coroutine_threadsafe(run.finish(), self._loop)
            while self._thread.is_alive() and not futures.wait([ended], timeout=LAST_CALLS_S).done:
                pass
            if ended.done() and not ended.cancelled():
                ended.result()
        self._check()

    def __enter__(self) -> Self:
        check_installed()
        # Imported here, because only a run that calls a model needs these libraries.
        from bakeoff.workloads.tasks.proxy.http import Server

        self._server = Server(self)
        return super().__enter__()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        assert self._server is not None
        try:
            self.port = await self._server.start(self.socket, self._loopback)
            yield
        finally:
            await self._server.stop()
            for run in self.runs.values():
                await run.finish()
            if self.socket is not None:
                self.socket.unlink(missing_ok=True)
