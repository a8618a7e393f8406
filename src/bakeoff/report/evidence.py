"""The e-process of a sequential test: how the evidence grew, pair by pair, and where it decides."""

from __future__ import annotations

import math

import numpy as np

from bakeoff.report.figure import INK, Array, Dots, Figure, Line, Mark, Panel, Rule, Ticks
from bakeoff.verdicts.sequential import SequentialComparison, SequentialReport

_LOWEST = -2.0
"""Evidence below 1/100 is drawn there: how little it is does not matter."""


def e_process(found: SequentialReport) -> Figure:
    """One panel for each comparison; the evidence axis is logarithmic."""
    first = found.comparisons[0]
    panels = [_panel(one, titled=len(found.comparisons) > 1) for one in found.comparisons]
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


def _panel(one: SequentialComparison, titled: bool) -> Panel:
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
        y_ticks=_ticks(top), y_range=(_LOWEST - 0.1, top + 0.35),
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


def _ticks(top: float) -> Ticks:
    step = 1 if top <= 6 else math.ceil(top / 6)
    exponents = [-2, -1, 0, *range(step, math.ceil(top) + 1, step)]
    return tuple((float(e), f"{10.0**e:g}" if -3 <= e <= 4 else f"1e{e}") for e in exponents)
