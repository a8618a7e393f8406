"""The committed calibration result is what this code gives, its bounds hold, and the page shows it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrate import page
from calibrate.cells import CELLS
from calibrate.count import CHUNK, replicate, replicate_all

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "calibration.json"
REPLICATES = 2_000
CHEAP = [
    "looking-normal",
    "looking-binary",
    "stop-0.5",
    "stop-1.5",
    "percentile-8",
    "aa-paired-5-normal",
    "power-paired-8",
    "pooled-sd-1",
    "tasks-5x4",
    "crossed-5x5",
    "fixed-rollouts-5x4",
    "aa-unpaired-8+8-lognormal",
    "aa-paired-8-binary",
]
"""Cells of every part that take two seconds or less."""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return json.loads(RESULT.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("key", CHEAP)
def test_the_committed_shares_are_those_that_this_code_counts(key: str, result: dict[str, Any]) -> None:
    """With as many replicates the draws are the same, and only rounding may move one; otherwise 4.5 standard errors."""
    (committed,) = (row["shares"] for row in result["cells"] if row["key"] == key)
    counts = replicate(key, REPLICATES)
    assert set(committed) == set(counts) - {"stop"}
    for outcome, share in committed.items():
        error = 0.0
        if result["replicates"] != REPLICATES:
            error = 4.5 * math.sqrt(share * (1.0 - share) * (1.0 / REPLICATES + 1.0 / result["replicates"]))
        assert float(counts[outcome].mean()) == pytest.approx(share, abs=error + 1.5 / REPLICATES), outcome


def test_every_cell_is_in_the_committed_result_and_within_its_bounds(result: dict[str, Any]) -> None:
    assert [row["key"] for row in result["cells"]] == list(CELLS)
    for row in result["cells"]:
        outcomes = [bar.outcome for bar in CELLS[row["key"]].bars]
        assert [bar["outcome"] for bar in row["bars"]] == outcomes, row["key"]
        assert all(bar["at_least"] <= bar["value"] <= bar["at_most"] for bar in row["bars"]), row["key"]


def test_the_page_has_the_tables_of_the_committed_result(result: dict[str, Any]) -> None:
    found = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(found, result) == found


@pytest.mark.slow
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
