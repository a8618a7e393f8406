"""A run as a timeline: the JSON that chrome://tracing and ui.perfetto.dev open.

One track group for each tier and pool with one track for each slot, and one for workflows from their first attempt to
their end. Times are virtual microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from bakeoff.workloads.schedsim.engine import TraceEvent
from bakeoff.workloads.schedsim.workflow import KINDS

_ENDS = {"AttemptFinish", "AttemptFail", "AttemptCancel"}
_COLOURS = {"AttemptFail": "terrible", "AttemptCancel": "grey"}
_WORKFLOWS = "workflows"


def lines(events: Sequence[TraceEvent]) -> Iterable[str]:
    places = sorted({event[6] for event in events if event[6]})
    groups = {name: number for number, name in enumerate((_WORKFLOWS, *places), 1)}
    yield '{"displayTimeUnit":"ms","traceEvents":['
    comma = "\n"
    for entry in (*_names(groups), *_attempts(events, groups), *_workflows(events)):
        yield comma + entry
        comma = ",\n"
    yield "\n]}\n"


def _names(groups: dict[str, int]) -> Iterator[str]:
    for name, number in groups.items():
        yield f'{{"ph":"M","name":"process_name","pid":{number},"tid":0,"args":{{"name":"{name}"}}}}'


def _attempts(events: Sequence[TraceEvent], groups: dict[str, int]) -> Iterator[str]:
    """Each attempt in the lowest slot that is free when it starts."""
    free: dict[str, list[int]] = {}
    used: dict[str, int] = dict.fromkeys(groups, 0)
    slot_of: dict[tuple[int, int, int], int] = {}
    for event, time, workflow, node, kind, attempt, place, duration, remark in events:
        key = (workflow, node, attempt)
        if event == "AttemptStart":
            slots = free.setdefault(place, [])
            if not slots:
                used[place] += 1
                heapq.heappush(slots, used[place])
            slot_of[key] = heapq.heappop(slots)
        elif event in _ENDS:
            slot = slot_of.pop(key)
            heapq.heappush(free[place], slot)
            colour = f',"cname":"{_COLOURS[event]}"' if event in _COLOURS else ""
            yield (
                f'{{"ph":"X","name":"{KINDS[kind]}","cat":"{event}","pid":{groups[place]},"tid":{slot},'
                f'"ts":{time - duration},"dur":{duration}{colour},'
                f'"args":{{"workflow":{workflow},"node":{node},"attempt":{attempt},"end":"{remark}"}}}}'
            )


def _workflows(events: Sequence[TraceEvent]) -> Iterator[str]:
    for event, time, workflow, _, _, _, _, duration, remark in events:
        if event == "WorkflowDone":
            yield (
                f'{{"ph":"X","name":"workflow {workflow}","cat":"{event}","pid":1,"tid":{workflow},'
                f'"ts":{time - duration},"dur":{duration},"args":{{"status":"{remark}"}}}}'
            )
