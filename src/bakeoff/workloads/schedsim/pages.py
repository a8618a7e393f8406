"""The report page of a scheduling sweep: flow time, makespan and cost of each policy, and what ablations of `full` change.

Policies share seeds. So an interval is that of the paired difference from the first policy, drawn around the policy's
mean: if it does not touch the dashed line, the two differ. Each workload size has its panels. Failed runs are counted
beside the name and are part of no mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.results.table import Row
from bakeoff.stats.evidence import Interval
from bakeoff.web.arms import Lane, height_for, lanes, t_interval
from bakeoff.web.comparisons import Effect, forest
from bakeoff.web.contents import Contents, is_finite_number
from bakeoff.web.drawing import page_element
from bakeoff.web.figure import Figure, Panel, Rule
from bakeoff.web.page import Page, WorkloadPages

FLOW_TIMES = {"mean": "flow_time_mean_ms", "p50": "flow_time_p50_ms", "p95": "flow_time_p95_ms"}
"""From arrival to end: what a user waits for."""
MAKESPANS = {"p50": "makespan_p50_ms", "p95": "makespan_p95_ms", "p99": "makespan_p99_ms"}
"""From the first attempt to the end: a policy that lets workflows wait looks better by it."""
COST = "cost_mean"
FULL = "full"
_COUNTED = " Failed and missing runs are counted beside the name"


def report_pages(contents: Contents) -> list[Page]:
    """The page `policies`, for results whose runs report a makespan. Its figures are SVG files too."""
    if MAKESPANS["p95"] not in contents.metrics:
        return []
    # The names of the files are those of the sweep runner's report; its own simulator reports no flow time.
    has_flow_time = FLOW_TIMES["mean"] in contents.metrics
    drawn = {"flow_time_by_policy": by_policy(contents, "flow time", FLOW_TIMES)} if has_flow_time else {}
    drawn["makespan_by_policy"] = by_policy(contents, "makespan", MAKESPANS)
    if COST in contents.metrics:
        drawn["cost_by_policy"] = cost(contents)
    if has_flow_time and (ratios := ablations(contents, "mean flow time", FLOW_TIMES["mean"])) is not None:
        drawn["ablation_deltas_full_flow_time_ratio"] = ratios
    if (ratios := ablations(contents, "p95 makespan", MAKESPANS["p95"])) is not None:
        drawn["ablation_deltas_full_p95_ratio"] = ratios
    policies = f"{_listed('policy', 'policies', contents.base_arms)}; {_listed('scale', 'scales', contents.tasks)}"
    if contents.ablated:
        names = list(dict.fromkeys(cell.ablation for cell in contents.ablated.values()))
        policies += f"; {_listed('ablation', 'ablations', names)}"

    def data() -> dict[str, Any]:
        return {"policies": policies, "pictures": [page_element(figure, name) for name, figure in drawn.items()]}

    return [Page("Policies", "policies", Path(__file__).with_name("policies.html.j2"), data)]


def _listed(singular: str, plural: str, names: Sequence[str]) -> str:
    return f"{len(names)} {singular if len(names) == 1 else plural} ({', '.join(names)})"


def by_policy(contents: Contents, noun: str, metrics: Mapping[str, str]) -> Figure:
    """For each size a row of panels with the same scale, one for each of the metrics, which are in milliseconds."""
    panels: list[Panel] = []
    rows: list[Lane] = []
    for task in contents.tasks:
        by_quantile = {name: _policies(contents, task, metric, 1e-3) for name, metric in metrics.items()}
        row = [lane for policies in by_quantile.values() for lane in policies]
        rows += row
        ends = [end for lane in row for end in (*lane.values, lane.low, lane.high) if math.isfinite(end)]
        if ends:
            margin = 0.04 * (max(ends) - min(ends) or 1.0)
            span = (min(ends) - margin, max(ends) + margin)
            panels += [
                lanes(policies, f"{noun}, {name} (s)", f"{task}, {name}", rules=_control(policies), x_range=span)
                for name, policies in by_quantile.items()
            ]
    height = height_for(len(contents.base_arms))
    what = {"flow time": "arrival", "makespan": "first attempt"}[noun]
    caption = f"The {noun} of a workflow, from its {what} to its end. {_caption(contents, rows)}"
    return Figure(f"{noun.capitalize()} by policy", caption, panels, columns=3, height=height)


def cost(contents: Contents) -> Figure:
    """One panel for each size."""
    by_task = {task: _policies(contents, task, COST, 1.0) for task in contents.tasks}
    panels = [
        lanes(policies, "mean cost of a workflow", task, rules=_control(policies)) for task, policies in by_task.items()
    ]
    caption = _caption(contents, [lane for policies in by_task.values() for lane in policies])
    return Figure("Cost by policy", caption, panels, height=height_for(len(contents.base_arms)))


def _policies(contents: Contents, task: str, metric: str, scale: float) -> list[Lane]:
    """Every base arm over the seeds for which each arm has a result; an arm without any result does not count."""
    runs = {arm: _runs(contents, arm, task) for arm in contents.base_arms}
    values = {arm: _by_seed(of_arm, metric) for arm, of_arm in runs.items()}
    measured = [by_seed for by_seed in values.values() if by_seed]
    shared = [seed for seed in (measured[0] if measured else ()) if all(seed in by_seed for by_seed in measured)]
    arrays = {
        arm: np.array([scale * by_seed[seed] for seed in shared if seed in by_seed]) for arm, by_seed in values.items()
    }
    control = arrays[contents.base_arms[0]]
    policies = []
    for arm, array in arrays.items():
        low, high = math.nan, math.nan
        if arm != contents.base_arms[0] and array.size == control.size:
            low, high = (float(control.mean()) + end for end in t_interval(array - control))
        policies.append(Lane(arm, array, low, high, *_lost(runs[arm]), contents.colour(arm)))
    return policies


def _control(policies: Sequence[Lane]) -> list[Rule]:
    """The dashed line at the mean of the first policy."""
    return [Rule("x", float(policies[0].values.mean()))] if policies[0].values.size else []


def _caption(contents: Contents, policies: Sequence[Lane]) -> str:
    control = contents.base_arms[0]
    sizes = sorted({lane.values.size for lane in policies} - {0}) or [0]
    seeds = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    few = " Fewer than three seeds give no interval." if sizes[0] < 3 else ""
    lost = ""
    if contents.tally.failed + contents.tally.missing:
        lost = f"{_COUNTED}; a seed that some policy lost is left out for all."
    return (
        f"Small dots: single seeds; large: their mean. Line: 95 % t interval of the paired difference from {control} "
        f"over N = {seeds} shared seeds, drawn around the mean: if it does not touch the dashed line (mean of "
        f"{control}), they differ.{few}{lost} {contents.label}."
    )


def ablations(contents: Contents, noun: str, metric: str) -> Figure | None:
    """The metric of each ablation of `full` relative to `full`, largest first; None when there is no ablation."""
    arms = [arm for arm, cell in contents.ablated.items() if cell.base == FULL]
    if FULL not in contents.base_arms or not arms:
        return None
    panels = []
    for task in contents.tasks:
        base = _by_seed(_runs(contents, FULL, task), metric)
        effects = [effect for arm in arms if (effect := _ratio(contents, arm, task, metric, base)) is not None]
        if effects:
            panels.append((task, sorted(effects, key=lambda effect: -effect.value)))
    if not panels:
        return None
    caption = (
        f"Dots: geometric mean over shared seeds of {noun} divided by that of full without the ablation on the "
        "same seed; lines: 95 % t interval of the mean log ratio (three seeds or more). Right of 1: the ablation makes "
        "it slower, so the part that it removes helps."
        f"{f'{_COUNTED}.' if contents.tally.failed else ''} {contents.label}."
    )
    title = f"Ablations of full: {noun} relative to full"
    return forest(panels, f"{noun} relative to full (ratio)", title, caption, at=1.0)


def _ratio(contents: Contents, arm: str, task: str, metric: str, base: Mapping[int, float]) -> Effect | None:
    """The geometric mean over shared seeds; its interval is that of the mean logarithm."""
    runs = _runs(contents, arm, task)
    pairs = [(value, base.get(seed)) for seed, value in _by_seed(runs, metric).items()]
    logs = np.array([math.log(value / other) for value, other in pairs if value and other])
    if not logs.size:
        return None
    low, high = (math.exp(end) for end in t_interval(logs))
    failed, missing = _lost(runs)
    notes = [f"{count} {word}" for count, word in ((failed, "failed"), (missing, "missing")) if count]
    if not logs.any():
        notes.append("changes nothing")
    interval = Interval(low, high, 0.95) if math.isfinite(low) else None
    name = contents.ablated[arm].ablation
    return Effect(name, math.exp(float(logs.mean())), interval, contents.colour(arm), ", ".join(notes))


def _runs(contents: Contents, arm: str, task: str) -> list[Row]:
    return [run for run in contents.runs if (run.arm, run.task) == (arm, task)]


def _by_seed(runs: Sequence[Row], metric: str) -> dict[int, float]:
    """Return the values of runs that succeeded and have a seed."""
    values = {run.seed: run.metrics.get(metric) for run in runs if run.status == "succeeded" and run.seed is not None}
    return {seed: float(value) for seed, value in values.items() if is_finite_number(value)}  # type: ignore[arg-type]


def _lost(runs: Sequence[Row]) -> tuple[int, int]:
    """How many runs failed, and how many are missing."""
    failed = sum(run.status in ("failed", "timeout") for run in runs)
    return failed, sum(run.status != "succeeded" for run in runs) - failed


pages = WorkloadPages(report_pages)
