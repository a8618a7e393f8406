"""MCP: every method of the table as a tool, over stdio for one seat or over streamable HTTP for all of them.

A tool's input schema is the method's own. Its result comes twice, as structured content and as JSON text; a refusal is
a tool result with `isError` and `{"error": {code, message, data}}`, which a model can read and correct.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from functools import cache
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
from bakeoff.workloads.market.scenario import rules_text
from bakeoff.workloads.market.serve.fair import SLICE, FairQueue
from bakeoff.workloads.market.serve.game import Game, Place, Seats
from bakeoff.workloads.market.serve.http import Authenticated, Call, call_now, internal_error, place_in
from bakeoff.workloads.market.session import Session

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

    Context = ServerRequestContext[Any, Any]

PATH = "/mcp"
RULES = "market://rules"
SCENARIO = "market://scenario"
INSTRUCTIONS = (
    "You trade in a simulated market world. Call observe, act with the other tools, then call endTurn: only that "
    "advances time. market://rules says how the world works, market://scenario has its fees and limits."
)


def game_server(game: Game) -> Server[Any]:
    """Return the server of a game's only seat, for the client at the other end of a pipe.

    The clock of the game starts with the first call.
    """
    session = game.seats[0].session
    timers: list[asyncio.Task[None]] = []

    async def end_ticks_at_deadlines() -> None:
        """Without deadlines this returns at once. The tick may end earlier, so the deadline is read again each time."""
        while game.deadline is not None and not game.world.done:
            tick = game.world.tick
            await asyncio.sleep(max(0.0, game.deadline - time.monotonic()))
            if time.monotonic() >= game.deadline:
                game.expire(tick)
            while game.unattended:  # in slices, so that a signal or a client that comes back is heard
                game.work_off(seconds=SLICE)
                await asyncio.sleep(0)

    async def call(_: Context, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method; the first call starts the clock."""
        if not game.opened:
            game.open()
            timers.append(asyncio.create_task(end_ticks_at_deadlines()))
        return game.call(0, name, arguments)

    return _server(lambda _: session, call)


async def serve_stdio(game: Game, interrupted: Callable[[], object]) -> None:
    """Play over standard input and output until the client leaves. A signal calls `interrupted`, between two calls."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted)
    server = game_server(game)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def mcp_routes(table: Seats, call: Call = call_now, queue: FairQueue | None = None) -> list[Route]:
    """Return the route `/mcp` for all seats of a table. Each request's token says whose it is.

    Every request is served by itself, so there is no MCP session that another agent could take over.
    """

    def place(context: Context) -> Place:
        """The place that `Authenticated` has put into the request."""
        assert context.request is not None, "HTTP transports attach the request"
        return place_in(context.request.scope)

    async def call_from(context: Context, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await call(place(context), name, arguments)

    server = _server(lambda context: place(context).session, call_from)

    async def stateless(scope: Scope, receive: Receive, send: Send) -> None:
        # A manager can run only once, and it needs a task group that lives as long as its requests: one per request.
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    return [Route(PATH, Authenticated(stateless, table, queue))]


def _server(
    session_of: Callable[[Context], Session],
    call: Callable[[Context, str, dict[str, Any]], Awaitable[dict[str, Any]]],
) -> Server[Any]:
    """Return an MCP server with all methods as tools, and rules and scenario as resources."""

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        refused = False
        try:
            answer = await call(context, params.name, params.arguments or {})
        except RpcError as error:
            # The MCP specification wants a protocol error for an unknown tool, and a result for a tool that failed.
            if error.type == "method_not_found":
                raise MCPError(types.INVALID_PARAMS, error.message, error.data) from error
            answer, refused = {"error": error.as_json()}, True
        except Exception as error:
            fault = internal_error(error, session_of(context).agent_id)
            raise MCPError(types.INTERNAL_ERROR, fault.message, fault.data) from None
        text = types.TextContent(type="text", text=encode(answer).decode())
        return types.CallToolResult(content=[text], structured_content=answer, is_error=refused)

    async def list_resources(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=_RESOURCES)

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        session, uri = session_of(context), str(params.uri)
        if uri == RULES:
            world = session.world
            text = rules_text(world.public_model(), session.action_budget, session.response_timeout)
        elif uri == SCENARIO:
            text = encode(await call(context, "a2a.getSystemStats", {})).decode()
        else:
            problem = f"there is no resource {uri[:100]!r}; there are {RULES} and {SCENARIO}"
            raise MCPError(types.INVALID_PARAMS, problem)
        mime_type = "text/markdown" if uri == RULES else "application/json"
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)])

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


@cache
def _tools() -> list[types.Tool]:
    """All methods as tools. Their schemas take milliseconds to make, so that is done once."""
    return [
        types.Tool(
            name=method.short,
            description=f"{method.description} Returns {method.result}",
            input_schema=method.schema,
            annotations=types.ToolAnnotations(read_only_hint=not method.mutates, open_world_hint=False),
        )
        for method in METHODS.values()
    ]


_RESOURCES = [
    types.Resource(uri=RULES, name="rules", description="How the world works.", mime_type="text/markdown"),
    types.Resource(
        uri=SCENARIO, name="scenario", description="Fees, limits, regime and tier.", mime_type="application/json"
    ),
]
