"""The figures of the report: each one, or the reason why it is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bakeoff.errors import BakeoffError
from bakeoff.verdicts.compare import Comparison
from bakeoff.verdicts.compare_answer import CompareAnswer
from bakeoff.verdicts.describe import format_level
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Plot
from bakeoff.web.ablations import Ablations
from bakeoff.web.arms import Lane, Point, cost_against_quality, distribution, t_interval
from bakeoff.web.comparisons import Effect, e_process, forest, paired_differences
from bakeoff.web.contents import Contents, is_number
from bakeoff.web.figure import Band, Figure, Line, Mark, Panel
from bakeoff.web.kinds import MOST_PANELS, draw, of_comparison

MOST_DRAWN_ARMS = 40
MOST_POINTS = 6_000
"""Of all curves in one figure."""
_COLOURS = {"better": 2, "worse": 1, "equivalent": 0, "undecided": -1}
"""Verdicts in the palette: green, vermilion, blue, ink."""


@dataclass(frozen=True, slots=True)
class Picture:
    """`section` is the part of the page that it belongs to; without a figure, `reason` says why."""

    slug: str
    section: str
    figure: Figure | None = None
    reason: str = ""


def pictures(contents: Contents, ablations: Sequence[Ablations]) -> list[Picture]:
    """Every picture of the front page, in reading order."""
    every = [*_of_verdicts(contents), *_of_values(contents), *_of_ablations(contents, ablations)]
    return [picture if picture.figure is None else replace(picture, figure=slim(picture.figure)) for picture in every]


def slim(figure: Figure) -> Figure:
    """Curves with fewer points where many of them would make the page heavy; their ends stay."""
    curves = [m for p in figure.panels if isinstance(p, Panel) for m in p.marks if isinstance(m, Line | Band)]
    stride = -(-sum(mark.x.size for mark in curves) // MOST_POINTS)
    if stride < 2:
        return figure
    panels = [
        replace(panel, marks=tuple(_thinner(mark, stride) for mark in panel.marks))
        if isinstance(panel, Panel)
        else panel
        for panel in figure.panels
    ]
    return replace(figure, panels=panels)


def _thinner(mark: Mark, stride: int) -> Mark:
    if not isinstance(mark, Line | Band) or mark.x.size < 12:
        return mark
    kept = np.unique(np.append(np.arange(0, mark.x.size, stride), mark.x.size - 1))
    if isinstance(mark, Line):
        return replace(mark, x=mark.x[kept], y=mark.y[kept])
    return replace(mark, x=mark.x[kept], low=mark.low[kept], high=mark.high[kept])


def _of_verdicts(contents: Contents) -> Iterator[Picture]:
    verdict = contents.verdict
    if isinstance(verdict, str):
        return
    if verdict.sequential is not None:
        if verdict.sequential.pairs:
            yield Picture("e-process", "verdicts", e_process(verdict.sequential))
            yield _tried("differences", "verdicts", partial(draw, "differences", contents.results, Plot()))
        return
    for metric in dict.fromkeys(comparison.metric for comparison in verdict.comparisons):
        lines = [each for each in verdict.comparisons if each.metric == metric and each.effect is not None]
        if len(lines) > 1:
            yield Picture(f"effects-{metric}", "verdicts", _effects(contents, lines))
    for observations in verdict.observations:
        make = partial(_pairs, contents, verdict, observations)
        yield _tried(f"differences-{observations.metric}", "verdicts", make)


def _tried(slug: str, section: str, make: Callable[[], Figure]) -> Picture:
    try:
        return Picture(slug, section, make())
    except BakeoffError as error:
        return Picture(slug, section, reason=str(error))


def _effects(contents: Contents, lines: Sequence[Comparison]) -> Figure:
    metric, control = lines[0].metric, lines[0].control
    effects = [
        Effect(
            line.candidate, line.effect or 0.0, line.deciding_interval, _COLOURS[line.verdict],
            "" if line.verdict == "undecided" else line.verdict,
        )
        for line in lines[:MOST_DRAWN_ARMS]
    ]  # fmt: skip
    levels = sorted({line.deciding_interval.level for line in lines if line.deciding_interval is not None})
    level = " to ".join(dict.fromkeys(format_level(each) for each in (levels[:1] + levels[-1:]))) or "no"
    better = "right" if contents.analysis.direction == "maximize" else "left"
    caption = (
        f"Effect of each arm against {control} in the unit of {metric} ({lines[0].population}). Lines: {level} intervals, "
        f"those that decided. Better is to the {better}. {contents.label}."
    )
    return forest([("", effects)], f"difference in {metric}", f"{metric}: every arm against {control}", caption)


def _pairs(contents: Contents, verdict: CompareAnswer, observations: Observations) -> Figure:
    """Ablations have pictures of their own when there is little room."""
    comparisons = [each for each in verdict.comparisons if each.metric == observations.metric]
    if len(comparisons) > 4:
        comparisons = [each for each in comparisons if each.candidate not in contents.base_of] or comparisons
    pairs = [of_comparison(each, observations) for each in comparisons[:MOST_PANELS]]
    return paired_differences(pairs, source=f"{contents.label}.")


def _of_values(contents: Contents) -> Iterator[Picture]:
    for metric in contents.main[:3]:
        yield _tried(f"distribution-{metric}", "values", partial(_distribution, contents, metric))
    yield from _curves(contents)
    if contents.cost_metric and contents.main:
        yield _tried("cost-quality", "cost", partial(_cost, contents, contents.main[0]))


def _distribution(contents: Contents, metric: str) -> Figure:
    seen = contents.observe(metric)
    arms = contents.arms if len(contents.arms) <= MOST_DRAWN_ARMS else contents.base_arms[:MOST_DRAWN_ARMS]
    rows: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for row in seen.rows:
        rows.setdefault((row.task, row.arm), []).append((row.state, row.value))
    tasks = {}
    for task in seen.tasks[:MOST_PANELS]:
        tasks[task] = [_lane(contents, arm, rows[task, arm]) for arm in arms if (task, arm) in rows]
    return distribution(tasks, metric, source=f"{contents.label}.")


def _lane(contents: Contents, arm: str, rows: Sequence[tuple[str, float]]) -> Lane:
    values = np.array([value for state, value in rows if state == "scored" and np.isfinite(value)])
    states = [state for state, _ in rows]
    return Lane(arm, values, *t_interval(values), states.count("failed"), states.count("missing"), contents.colour(arm))


def _curves(contents: Contents) -> Iterator[Picture]:
    """The declared metric by step, or the first two that were logged."""
    logged = _logged(contents)
    names = [name for name in contents.main if name in logged][:2] or logged[:2]
    for name in names:
        plot = Plot(metric=name, only_tasks=tuple(contents.tasks[:MOST_PANELS]), arms=tuple(_few(contents)))
        yield _tried(f"curves-{name}", "values", partial(draw, "curves", contents.results, plot))


def _few(contents: Contents) -> list[str]:
    """Curves of more arms than this cannot be told apart: ablations are left out, then the last arms."""
    return contents.arms if len(contents.arms) <= 8 else contents.base_arms[:14]


def _logged(contents: Contents) -> list[str]:
    from bakeoff.records.series import read_block

    first = next(iter(contents.edition.all_series()), None)
    return [] if first is None else list(read_block(first[1]))


def _cost(contents: Contents, metric: str) -> Figure:
    cost = contents.cost_metric
    assert cost is not None
    arms = contents.base_arms  # names stand beside the dots, and those of ablations would lie on each other
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in contents.runs:
        price, value = run.metrics.get(cost), run.metrics.get(metric)
        if run.status == "succeeded" and is_number(price) and is_number(value):
            pairs.setdefault((run.task, run.arm), []).append((float(price), float(value)))  # type: ignore[arg-type]
    tasks = {
        task: [_point(contents, arm, pairs[task, arm]) for arm in arms if (task, arm) in pairs]
        for task in contents.tasks[:MOST_PANELS]
    }
    larger = contents.analysis.direction == "maximize"
    known = {task: points for task, points in tasks.items() if points}
    return cost_against_quality(known, cost, metric, larger_is_better=larger, source=f"{contents.label}.")


def _point(contents: Contents, arm: str, pairs: Sequence[tuple[float, float]]) -> Point:
    prices, values = np.array(pairs).T
    return Point(arm, prices, values, contents.colour(arm))


def _of_ablations(contents: Contents, ablations: Sequence[Ablations]) -> Iterator[Picture]:
    for group in ablations[:3]:
        by_base: dict[str, list[Effect]] = {}
        for delta in group.deltas:
            if delta.line.effect is not None:
                note = "changes nothing" if delta.same else ""
                effect = Effect(
                    delta.ablation, delta.line.effect, delta.line.interval, contents.colour(delta.base), note
                )
                by_base.setdefault(delta.base, []).append(effect)
        if by_base:
            caption = (
                "What each ablation changes against its own base arm, paired over what both were run on. Lines: 95 % "
                f"intervals, each on its own. {contents.label}."
            )
            panels = list(by_base.items())[:MOST_PANELS]
            title = f"Ablations: change of {group.metric} against the base arm"
            yield Picture(
                f"ablations-{group.metric}", "ablations", forest(panels, f"change of {group.metric}", title, caption)
            )
