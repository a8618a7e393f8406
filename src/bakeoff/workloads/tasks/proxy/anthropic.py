"""The messages API: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

from typing import Any

import msgspec

from bakeoff.workloads.tasks.proxy.wire import (
    Assembler,
    BadRequest,
    Json,
    Reply,
    Usage,
    Wire,
    WireName,
    assistant,
    function,
    inner,
    integer,
    items_of,
    objects,
    string,
    text_of,
    tool_call,
)

# https://docs.anthropic.com/en/api/errors
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

SMALLEST_THINKING = 1024
"""The smallest thinking budget that the API accepts, in tokens:
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking"""


class MessagesAssembler(Assembler):
    """Blocks that grow by deltas and are told apart by index.

    https://docs.anthropic.com/en/docs/build-with-claude/streaming
    """

    def __init__(self) -> None:
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        """Pieces of text and thinking: adding one to a long text would copy the text."""
        self._inputs: dict[int, list[str]] = {}
        """Pieces of JSON text: the input of a tool call."""

    def feed(self, event: str, data: Json) -> None:
        kind, index, delta = data.get("type") or event, integer(data.get("index")), data.get("delta")
        used: Any = None
        if kind == "message_start" and isinstance(data.get("message"), dict):
            self._message = dict(data["message"])
            used = self._message.get("usage")
        elif kind == "content_block_start" and isinstance(data.get("content_block"), dict):
            self._blocks[index] = dict(data["content_block"])
        elif kind == "content_block_delta" and isinstance(delta, dict):
            block = self._blocks.setdefault(index, {"type": "text", "text": ""})
            for key in ("text", "thinking"):
                if isinstance(delta.get(key), str):
                    self._texts.setdefault((index, key), [str(block.get(key) or "")]).append(delta[key])
            if isinstance(delta.get("partial_json"), str):
                self._inputs.setdefault(index, []).append(delta["partial_json"])
        elif kind == "message_delta":
            if isinstance(delta, dict):
                self._message.update(delta)
            used = data.get("usage")
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error":
            self.error = str(inner(data.get("error"), "message") or data.get("error"))
        if isinstance(used, dict):
            # Counts are cumulative: none gets smaller, and what a later event leaves out still holds.
            for key, value in used.items():
                if value is not None and not integer(self._usage.get(key)) > integer(value):
                    self._usage[key] = value

    def body(self) -> Json:
        for (index, key), pieces in self._texts.items():
            self._blocks[index][key] = "".join(pieces)
        for index, pieces in self._inputs.items():
            text = "".join(pieces)
            try:
                parsed = msgspec.json.decode(text) if text else {}
            except msgspec.DecodeError:
                parsed = text  # cut off in the middle: keep what came
            self._blocks.setdefault(index, {"type": "tool_use"})["input"] = parsed
        content = [block for _, block in sorted(self._blocks.items())]
        return {**self._message, "content": content, "usage": self._usage or None}


class Messages(Wire):
    name: WireName = "messages"
    path = "messages"
    assembler = MessagesAssembler
    recorded = ("model", "stream", "messages", "system", "tools")
    answer_limits = ("max_tokens",)

    def messages(self, body: Json) -> list[Json]:
        # The system prompt is not a message here but a field, as text or as blocks.
        system = body.get("system")
        if system is not None and not isinstance(system, str | list):
            raise BadRequest("`system` must be text or a list of blocks")
        first = [{"role": "system", "content": text_of(system, "\n")}] if system else []
        return [*first, *(turn for message in items_of(body, "messages") for turn in _turns(message))]

    def tool(self, tool: Json) -> Json:
        if "input_schema" not in tool:  # a tool of Anthropic's, known by its `type`
            return _without_cache_mark(tool)
        return function(tool.get("name"), tool.get("description"), tool["input_schema"])

    def capped(self, sent: Json, most: int) -> Json:
        # `budget_tokens` for thinking must be below `max_tokens`, and thinking counts as part of the answer.
        thinking = integer(inner(sent.get("thinking"), "budget_tokens"))
        if thinking >= most:
            fewer = {**sent["thinking"], "budget_tokens": most - 1}
            sent = {**sent, "thinking": fewer if most > SMALLEST_THINKING else {"type": "disabled"}}
        return super().capped(sent, most)

    def reply(self, body: Json) -> Reply:
        turns = _turns({"role": "assistant", "content": body.get("content") or []})
        used, usage = body.get("usage"), None
        if isinstance(used, dict):
            # `input_tokens` does not include tokens that were read from the cache or written to it; `Usage.input` does.
            # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
            cached = integer(used.get("cache_read_input_tokens"))
            written = integer(used.get("cache_creation_input_tokens"))
            usage = Usage(
                input=integer(used.get("input_tokens")) + cached + written,
                cached=cached,
                cache_write=written,
                cache_write_1h=integer(inner(used.get("cache_creation"), "ephemeral_1h_input_tokens")),
                output=integer(used.get("output_tokens")),
                reasoning=integer(inner(used.get("output_tokens_details"), "thinking_tokens")),
            )
        return Reply(
            message=turns[0] if turns else None,
            usage=usage,
            finish=string(body.get("stop_reason")),
            id=string(body.get("id")),
        )

    def authorization(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def error(self, status: int, code: str, message: str) -> Json:
        return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message, "code": code}}


def _turns(message: Json) -> list[Json]:
    """One message with content blocks, as messages in the chat shape.

    A user message may hold results of tools beside text. The chat API has a message for each result, so the results
    come first and the text follows.
    """
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
    if message.get("role") == "assistant":
        text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
        thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
        calls = [
            tool_call(block.get("id"), block.get("name"), block.get("input") or {})
            for block in blocks
            if block.get("type") in ("tool_use", "server_tool_use")
        ]
        return [assistant(text, "\n".join(filter(None, thoughts)), calls)]
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
        role = "system" if message.get("role") == "system" else "user"
        plain = all(block.get("type") == "text" for block in others)
        parts = text_of(others, "\n") if plain else [_without_cache_mark(block) for block in others]
        turns.append({"role": role, "content": parts})
    return turns


def _without_cache_mark(block: Json) -> Json:
    """Clients move `cache_control` from block to block; it says nothing about the content."""
    return {key: value for key, value in block.items() if key != "cache_control"}
