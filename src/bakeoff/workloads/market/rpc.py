"""JSON-RPC 2.0 as every transport speaks it: messages, and errors with a code and a type.

Codes from -32000 to -32008 keep the meaning that trading agents know from the `a2a.*` protocol; those from -32010 on
are specific to this world. `error.data.type` says the same in a word, and is what a program should look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

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
