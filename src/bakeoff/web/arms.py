"""Pictures of arms: learning curves, the distribution of values, and cost against quality."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.curves import common_grid
from bakeoff.stats.numerics import t_quantile
from bakeoff.web.figure import INK, Band, Dots, Figure, Line, Mark, Panel, Rule, Ticks, dash

# -- learning curves

Curve = tuple[Array, Array]
"""(steps, values) of one seed."""
ByArm = Mapping[str, Sequence[Curve]]
MOST_SINGLE = 24
"""Up to this many runs in a panel, each is drawn as a thin line."""


def learning_curves(
    tasks: Mapping[str, ByArm], metric: str, *, source: str = "", level: float = 0.95, points: int = 200
) -> Figure:
    """One panel for each task. A band is the pointwise t interval of the mean over seeds; one seed has none."""
    panels = [
        Panel("step", metric, tuple(_curve_marks(arms, level, points)), title=task if len(tasks) > 1 else "")
        for task, arms in tasks.items()
    ]
    names = list(dict.fromkeys(arm for arms in tasks.values() for arm in arms))
    counts = sorted({len(curves) for arms in tasks.values() for curves in arms.values()})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    single = "; thin lines: single seeds" if any(_are_few(arms) for arms in tasks.values()) else ""
    caption = (
        f"Lines: mean over N = {seeds} seeds an arm{single}. Bands: {level:.0%} t interval of the mean over seeds, "
        f"pointwise (it holds at each step, not for the whole curve). Steps that every run of an arm reached."
    )
    return Figure(f"{metric} by step: {versus(names)}", f"{caption} {source}".strip(), panels)


def versus(names: Sequence[str]) -> str:
    """Arms in a title."""
    if len(names) > 4:
        return f"{len(names)} arms"
    return " against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _are_few(arms: ByArm) -> bool:
    return max(len(curves) for curves in arms.values()) > 1 and sum(map(len, arms.values())) <= MOST_SINGLE


def _curve_marks(arms: ByArm, level: float, points: int) -> list[Mark]:
    marks: list[Mark] = []
    for number, (arm, curves) in enumerate(arms.items()):
        grid, values = common_grid(list(curves), points)
        mean = values.mean(axis=0)
        n = len(curves)
        if _are_few(arms):
            marks += [Line(grid, row, number, faint=True) for row in values]
        if n > 1:
            half = t_quantile(n - 1, 0.5 + level / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
            marks.append(Band(grid, np.asarray(mean - half), np.asarray(mean + half), number))
        marks.append(Line(grid, np.asarray(mean), number, arm, dash(number)))
    return marks


# -- the distribution of values: every arm on one line

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


# -- what quality costs: each arm's mean cost and mean metric, and who is beaten on both


@dataclass(frozen=True, slots=True)
class Point:
    """One arm: cost and metric of each run that has both."""

    arm: str
    cost: Array
    quality: Array
    colour: int = 0


def cost_against_quality(
    tasks: Mapping[str, Sequence[Point]], cost: str, metric: str, *, larger_is_better: bool, source: str = ""
) -> Figure:
    """One panel for each task."""
    panels = [
        Panel(
            f"mean {cost}",
            f"mean {metric}",
            tuple(_tradeoff_marks(found, larger_is_better)),
            task if len(tasks) > 1 else "",
        )
        for task, found in tasks.items()
    ]
    arms = list(dict.fromkeys(point.arm for found in tasks.values() for point in found))
    best = "upper" if larger_is_better else "lower"
    caption = (
        f"Means over runs that succeeded; crosses: 95 % t interval of each mean on its own. Thin line: arms that no "
        f"other arm beats on both; the {best} left corner is best."
    )
    return Figure(f"{metric} against {cost}: {versus(arms)}", f"{caption} {source}".strip(), panels)


def _tradeoff_marks(found: Sequence[Point], larger_is_better: bool) -> list[Mark]:
    front = [(float(p.cost.mean()), float(p.quality.mean())) for p in unbeaten(found, larger_is_better)]
    marks: list[Mark] = []
    if len(front) > 1:
        x, y = np.array(front).T
        marks.append(Line(x, y, INK, faint=True))
    for point, name in zip(found, _names(found), strict=True):
        x, y = float(point.cost.mean()), float(point.quality.mean())
        across, up = t_interval(point.cost), t_interval(point.quality)
        if math.isfinite(across[0]):
            marks.append(Line(np.array(across), np.array([y, y]), point.colour))
            marks.append(Line(np.array([x, x]), np.array(up), point.colour))
        marks.append(Dots(np.array([x]), np.array([y]), point.colour, names=(name,), named=True))
    return marks


def _names(found: Sequence[Point]) -> list[str]:
    """Arms that lie on each other share one label, which stands at the first of them."""
    places = [(float(p.cost.mean()), float(p.quality.mean())) for p in found]
    across, up = (max(axis) - min(axis) or 1.0 for axis in zip(*places, strict=True))
    names = [""] * len(found)
    for number, (x, y) in enumerate(places):
        close = (k for k, (a, b) in enumerate(places) if abs(a - x) < 0.04 * across and abs(b - y) < 0.04 * up)
        first = next(close)
        arm = short(found[number].arm)
        names[first] = f"{names[first]}, {arm}" if names[first] else arm
    return names


def unbeaten(found: Sequence[Point], larger_is_better: bool) -> list[Point]:
    """Arms on the front, cheapest first."""
    sign = 1.0 if larger_is_better else -1.0
    best, front = -math.inf, []
    for point in sorted(found, key=lambda p: (float(p.cost.mean()), -sign * float(p.quality.mean()))):
        if sign * float(point.quality.mean()) > best:
            best = sign * float(point.quality.mean())
            front.append(point)
    return front
