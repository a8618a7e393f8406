"""What a simulation comes to: one row for the run, one for each workflow, one for each tier.

Milliseconds to three decimals, money to six. A quantile is linear interpolation between order statistics: of n sorted
values, quantile q is the one at place q*(n-1), counted from 0, and between two places the weighted mean of both.
Makespan is from a workflow's first attempt to its end, flow time from its arrival to its end. Both, and cost, are over
the workflows that succeeded; the others are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from statistics import fmean

from bakeoff.workloads.schedsim.engine import Engine
from bakeoff.workloads.schedsim.resources import MILLION, Slots
from bakeoff.workloads.schedsim.workflow import CPU, EMBEDDING, IO, LLM, Workflow

Value = float | int | str
Row = dict[str, Value]
NONE = float("nan")


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in ascending order."""
    if not ordered:
        return NONE
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else NONE


def ms(time: float) -> float:
    return round(time / 1000, 3)


def money(millionths: float) -> float:
    return round(millionths / MILLION, 6)


def makespan(workflow: Workflow) -> int:
    """Nothing, when it ended before it began."""
    return workflow.finished - workflow.started if workflow.started >= 0 else 0


def summary(sim: Engine) -> Row:
    good = [workflow for workflow in sim.done if workflow.status == "succeeded"]
    spans = sorted(makespan(workflow) for workflow in good)
    flows = sorted(workflow.finished - workflow.arrived for workflow in good)
    costs = sorted(workflow.cost for workflow in good)
    slots = [slots for queue in sim.queues for slots in queue.slots]
    return {
        "makespan_mean_ms": ms(_mean(spans)),
        "makespan_p50_ms": ms(quantile(spans, 0.50)),
        "makespan_p95_ms": ms(quantile(spans, 0.95)),
        "makespan_p99_ms": ms(quantile(spans, 0.99)),
        "cost_mean": money(_mean(costs)),
        "cost_p50": money(quantile(costs, 0.50)),
        "flow_time_mean_ms": ms(_mean(flows)),
        "flow_time_p50_ms": ms(quantile(flows, 0.50)),
        "flow_time_p95_ms": ms(quantile(flows, 0.95)),
        "flow_time_p99_ms": ms(quantile(flows, 0.99)),
        "total_time_ms": ms(sim.horizon),
        "cost_total": money(sum(workflow.cost for workflow in sim.done)),
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
        "wasted_ms": ms(sum(workflow.wasted for workflow in sim.done)),
        "cpu_utilization": utilization(sim.queues[CPU].slots[0], sim.horizon),
        "io_utilization": utilization(sim.queues[IO].slots[0], sim.horizon),
        "events": sim.happened,
    }


def utilization(slots: Slots, horizon: int) -> float:
    """Share of slot time in use until the last workflow ended."""
    return round(slots.busy / slots.capacity / horizon, 6) if horizon else 0.0


def workflow_rows(sim: Engine) -> list[Row]:
    """In the order in which workflows ended."""
    return [
        {
            "workflow_id": workflow.number,
            "makespan_ms": ms(makespan(workflow)),
            "cost": money(workflow.cost),
            "retries": workflow.retries,
            "cancellations": workflow.cancellations,
            "hedges_launched": workflow.hedges,
            "wasted_ms": ms(workflow.wasted),
            "status": workflow.status,
            "iters": workflow.iterations,
            "flow_time_ms": ms(workflow.finished - workflow.arrived),
            "restarts": workflow.restarts,
        }
        for workflow in sim.done
    ]


def tier_rows(sim: Engine) -> list[Row]:
    """In the order of the tables."""
    known = {(slots.name, slots.id): slots for number in (EMBEDDING, LLM) for slots in sim.queues[number].slots}
    return [_tier(known[tier.provider, tier.id], sim.horizon) for tier in sim.model.tables.tiers]


def _tier(slots: Slots, horizon: int) -> Row:
    waits = sorted(slots.waits)
    return {
        "provider": slots.name,
        "tier_id": slots.id,
        "utilization": utilization(slots, horizon),
        "queue_wait_p95_ms": ms(quantile(waits, 0.95)) if waits else 0.0,
        "in_flight_avg": round(slots.busy / horizon, 6) if horizon else 0.0,
        "queue_wait_mean_ms": ms(_mean(waits)) if waits else 0.0,
        "calls": slots.calls,
        "failures": slots.failures,
        "timeouts": slots.timeouts,
        "cancelled": slots.cancelled,
        "cost": money(slots.calls * slots.price),
    }


def metrics(sim: Engine) -> Row:
    """One flat table: the summary, then `<provider>_tier<id>_<column>` for each tier."""
    flat = summary(sim)
    for row in tier_rows(sim):
        prefix = f"{row['provider']}_tier{row['tier_id']}"
        flat |= {f"{prefix}_{name}": value for name, value in row.items() if name not in ("provider", "tier_id")}
    return flat
