"""Figures as files (PNG, SVG, HTML) and as parts of a page, drawn by matplotlib without a display.

The same figure gives the same bytes every time. On a page each panel is an SVG element, so that panels wrap on a narrow
screen, and colours become CSS variables: one drawing serves light, dark and paper.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.text import number
from bakeoff.web import figure as style
from bakeoff.web.figure import Band, Bars, Dots, Figure, Grid, Line, Mark, Panel, Radial, Rule, Span, Spoke

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_WIDTHS = (7.4, 10.4, 13.4)
"""Of one, two and three panels side by side, in inches."""
_ROW = 3.9
_INLINE_ROW, _INLINE_WIDTH, _NARROW = 3.3, 5.6, 4.2
"""On a page: height of a panel, its width, and its width among three; in inches."""
_LETTER, _TITLE_LETTER, _NAME_LETTER = 0.085, 0.088, 0.072
"""Of a letter in the table below a plot, in a panel's title and beside an axis, in inches."""
_PNG_DPI = 160
_LINES = {"solid": "-", "dashed": (0, (5, 2.5)), "dotted": (0, (1.2, 1.8))}
_RC: Any = {
    "font.family": style.FONT,
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.labelcolor": style.INK_COLOUR,
    "axes.edgecolor": "#9aa1ab",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": style.GRID,
    "grid.linewidth": 0.8,
    "xtick.color": style.INK_COLOUR,
    "ytick.color": style.INK_COLOUR,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.color": style.INK_COLOUR,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "text.parse_math": False,  # names are words, whatever is in them
    "svg.hashsalt": "bakeoff",  # ids in the file depend on its content alone
}


def image(figure: Figure, kind: Literal["png", "svg"], *, inline: float | None = None) -> bytes:
    """The drawn figure as a file's content; the same figure gives the same bytes.

    `inline` is the width of a single panel for a web page that has title, legend and caption of its own: it has no
    background, and text stays text.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    is_radial = isinstance(figure.panels[0], Radial)
    table = 0.0 if figure.table is None else 0.3 * (len(figure.table.rows) + 1) + 0.2
    if inline is None:
        height = rows * (4.9 if is_radial else _ROW * figure.height) + 1.0 + table
        width, settings = _WIDTHS[min(columns, len(_WIDTHS)) - 1], _RC
        if figure.table is not None:
            width = max(width, _LETTER * sum(_column_widths(figure.table)))
    else:
        height = 4.4 if is_radial else _INLINE_ROW * figure.height
        width, settings = inline, {**_RC, "svg.fonttype": "none"}
    share = table / height
    ratios = [1.0] * rows if figure.table is None else [*[(1.0 - share) / rows] * rows, share]
    style_of: Any = {**mpl.rcParamsDefault, **settings, "backend": "agg"}
    with mpl.rc_context(style_of):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(canvas)
        grid = canvas.add_gridspec(len(ratios), columns, height_ratios=ratios)
        legend: dict[str, Any] = {}
        for at, panel in enumerate(figure.panels):
            place = grid[at // columns, at % columns]
            axes: Any = canvas.add_subplot(place, projection="polar" if isinstance(panel, Radial) else None)
            if isinstance(panel, Radial):
                _radial(axes, panel)
            else:
                _panel(axes, panel, width / columns)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                legend.setdefault(label, handle)
        if figure.table is not None:
            _table(canvas.add_subplot(grid[rows, :]), figure.table)
        _around(canvas, figure, legend, columns)
        out = io.BytesIO()
        # No date and no version: they would make equal plots differ.
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        canvas.savefig(out, format=kind, dpi=_PNG_DPI, metadata=metadata, transparent=inline is not None)
    return out.getvalue()


def _around(canvas: Canvas, figure: Figure, legend: dict[str, Any], columns: int) -> None:
    """Title and legend above the panels, the caption below; the panels share what is left."""
    width, height = canvas.get_size_inches()
    title = textwrap.wrap(figure.title, int(width * 10.2))
    caption = textwrap.wrap(figure.caption, int(width * 17.0))
    left, top = 0.12 / width, (0.12 if title or legend else 0.0) / height
    canvas.text(left, 1.0 - top, "\n".join(title), ha="left", va="top", fontsize=12, fontweight="bold")
    top += 0.23 * len(title) / height
    if legend:
        across = 6 if columns > 1 else 4
        canvas.legend(
            legend.values(), legend.keys(), loc="upper left", bbox_to_anchor=(left, 1.0 - top), ncols=across,
            borderaxespad=0.0, borderpad=0.0, columnspacing=1.6,
        )  # fmt: skip
        top += 0.24 * math.ceil(len(legend) / across) / height
    canvas.text(left, 0.1 / height, "\n".join(caption), ha="left", va="bottom", fontsize=8, color=style.MUTED)
    bottom = (0.2 + 0.165 * len(caption) if caption else 0.0) / height
    engine: Any = canvas.get_layout_engine()
    engine.set(rect=(0.0, bottom, 1.0, 1.0 - top - bottom), w_pad=0.12, h_pad=0.08)


def _panel(axes: Axes, panel: Panel, width: float) -> None:
    """`width` is that of the panel with its labels, in inches."""
    for mark in panel.marks:
        _mark(axes, mark)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.title:
        # Names beside the axis leave little room above it: a long title starts above them, and wraps.
        side = _NAME_LETTER * max((len(name) for _, name in panel.y_ticks or ()), default=8)
        if _TITLE_LETTER * len(panel.title) <= width - side - 0.4:
            axes.set_title(panel.title)
        else:
            words = textwrap.fill(panel.title, max(16, int((width - 0.3) / _TITLE_LETTER)))
            axes.annotate(
                words, (0.0, 1.0), xytext=(-72.0 * side, 5.0), xycoords="axes fraction", textcoords="offset points",
                ha="left", va="bottom", fontsize=10.5, annotation_clip=False,
            )  # fmt: skip
    axes.margins(x=0.02)
    if panel.y_range is not None:
        axes.set_ylim(panel.y_range)
    if panel.x_range is not None:
        axes.set_xlim(panel.x_range)
    if panel.x_ticks is None:
        if panel.y_ticks is not None:  # names at the side leave little room
            axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(_tick_formatter())
    else:
        axes.set_xticks([at for at, _ in panel.x_ticks], [text for _, text in panel.x_ticks])
    if panel.y_ticks is None:
        axes.yaxis.set_major_formatter(_tick_formatter())
    else:
        axes.set_yticks([at for at, _ in panel.y_ticks], [text for _, text in panel.y_ticks])


def _tick_formatter() -> Any:
    """Numbers at an axis as everywhere else, with more digits where four do not tell ticks apart."""
    from matplotlib.ticker import Formatter

    class Numbers(Formatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return number(float(value))

        def format_ticks(self, values: Any) -> list[str]:
            rounded = [float(f"{value:.9g}") for value in values]
            labels = [number(value) for value in rounded]
            return labels if len(set(labels)) == len(labels) else [f"{value:,.9g}" for value in rounded]

    return Numbers()


def _mark(axes: Axes, mark: Mark) -> None:
    colour = style.colour(mark.colour)
    label = mark.label or None
    match mark:
        case Line(faint=True):
            axes.plot(mark.x, mark.y, color=colour, alpha=style.FAINT_OPACITY, linewidth=0.7, zorder=1.5)
        case Line():
            axes.plot(mark.x, mark.y, color=colour, linestyle=_LINES[mark.dash], label=label, zorder=3)
        case Band():
            axes.fill_between(
                mark.x, mark.low, mark.high, color=colour, alpha=style.BAND_OPACITY, linewidth=0, label=label, zorder=2
            )
        case Dots(faint=True):
            axes.plot(mark.x, mark.y, "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0, label=label)
        case Dots():
            for x, y, name in zip(mark.x, mark.y, mark.names, strict=True) if mark.named else ():
                axes.annotate(name, (x, y), xytext=(7, 6), textcoords="offset points", fontsize=8.5, zorder=5)
            axes.plot(
                mark.x, mark.y, "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.8,
                label=label, zorder=4,
            )  # fmt: skip
        case Bars():
            axes.bar(
                mark.edges[:-1], mark.heights, np.diff(mark.edges), align="edge", color=colour, alpha=0.55,
                linewidth=0, label=label, zorder=2,
            )  # fmt: skip
        case Span():
            shade = axes.axvspan if mark.axis == "x" else axes.axhspan
            shade(mark.low, mark.high, color=colour, alpha=0.13, linewidth=0, label=label, zorder=1)
        case Rule():
            draw = axes.axvline if mark.axis == "x" else axes.axhline
            draw(mark.at, color=colour, linewidth=1.1, linestyle=_LINES[mark.dash], zorder=2.5)
            words: Any = {"textcoords": "offset points", "ha": "left", "fontsize": 8, "color": colour}
            if mark.label and mark.axis == "y":  # beside the panel, where no dot can be
                place = (1.0, mark.at)
                axes.annotate(
                    mark.label, place, xycoords=("axes fraction", "data"), xytext=(4, 0), va="center", **words
                )
            elif mark.label:
                # Labels of rules that are close by stand below each other.
                above = sum(text.get_verticalalignment() == "top" for text in axes.texts)
                box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.0}
                axes.annotate(
                    mark.label, (mark.at, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -3 - 13 * above),
                    va="top", zorder=5, bbox=box, **words,
                )  # fmt: skip


def _radial(axes: Any, radial: Radial) -> None:
    angles = np.linspace(0.0, 2.0 * np.pi, len(radial.axes), endpoint=False)
    around = np.append(angles, angles[0])
    axes.set_theta_offset(np.pi / 2.0)
    axes.set_theta_direction(-1)
    for spoke in radial.spokes:
        colour, dash = style.colour(spoke.colour), _LINES[style.dash(spoke.colour)]
        low, mid, high = (np.append(v, v[0]) for v in (spoke.low, spoke.values, spoke.high))
        axes.fill_between(around, low, high, color=colour, alpha=style.BAND_OPACITY, linewidth=0, zorder=2)
        axes.plot(around, mid, color=colour, linestyle=dash, label=spoke.label, marker="o", markersize=3.5, zorder=3)
    axes.set_xticks(angles, [textwrap.fill(name, 18, break_long_words=False) for name in radial.axes])
    axes.tick_params(axis="x", pad=10)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        # Beside the circle, so that it does not lie on the value at the rim.
        sideways = np.sin(angle)
        label.set_horizontalalignment("left" if sideways > 0.1 else "right" if sideways < -0.1 else "center")
    axes.set_ylim(0.0, 1.0)
    rings = (1 / 3, 2 / 3, 1.0)
    small: Any = {"fontsize": 7.0, "color": style.MUTED}
    if len(set(radial.scales)) == 1:
        centre, rim = radial.scales[0]
        axes.set_yticks(rings, [number(centre + ring * (rim - centre)) for ring in rings], **small)
    else:
        # Every axis has a scale of its own, so each has its values beside it.
        axes.set_yticks(rings, [""] * len(rings))
        box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.6}
        for angle, (centre, rim) in zip(angles, radial.scales, strict=True):
            for ring in rings:
                value = number(centre + ring * (rim - centre))
                axes.text(angle, ring, value, ha="center", va="center", bbox=box, zorder=6, **small)
    axes.spines["polar"].set_color(style.GRID)


def _column_widths(table: Grid) -> list[int]:
    """In letters, with a gap."""
    return [2 + max(map(len, column)) for column in zip(table.headers, *table.rows, strict=True)]


def _table(axes: Axes, table: Grid) -> None:
    from matplotlib.transforms import Bbox

    axes.axis("off")
    drawn = axes.table(
        cellText=[list(row) for row in table.rows], colLabels=list(table.headers), loc="center", cellLoc="right",
        colWidths=_column_widths(table), bbox=Bbox.unit(),
    )  # fmt: skip
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5)
    for (row, column), cell in drawn.get_celld().items():
        cell.set_edgecolor(style.GRID)
        cell.visible_edges = "B"
        if row == 0:
            cell.set_text_props(fontweight="bold", ha="right" if column else "left")
        if column == 0:
            cell.set_text_props(ha="left")
            cell.PAD = 0.02


# -- files

ENDINGS = (".png", ".svg", ".html")


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
    """The ending, when a plot can have it. Raises UsageError otherwise."""
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise UsageError(f"{path}: a plot ends in {', '.join(ENDINGS)}")
    return kind


# -- parts of a page


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


_KEYS = {Line: "line", Spoke: "line", Dots: "dot", Band: "area", Bars: "area", Span: "area"}


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend."""

    label: str
    colour: str
    kind: str
    """`line`, `dashed`, `dotted`, `dot` or `area`."""


def page_element(figure: Figure, slug: str, png: str | None = None) -> dict[str, Any]:
    """What the template macro `picture` takes: the legend, and one SVG element for each panel.

    `slug` keeps ids of drawings apart on a page; `png` is the address of the same picture as a file.
    """
    legend: dict[str, Key] = {}
    drawings = []
    for at, panel in enumerate(figure.panels):
        for mark in panel.spokes if isinstance(panel, Radial) else panel.marks:
            if mark.label and not isinstance(mark, Rule):
                kind = mark.dash if isinstance(mark, Line) and mark.dash != "solid" else _KEYS[type(mark)]
                colour = f"var({VARIABLES[style.colour(mark.colour).lower()]})"
                legend.setdefault(mark.label, Key(mark.label, colour, kind))
        # The legend is HTML, so marks have no label here. Rules keep their words, which stand beside them.
        bare: Panel | Radial
        if isinstance(panel, Radial):
            bare = replace(panel, spokes=tuple(replace(spoke, label="") for spoke in panel.spokes))
        else:
            marks = (mark if isinstance(mark, Rule) else replace(mark, label="") for mark in panel.marks)
            bare = replace(panel, marks=tuple(marks))
        alone = Figure("", "", [bare], height=figure.height)
        svg = image(alone, "svg", inline=_NARROW if figure.columns > 2 else _INLINE_WIDTH).decode()
        name = "" if isinstance(panel, Radial) else panel.title
        drawings.append(_cleaned(svg, f"{slug}-{at}", name or "plot"))
    return {"slug": slug, "figure": figure, "legend": list(legend.values()), "drawings": drawings, "png": png}


def _cleaned(svg: str, prefix: str, name: str) -> str:
    """The element alone, small, in the page's colours, with ids that no other drawing has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = _NAMES.sub("", svg)
    ids = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    svg = _USED.sub(lambda match: ids.get(match[0], match[0]), svg)
    svg = _COLOUR.sub(lambda match: f"var({VARIABLES[match[0].lower()]})", svg)
    svg = svg.replace(f"'{style.FONT}'", "var(--fonts)")
    svg = _PLACES.sub(lambda match: re.sub(r"\s+", " ", re.sub(r"(\d\.\d)\d+", r"\1", match[0])), svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    for group in _DOTS.finditer(svg):  # dots of one look say so once
        dots = _DOT.findall(group[2])
        if len({(shape, look) for shape, _, _, look in dots}) == 1:
            body = "".join(f'<use href="{shape}" x="{x}" y="{y}"/>' for shape, x, y, _ in dots)
            svg = svg.replace(group[0], f'<g clip-path="{group[1]}" style="{dots[0][3]}">{body}</g>')
    label = html.escape(name, quote=True)
    # The page sets width and height; the view box keeps the shape.
    start = re.search(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', svg)
    assert start is not None
    return f'<svg viewBox="{start[1]}" role="img" aria-label="{label}">{svg[start.end() :]}'
