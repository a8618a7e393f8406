"""Pictures of arms: learning curves, the distribution of values, cost against quality, profiles, and the radial plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.curves import common_grid
from bakeoff.stats.numerics import t_quantile
from bakeoff.text import number, percent, short
from bakeoff.verdicts.questions.rank import Ranking
from bakeoff.web.figure import INK, Band, Dots, Figure, Grid, Line, Mark, Panel, Radial, Rule, Spoke, dash

# -- what the figures share


def versus(names: Sequence[str]) -> str:
    """Arms in a title."""
    if len(names) > 4:
        return f"{len(names)} arms"
    return " against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def height_for(rows: int) -> float:
    """The height of a panel with that many lines of text at its side."""
    return max(0.55, 0.3 + 0.095 * min(rows, 12) + 0.07 * max(0, rows - 12))


def t_interval(values: Array, level: float = 0.95, least: int = 3) -> tuple[float, float]:
    """The t interval of the mean; NaN at both ends for fewer than `least` values."""
    if values.size < least:
        return math.nan, math.nan
    half = t_quantile(values.size - 1, 0.5 + level / 2) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half


# -- learning curves

Curve = tuple[Array, Array]
"""(steps, values) of one seed."""
ByArm = Mapping[str, Sequence[Curve]]
MOST_SINGLE = 24
"""Up to this many runs in a panel, each is drawn as a thin line."""


def learning_curves(
    tasks: Mapping[str, ByArm], metric: str, *, source: str = "", level: float = 0.95, points: int = 200
) -> Figure:
    """One panel for each task. A band is the pointwise t interval of the mean over seeds; one seed has none.

    Runs that share no steps, such as a slow and a quick one by their processor seconds, are drawn without a mean.
    """
    panels = []
    single, apart = "", dict[str, None]()
    for task, arms in tasks.items():
        counts = [len(curves) for curves in arms.values()]
        are_few = max(counts) > 1 and sum(counts) <= MOST_SINGLE
        marks: list[Mark] = []
        for colour, (arm, curves) in enumerate(arms.items()):
            if max(steps[0] for steps, _ in curves) > min(steps[-1] for steps, _ in curves):
                apart[arm] = None
                labels = [arm] + [""] * (len(curves) - 1)
                marks += [Line(*run, colour, label, dash(colour)) for run, label in zip(curves, labels, strict=True)]
                continue
            grid, values = common_grid(list(curves), points)
            mean = values.mean(axis=0)
            n = len(curves)
            if are_few:
                single = "; thin lines: single seeds"
                marks += [Line(grid, row, colour, faint=True) for row in values]
            if n > 1:
                half = t_quantile(n - 1, 0.5 + level / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
                marks.append(Band(grid, np.asarray(mean - half), np.asarray(mean + half), colour))
            marks.append(Line(grid, np.asarray(mean), colour, arm, dash(colour)))
        panels.append(Panel("step", metric, tuple(marks), title=task if len(tasks) > 1 else ""))
    names = list(dict.fromkeys(arm for arms in tasks.values() for arm in arms))
    sizes = sorted({len(curves) for arms in tasks.values() for curves in arms.values()})
    seeds = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    caption = (
        f"Lines: mean over N = {seeds} seeds per arm{single}. Bands: {percent(level)} t interval of the mean over seeds, "
        f"pointwise (it holds at each step, not for the whole curve). Steps that every run of an arm reached."
    )
    if apart:
        caption += f" Runs of {', '.join(apart)} share no steps, so each is drawn by itself."
    return Figure(f"{metric} by step: {versus(names)}", f"{caption} {source}".strip(), panels)


def curves_by_metric(
    metrics: Mapping[str, ByArm],
    title: str,
    *,
    x_label: str = "step",
    source: str = "",
    columns: int = 2,
    colours: Mapping[str, int] | None = None,
) -> Figure:
    """Learning curves with one panel for each metric. `colours` are those of arms, by default in order of appearance."""
    figure = learning_curves(metrics, "", source=source)
    panels = []
    for (label, arms), panel in zip(metrics.items(), figure.panels, strict=True):
        assert isinstance(panel, Panel)
        # The interval of two or three seeds is so wide that it would hide the curves: panels show what runs reached.
        values = np.concatenate([values for curves in arms.values() for _, values in curves])
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        room = 0.04 * (high - low) or 0.04
        marks = panel.marks
        if colours is not None:
            own = [colours[arm] for arm in arms]
            marks = tuple(replace(mark, colour=own[mark.colour]) for mark in marks)
        panels.append(
            replace(panel, x_label=x_label, y_label=label, title=label, marks=marks, y_range=(low - room, high + room))
        )
    return replace(figure, title=title, panels=panels, columns=columns)


def mean_over_rollouts(rollouts: Sequence[Curve]) -> Curve:
    """The curve of a seed. Rollouts are not units, so bands are drawn over means like this one."""
    if len(rollouts) == 1:
        return rollouts[0]
    grid, values = common_grid(list(rollouts))
    return grid, np.asarray(values.mean(axis=0))


# -- the distribution of values: every arm on one line

MOST_DOTS, MOST_IN_ALL = 60, 1_500
"""More values of an arm, or in a whole figure, are drawn as fewer quantiles."""
_GOLDEN_RATIO = 0.6180339887498949


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


def distribution(tasks: Mapping[str, Sequence[Lane]], metric: str, *, source: str = "") -> Figure:
    """One panel for each task."""
    every = [lane for arms in tasks.values() for lane in arms]
    dots = min(MOST_DOTS, max(15, MOST_IN_ALL // max(1, len(every))))
    panels = [lanes(arms, metric, task if len(tasks) > 1 else "", dots=dots) for task, arms in tasks.items()]
    names = list(dict.fromkeys(lane.arm for lane in every))
    most = max((lane.values.size for lane in every), default=0)
    each = "one run" if most <= dots else f"one of {dots} quantiles (up to {most} runs per arm)"
    caption = (
        f"Each small dot is {each}; large dot: mean; line: 95 % t interval of the mean of each arm on its own, which is "
        "no comparison of arms: shared seeds are used in the paired differences."
    )
    if any(lane.failed or lane.missing for lane in every):
        caption += " Failed and missing runs are counted beside the name and are not in the mean."
    title = f"Distribution of {metric}: {versus(names)}"
    return Figure(title, f"{caption} {source}".strip(), panels, height=height_for(len(names)))


def lanes(
    arms: Sequence[Lane],
    x_label: str,
    title: str = "",
    *,
    rules: Sequence[Rule] = (),
    x_range: tuple[float, float] | None = None,
    dots: int = MOST_DOTS,
) -> Panel:
    """Arms from top to bottom, values from left to right; quantiles where an arm has more values than `dots`."""
    marks: list[Mark] = list(rules)
    ticks = []
    for row, lane in enumerate(arms):
        at, values = -float(row), np.sort(lane.values)
        lost = [f"{n} {word}" for n, word in ((lane.failed, "failed"), (lane.missing, "missing")) if n]
        ticks.append((at, short(lane.arm) + (f" ({', '.join(lost)})" if lost else "")))
        if not values.size:
            continue
        if values.size > dots:
            values = np.asarray(np.quantile(values, (np.arange(dots) + 0.5) / dots))
        # Multiples of the golden ratio spread neighbours, and are the same every time.
        jitter = np.asarray(0.36 * ((np.arange(values.size) * _GOLDEN_RATIO) % 1.0 - 0.5))
        marks.append(Dots(values, at + jitter, lane.colour, faint=True))
        if math.isfinite(lane.low):
            marks.append(Line(np.array([lane.low, lane.high]), np.array([at, at]), lane.colour))
        marks.append(Dots(np.array([lane.values.mean()]), np.array([at]), lane.colour, names=(lane.arm,)))
    y_range = (-len(arms) + 0.4, 0.6)
    return Panel(x_label, "", tuple(marks), title, y_ticks=tuple(ticks), y_range=y_range, x_range=x_range)


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
    panels = []
    for task, points in tasks.items():
        marks = tuple(_tradeoff_marks(points, 1.0 if larger_is_better else -1.0))
        panels.append(Panel(f"mean {cost}", f"mean {metric}", marks, task if len(tasks) > 1 else ""))
    arms = list(dict.fromkeys(point.arm for points in tasks.values() for point in points))
    best = "upper" if larger_is_better else "lower"
    caption = (
        f"Means over runs that succeeded; crosses: 95 % t interval of each mean on its own. Thin line: arms that no "
        f"other arm beats on both; the {best} left corner is best."
    )
    return Figure(f"{metric} against {cost}: {versus(arms)}", f"{caption} {source}".strip(), panels)


def _tradeoff_marks(points: Sequence[Point], sign: float) -> list[Mark]:
    """Dots with their intervals, and the front of arms that no other arm beats; `sign` is -1 where less is better."""
    means = [(float(point.cost.mean()), float(point.quality.mean())) for point in points]
    front: list[tuple[float, float]] = []
    for x, y in sorted(means, key=lambda mean: (mean[0], -sign * mean[1])):
        if not front or sign * y > sign * front[-1][1]:
            front.append((x, y))
    marks: list[Mark] = []
    if len(front) > 1:
        costs, qualities = np.array(front).T
        marks.append(Line(costs, qualities, INK, faint=True))
    # Arms that lie on each other share one label, which stands at the first of them.
    wide, high = (max(axis) - min(axis) or 1.0 for axis in zip(*means, strict=True))
    names = [""] * len(points)
    for point, (x, y) in zip(points, means, strict=True):
        is_close = [abs(a - x) < 0.04 * wide and abs(b - y) < 0.04 * high for a, b in means]
        first = is_close.index(True)
        names[first] += f", {short(point.arm)}" if names[first] else short(point.arm)
    for point, (x, y), name in zip(points, means, names, strict=True):
        across, up = t_interval(point.cost), t_interval(point.quality)
        if math.isfinite(across[0]):
            marks.append(Line(np.array(across), np.array([y, y]), point.colour))
            marks.append(Line(np.array([x, x]), np.array(up), point.colour))
        marks.append(Dots(np.array([x]), np.array([y]), point.colour, names=(name,), named=True))
    return marks


# -- many arms: performance profiles, and a radial plot over tasks or metrics with its table


def profiles(ranking: Ranking) -> Figure:
    """Share of runs that do better than a score, for every score. The curve further to the top is the better arm."""
    marks: list[Mark] = []
    for colour, arm in enumerate(ranking.arms):
        profile = arm.profile
        x = np.array(profile.thresholds)
        marks.append(Band(x, 100 * np.array(profile.low), 100 * np.array(profile.high), colour))
        marks.append(Line(x, 100 * np.array(profile.share), colour, arm.arm, dash(colour)))
    level = ranking.arms[0].profile.level
    better = "above" if ranking.larger_is_better or ranking.normalised else "below"
    score = f"normalised {ranking.metric}" if ranking.normalised else ranking.metric
    runs = sorted({arm.runs for arm in ranking.arms})
    n = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    caption = (
        f"Share of runs {better} each score, over {len(ranking.tasks)} task{'s' if len(ranking.tasks) > 1 else ''} "
        f"(N = {n} runs per arm). Bands: {percent(level)} bootstrap of runs inside tasks, pointwise; they speak of these "
        "tasks only."
    )
    panel = Panel(f"{score} (threshold)", f"runs {better} the threshold (%)", tuple(marks), y_range=(-2.0, 102.0))
    return Figure(f"Performance profiles of {ranking.metric}: {len(ranking.arms)} arms", caption, [panel])


@dataclass(frozen=True, slots=True)
class Axis:
    """One spoke's worth of data: the values of every arm, one for each unit, in the metric's own direction."""

    name: str
    values: tuple[Array, ...]
    larger_is_better: bool = True
    bounds: tuple[float, float] | None = None
    """Centre and rim when declared; the range of all values otherwise."""


def radial(arms: Sequence[str], axes: Sequence[Axis], *, title: str, source: str = "", level: float = 0.95) -> Figure:
    """Every axis runs from the worst (centre) to the best (rim); the table has the numbers behind it."""
    places = np.empty((len(axes), len(arms), 3))  # mean, low and high of each arm on each axis, from 0 to 1
    rows = []
    scales = []
    for spoke, axis in enumerate(axes):
        cells = [f"{axis.name}{'' if axis.larger_is_better else ' (less is better)'}"]
        every = np.concatenate(axis.values)
        centre, rim = axis.bounds or (float(every.min()), float(every.max()))
        scales.append((centre, rim) if axis.larger_is_better else (rim, centre))
        for arm, values in enumerate(axis.values):
            average = float(values.mean())
            ends = t_interval(values, level, least=2) if values.size > 1 else (average, average)
            cells.append(f"{number(average)} ({number(ends[0])} to {number(ends[1])})")
            if rim == centre:
                places[spoke, arm] = 1.0
                continue
            shares = (np.array([average, *ends]) - centre) / (rim - centre)
            if not axis.larger_is_better:
                shares = 1.0 - shares[[0, 2, 1]]
            places[spoke, arm] = np.clip(shares, 0.0, 1.0)
        rows.append(tuple(cells))
    spokes = []
    for colour, name in enumerate(arms):
        mean, low, high = places[:, colour].T
        spokes.append(Spoke(name, mean, low, high, colour))
    declared = all(axis.bounds is not None for axis in axes)
    span = "the declared bounds" if declared else "the worst to the best run of any arm"
    sizes = sorted({values.size for axis in axes for values in axis.values})
    n = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    caption = (
        f"Each axis runs from centre to rim over {span}; further out is better. Lines: mean over N = {n} seeds; bands and "
        f"table: {percent(level)} t interval of each mean on its own. The area has no meaning. {source}"
    )
    panel = Radial(tuple(axis.name for axis in axes), tuple(spokes), tuple(scales))
    table = [("", *arms), *rows]
    if len(arms) > len(axes):  # fewer columns are easier to read
        table = list(zip(*table, strict=True))
    return Figure(title, caption.strip(), [panel], Grid(table[0], tuple(table[1:])), columns=1)
