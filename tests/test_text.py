"""Text from outside is safe wherever it is shown."""

from __future__ import annotations

import pytest

from bakeoff.text import csv_text


@pytest.mark.parametrize("cell", ["=1+1", "+A1", "-A1+2", "@SUM(A1)", "\t=1"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(cell: str) -> None:
    assert csv_text(["post"], [[cell]]) == f"post\n'{cell}\n"


@pytest.mark.parametrize("cell", [-1.5, "-1.5", "+2e-3", "--disable_hedging --off", "a=b", None, ""])
def test_numbers_flags_and_plain_text_stay_as_they_are(cell: object) -> None:
    assert csv_text(["x", "y"], [[cell, 1]]) == f"x,y\n{'' if cell is None else cell},1\n"
