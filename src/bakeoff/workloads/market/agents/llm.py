"""An agent that is a language model behind any OpenAI-compatible endpoint: chat completions with tool calls.

In each turn the model gets the observation and the methods as tools; it is asked again with their results until it
calls `endTurn`, calls no tool, or has used its calls for the tick. Everything it read and wrote is recorded: messages,
usage, and token ids and log-probabilities where the server gives them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from bakeoff.workloads.market import methods, rpc
from bakeoff.workloads.market.agents.face import Brief, LlmCall, Seat
from bakeoff.workloads.market.rpc import RpcError

BASE_URL = "https://api.openai.com/v1"
READING_TOOLS = ("a2a.getFeed", "a2a.getChatMessages", "a2a.getTrades", "a2a.getPredictions")
"""Offered by default beside the tools that change something; the observation has the rest."""
LONGEST_RESULT = 20_000
"""Characters of a tool's result that the model gets to see."""
LARGEST_ANSWER = 1 << 23
"""Bytes; what is longer is given up."""
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_PAUSE = 0.25
_INSTRUCTIONS = "\n\nIn each turn you get an observation as JSON. Use the tools to act. Call endTurn when you are done with the tick."


class ModelFailed(Exception):
    """The server gave no usable answer."""


class LlmAgent:
    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        max_calls: int = 8,
        memory: int = 4,
        timeout: float = 60.0,
        retries: int = 2,
        tools: Sequence[str] | None = None,
        system: str | None = None,
        logprobs: bool = False,
        extra: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        """`base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY.

        `max_calls` bounds the calls to the model in one tick, `memory` the earlier ticks that stay in the conversation,
        `timeout` the seconds of one call. `tools` are names of methods; `system` replaces the rules; `extra` is added to
        the request's body (`{"return_token_ids": true}` asks some servers for token ids).
        """
        self.name = name or f"llm:{model}"
        self.model = model
        self._url = (base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL).rstrip("/") + "/chat/completions"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        self._max_calls, self._memory, self._timeout, self._retries = max_calls, memory, timeout, retries
        self._system = system
        self.tool_definitions = _offered(tools)
        self._settings: dict[str, Any] = {"model": model, "tools": self.tool_definitions, **(extra or {})}
        self._settings |= {"temperature": temperature} if temperature is not None else {}
        self._settings |= {"max_tokens": max_tokens} if max_tokens is not None else {}
        self._settings |= {"logprobs": True} if logprobs else {}
        self._client: httpx.Client | None = None
        self._past: list[list[dict[str, Any]]] = []

    def reset(self, brief: Brief) -> None:
        self.close()
        self._past = []
        self._opening = {"role": "system", "content": self._system or brief.rules + _INSTRUCTIONS}
        self._client = httpx.Client(headers={"authorization": f"Bearer {self._key}"} if self._key else {})

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def act(self, seat: Seat) -> None:
        turn: list[dict[str, Any]] = [{"role": "user", "content": rpc.encode(seat.observe()).decode()}]
        try:
            for _ in range(self._max_calls):
                message = self._ask(seat, turn)
                turn.append(message)
                if not self._use_tools(seat, turn, message.get("tool_calls") or []):
                    break
        finally:
            self._remember(turn)

    # -- the conversation

    def _remember(self, turn: list[dict[str, Any]]) -> None:
        """Earlier turns stay whole or not at all: a tool's result without its call is refused by servers."""
        if turn[-1]["role"] == "assistant" and turn[-1].get("tool_calls"):
            turn = turn[:-1]
        self._past = [*self._past, turn][-self._memory :] if self._memory else []

    def _use_tools(self, seat: Seat, turn: list[dict[str, Any]], calls: list[dict[str, Any]]) -> bool:
        """Whether the turn goes on."""
        goes_on = bool(calls)
        for call in calls:
            result, ends = _used(seat, call["function"]["name"], call["function"]["arguments"])
            content = rpc.encode(result).decode()
            if len(content) > LONGEST_RESULT:
                content = content[:LONGEST_RESULT] + " ... (cut)"
            turn.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            goes_on = goes_on and not ends
        return goes_on

    # -- the server

    def _ask(self, seat: Seat, turn: list[dict[str, Any]]) -> dict[str, Any]:
        """The model's next message. What it cost and said is recorded, failed tries too."""
        sent = [self._opening, *(message for past in self._past for message in past), *turn]
        for attempt in range(self._retries + 1):
            began = time.perf_counter()
            call = LlmCall(messages=list(sent), model=self.model)
            seat.record_llm(call)
            try:
                return _taken(self._post(seat, {**self._settings, "messages": sent}), call)
            except _Again as error:
                call.error = str(error)
                if attempt == self._retries or not self._pause(seat, max(error.pause, _FIRST_PAUSE * 2**attempt)):
                    raise ModelFailed(str(error)) from error
            except ModelFailed as error:
                call.error = str(error)
                raise
            finally:
                call.latency_s = time.perf_counter() - began
        raise AssertionError("unreachable")

    def _post(self, seat: Seat, body: dict[str, Any]) -> Any:
        assert self._client, "reset comes first"
        left = seat.seconds_left
        timeout = self._timeout if left is None else max(0.001, min(self._timeout, left))
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                content = _whole(response, time.monotonic() + timeout)
        except httpx.TimeoutException as error:
            raise _Again(f"no answer from {self._url} within {timeout:.3g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Again(f"{self._url}: {error}") from error
        said = f"{self._url} answered {response.status_code}: {content[:200].decode(errors='replace')}"
        if response.status_code in _RETRIED:
            raise _Again(said, _seconds(response.headers.get("retry-after", "")))
        if response.status_code != 200:
            raise ModelFailed(said)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            raise ModelFailed(f"{self._url} streams its answer, which must come whole: ask for it without `stream`")
        try:
            return rpc.decode(content)
        except RpcError as error:
            raise _Again(f"{self._url} answered what is not JSON") from error

    def _pause(self, seat: Seat, pause: float) -> bool:
        """Whether there is time for another try."""
        left = seat.seconds_left
        if pause >= (self._timeout if left is None else left):
            return False
        time.sleep(pause)
        return True


class _Again(Exception):
    """The call failed in a way that may pass, after `pause` seconds if the server knows."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


def _whole(response: httpx.Response, deadline: float) -> bytes:
    """The body. The client's own timeout is about each read: a body that drips would never end."""
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer is not complete")
        if len(content) > LARGEST_ANSWER:
            raise ModelFailed(f"{response.url} answered with more than {LARGEST_ANSWER} bytes")
    return bytes(content)


def _seconds(retry_after: str) -> float:
    """A date, which the header may also have, is not waited for."""
    return float(retry_after) if re.fullmatch(r"\d{1,9}(\.\d+)?", retry_after) else 0.0


def _offered(names: Sequence[str] | None) -> list[dict[str, Any]]:
    if names is None:
        wanted = {name for name, method in methods.METHODS.items() if method.mutates or name in READING_TOOLS}
    else:
        wanted = {methods.find(name).name for name in names} | {methods.END_TURN}
    return [methods.tool(method) for name, method in methods.METHODS.items() if name in wanted]


def _used(seat: Seat, name: str, arguments: str) -> tuple[Any, bool]:
    """A tool's result, and whether the turn is over."""
    try:
        try:
            params = rpc.decode(arguments or "{}")
        except RpcError as error:
            raise rpc.refusal("invalid_params", f"arguments: {error}", path="") from error
        if not isinstance(params, dict):
            raise rpc.refusal("invalid_params", "the arguments must be a JSON object", path="")
        if methods.find(name).name == methods.END_TURN:
            return {"ended": True}, True
        return seat.call(name, params), False
    except RpcError as error:
        return {"error": error.as_json()}, error.type in ("turn_over", "episode_over")


def _taken(answer: Any, call: LlmCall) -> dict[str, Any]:
    """The message of an answer; its cost and tokens go into the record."""
    try:
        choice = answer["choices"][0]
        message = _clean(choice["message"])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _Again(f"the answer is no chat completion: {json.dumps(answer)[:200]}") from error
    usage = _table(answer.get("usage"))
    call.prompt_tokens = _count(usage.get("prompt_tokens"))
    call.completion_tokens = _count(usage.get("completion_tokens"))
    call.prompt_ids = _integers(answer.get("prompt_token_ids") or choice.get("prompt_token_ids"))
    call.completion_ids = _integers(choice.get("token_ids"))
    call.logprobs = _logprobs(choice.get("logprobs"))
    call.model = str(answer.get("model") or call.model)
    call.tool_calls = message.get("tool_calls", [])
    call.messages.append(message)
    return message


def _clean(message: dict[str, Any]) -> dict[str, Any]:
    """Only what may be sent back to any server."""
    found: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
    calls = [_tool_call(call, number) for number, call in enumerate(message.get("tool_calls") or [])]
    return {**found, "tool_calls": calls} if calls else found


def _tool_call(call: dict[str, Any], number: int) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return {
        "id": str(call.get("id") or f"call_{number}"),
        "type": "function",
        "function": {"name": str(function["name"]), "arguments": text},
    }


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _integers(value: Any) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def _logprobs(value: Any) -> list[float]:
    content = _table(value).get("content")
    tokens = content if isinstance(content, list) else []
    return [float(token["logprob"]) for token in tokens if isinstance(_table(token).get("logprob"), int | float)]
