"""Every arm's values on one line each: single values, their mean and its interval. Failed runs are counted beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.report.figure import Array, Dots, Figure, Line, Mark, Panel, Rule, Ticks
from bakeoff.report.learning import versus
from bakeoff.stats.numerics import t_quantile

MOST_DOTS, MOST_IN_ALL = 60, 1_500
"""More values of an arm, or in a whole figure, are drawn as fewer quantiles."""
_NAME = 30


@dataclass(frozen=True, slots=True)
class Lane:
    """One arm's values, one for each run that succeeded, and the interval that is drawn around their mean."""

    arm: str
    values: Array
    low: float
    high: float
    failed: int = 0
    missing: int = 0
    colour: int = 0

    @property
    def label(self) -> str:
        lost = [f"{n} {word}" for n, word in ((self.failed, "failed"), (self.missing, "missing")) if n]
        return short(self.arm) + (f" ({', '.join(lost)})" if lost else "")


def t_interval(values: Array) -> tuple[float, float]:
    """Of the mean, 95 %; NaN at both ends for fewer than three values, which decide nothing."""
    if values.size < 3:
        return math.nan, math.nan
    half = t_quantile(values.size - 1, 0.975) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half


def distribution(tasks: Mapping[str, Sequence[Lane]], metric: str, *, source: str = "") -> Figure:
    """One panel for each task."""
    dots = min(MOST_DOTS, max(15, MOST_IN_ALL // max(1, sum(map(len, tasks.values())))))
    panels = [lanes(found, metric, task if len(tasks) > 1 else "", dots=dots) for task, found in tasks.items()]
    arms = list(dict.fromkeys(lane.arm for found in tasks.values() for lane in found))
    most = max((lane.values.size for found in tasks.values() for lane in found), default=0)
    each = "one run" if most <= dots else f"one of {dots} quantiles (up to {most} runs an arm)"
    lost = any(lane.failed or lane.missing for found in tasks.values() for lane in found)
    caption = (
        f"Each small dot is {each}; large dot: mean; line: 95 % t interval of the mean of each arm on its own, which is "
        "no comparison of arms: shared seeds are used in the paired differences."
        + (" Failed and missing runs are counted beside the name and are not in the mean." if lost else "")
    )
    return Figure(
        f"Distribution of {metric}: {versus(arms)}", f"{caption} {source}".strip(), panels, height=height_for(len(arms))
    )


def lanes(
    found: Sequence[Lane],
    x_label: str,
    title: str = "",
    *,
    rules: Sequence[Rule] = (),
    x_range: tuple[float, float] | None = None,
    dots: int = MOST_DOTS,
) -> Panel:
    """Arms from top to bottom, values from left to right."""
    marks: list[Mark] = list(rules)
    for row, lane in enumerate(found):
        at = -float(row)
        if not lane.values.size:
            continue
        shown = thinned(lane.values, dots)
        marks.append(Dots(shown, at + _jitter(shown.size), lane.colour, faint=True))
        if math.isfinite(lane.low):
            marks.append(Line(np.array([lane.low, lane.high]), np.array([at, at]), lane.colour))
        marks.append(Dots(np.array([lane.values.mean()]), np.array([at]), lane.colour, names=(lane.arm,)))
    ticks = row_ticks([lane.label for lane in found])
    return Panel(x_label, "", tuple(marks), title, y_ticks=ticks, y_range=(-len(found) + 0.4, 0.6), x_range=x_range)


def row_ticks(labels: Sequence[str]) -> Ticks:
    return tuple((-float(row), label) for row, label in enumerate(labels))


def height_for(rows: int) -> float:
    """Of a panel with that many lines of text at its side."""
    return max(0.55, 0.3 + 0.095 * rows)


def short(name: str) -> str:
    """A name that fits beside an axis; its end is often what tells arms apart."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2 - 1]}…{name[-_NAME // 2 :]}"


def thinned(values: Array, most: int) -> Array:
    """In ascending order, and quantiles where there are too many."""
    if values.size <= most:
        return np.sort(values)
    return np.asarray(np.quantile(values, (np.arange(most) + 0.5) / most))


def _jitter(n: int) -> Array:
    """Offsets that spread neighbours and are the same every time: the golden ratio's multiples."""
    return np.asarray(0.36 * ((np.arange(n) * 0.6180339887498949) % 1.0 - 0.5))
