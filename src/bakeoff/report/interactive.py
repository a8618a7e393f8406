"""Figures as one HTML page: zoom, hover and switch arms off. Its JavaScript is in the page, so it opens offline."""

from __future__ import annotations

import html
import json
import math
from typing import Any

import numpy as np

from bakeoff.report import style
from bakeoff.report.figure import Array, Band, Bars, Dots, Figure, Grid, Line, Mark, Radial, Rule, Span

_DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
_ROW = 400
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ margin: 24px auto; max-width: {width}px; padding: 0 16px; background: #fff; color: {ink}; font: 15px/1.45 {fonts}; }}
h1 {{ font-size: 19px; margin: 0 0 4px; }}
p {{ color: {muted}; font-size: 13px; margin: 6px 0 18px; }}
table {{ border-collapse: collapse; font-size: 13px; width: 100%; }}
th, td {{ border-bottom: 1px solid {grid}; padding: 5px 8px; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>{title}</h1>
<div id="plot" style="height: {height}px"></div>
<p>{caption}</p>
{table}
<script>{library}</script>
<script>Plotly.newPlot("plot", {data}, {layout}, {{"responsive": true, "displaylogo": false}});</script>
</body>
</html>
"""


def page(figure: Figure) -> str:
    """The whole page as text; the same figure gives the same text."""
    data, layout = content(figure)
    return _PAGE.format(
        title=html.escape(figure.title),
        caption=html.escape(figure.caption),
        width=1180 if min(figure.columns, len(figure.panels)) > 1 else 860,
        height=height(figure),
        ink=style.INK_COLOUR,
        muted=style.MUTED,
        grid=style.GRID,
        fonts=style.FONTS,
        table=_table(figure.table) if figure.table else "",
        library=library(),
        data=script_json(data),
        layout=script_json(layout),
    )


def library() -> str:
    """The JavaScript that draws, which ships inside the plotting package."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def height(figure: Figure) -> int:
    """Of the drawing, in pixels."""
    rows, _ = figure.grid
    return round(rows * (_ROW * figure.height if not isinstance(figure.panels[0], Radial) else 520) + 60)


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def content(figure: Figure) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the library draws: traces and layout."""
    rows, columns = figure.grid
    layout: dict[str, Any] = {
        "template": {},
        "font": {"family": style.FONTS, "size": 13, "color": style.INK_COLOUR},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": list(style.PALETTE),
        "margin": {"l": 70, "r": 110, "t": 64, "b": 56},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "yanchor": "bottom",
            "y": 1 + 26 / (rows * _ROW - 60),
        },
        "hovermode": "closest",
        "shapes": [],
        "annotations": [],
    }
    data: list[dict[str, Any]] = []
    named: set[str] = set()
    for number, panel in enumerate(figure.panels):
        box = _domain(number, rows, columns)
        if isinstance(panel, Radial):
            data += _radial(panel, layout, box)
            continue
        suffix = "" if number == 0 else str(number + 1)
        layout[f"xaxis{suffix}"] = _axis(panel.x_label, box["x"], f"y{suffix}", panel.x_ticks, panel.x_range)
        layout[f"yaxis{suffix}"] = _axis(panel.y_label, box["y"], f"x{suffix}", panel.y_ticks, panel.y_range)
        if panel.title:
            layout["annotations"].append(
                {"text": f"<b>{html.escape(panel.title)}</b>", "showarrow": False, "xanchor": "left",
                 "yanchor": "bottom", "xref": f"x{suffix} domain", "yref": f"y{suffix} domain", "x": 0, "y": 1}
            )  # fmt: skip
        for mark in panel.marks:
            _mark(mark, suffix, data, layout, named)
    return data, layout


def _domain(number: int, rows: int, columns: int) -> dict[str, list[float]]:
    """The share of the plot that a panel gets, with room for labels between panels."""
    row, column = divmod(number, columns)
    gap_x, gap_y = 0.16 if columns > 1 else 0.0, 0.24 / rows if rows > 1 else 0.0
    width, height = (1 - gap_x * (columns - 1)) / columns, (1 - gap_y * (rows - 1)) / rows
    left, top = column * (width + gap_x), 1 - row * (height + gap_y)
    return {"x": [round(left, 6), round(left + width, 6)], "y": [round(max(0.0, top - height), 6), round(top, 6)]}


def _axis(label: str, domain: list[float], anchor: str, ticks: Any, limits: Any) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": html.escape(label), "font": {"size": 13}},
        "domain": domain,
        "anchor": anchor,
        "gridcolor": style.GRID,
        "linecolor": "#9aa1ab",
        "showline": True,
        "ticks": "outside",
        "tickcolor": "#9aa1ab",
        "zeroline": False,
        "automargin": True,
    }
    if ticks is not None:
        axis |= {"tickvals": [at for at, _ in ticks], "ticktext": [html.escape(text) for _, text in ticks]}
    if limits is not None:
        axis["range"] = list(limits)
    return axis


def _mark(mark: Mark, suffix: str, data: list[dict[str, Any]], layout: dict[str, Any], named: set[str]) -> None:
    if isinstance(mark, Rule | Span):
        _across(mark, suffix, layout)
        if isinstance(mark, Rule) or not mark.label:
            return
    colour = style.colour(mark.colour)
    trace: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "type": "scatter"}
    # One entry in the legend for each name; it switches off everything of that colour.
    first = bool(mark.label) and mark.label not in named
    named.add(mark.label)
    group = f"colour {mark.colour}"
    trace |= {"name": html.escape(mark.label), "showlegend": first, "legendgroup": group}
    match mark:
        case Line():
            width, opacity = (0.8, style.FAINT_OPACITY) if mark.faint else (2.2, 1.0)
            trace |= {
                "x": _numbers(mark.x), "y": _numbers(mark.y), "mode": "lines", "opacity": opacity,
                "line": {"color": colour, "width": width, "dash": _DASHES[mark.dash]},
            }  # fmt: skip
            if mark.faint:
                trace["hoverinfo"] = "skip"
        case Band():
            trace |= {
                "x": _numbers(np.concatenate((mark.x, mark.x[::-1]))),
                "y": _numbers(np.concatenate((mark.high, mark.low[::-1]))),
                "fill": "toself", "fillcolor": _shade(colour, style.BAND_OPACITY), "line": {"width": 0},
                "mode": "lines", "hoverinfo": "skip",
            }  # fmt: skip
        case Dots():
            trace |= {
                "x": _numbers(mark.x), "y": _numbers(mark.y), "mode": "markers",
                "marker": {"color": colour, "size": 10, "line": {"color": "white", "width": 1}},
            }  # fmt: skip
            if mark.faint:
                trace["marker"] = {"color": colour, "size": 6, "opacity": 0.4}
            if mark.named:
                trace |= {"mode": "markers+text", "textposition": "top right"}
            if mark.names:
                trace |= {
                    "text": [html.escape(name) for name in mark.names],
                    "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
                }
        case Bars():
            trace |= {
                "type": "bar", "x": _numbers((mark.edges[:-1] + mark.edges[1:]) / 2), "y": _numbers(mark.heights),
                "width": _numbers(np.diff(mark.edges)), "marker": {"color": colour, "opacity": 0.55, "line": {"width": 0}},
            }  # fmt: skip
        case _:  # a strip has no trace of its own: this one stands for it in the legend
            trace |= {
                "x": [None], "y": [None], "mode": "markers", "legendgroup": mark.label,
                "marker": {"color": _shade(colour, 0.3), "symbol": "square", "size": 12},
            }  # fmt: skip
    data.append(trace)


def _across(mark: Rule | Span, suffix: str, layout: dict[str, Any]) -> None:
    low, high = (mark.at, mark.at) if isinstance(mark, Rule) else (mark.low, mark.high)
    along, over = ("x", "y") if mark.axis == "x" else ("y", "x")
    shape: dict[str, Any] = {
        f"{along}ref": f"{along}{suffix}", f"{over}ref": f"{over}{suffix} domain",
        f"{along}0": low, f"{along}1": high, f"{over}0": 0, f"{over}1": 1, "layer": "below" if isinstance(mark, Span) else "above",
    }  # fmt: skip
    colour = style.colour(mark.colour)
    if isinstance(mark, Span):
        layout["shapes"].append(shape | {"type": "rect", "fillcolor": _shade(colour, 0.13), "line": {"width": 0}})
        return
    layout["shapes"].append(
        shape | {"type": "line", "line": {"color": colour, "width": 1.3, "dash": _DASHES[mark.dash]}}
    )
    if mark.label:
        reference = f"x{suffix}"
        above = sum(note.get("yanchor") == "top" and note["xref"] == reference for note in layout["annotations"])
        layout["annotations"].append(
            {
                f"{along}ref": f"{along}{suffix}", f"{over}ref": f"{over}{suffix} domain", along: low, over: 1,
                "text": html.escape(mark.label), "showarrow": False, "font": {"size": 11, "color": colour},
                "xanchor": "left", "yanchor": "top" if mark.axis == "x" else "middle",
                "yshift": -17 * above if mark.axis == "x" else 0,
                "bgcolor": "rgba(255,255,255,0.75)",
            }
        )  # fmt: skip


def _radial(radial: Radial, layout: dict[str, Any], box: dict[str, list[float]]) -> list[dict[str, Any]]:
    layout["polar"] = {
        "domain": box,
        "bgcolor": "white",
        "angularaxis": {"direction": "clockwise", "rotation": 90, "gridcolor": style.GRID, "linecolor": style.GRID},
        "radialaxis": {
            "range": [0, 1],
            "gridcolor": style.GRID,
            "tickvals": [0.25, 0.5, 0.75, 1],
            "angle": 67,
            "tickangle": 67,
            "showline": False,
        },
    }
    names = [html.escape(name) for name in (*radial.axes, radial.axes[0])]
    data = []
    for spoke in radial.spokes:
        colour = style.colour(spoke.colour)
        closed = [_numbers(np.append(v, v[0])) for v in (spoke.low, spoke.values, spoke.high)]
        shared = {"type": "scatterpolar", "legendgroup": spoke.label, "name": html.escape(spoke.label)}
        data.append(
            shared | {"r": closed[2] + closed[0][::-1], "theta": names + names[::-1], "fill": "toself", "mode": "lines",
             "fillcolor": _shade(colour, style.BAND_OPACITY), "line": {"width": 0}, "hoverinfo": "skip",
             "showlegend": False}
        )  # fmt: skip
        line = {"color": colour, "dash": _DASHES[style.dash(spoke.colour)]}
        data.append(shared | {"r": closed[1], "theta": names, "mode": "lines+markers", "line": line})
    return data


def _numbers(values: Array) -> list[float | None]:
    """For JSON: what is no number is a gap."""
    return [float(f"{v:.9g}") if math.isfinite(v) else None for v in values]


def _shade(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _table(table: Grid) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in table.headers)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
