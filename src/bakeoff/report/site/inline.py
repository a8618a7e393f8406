"""A figure as HTML: each panel an SVG of its own, so that panels wrap on a narrow screen, and colours are the page's.

Colours become CSS variables: one drawing serves light, dark and paper.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bakeoff.report import style
from bakeoff.report.figure import Band, Bars, Dots, Figure, Line, Panel, Radial, Span
from bakeoff.report.static import NARROW, bare_svg

VARIABLES = {
    style.INK_COLOUR: "--ink",
    style.MUTED: "--muted",
    style.GRID: "--grid",
    "#9aa1ab": "--axis",
    "#ffffff": "--paper",
    **{colour.lower(): f"--c{number}" for number, colour in enumerate(style.PALETTE)},
}
"""What drawings are made in, and the page's name for it."""
_COLOUR = re.compile("|".join(map(re.escape, VARIABLES)), re.IGNORECASE)
_ID = re.compile(r'(?<= id=")[^"]+(?=")')
_USED = re.compile(r'(?<= id=")[^"]+(?=")|(?<=url\(#)[^)]+(?=\))|(?<=xlink:href="#)[^"]+(?=")')
_NAMES = re.compile(r' id="(?:figure|patch|axes|matplotlib\.axis|text|line2d|xtick|ytick|[A-Za-z]+Collection)_\d+"')
"""Names of groups that nothing refers to."""
_PLACES = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
_DOTS = re.compile(r'<g clip-path="([^"]*)">\n((?:<use [^>]*/>\n){2,})</g>')
_DOT = re.compile(r'<use xlink:href="([^"]*)" x="([^"]*)" y="([^"]*)" style="([^"]*)"/>\n')


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend."""

    label: str
    colour: str
    kind: str
    """`line`, `dashed`, `dotted`, `dot` or `area`."""


def legend(figure: Figure) -> list[Key]:
    found: dict[str, Key] = {}
    for panel in figure.panels:
        for label, colour, kind in _labels(panel):
            if label:
                found.setdefault(label, Key(label, variable(colour), kind))
    return list(found.values())


def _labels(panel: Panel | Radial) -> Iterator[tuple[str, int, str]]:
    if isinstance(panel, Radial):
        for spoke in panel.spokes:
            yield spoke.label, spoke.colour, "line"
        return
    for mark in panel.marks:
        match mark:
            case Line():
                yield mark.label, mark.colour, "line" if mark.dash == "solid" else mark.dash
            case Dots():
                yield mark.label, mark.colour, "dot"
            case Band() | Bars() | Span():
                yield mark.label, mark.colour, "area"


def variable(colour: int) -> str:
    return f"var({VARIABLES[style.colour(colour).lower()]})"


def drawings(figure: Figure, prefix: str) -> list[str]:
    """One SVG element for each panel; `prefix` keeps their ids apart on a page."""
    width = {"width": NARROW} if figure.columns > 2 else {}
    return [
        _cleaned(bare_svg(_unlabelled(panel), figure.height, **width), f"{prefix}-{number}", panel)
        for number, panel in enumerate(figure.panels)
    ]


def _unlabelled(panel: Panel | Radial) -> Panel | Radial:
    """The legend is HTML. Rules keep their words, which stand beside them."""
    if isinstance(panel, Radial):
        return replace(panel, spokes=tuple(replace(spoke, label="") for spoke in panel.spokes))
    marks = (replace(m, label="") if isinstance(m, Line | Dots | Band | Bars | Span) else m for m in panel.marks)
    return replace(panel, marks=tuple(marks))


def _cleaned(svg: str, prefix: str, panel: Panel | Radial) -> str:
    """The element alone, small, in the page's colours, with ids that no other drawing has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = _NAMES.sub("", svg)
    ids = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    svg = _USED.sub(lambda found: ids.get(found[0], found[0]), svg)
    svg = _COLOUR.sub(lambda found: f"var({VARIABLES[found[0].lower()]})", svg)
    svg = svg.replace(f"'{style.FONT}'", "var(--fonts)")
    svg = _PLACES.sub(lambda found: re.sub(r"\s+", " ", re.sub(r"(\d\.\d)\d+", r"\1", found[0])), svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = _DOTS.sub(_together, svg)
    name = panel.title if isinstance(panel, Panel) else ""
    label = html.escape(name or "plot", quote=True)
    # Width and height are the page's business; the view box keeps the shape.
    start = re.search(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', svg)
    assert start is not None
    return f'<svg viewBox="{start[1]}" role="img" aria-label="{label}">{svg[start.end() :]}'


def _together(found: re.Match[str]) -> str:
    """Dots of one look say so once."""
    dots = _DOT.findall(found[2])
    if len({(shape, look) for shape, _, _, look in dots}) != 1:
        return found[0]
    body = "".join(f'<use href="{shape}" x="{x}" y="{y}"/>' for shape, x, y, _ in dots)
    return f'<g clip-path="{found[1]}" style="{dots[0][3]}">{body}</g>'
