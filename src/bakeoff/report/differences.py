"""Two arms side by side: every unit's difference, and the bootstrap distribution of their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.report.figure import Array, Bars, Dots, Figure, Mark, Panel, Rule, Span
from bakeoff.stats.evidence import Interval

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
