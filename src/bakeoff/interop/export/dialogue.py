"""A trajectory as conversations: what the model read, and which messages it wrote itself.

A step's `messages` are those of its call to the model, the reply among them: the whole conversation so far, or only what
is new in this step. Both are understood: messages that begin with all of the conversation so far continue it, messages
that begin with a system prompt start another context (an agent that forgets or summarises), and any others are new
ones behind what is there. In a context's first step, everything up to its last user message is the prompt, examples and
retold replies included; from there on every assistant message was written by the model. `tokens` are those of the
step's last reply; a step with several keeps all of them in `info["llm_calls"]`, one table for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bakeoff.spec.workload import Step, Tokens

Message = dict[str, Any]
SYSTEM = (
    "You act in an environment. Each user message is an observation as JSON; answer with your action as JSON and "
    "nothing else."
)
"""The prompt of a trajectory without a language model, when it is rendered as a conversation."""
_ROLES = {"developer": "system", "function": "tool"}


class Unspeakable(Exception):
    """The trajectory cannot be told as text; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Line:
    message: Message
    """`role`, `content`, and where there are any `tool_calls`, `tool_call_id`, `name`, `reasoning_content`."""
    sampled: bool
    """Whether the policy wrote it, so that it may be trained on."""
    step: int
    tokens: Tokens | None = None


@dataclass(slots=True)
class Context:
    """One conversation, each message once."""

    lines: list[Line] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        return [line.message for line in self.lines]

    @property
    def opening(self) -> int:
        """How many messages stand before the first one that the policy wrote."""
        return next((at for at, line in enumerate(self.lines) if line.sampled), len(self.lines))


@dataclass(frozen=True, slots=True)
class Dialogue:
    contexts: list[Context]
    model: str | None
    tools: list[dict[str, Any]]
    """Definitions of tools as the model was given them: the first step's `info["tools"]`."""
    spoken: bool
    """False when there was no language model and observations and actions stand in for messages."""
    rewards: list[float | None]
    """What each step earned."""

    def turns(self) -> Iterator[tuple[int, Line, list[Message]]]:
        """Each reply of the policy: its number, the line, and the messages before it."""
        number = 0
        for context in self.contexts:
            messages = context.messages
            for at, line in enumerate(context.lines):
                if line.sampled:
                    yield number, line, messages[:at]
                    number += 1


def opening(first: Step) -> list[Message]:
    """The prompt of the first call to the model, if the first step made one."""
    lines = _fresh(0, first, [_message(message) for message in first.messages])
    context = Context(lines)
    return context.messages[: context.opening]


def dialogue(steps: Iterable[Step], *, render: bool) -> Dialogue:
    """`render` tells a trajectory without a language model as observations and actions; otherwise it is refused."""
    contexts: list[Context] = []
    rendered = Context([Line({"role": "system", "content": SYSTEM}, False, 0)])
    info: dict[str, Any] = {}
    rewards = []
    for number, step in enumerate(steps):
        models = ({"model": call["model"]} for call in _calls(step) if call.get("model"))
        info = {**next(models, {}), **step.info, **info}  # the first step to say something goes before later ones
        rewards.append(step.reward)
        if step.messages:
            _add(contexts, number, step)
        elif render and not contexts:
            _render(rendered, number, step)
    if not contexts and not render:
        raise Unspeakable("no LLM messages (--render tells observations and actions as a conversation)")
    model, tools = info.get("model"), info.get("tools")
    return Dialogue(
        contexts=contexts or [rendered],
        model=model if isinstance(model, str) else None,
        tools=[tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else [],
        spoken=bool(contexts),
        rewards=rewards,
    )


def _add(contexts: list[Context], number: int, step: Step) -> None:
    given = [_message(message) for message in step.messages]
    seen = contexts[-1].messages if contexts else []
    if seen and given[: len(seen)] == seen:
        lines = _written(number, step, given[len(seen) :])
    elif seen and given[0]["role"] != "system":
        lines = _written(number, step, given)
    else:
        contexts.append(Context())
        lines = _fresh(number, step, given)
    contexts[-1].lines.extend(lines)


def _fresh(number: int, step: Step, given: list[Message]) -> list[Line]:
    """The lines that open a context."""
    last = max((at for at, message in enumerate(given) if message["role"] == "user"), default=-1)
    prompt = [Line(message, False, number) for message in given[: last + 1]]
    return prompt + _written(number, step, given[last + 1 :])


def _written(number: int, step: Step, given: list[Message]) -> list[Line]:
    """New lines of a context that is open: replies are the policy's own."""
    replies = [at for at, message in enumerate(given) if message["role"] == "assistant"]
    if replies and _are_calls(step.tool_calls) and not any("tool_calls" in message for message in given):
        calls = [_tool_call(call, number, at) for at, call in enumerate(step.tool_calls)]
        given[replies[-1]] = {**given[replies[-1]], "tool_calls": calls}
    tokens = dict(zip(replies, _tokens(step, len(replies)), strict=True))
    return [Line(message, at in tokens, number, tokens.get(at)) for at, message in enumerate(given)]


def _are_calls(calls: list[dict[str, Any]]) -> bool:
    """Whether these are a model's calls of tools by name, and not a log of what was done."""
    return bool(calls) and all("name" in call or "function" in call for call in calls)


def _tokens(step: Step, replies: int) -> list[Tokens | None]:
    """One for each reply, where the agent kept them apart in `info["llm_calls"]`; otherwise the step's for the last."""
    if replies == 0:
        return []
    kept = [call for call in _calls(step) if not call.get("error")]
    if len(kept) == replies and all(call.get("completion_ids") for call in kept):
        return [
            msgspec.convert({name: call.get(name, []) for name in Tokens.__struct_fields__}, Tokens) for call in kept
        ]
    return [None] * (replies - 1) + [step.tokens]


def _calls(step: Step) -> list[dict[str, Any]]:
    found = step.info.get("llm_calls")
    return [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []


def _render(context: Context, number: int, step: Step) -> None:
    context.lines.append(Line({"role": "user", "content": compact(step.observation)}, False, number))
    if step.action is not None:
        context.lines.append(Line({"role": "assistant", "content": compact(step.action)}, True, number))


def _message(given: Mapping[str, Any]) -> Message:
    role = given.get("role")
    message: Message = {"role": _ROLES.get(str(role), str(role)), "content": _text(given.get("content"))}
    if given.get("tool_calls"):
        message["tool_calls"] = [_tool_call(call, 0, at) for at, call in enumerate(given["tool_calls"])]
    for name in ("tool_call_id", "name", "reasoning_content"):
        if given.get(name):
            message[name] = given[name]
    if "reasoning_content" not in message and isinstance(given.get("reasoning"), str):
        message["reasoning_content"] = given["reasoning"]
    return message


def _text(content: Any) -> str:
    """Text, or the text of parts. Pictures and sound have no place in these formats."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, str) or (isinstance(part, dict) and "text" in part) for part in parts):
        raise Unspeakable("a message holds something other than text")
    return "\n".join(part if isinstance(part, str) else str(part["text"]) for part in parts)


def _tool_call(given: Mapping[str, Any], number: int, at: int) -> dict[str, Any]:
    """The shape of the chat-completions API, with arguments as JSON text."""
    function = given.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else given
    arguments = inner.get("arguments", {})
    return {
        "id": str(given.get("id") or given.get("tool_call_id") or f"call_{number}_{at}"),
        "type": "function",
        "function": {
            "name": str(inner.get("name", "")),
            "arguments": arguments if isinstance(arguments, str) else compact(arguments),
        },
    }


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """A tool call's arguments as a table; None when the model wrote something else."""
    try:
        found = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
