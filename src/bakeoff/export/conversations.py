"""Formats whose rows are messages: TRL's dataset types, OpenPipe ART's trajectory groups, and ShareGPT.

| format | row |
|---|---|
| `trl-sft`, `trl-kto` | a reply of the policy; the conversation before it is the prompt, KTO adds a label |
| `trl-grpo` | a conversation: the prompt that opened it, everything that followed, reward and advantage |
| `art` | a group of trajectories |
| `sharegpt` | a conversation of `human` and `gpt` turns, plain text only |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bakeoff.export.dialogue import Dialogue, Line, Message, arguments_of, compact
from bakeoff.export.rollouts import Rollout
from bakeoff.spec.workload import Tokens
from bakeoff.stats.effects import group_relative

if TYPE_CHECKING:
    from bakeoff.export.exporting import Job, Row

# TRL: https://huggingface.co/docs/trl/dataset_formats. For SFT and KTO a row ends with the reply, so only what the
# policy wrote is trained on, with any chat template.


def trl_turns(job: Job, *, labelled: bool = False) -> Iterator[Row]:
    """One row for each reply of the policy; `labelled` adds what KTO learns from."""
    for rollout, dialogue in job.dialogues():
        for number, line, before in dialogue.turns():
            yield {
                "prompt": _for_template(before),
                "completion": _for_template([line.message]),
                "tools": dialogue.tools or None,
                "turn": number,
                "tokens": _token_table(line.tokens),
                **({"label": rollout.success} if labelled else {}),
                **rollout.label,
                "reward": rollout.reward,
            }


def trl_grpo(job: Job) -> Iterator[Row]:
    """One row for each conversation; the advantage is computed over the whole group, as GRPOTrainer does."""
    for group in job.groups:
        rewards = np.array([rollout.reward for rollout in group], dtype=np.float64)
        advantages = dict(zip((rollout.run.run_id for rollout in group), group_relative(rewards).tolist(), strict=True))
        for rollout, dialogue in job.dialogues(group):
            for number, context in enumerate(dialogue.contexts):
                if context.opening == len(context.lines):
                    continue  # the policy wrote nothing here
                yield {
                    "prompt": _for_template(context.messages[: context.opening]),
                    "completion": _for_template(context.messages[context.opening :]),
                    "tools": dialogue.tools or None,
                    "context": number,
                    "tokens": [_token_table(line.tokens) for line in context.lines if line.sampled],
                    "reward": rollout.reward,
                    "advantage": advantages[rollout.run.run_id],
                    **rollout.label,
                    "success": rollout.success,
                }


def _for_template(messages: Sequence[Message]) -> list[Message]:
    """Messages as chat templates read them: arguments of tool calls are tables, not text."""

    def with_table(call: Mapping[str, Any]) -> dict[str, Any]:
        arguments = arguments_of(call)
        return dict(call) if arguments is None else {**call, "function": {**call["function"], "arguments": arguments}}

    return [
        {**message, "tool_calls": [with_table(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _token_table(tokens: Tokens | None) -> dict[str, Any] | None:
    return None if tokens is None else msgspec.structs.asdict(tokens)


# ART: one `TrajectoryGroup` a line. Replies of the policy are `Choice` objects, which ART trains on; every other
# message is plain. Token ids and log-probabilities go where ART looks for them: one entry a token, named
# `token_id:<id>`.


def art(job: Job) -> Iterator[Row]:
    """One row for each group."""
    for group in job.groups:
        trajectories = [_art_trajectory(rollout, dialogue) for rollout, dialogue in job.dialogues(group)]
        if trajectories:
            metadata: dict[str, Any] = {"group": group[0].group, "task": group[0].run.task}
            if len(seeds := {rollout.run.seed for rollout in group}) == 1:
                metadata["seed"] = seeds.pop()
            yield {"trajectories": trajectories, "metadata": metadata, "metrics": {}, "logs": []}


def _art_trajectory(rollout: Rollout, dialogue: Dialogue) -> dict[str, Any]:
    run, version = rollout.run, rollout.policy_version
    histories = []
    for context in dialogue.contexts:
        lines = [_art_choice(line) if line.sampled and dialogue.by_model else line.message for line in context.lines]
        histories.append({"messages_and_choices": lines, "tools": dialogue.tools or None})
    number = int(version) if version is not None and version.isdecimal() else None
    return {
        **histories[0],
        "additional_histories": histories[1:],
        "reward": rollout.reward,
        "initial_policy_version": number,
        "final_policy_version": number,
        "metrics": {name: value for name, value in run.metrics.items() if isinstance(value, int | float)},
        "metadata": {
            **rollout.label,
            "status": run.status,
            "success": rollout.success,
            "agent": rollout.agent,
            "model": dialogue.model,
            "policy_version": version,
        },
        "logs": [] if run.error is None else [run.error],
    }


def _art_choice(line: Line) -> dict[str, Any]:
    logprobs = None
    if line.tokens is not None:
        ids, values = line.tokens.completion_ids, line.tokens.logprobs
        # Without one log-probability for each token there are none: ART would take the bare ids for certainty.
        content: list[dict[str, Any]] | None = None
        if ids and len(values) == len(ids):
            content = [
                {"token": f"token_id:{number}", "bytes": None, "logprob": value, "top_logprobs": []}
                for number, value in zip(ids, values, strict=True)
            ]
        logprobs = {"content": content, "refusal": None}
    return {
        "finish_reason": "tool_calls" if "tool_calls" in line.message else "stop",
        "index": 0,
        "logprobs": logprobs,
        "message": {**line.message, "refusal": None},
    }


# ShareGPT, as Axolotl and LLaMA-Factory read it. Tool calls become `<tool_call>` JSON inside the reply and results
# become human turns, as trainers that know no tools expect. Turns of one side in a row are joined, since sides must
# alternate.

_SIDES = {"system": "system", "user": "human", "tool": "human", "assistant": "gpt"}


def sharegpt(job: Job) -> Iterator[Row]:
    """One row for each conversation."""
    for rollout, dialogue in job.dialogues():
        run = rollout.run
        # The result is the reward as text, or what went wrong.
        reward = None if rollout.reward is None else repr(rollout.reward)
        for context in dialogue.contexts:
            yield {
                "conversations": _alternating(context.messages),
                "tools": compact(dialogue.tools) if dialogue.tools else None,
                "agent": rollout.agent or run.arm,
                "model": dialogue.model,
                "episode": f"episode-{run.rollout}",
                "trial_name": run.run_id,
                "result": reward if run.status == "succeeded" else run.status,
                **rollout.label,
                "reward": rollout.reward,
            }


def _alternating(messages: Iterable[Message]) -> list[dict[str, str]]:
    """`[{"from": "human", "value": ...}, {"from": "gpt", "value": ...}, ...]`."""
    turns: list[dict[str, str]] = []
    for message in messages:
        if message["role"] == "tool":
            value = f"<tool_response>\n{message['content']}\n</tool_response>"
        else:
            parts = [message["content"]]
            for call in message.get("tool_calls", ()):
                arguments = arguments_of(call)
                text = call["function"]["arguments"]
                called = {"name": call["function"]["name"], "arguments": text if arguments is None else arguments}
                parts.append(f"<tool_call>\n{compact(called)}\n</tool_call>")
            value = "\n".join(part for part in parts if part)
        side = _SIDES.get(message["role"], "human")
        if turns and turns[-1]["from"] == side:
            turns[-1]["value"] += f"\n{value}"
        else:
            turns.append({"from": side, "value": value})
    return turns
