"""Gemini's own API: https://ai.google.dev/api/generate-content.

The model and the kind of answer are in the path, `/v1beta/models/MODEL:streamGenerateContent?alt=sse`. Inside the proxy
they are keys of the body like in the other APIs: `model`, `stream`, and `count` for `countTokens`. The API accepts keys
in snake case, too; the keys at the top are written in camel case before anything looks at them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from bakeoff.workloads.tasks.proxy.wire import (
    ADDED_BELOW,
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
    is_count,
    items_of,
    larger,
    objects,
    string,
    tool_call,
)

# https://cloud.google.com/apis/design/errors#handling_errors
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_PATH = re.compile(r"(?:v1|v1beta|v1alpha)/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)")


def camel(key: str) -> str:
    """`system_instruction` as `systemInstruction`."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), key)


def part_of(part: Json, key: str) -> Any:
    """A field of a content part, by its name in camel case."""
    return next((value for name, value in part.items() if camel(name) == key), None)


class GeminiAssembler(Assembler):
    """Every event is a whole response with the next parts; the last one has the reason of the end."""

    def __init__(self) -> None:
        self._body: Json = {}
        self._parts: list[Json] = []
        self._finish: Any = None

    def feed(self, event: str, data: Json) -> None:
        if "error" in data:
            self.error = str(inner(data["error"], "message") or data["error"])
        for key in ("responseId", "modelVersion", "promptFeedback"):
            if data.get(key):
                self._body[key] = data[key]
        if data.get("usageMetadata"):
            self._body["usageMetadata"] = larger(self._body.get("usageMetadata"), data["usageMetadata"])
        for candidate in objects(data.get("candidates")):
            if integer(candidate.get("index")) == 0:
                self._parts += objects(inner(candidate.get("content"), "parts"))
                self._finish = candidate.get("finishReason") or self._finish
        self.ended = bool(self._finish or inner(self._body.get("promptFeedback"), "blockReason"))

    def body(self) -> Json:
        candidate = {"content": {"role": "model", "parts": self._parts}, "finishReason": self._finish}
        return {**self._body, "candidates": [candidate]}


class Gemini(Wire):
    name: WireName = "gemini"
    path = "models/MODEL:generateContent"
    assembler = GeminiAssembler
    recorded = ("model", "stream", "count", "contents", "systemInstruction", "tools")

    def match(self, path: str, query: Mapping[str, str]) -> Json | None:
        found = _PATH.fullmatch(path.strip("/"))
        if found is None:
            return None
        if found[2] == "streamGenerateContent" and query.get("alt") != "sse":
            raise BadRequest("streamGenerateContent is served with alt=sse only")
        return {
            "model": unquote(found[1]),
            "stream": found[2] == "streamGenerateContent",
            "count": found[2] == "countTokens",
        }

    def arrived(self, body: Json, found: Json) -> Json:
        body = {camel(key): value for key, value in body.items()}
        nested = body.pop("generateContentRequest", None)  # another way to write a request of countTokens
        if isinstance(nested, dict):
            body |= {camel(key): value for key, value in nested.items()}
        if config := _settings(body):  # a key that is there in both spellings counts once, and is sent once
            body["generationConfig"] = config
        return {**body, **found}

    def address(self, sent: Json) -> str:
        model = f"models/{quote(str(sent['model']), safe='')}"
        if sent.get("count"):
            return f"{model}:countTokens"
        return f"{model}:streamGenerateContent?alt=sse" if sent.get("stream") else f"{model}:generateContent"

    def content(self, sent: Json) -> Json:
        content = {key: value for key, value in sent.items() if key not in ("model", "stream", "count")}
        if not sent.get("count") or not set(content) - {"contents"}:
            return content
        # countTokens has room for tools and instructions only in a nested request, which names its model again.
        return {"generateContentRequest": {"model": f"models/{sent['model']}", **content}}

    def messages(self, body: Json) -> list[Json]:
        system = body.get("systemInstruction")
        parts = objects(inner(system, "parts")) if isinstance(system, dict) else []
        text = system if isinstance(system, str) else "\n".join(str(part.get("text") or "") for part in parts)
        first = [{"role": "system", "content": text}] if text else []
        return first + _turns(items_of(body, "contents"))

    def tools(self, body: Json) -> list[Json]:
        listed: list[Json] = []
        for tool in items_of(body, "tools"):
            declared = objects(part_of(tool, "functionDeclarations"))
            listed += [
                function(
                    entry.get("name"),
                    entry.get("description"),
                    part_of(entry, "parametersJsonSchema") or entry.get("parameters"),
                )
                for entry in declared
            ]
            others = {key: value for key, value in tool.items() if camel(key) != "functionDeclarations"}
            listed += [others] if others else []
        return listed

    def answers(self, body: Json) -> int:
        return max(1, integer(_settings(body).get("candidateCount")))

    def limit(self, body: Json) -> int | None:
        limit = _settings(body).get("maxOutputTokens")
        return integer(limit) if is_count(limit) else None

    def capped(self, sent: Json, most: int) -> Json:
        config, most = _settings(sent), max(1, most // self.answers(sent))
        if (limit := self.limit(sent)) is not None:
            config["maxOutputTokens"] = min(limit, most)
        elif most < ADDED_BELOW:
            config["maxOutputTokens"] = most
        return {**sent, "generationConfig": config} if config else sent

    def reply(self, body: Json) -> Reply:
        candidates = objects(body.get("candidates"))
        candidate = candidates[0] if candidates else {}
        blocked = inner(body.get("promptFeedback"), "blockReason")
        content = candidate.get("content")
        turns = _turns([{"role": "model", **content}]) if isinstance(content, dict) else []
        silent = assistant("", "", []) if candidate or blocked else None
        used, usage = body.get("usageMetadata"), None
        if isinstance(used, dict):
            thoughts = integer(used.get("thoughtsTokenCount"))
            usage = Usage(
                input=integer(used.get("promptTokenCount")) + integer(used.get("toolUsePromptTokenCount")),
                cached=integer(used.get("cachedContentTokenCount")),
                output=integer(used.get("candidatesTokenCount")) + thoughts,
                reasoning=thoughts,
            )
        return Reply(
            message=turns[0] if turns else silent,
            usage=usage,
            finish=string(candidate.get("finishReason")) or string(blocked),
            id=string(body.get("responseId")),
        )

    def authorization(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def error(self, status: int, code: str, message: str) -> Json:
        reason = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]
        return {
            "error": {
                "code": status, "message": message, "status": STATUSES.get(status, "INTERNAL"), "details": reason,
            }
        }  # fmt: skip


def _settings(body: Json) -> Json:
    """The settings of a request, with keys in camel case."""
    config = body.get("generationConfig")
    return {camel(key): value for key, value in config.items()} if isinstance(config, dict) else {}


def _turns(contents: list[Json]) -> list[Json]:
    """Contents as messages in the chat shape.

    Calls of functions have no id in most versions of the API, and a result names its function. So a call gets an id
    from what it says, and a result the id of the first call of that function that has none yet.
    """
    turns: list[Json] = []
    waiting: list[tuple[str, str]] = []
    for content in contents:
        text: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        others: list[Json] = []
        for part in objects(content.get("parts")):
            call, result = part_of(part, "functionCall"), part_of(part, "functionResponse")
            if isinstance(call, dict):
                calls.append(tool_call(_id(call, len(calls)), call.get("name"), call.get("args") or {}))
                waiting.append((calls[-1]["id"], calls[-1]["function"]["name"]))
            elif isinstance(result, dict):
                own = next((id for id, name in waiting if name == result.get("name")), "")
                waiting = [(id, name) for id, name in waiting if id != own]
                response = result.get("response")
                # Google's client puts a result that is only text under one of these keys.
                only = list(response.items()) if isinstance(response, dict) else []
                plain = len(only) == 1 and only[0][0] in ("output", "result") and isinstance(only[0][1], str)
                shown = only[0][1] if plain else msgspec.json.encode(response).decode()
                turns.append({"role": "tool", "tool_call_id": str(result.get("id") or own), "content": shown})
            elif isinstance(part.get("text"), str):
                (thoughts if part.get("thought") else text).append(part["text"])
            else:
                others.append(part)
        if content.get("role") == "model":
            turns.append(assistant("".join(text), "\n".join(thoughts), calls))
        elif text or others:
            parts = [{"type": "text", "text": line} for line in text] + others
            turns.append({"role": "user", "content": parts if others else "".join(text)})
    return turns


def _id(call: Json, position: int) -> str:
    """The id of a function call: its own, or one that is the same whenever the call is repeated in a history."""
    if call.get("id"):
        return str(call["id"])
    said = msgspec.json.encode([call.get("name"), call.get("args"), position], order="sorted")
    return "call_" + hashlib.blake2b(said, digest_size=8).hexdigest()
