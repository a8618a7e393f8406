"""JSON-RPC 2.0 as every transport speaks it: messages, and errors with a code and a type.

Codes from -32000 to -32008 keep the meaning that trading agents know from the `a2a.*` protocol; those from -32010 on
are specific to this world. `error.data.type` says the same in a word, and is what a program should look at.

The parameters of each method are strict pydantic models; JSON Schemas for tools and OpenAPI are generated from them.
Unknown keys, wrong types, NaN, infinities and absurd sizes are refused. Where agents use two spellings of a parameter,
both are accepted: `size` and `amount` of a perpetual order, a position's id or market and outcome in a sale, and sides
in upper or lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

CODES: dict[str, int] = {
    "parse_error": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "internal_error": -32603,
    "not_authenticated": -32000,
    "authentication_failed": -32001,
    "agent_not_found": -32002,
    "market_not_found": -32003,
    "position_not_found": -32004,
    "insufficient_funds": -32005,
    "budget_exhausted": -32006,
    "turn_over": -32008,
    "order_rejected": -32010,
    "post_not_found": -32011,
    "chat_not_found": -32012,
    "not_permitted": -32013,
    "idempotency_conflict": -32014,
    "episode_over": -32015,
}
"""Every type of error, and its code."""

Id = str | int | float | None
LONGEST_ID = 256
"""Characters."""
LARGEST_ID = 2**63
LARGEST_BATCH = 64
"""Requests; JSON-RPC itself has no limit."""


class RpcError(Exception):
    """A call that was refused, or could not be understood. `data["type"]` is a key of CODES."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = dict(data or {})

    @property
    def type(self) -> str:
        """A key of CODES."""
        return str(self.data.get("type", ""))

    def as_json(self) -> dict[str, Any]:
        """The `error` member of a response."""
        return {"code": self.code, "message": self.message, "data": self.data}

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by the process that runs the agent; the default would pass the message alone to __init__.
        return RpcError, (self.code, self.message, self.data)


def refusal(kind: str, message: str, **data: Any) -> RpcError:
    """Return the error of a type: `raise refusal("market_not_found", "there is no market 'x'", marketId="x")`."""
    return RpcError(CODES[kind], message, {"type": kind, **data})


@dataclass(frozen=True, slots=True)
class Request:
    """One call, as it came over any transport."""

    method: str
    params: dict[str, Any]
    id: Id = None
    notification: bool = False
    """The sender expects no answer."""


def decode(content: bytes | str) -> Any:
    """Decode strict JSON: no NaN or infinities, valid UTF-8, limited nesting. Raises RpcError `parse_error`."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise refusal("parse_error", f"not JSON: {error}") from error


encode = msgspec.json.Encoder().encode
"""JSON as bytes, without spaces. One encoder for all: it is faster than `msgspec.json.encode`, and has no state."""


def read_request(message: Any) -> Request:
    """Check a decoded message and return the request in it. Raises RpcError `invalid_request` or `invalid_params`."""
    if not isinstance(message, dict):
        raise refusal("invalid_request", f"a request is a JSON object, not {_kind(message)}")
    if message.get("jsonrpc") != "2.0":
        raise refusal("invalid_request", 'a request says "jsonrpc": "2.0"')
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str):
        raise refusal("invalid_request", '"method" must be a string')
    if unknown := message.keys() - {"jsonrpc", "method", "params", "id"}:
        raise refusal("invalid_request", f"a request has no member {sorted(unknown)[0][:50]!r}")
    if params == [] or "params" not in message:  # JSON-RPC allows positional parameters; an empty list has none
        params = {}
    if not isinstance(params, dict):
        raise refusal("invalid_params", f'"params" must be an object with named values, not {_kind(params)}', path="")
    return Request(method, params, read_id(message), notification="id" not in message)


def read_id(message: Any) -> Id:
    """Return the id of a message. Raises RpcError for an id that JSON-RPC does not allow."""
    identity = message.get("id") if isinstance(message, dict) else None
    if identity is None or (isinstance(identity, str) and len(identity) <= LONGEST_ID):
        return identity
    # In Python True is an int, and JSON integers have no limit; ids must come back unchanged.
    if isinstance(identity, int | float) and not isinstance(identity, bool) and abs(identity) < LARGEST_ID:
        return identity
    raise refusal("invalid_request", f'"id" must be a string of at most {LONGEST_ID} characters, a number or null')


def id_of(message: Any) -> Id:
    """Return the id to answer an invalid request with: its own if that is valid, else None (null)."""
    try:
        return read_id(message)
    except RpcError:
        return None


def success(id: Id, result: Any) -> dict[str, Any]:
    """The response to a request that was served."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def failure(id: Id, error: RpcError) -> dict[str, Any]:
    """The response to a request that was refused; `id` is None when the request had no valid one."""
    return {"jsonrpc": "2.0", "id": id, "error": error.as_json()}


def notification(method: str, params: Any) -> bytes:
    """A request without an id, to which the other side sends no answer."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


# -- parameters of the methods

LARGEST = 1e9
"""Dollars or shares; no account ever holds this much."""


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so 5.0 is accepted for the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=128)]
Amount = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Reputation = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=500), BeforeValidator(_whole)]
Number = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_whole)]
Tick = Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_whole)]
Offset = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(_whole)]
Outcome = Annotated[Literal["YES", "NO"], BeforeValidator(_upper)]
Side = Annotated[Literal["LONG", "SHORT"], BeforeValidator(_upper)]


class Params(BaseModel):
    """Base of all parameters. Names are camelCase in JSON.

    Docstrings of subclasses and descriptions of fields are in the JSON Schemas, so they are written for agents.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class NoParams(Params):
    """No parameters."""


class Mutation(Params):
    """Base of the parameters of every method that changes something."""

    idempotency_key: Name | None = Field(
        None, description="A second call with the same key returns the first call's answer and changes nothing."
    )
    tick: Tick | None = Field(None, description="Refuse the call if the world is in another tick.")


class EndTurn(Mutation):
    """Ends a turn; safe to repeat with `tick`."""

    tick: Tick | None = Field(None, description="End the turn of this tick; does nothing if that tick has passed.")
    wait: bool = Field(True, description="Over HTTP: answer only when the next tick has begun.")

    def ends(self, tick: int) -> bool:
        """Whether this ends the turn of `tick`; an earlier turn is over already. Raises RpcError for a later one."""
        if self.tick is not None and self.tick > tick:
            raise refusal("turn_over", f"this is tick {tick}; tick {self.tick} has not begun", tick=tick)
        return self.tick in (None, tick)


class Page(Params):
    """Which of the results to return."""

    limit: Limit = Field(20, description="Maximum number of results, newest first.")
    offset: Offset = Field(0, description="Number of results to skip.")


class AboutUser(Params):
    # Other implementations of the protocol answer for any user; here accounts are private.
    user_id: Name | None = Field(None, description="Your own id; may be left out.")


class GetPredictions(AboutUser):
    status: Literal["active", "resolved"] = Field("active", description="Open or resolved questions.")


class OfMarket(Params):
    market_id: Name = Field(description='For example "market-3".')


class BuyShares(Mutation):
    """An order for shares, in dollars."""

    market_id: Name = Field(description='For example "market-3".')
    outcome: Outcome = Field(description="YES or NO.")
    amount: Amount = Field(description="Dollars to spend, fee included.")


class SellShares(Mutation):
    """Either `positionId`, or `marketId` and `outcome`."""

    position_id: Name | None = Field(None, description="From `getPositions`; instead of marketId and outcome.")
    market_id: Name | None = Field(None, description="Instead of positionId, with outcome.")
    outcome: Outcome | None = Field(None, description="YES or NO; may be left out if you hold only one of them.")
    shares: Amount = Field(description="How many shares to sell.")

    @model_validator(mode="after")
    def _names_one_position(self) -> SellShares:
        if (self.position_id is None) == (self.market_id is None):
            raise ValueError("give either positionId, or marketId and outcome")
        if self.position_id is not None and self.outcome is not None:
            raise ValueError("positionId already says the outcome")
        return self


class OpenPosition(Mutation):
    """`size` and `amount` mean the same: dollars of notional value."""

    ticker: Name = Field(description='For example "BTCX".')
    side: Side = Field(description="LONG or SHORT.")
    size: Amount | None = Field(None, description="Dollars of notional value; margin is size / leverage.")
    amount: Amount | None = Field(None, description="Another name for size.")
    leverage: float = Field(1.0, ge=1, le=100, allow_inf_nan=False, description="From 1 to the venue's limit.")

    @model_validator(mode="after")
    def _has_one_size(self) -> OpenPosition:
        if (self.size is None) == (self.amount is None):
            raise ValueError("give either size or amount")
        return self

    @property
    def notional(self) -> float:
        """Dollars of notional value, under either name."""
        size = self.amount if self.size is None else self.size
        assert size is not None
        return size


class ClosePosition(Mutation):
    """`positionId` may also be a ticker: there is one position per ticker."""

    position_id: Name = Field(description="From `getPositions`.")
    size: Amount | None = Field(None, description="Dollars of notional value to close (default: all).")


class GetTrades(Params):
    limit: Limit = Field(50, description="Maximum number of results, newest first.")
    market_id: Name | None = Field(None, description="Only trades of this market or ticker.")


class GetTradeHistory(AboutUser):
    limit: Limit = Field(50, description="Maximum number of results, newest first.")


class GetFeed(Page):
    type: Literal["post", "news", "article"] | None = Field(
        None, description="Posts of traders, or news (also called articles) of sources (default: both)."
    )
    following: Literal[False] = Field(False, description="Always false: there is no following here.")
    market_id: Name | None = Field(None, description="Only posts about this market or ticker.")


class OfPost(Params):
    post_id: Name


class CreatePost(Mutation):
    """A stated probability is scored when the market resolves and moves your reputation."""

    content: str = Field(min_length=1, max_length=5000)
    type: Literal["post"] = Field("post", description="The only type.")
    market_id: Name | None = Field(None, description="The market that the post is about.")
    outcome: Outcome | None = Field(None, description="The side you take; needs marketId.")
    probability: Probability | None = Field(None, description="Your probability of YES; needs marketId.")

    @model_validator(mode="after")
    def _names_its_market(self) -> CreatePost:
        if self.market_id is None and (self.outcome is not None or self.probability is not None):
            raise ValueError("outcome and probability need a marketId")
        return self


class GetChats(Params):
    filter: Literal["all", "dms", "groups"] = Field("all", description="There are only groups, so `dms` is empty.")


class GetChatMessages(Page):
    chat_id: Name
    limit: Limit = Field(50, description="Maximum number of results, newest first.")


class SendMessage(Mutation):
    chat_id: Name
    content: str = Field(min_length=1, max_length=5000)


class JoinGroup(Mutation):
    chat_id: Name = Field(alias="groupId")


class OfInvite(Mutation):
    """An invitation has the id of its chat."""

    chat_id: Name = Field(alias="inviteId")


class LeaveChat(Mutation):
    chat_id: Name


class GetLeaderboard(Params):
    page: Number = 1
    page_size: Limit = 100
    points_type: Name | None = Field(None, description="Ignored: reputation is the only kind of points.")
    min_points: Reputation | None = Field(None, description="Only traders with at least this reputation.")


class GetProfile(Params):
    user_id: Name = Field(description="The id of a trader, or your own.")


class GetInfo(Params):
    user_id: Name = Field(alias="agentId")


class Filters(Params):
    """Which traders `discover` returns."""

    strategies: Annotated[list[Name], Field(max_length=50)] | None = Field(None, description="Archetypes of traders.")
    min_reputation: Reputation | None = None
    markets: Annotated[list[Name], Field(max_length=50)] | None = Field(
        None, description="Ignored: every trader trades everywhere."
    )


class Discover(Params):
    filters: Filters | None = None
    limit: Limit = 20


P = TypeVar("P", bound=Params)


def read(model: type[P], params: Mapping[str, Any]) -> P:
    """Validate parameters. Raises RpcError `invalid_params` with the path of the first fault and a list of all."""
    try:
        return model.model_validate(params)
    except ValidationError as error:
        faults = [
            {"path": ".".join(map(str, fault["loc"])), "message": fault["msg"].removeprefix("Value error, ")}
            for fault in error.errors(include_url=False, include_context=False, include_input=False)[:20]
        ]
        first = faults[0]
        where = f"{first['path']}: " if first["path"] else ""
        raise refusal("invalid_params", f"{where}{first['message']}", path=first["path"], faults=faults) from error


def schema(model: type[Params]) -> dict[str, Any]:
    """Return the JSON Schema of the parameters, without titles and with references inlined.

    Chat models and MCP clients get it as a tool's schema, and not all of them resolve `$ref`.
    """
    whole = model.model_json_schema()
    inlined: dict[str, Any] = _inlined(whole, whole.pop("$defs", {}))
    return inlined


def _inlined(node: Any, parts: Mapping[str, Any]) -> Any:
    """Replace references to `parts` and drop titles, everywhere below `node`."""
    if isinstance(node, list):
        return [_inlined(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        beside = {key: item for key, item in node.items() if key != "$ref"}
        return {**_inlined(parts[node["$ref"].rpartition("/")[2]], parts), **beside}
    kept = {key: item for key, item in node.items() if not (key == "title" and isinstance(item, str))}
    return {key: _inlined(item, parts) for key, item in kept.items()}
