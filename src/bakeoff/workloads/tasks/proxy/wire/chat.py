"""The chat completions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.usage import Usage
from bakeoff.workloads.tasks.proxy.wire.face import (
    Asked,
    Json,
    Reply,
    WireName,
    arguments_text,
    at_most,
    inner,
    integer,
    items_of,
    model_of,
    objects,
    rest_of,
    string,
    tool_call,
)


class Chat:
    name: WireName = "chat"
    path = "chat/completions"

    def read(self, body: Json) -> Asked:
        return Asked(
            model=model_of(body),
            stream=body.get("stream") is True,
            messages=[_message(message) for message in items_of(body, "messages")],
            tools=items_of(body, "tools"),
            parameters=rest_of(body, "model", "stream", "messages", "tools", "stream_options"),
        )

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        sent = {**body, **extra, "model": model}
        if body.get("stream") is True:  # without this a stream does not say what it used
            options = body.get("stream_options")
            sent["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return sent

    def capped(self, sent: Json, most: int) -> Json:
        each = most // max(1, integer(sent.get("n")))
        return at_most(sent, each, "max_completion_tokens", "max_tokens")

    def hidden(self, body: Json, data: Json) -> bool:
        asked = inner(body.get("stream_options"), "include_usage") is True
        return not asked and data.get("choices") == [] and "usage" in data

    def assembler(self) -> ChatAssembler:
        return ChatAssembler()

    def reply(self, body: Json) -> Reply:
        choices = objects(body.get("choices"))
        choice = choices[0] if choices else {}
        given = choice.get("message")
        return Reply(
            message=_message(given) if isinstance(given, dict) else None,
            usage=_usage(body.get("usage")),
            tokens=_tokens(body, choice),
            finish=string(choice.get("finish_reason")),
            id=string(body.get("id")),
        )

    def authorization(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def error(self, status: int, code: str, message: str) -> Json:
        return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _usage(used: Any) -> Usage | None:
    if not isinstance(used, dict) or "prompt_tokens" not in used:
        return None
    details, written = used.get("prompt_tokens_details"), used.get("completion_tokens_details")
    reported = used.get("cost")
    return Usage(
        input=integer(used.get("prompt_tokens")),
        cached=integer(inner(details, "cached_tokens")),
        output=integer(used.get("completion_tokens")),
        reasoning=integer(inner(written, "reasoning_tokens")),
        cost=float(reported) if isinstance(reported, int | float) else None,
    )


def _message(given: Json) -> Json:
    """As it is, without what only that provider or that client means by it."""
    role, content = given.get("role"), given.get("content")
    kept: Json = {
        "role": "system" if role == "developer" else str(role or "assistant"),
        "content": "" if content is None else content,
    }
    reasoning = given.get("reasoning_content") or given.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        kept["reasoning_content"] = reasoning
    calls = [call for call in objects(given.get("tool_calls")) if isinstance(call.get("function"), dict)]
    if calls:
        kept["tool_calls"] = [
            tool_call(call.get("id"), call["function"].get("name"), call["function"].get("arguments") or "")
            for call in calls
        ]
    for key in ("tool_call_id", "name"):
        if given.get(key):
            kept[key] = given[key]
    return kept


def _tokens(body: Json, choice: Json) -> Tokens | None:
    """Ids and log-probabilities, under the names that the common local servers give them."""
    written = objects(inner(choice.get("logprobs"), "content"))
    logprobs = [entry["logprob"] for entry in written if isinstance(entry.get("logprob"), int | float)]
    ids = choice.get("token_ids") or [entry[key] for entry in written for key in ("token_id", "id") if key in entry]
    prompt = body.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
    if not (logprobs or ids or prompt):
        return None
    return Tokens(prompt_ids=_integers(prompt), completion_ids=_integers(ids), logprobs=[float(p) for p in logprobs])


def _integers(values: Any) -> list[int]:
    return [value for value in values if isinstance(value, int)] if isinstance(values, list) else []


class ChatAssembler:
    """Pieces of a message and of its tool calls, by index."""

    def __init__(self) -> None:
        self.ended = False
        self.error: str | None = None
        self._body: Json = {}
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, Json] = {}
        self._logprobs: list[Json] = []
        self._token_ids: list[int] = []
        self._finish: str | None = None

    def feed(self, event: str, data: Json) -> None:
        if "error" in data:
            self.error = str(inner(data["error"], "message") or data["error"])
        for key in ("id", "usage", "prompt_token_ids"):
            if data.get(key):
                self._body[key] = data[key]
        for choice in objects(data.get("choices")):
            if integer(choice.get("index")) == 0:
                self._choice(choice)

    def _choice(self, choice: Json) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if isinstance(delta.get("content"), str):
            self._content.append(delta["content"])
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        for piece in objects(delta.get("tool_calls")):
            self._tool_call(piece)
        self._logprobs += objects(inner(choice.get("logprobs"), "content"))
        self._token_ids += _integers(choice.get("token_ids"))
        if choice.get("prompt_token_ids"):
            self._body["prompt_token_ids"] = choice["prompt_token_ids"]
        if choice.get("finish_reason"):
            self._finish, self.ended = str(choice["finish_reason"]), True

    def _tool_call(self, piece: Json) -> None:
        call = self._calls.setdefault(
            integer(piece.get("index")), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.get("id") or call["id"]
        given = piece.get("function")
        call["function"]["name"] += str(inner(given, "name") or "")
        call["function"]["arguments"] += arguments_text(inner(given, "arguments") or "")

    def body(self) -> Json:
        message: Json = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        choice: Json = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return {**self._body, "choices": [choice]}
