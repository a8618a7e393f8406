"""Standard A2A, protocol 1.0 and 0.3: the world is an agent that answers every message of the seat's agent.

A message carries a data part `{"operation": ..., "params": {...}}` (`action` and `method` mean the same), or that
object as JSON text; the operation is a method of the table, with or without its prefix. The answer is a direct
message with one part of the same kind, `{"result": ...}`; a refusal is an error of the protocol whose data has the
`type` and `code` that the other protocols use.

A token is a seat, and a seat's episode is one context. It is one task too: TASK_STATE_INPUT_REQUIRED means "your move",
and a message that names the task gets the task back, with the answer as its status message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from a2a.helpers import get_data_parts, get_text_parts, new_data_part, new_message, new_text_part
from a2a.server.request_handlers import RequestHandler, validate_request_params
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import DefaultServerCallContextBuilder, create_jsonrpc_routes
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bakeoff.version import __version__
from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import RpcError, decode, encode, refusal
from bakeoff.workloads.market.serve.fair import FairQueue
from bakeoff.workloads.market.serve.game import Place, Seats
from bakeoff.workloads.market.serve.http import Authenticated, Call, call_now, internal_error, place_in

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.events import Event

for _name in ("a2a.server.routes.jsonrpc_dispatcher", "a2a.compat.v0_3.jsonrpc_adapter"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # faults of a request are answered; they need no log here

PATH = "/a2a/v1"
JSON = "application/json"
_PLACE = "place"

_SKILLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "turns": ("Observe the world and end a turn", ("observe", "endTurn", "getSystemStats")),
    "prediction-markets": (
        "Trade shares of questions that resolve to YES or NO",
        ("getPredictions", "getMarketData", "getMarketPrices", "buyShares", "sellShares"),
    ),
    "perpetual-futures": ("Trade perpetual futures on margin", ("getPerpetuals", "openPosition", "closePosition")),
    "portfolio-balance": (
        "Look up your own account",
        ("getBalance", "getPortfolio", "getPositions", "getDashboard", "getUserWallet", "getTradeHistory"),
    ),
    "social-feed": ("Read news and rumours, post claims", ("getFeed", "getPost", "createPost", "getTrendingTags")),
    "messaging-chats": (
        "Use group chats that invite by reputation",
        ("getChats", "getChatMessages", "sendMessage", "getGroupInvites", "acceptGroupInvite", "joinGroup"),
    ),
}
"""Each skill: what it does, and its operations. `agent_card` adds one for all other methods."""
_ERRORS: dict[str, type[errors.A2AError]] = {
    "method_not_found": errors.MethodNotFoundError,
    "invalid_request": errors.InvalidRequestError,
    "parse_error": errors.InvalidRequestError,
    "internal_error": errors.InternalError,
    **dict.fromkeys(
        ("invalid_params", "market_not_found", "position_not_found", "post_not_found", "chat_not_found"),
        errors.InvalidParamsError,
    ),
}
"""The protocol's error for each of our types; all others are `UnsupportedOperationError`."""
_ONE_PART = 'send one part: {"operation": ..., "params": {...}} as data, or as JSON text'


def a2a_routes(table: Seats, call: Call = call_now, queue: FairQueue | None = None) -> list[Route]:
    """Return the routes of the agent card and of one endpoint that speaks both versions of the protocol.

    The card names the address at which it was requested.
    """

    async def card(request: Request) -> JSONResponse:
        return JSONResponse(agent_card_to_dict(agent_card(str(request.base_url))))

    endpoints = create_jsonrpc_routes(SeatHandler(call), PATH, context_builder=_SeatContext(), enable_v0_3_compat=True)
    return [
        Route(AGENT_CARD_WELL_KNOWN_PATH, card, methods=["GET"]),
        *(Route(route.path, Authenticated(route.app, table, queue), methods=["POST"]) for route in endpoints),
    ]


def agent_card(base_url: str) -> pb.AgentCard:
    """Return the public description of the world as an A2A agent."""
    url = base_url.rstrip("/") + PATH
    named = {operation for _, operations in _SKILLS.values() for operation in operations}
    others = tuple(method.short for method in METHODS.values() if method.short not in named)
    skills = {**_SKILLS, "stats-discovery": ("Look up other traders and statistics of the world", others)}
    return pb.AgentCard(
        name="bakeoff market",
        description="A simulated world of prediction markets, perpetual futures and a social feed. "
        "Each message is one operation; time advances when you end your turn.",
        version=__version__,
        supported_interfaces=[
            pb.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            for version in ("1.0", "0.3")
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=[JSON, "text/plain"],
        default_output_modes=[JSON, "text/plain"],
        security_schemes={
            "seat": pb.SecurityScheme(
                http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="bearer", description="The token of a seat.")
            )
        },
        security_requirements=[pb.SecurityRequirement(schemes={"seat": pb.StringList()})],
        skills=[
            pb.AgentSkill(
                id=name,
                name=purpose,
                description="Operations: " + ", ".join(operations),
                tags=["market", *name.split("-")],
                examples=[encode({"operation": operations[0], "params": {}}).decode()],
            )
            for name, (purpose, operations) in skills.items()
        ],
    )


class _SeatContext(DefaultServerCallContextBuilder):
    """Passes the seat that the token opened on to the handler."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[_PLACE] = place_in(request.scope)
        return context


class SeatHandler(RequestHandler):
    """Answers messages from the seat's session. It keeps no state: the task is a view of the session."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @validate_request_params
    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Message | pb.Task:
        """Answer a message with a message, or with the task if the message names it."""
        place: Place = context.state[_PLACE]
        message = params.message
        if message.task_id and message.task_id != task_of(place):
            raise errors.TaskNotFoundError(f"your episode is the task {task_of(place)}")
        if message.context_id and message.context_id != context_of(place):
            raise errors.InvalidParamsError(
                f"your episode is the context {context_of(place)}", {"type": "not_permitted", "path": "contextId"}
            )
        # Answered in kind: a client that sends text may not be able to read data parts.
        as_text = not any(part.HasField("data") for part in message.parts)
        try:
            operation, arguments = read_operation(message)
            answer = {"result": await self._call(place, operation, arguments)}
        except RpcError as error:
            raise as_a2a(error) from error
        except Exception as error:
            raise as_a2a(internal_error(error, place.name)) from None
        part = new_text_part(encode(answer).decode(), JSON) if as_text else _data_part(answer)
        if message.task_id:
            return episode(place, new_message([part], context_of(place), task_of(place)))
        return new_message([part], context_of(place))

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Stream the one answer: many clients ask for streams by default."""
        yield await self.on_message_send(params, context)

    @validate_request_params
    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        """Return the seat's episode, the only task that it can see."""
        place: Place = context.state[_PLACE]
        if params.id != task_of(place):
            raise errors.TaskNotFoundError(f"your episode is the task {task_of(place)}")
        return episode(place)

    @validate_request_params
    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """Return the seat's episode if it matches the filters. An unset protobuf field is "" or 0."""
        place: Place = context.state[_PLACE]
        task = episode(place)
        matches = params.context_id in ("", task.context_id) and params.status in (0, task.status.state)
        tasks = [task] if matches else []
        return pb.ListTasksResponse(tasks=tasks, page_size=params.page_size or 50, total_size=len(tasks))

    @validate_request_params
    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        raise errors.TaskNotCancelableError("an episode ends with its last tick")

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Send the task once: only the seat's own messages and the clock change it."""
        yield await self.on_get_task(pb.GetTaskRequest(id=params.id), context)

    # The base class declares all of the following as abstract. A world pushes nothing, and its card is the same for all.

    async def _no_push(self, params: Any, context: ServerCallContext) -> Any:
        raise errors.PushNotificationNotSupportedError

    on_create_task_push_notification_config = _no_push
    on_get_task_push_notification_config = _no_push
    on_list_task_push_notification_configs = _no_push
    on_delete_task_push_notification_config = _no_push

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        raise errors.ExtendedAgentCardNotConfiguredError


# -- messages


def read_operation(message: pb.Message) -> tuple[str, dict[str, Any]]:
    """Return the one operation that a message asks for, and its parameters. Raises RpcError."""
    try:
        parts = [_narrowed(data) for data in get_data_parts(message.parts)]
    except ValueError as error:  # infinity or NaN
        raise refusal("invalid_params", f"data that JSON cannot hold: {error}", path="") from error
    if not parts:
        try:
            parts = [decode(text) for text in get_text_parts(message.parts)]
        except RpcError as error:
            raise refusal("parse_error", f"{_ONE_PART}; this text is {error}") from error
    if len(parts) != 1 or not isinstance(parts[0], dict):
        raise refusal("invalid_request", _ONE_PART)
    content: dict[str, Any] = parts[0]
    names = [key for key in ("operation", "action", "method") if key in content]
    if len(names) != 1 or not isinstance(content[names[0]], str):
        raise refusal("invalid_request", 'say what to do in "operation" (or "action", or "method"), once, as a string')
    if unknown := content.keys() - {names[0], "params", "jsonrpc", "id"}:
        raise refusal("invalid_request", f"{sorted(unknown)[0][:50]!r} has no meaning here; parameters go into params")
    params = content.get("params", {})
    if not isinstance(params, dict):
        raise refusal("invalid_params", '"params" must be an object with named values', path="")
    return content[names[0]], params


def _narrowed(value: Any) -> Any:
    """Return whole numbers as integers again: protobuf's `Value` has only doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _narrowed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_narrowed(item) for item in value]
    return value


def _data_part(answer: dict[str, Any]) -> pb.Part:
    """Return an answer as data, by way of the JSON that the other protocols send, so that all of them are equal."""
    return new_data_part(decode(encode(answer)), JSON)


def as_a2a(error: RpcError) -> errors.A2AError:
    """Return the protocol's own error, with ours in its data. (Codes -32001 to -32009 mean other things in A2A.)"""
    kind = _ERRORS.get(error.type, errors.UnsupportedOperationError)
    return kind(error.message, {**error.data, "code": error.code})


# -- the episode as context and task


def context_of(place: Place) -> str:
    """Id of the episode as an A2A context."""
    return f"episode-{place.name}"


def task_of(place: Place) -> str:
    """Id of the episode as an A2A task."""
    return f"play-{place.name}"


def episode(place: Place, answer: pb.Message | None = None) -> pb.Task:
    """Return the episode as a task, with the result as an artifact once it is over."""
    done = place.session.world.done
    state = pb.TaskState.TASK_STATE_COMPLETED if done else pb.TaskState.TASK_STATE_INPUT_REQUIRED
    task = pb.Task(id=task_of(place), context_id=context_of(place), status=pb.TaskStatus(state=state, message=answer))
    if done:
        parts = [_data_part({"result": place.session.call("a2a.getPortfolio")})]
        task.artifacts.append(pb.Artifact(artifact_id="result", name="result.json", parts=parts))
    return task
