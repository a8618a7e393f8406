"""Effects with their intervals, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.report.figure import Dots, Figure, Line, Mark, Panel, Rule
from bakeoff.report.spread import height_for, row_ticks, short
from bakeoff.stats.evidence import Interval


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
    drawn = [_panel(found, x_label, name if len(panels) > 1 else "", at) for name, found in panels]
    return Figure(title, caption, drawn, height=height_for(rows), columns=1 if rows > 12 else 2)


def _panel(found: Sequence[Effect], x_label: str, title: str, at: float) -> Panel:
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
