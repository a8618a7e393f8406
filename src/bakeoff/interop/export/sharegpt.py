"""`sharegpt`: conversations of `human` and `gpt` turns, plain text only.

Tool calls become `<tool_call>` JSON inside the reply and results become human turns, as trainers that know no tools
expect; turns of one side in a row are joined, since they must alternate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bakeoff.interop.export.dialogue import Message, arguments_of, compact
from bakeoff.interop.export.job import Job
from bakeoff.interop.export.rollouts import Rollout

_SIDES = {"system": "system", "user": "human", "tool": "human", "assistant": "gpt"}


def write(job: Job) -> None:
    with job.lines(job.place) as emit:
        for group in job.groups:
            for rollout, told in job.dialogues(group):
                for context in told.contexts:
                    emit(
                        {
                            "conversations": conversation(context.messages),
                            "tools": compact(told.tools) if told.tools else None,
                            "agent": rollout.agent or rollout.arm,
                            "model": told.model,
                            "episode": f"episode-{rollout.rollout}",
                            "trial_name": rollout.run_id,
                            "result": _result(rollout),
                            **rollout.label,
                            "reward": rollout.reward,
                        }
                    )


def conversation(messages: Iterable[Message]) -> list[dict[str, str]]:
    turns: list[dict[str, str]] = []
    for message in messages:
        side, value = _SIDES.get(message["role"], "human"), _value(message)
        if turns and turns[-1]["from"] == side:
            turns[-1]["value"] += f"\n{value}"
        else:
            turns.append({"from": side, "value": value})
    return turns


def _value(message: Message) -> str:
    if message["role"] == "tool":
        return f"<tool_response>\n{message['content']}\n</tool_response>"
    calls = [f"<tool_call>\n{compact(_called(call))}\n</tool_call>" for call in message.get("tool_calls", ())]
    return "\n".join(part for part in (message["content"], *calls) if part)


def _called(call: dict[str, Any]) -> dict[str, Any]:
    arguments = arguments_of(call)
    text = call["function"]["arguments"]
    return {"name": call["function"]["name"], "arguments": text if arguments is None else arguments}


def _result(rollout: Rollout) -> str | None:
    """The reward as text, or what went wrong."""
    if rollout.status != "succeeded":
        return rollout.status
    return None if rollout.reward is None else repr(rollout.reward)
