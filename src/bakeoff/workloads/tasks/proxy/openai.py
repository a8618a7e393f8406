"""OpenAI's two APIs.

Chat completions: https://platform.openai.com/docs/api-reference/chat/create. Many servers speak a dialect of it (vLLM,
SGLang, llama.cpp, OpenRouter, DeepSeek), so several fields have two names here.

Responses: https://platform.openai.com/docs/api-reference/responses/create.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.wire import (
    Assembler,
    BadRequest,
    Json,
    Reply,
    Wire,
    WireName,
    arguments_text,
    assistant,
    function,
    inner,
    integer,
    items_of,
    larger,
    logprobs_of,
    objects,
    openai_usage,
    string,
    text_of,
    tool_call,
)


class ChatAssembler(Assembler):
    """Joins deltas of the text and of the tool calls, which are told apart by index.

    https://platform.openai.com/docs/api-reference/chat-streaming
    """

    def __init__(self) -> None:
        self._body: Json = {}
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, Json] = {}
        self._arguments: dict[int, list[str]] = {}
        """Pieces of each call's arguments: adding one to a long text would copy the text."""
        self._logprobs: list[Json] = []
        self._token_ids: list[int] = []
        self._finish: str | None = None

    def feed(self, event: str, data: Json) -> None:
        if "error" in data:
            self.error = str(inner(data["error"], "message") or data["error"])
        for key in ("id", "prompt_token_ids"):
            if data.get(key):
                self._body[key] = data[key]
        if data.get("usage"):
            self._body["usage"] = larger(self._body.get("usage"), data["usage"])
        for choice in objects(data.get("choices")):
            if integer(choice.get("index")) == 0:
                self._add_choice(choice)

    def _add_choice(self, choice: Json) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if isinstance(delta.get("content"), str):
            self._content.append(delta["content"])
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        for piece in objects(delta.get("tool_calls")):
            # Only the first piece of a call has its id and name; the arguments come in any number of pieces.
            index, function = integer(piece.get("index")), piece.get("function")
            call = self._calls.setdefault(index, {"id": "", "type": "function", "function": {"name": ""}})
            call["id"] = piece.get("id") or call["id"]
            call["function"]["name"] += str(inner(function, "name") or "")
            self._arguments.setdefault(index, []).append(arguments_text(inner(function, "arguments") or ""))
        self._logprobs += objects(inner(choice.get("logprobs"), "content"))
        self._token_ids += _integers(choice.get("token_ids"))
        if choice.get("prompt_token_ids"):
            self._body["prompt_token_ids"] = choice["prompt_token_ids"]
        if choice.get("finish_reason"):
            self._finish, self.ended = str(choice["finish_reason"]), True

    def body(self) -> Json:
        message: Json = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        for index, call in self._calls.items():
            call["function"]["arguments"] = "".join(self._arguments[index])
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        choice: Json = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return {**self._body, "choices": [choice]}


class Chat(Wire):
    name: WireName = "chat"
    path = "chat/completions"
    assembler = ChatAssembler
    recorded = ("model", "stream", "messages", "tools", "stream_options")
    # `max_tokens` is deprecated, but older clients and most other servers still use it.
    answer_limits = ("max_completion_tokens", "max_tokens")

    def messages(self, body: Json) -> list[Json]:
        return [_message(message) for message in items_of(body, "messages")]

    def outgoing(self, body: Json, model: str, extra: Mapping[str, Any]) -> Json:
        sent = super().outgoing(body, model, extra)
        if body.get("stream") is True:
            # A stream reports its usage only if it is asked to:
            # https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options
            options = body.get("stream_options")
            sent["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return sent

    def answers(self, body: Json) -> int:
        # `best_of` answers are written and `n` of them sent.
        return max(1, integer(body.get("n")), integer(body.get("best_of")))

    def capped(self, sent: Json, most: int) -> Json:
        return super().capped(sent, max(1, most // self.answers(sent)))  # the limit counts for each of them

    def hidden(self, body: Json, data: Json) -> bool:
        # With `include_usage` an extra chunk with empty `choices` carries the usage. A client that did not ask for it
        # may index `choices[0]` in every chunk and crash.
        requested = inner(body.get("stream_options"), "include_usage") is True
        return not requested and data.get("choices") == [] and "usage" in data

    def reply(self, body: Json) -> Reply:
        """Only the first answer is recorded where a client asked for several."""
        choices = objects(body.get("choices"))
        choice = choices[0] if choices else {}
        message = choice.get("message")
        return Reply(
            message=_message(message) if isinstance(message, dict) else None,
            usage=openai_usage(body.get("usage"), "prompt", "completion"),
            tokens=_tokens(body, choice),
            finish=string(choice.get("finish_reason")),
            id=string(body.get("id")),
        )


def _message(message: Json) -> Json:
    """The message with the fields that every server knows, and none that only one provider or client understands."""
    role, content = message.get("role"), message.get("content")
    kept: Json = {
        # `developer` is the newer name of the system role.
        "role": "system" if role == "developer" else str(role or "assistant"),
        "content": "" if content is None else content,
    }
    # Not OpenAI's: vLLM and DeepSeek say `reasoning_content` (https://api-docs.deepseek.com/guides/reasoning_model),
    # OpenRouter says `reasoning`.
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        kept["reasoning_content"] = reasoning
    calls = [call for call in objects(message.get("tool_calls")) if isinstance(call.get("function"), dict)]
    if calls:
        kept["tool_calls"] = [
            tool_call(call.get("id"), call["function"].get("name"), call["function"].get("arguments") or "")
            for call in calls
        ]
    for key in ("tool_call_id", "name"):
        if message.get(key):
            kept[key] = message[key]
    return kept


def _tokens(body: Json, choice: Json) -> Tokens | None:
    """Token ids and log-probabilities, where the server reports them.

    OpenAI has log-probabilities only. vLLM adds `token_ids` to a choice and `prompt_token_ids` to the body or the
    choice (`return_token_ids` in https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html); other
    servers put an id beside each log-probability.
    """
    entries = objects(inner(choice.get("logprobs"), "content"))
    ids = choice.get("token_ids") or [entry[key] for entry in entries for key in ("token_id", "id") if key in entry]
    prompt = body.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
    logprobs = logprobs_of(entries)
    if not (logprobs or ids or prompt):
        return None
    return Tokens(prompt_ids=_integers(prompt), completion_ids=_integers(ids), logprobs=logprobs)


def _integers(values: Any) -> list[int]:
    return [value for value in values if isinstance(value, int)] if isinstance(values, list) else []


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
            used = larger(self._response.get("usage"), response.get("usage"))
            self._response = {**response, "usage": used}
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
