"""Stores that MLflow itself wrote (scripts/make-fixtures-trackers.py): a database, and files."""

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
FIXTURES = Path(__file__).parents[1] / "fixtures" / "mlflow"
METRIC = ("--metric", "eval/reward", "--failure-score", "0", "--control", "old")


@pytest.fixture(params=["mlflow.db", "mlruns"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    if path.suffix == ".db":
        path.write_bytes(gzip.decompress((FIXTURES / "mlflow.db.gz").read_bytes()))
    else:
        shutil.copytree(FIXTURES / "mlruns", path)
    return path


def test_both_stores_give_the_same_runs_and_the_means_of_arithmetic(
    bakeoff: Bakeoff, store: Path, tmp_path: Path
) -> None:
    rows = {(row.arm, row.seed): row for row in open_results([str(store)], tmp_path).rows}
    assert {key: row.status for key, row in rows.items() if row.status != "succeeded"} == {
        ("new", 3): "failed", ("old", 3): "infra_error",
    }  # fmt: skip
    assert {row.task for row in rows.values()} == {"maze"} and len(rows) == 8
    # The mean over steps 0 to 2 is 1 + seed, and 1 + seed/4 more with `new`; a run with NaN failed, which counts 0.
    found = json.loads(bakeoff("compare", store, *METRIC, "--json").stdout)["comparisons"][0]
    assert found["control_mean"] == pytest.approx((1 + 2 + 0) / 3)
    assert found["candidate_mean"] == pytest.approx((2 + 3.25 + 4.5) / 3)
    assert (found["units"], found["missing"], found["failed"]) == (4, 1, 2)
    assert "1 of 8 runs were killed and count as missing" in bakeoff("compare", store, *METRIC).stdout


def test_nan_and_infinity_are_what_was_logged(store: Path, tmp_path: Path) -> None:
    rows = {(row.arm, row.seed): row for row in open_results([str(store)], tmp_path).rows}
    steps, values = rows["old", 2].series["eval/reward"]
    assert list(steps) == [0, 1, 2] and math.isnan(values[1]), "a database has 0.0 and a flag"
    assert rows["old", 0].metrics["norm"] == math.inf and rows["old", 1].metrics["norm"] == 1.0


def test_the_directory_around_a_store_is_read_as_well(store: Path, tmp_path: Path) -> None:
    assert len(open_results([str(store.parent)], tmp_path / "root").rows) == 8


def test_deleted_runs_are_left_out_and_experiments_tell_arms_apart(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes(gzip.decompress((FIXTURES / "mlflow.db.gz").read_bytes()))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'old_s0'")
        connection.execute("UPDATE runs SET experiment_id = 0 WHERE name LIKE 'new%'")
        connection.execute("UPDATE runs SET name = replace(name, 'new', 'old')")
    connection.close()
    results = open_results([str(path)], tmp_path)
    assert len(results.rows) == 7 and results.arms == ["mazes", "Default"]


def test_a_metric_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "mlruns", tmp_path / "mlruns")
    for file in (tmp_path / "mlruns").rglob("reward"):
        file.write_text(file.read_text()[:-3])
    [lengths] = {len(row.series["eval/reward"][0]) for row in open_results([str(tmp_path / "mlruns")], tmp_path).rows}
    assert lengths == 2


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("meta.yaml", "run_id: abc\nlifecycle_stage: active\n", "has no status"), ("reward", "12 x 0\n", "line 1: is not time, value and step"),
])  # fmt: skip
def test_a_damaged_file_is_one_line_and_exit_2(
    bakeoff: Bakeoff, tmp_path: Path, name: str, content: str, reason: str
) -> None:
    shutil.copytree(FIXTURES / "mlruns", tmp_path / "mlruns")
    run = next((tmp_path / "mlruns").rglob("metrics")).parent
    next(run.rglob(name)).write_text(content)
    result = bakeoff("compare", "mlruns", *METRIC)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and reason in result.stderr


def test_a_database_that_was_cut_off_is_one_line_and_exit_2(bakeoff: Bakeoff, tmp_path: Path) -> None:
    content = gzip.decompress((FIXTURES / "mlflow.db.gz").read_bytes())
    (tmp_path / "mlflow.db").write_bytes(content[: len(content) // 2])
    result = bakeoff("compare", "mlflow.db", *METRIC)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and "mlflow.db" in result.stderr


def test_the_reading_line_names_where_arms_come_from_and_parameters_can_name_them(
    bakeoff: Bakeoff, store: Path
) -> None:
    assert bakeoff("compare", store, *METRIC).stdout.rstrip().splitlines()[-1].startswith("read 8 runs in ")
    assert "of MLflow; arm = name; " in bakeoff("compare", store, *METRIC).stdout
    refused = bakeoff("compare", store, *METRIC[:4], "--arm-from", "params.nothing")
    assert refused.exit_code == 2 and "no such field; there are path, path:REGEX, arm, experiment" in refused.stderr
    assert "params.seed" in refused.stderr


def nest(store: Path, parent: str, children: list[str]) -> None:
    """Say of runs that they are nested in another one, as `mlflow.start_run(nested=True)` does."""
    if store.is_dir():
        for child in children:
            tags = next(store.glob(f"*/{child}")) / "tags"
            tags.mkdir(exist_ok=True)
            (tags / "mlflow.parentRunId").write_text(parent)
        return
    with sqlite3.connect(store) as database:
        rows = [("mlflow.parentRunId", parent, child) for child in children]
        database.executemany("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", rows)


def test_a_run_that_only_holds_others_together_is_no_arm(bakeoff: Bakeoff, store: Path, tmp_path: Path) -> None:
    rows = open_results([str(store)], tmp_path).rows
    first, *others = (Path(row.run_id.rpartition(":")[2]).name for row in rows)
    nest(store, first, others)
    assert len(open_results([str(store)], tmp_path).rows) == 8, "it has metrics of theirs: it may be a run like them"
    if store.is_dir():
        for metric in next(store.glob(f"*/{first}/metrics")).iterdir():
            shutil.rmtree(metric) if metric.is_dir() else metric.unlink()
    else:
        with sqlite3.connect(store) as database:
            database.execute("DELETE FROM metrics WHERE run_uuid = ?", (first,))
    assert len(open_results([str(store)], tmp_path).rows) == 7
    assert "holds nested runs and none of their metrics" in bakeoff("compare", store, *METRIC).stdout


def test_one_experiment_of_a_store_of_files_is_read(tmp_path: Path) -> None:
    [experiment] = {meta.parent.parent for meta in (FIXTURES / "mlruns").glob("*/*/meta.yaml")}
    assert len(open_results([str(experiment)], tmp_path / "root").rows) == 8


def test_a_tag_whose_name_has_dots_can_name_the_arm(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes(gzip.decompress((FIXTURES / "mlflow.db.gz").read_bytes()))
    assert len(open_results([str(path)], tmp_path, {"arm": "tags.mlflow.runName"}).arms) > 2
