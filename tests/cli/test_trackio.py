"""A database that trackio itself wrote (scripts/make-fixtures-trackers.py)."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"
CONTENT = gzip.decompress((FIXTURES / "trackio" / "mazes.db.gz").read_bytes())
METRIC = ("--metric", "eval/reward", "--failure-score", "0", "--control", "old")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "trackio" / "mazes.db"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def test_arms_and_seeds_are_of_names_and_configurations(bakeoff: Bakeoff, project: Path, tmp_path: Path) -> None:
    results = open_results([str(project)], tmp_path)
    rows = {(row.arm, row.seed): row for row in results.rows}
    assert set(rows) == {(arm, seed) for arm in ("old", "new") for seed in range(4)} and results.tasks == ["maze"]
    # The mean over steps 0 to 2 is 1 + seed, and 1 + seed/4 more with `new`; NaN failed, which counts 0; `new` with seed 3 ends at step 1.
    found = json.loads(bakeoff("compare", project, *METRIC, "--json").stdout)["comparisons"][0]
    assert found["control_mean"] == pytest.approx((1 + 2 + 0 + 4) / 4)
    assert found["candidate_mean"] == pytest.approx((2 + 3.25 + 4.5 + (0.5 + 3 + 1.75)) / 4)
    assert (found["units"], found["missing"], found["failed"]) == (4, 0, 1)
    shown = bakeoff("compare", project.parent, *METRIC).stdout
    assert "1 of 8 runs end before step 2" in shown and "'new_s3' at step 1: trackio does not store" in shown


def test_nan_and_infinity_are_what_was_logged_and_texts_are_no_metrics(project: Path, tmp_path: Path) -> None:
    rows = {(row.arm, row.seed): row for row in open_results([str(project)], tmp_path).rows}
    steps, values = rows["old", 2].series["eval/reward"]
    assert list(steps) == [0, 1, 2] and math.isnan(values[1])
    assert dict(rows["old", 0].metrics) == {"norm": math.inf} and dict(rows["old", 1].metrics) == {"norm": 1.0}


def test_groups_are_arms_projects_tell_arms_apart_and_flags_name_settings(project: Path, tmp_path: Path) -> None:
    other = project.with_name("other.db")
    shutil.copy(project, other)
    with sqlite3.connect(other) as connection:
        connection.execute(
            'UPDATE configs SET config = replace(CAST(config AS TEXT), \'"_Group":null\', \'"_Group":"g"\')'
        )
        connection.execute("UPDATE configs SET config = replace(CAST(config AS TEXT), '\"width\":3', '\"width\":4')")
    connection.close()
    assert set(open_results([str(other)], tmp_path).arms) == {"g"}
    both = open_results([str(project.parent)], tmp_path, {"arm": "config.net.width"})
    assert set(both.arms) == {"3", "4"} and len(both.rows) == 16
    other.write_bytes(CONTENT)
    arms = set(open_results([str(project.parent)], tmp_path).arms)
    assert len(arms) == 4 and "old, project=mazes" in arms


def test_a_step_that_was_logged_twice_has_its_last_value_and_a_run_without_values_is_missing(
    project: Path, tmp_path: Path
) -> None:
    with sqlite3.connect(project) as connection:
        connection.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) SELECT run_id, timestamp, run_name, 2, "
            "'{\"eval/reward\": 50}' FROM metrics WHERE run_name = 'old_s0' LIMIT 1"
        )
        connection.execute("DELETE FROM metrics WHERE run_name = 'new_s0'")
    connection.close()
    rows = {(row.arm, row.seed): row for row in open_results([str(project)], tmp_path).rows}
    assert list(rows["old", 0].series["eval/reward"][1]) == [0, 1, 50]
    assert len(rows) == 8 and not rows["new", 0].metrics and not rows["new", 0].series


@pytest.mark.parametrize(("damage", "reason"), [
    ("UPDATE metrics SET metrics = '{'", "a row of 'metrics' is not JSON"), ("UPDATE configs SET config = '[]'", "not a JSON object"),
    ("ALTER TABLE metrics RENAME COLUMN step TO at", "has no column 'step' in table 'metrics'"),
    ("DELETE FROM metrics; DELETE FROM configs", "has no run yet"),
])  # fmt: skip
def test_a_damaged_database_is_one_line_and_exit_2(bakeoff: Bakeoff, project: Path, damage: str, reason: str) -> None:
    connection = sqlite3.connect(project)
    connection.executescript(damage)
    connection.close()
    result = bakeoff("compare", project, *METRIC)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and reason in result.stderr


@pytest.mark.parametrize("size", [0, len(CONTENT) // 2])
def test_a_database_that_is_empty_or_cut_off_is_one_line_and_exit_2(bakeoff: Bakeoff, project: Path, size: int) -> None:
    project.write_bytes(CONTENT[:size])
    result = bakeoff("compare", project, *METRIC)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and "mazes.db" in result.stderr
