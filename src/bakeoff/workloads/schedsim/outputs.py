"""What comes out of a simulation: rows of figures, the files of a run, and what `bakeoff schedsim` prints.

    summary.csv           one row for the run
    workflows.csv         one row for each workflow, in the order in which they ended
    tiers.csv             one row for each tier, in the order of the tables
    trace.json            one event on each line
    trace.perfetto.json   the run as a timeline, for chrome://tracing and ui.perfetto.dev

Milliseconds have three decimals, money six. A quantile is a linear interpolation between order statistics: of n sorted
values, quantile q is the one at place q*(n-1), counted from 0, and between two places the weighted mean of both
(definition 7 of Hyndman and Fan, The American Statistician 50(4), 1996, which is numpy's default).
Makespan is from a workflow's first attempt to its end, flow time from its arrival to its end. Both, and cost, are over
the workflows that succeeded; the others are counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Literal

from bakeoff.records.layout import atomic_write
from bakeoff.workloads.schedsim.engine import Engine, TraceEvent
from bakeoff.workloads.schedsim.world import CPU, EMBEDDING, IO, KINDS, LLM, MILLION, Slots

Value = float | int | str
Row = dict[str, Value]
TraceFormat = Literal["json", "chrome", "both", "none"]
_NAN = float("nan")

# -- figures


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in ascending order; NaN when there are none."""
    if not ordered:
        return _NAN
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summary(sim: Engine) -> Row:
    """The row of the run."""
    good = [workflow for workflow in sim.done if workflow.status == "succeeded"]
    spans = sorted(workflow.makespan for workflow in good)
    flows = sorted(workflow.finished - workflow.arrived for workflow in good)
    costs = sorted(workflow.cost for workflow in good)
    slots = [slots for queue in sim.queues for slots in queue.slots]
    return {
        **_milliseconds("makespan", spans),
        "cost_mean": _money(_mean(costs)),
        "cost_p50": _money(quantile(costs, 0.50)),
        **_milliseconds("flow_time", flows),
        "total_time_ms": _ms(sim.horizon),
        "cost_total": _money(sum(workflow.cost for workflow in sim.done)),
        "workflows_succeeded": len(good),
        "workflows_failed": len(sim.done) - len(good),
        "iters_mean": round(_mean([workflow.iterations for workflow in good]), 6),
        "attempts_started": sum(place.calls for place in slots),
        "failures": sum(place.failures for place in slots),
        "timeouts": sum(place.timeouts for place in slots),
        "retries": sum(workflow.retries for workflow in sim.done),
        "cancellations": sum(workflow.cancellations for workflow in sim.done),
        "hedges_launched": sum(workflow.hedges for workflow in sim.done),
        "restarts": sum(workflow.restarts for workflow in sim.done),
        "wasted_ms": _ms(sum(workflow.wasted for workflow in sim.done)),
        "cpu_utilization": _utilization(sim.queues[CPU].slots[0], sim.horizon),
        "io_utilization": _utilization(sim.queues[IO].slots[0], sim.horizon),
        "events": sim.happened,
    }


def workflow_rows(sim: Engine) -> list[Row]:
    """In the order in which workflows ended."""
    return [
        {
            "workflow_id": workflow.number,
            "makespan_ms": _ms(workflow.makespan),
            "cost": _money(workflow.cost),
            "retries": workflow.retries,
            "cancellations": workflow.cancellations,
            "hedges_launched": workflow.hedges,
            "wasted_ms": _ms(workflow.wasted),
            "status": workflow.status,
            "iters": workflow.iterations,
            "flow_time_ms": _ms(workflow.finished - workflow.arrived),
            "restarts": workflow.restarts,
        }
        for workflow in sim.done
    ]


def tier_rows(sim: Engine) -> list[Row]:
    """In the order of the tables."""
    known = {(slots.name, slots.id): slots for number in (EMBEDDING, LLM) for slots in sim.queues[number].slots}
    rows: list[Row] = []
    for tier in sim.model.tables.tiers:
        slots = known[tier.provider, tier.id]
        waits = sorted(slots.waits)
        rows.append(
            {
                "provider": slots.name,
                "tier_id": slots.id,
                "utilization": _utilization(slots, sim.horizon),
                "queue_wait_p95_ms": _ms(quantile(waits, 0.95)) if waits else 0.0,
                "in_flight_avg": round(slots.busy / sim.horizon, 6) if sim.horizon else 0.0,
                "queue_wait_mean_ms": _ms(_mean(waits)) if waits else 0.0,
                "calls": slots.calls,
                "failures": slots.failures,
                "timeouts": slots.timeouts,
                "cancelled": slots.cancelled,
                "cost": _money(slots.calls * slots.price),
            }
        )
    return rows


def metrics(sim: Engine) -> Row:
    """One flat table: the summary, then `<provider>_tier<id>_<column>` for each tier."""
    flat = summary(sim)
    for row in tier_rows(sim):
        prefix = f"{row['provider']}_tier{row['tier_id']}"
        flat |= {f"{prefix}_{name}": value for name, value in row.items() if name not in ("provider", "tier_id")}
    return flat


def _milliseconds(name: str, ordered: Sequence[int]) -> Row:
    """Mean and three quantiles of times in microseconds."""
    shares = {f"{name}_p{share}_ms": _ms(quantile(ordered, share / 100)) for share in (50, 95, 99)}
    return {f"{name}_mean_ms": _ms(_mean(ordered)), **shares}


def _utilization(slots: Slots, horizon: int) -> float:
    """Share of slot time in use until the last workflow ended."""
    return round(slots.busy / slots.capacity / horizon, 6) if horizon else 0.0


def _mean(values: Sequence[float]) -> float:
    """The mean, summed without rounding errors, so it does not depend on the order; NaN when there are no values."""
    return fmean(values) if values else _NAN


def _ms(time: float) -> float:
    """Microseconds as milliseconds, to the microsecond."""
    return round(time / 1000, 3)


def _money(millionths: float) -> float:
    """Millionths as units of price."""
    return round(millionths / MILLION, 6)


# -- files


def write(sim: Engine, directory: Path, trace: TraceFormat) -> dict[str, Path]:
    """Write the files of a run, each of them whole or not at all. Returns their paths by what they hold."""
    directory.mkdir(parents=True, exist_ok=True)
    contents: dict[str, tuple[str, Iterable[str]]] = {
        "summary": ("summary.csv", _csv([summary(sim)])),
        "workflows": ("workflows.csv", _csv(workflow_rows(sim))),
        "tiers": ("tiers.csv", _csv(tier_rows(sim))),
    }
    if trace in ("json", "both"):
        contents["trace"] = ("trace.json", _trace(sim.trace or ()))
    if trace in ("chrome", "both"):
        contents["perfetto"] = ("trace.perfetto.json", _timeline(sim.trace or ()))
    for name, parts in contents.values():

        def write_to(fresh: Path, parts: Iterable[str] = parts) -> None:
            with fresh.open("w", encoding="ascii", newline="\n") as file:
                file.writelines(parts)

        atomic_write(directory / name, write_to)
    return {content: directory / name for content, (name, _) in contents.items()}


def _csv(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of CSV. No value needs quotes: they are numbers, provider names from the tables, and statuses."""
    for number, row in enumerate(rows):
        if number == 0:
            yield ",".join(row) + "\n"
        texts = [
            str(value) if not isinstance(value, float) else f"{value:.3f}" if name.endswith("_ms") else f"{value:.6f}"
            for name, value in row.items()
        ]
        yield ",".join(texts) + "\n"


def _trace(events: Sequence[TraceEvent]) -> Iterator[str]:
    """A JSON array with one event on each line. `t_ms` is always virtual time, `dur_ms` how long something took."""
    types = [f'"type":"{kind}"' for kind in KINDS]
    yield "["
    comma = "\n"
    for event, time, workflow, node, kind, attempt, place, duration, remark in events:
        line = f'{comma}{{"ev":"{event}","t_ms":{time / 1000:.3f},"wf":{workflow},"node":{node}'
        if kind >= 0:
            line += f",{types[kind]}"
        if place:
            line += f',"attempt":{attempt},"tier":"{place}"'
        if duration:
            line += f',"dur_ms":{duration / 1000:.3f}'
        if remark:
            line += f',"extra":"{remark}"'
        yield line + "}"
        comma = ",\n"
    yield "\n]\n"


def _timeline(events: Sequence[TraceEvent]) -> Iterator[str]:
    """The trace in Chrome's Trace Event Format ("X" is a complete event, "M" metadata), in virtual microseconds.

    One track group for each tier and pool with one track for each slot, and one group for workflows from their first
    attempt to their end.
    """
    places = sorted({event.place for event in events if event.place})
    groups = {name: number for number, name in enumerate(("workflows", *places), 1)}
    yield '{"displayTimeUnit":"ms","traceEvents":['
    comma = "\n"
    for name, number in groups.items():
        yield f'{comma}{{"ph":"M","name":"process_name","pid":{number},"tid":0,"args":{{"name":"{name}"}}}}'
        comma = ",\n"
    # Each attempt is drawn in the lowest slot that is free when it starts.
    colours = {"AttemptFinish": "", "AttemptFail": ',"cname":"terrible"', "AttemptCancel": ',"cname":"grey"'}
    free: dict[str, list[int]] = {name: [] for name in groups}
    used = dict.fromkeys(groups, 0)
    slot_of: dict[tuple[int, int, int], int] = {}
    for name, time, workflow, node, kind, attempt, place, duration, remark in events:
        key = (workflow, node, attempt)
        if name == "AttemptStart":
            if not free[place]:
                used[place] += 1
                free[place].append(used[place])
            slot_of[key] = heapq.heappop(free[place])
        elif name in colours:
            slot = slot_of.pop(key)
            heapq.heappush(free[place], slot)
            yield (
                f'{comma}{{"ph":"X","name":"{KINDS[kind]}","cat":"{name}","pid":{groups[place]},"tid":{slot},'
                f'"ts":{time - duration},"dur":{duration}{colours[name]},'
                f'"args":{{"workflow":{workflow},"node":{node},"attempt":{attempt},"end":"{remark}"}}}}'
            )
    for event in events:
        if event.event == "WorkflowDone":
            yield (
                f'{comma}{{"ph":"X","name":"workflow {event.workflow}","cat":"{event.event}","pid":1,'
                f'"tid":{event.workflow},"ts":{event.time - event.duration},"dur":{event.duration},'
                f'"args":{{"status":"{event.remark}"}}}}'
            )
    yield "\n]}\n"


def printed(config: Mapping[str, object], figures: Mapping[str, Value], files: Mapping[str, Path]) -> Iterator[str]:
    """The lines that a run prints: its settings, its main figures and its files."""
    yield "agent_sched_sim config:"
    for name, value in config.items():
        yield f"  {name}={str(value).lower() if isinstance(value, bool) else value}"
    yield "summary:"
    for name in ("makespan_mean_ms", "makespan_p95_ms", "cost_mean"):
        yield f"  {name}={figures[name]}"
    for name, path in files.items():
        yield f"  {name}={path}"
