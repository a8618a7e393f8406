"""`atif`: the Agent Trajectory Interchange Format, version 1.7; `<run>/agent/trajectory.json` for each rollout.

A policy without a language model needs no rendering here: its steps say that no model was called for them.
"""

from __future__ import annotations

from typing import Any

from bakeoff.interop.export.dialogue import Dialogue, Line, Unspeakable, arguments_of, dialogue
from bakeoff.interop.export.job import Job, to_json
from bakeoff.interop.export.rollouts import Rollout
from bakeoff.spec.workload import Tokens

VERSION = "ATIF-v1.7"
_SOURCES = {"system": "system", "assistant": "agent"}


def write(job: Job) -> None:
    for group in job.groups:
        for rollout in group:
            try:
                told = dialogue(rollout.steps(), render=True)
            except Unspeakable as reason:
                job.dropped[str(reason)] += 1
                continue
            directory = job.place / rollout.run_id / "agent"
            directory.mkdir(parents=True)
            text = to_json(_document(job, rollout, told))
            (directory / "trajectory.json").write_text(text + "\n", encoding="utf-8")
            job.rows += 1
            job.count(rollout)


def _document(job: Job, rollout: Rollout, told: Dialogue) -> dict[str, Any]:
    steps = _steps(told)
    agent: dict[str, Any] = {"name": rollout.agent or rollout.arm, "version": _version(rollout)}
    if told.model:
        agent["model_name"] = told.model
    if told.tools:
        agent["tool_definitions"] = told.tools
    return {
        "schema_version": VERSION,
        "session_id": rollout.run_id,
        "trajectory_id": rollout.run_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": _final(rollout, steps),
        "extra": {
            "experiment": job.experiment,
            "edition": job.edition,
            **rollout.label,
            "status": rollout.status,
            "reward": rollout.reward,
            "success": rollout.success,
        },
    }


def _version(rollout: Rollout) -> str:
    """The agent's own version where it told one, else its policy's."""
    told = next((step.info["agent_version"] for step in rollout.steps() if "agent_version" in step.info), None)
    return str(told or rollout.policy_version or "unversioned")


def _final(rollout: Rollout, steps: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"total_steps": len(steps), "extra": dict(rollout.metrics)}
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    if metrics:
        for name in ("prompt_tokens", "completion_tokens"):
            found[f"total_{name}"] = sum(one[name] for one in metrics)
    return found


def _steps(told: Dialogue) -> list[dict[str, Any]]:
    """Results of tools belong to the step that called them; everything else is a step of its own."""
    steps: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    paid: set[int] = set()
    for context in told.contexts:
        calls: set[str] | None = None
        for line in context.lines:
            if line.message["role"] == "tool" and calls is not None:
                _observe(steps[-1], line, calls)
                continue
            step = _step(len(steps) + 1, line, told)
            if context is not told.contexts[0] and line.message in seen and not line.sampled:
                step["is_copied_context"] = True
            if line.sampled and line.step not in paid and told.rewards[line.step] is not None:
                paid.add(line.step)
                step["extra"] = {"step": line.step, "reward": told.rewards[line.step]}
            calls = {call["tool_call_id"] for call in step.get("tool_calls", ())} if step["source"] == "agent" else None
            steps.append(step)
        seen.extend(context.messages)
    return steps


def _step(number: int, line: Line, told: Dialogue) -> dict[str, Any]:
    message = line.message
    step: dict[str, Any] = {
        "step_id": number,
        "source": _SOURCES.get(message["role"], "user"),
        "message": message["content"],
    }
    if step["source"] != "agent":
        return step
    if "reasoning_content" in message:
        step["reasoning_content"] = message["reasoning_content"]
    if "tool_calls" in message:
        step["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if not line.sampled:
        step["is_copied_context"] = True  # an example, or a reply that was retold: not this policy's doing
    elif not told.spoken:
        step["llm_call_count"] = 0
    elif line.tokens is not None:
        step["metrics"] = _metrics(line.tokens)
    return step


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments, function = arguments_of(call), call["function"]
    return {
        "tool_call_id": call["id"],
        "function_name": function["name"],
        "arguments": {"unparsed": function["arguments"]} if arguments is None else arguments,
    }


def _metrics(tokens: Tokens) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt_tokens": len(tokens.prompt_ids),
        "completion_tokens": len(tokens.completion_ids) or len(tokens.logprobs),
        "prompt_token_ids": tokens.prompt_ids,
        "completion_token_ids": tokens.completion_ids,
        "logprobs": tokens.logprobs,
    }
    return {name: value for name, value in found.items() if value != []}


def _observe(step: dict[str, Any], line: Line, calls: set[str]) -> None:
    result: dict[str, Any] = {"content": line.message["content"]}
    if line.message.get("tool_call_id") in calls:
        result["source_call_id"] = line.message["tool_call_id"]
    step.setdefault("observation", {"results": []})["results"].append(result)
