"""Renderers, Python, `gate`, `rank`, `litmus` and the command line say the same about random tables of every design.

`python benchmarks/agreement.py` tries many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import disagreements, on_the_command_line
from random_tables import DESIGNS, random_table


@pytest.mark.parametrize("design", DESIGNS)
def test_every_way_to_ask_gives_the_same_verdict(design: str) -> None:
    asked = [(number, disagreements(random_table(number, design))) for number in range(7000, 7004)]
    answered = {number: list(found) for number, found in asked if found is not None}
    assert answered and not any(answered.values()), answered


def test_the_command_line_gives_the_same_verdict(tmp_path: Path) -> None:
    asked = [on_the_command_line(random_table(number), tmp_path / f"{number}.csv") for number in range(8000, 8010)]
    answered = [list(found) for found in asked if found is not None]
    assert len(answered) >= 5 and not any(answered), answered
