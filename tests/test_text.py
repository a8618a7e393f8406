"""Text from outside is safe wherever it is shown, and numbers are written in one way."""

from __future__ import annotations

import pytest

from bakeoff.stats.evidence import Interval
from bakeoff.text import Stroke, csv_text, forest, format_ends, number, plain_table, short_names


@pytest.mark.parametrize("cell", ["=1+1", "+A1", "-A1+2", "@SUM(A1)", "\t=1"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(cell: str) -> None:
    assert csv_text(["post"], [[cell]]) == f"post\n'{cell}\n"


@pytest.mark.parametrize("cell", [-1.5, "-1.5", "+2e-3", "--disable_hedging --off", "a=b", None, ""])
def test_numbers_flags_and_plain_text_stay_as_they_are(cell: object) -> None:
    assert csv_text(["x", "y"], [[cell, 1]]) == f"x,y\n{'' if cell is None else cell},1\n"


@pytest.mark.parametrize(("value", "text"), [
    (None, "-"), (True, "true"), ("word", "word"), (0, "0"), (-0.0, "0"), (3, "3"), (2.0, "2"), (0.123456, "0.1235"),
    (1234.5, "1234"), (12345.6, "12,346"), (-61446.0, "-61,446"), (123456789, "123,456,789"), (1.5e12, "1.5e+12"),
    (0.00001234, "1.234e-05"), (float("inf"), "∞"), (float("-inf"), "-∞"), (float("nan"), "nan"),
])  # fmt: skip
def test_a_number_is_written_in_one_way(value: object, text: str) -> None:
    assert number(value) == text
    assert number(value, sign=True) == (f"+{text}" if isinstance(value, int | float) and 0 < value < 1e99 and value is not True else text)  # fmt: skip


@pytest.mark.parametrize(("interval", "text"), [
    (Interval(0.1, 0.3, 0.95), "[0.1 to 0.3]"),
    (Interval(0.0, 0.3, 0.95, low_open=True), "(0 to 0.3]"),
    (Interval(-0.3, 0.0, 0.95, high_open=True), "[-0.3 to 0)"),
    (Interval(float("-inf"), 0.3, 0.95), "(-∞ to 0.3]"),
    (None, "-"),
])  # fmt: skip
def test_an_interval_shows_which_ends_belong_to_it(interval: Interval | None, text: str) -> None:
    assert format_ends(interval) == text


def test_long_names_that_differ_in_the_middle_stay_apart() -> None:
    names = [f"{'a' * 40}-{word}-{'z' * 40}" for word in ("one", "two")]
    assert len(set(short_names(names, 14))) == 2
    assert all(len(name) <= 14 for name in short_names(names, 14))
    assert short_names(["short", "names"], 14) == ["short", "names"]


def test_wide_letters_do_not_shift_columns() -> None:
    first, second = plain_table(["arm", "p"], [["模型", "1"], ["model", "2"]]).splitlines()[1:]
    assert first == "模型   1" and second == "model  2"


def test_a_forest_plot_marks_zero_and_what_leaves_it() -> None:
    axis, inside, outside, none = forest([Stroke(1.0, 0.5, 1.5), Stroke(9.0, 1.0, 12.0), None], (-1.0, 2.0), 31)
    assert (axis[0:2], axis[10], axis[-1]) == ("-1", "0", "2")
    assert inside[10] == "│" and inside[15] == "├" and inside[20] == "●" and inside[25] == "┤"
    assert outside[20] == "├" and outside[30] == "▶"
    assert none == f"{' ' * 10}│"
