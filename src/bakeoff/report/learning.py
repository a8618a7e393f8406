"""Learning curves: each arm's mean over its seeds, step by step, with a confidence band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bakeoff.report import style
from bakeoff.report.figure import Array, Band, Figure, Line, Mark, Panel
from bakeoff.stats.curves import common_grid
from bakeoff.stats.numerics import t_quantile

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
        Panel("step", metric, tuple(_marks(arms, level, points)), title=task if len(tasks) > 1 else "")
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


def _marks(arms: ByArm, level: float, points: int) -> list[Mark]:
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
        marks.append(Line(grid, np.asarray(mean), number, arm, style.dash(number)))
    return marks
