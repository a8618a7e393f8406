"""The page of curves: every metric that runs log by step, with bands over seeds, by step or by a clock, linear or logarithmic.

All drawings are made here. The page only chooses between them, and zooms: a part of a drawing is shown larger, with
ticks that come from here too, in steps of three sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bakeoff.results.table import Array, Row
from bakeoff.stats import curves as series
from bakeoff.text import number
from bakeoff.web.arms import Curve, learning_curves, mean_over_rollouts
from bakeoff.web.contents import Contents
from bakeoff.web.data import script
from bakeoff.web.drawing import NoPicture, Picture, page_element
from bakeoff.web.figure import Band, Line, Mark, Panel, Ticks
from bakeoff.web.page import ASSETS, TEMPLATES, File, Page, render
from bakeoff.web.pictures import slim
from bakeoff.web.svg import limits, round_ticks

MAX_METRICS, MAX_PANELS, MAX_ARMS, POINTS = 12, 12, 14, 100
CLOCKS = ("token", "second", "time", "wall", "elapsed", "processor_s")
"""What the name of a series has that counts tokens or time; it must not fall in any run."""
LOG_AXES = ("", "x", "y", "xy")
_TICKS = (6, 30, 150)
"""About how many ticks the coarsest and finer steps have over the whole axis."""


def curves_page(contents: Contents) -> Page:
    """Return the page; it is listed where runs logged anything by step."""
    logged = contents.results.logged
    metrics = sorted(logged, key=lambda name: name not in contents.main)[:MAX_METRICS]

    def data() -> dict[str, Any]:
        # All of them, because each can be downloaded; the page shows the first until its reader chooses.
        known = clocks(contents, metrics)
        pictures = [picture(contents, metric, clock) for metric in metrics for clock in ("", *known)]
        return {
            "caveat": contents.caveat,
            "metrics": metrics, "clocks": known, "pictures": pictures, "hidden": len(logged) - len(metrics),
            "tasks": len(contents.tasks), "max_panels": MAX_PANELS, "arms": len(contents.arms), "max_arms": MAX_ARMS,
        }  # fmt: skip

    files: dict[str, File] = {}
    for at, metric in enumerate(metrics):
        for k, clock in enumerate(("", *clocks(contents, metrics))):
            files[f"{ASSETS}/curves-{at}-{k}.js"] = _drawer(contents, f"curves-{at}-{k}", metric, clock)
    return Page(
        "Curves", "curves", TEMPLATES / "curves.html.j2", data, listed=bool(metrics), files=files,
        scripts=("curves-page.js",),
    )  # fmt: skip


def clocks(contents: Contents, metrics: list[str]) -> list[str]:
    """Series that can be the horizontal axis: named like a clock, and never falling in any run."""
    return [
        name
        for name in metrics
        if any(word in name.lower() for word in CLOCKS)
        and all(
            bool((np.diff(run.series[name][1]) >= 0).all()) for run in contents.runs if name in run.series
        )
    ]  # fmt: skip


def _drawer(contents: Contents, name: str, metric: str, clock: str) -> Callable[[], str]:
    return lambda: script(name, variants(contents, metric, clock))


def variants(contents: Contents, metric: str, clock: str) -> dict[str, Any]:
    """Return the drawings of a metric for each choice of logarithmic axes: HTML, and ranges and ticks of each panel."""
    drawn = {}
    for logarithmic in LOG_AXES:
        shown = picture(contents, metric, clock, logarithmic)
        panels = shown.figure.panels if isinstance(shown, Picture) else ()
        scales = [_scales(panel, logarithmic) for panel in panels if isinstance(panel, Panel)]
        drawn[logarithmic or "none"] = {"html": render("curve.html", picture=shown), "panels": scales}
    return drawn


def picture(contents: Contents, metric: str, clock: str, logarithmic: str = "") -> Picture | NoPicture:
    """Draw a metric by step, or by a clock, one panel for each task."""
    slug = f"curve-by-{clock or 'step'}-{metric}"
    arms = contents.arms if len(contents.arms) <= 8 else contents.base_arms[:MAX_ARMS]
    tasks = _by_task(contents, arms, metric, clock)
    if not tasks:
        return NoPicture(
            slug, f"No run has {metric} and {clock}." if clock else f"No run has {metric} as finite numbers."
        )
    figure = learning_curves(tasks, metric, source=f"{contents.label}.", points=POINTS)
    panels = []
    for own, panel in zip(tasks.values(), figure.panels, strict=True):
        assert isinstance(panel, Panel)
        # An arm has one colour in all panels, also where others have no curve.
        colours = [arms.index(arm) for arm in own]
        marks = [replace(mark, colour=colours[mark.colour]) for mark in panel.marks]
        if contents.is_open:  # bands are intervals
            marks = [mark for mark in marks if not isinstance(mark, Band)]
        panels.append(_fitted(replace(panel, marks=tuple(marks)), clock or "step"))
    caption = figure.caption
    if contents.is_open:
        caption = f"Not final. Lines: means over the seeds that have ended. {contents.label}."
    for axis in logarithmic:
        panels = [_logarithmic(panel, axis) for panel in panels]
    if logarithmic:
        caption += " On a logarithmic axis, what is not above 0 is left out."
    title = figure.title.replace(" by step", f" by {clock}" if clock else " by step", 1)
    return page_element(slim(replace(figure, title=title, caption=caption, panels=panels)), slug)


def _by_task(contents: Contents, arms: list[str], metric: str, clock: str) -> dict[str, dict[str, list[Curve]]]:
    """Curves of seeds by task and arm; rollouts are averaged first, because they are not units."""
    runs: dict[str, dict[str, dict[int | None, list[Curve]]]] = {}
    for at, run in enumerate(contents.runs):
        if run.arm not in arms or metric not in run.series or (clock and clock not in run.series):
            continue
        curve = _against(run, metric, clock)
        if curve[0].size and np.isfinite(curve[1]).all():
            seeds = runs.setdefault(run.task, {}).setdefault(run.arm, {})
            # Runs without seeds share nothing, so each is a curve of its own.
            seeds.setdefault(run.seed if run.seed is not None else -1 - at, []).append(curve)
    return {
        task: {
            arm: [mean_over_rollouts(own) if _overlap(own) else own[0] for own in seeds.values()]
            for arm, seeds in sorted(by_arm.items(), key=lambda item: arms.index(item[0]))
        }
        for task, by_arm in list(runs.items())[:MAX_PANELS]
    }


def _overlap(curves: list[Curve]) -> bool:
    return max(float(steps[0]) for steps, _ in curves) <= min(float(steps[-1]) for steps, _ in curves)


def _against(run: Row, metric: str, clock: str) -> Curve:
    """The metric by step, or by what the clock showed at the same step."""
    steps, values = series.series(*run.series[metric])
    if not clock:
        return steps, values
    clock_steps, clock_values = series.series(*run.series[clock])
    kept = steps >= clock_steps[0]
    at = np.searchsorted(clock_steps, steps[kept], side="right") - 1
    return np.asarray(clock_values[at], dtype=float), values[kept]


def _fitted(panel: Panel, x_label: str) -> Panel:
    """Show what runs reached: the band of two seeds is so wide that it would hide the curves."""
    values = [mark.y[np.isfinite(mark.y)] for mark in panel.marks if isinstance(mark, Line)]
    together = np.concatenate(values) if values else np.zeros(1)
    low, high = float(together.min()), float(together.max())
    wide = high - low
    for mark in panel.marks:
        if isinstance(mark, Band):  # as far as it leaves the curves most of the panel
            low, high = (
                max(min(low, float(mark.low.min())), low - wide / 4),
                min(max(high, float(mark.high.max())), high + wide / 4),
            )
    room = 0.04 * wide or 0.04 * abs(high) or 0.04
    return replace(panel, x_label=x_label, y_range=(low - room, high + room), x_range=limits(panel.marks, "x"))


def _logarithmic(panel: Panel, axis: str) -> Panel:
    """The panel with logarithms on one axis; what is not above 0 is left out."""

    def log(values: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, np.log10(values), np.nan)

    marks: list[Mark] = []
    for mark in panel.marks:
        if axis == "x" and isinstance(mark, Line | Band):
            mark = replace(mark, x=log(mark.x))
        elif axis == "y" and isinstance(mark, Line):
            mark = replace(mark, y=log(mark.y))
        elif axis == "y" and isinstance(mark, Band):
            # The lower end of a band may be below 0 where its mean is above.
            mark = replace(mark, low=log(np.maximum(mark.low, 1e-12 * np.abs(mark.high))), high=log(mark.high))
        marks.append(mark)
    low, high = limits([mark for mark in marks if isinstance(mark, Line)], "x" if axis == "x" else "y")
    ticks = log_ticks(low, high)
    if axis == "x":
        return replace(panel, marks=tuple(marks), x_range=(low, high), x_ticks=ticks)
    return replace(panel, marks=tuple(marks), y_range=(low, high), y_ticks=ticks)


def log_ticks(low: float, high: float, most: int = 7) -> Ticks:
    """Return powers of ten between two logarithms; also 2 and 5 times them, or round values, where that is too few."""
    first, last = math.floor(low), math.ceil(high)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        stride = max(1, (last - first) // most) if factors == (1,) else 1
        values = [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]
        inside = [value for value in values if low <= math.log10(value) <= high]
        if len(inside) >= 3:
            return tuple((math.log10(value), number(float(f"{value:.6g}"))) for value in inside)
    values = [value for value, _ in round_ticks(10**low, 10**high, 10) if value > 0]
    return tuple((math.log10(value), number(value)) for value in values)


def _scales(panel: Panel, logarithmic: str) -> Mapping[str, Any]:
    """Ranges of a panel, and its ticks in steps of several sizes: the page takes those that fit when it zooms."""
    assert panel.x_range is not None and panel.y_range is not None
    scales = {}
    for axis, (low, high) in (("x", panel.x_range), ("y", panel.y_range)):
        sizes: list[Ticks] = []
        for most in _TICKS:
            if axis in logarithmic:
                values = [value for value, _ in round_ticks(10**low, 10**high, most) if value > 0]
                fine = {value: text for value, text in log_ticks(low, high, 7)} if most == _TICKS[0] else {}
                sizes.append(tuple(fine.items()) or tuple((math.log10(value), number(value)) for value in values))
            else:
                sizes.append(round_ticks(low, high, most))
        scales[axis] = {
            "low": _short(low),
            "high": _short(high),
            "ticks": [[[_short(v), t] for v, t in size] for size in sizes],
        }
    return scales


def _short(value: float) -> float:
    return float(f"{value:.8g}")
