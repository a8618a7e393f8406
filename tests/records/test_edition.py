"""What goes into an edition comes out of it again, in SQLite and in PostgreSQL alike."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.damage import find_damage
from bakeoff.records.edition import Edition
from bakeoff.records.run import (
    FAILED,
    OPEN,
    RESCORED,
    Attempt,
    RunRecord,
    TrajectoryIndex,
    decode_json,
    encode_metrics,
    storable,
    uncounted,
)
from bakeoff.records.series import Series, read_block
from bakeoff.results.frame import FIXED, read_table
from support.editions import SETTINGS, Begin, make_plan


def result(edition: Edition, position: int, status: str = "succeeded", attempt: int = 1, **more: Any) -> Attempt:
    run = next(run for run in edition.runs() if run.position == position)
    times = {"started_at": 100.0 + position, "ended_at": 101.5 + position}
    return msgspec.structs.replace(run.next_attempt(**{"status": status, **times, **more}), number=attempt)


def statuses(edition: Edition) -> list[str]:
    return [run.status for run in edition.runs()]


def without_cell(run: RunRecord) -> RunRecord:
    return msgspec.structs.replace(run, cell=-1)


def test_an_edition_says_what_it_is(begin: Begin) -> None:
    edition = begin()
    facts = edition.facts()
    assert (facts["experiment"], facts["workload"], facts["dialect"], facts["complete"]) == (
        "toy",
        "python",
        "native",
        False,
    )
    assert facts["edition"] == edition.paths.name and facts["spec"]["seeds"] == [0, 1, 2]
    assert not edition.complete
    assert edition.planned() == 6 and edition.counts() == {"planned": 6}


def test_cells_keep_parameters_and_the_columns_of_the_table(begin: Begin) -> None:
    plan = make_plan(params={"net": {"depth": 2}, "nan": math.nan}, ablations=[{"name": "dry", "flags": ["-d"]}])
    edition = begin(plan)
    first, second, *_ = edition.cells()
    assert (first.arm, first.task, first.base, first.ablation) == ("lr=1", "default", "lr=1", "")
    assert (second.arm, second.base, second.ablation, second.flags) == ("lr=1+dry", "lr=1", "dry", ["-d"])
    assert first.params["net"] == {"depth": 2} and first.params["function"] == "m:f"
    assert set(first.columns) == {"net.depth", "nan", "lr"}


def test_runs_may_have_no_seed(begin: Begin, store: str) -> None:
    plan = make_plan()
    if store == "postgres":  # such a database may be older than this
        with begin(plan).database.transaction() as transaction:
            transaction.run("DELETE FROM runs")
            transaction.run("ALTER TABLE runs ALTER COLUMN seed SET NOT NULL")
    edition = begin(plan, runs=False)
    edition.add_cells(plan.cells, SETTINGS)
    runs = [run._replace(seed=None) if run.position % 2 else run for run in plan]
    assert edition.add_runs(runs) == 6
    edition.finish([Attempt.of(run, status="succeeded", metrics={"score": 1.0}) for run in runs], session=0)
    assert [run.seed for run in edition.runs()] == [0, None, 1, None, 2, None]
    assert {run.status for run in edition.runs()} == {"succeeded"}
    assert read_table(edition).frame["seed"].to_list() == [0, None, 1, None, 2, None]
    assert find_damage(edition.paths) is None


def test_adding_the_same_runs_again_changes_nothing(begin: Begin) -> None:
    plan = make_plan()
    edition = begin(plan)
    assert edition.add_runs(plan) == 0
    assert edition.add_runs([*plan, *plan]) == 0
    assert edition.run_ids() == {run.run_id for run in plan} and edition.planned() == 6


def test_a_run_that_is_given_twice_is_planned_once(begin: Begin) -> None:
    plan = make_plan()
    edition = begin(plan, runs=False)
    edition.add_cells(plan.cells, SETTINGS)
    assert edition.add_runs([*plan, *plan]) == 6


def test_a_grown_plan_adds_runs_behind_and_results_keep_their_arm(begin: Begin) -> None:
    edition = begin(make_plan(matrix={"lr": [1, 2]}, tasks=[{"name": "t"}]))
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, 1, metrics={"x": 2})], session)
    before = {run.run_id: without_cell(run) for run in edition.runs()}
    assert not edition.end_session(session, "done")
    larger = make_plan(matrix={"lr": [0, 1, 2]}, tasks=[{"name": "s"}, {"name": "t"}], seeds=4)
    edition.add_cells(larger.cells, SETTINGS)  # a scheduler may be killed right here: arms must be right already
    assert [edition.run(position).arm for position in range(6)] == ["lr=1", "lr=2", "lr=1", "lr=2", "lr=1", "lr=2"]
    assert edition.add_runs(larger) == 24 - 6
    assert [edition.run(position).arm for position in range(6)] == ["lr=1", "lr=2", "lr=1", "lr=2", "lr=1", "lr=2"]
    assert {run.run_id: without_cell(run) for run in edition.runs() if run.run_id in before} == before
    by_id = {run.run_id: (run.cell.arm.name, run.cell.task.name) for run in larger}
    for run in edition.runs():
        assert (run.arm, run.task) == by_id[run.run_id]


def test_cells_that_a_plan_no_longer_has_are_kept_for_their_runs(begin: Begin) -> None:
    edition = begin(make_plan(matrix={"lr": [1, 2, 3]}, seeds=1))
    smaller = make_plan(matrix={"lr": [3]}, seeds=1)
    edition.add_cells(smaller.cells, SETTINGS)
    assert [edition.run(position).arm for position in range(3)] == ["lr=1", "lr=2", "lr=3"]
    assert [cell.arm for cell in edition.cells()] == ["lr=3", "lr=1", "lr=2"]
    edition.add_cells(make_plan(matrix={"lr": [2, 3]}, seeds=1).cells, SETTINGS)
    assert [edition.run(position).arm for position in range(3)] == ["lr=1", "lr=2", "lr=3"]
    assert read_table(edition).frame["lr"].to_list() == [1, 2, 3]


def positions(runs: Iterable[RunRecord]) -> list[int]:
    return [run.position for run in runs]


def test_runs_come_in_plan_order_and_by_page(begin: Begin) -> None:
    edition = begin()
    assert positions(edition.runs()) == [0, 1, 2, 3, 4, 5]
    first = list(edition.runs(limit=4))
    assert positions(first) == [0, 1, 2, 3]
    assert positions(edition.runs(after=3, limit=4)) == [4, 5]
    assert positions(edition.runs(after=5, limit=4)) == []
    assert first[1].seed == 0 and first[1].cell == 1 and first[1].attempts == 0
    assert positions(edition.runs(cells=[1])) == [1, 3, 5]
    assert positions(edition.runs(cells=[])) == []
    assert len(list(edition.runs(cells=range(100_000)))) == 6


def test_runs_can_be_asked_for_by_status(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    ends = ["succeeded", "failed", "timeout", "cancelled", "infra_error"]
    edition.finish([result(edition, position, status) for position, status in enumerate(ends)], session)
    assert positions(edition.runs(OPEN)) == [3, 4, 5]
    assert positions(edition.runs((*OPEN, *FAILED))) == [1, 2, 3, 4, 5]
    assert [run.attempts for run in edition.runs(OPEN, after=2, limit=1)] == [1]
    assert edition.counts() == dict.fromkeys([*ends, "planned"], 1)
    assert edition.counts_by_arm() == {
        "lr=1": {"succeeded": 1, "timeout": 1, "infra_error": 1}, "lr=2": {"failed": 1, "cancelled": 1, "planned": 1},
    }  # fmt: skip


def test_a_session_begins_lives_and_ends(begin: Begin) -> None:
    edition = begin()
    first = edition.begin_session({"host": "here", "text": "é"}, 6)
    edition.beat(first, [result(edition, 0, started_at=123.0), result(edition, 1, started_at=124.0)])
    assert statuses(edition)[:3] == ["running", "running", "planned"]
    assert edition.run(0).started_at == 123.0
    second = edition.begin_session({}, 6)  # the first one was killed
    assert (first, second) == (1, 2) and set(statuses(edition)) == {"planned"}
    edition.finish([result(edition, position) for position in range(6)], second)
    edition.beat(second, [result(edition, 0, started_at=999.0)])
    assert set(statuses(edition)) == {"succeeded"}  # what has ended is not running
    assert edition.end_session(second, "done") and edition.complete
    told = edition.sessions()
    assert [session["ended"] for session in told] == [None, "done"]
    assert told[0]["provenance"] == {"host": "here", "text": "é"} and told[0]["seen_at"] >= told[0]["started_at"]


def test_nothing_is_running_when_a_session_has_ended(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    edition.beat(session, [result(edition, 0, started_at=123.0)])  # and then its worker gave it back
    edition.end_session(session, "interrupted")
    assert set(statuses(edition)) == {"planned"}


def test_runs_that_are_added_later_make_an_edition_incomplete_again(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, position) for position in range(6)], session)
    assert edition.end_session(session, "done")
    edition.add_runs(make_plan(seeds=4))
    assert not edition.complete


def test_everything_about_a_run_comes_back(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    series = Series()
    series.add(1, {"loss": 0.5})
    edition.finish(
        [
            result(
                edition, 2, "failed", exit_code=3, error="bad", metrics={"a": 1, "b": True, "c": "x", "d": None, "e": 0.1},
                series=series.block(), trajectory=TrajectoryIndex("trajectory.jsonl.zst", 5, 1.5, 2**40), command="echo 1",
            )
        ],
        session,
    )  # fmt: skip
    run = edition.run(2)
    assert (run.status, run.exit_code, run.error, run.command) == ("failed", 3, "bad", "echo 1")
    assert run.metrics == {"a": 1, "b": True, "c": "x", "d": None, "e": 0.1} and type(run.metrics["b"]) is bool
    assert (run.started_at, run.ended_at, run.seed, edition.cells(run.cell)[0].params["lr"]) == (102.0, 103.5, 1, 1)
    assert read_block(edition.series(2) or b"")["loss"][1].tolist() == [0.5]
    assert edition.trajectories()[2] == TrajectoryIndex("trajectory.jsonl.zst", 5, 1.5, 2**40)
    assert edition.series(0) is None and 0 not in edition.trajectories()
    assert [position for position, _ in edition.all_series()] == [2]
    with pytest.raises(UsageError, match="no run number 77"):
        edition.run(77)


def test_every_attempt_is_kept_and_the_last_one_counts(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, 0, "infra_error", error="lost", final=False)], session)
    assert (edition.run(0).status, edition.run(0).attempts) == ("planned", 1)
    edition.finish([result(edition, 0, "failed", 2, metrics={"x": 1}, series=b"old")], session)
    again = edition.begin_session({}, 6)
    edition.finish([result(edition, 0, "succeeded", 3, metrics={"y": 2})], again)
    assert [(a["attempt"], a["session"], a["status"]) for a in edition.attempts(0)] == [
        (1, 1, "infra_error"), (2, 1, "failed"), (3, 2, "succeeded"),
    ]  # fmt: skip
    run = edition.run(0)
    assert (run.status, run.attempts, run.metrics) == ("succeeded", 3, {"y": 2})
    assert edition.series(0) is None


def test_a_batch_is_recorded_whole_or_not_at_all(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, 0)], session)
    with pytest.raises(StorageError):
        edition.finish([result(edition, 1, metrics={"x": 1}), result(edition, 0)], session)  # that attempt is there
    assert statuses(edition) == ["succeeded", *["planned"] * 5] and edition.attempts(1) == []
    edition.finish([result(edition, 1)], session)
    assert statuses(edition)[1] == "succeeded"


def test_a_strange_byte_in_a_message_costs_no_batch(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    odd = "nul \0 half \ud800 é"
    edition.finish([result(edition, 0, "failed", error=odd, command=odd, metrics={"text": odd, odd: 1})], session)
    run = edition.run(0)
    assert run.error == run.command == storable(odd) == "nul \\x00 half \\ud800 é"
    assert run.metrics["text"].startswith("nul ") and len(run.metrics) == 2


def test_metrics_that_json_cannot_hold_survive(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    metrics = {"nan": math.nan, "inf": math.inf, "low": -math.inf, "big": 2**70, "small": 5e-324, "zero": -0.0}
    edition.finish([result(edition, 0, metrics=metrics), result(edition, 1, metrics={"big": 2**70})], session)
    found = edition.run(0).metrics
    assert math.isnan(found.pop("nan"))
    assert found == {key: value for key, value in metrics.items() if key != "nan"}
    assert edition.run(1).metrics == {"big": 2**70}
    frame = read_table(edition).frame
    assert math.isnan(frame["nan"][0]) and frame["inf"][0] == math.inf


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), min_size=1
    )
)
def test_metrics_come_back_as_they_were(metrics: dict[str, Any]) -> None:
    found = decode_json(encode_metrics(metrics))
    assert found == metrics
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in metrics.items()}


def test_a_cost_is_summed_and_what_is_no_number_counts_nothing(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    costs: list[Any] = [1.5, 2, math.nan, "free", None]
    edition.finish([result(edition, n, metrics={"cost_usd": cost}) for n, cost in enumerate(costs)], session)
    assert edition.spent("cost_usd") == 3.5 and edition.spent("other") == 0.0
    edition.finish([result(edition, 0, attempt=2, metrics={"cost_usd": 0.25}, final=False)], session)
    assert edition.spent("cost_usd") == 3.75, "one that is tried again has cost something too"
    edition.finish([result(edition, 0, attempt=3, metrics={"cost_usd": 1.0})], session)
    assert edition.spent("cost_usd") == 4.75
    edition.finish([result(edition, 1, attempt=2, metrics={"cost_usd": 2.0})], session, same_work=True)
    assert edition.spent("cost_usd") == 4.75, "scoring the same work again costs nothing"


def test_tries_that_do_not_count_are_counted_by_arm_and_reason(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, 0, status="infra_error", metrics={"tokens": 5}, final=False)], session)
    edition.finish([result(edition, 0, attempt=2), result(edition, 1), result(edition, 2, status="cancelled")], session)
    edition.finish([result(edition, 3, status="failed", metrics={"tokens": 7})], session)
    edition.finish([result(edition, 3, attempt=2)], session)
    again = edition.begin_session({RESCORED: True}, 6)
    edition.finish([result(edition, 1, attempt=2)], again, same_work=True)  # scored again: no try
    arms = uncounted(edition)
    reasons: Counter[str] = Counter()
    for entry in arms.values():
        reasons.update(entry.reasons)
    assert reasons == {"infra_error": 1, "cancelled": 1, "failed": 1}
    assert sum(entry.affected for entry in arms.values()) == 3 and sum(entry.runs for entry in arms.values()) == 4
    assert sum(entry.after_failure for entry in arms.values()) == 1
    assert sum(entry.spent.get("tokens", 0) for entry in arms.values()) == 12


def test_a_second_connection_sees_what_the_first_has_written(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    other = Edition.open(edition.paths)
    edition.finish([result(edition, 0)], session)
    assert other.counts() == {"succeeded": 1, "planned": 5}
    other.close()
    again = Edition.open(edition.paths)
    assert again.counts() == {"succeeded": 1, "planned": 5}
    again.close()


def test_runs_are_found_by_pattern_whatever_the_case(begin: Begin) -> None:
    edition = begin(make_plan(matrix={"lr": ["Big_1", "bigX1"]}, seeds=1))
    assert [position for position, _ in edition.positions("big!_1%")] == [0]
    assert len(edition.positions("%BIG%")) == 2


def test_many_steps_take_one_row_and_little_room(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    series = Series()
    for step in range(100_000):
        series.add(step, {"loss": 1.0 / (step + 1)})
    edition.finish([result(edition, 0, series=series.block())], session)
    steps, values = read_block(edition.series(0) or b"")["loss"]
    assert len(steps) == len(values) == 100_000 and np.all(values == 1.0 / (steps + 1))


# -- the table


def test_the_table_has_one_row_for_each_planned_run_whatever_became_of_it(begin: Begin) -> None:
    edition = begin(make_plan(params={"net": {"depth": 2}}))
    session = edition.begin_session({}, 6)
    edition.finish([result(edition, 1, metrics={"score": 1, "flag": True})], session)
    edition.finish([result(edition, 0, "infra_error", error="lost")], session)
    table = read_table(edition)
    assert table.frame.columns == [*FIXED, "net.depth", "lr", "score", "flag"]
    assert table.frame.height == 6
    assert table.frame["score"].to_list() == [None, 1, None, None, None, None]
    assert table.frame["status"].to_list()[:3] == ["infra_error", "succeeded", "planned"]
    assert table.frame["wall_s"].to_list()[:2] == [1.5, 1.5] and table.frame["seed"].to_list() == [0, 0, 1, 1, 2, 2]
    kinds = {name: str(kind) for name, kind in table.frame.schema.items()}
    assert (kinds["score"], kinds["flag"], kinds["lr"], kinds["error"]) == ("Int64", "Boolean", "Int64", "String")


def test_columns_have_the_narrowest_type_that_loses_nothing(begin: Begin) -> None:
    edition = begin()
    session = edition.begin_session({}, 6)
    rows: list[dict[str, Any]] = [
        {"mixed": 1, "text": "a", "both": 1, "big": 1, "none": None, "flag": True},
        {"mixed": 0.5, "text": "b", "both": "x", "big": 2**70, "none": None, "flag": 1},
    ]
    edition.finish([result(edition, n, metrics=row) for n, row in enumerate(rows)], session)
    frame = read_table(edition).frame[:2]
    assert frame["mixed"].to_list() == [1.0, 0.5] and frame["both"].to_list() == ["1", "x"]
    assert frame["big"].to_list() == ["1", str(2**70)] and frame["none"].to_list() == [None, None]
    assert frame["flag"].to_list() == [1.0, 1.0] and str(frame["none"].dtype) == "Float64"


def test_names_that_are_taken_get_a_prefix_and_nothing_is_overwritten(begin: Begin) -> None:
    edition = begin(make_plan(params={"status": "p", "param.status": "q", "arm": "r"}, seeds=1))
    session = edition.begin_session({}, 2)
    edition.finish([result(edition, 0, metrics={"status": 1, "lr": 2, "wall_s": 3, "param.arm": 4})], session)
    table = read_table(edition)
    row = table.frame.row(0, named=True)
    assert row["status"] == "succeeded" and row["arm"] == "lr=1"
    values = {name: row[column] for name, column in table.params.items()}
    assert values == {"status": "p", "param.status": "q", "arm": "r", "lr": 1}
    assert {name: row[column] for name, column in table.metrics.items()} == {
        "status": 1,
        "lr": 2,
        "wall_s": 3,
        "param.arm": 4,
    }
    assert len(set((*table.params.values(), *table.metrics.values(), *FIXED))) == len(FIXED) + 8


# -- who may write


def test_in_postgres_the_lease_holds_across_machines(begin: Begin, store: str) -> None:
    edition = begin()
    edition.lock()
    other = Edition.open(edition.paths)
    if store == "sqlite":
        other.lock()  # the lease file is enough there
    else:
        with pytest.raises(LeaseHeld, match="another machine"):
            other.lock()
        edition.close()
        other.lock()
    other.close()


def test_results_in_postgres_are_found_by_url_and_a_missing_one_is_told(
    begin: Begin, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edition = begin()
    assert edition.paths.database.exists() == (store == "sqlite")
    if store == "postgres":
        monkeypatch.delenv("BAKEOFF_DATABASE_URL")
        with pytest.raises(UsageError, match="BAKEOFF_DATABASE_URL"):
            Edition.open(edition.paths)
        assert not edition.paths.database.exists()


def test_an_edition_that_nobody_recorded_is_told(begin: Begin) -> None:
    edition = begin()
    if edition.database.engine == "postgres":
        other = type(edition.paths)(edition.paths.directory.with_name("20200101-000000"))
        with pytest.raises(UsageError, match="no results were ever recorded"):
            Edition.open(other)


def test_the_spec_in_the_database_is_the_whole_experiment(begin: Begin) -> None:
    plan = make_plan(description="é", limits={"time": "5m"}, env={"KEY": "${KEY}"})
    spec = begin(plan).facts()["spec"]
    assert spec == json.loads(plan.experiment.model_dump_json()) and spec["limits"]["time"] == 300.0
    assert Path(str(spec["env"]["KEY"])).name == "${KEY}"
