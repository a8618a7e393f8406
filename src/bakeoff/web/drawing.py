"""Write figures as files (PNG, SVG, HTML) and make parts of pages of them. `web/svg.py` draws; PNG is the SVG file, rasterised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bakeoff.errors import UsageError
from bakeoff.text import csv_text
from bakeoff.web.figure import FONTS, Band, Bars, Dots, Figure, Line, Mark, Panel, Radial, Rule, Span, Spoke
from bakeoff.web.svg import colour_class, draw_figure, draw_panel, legend_marks

ENDINGS = (".png", ".svg", ".html")
_PNG_DPI = 160
_KEYS = {Line: "line", Spoke: "line", Dots: "dot", Band: "area", Bars: "area", Span: "area"}


def image(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """Return the drawn figure as a file's content; the same figure gives the same bytes on one machine."""
    drawn = draw_figure(figure)
    return drawn.encode() if kind == "svg" else _rasterise(drawn)


def _rasterise(svg: str) -> bytes:
    """Return a PNG. Raises UsageError on a machine without fonts, where text would be left out in silence."""
    from resvg_py import svg_to_bytes

    blank, letter = (
        svg_to_bytes(svg_string=f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{inside}</svg>')
        for inside in ("", f'<text y="9" font-family="{FONTS}">M</text>')
    )
    if blank == letter:
        raise UsageError(
            "a PNG needs a font, and this machine has none: install one, such as DejaVu, or write .svg or .html"
        )
    return bytes(svg_to_bytes(svg_string=svg, dpi=_PNG_DPI))


def write(figure: Figure, path: Path) -> Path:
    """PNG and SVG for paper; HTML is a page that holds all it needs and opens without a network."""
    kind = check(path)
    if kind == ".html":
        from bakeoff.web.page import render

        content = render("plot.html", figure=figure, picture=page_element(figure, "plot", has_files=False)).encode()
    else:
        content = image(figure, "png" if kind == ".png" else "svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def check(path: Path) -> str:
    """Return the ending, when a plot can have it. Raises UsageError otherwise."""
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise UsageError(f"{path}: a plot ends in {', '.join(ENDINGS)}")
    return kind


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend."""

    label: str
    colour: str
    """`c0` and so on, or `ink`: a class of the style sheet."""
    kind: str
    """`line`, `dashed`, `dotted`, `dot` or `area`."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as a part of a page: what the template macro `picture` takes."""

    figure: Figure
    slug: str
    """Names the figure on its page, and its files: small letters, digits, dashes and underscores."""
    legend: tuple[Key, ...]
    drawings: tuple[str, ...]
    """One SVG element for each panel."""
    has_files: bool = True
    """Whether the page has it as SVG, as CSV and as a table too."""


@dataclass(frozen=True, slots=True)
class NoPicture:
    """Stands where a picture would be, with the reason why there is none."""

    slug: str
    reason: str


def page_element(figure: Figure, name: str, *, has_files: bool = True) -> Picture:
    """Draw a figure for a page."""
    legend = []
    for label, mark in legend_marks(figure).items():
        kind = mark.dash if isinstance(mark, Line) and mark.dash != "solid" else _KEYS[type(mark)]
        legend.append(Key(label, colour_class(mark.colour), kind))
    drawings = [draw_panel(panel, figure.height, narrow=figure.columns > 2) for panel in figure.panels]
    slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "figure"
    return Picture(figure, slug, tuple(legend), tuple(drawings), has_files)


# -- the numbers behind a figure


def numbers(figure: Figure) -> tuple[list[str], list[list[Any]]]:
    """Return what a figure shows as a table: headers, and one row for each point, interval or bar.

    A value on an axis whose ticks are names, such as the arms of a forest plot, is that name.
    """
    rows: list[list[Any]] = []
    for panel in figure.panels:
        if isinstance(panel, Radial):
            for spoke in panel.spokes:
                for at, axis in enumerate(panel.axes):
                    centre, rim = panel.scales[at]
                    ends = [centre + float(each[at]) * (rim - centre) for each in (spoke.values, spoke.low, spoke.high)]
                    rows.append([axis, spoke.label, "mean", None, *ends])
            continue
        for mark in panel.marks:
            rows += [[panel.title, *row] for row in _rows_of(mark, panel)]
    plain = [panel for panel in figure.panels if isinstance(panel, Panel)]
    x, y = ({getattr(panel, name) for panel in plain} for name in ("x_label", "y_label"))
    heads = [labels.pop() if len(labels) == 1 else "" for labels in (x, y)]
    return ["panel", "series", "what", heads[0] or "x", heads[1] or "y", "low", "high"], rows


def _rows_of(mark: Mark, panel: Panel) -> Iterator[list[Any]]:
    x_names, y_names = ({value: name for value, name in ticks or ()} for ticks in (panel.x_ticks, panel.y_ticks))

    def at(names: dict[float, str], value: float) -> float | str:
        return names.get(float(value), float(value))

    match mark:
        case Line(faint=faint):
            for x, y in zip(mark.x, mark.y, strict=True):
                yield [mark.label, "single" if faint else "line", at(x_names, x), at(y_names, y), None, None]
        case Dots():
            names = mark.names or ("",) * len(mark.x)
            for x, y, name in zip(mark.x, mark.y, names, strict=True):
                yield [name or mark.label, "dot", at(x_names, x), at(y_names, y), None, None]
        case Band():
            for x, low, high in zip(mark.x, mark.low, mark.high, strict=True):
                yield [mark.label, "band", at(x_names, x), None, float(low), float(high)]
        case Bars():
            for left, right, height in zip(mark.edges[:-1], mark.edges[1:], mark.heights, strict=True):
                yield [mark.label, "bar", None, float(height), float(left), float(right)]
        case Rule():
            ends = [float(mark.at), None] if mark.axis == "x" else [None, float(mark.at)]
            yield [mark.label, "reference", *ends, None, None]
        case Span():
            yield [mark.label, f"interval on {mark.axis}", None, None, float(mark.low), float(mark.high)]


def as_csv(figure: Figure) -> str:
    """Return the numbers behind a figure as a file."""
    headers, rows = numbers(figure)
    return csv_text(
        headers, [[float(f"{cell:.10g}") if isinstance(cell, float) else cell for cell in row] for row in rows]
    )
