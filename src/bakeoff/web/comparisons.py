"""Pictures of comparisons: differences of units, bootstrap distributions, e-processes, and effects in one forest plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts.sequential import SequentialComparison, SequentialReport
from bakeoff.web.arms import height_for, row_ticks, short
from bakeoff.web.figure import INK, Bars, Dots, Figure, Line, Mark, Panel, Rule, Span, Ticks

MOST_NAMED = 24
"""Up to this many units each has its name on the axis."""
MOST_DOTS = 400
"""More units than this are drawn as a histogram."""


@dataclass(frozen=True, slots=True)
class Differences:
    """B - A of every unit, in the metric's own unit and direction, with the effect and its interval."""

    metric: str
    control: str
    candidate: str
    unit: str
    """`seed`, `task` or `run`."""
    names: tuple[str, ...]
    values: Array
    effect: float
    interval: Interval | None
    kind: str
    """What the interval is, such as `95 % interval, sign-flip`."""
    verdict: str
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Resampled:
    """A bootstrap distribution of the mean difference."""

    metric: str
    control: str
    candidate: str
    samples: Array
    effect: float
    low: float
    high: float
    level: float
    method: str
    units: str
    """What is resampled, such as `8 seeds`."""


def paired_differences(found: Sequence[Differences], *, source: str = "") -> Figure:
    """Dots: one for each unit. Line and strip: the mean difference and its interval."""
    panels = [_panel(one, titled=len(found) > 1) for one in found]
    first = found[0]
    title = f"{first.metric}: {' and '.join(one.candidate for one in found[:3])} against {first.control}"
    if len(found) == 1:
        title += f", {first.verdict}"
    sizes = sorted({one.values.size for one in found})
    n = f"N = {sizes[0]}" if len(sizes) == 1 else f"N = {sizes[0]} to {sizes[-1]}"
    margin = f" Dotted: the margin of {first.margin:g}." if first.margin is not None else ""
    each = "Each dot is one" if sizes[-1] <= MOST_DOTS else "Share of units by their difference, unit:"
    caption = (
        f"{each} {first.unit} ({n}): {first.metric} of the candidate minus that of {first.control}. "
        f"Line: mean difference; strip: {first.kind}.{margin} {source}"
    )
    return Figure(title, caption.strip(), panels)


def _panel(one: Differences, titled: bool) -> Panel:
    if one.values.size > MOST_DOTS:
        return _counted(one, titled)
    x = np.arange(1.0, one.values.size + 1.0)
    marks: list[Mark] = []
    if one.interval is not None and one.interval.is_bounded:
        marks.append(Span("y", one.interval.low, one.interval.high, "interval of the mean", 0))
    marks.append(Rule("y", 0.0))
    if one.margin is not None:
        marks += [Rule("y", sign * one.margin, dash="dotted") for sign in (-1.0, 1.0)]
    marks.append(Rule("y", one.effect, f"mean {one.effect:+.3g}", 0, "solid"))
    marks.append(Dots(x, one.values, 1, f"one {one.unit}", one.names))
    named = one.values.size <= MOST_NAMED and max((len(name) for name in one.names), default=0) <= 6
    ticks = tuple(zip(map(float, x), one.names, strict=True)) if named else None
    label = one.unit if named else f"{one.unit} (in plan order)"
    title = f"{one.candidate}: {one.verdict}" if titled else ""
    return Panel(label, f"difference in {one.metric}", tuple(marks), title, x_ticks=ticks)


def _counted(one: Differences, titled: bool) -> Panel:
    heights, edges = np.histogram(one.values, bins=40)
    marks: list[Mark] = [Bars(edges, 100.0 * heights / one.values.size, 1, f"{one.unit}s")]
    if one.interval is not None and one.interval.is_bounded:
        marks.append(Span("x", one.interval.low, one.interval.high, "interval of the mean", 0))
    marks += [Rule("x", 0.0), Rule("x", one.effect, f"mean {one.effect:+.3g}", 0, "solid")]
    title = f"{one.candidate}: {one.verdict}" if titled else ""
    return Panel(f"difference in {one.metric}", f"share of {one.unit}s (%)", tuple(marks), title)


def bootstrap_distribution(found: Sequence[Resampled], *, source: str = "") -> Figure:
    """Histogram of resampled mean differences, with the interval that the method reads from it."""
    first = found[0]
    panels = [_histogram(one, titled=len(found) > 1) for one in found]
    caption = (
        f"Distribution of the mean difference over {first.samples.size:,} resamples of {first.units}. "
        f"Strip: {first.level:.0%} {first.method} interval. It describes the data and does not vote. {source}"
    )
    names = " and ".join(one.candidate for one in found[:3])
    return Figure(f"Bootstrap of {first.metric}: {names} against {first.control}", caption.strip(), panels)


def _histogram(one: Resampled, titled: bool) -> Panel:
    finite = one.samples[np.isfinite(one.samples)]
    heights, edges = np.histogram(finite, bins=min(60, max(12, int(math.sqrt(finite.size) / 2))))
    share = 100.0 * heights / finite.size
    marks: list[Mark] = [Bars(edges, share, 0, "resamples")]
    if math.isfinite(one.low) and math.isfinite(one.high):
        marks.append(Span("x", one.low, one.high, "interval", 0))
    marks += [Rule("x", 0.0, "no difference"), Rule("x", one.effect, f"mean {one.effect:+.3g}", 1, "solid")]
    title = one.candidate if titled else ""
    return Panel(f"mean difference in {one.metric}", "share of resamples (%)", tuple(marks), title)


# -- the e-process of a sequential test: how the evidence grew, and where it decides

_LOWEST = -2.0
"""Evidence below 1/100 is drawn there: how little it is does not matter."""


def e_process(found: SequentialReport) -> Figure:
    """One panel for each comparison; the evidence axis is logarithmic."""
    first = found.comparisons[0]
    panels = [_evidence_panel(one, titled=len(found.comparisons) > 1) for one in found.comparisons]
    names = " and ".join(dict.fromkeys(one.candidate for one in found.comparisons[:3]))
    title = f"{first.metric}: {names} against {first.control}"
    if len(found.comparisons) == 1:
        title += f", {first.verdict} after {first.decided_at or first.pairs} pairs"
    if first.paths.above is not None:
        margin = f" Green and violet: evidence against a difference of more than {found.analysis.margin:g} down or up."
    else:
        margin = ""
    caption = (
        f"{first.test.capitalize()} over pairs in plan order (one pair for each seed, N = {first.pairs} of at most "
        f"{first.planned}). Without an effect the score reaches its threshold, {first.threshold:g} = 2m/alpha, at any "
        f"time with a chance of at most alpha = {found.analysis.alpha:g}. Assumes that {first.assumes}.{margin} {found.source}."
    )
    return Figure(title, caption, panels)


def _evidence_panel(one: SequentialComparison, titled: bool) -> Panel:
    x = np.arange(0.0, one.pairs + 1.0)
    marks: list[Mark] = [
        Line(x, _path(one.paths.better), 0, "e for better"),
        Line(x, _path(one.paths.worse), 1, "e for worse", "dashed"),
    ]
    top = max(math.log10(one.threshold), *(float(np.nanmax(line.y)) for line in marks if isinstance(line, Line)))
    if one.paths.above is not None and one.paths.below is not None:
        marks.append(Line(x, _path(one.paths.above), 2, "e for above -margin", "dotted"))
        marks.append(Line(x, _path(one.paths.below), 3, "e for below +margin", "dotted"))
        marks.append(
            Rule("y", math.log10(one.margin_threshold), f"equivalent: both {one.margin_threshold:g}", dash="dotted")
        )
        top = max(top, *(float(np.nanmax(line.y)) for line in marks[2:4] if isinstance(line, Line)))
    marks.append(Rule("y", math.log10(one.threshold), f"decided: {one.threshold:g}"))
    marks.append(Rule("y", 0.0, "", INK, "solid"))
    if one.decided_at is not None:
        marks.append(_stop(one))
    title = f"{one.candidate} on {one.metric}: {one.verdict}" if titled else ""
    return Panel(
        "pairs (seeds in plan order)", "evidence e (log scale)", tuple(marks), title,
        y_ticks=_power_of_ten_ticks(top), y_range=(_LOWEST - 0.1, top + 0.35),
    )  # fmt: skip


def _path(log_e: Array) -> Array:
    """From 1 before the first pair, in powers of ten."""
    return np.maximum(np.concatenate(([0.0], log_e)) / math.log(10.0), _LOWEST)


def _stop(one: SequentialComparison) -> Dots:
    assert one.decided_at is not None
    path = {"better": one.paths.better, "worse": one.paths.worse}.get(one.verdict)
    colour = {"better": 0, "worse": 1}.get(one.verdict, 2)
    if path is None:
        assert one.paths.above is not None and one.paths.below is not None
        path = np.minimum(one.paths.above, one.paths.below)
    y = float(path[one.decided_at - 1]) / math.log(10.0)
    return Dots(
        np.array([float(one.decided_at)]), np.array([y]), colour, "", (f"{one.verdict} at pair {one.decided_at}",)
    )


def _power_of_ten_ticks(top: float) -> Ticks:
    step = 1 if top <= 6 else math.ceil(top / 6)
    exponents = [-2, -1, 0, *range(step, math.ceil(top) + 1, step)]
    return tuple((float(e), f"{10.0**e:g}" if -3 <= e <= 4 else f"1e{e}") for e in exponents)


# -- effects with their intervals, one line each


@dataclass(frozen=True, slots=True)
class Effect:
    """`colour` counts through the palette; an effect without an interval is a dot alone."""

    name: str
    value: float
    interval: Interval | None
    colour: int = 0
    note: str = ""


def forest(
    panels: Sequence[tuple[str, Sequence[Effect]]], x_label: str, title: str, caption: str, *, at: float = 0.0
) -> Figure:
    """One panel for each title; a dashed line at no effect."""
    rows = max(len(found) for _, found in panels)
    drawn = [_forest_panel(found, x_label, name if len(panels) > 1 else "", at) for name, found in panels]
    return Figure(title, caption, drawn, height=height_for(rows), columns=1 if rows > 12 else 2)


def _forest_panel(found: Sequence[Effect], x_label: str, title: str, at: float) -> Panel:
    marks: list[Mark] = [Rule("x", at)]
    ends = [one.value for one in found] + [at]
    for one in found:
        if one.interval is not None and one.interval.is_bounded:
            ends += [one.interval.low, one.interval.high]
    room = 0.06 * ((max(ends) - min(ends)) or 1.0)
    low, high = min(ends) - room, max(ends) + room
    for row, one in enumerate(found):
        y = -float(row)
        if one.interval is not None and any(map(math.isfinite, (one.interval.low, one.interval.high))):
            # One end that is infinite leaves the panel; two say nothing.
            line = np.clip([one.interval.low, one.interval.high], low, high)
            marks.append(Line(line, np.array([y, y]), one.colour))
        marks.append(Dots(np.array([one.value]), np.array([y]), one.colour, names=(one.name,)))
    labels = [short(one.name) + (f" ({one.note})" if one.note else "") for one in found]
    return Panel(
        x_label, "", tuple(marks), title, y_ticks=row_ticks(labels), y_range=(-len(found) + 0.4, 0.6), x_range=(low, high)
    )  # fmt: skip
