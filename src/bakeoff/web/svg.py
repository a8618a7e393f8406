"""Draw figures as SVG text, in one pass and without a drawing library. The same figure gives the same bytes.

`draw_panel` is for pages: one element for each panel, so that panels wrap on a narrow screen, in the page's colours (CSS
variables), so that one drawing serves light, dark and paper. `draw_figure` is for files: title, legend, panels, table
and caption on white. Lengths are points; text stays text.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from bakeoff.text import number
from bakeoff.web import figure as style
from bakeoff.web.figure import (
    Array,
    Band,
    Bars,
    Dots,
    Figure,
    Grid,
    Line,
    Mark,
    Panel,
    Radial,
    Rule,
    Span,
    Spoke,
    Ticks,
)

Paint = Callable[[int | str], str]
"""The colour of an arm (its number) or of a part of the plot (`ink`, `muted`, `grid`, `axis`, `paper`)."""
Anchor = Literal["start", "middle", "end"]

PAGE_WIDTH, PAGE_NARROW, PAGE_HEIGHT, PAGE_ROUND = 403.0, 302.0, 238.0, 317.0
"""Of a panel on a page: its width, its width among three, its height, and the height of a radial one."""
FILE_WIDTHS = (533.0, 749.0, 965.0)
"""Of one, two and three panels side by side."""
FILE_HEIGHT, FILE_ROUND = 281.0, 353.0
_TITLE, _PANEL_TITLE, _LABEL, _SMALL, _TINY = 12.0, 10.5, 9.5, 8.5, 7.0
"""Sizes of letters."""
_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_DASHES = {"solid": "", "dashed": ' stroke-dasharray="9 4.5"', "dotted": ' stroke-dasharray="2.2 3.2"'}
_NARROW_LETTERS, _WIDE_LETTERS = frozenset("fijlrtI.,:;!|'()[]/\\-` "), frozenset("mwMW@%—")


def draw_panel(panel: Panel | Radial, height: float = 1.0, narrow: bool = False) -> str:
    """Return one panel as an element of a page."""
    width = PAGE_NARROW if narrow else PAGE_WIDTH
    tall = PAGE_ROUND if isinstance(panel, Radial) else PAGE_HEIGHT * height
    name = "" if isinstance(panel, Radial) else panel.title
    body = _draw(panel, Box(0.0, 0.0, width, tall), _page_paint)
    return (
        f'<svg viewBox="0 0 {_n(width)} {_n(tall)}" role="img" aria-label="{_quoted(name or "plot")}" '
        f'font-family="var(--fonts)">{_describe(panel)}{body}</svg>'
    )


def draw_figure(figure: Figure) -> str:
    """Return a whole figure as the content of a file."""
    columns = min(figure.columns, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    row_height = FILE_ROUND if isinstance(figure.panels[0], Radial) else FILE_HEIGHT * figure.height
    width = FILE_WIDTHS[min(columns, len(FILE_WIDTHS)) - 1]
    sizes = [] if figure.table is None else _column_widths(figure.table)
    width = max(width, sum(sizes) + 20.0)
    parts: list[str] = []
    top = 9.0
    for line in _wrapped(figure.title, _TITLE * 1.06, width - 18.0):
        top += 16.5
        parts.append(_text(9.0, top - 4.0, line, _TITLE, _file_paint("ink"), bold=True))
    legend, below = _legend(figure, top + 4.0, width)
    parts += legend
    top = below
    for at, panel in enumerate(figure.panels):
        across = width / columns
        box = Box(at % columns * across, top + at // columns * row_height, across, row_height)
        parts.append(_draw(panel, box, _file_paint))
    top += rows * row_height + 6.0
    if figure.table is not None:
        parts += _table(figure.table, sizes, top, width)
        top += 21.5 * (len(figure.table.rows) + 1) + 8.0
    for line in _wrapped(figure.caption, 8.0, width - 18.0):
        top += 11.9
        parts.append(_text(9.0, top - 2.0, line, 8.0, _file_paint("muted")))
    height = top + 7.0
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}pt" height="{_n(height)}pt" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" font-family="{style.FONTS}">\n'
        f"<title>{_escaped(figure.title)}</title><desc>{_escaped(figure.caption)}</desc>\n"
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def colour_class(colour: int) -> str:
    """Return the class of the style sheet that has the colour of an arm."""
    return "ink" if colour == style.INK else f"c{colour % len(style.PALETTE)}"


# -- colours and text


def _page_paint(colour: int | str) -> str:
    return f"var(--{colour_class(colour) if isinstance(colour, int) else colour})"


def _file_paint(colour: int | str) -> str:
    return style.colour(colour) if isinstance(colour, int) else style.PARTS[colour]


def _escaped(text: str) -> str:
    """Return text that is safe between tags: markup is text, and characters that XML does not allow are replaced."""
    allowed = "".join(
        letter if letter >= " " and not "\ud800" <= letter <= "\udfff" and letter not in "\ufffe\uffff" else "\ufffd"
        for letter in text
    )
    return allowed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', "&quot;")


def _n(value: float) -> str:
    """Return a length with one digit behind the point: a hundredth of an inch is enough."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, on the safe side: fonts differ, and nothing here reads one."""
    ems = 0.0
    for letter in text:
        if letter in _NARROW_LETTERS:
            ems += 0.38
        elif letter in _WIDE_LETTERS:
            ems += 0.95
        elif letter > "\u2e7f" and unicodedata.east_asian_width(letter) in "WF":
            ems += 1.0
        else:
            ems += 0.70 if letter.isupper() else 0.61
    return ems * size


def _wrapped(text: str, size: float, width: float) -> list[str]:
    """Return the lines of a text; words that are longer than a line are broken."""
    if text_width(text, size) <= width:
        return [text] if text else []
    letters = max(8, int(len(text) * width / text_width(text, size)))
    return textwrap.wrap(text, letters)


def _text(
    x: float, y: float, text: str, size: float, fill: str, anchor: Anchor = "start", *, bold: bool = False
) -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{fill}"{where}{weight}>{_escaped(text)}</text>'


def _describe(panel: Panel | Radial) -> str:
    """Return what a screen reader says about a panel beside its name."""
    if isinstance(panel, Radial):
        return f"<desc>{_escaped(', '.join(panel.axes))}</desc>"
    return f"<desc>{_escaped(f'{panel.y_label} by {panel.x_label}')}</desc>"


# -- one pair of axes


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: values from `low` to `high` become lengths from 0 to `length`, upwards where `up`."""

    low: float
    high: float
    length: float
    up: bool = False

    def __call__(self, values: Array) -> Array:
        share = (np.asarray(values, float) - self.low) / (self.high - self.low)
        return (1.0 - share if self.up else share) * self.length

    def at(self, value: float) -> float:
        return float(self(np.array([value]))[0])


def _draw(panel: Panel | Radial, box: Box, paint: Paint) -> str:
    body = _draw_radial(panel, box, paint) if isinstance(panel, Radial) else _draw_axes(panel, box, paint)
    if not box.x and not box.y:
        return body
    return f'<g transform="translate({_n(box.x)} {_n(box.y)})">{body}</g>'


def _draw_axes(panel: Panel, box: Box, paint: Paint) -> str:
    title = _wrapped(panel.title, _PANEL_TITLE, box.width - 16.0)
    top = 10.0 + 13.5 * len(title)
    bottom = 22.0 + (13.0 if panel.x_label else 0.0)
    rules = [mark.label for mark in panel.marks if isinstance(mark, Rule) and mark.axis == "y" and mark.label]
    right = 12.0 + max((text_width(label, 8.0) for label in rules), default=0.0)
    height = max(30.0, box.height - top - bottom)
    y_low, y_high = panel.y_range or limits(panel.marks, "y")
    y_ticks = panel.y_ticks if panel.y_ticks is not None else round_ticks(y_low, y_high, max(2, int(height // 30)))
    names = [text for _, text in y_ticks]
    left = 13.0 + max((text_width(name, _SMALL) for name in names), default=0.0) + (13.0 if panel.y_label else 0.0)
    left = min(left, 0.62 * box.width)
    width = max(40.0, box.width - left - right)
    x_low, x_high = panel.x_range or limits(panel.marks, "x")
    x, y = Scale(x_low, x_high, width), Scale(y_low, y_high, height, up=True)
    x_names = _place_names(panel.x_ticks if panel.x_ticks is not None else _ticks_that_fit(x), x, left, box.width)
    y_ticks = _inside(y_ticks, y)
    inside = [_grid([value for value, _, _ in x_names], [value for value, _ in y_ticks], x, y, paint)]
    for mark in sorted(panel.marks, key=_order):
        inside.append(_mark(mark, x, y, paint))
    inside.append(_axis_lines(width, height, paint))
    # A nested element cuts off what leaves the panel, and needs no id for that.
    parts = [
        f'<svg x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}">{"".join(inside)}</svg>',
        *(_text(8.0, 12.0 + 13.5 * at, line, _PANEL_TITLE, paint("ink")) for at, line in enumerate(title)),
    ]
    if title and len(title) == 1 and text_width(title[0], _PANEL_TITLE) <= box.width - left - 8.0:
        parts[1] = _text(left, 12.0, title[0], _PANEL_TITLE, paint("ink"))
    below = [_text(place, top + height + 12.5, text, _SMALL, paint("ink"), "middle") for _, place, text in x_names]
    beside = [_text(left - 5.0, top + y.at(value) + 3.0, text, _SMALL, paint("ink"), "end") for value, text in y_ticks]
    # Groups, so that a page that lets its reader zoom can put other ticks in their place.
    parts += [f'<g class="ticks-x">{"".join(below)}</g>', f'<g class="ticks-y">{"".join(beside)}</g>']
    if panel.x_label:
        parts.append(_text(left + width / 2.0, top + height + 28.0, panel.x_label, _LABEL, paint("ink"), "middle"))
    if panel.y_label:
        middle = top + height / 2.0
        turned = _text(0.0, 0.0, panel.y_label, _LABEL, paint("ink"), "middle")
        parts.append(f'<g transform="translate(11 {_n(middle)}) rotate(-90)">{turned}</g>')
    parts += _rule_labels(panel.marks, Box(left, top, width, height), x, y, paint)
    return "".join(parts)


def limits(marks: Sequence[Mark], axis: Literal["x", "y"]) -> tuple[float, float]:
    """Return the ends of an axis: what is drawn, and a little more."""
    values: list[Array] = []
    for mark in marks:
        match mark:
            case Line() | Dots():
                values.append(mark.x if axis == "x" else mark.y)
            case Band():
                values += [mark.x] if axis == "x" else [mark.low, mark.high]
            case Bars():
                values += [mark.edges] if axis == "x" else [mark.heights, np.zeros(1)]
            case Rule(axis=along) if along == axis:
                values.append(np.array([mark.at]))
            case Span(axis=along) if along == axis:
                values.append(np.array([mark.low, mark.high]))
    together = np.concatenate([np.ravel(each) for each in values]) if values else np.zeros(0)
    together = together[np.isfinite(together)]
    if not together.size:
        return 0.0, 1.0
    low, high = float(together.min()), float(together.max())
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        wide = abs(low) * 0.05 or 0.5
        return low - wide, high + wide
    more = (high - low) * (0.02 if axis == "x" else 0.05)
    stands = axis == "y" and low == 0.0 and any(isinstance(mark, Bars) for mark in marks)
    return (low if stands else low - more), high + more


def round_ticks(low: float, high: float, most: int) -> Ticks:
    """Return at most about `most` round values between two ends, with more digits where four do not tell them apart."""
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in _ROUND_STEPS if each * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [float(f"{at * step:.9g}") for at in range(first, min(last, first + 50) + 1)]
    labels = [number(value) for value in values]
    if len(set(labels)) < len(labels):
        labels = [f"{value:,.9g}" for value in values]
    return tuple(zip(values, labels, strict=True))


def _ticks_that_fit(scale: Scale) -> Ticks:
    """Return round values along a horizontal axis whose names do not touch."""
    for most in (8, 6, 5, 4, 3, 2):
        ticks = round_ticks(scale.low, scale.high, most)
        if sum(text_width(text, _SMALL) + 12.0 for _, text in ticks) <= scale.length:
            break
    return ticks


def _inside(ticks: Ticks, scale: Scale) -> Ticks:
    slack = 1e-9 * (scale.high - scale.low)
    return tuple(tick for tick in ticks if scale.low - slack <= tick[0] <= scale.high + slack)


def _place_names(ticks: Ticks, scale: Scale, left: float, most: float) -> list[tuple[float, float, str]]:
    """Return value, place and name of the ticks of a horizontal axis, without names that would touch the one before.

    `left` is where the axis begins and `most` where the drawing ends: names at the ends are moved inside.
    """
    kept: list[tuple[float, float, str]] = []
    free = 0.0
    for value, text in sorted(_inside(ticks, scale)):
        half = text_width(text, _SMALL) / 2.0
        place = max(half + 1.0, min(left + scale.at(value), most - half - 1.0))
        if place - half >= free:
            kept.append((value, place, text))
            free = place + half + 4.0
    return kept


def _grid(across: Sequence[float], up: Sequence[float], x: Scale, y: Scale, paint: Paint) -> str:
    lines = [f"M{_n(x.at(value))} 0V{_n(y.length)}" for value in across]
    lines += [f"M0 {_n(y.at(value))}H{_n(x.length)}" for value in up]
    return f'<path class="grid" d="{"".join(lines)}" stroke="{paint("grid")}" stroke-width=".8"/>' if lines else ""


def _axis_lines(width: float, height: float, paint: Paint) -> str:
    return f'<path d="M0 0V{_n(height)}H{_n(width)}" fill="none" stroke="{paint("axis")}" stroke-width="1.6"/>'


def _rule_labels(marks: Sequence[Mark], box: Box, x: Scale, y: Scale, paint: Paint) -> list[str]:
    """Return the words at the ends of rules: beside the panel, or at its top, below each other where they are close by."""
    parts: list[str] = []
    line = 0
    for mark in marks:
        if not isinstance(mark, Rule) or not mark.label:
            continue
        if mark.axis == "y":
            parts.append(
                _text(box.x + box.width + 4.0, box.y + y.at(mark.at) + 3.0, mark.label, 8.0, paint(mark.colour))
            )
            continue
        at, wide = box.x + x.at(mark.at), text_width(mark.label, 8.0)
        start = at + 4.0 if at + 4.0 + wide <= box.x + box.width else at - 4.0 - wide
        top = box.y + 3.0 + 13.0 * line
        parts.append(
            f'<rect x="{_n(start - 1.0)}" y="{_n(top)}" width="{_n(wide + 2.0)}" height="11" fill="{paint("paper")}" '
            f'fill-opacity=".75"/>{_text(start, top + 8.5, mark.label, 8.0, paint(mark.colour))}'
        )
        line += 1
    return parts


# -- marks


def _order(mark: Mark) -> float:
    """Return where a mark stands from the back to the front."""
    match mark:
        case Span():
            return 1.0
        case Line(faint=True):
            return 1.5
        case Band() | Bars() | Dots(faint=True):
            return 2.0
        case Rule():
            return 2.5
        case Line():
            return 3.0
    return 4.0


def _mark(mark: Mark, x: Scale, y: Scale, paint: Paint) -> str:
    colour = paint(mark.colour)
    match mark:
        case Line():
            look = (
                f'stroke-width=".7" stroke-opacity="{style.FAINT_OPACITY}"'
                if mark.faint
                else f'stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round"{_DASHES[mark.dash]}'
            )
            return f'<path d="{_curve(x(mark.x), y(mark.y))}" fill="none" stroke="{colour}" {look}/>'
        case Band():
            shape = _area(x(mark.x), y(mark.low), y(mark.high))
            return f'<path d="{shape}" fill="{colour}" fill-opacity="{style.BAND_OPACITY}"/>'
        case Dots():
            return _dots(mark, x, y, colour, paint)
        case Bars():
            edges, tops = x(mark.edges), y(mark.heights)
            floor = _n(y.at(0.0))
            shape = "".join(
                f"M{_n(left)} {floor}V{_n(top)}H{_n(right)}V{floor}Z"
                for left, right, top in zip(edges[:-1], edges[1:], tops, strict=True)
                if math.isfinite(top)
            )
            return f'<path d="{shape}" fill="{colour}" fill-opacity=".55"/>'
        case Span():
            scale = x if mark.axis == "x" else y
            start, end = sorted((scale.at(mark.low), scale.at(mark.high)))
            place = (
                f'x="{_n(start)}" y="0" width="{_n(end - start)}" height="{_n(y.length)}"'
                if mark.axis == "x"
                else f'x="0" y="{_n(start)}" width="{_n(x.length)}" height="{_n(end - start)}"'
            )
            return f'<rect {place} fill="{colour}" fill-opacity=".13"/>'
        case Rule():
            along = (
                f"M{_n(x.at(mark.at))} 0V{_n(y.length)}"
                if mark.axis == "x"
                else f"M0 {_n(y.at(mark.at))}H{_n(x.length)}"
            )
            return f'<path d="{along}" stroke="{colour}" stroke-width="1.1"{_DASHES[mark.dash]}/>'


def _dots(mark: Dots, x: Scale, y: Scale, colour: str, paint: Paint) -> str:
    size = "2" if mark.faint else "3"
    look = 'fill-opacity=".4"' if mark.faint else f'stroke="{paint("paper")}" stroke-width=".8"'
    if mark.faint and not mark.names:
        # Up to 1,500 dots in a figure: points of one line with round ends take a third of the bytes of circles.
        points = (
            f"M{_n(across)} {_n(up)}h.01"
            for across, up in zip(x(mark.x), y(mark.y), strict=True)
            if math.isfinite(across + up)
        )
        return f'<path d="{"".join(points)}" fill="none" stroke="{colour}" stroke-opacity=".4" stroke-width="4" stroke-linecap="round"/>'
    names: Iterable[str] = mark.names or [""] * len(mark.x)
    dots, words = [], []
    for across, up, name in zip(x(mark.x), y(mark.y), names, strict=True):
        if not (math.isfinite(across) and math.isfinite(up)):
            continue
        said = f"><title>{_escaped(name)}</title></circle>" if name else "/>"
        dots.append(f'<circle cx="{_n(across)}" cy="{_n(up)}" r="{size}"{said}')
        if mark.named and name:
            wide = text_width(name, _SMALL)
            start = across + 7.0 if across + 7.0 + wide <= x.length else across - 7.0 - wide
            words.append(_text(start, max(9.0, up - 6.0), name, _SMALL, paint("ink")))
    return f'<g fill="{colour}" {look}>{"".join(dots)}</g>{"".join(words)}'


def _curve(x: Array, y: Array) -> str:
    """Return a path through the points; gaps where a value is absent, and no point that is where the last one was."""
    path, pen, last = [], "M", ""
    for across, up in zip(x.tolist(), y.tolist(), strict=True):
        if not (math.isfinite(across) and math.isfinite(up)):
            pen = "M"
            continue
        point = f"{_n(across)} {_n(up)}"
        if pen == "M" or point != last:
            path.append(pen + point)
        pen, last = "L", point
    return "".join(path)


def _area(x: Array, low: Array, high: Array) -> str:
    """Return the outline between two curves, one for each stretch without an absent value."""
    known = (np.isfinite(x) & np.isfinite(low) & np.isfinite(high)).tolist()
    shapes = []
    for there, run in groupby(range(len(known)), key=lambda at: known[at]):
        if there:
            part = list(run)
            upper, lower = _curve(x[part], high[part]), _curve(x[part][::-1], low[part][::-1])
            shapes.append(f"{upper}L{lower[1:]}Z")
    return "".join(shapes)


# -- axes around a circle


def _draw_radial(radial: Radial, box: Box, paint: Paint) -> str:
    angles = np.linspace(0.0, 2.0 * math.pi, len(radial.axes), endpoint=False)
    names = [textwrap.wrap(name, 18, break_long_words=False) or [""] for name in radial.axes]
    beside = max((text_width(line, _SMALL) for lines in names for line in lines), default=0.0)
    radius = max(40.0, min(box.width / 2.0 - beside - 14.0, box.height / 2.0 - 30.0))
    middle = (box.width / 2.0, box.height / 2.0)

    def place(share: float, angle: float) -> tuple[float, float]:
        return middle[0] + share * radius * math.sin(angle), middle[1] - share * radius * math.cos(angle)

    def outline(values: Array) -> str:
        corners = [place(float(value), float(angle)) for value, angle in zip(values, angles, strict=True)]
        return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"

    rings = (1 / 3, 2 / 3, 1.0)
    parts = [
        f'<circle cx="{_n(middle[0])}" cy="{_n(middle[1])}" r="{_n(ring * radius)}" fill="none" '
        f'stroke="{paint("grid")}" stroke-width=".8"/>'
        for ring in rings
    ]
    spokes = "".join(f"M{_n(middle[0])} {_n(middle[1])}L{_n(x)} {_n(y)}" for x, y in (place(1.0, a) for a in angles))
    parts.append(f'<path d="{spokes}" stroke="{paint("grid")}" stroke-width=".8"/>')
    for spoke in radial.spokes:
        parts.append(
            _spoke(
                spoke, outline, [place(float(v), float(a)) for v, a in zip(spoke.values, angles, strict=True)], paint
            )
        )
    for lines, angle in zip(names, angles, strict=True):
        x, y = place(1.0 + 10.0 / radius, float(angle))
        sideways = math.sin(angle)
        anchor: Anchor = "start" if sideways > 0.1 else "end" if sideways < -0.1 else "middle"
        first = y + 3.0 - (len(lines) - 1) * (11.0 if math.cos(angle) > 0.5 else 5.5 if math.cos(angle) > -0.5 else 0.0)
        parts += [_text(x, first + 11.0 * at, line, _SMALL, paint("ink"), anchor) for at, line in enumerate(lines)]
    same = len(set(radial.scales)) == 1
    for angle, (centre, rim) in zip(angles[:1] + math.pi / 8 if same else angles, radial.scales, strict=False):
        for ring in rings:  # every axis with a scale of its own has its values beside it
            x, y = place(ring, float(angle))
            value = number(centre + ring * (rim - centre))
            wide = text_width(value, _TINY)
            parts.append(
                f'<rect x="{_n(x - wide / 2.0)}" y="{_n(y - 4.5)}" width="{_n(wide)}" height="9" fill="{paint("paper")}" '
                f'fill-opacity=".7"/>{_text(x, y + 2.5, value, _TINY, paint("muted"), "middle")}'
            )
    return "".join(parts)


def _spoke(spoke: Spoke, outline: Callable[[Array], str], corners: list[tuple[float, float]], paint: Paint) -> str:
    colour = paint(spoke.colour)
    dots = "".join(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="1.8"/>' for x, y in corners)
    return (
        f'<path d="{outline(spoke.high)}{outline(spoke.low)}" fill="{colour}" fill-opacity="{style.BAND_OPACITY}" '
        f'fill-rule="evenodd"/><path d="{outline(spoke.values)}" fill="none" stroke="{colour}" stroke-width="1.9"'
        f'{_DASHES[style.dash(spoke.colour)]}/><g fill="{colour}">{dots}</g>'
    )


# -- around the panels of a file


def legend_marks(figure: Figure) -> dict[str, Mark | Spoke]:
    """Return the mark that stands for each label, in the order in which labels appear. Rules carry their own words."""
    marks: dict[str, Mark | Spoke] = {}
    for panel in figure.panels:
        for mark in panel.spokes if isinstance(panel, Radial) else panel.marks:
            if mark.label and not isinstance(mark, Rule):
                marks.setdefault(mark.label, mark)
    return marks


def _legend(figure: Figure, top: float, width: float) -> tuple[list[str], float]:
    """Return the entries, and where they end."""
    parts: list[str] = []
    marks = legend_marks(figure)
    x, y = 9.0, top
    for label, mark in marks.items():
        wide = 26.0 + text_width(label, 9.0)
        if x > 9.0 and x + wide > width - 9.0:
            x, y = 9.0, y + 15.0
        colour = _file_paint(mark.colour)
        match mark:
            case Line() | Spoke():
                dash = mark.dash if isinstance(mark, Line) else style.dash(mark.colour)
                key = f'<path d="M{_n(x)} {_n(y + 6.0)}h18" stroke="{colour}" stroke-width="1.9"{_DASHES[dash]}/>'
            case Dots():
                key = f'<circle cx="{_n(x + 9.0)}" cy="{_n(y + 6.0)}" r="3" fill="{colour}"/>'
            case _:
                key = f'<rect x="{_n(x)}" y="{_n(y + 2.0)}" width="18" height="8" fill="{colour}" fill-opacity=".35"/>'
        parts.append(key + _text(x + 23.0, y + 9.2, label, 9.0, _file_paint("ink")))
        x += wide + 14.0
    return parts, y + (17.0 if marks else 0.0)


def _column_widths(table: Grid) -> list[float]:
    return [
        14.0 + max(text_width(cell, _SMALL) for cell in column)
        for column in zip(table.headers, *table.rows, strict=True)
    ]


def _table(table: Grid, sizes: Sequence[float], top: float, width: float) -> list[str]:
    left = (width - sum(sizes)) / 2.0
    parts = []
    for line, row in enumerate((table.headers, *table.rows)):
        y = top + 21.5 * line
        right = left
        for at, (cell, size) in enumerate(zip(row, sizes, strict=True)):
            right += size
            x, anchor = (right - 4.0, "end") if at else (left + 3.0, "start")
            parts.append(_text(x, y + 14.0, cell, _SMALL, _file_paint("ink"), anchor, bold=line == 0))  # type: ignore[arg-type]
        parts.append(f'<path d="M{_n(left)} {_n(y + 21.0)}H{_n(right)}" stroke="{style.GRID}"/>')
    return parts
