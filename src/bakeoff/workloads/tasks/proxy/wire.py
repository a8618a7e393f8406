"""What the proxy needs to know about a wire API, and the shape in which every API is recorded.

Whatever API a client speaks, its messages are recorded in the shape of the chat completions API:
`{"role": "system" | "user" | "assistant" | "tool", "content": ...}`. An assistant message may have `reasoning_content`
and `tool_calls` (`{"id", "type": "function", "function": {"name", "arguments"}}`); a tool message has `tool_call_id`.

Bodies come from clients and providers that nobody should trust, so every field is checked before it is used:
`integer`, `string`, `inner` and `objects` turn a value of the wrong type into "nothing" instead of an exception.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from bakeoff.spec.workload import Tokens

Json = dict[str, Any]
WireName = Literal["chat", "responses", "messages", "gemini"]
MILLION = 1_000_000

ADDED_BELOW = 4096
"""An answer limit that the client did not set is added only below this: a larger one may exceed what the model
allows."""


class BadRequest(ValueError):
    """The client's body is not a request of this API."""


class Price(BaseModel):
    """Dollars per million tokens. Cached and cache-written input cost as much as plain input unless they are set.

    `cache_write_1h` is for what a cache keeps for an hour (default: as `cache_write`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    input: NonNegativeFloat
    output: NonNegativeFloat
    cached: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None
    cache_write_1h: NonNegativeFloat | None = None

    @property
    def written(self) -> tuple[float, float]:
        """The prices of input that is written to the cache: for some minutes, and for an hour."""
        short = self.input if self.cache_write is None else self.cache_write
        return short, short if self.cache_write_1h is None else self.cache_write_1h


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one call.

    `input` includes `cached` and `cache_write`, which includes `cache_write_1h`; `output` includes `reasoning`.
    """

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """Dollars, where the provider itself reports them."""
    estimated: bool = False
    """The provider did not count; this is estimated from the length of the text."""

    @property
    def total(self) -> int:
        return self.input + self.output

    def dollars(self, price: Price | None) -> float | None:
        """The cost by the user's price, else as the provider reports it, else None: an unknown cost is never 0."""
        if price is None:
            return self.cost
        plain = max(0, self.input - self.cached - self.cache_write)
        cached = price.input if price.cached is None else price.cached
        short, hour = price.written
        hourly = min(self.cache_write, self.cache_write_1h)
        written = (self.cache_write - hourly) * short + hourly * hour
        return (plain * price.input + self.cached * cached + written + self.output * price.output) / MILLION

    def uncached_dollars(self, price: Price | None) -> float | None:
        """The cost as if the provider kept no cache."""
        return None if price is None else (self.input * price.input + self.output * price.output) / MILLION


class ModelRequest(msgspec.Struct, frozen=True):
    """The parts of a client's request that are recorded."""

    model: str
    stream: bool
    messages: list[Json]
    tools: list[Json]
    parameters: Json
    """Everything else: temperature, effort, limits."""
    previous: str | None = None
    """Id of the reply that this request continues, where the server keeps the conversation."""


class Reply(msgspec.Struct, frozen=True):
    """The parts of a response that are recorded: one assistant message and what it used."""

    message: Json | None = None
    usage: Usage | None = None
    tokens: Tokens | None = None
    finish: str | None = None
    """Why the model stopped; None when it was cut off."""
    id: str | None = None


class Assembler(ABC):
    """Builds, from the events of a stream, the body that the same call would have returned without streaming."""

    ended: bool = False
    """The model finished. A stream that closes earlier was cut off."""
    error: str | None = None
    """The provider's error message, if something went wrong after the stream had begun."""

    @abstractmethod
    def feed(self, event: str, data: Json) -> None:
        """Take one event: its name (may be empty) and its JSON data."""

    @abstractmethod
    def body(self) -> Json:
        """The response body as far as it has come."""


class Wire(ABC):
    """One wire API. Subclasses are stateless; `http.WIRES` has one instance of each."""

    name: WireName
    path: str
    """Below the provider's `/v1`."""
    recorded: tuple[str, ...]
    """Keys of a request that `read` records under names of their own; the rest are `parameters`."""
    assembler: type[Assembler]
    """`wire.assembler()` is a new one for each stream."""
    answer_limits: tuple[str, ...] = ()
    """Keys of a request that limit the answer's tokens. The first one is added where the client set none."""

    def match(self, path: str, query: Mapping[str, str]) -> Json | None:
        """What the address of a request of this API adds to its body; None for other addresses. Raises BadRequest.

        The `/v1` that some clients add to the base URL may be there or not.
        """
        return {} if path.strip("/").removeprefix("v1/") == self.path else None

    def arrived(self, body: Json, found: Json) -> Json:
        """A client's body with what `match` found in its address."""
        return {**body, **found}

    def address(self, sent: Json) -> str:
        """Where a request goes, below the provider's base URL."""
        return self.path

    def content(self, sent: Json) -> Json:
        """The body of a request as the provider gets it."""
        return sent

    def read(self, body: Json) -> ModelRequest:
        """The recorded parts of a request body. Raises BadRequest."""
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequest("`model` must be a string")
        return ModelRequest(
            model=model,
            stream=body.get("stream") is True,
            messages=self.messages(body),
            tools=self.tools(body),
            parameters={key: value for key, value in body.items() if key not in self.recorded},
            previous=string(body.get("previous_response_id")),
        )

    @abstractmethod
    def messages(self, body: Json) -> list[Json]:
        """The request's messages in the chat shape. Raises BadRequest."""

    def tools(self, body: Json) -> list[Json]:
        """The request's tools in the chat shape. Raises BadRequest."""
        return [self.tool(tool) for tool in items_of(body, "tools")]

    def tool(self, tool: Json) -> Json:
        """A tool definition in the chat shape; a tool that runs on the provider's side stays as it is."""
        return tool

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        """The body that is sent to the provider: the provider's model name, and the table's `request` on top."""
        return {**body, **extra, "model": model}

    def capped(self, sent: Json, most: int) -> Json:
        """`sent` with an answer of at most `most` tokens: limits are lowered, or the first one is added."""
        names = self.answer_limits
        lowered = {name: min(integer(sent[name]), most) for name in names if is_count(sent.get(name))}
        if not lowered and most >= ADDED_BELOW:
            return sent
        # A limit that is no count (-1) means none to some servers.
        return {key: value for key, value in sent.items() if key not in names} | (lowered or {names[0]: most})

    def answers(self, body: Json) -> int:
        """How many answers a request asks for; each may be as long as `limit` says."""
        return 1

    def limit(self, body: Json) -> int | None:
        """Most tokens of each answer, where the request sets a limit.

        Of two limits the larger one: servers differ in which of them they know.
        """
        limits = [body[name] for name in self.answer_limits if body.get(name) is not None]
        return max(map(integer, limits)) if limits and all(map(is_count, limits)) else None

    def hidden(self, body: Json, data: Json) -> bool:
        """Whether this event answers something that only the proxy asked for, so the client must not see it."""
        return False

    @abstractmethod
    def reply(self, body: Json) -> Reply:
        """The recorded parts of a response body."""

    def authorization(self, key: str) -> dict[str, str]:
        """The headers that carry the provider's key."""
        return {"authorization": f"Bearer {key}"}

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body as clients of this API expect it."""
        # https://platform.openai.com/docs/guides/error-codes; both OpenAI APIs use this shape.
        return {"error": {"message": message, "type": code, "param": None, "code": code}}


def openai_usage(used: Any, read: str, written: str) -> Usage | None:
    """The `usage` of OpenAI's two APIs, which differ only in their words for input and output.

    Chat completions say `prompt` and `completion`, responses say `input` and `output`. `cost` is not OpenAI's: gateways
    such as OpenRouter report it in dollars (https://openrouter.ai/docs/use-cases/usage-accounting).
    """
    if not isinstance(used, dict) or f"{read}_tokens" not in used:
        return None
    return Usage(
        input=integer(used.get(f"{read}_tokens")),
        cached=integer(inner(used.get(f"{read}_tokens_details"), "cached_tokens")),
        output=integer(used.get(f"{written}_tokens")),
        reasoning=integer(inner(used.get(f"{written}_tokens_details"), "reasoning_tokens")),
        cost=amount(used.get("cost")),
    )


def json_object(text: bytes | str) -> Json | str:
    """The JSON object in a body or an event, or a sentence that says why there is none."""
    try:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            if isinstance(text, bytes) and b"\\u" not in text:
                raise
            # Clients cut text in the middle of a character and send half a surrogate pair ("\\ud83d"), which only the
            # standard parser accepts. It becomes "?", because nothing after this could encode it.
            whole = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
            value = msgspec.json.decode(whole)
    except (ValueError, RecursionError) as error:
        return f"the body is not JSON: {error}"
    return value if isinstance(value, dict) else "the body must be a JSON object"


def items_of(body: Json, key: str) -> list[Json]:
    """A list of objects in a request; an absent one is empty. Raises BadRequest for anything else."""
    items = body.get(key)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadRequest(f"`{key}` must be a list of objects")
    return items


def function(name: Any, description: Any, parameters: Any) -> Json:
    """A tool definition in the chat shape."""
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": parameters}}


def tool_call(id: Any, name: Any, arguments: Any) -> Json:
    """A tool call in the chat shape."""
    return {
        "id": str(id or ""),
        "type": "function",
        "function": {"name": str(name or ""), "arguments": arguments_text(arguments)},
    }


def arguments_text(arguments: Any) -> str:
    """Arguments as JSON text, which the chat API wants; some servers send the object itself."""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def assistant(text: str, reasoning: str, calls: list[Json]) -> Json:
    """An assistant message in the chat shape."""
    message: Json = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def text_of(content: Any, between: str = "") -> str:
    """The text of a string, a content part or a list of parts; a part without text becomes JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return between.join(text_of(part, between) for part in content)
    text = inner(content, "text")
    return text if isinstance(text, str) else msgspec.json.encode(content).decode()


def logprobs_of(entries: Any) -> list[float]:
    """The log-probabilities in a list of `{"token": ..., "logprob": ...}`."""
    values = [entry.get("logprob") for entry in objects(entries)]
    return [float(value) for value in values if isinstance(value, int | float)]


def integer(value: Any) -> int:
    """A count; 0 for anything that cannot be one. Servers take "8" for 8, as JSON of protocol buffers writes numbers."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 0
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0


def is_count(value: Any) -> bool:
    """Whether a value is a number above 0, as a limit or a count is; servers take `1e3` for 1000, too."""
    return not isinstance(value, bool) and integer(value) > 0


def amount(value: Any) -> float | None:
    """An amount of money; None for anything that cannot be one."""
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if valid else None


def larger(one: Any, other: Any) -> Any:
    """The one of two reports of usage that counts more tokens. A stream may report several times."""

    def total(used: Any) -> int:
        return sum(integer(value) for value in used.values()) if isinstance(used, dict) else -1

    return one if total(one) > total(other) else other


def string(value: Any) -> str | None:
    """The value if it is text, else None."""
    return value if isinstance(value, str) else None


def inner(value: Any, key: str) -> Any:
    """`value[key]` if value is an object, else None."""
    return value.get(key) if isinstance(value, dict) else None


def objects(value: Any) -> list[Json]:
    """The objects in a list; nothing if it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
