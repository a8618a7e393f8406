"""TRL's dataset types: prompt and completion (`trl-sft`), with a label (`trl-kto`), with a reward (`trl-grpo`).

For SFT and KTO each reply of the policy is a row: the conversation before it is the prompt, so that only what the policy
wrote is trained on, with any chat template. For GRPO each conversation is a row: the prompt that opened it, everything
that followed, and what the rollout earned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from bakeoff.interop.export.dialogue import Dialogue, Message, arguments_of
from bakeoff.interop.export.job import Job
from bakeoff.interop.export.rollouts import Rollout
from bakeoff.spec.workload import Tokens
from bakeoff.stats.effects import group_relative


def write_sft(job: Job) -> None:
    with job.lines(job.place) as emit:
        for rollout, turn in _turns(job):
            emit({**turn, **rollout.label, "reward": rollout.reward})


def write_kto(job: Job) -> None:
    with job.lines(job.place) as emit:
        for rollout, turn in _turns(job):
            emit({**turn, "label": rollout.success, **rollout.label, "reward": rollout.reward})


def _turns(job: Job) -> Iterator[tuple[Rollout, dict[str, Any]]]:
    for group in job.groups:
        for rollout, told in job.dialogues(group):
            for number, line, before in told.turns():
                yield (
                    rollout,
                    {
                        "prompt": templated(before),
                        "completion": templated([line.message]),
                        "tools": told.tools or None,
                        "turn": number,
                        "tokens": _tokens(line.tokens),
                    },
                )


def write_grpo(job: Job) -> None:
    with job.lines(job.place) as emit:
        for group in job.groups:
            advantages = _advantages(group)
            for rollout, told in job.dialogues(group):
                for row in _contexts(told):
                    earned = {"reward": rollout.reward, "advantage": advantages[rollout.run_id]}
                    emit({**row, **earned, **rollout.label, "success": rollout.success})


def _contexts(told: Dialogue) -> Iterator[dict[str, Any]]:
    for number, context in enumerate(told.contexts):
        if context.opening < len(context.lines):
            yield {
                "prompt": templated(context.messages[: context.opening]),
                "completion": templated(context.messages[context.opening :]),
                "tools": told.tools or None,
                "context": number,
                "tokens": [_tokens(line.tokens) for line in context.lines if line.sampled],
            }


def _advantages(group: Sequence[Rollout]) -> dict[str, float]:
    rewards = np.array([rollout.reward for rollout in group], dtype=np.float64)
    return {one.run_id: float(value) for one, value in zip(group, group_relative(rewards), strict=True)}


def templated(messages: Sequence[Message]) -> list[Message]:
    """Messages as chat templates read them: arguments of tool calls are tables, not text."""
    return [
        {**message, "tool_calls": [_with_table(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _with_table(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = arguments_of(call)
    return {**call, "function": {**call["function"], "arguments": arguments}} if arguments is not None else dict(call)


def _tokens(tokens: Tokens | None) -> dict[str, Any] | None:
    return None if tokens is None else msgspec.structs.asdict(tokens)
