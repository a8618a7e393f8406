"""The responses API: https://platform.openai.com/docs/api-reference/responses/create."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.wire.base import (
    Assembler,
    BadRequest,
    Json,
    Reply,
    Wire,
    WireName,
    assistant,
    function,
    inner,
    items_of,
    logprobs_of,
    objects,
    openai_usage,
    string,
    text_of,
    tool_call,
)

# Item types, https://platform.openai.com/docs/api-reference/responses/object#responses/object-output. Each kind of tool
# has its own pair. `custom_tool_call` and `local_shell_call` are what Codex uses beside functions.
CALLS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "mcp_call"}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}


class ResponsesAssembler(Assembler):
    """The last event carries the whole response. Finished items serve where it leaves them out or never comes.

    https://platform.openai.com/docs/api-reference/responses-streaming
    """

    def __init__(self) -> None:
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


class Responses(Wire):
    name: WireName = "responses"
    path = "responses"
    assembler = ResponsesAssembler
    recorded = ("model", "stream", "input", "instructions", "tools")
    answer_limits = ("max_output_tokens",)

    def messages(self, body: Json) -> list[Json]:
        # `input` is one text or a list of items; the system prompt is a field beside it.
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else items_of(body, "input")
        instructions = body.get("instructions")
        if instructions is not None and not isinstance(instructions, str | list):
            raise BadRequest("`instructions` must be text")
        first = [{"role": "system", "content": text_of(instructions)}] if instructions else []
        return first + _turns(items)

    def tool(self, tool: Json) -> Json:
        # Unlike in the chat API, name and parameters are not nested below `function`.
        if tool.get("type") != "function":
            return tool
        return function(tool.get("name"), tool.get("description"), tool.get("parameters"))

    def reply(self, body: Json) -> Reply:
        output = objects(body.get("output"))
        turns = _turns(output)
        # An output of nothing but encrypted reasoning is an answer without words; no output at all is no answer.
        silent = assistant("", "", []) if isinstance(body.get("output"), list) else None
        parts = [part for item in output for part in objects(item.get("content"))]
        logprobs = [value for part in parts for value in logprobs_of(part.get("logprobs"))]
        status = string(body.get("status"))
        if status == "incomplete":  # it stopped early, and `incomplete_details` says why
            finish: str | None = str(inner(body.get("incomplete_details"), "reason") or status)
        else:  # `in_progress` and `queued` are not ends
            finish = status if status in ("completed", "failed", "cancelled") else None
        return Reply(
            message=turns[0] if turns else silent,
            usage=openai_usage(body.get("usage"), "input", "output"),
            tokens=Tokens(logprobs=logprobs) if logprobs else None,
            finish=finish,
            id=string(body.get("id")),
        )


def _turns(items: Iterable[Json]) -> list[Json]:
    """Items as messages in the chat shape.

    Reasoning, text and tool calls that the model wrote in one go are separate items here, and one assistant message in
    the chat shape. Any other item ends that message.
    """
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
            reasoning += [thought] if thought else []  # encrypted reasoning has no text
        elif kind == "message" and role == "assistant":
            text.append(text_of(item.get("content")))
        elif kind in CALLS:
            name = item.get("name") or kind.removesuffix("_call")
            # Functions have `arguments`, custom tools `input`, the shell and the web search `action`.
            arguments: Any = next((item[key] for key in ("arguments", "input", "action") if key in item), {})
            calls.append(tool_call(item.get("call_id") or item.get("id"), name, arguments))
        else:
            close()
            turns.append(_other(item, kind, role))
    close()
    return turns


def _other(item: Json, kind: str, role: Any) -> Json:
    """The result of a tool, or a message of the user or the system."""
    if kind in OUTPUTS or "output" in item:
        return {"role": "tool", "tool_call_id": str(item.get("call_id") or ""), "content": text_of(item.get("output"))}
    if kind != "message":
        return {"role": "user", "content": msgspec.json.encode(item).decode()}
    content = item.get("content")
    parts = objects(content)
    plain = isinstance(content, str) or all(part.get("type") in ("input_text", "output_text", "text") for part in parts)
    return {"role": "user" if role == "user" else "system", "content": text_of(content) if plain else parts}
