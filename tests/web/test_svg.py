"""Drawings are well-formed whatever names and numbers are in them, and nothing in them leaves its place."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.web import drawing
from bakeoff.web.figure import Band, Bars, Dots, Figure, Grid, Line, Panel, Radial, Rule, Span, Spoke
from bakeoff.web.svg import PAGE_WIDTH, draw_figure, draw_panel, round_ticks, text_width

NAMESPACE = "{http://www.w3.org/2000/svg}"
NUMBERS = st.lists(st.one_of(st.floats(-1e300, 1e300), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=6)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=40), numbers=NUMBERS)
def test_any_name_and_any_number_give_a_well_formed_drawing(name: str, numbers: list[float]) -> None:
    x, y = np.arange(float(len(numbers))), np.array(numbers)
    marks = (
        Line(x, y, 0, name), Band(x, y, y + 1.0, 1, name), Dots(x, y, 2, name, (name,) * len(x), named=True),
        Bars(np.append(x, x[-1] + 1.0), y, 3, name), Rule("x", 0.0, name), Rule("y", 0.0, name), Span("y", 0.0, 1.0, name),
    )  # fmt: skip
    panel = Panel(name, name, marks, name)
    spoke = Spoke(name, np.full(3, 0.5), np.full(3, 0.4), np.full(3, 0.6))
    whole = Figure(
        name, name, [panel, Radial((name, "b", "c"), (spoke,), ((0.0, 1.0),) * 3)], Grid((name,), ((name,),))
    )
    for svg in (draw_panel(panel), draw_figure(whole)):
        places = " ".join(
            value
            for element in ET.fromstring(svg).iter()
            for key, value in element.attrib.items()
            if key != "aria-label"
        )
        assert not re.search(r"\b(nan|inf)\b", places)


def test_colours_are_those_of_the_page_or_written_out() -> None:
    panel = Panel("x", "y", (Line(np.arange(2.0), np.arange(2.0), 1, "arm #D55E00"),))
    assert 'stroke="var(--c1)"' in draw_panel(panel) and "#" not in draw_panel(panel).replace("arm #D55E00", "")
    file = draw_figure(Figure("t", "c", [panel]))
    assert 'stroke="#D55E00"' in file and "var(" not in file and ">arm #D55E00</text>" in file


def test_dots_say_their_names() -> None:
    svg = draw_panel(Panel("x", "y", (Dots(np.arange(2.0), np.arange(2.0), names=("seed 3", "seed 4")),)))
    titles = [element.text for element in ET.fromstring(svg).iter() if element.tag == "title"]
    assert titles == ["seed 3", "seed 4"]


def test_a_line_has_gaps_where_values_are_absent() -> None:
    y = np.array([1.0, 2.0, np.nan, 2.0, 1.0])
    svg = draw_panel(Panel("x", "y", (Line(np.arange(5.0), y), Band(np.arange(5.0), y - 1.0, y + 1.0))))
    line, band = (
        next(path for path in re.findall(r'<path d="([^"]*)"[^>]*' + look, svg)) for look in ("round", "fill-o")
    )
    assert line.count("M") == band.count("M") == band.count("Z") == 2


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 1e-9), (1e6, 1e6 + 3.0), (1e-12, 3e-12), (-1e12, 1e12)])
def test_ticks_are_round_different_and_inside(low: float, high: float) -> None:
    ticks = round_ticks(low, high, 6)
    values, labels = zip(*ticks, strict=True)
    assert 2 <= len(ticks) <= 8 and len(set(labels)) == len(labels)
    slack = 1e-6 * (high - low)
    assert all(low - slack <= value <= high + slack for value in values)


@pytest.mark.parametrize("names", [("a", "b"), tuple(f"a rather long name of a setting {n}" for n in range(9))])
def test_names_along_an_axis_do_not_touch(names: tuple[str, ...]) -> None:
    ticks = tuple((float(at), name) for at, name in enumerate(names))
    marks = (Dots(np.arange(float(len(names))), np.zeros(len(names))),)
    svg = draw_panel(Panel("", "", marks, x_ticks=ticks))
    drawn: list[Any] = [element for element in ET.fromstring(svg).iter("text") if element.text in names]
    ends = [(float(each.get("x")), text_width(each.text, 8.5) / 2.0) for each in drawn]
    assert ends and all(a + wide <= b - half for (a, wide), (b, half) in pairwise(ends))
    assert all(place - half >= 0 and place + half <= PAGE_WIDTH for place, half in ends)


def test_a_constant_and_an_empty_panel_have_axes() -> None:
    for marks in ((Line(np.arange(3.0), np.full(3, 7.0)),), (Line(np.zeros(0), np.zeros(0)),), ()):
        assert texts(draw_panel(Panel("x", "y", marks)))


def test_a_png_without_any_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "FONTS", "No Such Font")
    with pytest.raises(UsageError, match="needs a font"):
        drawing.image(Figure("t", "c", [Panel("x", "y", ())]), "png")
