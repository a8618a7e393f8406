"""`art`: one trajectory group a line, as OpenPipe ART's `Trajectory` and `TrajectoryGroup` hold them.

Replies of the policy are `Choice` objects, which ART trains on; every other message is plain. Token ids and
log-probabilities go where ART looks for them: one entry a token, named `token_id:<id>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bakeoff.interop.export.dialogue import Context, Dialogue, Line
from bakeoff.interop.export.job import Job
from bakeoff.interop.export.rollouts import Rollout
from bakeoff.spec.workload import Tokens


def write(job: Job) -> None:
    with job.lines(job.place) as emit:
        for group in job.groups:
            trajectories = [_trajectory(rollout, told) for rollout, told in job.dialogues(group)]
            if trajectories:
                metadata: dict[str, Any] = {"group": group[0].group, "task": group[0].task}
                if len(seeds := {rollout.seed for rollout in group}) == 1:
                    metadata["seed"] = seeds.pop()
                emit({"trajectories": trajectories, "metadata": metadata, "metrics": {}, "logs": []})


def _trajectory(rollout: Rollout, told: Dialogue) -> dict[str, Any]:
    first, *others = [_history(context, told) for context in told.contexts]
    version = rollout.policy_version
    number = int(version) if version is not None and version.isdecimal() else None
    return {
        **first,
        "additional_histories": others,
        "reward": rollout.reward,
        "initial_policy_version": number,
        "final_policy_version": number,
        "metrics": {name: value for name, value in rollout.metrics.items() if isinstance(value, int | float)},
        "metadata": {
            **rollout.label,
            "status": rollout.status,
            "success": rollout.success,
            "agent": rollout.agent,
            "model": told.model,
            "policy_version": version,
        },
        "logs": [] if rollout.error is None else [rollout.error],
    }


def _history(context: Context, told: Dialogue) -> dict[str, Any]:
    return {
        "messages_and_choices": [
            _choice(line) if line.sampled and told.spoken else line.message for line in context.lines
        ],
        "tools": told.tools or None,
    }


def _choice(line: Line) -> dict[str, Any]:
    return {
        "finish_reason": "tool_calls" if "tool_calls" in line.message else "stop",
        "index": 0,
        "logprobs": None if line.tokens is None else {"content": _logprobs(line.tokens), "refusal": None},
        "message": {**line.message, "refusal": None},
    }


def _logprobs(tokens: Tokens) -> Sequence[dict[str, Any]] | None:
    """None when the client told no log-probability for each token: ART would take ids without them for certainty."""
    if not tokens.completion_ids or len(tokens.logprobs) != len(tokens.completion_ids):
        return None
    return [
        {"token": f"token_id:{number}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for number, logprob in zip(tokens.completion_ids, tokens.logprobs, strict=True)
    ]
