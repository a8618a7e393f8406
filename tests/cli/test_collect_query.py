"""collect and query: the table as files and answers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from support.editions import PARAMS, Outcome, succeeds, write_sweep_run

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]

FIRST = [
    "run_id",
    "workflows",
    "pdfs",
    "iters",
    "subqueries",
    "policy",
    "seed",
    "time_scale",
    "heavy_tail_prob",
    "heavy_tail_mult",
    "enable_model_routing",
    "ablation_name",
    "ablation_flags",
    "disable_hedging",
    "disable_escalation",
    "disable_dag_priority",
    "exit_code",
    "wall_time_s",
    "makespan_mean_ms",
    "makespan_p50_ms",
    "makespan_p95_ms",
    "makespan_p99_ms",
    "cost_mean",
    "cost_p50",
    "run_dir",
    "start_time_unix_s",
    "end_time_unix_s",
]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep directory that another tool wrote: no database, four runs."""
    experiment = tmp_path / "bench_runs" / "smoke"
    for policy in ("fifo_cheapest", "full"):
        write_sweep_run(experiment, policy, 1)
    write_sweep_run(experiment, "full", 2, "no_hedge", exit_code=1)
    write_sweep_run(experiment, "full", 3, exit_code=None)
    return experiment


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_collect_writes_one_row_for_every_planned_run(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    def outcome(arm: str, seed: int) -> Outcome:
        return None if seed == 3 else succeeds(arm, seed)

    edition = make_edition(outcome=outcome)
    path = edition.paths.aggregate / "runs.csv"
    result = bakeoff("collect")
    assert result.stdout == f"wrote: {path} rows=6\n"
    assert [row["status"] for row in rows(path)] == ["succeeded"] * 4 + ["planned"] * 2
    assert [row["score"] for row in rows(path)][-2:] == ["", ""]
    frame = pl.read_parquet(path.with_suffix(".parquet"))
    assert frame["score"].to_list()[:2] == [5.1, 5.1]
    assert frame.schema["seed"] == pl.Int64


def test_a_spreadsheet_runs_nothing_that_a_run_reported(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    texts = {1: "=HYPERLINK(1)", 2: "-1+2", 3: "-1.5"}
    edition = make_edition(
        outcome=lambda arm, seed: {"status": "succeeded", "metrics": {"text": texts[seed], "=cmd": 1}}
    )
    bakeoff("collect")
    table = rows(edition.paths.aggregate / "runs.csv")
    assert [row["text"] for row in table] == ["'=HYPERLINK(1)"] * 2 + ["'-1+2"] * 2 + ["-1.5"] * 2
    assert "'=cmd" in table[0]
    assert pl.read_parquet(edition.paths.aggregate / "runs.parquet")["text"].unique(maintain_order=True).to_list() == [
        *texts.values()
    ]
    assert "'=HYPERLINK(1)" in bakeoff("query", "SELECT text FROM runs", "--csv").stdout


def test_collect_writes_where_it_is_told(bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path) -> None:
    make_edition("sorting")
    result = bakeoff("collect", "sorting", "--out_csv", tmp_path / "deep/table.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 6
    assert len(rows(tmp_path / "deep/table.csv")) == 6
    assert (tmp_path / "deep/table.parquet").exists()


def test_collect_reads_a_sweep_that_another_tool_ran_in_its_own_column_order(bakeoff: Bakeoff, sweep: Path) -> None:
    result = bakeoff("collect", "--exp_dir", sweep)
    path = sweep / "aggregate/runs.csv"
    assert result.stdout == f"wrote: {path} rows=4\n"
    with path.open() as file:
        header = next(csv.reader(file))
    rest = header[len(FIRST) :]
    assert header[: len(FIRST)] == FIRST
    assert rest == sorted(rest)
    assert "openai_tier1_utilization" in rest
    fifo, full, failed, unfinished = sorted(rows(path), key=lambda row: (row["policy"], row["seed"]))
    assert (float(fifo["makespan_mean_ms"]), fifo["cost_p50"], fifo["ablation_flags"]) == (1455220.0, "0.25", "")
    assert (full["disable_hedging"], full["enable_model_routing"]) == ("false", "true")
    assert (failed["disable_hedging"], failed["ablation_flags"], failed["exit_code"]) == (
        "true",
        "--disable_hedging",
        "1",
    )
    assert (unfinished["exit_code"], unfinished["makespan_p95_ms"]) == ("", "")


SIMULATOR = """\
#!/bin/sh
while [ "$1" != --out_dir ]; do shift; done
printf 'makespan_mean_ms,makespan_p50_ms,makespan_p95_ms,makespan_p99_ms,cost_mean,cost_p50\\n1,2,3,4,5,6\\n' > "$2/summary.csv"
printf 'provider,tier_id,utilization,queue_wait_p95_ms,in_flight_avg\\nopenai,0,0,50,0\\n' > "$2/tiers.csv"
"""


def test_collect_and_rm_work_on_a_sweep_that_we_ran(bakeoff: Bakeoff, tmp_path: Path) -> None:
    simulator = tmp_path / "sim"
    simulator.write_text(SIMULATOR)
    simulator.chmod(0o755)
    common = {name: value for name, value in PARAMS.items() if name != "workflows"}
    ablations = [{"name": "baseline"}, {"name": "no_hedge", "flags": ["--disable_hedging"]}]
    matrix = {"workflows": [5], "policy": ["fifo_cheapest", "full"], "seeds": [1, 2], "ablations": ablations}
    config = {"name": "smoke", "sim_binary": "./sim", "common_args": common, "matrix": matrix}
    (tmp_path / "smoke.json").write_text(json.dumps(config))
    assert bakeoff("run", "smoke.json").exit_code == 0
    result = bakeoff("collect", "--exp_dir", "bench_runs/smoke")
    assert "rows=8" in result.stdout
    found = rows(tmp_path / "bench_runs/smoke/aggregate/runs.csv")
    assert list(found[0])[: len(FIRST)] == FIRST
    by_id = {row["run_id"]: row for row in found}
    assert by_id["full__wf5__seed2__no_hedge__ff5d8334433a"]["disable_hedging"] == "true"
    assert by_id["fifo_cheapest__wf5__seed1__baseline__c9768924ff6b"]["openai_tier0_queue_wait_p95_ms"] == "50"
    assert bakeoff("rm", "smoke", "--yes", "--root", "bench_runs").exit_code == 0
    assert not (tmp_path / "bench_runs/smoke").exists()


def test_collect_gives_an_imported_sweep_the_same_table(bakeoff: Bakeoff, sweep: Path, tmp_path: Path) -> None:
    bakeoff("collect", "--exp_dir", sweep, "--out_csv", tmp_path / "files.csv")
    assert bakeoff("import", sweep).exit_code == 0
    assert bakeoff("collect", "smoke", "--out_csv", tmp_path / "database.csv").exit_code == 0
    files, database = rows(tmp_path / "files.csv"), rows(tmp_path / "database.csv")
    assert list(files[0]) == list(database[0])
    for one, other in zip(files, database, strict=True):
        del one["run_dir"], other["run_dir"]
        assert one == other


def test_collect_leaves_out_what_it_cannot_read_says_so_and_exits_1(bakeoff: Bakeoff, sweep: Path) -> None:
    broken = write_sweep_run(sweep, "full", 4)
    (broken / "meta.json").write_text('{"params": ')
    result = bakeoff("collect", "--exp_dir", sweep)
    assert result.exit_code == 1
    assert "rows=4" in result.stdout
    assert f"{broken}/meta.json" in result.stderr


def test_collect_of_a_directory_without_runs_is_refused(bakeoff: Bakeoff, tmp_path: Path) -> None:
    result = bakeoff("collect", "--exp_dir", tmp_path)
    assert result.exit_code == 2
    assert "holds no experiment" in result.stderr


def test_query_answers_sql_over_the_table(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition("sorting")
    sql = "SELECT arm, count(*) AS n, sum(size) AS size FROM runs GROUP BY arm ORDER BY arm"
    assert json.loads(bakeoff("query", sql, "sorting", "--json").stdout) == [
        {"arm": "large", "n": 3, "size": 6},
        {"arm": "small", "n": 3, "size": 3},
    ]
    assert bakeoff("query", sql, "--csv").stdout == "arm,n,size\nlarge,3,6\nsmall,3,3\n"
    assert bakeoff("query", sql).stdout.splitlines()[1].split() == ["large", "3", "6"]


@pytest.mark.parametrize("sql", ["SELECT nope FROM runs", "SELEC", "SELECT * FROM elsewhere"])
def test_query_that_cannot_be_answered_exits_2_and_names_the_columns(
    bakeoff: Bakeoff, make_edition: MakeEdition, sql: str
) -> None:
    make_edition()
    result = bakeoff("query", sql)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "its columns are experiment, edition, run_id" in result.stderr
