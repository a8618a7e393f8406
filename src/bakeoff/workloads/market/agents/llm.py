"""A language model as an agent, behind any OpenAI-compatible endpoint: chat completions with tool calls.

In each turn the model gets the observation and the methods as tools. It is called again with their results until it
calls `endTurn`, calls no tool, or has used its calls for the tick. Everything it read and wrote is recorded: messages,
usage, and token ids and log-probabilities where the server returns them.
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
from bakeoff.workloads.market.agents.base import Brief, LlmCall, Seat
from bakeoff.workloads.market.rpc import RpcError

BASE_URL = "https://api.openai.com/v1"
READING_TOOLS = ("a2a.getFeed", "a2a.getChatMessages", "a2a.getTrades", "a2a.getPredictions")
"""Offered by default beside the tools that change something; the observation has the rest."""
MAX_RESULT = 20_000
"""Characters of a tool's result that the model sees."""
MAX_ANSWER = 1 << 23
"""Bytes of an HTTP answer; longer ones are an error."""
# Request timeout, conflict, too early, rate limits, and faults of the server or of a gateway; 529 is "overloaded".
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_PAUSE = 0.25
_INSTRUCTIONS = "\n\nIn each turn you get an observation as JSON. Use the tools to act. Call endTurn when you are done with the tick."

Message = dict[str, Any]


class ModelFailed(Exception):
    """The server returned no usable answer."""


class _Retry(Exception):
    """The call failed in a way that may pass, after `pause` seconds if the server said so."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class LlmAgent:
    """`LlmAgent("gpt-5-mini", temperature=0.3)`, or `llm:gpt-5-mini` with options in an experiment file."""

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

        `max_calls` limits the calls to the model in one tick, `memory` the earlier ticks that stay in the conversation,
        `timeout` the seconds of one call. `tools` are names of methods; `system` replaces the rules; `extra` is added to
        the request's body (`{"return_token_ids": true}` asks some servers for token ids).
        """
        self.name = name or f"llm:{model}"
        self.model = model
        self._url = (base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL).rstrip("/") + "/chat/completions"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        self._max_calls, self._memory, self._timeout, self._retries = max_calls, memory, timeout, retries
        self._system = system
        if tools is None:
            offered = {each.name for each in methods.METHODS.values() if each.mutates or each.name in READING_TOOLS}
        else:
            offered = {methods.find(each).name for each in tools} | {methods.END_TURN}
        functions = [
            {"name": each.short, "description": each.description, "parameters": each.schema}
            for each in methods.METHODS.values()
            if each.name in offered
        ]
        self.tool_definitions = [{"type": "function", "function": function} for function in functions]
        self._settings: dict[str, Any] = {"model": model, "tools": self.tool_definitions, **(extra or {})}
        chosen = {"temperature": temperature, "max_tokens": max_tokens, "logprobs": logprobs or None}
        self._settings |= {key: value for key, value in chosen.items() if value is not None}
        self._client: httpx.Client | None = None
        self._past: list[list[Message]] = []

    def reset(self, brief: Brief) -> None:
        """Forget earlier turns, and open a connection pool."""
        self.close()
        self._past = []
        self._opening = {"role": "system", "content": self._system or brief.rules + _INSTRUCTIONS}
        self._client = httpx.Client(headers={"authorization": f"Bearer {self._key}"} if self._key else {})

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def act(self, seat: Seat) -> None:
        """Converse with the model until its turn is over. Raises ModelFailed when the server does not answer."""
        turn: list[Message] = [{"role": "user", "content": rpc.encode(seat.observe()).decode()}]
        try:
            for _ in range(self._max_calls):
                message = self._ask(seat, turn)
                turn.append(message)
                calls = message.get("tool_calls") or []
                over = not calls
                for call in calls:
                    result, ends = _use_tool(seat, call["function"]["name"], call["function"]["arguments"])
                    content = rpc.encode(result).decode()
                    if len(content) > MAX_RESULT:
                        content = content[:MAX_RESULT] + " ... (cut)"
                    turn.append({"role": "tool", "tool_call_id": call["id"], "content": content})
                    over = over or ends
                if over:
                    break
        finally:
            # A tool call whose result is missing is refused by servers, so such a message is dropped.
            if turn[-1]["role"] == "assistant" and turn[-1].get("tool_calls"):
                turn = turn[:-1]
            self._past = [*self._past, turn][-self._memory :] if self._memory else []

    def _ask(self, seat: Seat, turn: list[Message]) -> Message:
        """Return the model's next message. Every attempt is recorded, failed ones too."""
        sent = [self._opening, *(message for past in self._past for message in past), *turn]
        for attempt in range(self._retries + 1):
            began = time.perf_counter()
            call = LlmCall(messages=list(sent), model=self.model)
            seat.record_llm(call)
            try:
                return _read_completion(self._post(seat, {**self._settings, "messages": sent}), call)
            except _Retry as error:
                call.error = str(error)
                pause = max(error.pause, _FIRST_PAUSE * 2**attempt)
                left = seat.seconds_left
                if attempt == self._retries or pause >= (self._timeout if left is None else left):
                    raise ModelFailed(str(error)) from error
                time.sleep(pause)
            except ModelFailed as error:
                call.error = str(error)
                raise
            finally:
                call.latency_s = time.perf_counter() - began
        raise AssertionError("unreachable")

    def _post(self, seat: Seat, body: Message) -> Any:
        """Return the decoded answer. Raises _Retry or ModelFailed."""
        assert self._client, "reset comes first"
        left = seat.seconds_left
        timeout = self._timeout if left is None else max(0.001, min(self._timeout, left))
        deadline = time.monotonic() + timeout
        content = bytearray()
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    # httpx applies its timeout to each read, so a body that drips would never end.
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout("the answer is not complete")
                    if len(content) > MAX_ANSWER:
                        raise ModelFailed(f"{response.url} answered with more than {MAX_ANSWER} bytes")
        except httpx.TimeoutException as error:
            raise _Retry(f"no answer from {self._url} within {timeout:.3g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Retry(f"{self._url}: {error}") from error
        # The status is checked after the body, which has the server's reason.
        problem = f"{self._url} answered {response.status_code}: {content[:200].decode(errors='replace')}"
        if response.status_code in _RETRIED:
            # Retry-After may also be a date (RFC 9110, 10.2.3), which is not waited for.
            seconds = re.fullmatch(r"\d{1,9}(\.\d+)?", response.headers.get("retry-after", ""))
            raise _Retry(problem, float(seconds[0]) if seconds else 0.0)
        if response.status_code != 200:
            raise ModelFailed(problem)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            raise ModelFailed(f"{self._url} streams its answer; ask for it without `stream`")
        try:
            return rpc.decode(bytes(content))
        except RpcError as error:
            raise _Retry(f"{self._url} did not answer with JSON") from error


def _use_tool(seat: Seat, name: str, arguments: str) -> tuple[Any, bool]:
    """Return a tool's result, or the error that the model can correct, and whether the turn is over."""
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


def _read_completion(answer: Any, call: LlmCall) -> Message:
    """Return the message of a completion, reduced to what any server accepts back; note cost and tokens in `call`.

    Servers differ in what they send, so everything but the message itself may be missing or of another type.
    """
    try:
        choice = answer["choices"][0]
        sent = choice["message"]
        message: Message = {"role": "assistant", "content": sent.get("content") or ""}
        calls = []
        for number, tool_call in enumerate(sent.get("tool_calls") or []):
            arguments = tool_call["function"].get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
            function = {"name": str(tool_call["function"]["name"]), "arguments": text}
            identity = str(tool_call.get("id") or f"call_{number}")
            calls.append({"id": identity, "type": "function", "function": function})
        if calls:
            message["tool_calls"] = calls
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _Retry(f"the answer is not a chat completion: {json.dumps(answer)[:200]}") from error
    usage = _mapping(answer.get("usage"))
    call.prompt_tokens, call.completion_tokens = (
        count if isinstance(count := usage.get(key), int) else 0 for key in ("prompt_tokens", "completion_tokens")
    )
    ids = (answer.get("prompt_token_ids") or choice.get("prompt_token_ids"), choice.get("token_ids"))
    call.prompt_ids, call.completion_ids = (
        [item for item in value if isinstance(item, int)] if isinstance(value, list) else [] for value in ids
    )
    tokens = _mapping(choice.get("logprobs")).get("content")
    logprobs = [_mapping(token).get("logprob") for token in tokens] if isinstance(tokens, list) else []
    call.logprobs = [float(each) for each in logprobs if isinstance(each, int | float)]
    call.model = str(answer.get("model") or call.model)
    call.tool_calls = calls
    call.messages.append(message)
    return message


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
