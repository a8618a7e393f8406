"""Recorded calls as the steps of a trajectory, alike for every client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from bakeoff.spec.trajectory import Step
from bakeoff.workloads.tasks.proxy.calls import Call, ToolSet
from bakeoff.workloads.tasks.proxy.wire.face import Json, objects

MAIN = "main"


def steps(records: Iterable[Call | ToolSet]) -> list[Step]:
    """One step for each answer, in the order in which they were asked for.

    `messages` are the new ones, the answer last. `agent` is `main` for the longest conversation and `side-1`,
    `side-2`, ... for the others. `info` says which call it was, what it used, and, in the first step that has them,
    which tools there were. A branch begins with its whole history; `info["copied"]` messages of it were told before.
    """
    records = list(records)
    answers = [record for record in records if isinstance(record, Call) and record.end == "answered"]
    calls = sorted(answers, key=lambda call: call.time_s)
    names = _names(calls)
    tools = {record.digest: record.tools for record in records if isinstance(record, ToolSet)}
    told: set[tuple[str, str]] = set()
    made = []
    for call in calls:
        agent = names[call.conversation]
        info = _info(call)
        if call.tools and (agent, call.tools) not in told:
            told.add((agent, call.tools))
            info["tools"] = tools.get(call.tools, [])
        made.append(_step(call, agent, info, last=call is calls[-1]))
    return made


def _names(calls: list[Call]) -> dict[int | None, str]:
    """The conversation with the most tool calls, then the most answers, then the first, is what the agent did."""
    worked: Counter[int | None] = Counter()
    answers: Counter[int | None] = Counter()
    for call in calls:
        worked[call.conversation] += bool(call.reply and call.reply.get("tool_calls"))
        answers[call.conversation] += 1
    order = list(answers)
    if not order:
        return {}
    main = max(order, key=lambda number: (worked[number], answers[number], -order.index(number)))
    others = [number for number in order if number != main]
    return {main: MAIN, **{number: f"side-{index}" for index, number in enumerate(others, 1)}}


def _step(call: Call, agent: str, info: dict[str, Any], *, last: bool) -> Step:
    reply = call.reply or {}
    return Step(
        done=last,
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
