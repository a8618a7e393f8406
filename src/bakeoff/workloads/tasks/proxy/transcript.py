"""Recorded calls as the steps of a trajectory, alike for every client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bakeoff.spec.workload import Step
from bakeoff.workloads.tasks.proxy.calls import Call, ToolSet
from bakeoff.workloads.tasks.proxy.wire.face import Json, objects

MAIN = "main"


def steps(records: Iterable[Call | ToolSet], agent: str = MAIN) -> list[Step]:
    """One step for each answer, conversation by conversation, each in the order in which it was asked.

    `messages` are the new ones, the answer last. The conversation in which the work was done comes first and is
    `agent`'s; the others are `side-1`, `side-2` and so on. `info` says which call it was, what it used, and, in the
    first step that has them, which tools there were. A branch begins with its whole history; `info["copied"]` messages
    of it were told before.
    """
    records = list(records)
    answers = [record for record in records if isinstance(record, Call) and record.end == "answered"]
    conversations = _conversations(answers)
    tools = {record.digest: record.tools for record in records if isinstance(record, ToolSet)}
    made: list[Step] = []
    for number, calls in enumerate(conversations):
        told: set[str] = set()
        for call in calls:
            info = _info(call)
            if call.tools and call.tools not in told:
                told.add(call.tools)
                info["tools"] = tools.get(call.tools, [])
            made.append(_step(call, f"side-{number}" if number else agent, info))
    return [*made[:-1], msgspec.structs.replace(made[-1], done=True)] if made else []


def _conversations(answers: Iterable[Call]) -> list[list[Call]]:
    """That with the most tool calls first, or else with the most answers; the others as they began."""
    groups: dict[int | None, list[Call]] = {}
    for call in sorted(answers, key=lambda call: call.time_s):
        groups.setdefault(call.conversation, []).append(call)
    found = list(groups.values())
    main = max(found, key=lambda calls: (sum(map(_worked, calls)), len(calls)), default=None)
    return sorted(found, key=lambda calls: calls is not main)


def _worked(call: Call) -> bool:
    return bool(call.reply and call.reply.get("tool_calls"))


def _step(call: Call, agent: str, info: dict[str, Any]) -> Step:
    reply = call.reply or {}
    return Step(
        time_s=call.time_s,
        messages=[*call.messages, reply],
        tool_calls=[_tool_call(given) for given in objects(reply.get("tool_calls"))],
        tokens=call.tokens,
        agent=agent,
        policy_version=call.model,
        info=info,
    )


def _tool_call(given: Json) -> Json:
    """`arguments` as an object where the model wrote one; what it wrote instead stays text."""
    function = given["function"]
    try:
        arguments = msgspec.json.decode(function["arguments"] or "{}")
    except (msgspec.DecodeError, RecursionError):
        arguments = function["arguments"]
    return {"id": given["id"], "name": function["name"], "arguments": arguments}


def _info(call: Call) -> dict[str, Any]:
    info: dict[str, Any] = {
        "call": call.number,
        "wire": call.wire,
        "model": call.model,
        "total_s": call.total_s,
        "first_token_s": call.first_token_s,
        "finish": call.finish,
        "cost": call.cost,
    }
    if call.usage is not None:
        info["usage"] = msgspec.to_builtins(call.usage)
    if call.parent is not None:
        info["parent"] = call.parent
    if call.branch:
        info["branch"] = True
        info["copied"] = call.kept
    return info
