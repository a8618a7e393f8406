"""A scheduling sweep in three pictures: makespan and cost of each policy, and what each ablation of `full` changes.

Seeds are shared, so an interval is that of the difference from the first policy over seeds, drawn around the policy's
mean: where it does not touch the dashed line, the difference is there. Sizes stand apart, and failed runs are counted
beside the name and averaged nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bakeoff.records.edition import Edition
from bakeoff.records.run import RunRecord
from bakeoff.stats.evidence import Interval
from bakeoff.web.arms import Lane, height_for, lanes, t_interval
from bakeoff.web.comparisons import Effect, forest
from bakeoff.web.contents import Contents, is_number
from bakeoff.web.drawing import image
from bakeoff.web.figure import Figure, Panel, Rule
from bakeoff.web.folder import Page, picture_html

MAKESPANS = {"p50": "makespan_p50_ms", "p95": "makespan_p95_ms", "p99": "makespan_p99_ms"}
COST = "cost_mean"
FULL = "full"
_PAIRED = (
    "Small dots: single seeds; large: their mean. Line: 95 % t interval of the paired difference from {control} over N = {n} "
    "shared seeds, drawn around the mean: clear of the dashed line (mean of {control}) means that they differ."
)
_LOST = " Failed and missing runs are counted beside the name; a seed that some policy lost is left out for all."


def pages(edition: Edition) -> list[Page]:
    """The page `policies`, for editions whose runs report a makespan; its pictures are files for paper too."""
    contents = Contents(edition, f"{edition.paths.experiment}/{edition.paths.name}")
    if MAKESPANS["p95"] not in contents.metrics:
        return []
    drawn = figures(contents)
    html = "".join(picture_html(figure, name, f"assets/{name}.png") for name, figure in drawn.items())
    files: dict[str, str | bytes] = {f"assets/{name}.png": image(figure, "png") for name, figure in drawn.items()}
    return [Page("Policies", "policies", f'<div class="figures">{html}</div>', files=files)]


def figures(contents: Contents) -> dict[str, Figure]:
    """By the name of the file that the sweep runner's users look for."""
    drawn = {"makespan_by_policy": makespan(contents)}
    if COST in contents.metrics:
        drawn["cost_by_policy"] = cost(contents)
    if (ratios := ablations(contents)) is not None:
        drawn["ablation_deltas_full_p95_ratio"] = ratios
    return drawn


def makespan(contents: Contents) -> Figure:
    """A row of three panels for each size; one scale in a row."""
    panels: list[Panel] = []
    seeds: set[int] = set()
    for task in contents.tasks:
        rows = {name: _lanes(contents, task, metric, 1e-3) for name, metric in MAKESPANS.items()}
        ends = [v for found in rows.values() for lane in found for v in (*lane.values, lane.low, lane.high)]
        known = [end for end in ends if math.isfinite(end)]
        seeds |= {lane.values.size for found in rows.values() for lane in found}
        if known:
            room = 0.04 * (max(known) - min(known) or 1.0)
            span = (min(known) - room, max(known) + room)
            panels += [
                lanes(found, f"makespan {name} (s)", f"{task}, {name}", rules=_control(found), x_range=span)
                for name, found in rows.items()
            ]
    arms = len(contents.base_arms)
    return Figure("Makespan by policy", _caption(contents, seeds), panels, columns=3, height=height_for(arms))


def cost(contents: Contents) -> Figure:
    panels: list[Panel] = []
    seeds: set[int] = set()
    for task in contents.tasks:
        found = _lanes(contents, task, COST, 1.0)
        seeds |= {lane.values.size for lane in found}
        panels.append(lanes(found, "mean cost of a workflow", task, rules=_control(found)))
    return Figure("Cost by policy", _caption(contents, seeds), panels, height=height_for(len(contents.base_arms)))


def _caption(contents: Contents, seeds: set[int]) -> str:
    sizes = sorted(seeds - {0}) or [0]
    n = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    few = " Fewer than three seeds give no interval." if sizes[0] < 3 else ""
    lost = _LOST if contents.tally.failed + contents.tally.missing else ""
    return f"{_PAIRED.format(control=contents.base_arms[0], n=n)}{few}{lost} {contents.label}."


def _control(found: Sequence[Lane]) -> list[Rule]:
    return [Rule("x", float(found[0].values.mean()))] if found[0].values.size else []


def _lanes(contents: Contents, task: str, metric: str, scale: float) -> list[Lane]:
    """Every base arm over the seeds on which no arm was lost; an arm without any result holds nobody up."""
    runs = {arm: _runs(contents, arm, task) for arm in contents.base_arms}
    values = {arm: {run.seed: _value(run, metric) for run in found} for arm, found in runs.items()}
    alive = [found for found in values.values() if any(value is not None for value in found.values())]
    seeds = [seed for seed in (alive[0] if alive else ()) if all(found.get(seed) is not None for found in alive)]
    arrays = {
        arm: np.array([scale * value for seed in seeds if (value := found.get(seed)) is not None])
        for arm, found in values.items()
    }
    control = arrays[contents.base_arms[0]]
    lanes = []
    for arm, found in arrays.items():
        low, high = math.nan, math.nan
        if arm != contents.base_arms[0] and found.size == control.size:
            low, high = (float(control.mean()) + end for end in t_interval(found - control))
        lanes.append(Lane(arm, found, low, high, *_lost(runs[arm]), contents.colour(arm)))
    return lanes


def _runs(contents: Contents, arm: str, task: str) -> list[RunRecord]:
    return [run for run in contents.runs if (run.arm, run.task) == (arm, task)]


def _value(run: RunRecord, metric: str) -> float | None:
    value = run.metrics.get(metric)
    return float(value) if run.status == "succeeded" and is_number(value) else None  # type: ignore[arg-type]


def _lost(runs: Sequence[RunRecord]) -> tuple[int, int]:
    failed = sum(run.status in ("failed", "timeout") for run in runs)
    return failed, sum(run.status != "succeeded" for run in runs) - failed


def ablations(contents: Contents) -> Figure | None:
    """Ratio of p95 to that of `full` as it is, seed by seed; the largest first."""
    arms = [arm for arm, (base, _) in contents.base_of.items() if base == FULL]
    if FULL not in contents.base_arms or not arms:
        return None
    panels = []
    for task in contents.tasks:
        base = {run.seed: _value(run, MAKESPANS["p95"]) for run in _runs(contents, FULL, task)}
        found = [effect for arm in arms if (effect := _ratio(contents, arm, task, base)) is not None]
        if found:
            panels.append((task, sorted(found, key=lambda effect: -effect.value)))
    if not panels:
        return None
    caption = (
        "Dots: geometric mean over shared seeds of p95 makespan divided by that of full without the ablation on the same "
        "seed; lines: 95 % t interval of the mean log ratio (three seeds or more). Right of 1: the ablation makes it "
        f"slower, so what it takes away helps.{_LOST.partition(';')[0] + '.' if contents.tally.failed else ''} {contents.label}."
    )
    title = "Ablations of full: p95 makespan relative to full"
    return forest(panels, "p95 makespan relative to full (ratio)", title, caption, at=1.0)


def _ratio(contents: Contents, arm: str, task: str, base: dict[int, float | None]) -> Effect | None:
    runs = _runs(contents, arm, task)
    pairs = [(run.seed, _value(run, MAKESPANS["p95"])) for run in runs]
    logs = np.array([math.log(v / b) for seed, v in pairs if v and (b := base.get(seed))])
    if not logs.size:
        return None
    low, high = (math.exp(end) for end in t_interval(logs))
    failed, missing = _lost(runs)
    notes = [f"{n} {word}" for n, word in ((failed, "failed"), (missing, "missing")) if n]
    if not logs.any():
        notes.append("changes nothing")
    interval = Interval(low, high, 0.95) if math.isfinite(low) else None
    name = contents.base_of[arm][1]
    return Effect(name, math.exp(float(logs.mean())), interval, contents.colour(arm), ", ".join(notes))
