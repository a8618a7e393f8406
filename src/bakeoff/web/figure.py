"""A plot as data: what is drawn, and in which colours. `web/svg.py` draws it, `web/drawing.py` writes files and page elements.

Axes are linear; a logarithmic one is drawn by giving logarithms and `ticks` that name the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Dash = Literal["solid", "dashed", "dotted"]
Axis = Literal["x", "y"]
Ticks = tuple[tuple[float, str], ...]
INK = -1
"""The colour of what belongs to no arm: zero lines, thresholds, intervals."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve. `colour` counts through the palette; `faint` lines stand behind the others and have no label."""

    x: Array
    y: Array
    colour: int = 0
    label: str = ""
    dash: Dash = "solid"
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two curves, in the colour of its line."""

    x: Array
    low: Array
    high: Array
    colour: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Dots:
    """Single values; `names` are shown when the pointer is over one, or beside them when `named`.

    `faint` ones are small and see-through: many of them stand behind what they add up to.
    """

    x: Array
    y: Array
    colour: int = 0
    label: str = ""
    names: tuple[str, ...] = ()
    faint: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram: `edges` has one entry more than `heights`."""

    edges: Array
    heights: Array
    colour: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across the panel at one value of an axis, with a word at its end."""

    axis: Axis
    at: float
    label: str = ""
    colour: int = INK
    dash: Dash = "dashed"


@dataclass(frozen=True, slots=True)
class Span:
    """A shaded strip across the panel between two values of an axis."""

    axis: Axis
    low: float
    high: float
    label: str = ""
    colour: int = INK


Mark = Line | Band | Dots | Bars | Rule | Span


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    x_label: str
    y_label: str
    marks: tuple[Mark, ...]
    title: str = ""
    x_ticks: Ticks | None = None
    y_ticks: Ticks | None = None
    y_range: tuple[float, float] | None = None
    x_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Spoke:
    """One arm of a radial plot: a value and its band on every axis, from 0 (centre) to 1 (rim)."""

    label: str
    values: Array
    low: Array
    high: Array
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Radial:
    """Axes around a circle."""

    axes: tuple[str, ...]
    spokes: tuple[Spoke, ...]
    scales: tuple[tuple[float, float], ...]
    """The value at the centre and at the rim of each axis."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table below the plot."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A whole plot. The title says what is compared; the caption says N, what bands are, and what it rests on."""

    title: str
    caption: str
    panels: Sequence[Panel | Radial]
    table: Grid | None = None
    columns: int = 2
    """Panels side by side, at most."""
    height: float = 1.0
    """Of a row of panels, where 1 is the usual height."""


# -- one look for every plot: colours that colour-blind readers can tell apart, dark ink on white, fit for print

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A")
"""Okabe and Ito's colours without yellow (too light on white), and a violet."""
INK_COLOUR = "#3a3f47"
MUTED = "#6b7280"
GRID = "#e3e6ea"
PARTS = {"ink": INK_COLOUR, "muted": MUTED, "grid": GRID, "axis": "#9aa1ab", "paper": "#ffffff"}
"""What is drawn beside the arms; pages have variables of the same names."""
FONTS = "DejaVu Sans, Verdana, Liberation Sans, Noto Sans, Arial, Helvetica, sans-serif"
"""In a file; pages have fonts of their own."""
BAND_OPACITY = 0.18
FAINT_OPACITY = 0.28
_DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted")


def colour(number: int) -> str:
    """The colour with this number; arms beyond the palette take its colours again."""
    return INK_COLOUR if number == INK else PALETTE[number % len(PALETTE)]


def dash(number: int) -> Dash:
    """The kind of line with this number: it tells arms apart that share a colour."""
    return _DASHES[(number // len(PALETTE)) % len(_DASHES)]
