"""A trajectory as conversations: what the model read, and which messages it wrote itself.

A step's `messages` are those of its call to the model, the reply among them: the whole conversation so far, or only
what is new in this step. Both are understood:

- messages that begin with all of the conversation so far continue it;
- messages that begin with a system prompt start another context (an agent that forgets or summarises);
- any others are appended to what is there.

In the first step of a context, everything up to its last user message is the prompt, examples and quoted replies
included; from there on the model wrote every assistant message. `tokens` are those of the step's last reply; a step
with several replies keeps all of them in `info["llm_calls"]`, one table for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bakeoff.spec.workload import Step, Tokens
from bakeoff.text import standard

Message = dict[str, Any]
SYSTEM = (
    "You act in an environment. Each user message is an observation as JSON; answer with your action as JSON and "
    "nothing else."
)
"""The prompt of a trajectory without a language model, when it is written as a conversation."""
_ROLES = {"developer": "system", "function": "tool"}
_JSON = msgspec.json.Encoder()


class NotAConversation(Exception):
    """The trajectory cannot be written as text; the message is the reason, which the summary counts."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message of a conversation, and whether the policy wrote it."""

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
        """How many messages come before the first one that the policy wrote."""
        return next((at for at, line in enumerate(self.lines) if line.sampled), len(self.lines))


@dataclass(frozen=True, slots=True)
class Dialogue:
    """All conversations of one trajectory, and what is known about the model that had them."""

    contexts: list[Context]
    model: str | None
    tools: list[dict[str, Any]]
    """Definitions of the tools that the model could call: the first step's `info["tools"]`."""
    by_model: bool
    """False when there was no language model and observations and actions stand in for messages."""
    rewards: list[float | None]
    """The reward of each step."""

    def turns(self) -> Iterator[tuple[int, Line, list[Message]]]:
        """Each reply of the policy: its number, the line, and the messages before it."""
        number = 0
        for context in self.contexts:
            messages = context.messages
            for at, line in enumerate(context.lines):
                if line.sampled:
                    yield number, line, messages[:at]
                    number += 1


def prompt_of(first: Step) -> list[Message]:
    """The prompt of the first call to the model, empty if the first step made none. Raises NotAConversation."""
    context = Context(_opening_lines(0, first, [_message(message) for message in first.messages]))
    return context.messages[: context.opening]


def read_dialogue(steps: Iterable[Step], *, render: bool) -> Dialogue:
    """Turn the steps of one trajectory into conversations.

    `render` writes a trajectory without a language model as observations and actions; otherwise it is refused. Raises
    NotAConversation for that, and for messages that are not text.
    """
    contexts: list[Context] = []
    rendered = Context([Line({"role": "system", "content": SYSTEM}, False, 0)])
    info: dict[str, Any] = {}
    rewards = []
    for number, step in enumerate(steps):
        models = ({"model": call["model"]} for call in _llm_calls(step) if call.get("model"))
        info = {**next(models, {}), **step.info, **info}  # earlier steps take precedence over later ones
        rewards.append(step.reward)
        if step.messages:
            _add_step(contexts, number, step)
        elif render and not contexts:
            rendered.lines.append(Line({"role": "user", "content": compact(step.observation)}, False, number))
            if step.action is not None:
                rendered.lines.append(Line({"role": "assistant", "content": compact(step.action)}, True, number))
    if not contexts and not render:
        raise NotAConversation("no LLM messages (--render writes observations and actions as a conversation)")
    model, tools = info.get("model"), info.get("tools")
    return Dialogue(
        contexts=contexts or [rendered],
        model=model if isinstance(model, str) else None,
        tools=[tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else [],
        by_model=bool(contexts),
        rewards=rewards,
    )


def _add_step(contexts: list[Context], number: int, step: Step) -> None:
    """Append a step's messages to the last context, or open another one (see the module's docstring)."""
    messages = [_message(message) for message in step.messages]
    so_far = contexts[-1].messages if contexts else []
    if so_far and messages[: len(so_far)] == so_far:
        lines = _new_lines(number, step, messages[len(so_far) :])
    elif so_far and messages[0]["role"] != "system":
        lines = _new_lines(number, step, messages)
    else:
        contexts.append(Context())
        lines = _opening_lines(number, step, messages)
    contexts[-1].lines.extend(lines)


def _opening_lines(number: int, step: Step, messages: list[Message]) -> list[Line]:
    """The lines that open a context: everything up to the last user message is the prompt."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    prompt = [Line(message, False, number) for message in messages[: last + 1]]
    return prompt + _new_lines(number, step, messages[last + 1 :])


def _new_lines(number: int, step: Step, messages: list[Message]) -> list[Line]:
    """New lines of an open context: the policy wrote every assistant message.

    Tool calls that were recorded beside the messages belong to the last reply, unless they are a log of what was done
    (no name of a tool). Each reply gets its own tokens where the agent kept them in `info["llm_calls"]`, failed calls
    aside; otherwise the step's tokens are those of the last reply.
    """
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    are_calls = bool(step.tool_calls) and all("name" in call or "function" in call for call in step.tool_calls)
    if replies and are_calls and not any("tool_calls" in message for message in messages):
        calls = [_tool_call(call, number, at) for at, call in enumerate(step.tool_calls)]
        messages[replies[-1]] = {**messages[replies[-1]], "tool_calls": calls}
    tokens: dict[int, Tokens | None] = dict.fromkeys(replies)
    kept = [call for call in _llm_calls(step) if not call.get("error")]
    if replies and len(kept) == len(replies) and all(call.get("completion_ids") for call in kept):
        for at, call in zip(replies, kept, strict=True):
            tokens[at] = msgspec.convert({name: call.get(name, []) for name in Tokens.__struct_fields__}, Tokens)
    elif replies:
        tokens[replies[-1]] = step.tokens
    return [Line(message, at in tokens, number, tokens.get(at)) for at, message in enumerate(messages)]


def _llm_calls(step: Step) -> list[dict[str, Any]]:
    calls = step.info.get("llm_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _message(recorded: Mapping[str, Any]) -> Message:
    """A recorded message in one shape, whichever API it came from."""
    role = str(recorded.get("role"))
    message: Message = {"role": _ROLES.get(role, role), "content": _text(recorded.get("content"))}
    if recorded.get("tool_calls"):
        message["tool_calls"] = [_tool_call(call, 0, at) for at, call in enumerate(recorded["tool_calls"])]
    for name in ("tool_call_id", "name", "reasoning_content"):
        if recorded.get(name):
            message[name] = recorded[name]
    if "reasoning_content" not in message and isinstance(recorded.get("reasoning"), str):
        message["reasoning_content"] = recorded["reasoning"]
    return message


def _text(content: Any) -> str:
    """Text, or the text of parts. These formats have no place for images and sound."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, str) or (isinstance(part, dict) and "text" in part) for part in parts):
        raise NotAConversation("a message contains something other than text")
    return "\n".join(part if isinstance(part, str) else str(part["text"]) for part in parts)


def _tool_call(recorded: Mapping[str, Any], number: int, at: int) -> dict[str, Any]:
    """A tool call in the shape of the chat-completions API, with arguments as JSON text."""
    function = recorded.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else recorded
    arguments = inner.get("arguments", {})
    return {
        "id": str(recorded.get("id") or recorded.get("tool_call_id") or f"call_{number}_{at}"),
        "type": "function",
        "function": {
            "name": str(inner.get("name", "")),
            "arguments": arguments if isinstance(arguments, str) else compact(arguments),
        },
    }


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """A tool call's arguments as a table; None when the model wrote something else."""
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def compact(value: Any) -> str:
    """JSON text without spaces, as it stands inside a message."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_json(value: Any) -> str:
    """Standard JSON for a line of a file, which every reader accepts: NaN and infinities are null."""
    try:
        return _JSON.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(standard(value), separators=(",", ":"), default=str)
