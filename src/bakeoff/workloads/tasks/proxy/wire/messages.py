"""The messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

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

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

FEWEST_THOUGHTS = 1024
"""Tokens for thinking that the API allows at least."""


class Messages:
    name: WireName = "messages"
    path = "messages"

    def read(self, body: Json) -> Asked:
        system = body.get("system")
        if system is not None and not isinstance(system, str | list):
            raise BadRequest("`system` must be text or a list of blocks")
        first = [{"role": "system", "content": text_of(system, "\n")}] if system else []
        return Asked(
            model=model_of(body),
            stream=body.get("stream") is True,
            messages=[*first, *(turn for message in items_of(body, "messages") for turn in _turns(message))],
            tools=[_tool(tool) for tool in items_of(body, "tools")],
            parameters=rest_of(body, "model", "stream", "messages", "system", "tools"),
        )

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        return {**body, **extra, "model": model}

    def capped(self, sent: Json, most: int) -> Json:
        """Thoughts are part of the answer, and the API refuses more of them than of it."""
        thoughts = integer(inner(sent.get("thinking"), "budget_tokens"))
        if thoughts >= most:
            fewer = {**sent["thinking"], "budget_tokens": most - 1}
            sent = {**sent, "thinking": fewer if most > FEWEST_THOUGHTS else {"type": "disabled"}}
        return at_most(sent, most, "max_tokens")

    def hidden(self, body: Json, data: Json) -> bool:
        return False

    def assembler(self) -> MessagesAssembler:
        return MessagesAssembler()

    def reply(self, body: Json) -> Reply:
        turns = _turns({"role": "assistant", "content": body.get("content") or []})
        return Reply(
            message=turns[0] if turns else None,
            usage=_usage(body.get("usage")),
            finish=string(body.get("stop_reason")),
            id=string(body.get("id")),
        )

    def authorization(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def error(self, status: int, code: str, message: str) -> Json:
        return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message, "code": code}}


def _turns(message: Json) -> list[Json]:
    """One message with blocks as messages in the chat shape: tool results first, then the text beside them."""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
    if message.get("role") == "assistant":
        return [_assistant(blocks)]
    turns: list[Json] = [
        {
            "role": "tool",
            "tool_call_id": str(block.get("tool_use_id") or ""),
            "content": text_of(block.get("content"), "\n"),
        }
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    if others:
        plain = all(block.get("type") == "text" for block in others)
        role = "system" if message.get("role") == "system" else "user"
        turns.append({"role": role, "content": text_of(others, "\n") if plain else [_part(block) for block in others]})
    return turns


def _assistant(blocks: list[Json]) -> Json:
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    calls = [
        tool_call(block.get("id"), block.get("name"), block.get("input") or {})
        for block in blocks
        if block.get("type") in ("tool_use", "server_tool_use")
    ]
    return assistant(text, "\n".join(filter(None, thoughts)), calls)


def _part(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _tool(tool: Json) -> Json:
    if "input_schema" not in tool:
        return _part(tool)
    return function(tool.get("name"), tool.get("description"), tool["input_schema"])


def _usage(used: Any) -> Usage | None:
    """This API counts cached input beside the input, not in it."""
    if not isinstance(used, dict):
        return None
    cached = integer(used.get("cache_read_input_tokens"))
    written = integer(used.get("cache_creation_input_tokens"))
    return Usage(
        input=integer(used.get("input_tokens")) + cached + written,
        cached=cached,
        cache_write=written,
        output=integer(used.get("output_tokens")),
        reasoning=integer(inner(used.get("output_tokens_details"), "thinking_tokens")),
    )


class MessagesAssembler:
    """Blocks that grow by deltas, by index."""

    def __init__(self) -> None:
        self.ended = False
        self.error: str | None = None
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}

    def feed(self, event: str, data: Json) -> None:
        kind, index = data.get("type") or event, integer(data.get("index"))
        if kind == "message_start" and isinstance(data.get("message"), dict):
            self._message = dict(data["message"])
            self._count(self._message.get("usage"))
        elif kind == "content_block_start" and isinstance(data.get("content_block"), dict):
            self._blocks[index] = dict(data["content_block"])
        elif kind == "content_block_delta" and isinstance(data.get("delta"), dict):
            self._grow(index, data["delta"])
        elif kind == "message_delta":
            if isinstance(data.get("delta"), dict):
                self._message.update(data["delta"])
            self._count(data.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error":
            self.error = str(inner(data.get("error"), "message") or data.get("error"))

    def _count(self, used: Any) -> None:
        """Later figures replace earlier ones; what a later event leaves out still holds."""
        if isinstance(used, dict):
            self._usage.update({key: value for key, value in used.items() if value is not None})

    def _grow(self, index: int, delta: Json) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        for key in ("text", "thinking"):
            if isinstance(delta.get(key), str):
                block[key] = str(block.get(key) or "") + delta[key]
        if isinstance(delta.get("partial_json"), str):
            self._inputs.setdefault(index, []).append(delta["partial_json"])

    def body(self) -> Json:
        for index, pieces in self._inputs.items():
            text = "".join(pieces)
            try:
                given = msgspec.json.decode(text) if text else {}
            except msgspec.DecodeError:
                given = text  # cut off in the middle: what there is of it
            self._blocks.setdefault(index, {"type": "tool_use"})["input"] = given
        content = [block for _, block in sorted(self._blocks.items())]
        return {**self._message, "content": content, "usage": self._usage or None}
