"""`verifiers`: a run directory with `traces.jsonl`, one episode a line, as verifiers v1 reads it.

A trace is a graph of messages, each linked to the one before it. A node carries the tokens that it adds to the sequence,
so those of a path, put together, are what the model read and wrote: `prompt_ids + completion_ids` of the last reply.
Where the client's next prompt does not begin with that sequence (it was rendered anew), another path starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bakeoff.interop.export.dialogue import Dialogue, Line
from bakeoff.interop.export.job import Job
from bakeoff.interop.export.rollouts import Rollout

FILE = "traces.jsonl"


def write(job: Job) -> None:
    with job.lines(job.place / FILE) as emit:
        for group in job.groups:
            for rollout, told in job.dialogues(group):
                emit(_episode(job, rollout, told))


def _episode(job: Job, rollout: Rollout, told: Dialogue) -> dict[str, Any]:
    task = _task(rollout, told)
    return {
        "id": rollout.run_id,
        "env": {"id": "bakeoff", "name": job.experiment},
        "task": task,
        "group": {"id": rollout.group},
        "run": {"type": "eval", "id": f"{job.experiment}/{job.edition}", "name": job.experiment},
        "ok": rollout.status == "succeeded",
        "is_timeout": rollout.status == "timeout",
        "errors": _errors(rollout),
        "traces": [_trace(rollout, told, task)],
    }


def _task(rollout: Rollout, told: Dialogue) -> dict[str, Any]:
    context = told.contexts[0]
    prompt = context.messages[: context.opening]
    system = prompt[0]["content"] if prompt and prompt[0]["role"] == "system" else None
    data = {
        "id": f"{rollout.task}__s{rollout.seed}",
        "name": rollout.task,
        "prompt": [_message(message) for message in (prompt[1:] if system is not None else prompt)],
        "system_prompt": system,
        "seed": rollout.seed,
    }
    return {"type": "Task", "data": data, "key": rollout.group}


def _errors(rollout: Rollout) -> list[dict[str, Any]]:
    return [] if rollout.status == "succeeded" else [{"type": rollout.status, "message": rollout.error or ""}]


def _trace(rollout: Rollout, told: Dialogue, task: dict[str, Any]) -> dict[str, Any]:
    graph = _Graph(told, rollout.ended_at or 0.0)
    numbers = {name: float(value) for name, value in rollout.metrics.items() if isinstance(value, int | float)}
    return {
        "version": 1,
        "id": rollout.run_id,
        "task": task,
        "agent": {"config": {"model": told.model}, "name": rollout.agent or rollout.arm, "trainable": told.spoken},
        "tools": [_tool(tool) for tool in told.tools],
        "nodes": graph.nodes,
        "calls": graph.calls,
        "rewards": {} if rollout.reward is None else {"reward": {"score": rollout.reward, "weight": 1.0}},
        "metrics": numbers,
        "info": {**rollout.label, "policy_version": rollout.policy_version, "success": rollout.success},
        "is_completed": True,
        "ok": rollout.status == "succeeded",
        "is_timeout": rollout.status == "timeout",
        "errors": _errors(rollout),
        "timing": {"start": rollout.started_at or 0.0},
    }


@dataclass
class _Graph:
    told: Dialogue
    timestamp: float
    nodes: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for context in self.told.contexts:
            parent: int | None = None
            path: list[int] = []
            for at, line in enumerate(context.lines):
                if line.tokens is not None and line.tokens.prompt_ids[: len(path)] != path:
                    parent, path = None, []
                    for earlier in context.lines[:at]:
                        parent = self._node(earlier, parent, sampled=False)
                parent = self._node(line, parent, sampled=line.sampled and self.told.spoken)
                if line.sampled and self.told.spoken:
                    path = self._reply(line, parent, path)

    def _node(self, line: Line, parent: int | None, *, sampled: bool) -> int:
        self.nodes.append(
            {
                "parent": parent,
                "message": _message(line.message),
                "sampled": sampled,
                "timestamp": self.timestamp,
                "token_ids": [],
                "mask": [],
                "logprobs": [],
            }
        )
        return len(self.nodes) - 1

    def _reply(self, line: Line, node: int, path: list[int]) -> list[int]:
        """Give the reply's node what it adds to the tokens of its path, and return the longer path."""
        call: dict[str, Any] = {
            "node": node,
            "model": self.told.model,
            "finish_reason": "tool_calls" if "tool_calls" in line.message else "stop",
        }
        self.calls.append(call)
        tokens = line.tokens
        if tokens is None:
            return path
        read = tokens.prompt_ids[len(path) :]
        self.nodes[node] |= {
            "token_ids": read + tokens.completion_ids,
            "mask": [False] * len(read) + [True] * len(tokens.completion_ids),
            "logprobs": tokens.logprobs if len(tokens.logprobs) == len(tokens.completion_ids) else [],
        }
        call["usage"] = {"prompt_tokens": len(tokens.prompt_ids), "completion_tokens": len(tokens.completion_ids)}
        return tokens.prompt_ids + tokens.completion_ids


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Without the nesting that other formats have around a call's name and arguments."""
    kept: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if message["role"] == "tool":
        return {**kept, "tool_call_id": message.get("tool_call_id", ""), "name": message.get("name")}
    if message["role"] == "assistant":
        calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
        return {**kept, "reasoning_content": message.get("reasoning_content"), "tool_calls": calls or None}
    return kept


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    return {"type": "function", **(function if isinstance(function, dict) else tool)}
