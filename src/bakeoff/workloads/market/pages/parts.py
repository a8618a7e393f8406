"""Pieces of HTML that the market's pages share. Whatever comes from runs passes through `text`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from bakeoff.text import printable
from bakeoff.web import drawing as inline
from bakeoff.web.figure import Figure
from bakeoff.web.pictures import slim


def text(value: Any) -> str:
    """Escaped, and without characters that would act on the page."""
    return escape(printable(str(value)))


def table(caption: str, heads: Sequence[str], rows: Iterable[str], *, right: int | None = None, kind: str = "") -> str:
    """`caption` and `rows` are HTML already; columns from number `right` on hold numbers."""
    head = "".join(
        f'<th scope="col"{" class=r" if right is not None and number >= right else ""}>{text(name)}</th>'
        for number, name in enumerate(heads)
    )
    named = f"<caption><span>{caption}</span></caption>" if caption else ""
    classes = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{classes}>{named}<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def section(title: str, *html: str) -> str:
    return f"<section><h2>{text(title)}</h2>{''.join(html)}</section>"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def note(*sentences: str) -> str:
    told = " ".join(sentence for sentence in sentences if sentence)
    return f'<p class="note">{told}</p>' if told else ""


def picture(figure: Figure, prefix: str) -> str:
    """The figure as the report draws it: a legend, panels that wrap, and the caption."""
    figure = slim(figure)
    keys = "".join(
        f'<li><span class="key {key.kind}" style="--key: {key.colour}"></span>{text(key.label)}</li>'
        for key in inline.legend(figure)
    )
    legend = f'<ul class="legend" aria-label="Legend">{keys}</ul>' if keys else ""
    drawings = inline.drawings(figure, prefix)
    panels = "".join(f'<div class="panel">{drawing}</div>' for drawing in drawings)
    return (
        f'<figure><h3>{text(figure.title)}</h3>{legend}<div class="panels n{min(len(drawings), 3)}" '
        f'style="--columns: {figure.columns}">{panels}</div><figcaption>{text(figure.caption)}</figcaption></figure>'
    )
