"""What the proxy needs to know of a wire API. Messages are told in the chat shape, whatever was spoken.

A message is `{"role": system | user | assistant | tool, "content": ...}`; an assistant's may have `reasoning_content`
and `tool_calls` (`{"id", "type": "function", "function": {"name", "arguments"}}`), a tool's has `tool_call_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.usage import Usage

Json = dict[str, Any]
WireName = Literal["chat", "responses", "messages"]


class BadRequest(ValueError):
    """The client's body is not a request of this API."""


class Asked(msgspec.Struct, frozen=True):
    """A request, as far as the records want to know it."""

    model: str
    stream: bool
    messages: list[Json]
    tools: list[Json]
    parameters: Json
    """The rest: temperature, effort, limits."""
    previous: str | None = None
    """Id of the reply that this continues, where the server keeps the conversation."""


class Reply(msgspec.Struct, frozen=True):
    """A response: one assistant message. `finish` is None when the model was cut off in the middle."""

    message: Json | None = None
    usage: Usage | None = None
    tokens: Tokens | None = None
    finish: str | None = None
    id: str | None = None


class Assembler(Protocol):
    """Puts a stream's events together to the body that the same call without streaming would have returned."""

    ended: bool
    """The model finished; a stream that closes before was cut off."""
    error: str | None
    """What went wrong at the provider after the stream had begun."""

    def feed(self, event: str, data: Json) -> None: ...

    def body(self) -> Json: ...


class Wire(Protocol):
    name: WireName
    path: str
    """Below the provider's `/v1`."""

    def read(self, body: Json) -> Asked:
        """Raises BadRequest."""

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        """What is sent upstream: another model's name, and what the records need in addition."""

    def capped(self, sent: Json, most: int) -> Json:
        """What is sent upstream, with an answer of `most` tokens at most."""

    def hidden(self, body: Json, data: Json) -> bool:
        """Whether this event of the stream is one that only the proxy asked for."""

    def assembler(self) -> Assembler: ...

    def reply(self, body: Json) -> Reply: ...

    def authorization(self, key: str) -> dict[str, str]: ...

    def error(self, status: int, code: str, message: str) -> Json: ...


ADDED_BELOW = 4096
"""A limit that the client did not set is added only below this: a larger one may be more than the model allows."""


def at_most(sent: Json, most: int, *names: str) -> Json:
    """`sent` with the limits that it has under these names lowered, or the first of them added."""
    given = {name: min(sent[name], most) for name in names if isinstance(sent.get(name), int)}
    return {**sent, **(given or ({names[0]: most} if most < ADDED_BELOW else {}))}


def model_of(body: Json) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("`model` must be a string")
    return model


def items_of(body: Json, key: str) -> list[Json]:
    """A list of objects; anything else in it is refused, an absent one is empty."""
    found = body.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise BadRequest(f"`{key}` must be a list of objects")
    return found


def rest_of(body: Json, *known: str) -> Json:
    return {key: value for key, value in body.items() if key not in known}


def function(name: Any, description: Any, parameters: Any) -> Json:
    """A tool's definition in the chat shape."""
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": parameters}}


def tool_call(id: Any, name: Any, arguments: Any) -> Json:
    """A tool call in the chat shape; arguments are JSON text."""
    written = {"name": str(name or ""), "arguments": arguments_text(arguments)}
    return {"id": str(id or ""), "type": "function", "function": written}


def arguments_text(arguments: Any) -> str:
    """As JSON text; some servers write an object itself."""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def text_of(content: Any, between: str = "") -> str:
    """Text of a string, a part or a list of parts; what holds none is told as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return between.join(text_of(part, between) for part in content)
    text = inner(content, "text")
    return text if isinstance(text, str) else msgspec.json.encode(content).decode()


def assistant(text: str, reasoning: str, calls: list[Json]) -> Json:
    message: Json = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def integer(value: Any) -> int:
    """A count; anything else is none."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0


def string(value: Any) -> str | None:
    """Text, where it is text at all."""
    return value if isinstance(value, str) else None


def inner(value: Any, key: str) -> Any:
    """`value[key]` where value is an object at all."""
    return value.get(key) if isinstance(value, dict) else None


def objects(value: Any) -> list[Json]:
    """The objects in a list that somebody else wrote."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
