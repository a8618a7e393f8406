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
from calibrate.count import CHUNK, replicate
from calibrate.store import Store, Stored

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
    "margin-exponential-8",
    "gate-exponential-8",
    "wins-8",
    "strata-3x2",
    "two-seeds-1",
]
"""Cells of every part that take two seconds or less."""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return json.loads(RESULT.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("key", CHEAP)
def test_the_committed_shares_are_those_that_this_code_counts(key: str, result: dict[str, Any]) -> None:
    """With as many replicates the draws are the same, and only rounding may move one; otherwise 4.5 standard errors."""
    (row,) = (row for row in result["cells"] if row["key"] == key)
    committed = row["shares"]
    counts = replicate(key, REPLICATES)
    assert set(committed) == set(counts) - {"stop"}
    for outcome, share in committed.items():
        error = 0.0
        if row["replicates"] != REPLICATES:
            error = 4.5 * math.sqrt(share * (1.0 - share) * (1.0 / REPLICATES + 1.0 / row["replicates"]))
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


def test_an_interrupted_cell_is_continued_by_any_process_with_the_same_numbers(tmp_path: Path) -> None:
    """What is stored is kept, replicates are added to it, and the draws are those of one run."""
    store, key = Store(tmp_path), "aa-paired-5-normal"
    begun = store.complete(key, CHUNK, "this code")
    assert begun.replicates == CHUNK
    (((again, stored)),) = store.complete_all([key], 3 * CHUNK, processes=1, redo=False)
    alone = replicate(key, 3 * CHUNK)
    assert again == key and stored.replicates == 3 * CHUNK
    assert all(np.array_equal(alone[name], stored.counts[name]) for name in alone)


def test_a_cell_starts_again_when_the_code_gives_other_outcomes(tmp_path: Path) -> None:
    store, key = Store(tmp_path), "aa-paired-5-normal"
    right = store.complete(key, 2 * CHUNK, "this code")
    wrong = {name: 1.0 - values for name, values in right.counts.items()}
    store.write(key, Stored(wrong, 1.0, "other code"))
    assert np.array_equal(store.complete(key, 2 * CHUNK, "other code").counts["decided"], wrong["decided"])
    fresh = store.complete(key, 2 * CHUNK, "this code")
    assert all(np.array_equal(right.counts[name], fresh.counts[name]) for name in wrong)


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
