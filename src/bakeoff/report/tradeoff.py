"""What quality costs: each arm's mean cost and mean metric, and who is beaten on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.report.figure import INK, Array, Dots, Figure, Line, Mark, Panel
from bakeoff.report.learning import versus
from bakeoff.report.spread import short, t_interval


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
        Panel(f"mean {cost}", f"mean {metric}", tuple(_marks(found, larger_is_better)), task if len(tasks) > 1 else "")
        for task, found in tasks.items()
    ]
    arms = list(dict.fromkeys(point.arm for found in tasks.values() for point in found))
    best = "upper" if larger_is_better else "lower"
    caption = (
        f"Means over runs that succeeded; crosses: 95 % t interval of each mean on its own. Thin line: arms that no "
        f"other arm beats on both; the {best} left corner is best."
    )
    return Figure(f"{metric} against {cost}: {versus(arms)}", f"{caption} {source}".strip(), panels)


def _marks(found: Sequence[Point], larger_is_better: bool) -> list[Mark]:
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
