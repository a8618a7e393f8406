"""The responses API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.usage import Usage
from bakeoff.workloads.tasks.proxy.wire.face import (
    Asked,
    BadRequest,
    Json,
    Reply,
    WireName,
    assistant,
    at_most,
    function,
    inner,
    integer,
    items_of,
    model_of,
    objects,
    rest_of,
    string,
    text_of,
    tool_call,
)

CALLS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "mcp_call"}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}


class Responses:
    name: WireName = "responses"
    path = "responses"

    def read(self, body: Json) -> Asked:
        return Asked(
            model=model_of(body),
            stream=body.get("stream") is True,
            messages=_messages(body),
            tools=[_tool(tool) for tool in items_of(body, "tools")],
            parameters=rest_of(body, "model", "stream", "input", "instructions", "tools"),
            previous=string(body.get("previous_response_id")),
        )

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        return {**body, **extra, "model": model}

    def capped(self, sent: Json, most: int) -> Json:
        return at_most(sent, most, "max_output_tokens")

    def hidden(self, body: Json, data: Json) -> bool:
        return False

    def assembler(self) -> ResponsesAssembler:
        return ResponsesAssembler()

    def reply(self, body: Json) -> Reply:
        output = objects(body.get("output"))
        turns = _turns(output)
        silent = assistant("", "", []) if isinstance(body.get("output"), list) else None
        return Reply(
            message=turns[0] if turns else silent,
            usage=_usage(body.get("usage")),
            tokens=_tokens(output),
            finish=_finish(body),
            id=string(body.get("id")),
        )

    def authorization(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def error(self, status: int, code: str, message: str) -> Json:
        return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _messages(body: Json) -> list[Json]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else items_of(body, "input")
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str | list):
        raise BadRequest("`instructions` must be text")
    first = [{"role": "system", "content": text_of(instructions)}] if instructions else []
    return first + _turns(items)


def _turns(items: Iterable[Json]) -> list[Json]:
    """Items as messages: what the model wrote in one go (reasoning, text, calls) is one assistant message."""
    turns: list[Json] = []
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[Json] = []

    def close() -> None:
        if text or reasoning or calls:
            turns.append(assistant("".join(text), "\n".join(reasoning), list(calls)))
            for pieces in (text, reasoning, calls):
                pieces.clear()

    for item in items:
        kind, role = string(item.get("type", "message")) or "", item.get("role")
        if kind == "reasoning":
            thought = text_of(item.get("summary")) or text_of(item.get("content"))
            reasoning += [thought] if thought else []  # an encrypted one has no text
        elif kind == "message" and role == "assistant":
            text.append(text_of(item.get("content")))
        elif kind in CALLS:
            calls.append(_call(item))
        else:
            close()
            turns.append(_other(item, kind, role))
    close()
    return turns


def _other(item: Json, kind: str, role: Any) -> Json:
    if kind in OUTPUTS or "output" in item:
        return {"role": "tool", "tool_call_id": str(item.get("call_id") or ""), "content": text_of(item.get("output"))}
    if kind != "message":
        return {"role": "user", "content": msgspec.json.encode(item).decode()}
    content = item.get("content")
    parts = objects(content)
    plain = isinstance(content, str) or all(part.get("type") in ("input_text", "output_text", "text") for part in parts)
    return {"role": "user" if role == "user" else "system", "content": text_of(content) if plain else parts}


def _call(item: Json) -> Json:
    name = item.get("name") or str(item["type"]).removesuffix("_call")
    arguments: Any = next((item[key] for key in ("arguments", "input", "action") if key in item), {})
    return tool_call(item.get("call_id") or item.get("id"), name, arguments)


def _tool(tool: Json) -> Json:
    if tool.get("type") != "function":
        return tool
    return function(tool.get("name"), tool.get("description"), tool.get("parameters"))


def _usage(used: Any) -> Usage | None:
    if not isinstance(used, dict):
        return None
    return Usage(
        input=integer(used.get("input_tokens")),
        cached=integer(inner(used.get("input_tokens_details"), "cached_tokens")),
        output=integer(used.get("output_tokens")),
        reasoning=integer(inner(used.get("output_tokens_details"), "reasoning_tokens")),
        cost=float(used["cost"]) if isinstance(used.get("cost"), int | float) else None,
    )


def _tokens(output: list[Json]) -> Tokens | None:
    parts = [part for item in output for part in objects(item.get("content"))]
    logprobs = [
        float(entry["logprob"])
        for part in parts
        for entry in objects(part.get("logprobs"))
        if isinstance(entry.get("logprob"), int | float)
    ]
    return Tokens(logprobs=logprobs) if logprobs else None


def _finish(body: Json) -> str | None:
    """`incomplete` says why; a response that is only in progress did not finish."""
    status = string(body.get("status"))
    if status == "incomplete":
        return str(inner(body.get("incomplete_details"), "reason") or status)
    return status if status in ("completed", "failed", "cancelled") else None


class ResponsesAssembler:
    """The last event carries the whole response; items that were done serve when it does not, or never comes."""

    def __init__(self) -> None:
        self.ended = False
        self.error: str | None = None
        self._response: Json = {}
        self._items: dict[int, Json] = {}

    def feed(self, event: str, data: Json) -> None:
        kind = str(data.get("type") or event)
        response = data.get("response")
        if isinstance(response, dict):
            self._response = response
        if kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            index = data.get("output_index")
            self._items[index if isinstance(index, int) else len(self._items)] = data["item"]
        elif kind in ("response.completed", "response.incomplete", "response.done"):
            self.ended = True
        elif kind in ("response.failed", "error"):
            reason = inner(response, "error") or data.get("error") or data
            self.error = str(inner(reason, "message") or reason)

    def body(self) -> Json:
        items = [item for _, item in sorted(self._items.items())]
        return {**self._response, "output": self._response.get("output") or items}
