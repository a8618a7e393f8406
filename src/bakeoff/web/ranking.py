"""Many arms: performance profiles, and a radial plot over tasks or metrics with its table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.numerics import t_quantile
from bakeoff.verdicts.rank import Ranking
from bakeoff.web.figure import Band, Figure, Grid, Line, Mark, Panel, Radial, Spoke, dash


def profiles(found: Ranking) -> Figure:
    """Share of runs that do better than a score, for every score. The curve further to the top is the better arm."""
    marks: list[Mark] = []
    for number, arm in enumerate(found.arms):
        profile = arm.profile
        x = np.array(profile.thresholds)
        marks.append(Band(x, 100 * np.array(profile.low), 100 * np.array(profile.high), number))
        marks.append(Line(x, 100 * np.array(profile.share), number, arm.arm, dash(number)))
    level = found.arms[0].profile.level
    better = "above" if found.larger_is_better or found.normalised else "below"
    score = f"normalised {found.metric}" if found.normalised else found.metric
    runs = sorted({arm.runs for arm in found.arms})
    n = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    caption = (
        f"Share of runs {better} each score, over {len(found.tasks)} task{'s' if len(found.tasks) > 1 else ''} "
        f"(N = {n} runs an arm). Bands: {level:.0%} bootstrap of runs inside tasks, pointwise; they speak of these "
        "tasks only."
    )
    panel = Panel(f"{score} (threshold)", f"runs {better} the threshold (%)", tuple(marks), y_range=(-2.0, 102.0))
    title = f"Performance profiles of {found.metric}: {len(found.arms)} arms"
    return Figure(title, caption, [panel])


@dataclass(frozen=True, slots=True)
class Axis:
    """One spoke's worth of data: the values of every arm, one for each unit, in the metric's own direction."""

    name: str
    values: tuple[Array, ...]
    larger_is_better: bool = True
    bounds: tuple[float, float] | None = None
    """Centre and rim when declared; the range of all values seen otherwise."""


def radial(arms: Sequence[str], axes: Sequence[Axis], *, title: str, source: str = "", level: float = 0.95) -> Figure:
    """Every axis runs from the worst (centre) to the best (rim); the table has the numbers behind it."""
    cells = [[_interval(values, level) for values in axis.values] for axis in axes]
    spokes = []
    for number, arm in enumerate(arms):
        scaled = np.array([_scaled(axis, cells[i][number]) for i, axis in enumerate(axes)])
        spokes.append(Spoke(arm, scaled[:, 0], scaled[:, 1], scaled[:, 2], number))
    rows = tuple(
        (f"{axis.name}{'' if axis.larger_is_better else ' (less is better)'}", *(_text(cell) for cell in cells[i]))
        for i, axis in enumerate(axes)
    )
    declared = all(axis.bounds is not None for axis in axes)
    span = "the declared bounds" if declared else "the worst to the best run of any arm"
    sizes = sorted({values.size for axis in axes for values in axis.values})
    n = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    caption = (
        f"Each axis runs from centre to rim over {span}; further out is better. Lines: mean over N = {n} seeds; bands and "
        f"table: {level:.0%} t interval of each mean on its own. The area has no meaning. {source}"
    )
    panel = Radial(tuple(axis.name for axis in axes), tuple(spokes))
    return Figure(title, caption.strip(), [panel], Grid(("", *arms), rows), columns=1)


_Cell = tuple[float, float, float]
"""Mean, low, high."""


def _interval(values: Array, level: float) -> _Cell:
    mean = float(values.mean())
    if values.size < 2:
        return mean, mean, mean
    half = t_quantile(values.size - 1, 0.5 + level / 2) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return mean, mean - half, mean + half


def _scaled(axis: Axis, cell: _Cell) -> _Cell:
    every = np.concatenate(axis.values)
    low, high = axis.bounds or (float(every.min()), float(every.max()))
    if high == low:
        return 1.0, 1.0, 1.0
    shares = [(value - low) / (high - low) for value in cell]
    if not axis.larger_is_better:
        shares = [1.0 - shares[0], 1.0 - shares[2], 1.0 - shares[1]]
    mid, bottom, top = (min(1.0, max(0.0, share)) for share in shares)
    return mid, bottom, top


def _text(cell: _Cell) -> str:
    mean, low, high = cell
    return f"{mean:.3g} ({low:.3g} to {high:.3g})"
