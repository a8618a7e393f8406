"""MCP: every method of the table as a tool, over stdio for one seat or over streamable HTTP for all of them.

A tool's input schema is the method's own. Its result comes back twice, as structured content and as JSON text; a
refusal is a tool result with `isError` and `{"error": {code, message, data}}`, so that a model can read and mend it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.routing import Route

from bakeoff.version import __version__
from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import RpcError, encode
from bakeoff.workloads.market.rules import rules
from bakeoff.workloads.market.serve.guard import Guarded, call_now, place_in, unexpected

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

    from bakeoff.workloads.market.serve.game import Game
    from bakeoff.workloads.market.serve.guard import Call
    from bakeoff.workloads.market.serve.table import Place, Table
    from bakeoff.workloads.market.session import Session

    Context = ServerRequestContext[Any, Any]

PATH = "/mcp"
RULES = "market://rules"
SCENARIO = "market://scenario"
INSTRUCTIONS = (
    "You trade in a simulated market world. Call observe, act with the other tools, then call endTurn: only that lets "
    "time go on. market://rules says how the world works, market://scenario has its fees and limits."
)


def game_server(game: Game) -> Server[Any]:
    """The server of a game's only seat, for whoever holds the other end of the pipe. Its clock runs from the first call."""
    session = game.seats[0].session
    clocks: list[asyncio.Task[None]] = []

    async def call(_: Context, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if not game.opened:
            game.open()
            clocks.append(asyncio.create_task(_keep_time(game)))
        return session.call(name, arguments)

    return _server(lambda _: session, call)


async def _keep_time(game: Game) -> None:
    """End each tick at its deadline; without deadlines there is nothing to do."""
    while game.deadline is not None and not game.world.done:
        tick = game.world.tick
        await asyncio.sleep(max(0.0, game.deadline - time.monotonic()))
        if time.monotonic() >= game.deadline:
            game.expire(tick)


async def serve_stdio(game: Game, interrupted: Callable[[], object]) -> None:
    """Play over standard input and output until the client leaves. A signal calls `interrupted`, between two calls."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted)
    server = game_server(game)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def mcp_routes(table: Table, call: Call = call_now) -> list[Route]:
    """All seats of a table at `/mcp`; each request's token says whose it is, so there is no session to steal."""

    async def call_from(context: Context, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await call(_place(context), name, arguments)

    server = _server(lambda context: _place(context).session, call_from)
    return [Route(PATH, Guarded(_Stateless(server), table))]


class _Stateless:
    """Serves every request by itself: nothing to start, nothing to stop, nothing that one leaves to the next."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def _place(context: Context) -> Place:
    assert context.request is not None, "HTTP transports attach the request"
    return place_in(context.request.scope)


def _server(
    session_of: Callable[[Context], Session],
    call: Callable[[Context, str, dict[str, Any]], Awaitable[dict[str, Any]]],
) -> Server[Any]:
    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return _answer(await call(context, params.name, params.arguments or {}))
        except RpcError as error:
            if error.type == "method_not_found":
                raise MCPError(types.INVALID_PARAMS, error.message, error.data) from error
            return _answer({"error": error.as_json()}, refused=True)
        except Exception as error:
            told = unexpected(error, session_of(context).agent_id)
            raise MCPError(types.INTERNAL_ERROR, told.message, told.data) from None

    async def list_resources(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=_RESOURCES)

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[_resource(session_of(context), str(params.uri))])

    return Server(
        "bakeoff-market",
        version=__version__,
        title="bakeoff market",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=method.short,
            description=f"{method.description} Gives {method.result}",
            input_schema=method.schema,
            annotations=types.ToolAnnotations(read_only_hint=not method.mutates, open_world_hint=False),
        )
        for method in METHODS.values()
    ]


def _answer(answer: dict[str, Any], refused: bool = False) -> types.CallToolResult:
    text = types.TextContent(type="text", text=encode(answer).decode())
    return types.CallToolResult(content=[text], structured_content=answer, is_error=refused)


_RESOURCES = [
    types.Resource(uri=RULES, name="rules", description="How the world works.", mime_type="text/markdown"),
    types.Resource(
        uri=SCENARIO, name="scenario", description="Fees, limits, regime and tier.", mime_type="application/json"
    ),
]


def _resource(session: Session, uri: str) -> types.TextResourceContents:
    if uri == RULES:
        return types.TextResourceContents(uri=uri, mime_type="text/markdown", text=_rules(session))
    if uri == SCENARIO:
        stats = encode(session.call("a2a.getSystemStats")).decode()
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=stats)
    raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri[:100]!r}; there are {RULES} and {SCENARIO}")


def _rules(session: Session) -> str:
    world = session.world
    return rules(world.public_model(), session.action_budget, session.response_timeout, world.ticks)
