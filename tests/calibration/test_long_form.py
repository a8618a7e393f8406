"""The committed long form is whole, holds, and is what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrate import page
from calibrate.cells import CELLS
from calibrate.count import CHUNK, replicate, replicate_all

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "calibration.json"


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return json.loads(RESULT.read_text())


def test_every_cell_was_simulated_and_every_bound_holds(result: dict[str, Any]) -> None:
    assert [one["key"] for one in result["cells"]] == list(CELLS)
    assert [one["key"] for one in result["cells"] if not one["holds"]] == []


def test_the_page_has_the_tables_of_the_committed_result(result: dict[str, Any]) -> None:
    found = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(found, result) == found


def test_numbers_do_not_depend_on_how_many_processes_count_them() -> None:
    cells = [CELLS["stop-1.5"], CELLS["aa-paired-5-normal"]]
    together = {cell.key: counts for cell, counts, _ in replicate_all(cells, CHUNK, processes=2)}
    for cell in cells:
        alone = replicate(cell.key, CHUNK)
        assert all(np.array_equal(alone[name], together[cell.key][name]) for name in alone)


def test_a_bound_that_is_missed_is_told() -> None:
    (bar,) = CELLS["aa-paired-8-normal"].bars
    wrong = {"decided": np.repeat([1.0, 0.0], [140, 1860])}
    assert not bar.holds(wrong)
    assert bar.holds({"decided": np.repeat([1.0, 0.0], [120, 1880])})
    row = page.row(CELLS["aa-paired-8-normal"], wrong, 0.0)
    assert not row["holds"] and row["bars"][0]["value"] == 0.07


def test_power_is_held_against_the_t_test_on_the_same_data() -> None:
    _, bar = CELLS["power-paired-8"].bars
    t_test = np.repeat([1.0, 0.0], [800, 200])
    assert bar.holds({"decided": np.repeat([1.0, 0.0], [770, 230]), "t-test": t_test})
    assert not bar.holds({"decided": np.repeat([1.0, 0.0], [769, 231]), "t-test": t_test})
