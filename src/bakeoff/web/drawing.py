"""Write figures as files (PNG, SVG, HTML) and make parts of pages of them. `web/svg.py` draws; PNG is the SVG file, rasterised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bakeoff.errors import UsageError
from bakeoff.web.figure import FONTS, Band, Bars, Dots, Figure, Line, Span, Spoke
from bakeoff.web.svg import colour_on_page, draw_figure, draw_panel, legend_marks

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
        from bakeoff.web.folder import render

        content = render("plot.html", figure=figure, picture=page_element(figure, "plot")).encode()
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
    kind: str
    """`line`, `dashed`, `dotted`, `dot` or `area`."""


def page_element(figure: Figure, slug: str, file: str | None = None) -> dict[str, Any]:
    """Return what the template macro `picture` takes: the legend, and one SVG element for each panel.

    `slug` names the figure on its page; `file` is the address of the same picture as a file.
    """
    legend = []
    for label, mark in legend_marks(figure).items():
        kind = mark.dash if isinstance(mark, Line) and mark.dash != "solid" else _KEYS[type(mark)]
        legend.append(Key(label, colour_on_page(mark.colour), kind))
    drawings = [draw_panel(panel, figure.height, narrow=figure.columns > 2) for panel in figure.panels]
    return {"slug": slug, "figure": figure, "legend": legend, "drawings": drawings, "file": file}
