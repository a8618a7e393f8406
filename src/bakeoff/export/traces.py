"""Formats that keep a whole run: verifiers v1, ATIF, and steps as recorded (JSON lines, Parquet).

| format | what is written |
|---|---|
| `verifiers` | a directory with `traces.jsonl`, one episode a line, as verifiers v1 reads it |
| `atif` | `<run>/agent/trajectory.json`, Agent Trajectory Interchange Format 1.7 |
| `jsonl`, `parquet` | one row for each step; memory holds one step, or one batch of rows |
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.export.dialogue import Dialogue, Line, arguments_of, to_json
from bakeoff.export.rollouts import Rollout

if TYPE_CHECKING:
    import polars as pl

    from bakeoff.export.exporting import Job, Row

# verifiers. A trace is a graph of messages, each linked to the one before it. A node carries the tokens that it adds
# to the sequence, so those of a path, put together, are what the model read and wrote: `prompt_ids + completion_ids`
# of the last reply. Where the client's next prompt does not begin with that sequence (it was tokenised anew), another
# path starts.


def verifiers(job: Job) -> Iterator[Row]:
    """One `Episode` for each rollout, with its single `Trace`; verifiers repeats task and outcome in both."""
    for rollout, dialogue in job.dialogues():
        yield _episode(job, rollout, dialogue)


def _episode(job: Job, rollout: Rollout, dialogue: Dialogue) -> dict[str, Any]:
    run = rollout.run
    prompt = dialogue.contexts[0].messages[: dialogue.contexts[0].opening]
    system = prompt[0]["content"] if prompt and prompt[0]["role"] == "system" else None
    data = {
        "id": f"{run.task}__s{run.seed}",
        "name": run.task,
        "prompt": [_verifiers_message(message) for message in (prompt if system is None else prompt[1:])],
        "system_prompt": system,
        "seed": run.seed,
    }
    task = {"type": "Task", "data": data, "key": rollout.group}
    succeeded = run.status == "succeeded"
    outcome = {
        "ok": succeeded,
        "is_timeout": run.status == "timeout",
        "errors": [] if succeeded else [{"type": run.status, "message": run.error or ""}],
    }
    nodes, calls = _graph(dialogue, run.ended_at or 0.0)
    agent = {"config": {"model": dialogue.model}, "name": rollout.agent or run.arm, "trainable": dialogue.by_model}
    functions = [(tool, tool.get("function")) for tool in dialogue.tools]
    numbers = {name: float(value) for name, value in run.metrics.items() if isinstance(value, int | float)}
    trace = {
        "version": 1,
        "id": run.run_id,
        "task": task,
        "agent": agent,
        "tools": [{"type": "function", **(inner if isinstance(inner, dict) else tool)} for tool, inner in functions],
        "nodes": nodes,
        "calls": calls,
        "rewards": {} if rollout.reward is None else {"reward": {"score": rollout.reward, "weight": 1.0}},
        "metrics": numbers,
        "info": {**rollout.label, "policy_version": rollout.policy_version, "success": rollout.success},
        "is_completed": True,
        **outcome,
        "timing": {"start": run.started_at or 0.0},
    }
    return {
        "id": run.run_id,
        "env": {"id": "bakeoff", "name": job.experiment},
        "task": task,
        "group": {"id": rollout.group},
        "run": {"type": "eval", "id": f"{job.experiment}/{job.edition}", "name": job.experiment},
        **outcome,
        "traces": [trace],
    }


def _graph(dialogue: Dialogue, timestamp: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and calls of a trace. Indices of nodes are their names."""
    nodes: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for context in dialogue.contexts:
        parent: int | None = None
        path: list[int] = []
        for at, line in enumerate(context.lines):
            tokens, is_reply = line.tokens, line.sampled and dialogue.by_model
            new = [line]
            if tokens is not None and tokens.prompt_ids[: len(path)] != path:
                parent, path, new = None, [], context.lines[: at + 1]
            for added in new:
                sampled, message = is_reply and added is line, _verifiers_message(added.message)
                node = {"parent": parent, "message": message, "sampled": sampled, "timestamp": timestamp}
                nodes.append({**node, "token_ids": [], "mask": [], "logprobs": []})
                parent = len(nodes) - 1
            if not is_reply:
                continue
            finish = "tool_calls" if "tool_calls" in line.message else "stop"
            calls.append({"node": parent, "model": dialogue.model, "finish_reason": finish})
            if tokens is not None:
                # The reply's node gets the tokens that it adds to its path.
                read, written = tokens.prompt_ids[len(path) :], tokens.completion_ids
                nodes[-1] |= {
                    "token_ids": read + written,
                    "mask": [False] * len(read) + [True] * len(written),
                    "logprobs": tokens.logprobs if len(tokens.logprobs) == len(written) else [],
                }
                calls[-1]["usage"] = {"prompt_tokens": len(tokens.prompt_ids), "completion_tokens": len(written)}
                path = tokens.prompt_ids + written
    return nodes, calls


def _verifiers_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the nesting that other formats have around a call's name and arguments."""
    kept: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if message["role"] == "tool":
        return {**kept, "tool_call_id": message.get("tool_call_id", ""), "name": message.get("name")}
    if message["role"] == "assistant":
        calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
        return {**kept, "reasoning_content": message.get("reasoning_content"), "tool_calls": calls or None}
    return kept


# ATIF 1.7. A policy without a language model is always rendered: its steps say that no model was called for them.

_ATIF_SOURCES = {"system": "system", "assistant": "agent"}


def atif(job: Job) -> Iterator[Row]:
    """One document for each rollout."""
    for rollout, dialogue in job.dialogues():
        yield _atif_document(job, rollout, dialogue)


def write_trajectories(job: Job, documents: Iterator[Row]) -> None:
    """Each document becomes `<run>/agent/trajectory.json`."""
    for document in documents:
        directory = job.place / document["session_id"] / "agent"
        directory.mkdir(parents=True)
        (directory / "trajectory.json").write_text(to_json(document) + "\n", encoding="utf-8")
        job.rows += 1


def _atif_document(job: Job, rollout: Rollout, dialogue: Dialogue) -> dict[str, Any]:
    steps = _atif_steps(dialogue)
    # The agent's own version where a step has one, else its policy's.
    versions = (step.info["agent_version"] for step in rollout.steps() if "agent_version" in step.info)
    version = next(versions, None) or rollout.policy_version or "unversioned"
    agent: dict[str, Any] = {"name": rollout.agent or rollout.run.arm, "version": str(version)}
    if dialogue.model:
        agent["model_name"] = dialogue.model
    if dialogue.tools:
        agent["tool_definitions"] = dialogue.tools
    final: dict[str, Any] = {"total_steps": len(steps), "extra": dict(rollout.run.metrics)}
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    if metrics:
        for name in ("prompt_tokens", "completion_tokens"):
            final[f"total_{name}"] = sum(of_step[name] for of_step in metrics)
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": rollout.run.run_id,
        "trajectory_id": rollout.run.run_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": final,
        "extra": {
            "experiment": job.experiment,
            "edition": job.edition,
            **rollout.label,
            "status": rollout.run.status,
            "reward": rollout.reward,
            "success": rollout.success,
        },
    }


def _atif_steps(dialogue: Dialogue) -> list[dict[str, Any]]:
    """Results of tools belong to the step that called them; every other message is a step.

    A message that an earlier context had too is marked as copied. A recorded step's reward goes to its first reply.
    """
    steps: list[dict[str, Any]] = []
    earlier: list[dict[str, Any]] = []
    rewarded: set[int] = set()
    for context in dialogue.contexts:
        calls: set[str] | None = None
        for line in context.lines:
            if line.message["role"] == "tool" and calls is not None:
                result: dict[str, Any] = {"content": line.message["content"]}
                if line.message.get("tool_call_id") in calls:
                    result["source_call_id"] = line.message["tool_call_id"]
                steps[-1].setdefault("observation", {"results": []})["results"].append(result)
                continue
            step = _atif_step(len(steps) + 1, line, dialogue)
            if context is not dialogue.contexts[0] and line.message in earlier and not line.sampled:
                step["is_copied_context"] = True
            if line.sampled and line.step not in rewarded and dialogue.rewards[line.step] is not None:
                rewarded.add(line.step)
                step["extra"] = {"step": line.step, "reward": dialogue.rewards[line.step]}
            calls = {call["tool_call_id"] for call in step.get("tool_calls", ())} if step["source"] == "agent" else None
            steps.append(step)
        earlier.extend(context.messages)
    return steps


def _atif_step(number: int, line: Line, dialogue: Dialogue) -> dict[str, Any]:
    message = line.message
    source = _ATIF_SOURCES.get(message["role"], "user")
    step: dict[str, Any] = {"step_id": number, "source": source, "message": message["content"]}
    if source != "agent":
        return step
    if "reasoning_content" in message:
        step["reasoning_content"] = message["reasoning_content"]
    if "tool_calls" in message:
        step["tool_calls"] = []
        for call in message["tool_calls"]:
            arguments, function = arguments_of(call), call["function"]
            table = {"unparsed": function["arguments"]} if arguments is None else arguments
            step["tool_calls"].append(
                {"tool_call_id": call["id"], "function_name": function["name"], "arguments": table}
            )
    if not line.sampled:
        step["is_copied_context"] = True  # an example or a quoted reply: this policy did not write it
    elif not dialogue.by_model:
        step["llm_call_count"] = 0
    elif line.tokens is not None:
        tokens = line.tokens
        metrics: dict[str, Any] = {
            "prompt_tokens": len(tokens.prompt_ids),
            "completion_tokens": len(tokens.completion_ids) or len(tokens.logprobs),
            "prompt_token_ids": tokens.prompt_ids,
            "completion_token_ids": tokens.completion_ids,
            "logprobs": tokens.logprobs,
        }
        step["metrics"] = {name: value for name, value in metrics.items() if value != []}
    return step


# Steps as recorded.

BATCH = 1024
"""Rows that are turned into columns at a time."""
ROW_GROUP = 16_384
_NESTED = ("observation", "action", "messages", "tool_calls", "info", "truth")


def steps(job: Job) -> Iterator[Row]:
    """One row for each step, with what is known about its run."""
    for rollout in chain.from_iterable(job.groups):
        job.count(rollout)
        outcome = {"status": rollout.run.status, "return": rollout.reward, "success": rollout.success}
        for number, step in enumerate(rollout.steps()):
            row = {**rollout.label, **outcome, "step": number, **msgspec.structs.asdict(step)}
            row["tokens"] = None if step.tokens is None else msgspec.structs.asdict(step.tokens)
            if not job.with_truth:
                del row["truth"]
            yield row


def write_parquet(job: Job, rows: Iterator[Row]) -> None:
    """Lists of tokens are lists; other nested values are JSON text, since their shape differs from step to step."""
    import polars as pl
    from polars.io.plugins import register_io_source

    text, whole, number = pl.String(), pl.Int64(), pl.Float64()
    columns: dict[str, pl.DataType] = {
        "run_id": text, "arm": text, "task": text, "seed": whole, "rollout": whole, "group": text, "status": text,
        "return": number, "success": pl.Boolean(), "step": whole, "observation": text, "action": text,
        "reward": number, "done": pl.Boolean(), "time_s": number, "messages": text, "tool_calls": text,
        "prompt_ids": pl.List(pl.Int64), "completion_ids": pl.List(pl.Int64), "logprobs": pl.List(pl.Float64),
        "agent": text, "policy_version": text, "info": text,
    }  # fmt: skip
    schema = pl.Schema({**columns, "truth": text} if job.with_truth else columns)

    def flat(row: dict[str, Any]) -> dict[str, Any]:
        tokens = row.pop("tokens") or {}
        texts = {name: to_json(row[name]) for name in _NESTED if name in row}
        return {**row, **texts, **{name: tokens.get(name) for name in ("prompt_ids", "completion_ids", "logprobs")}}

    # Polars asks an I/O source with these four arguments; a sink always wants everything.
    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        while batch := list(islice(rows, BATCH)):
            job.rows += len(batch)
            yield pl.DataFrame([flat(row) for row in batch], schema=schema, strict=False)

    register_io_source(batches, schema=schema).sink_parquet(
        job.place, compression="zstd", row_group_size=ROW_GROUP, maintain_order=True
    )
