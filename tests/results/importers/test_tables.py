"""CSV, Parquet and JSONL become observations: columns by name, failures and missing runs kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import bakeoff
from bakeoff.errors import UsageError
from bakeoff.results.importers.table_roles import Columns
from bakeoff.results.importers.tables import frame_results, read_tables
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts.observations import Observation, observe

ROWS = [
    {"arm": arm, "task": task, "seed": seed, "score": len(arm) + seed / 10, "note": "x"}
    for arm in ("old", "newer")
    for task in ("t1", "t2")
    for seed in (1, 2, 3)
]


def of_frame(data: Any, columns: Columns | None = None) -> Results:
    return frame_results(data, columns=columns)


def rows(table: Results, metric: str = "score", analysis: Analysis | None = None) -> list[Observation]:
    return list(observe(table, metric, analysis).rows)


WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    ".csv": lambda frame, path: frame.write_csv(path),
    ".tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_runs(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    WRITERS[suffix](pl.DataFrame(ROWS), path)
    found = rows(read_tables([path], Columns()))
    assert found[0] == Observation("old", "t1", 1, 0, "scored", 3.1)
    assert len(found) == 12


@pytest.mark.parametrize(
    "text",
    [
        "Model,Task,Seed,Score\r\nold,t1,1,0.5\r\n",
        "\ufeffmodel;task;seed;score\nold;t1;1;0,5\n",
        "model;task;seed;score\nold;t1;1;0.5\n",
    ],
)
def test_what_spreadsheets_write_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    table = read_tables([tmp_path / "table.csv"], Columns())
    assert rows(table, table.primary()[0]) == [Observation("old", "t1", 1, 0, "scored", 0.5)]


def test_utf_16_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("model,score\nold,1\n", encoding="utf-16")
    with pytest.raises(UsageError, match="is UTF-16; save it as UTF-8"):
        read_tables([tmp_path / "table.csv"], Columns())


def test_several_files_are_one_table(tmp_path: Path) -> None:
    for arm in ("old", "newer"):
        pl.DataFrame([row for row in ROWS if row["arm"] == arm]).write_csv(tmp_path / f"{arm}.csv")
    found = read_tables([tmp_path / "old.csv", tmp_path / "newer.csv"], Columns())
    assert len(rows(found)) == 12


def test_flags_name_columns_and_mistakes_list_those_that_are_there() -> None:
    frame = pl.DataFrame(ROWS).rename({"arm": "who", "task": "what", "seed": "world"})
    found = rows(of_frame(frame, Columns(arm="who", task="what", seed="world")))
    assert found[0][:3] == ("old", "t1", 1)
    with pytest.raises(UsageError, match=r"which column names the arm\? Say --arm-from COLUMN.*; there are who, what"):
        rows(of_frame(frame))
    with pytest.raises(UsageError, match="no column 'nope'; there are who"):
        rows(of_frame(frame, Columns(arm="nope")))


@pytest.mark.parametrize("name", ["condition", "model", "policy", "variant", "algo"])
def test_arms_are_found_under_their_usual_names(name: str) -> None:
    assert rows(of_frame(pl.DataFrame(ROWS).rename({"arm": name})))[0].arm == "old"


@pytest.mark.parametrize("name", ["env", "env_id", "instance_id", "problem_id"])
def test_tasks_are_found_under_their_usual_names(name: str) -> None:
    assert rows(of_frame(pl.DataFrame(ROWS).rename({"task": name})))[0].task == "t1"


def test_the_metric_is_the_only_number_or_has_a_usual_name() -> None:
    assert of_frame(ROWS).primary() == ["score"]
    two = pl.DataFrame(ROWS).with_columns(cost=1.0)
    assert of_frame(two).primary() == ["score"]
    assert of_frame(two).metrics == ["score", "cost"]
    with pytest.raises(
        UsageError, match=r"which metric\? name it with --metric or analysis.metric; runs report fine, cost"
    ):
        of_frame(two.rename({"score": "fine"})).primary()


def test_a_boolean_is_the_metric_where_there_is_no_number() -> None:
    frame = pl.DataFrame({"arm": ["old", "new"], "task": ["t1", "t1"], "passed": [True, False]})
    assert of_frame(frame).primary() == ["passed"]
    with pytest.raises(UsageError, match="runs report passed, compiled"):
        of_frame(frame.with_columns(compiled=True)).primary()


def test_a_long_table_names_its_metrics_in_a_column() -> None:
    long = [{**row, "metric": m, "value": row["score"] * k} for row in ROWS for m, k in (("score", 1), ("twice", 2))]
    table = of_frame(pl.DataFrame(long).drop("score"))
    assert table.metrics == ["score", "twice"]
    assert rows(table, "twice")[0].value == pytest.approx(6.2)


def test_nan_is_a_failure_and_an_empty_cell_is_missing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arm,seed,score\nA,1,NaN\nA,2,\nA,3,0.5\n")
    states = [row.state for row in rows(read_tables([tmp_path / "t.csv"], Columns()))]
    assert states == ["failed", "missing", "scored"]


def test_a_status_column_says_what_became_of_a_run() -> None:
    frame = [
        {"arm": "A", "seed": i, "status": status, "score": 1.0}
        for i, status in enumerate(["succeeded", "failed", "timeout", "infra_error", "cancelled"])
    ]
    assert [row.state for row in rows(of_frame(frame))] == ["scored", "failed", "failed", "missing", "missing"]


def test_true_and_false_are_outcomes() -> None:
    frame = [{"arm": "A", "task": f"t{i}", "success": i % 2 == 0} for i in range(4)]
    assert of_frame(frame).primary() == ["success"]
    assert [row.value for row in rows(of_frame(frame), "success")] == [1.0, 0.0, 1.0, 0.0]


def test_without_seeds_every_row_is_one_more_rollout() -> None:
    frame = [{"arm": arm, "task": "t", "score": float(i)} for arm in "AB" for i in range(3)]
    assert [(row.seed, row.rollout) for row in rows(of_frame(frame))] == [(None, 0), (None, 1), (None, 2)] * 2


def test_seeds_that_are_no_numbers_are_the_same_for_every_arm() -> None:
    frame = [{"arm": arm, "seed": seed, "score": 1.0} for arm, seeds in (("A", "xyz"), ("B", "zyx")) for seed in seeds]
    found = rows(of_frame(frame))
    assert [row.seed for row in found] == [0, 1, 2, 2, 1, 0]


def test_seeds_are_crossed_where_one_seed_stands_on_two_tasks() -> None:
    assert of_frame(ROWS).analysis.seeds == "crossed"
    assert of_frame(ROWS[1:6]).analysis.seeds == "crossed"
    own = [{**row, "seed": f"{row['task']}-{row['seed']}"} for row in ROWS]
    assert of_frame(own).analysis.seeds == "nested"


def test_rows_with_steps_are_series_and_are_reduced() -> None:
    frame = [
        {"arm": arm, "seed": seed, "step": step, "reward": step * (1 + seed)}
        for arm in "AB" for seed in (0, 1) for step in range(5)
    ]  # fmt: skip
    table = of_frame(frame)
    by_default = observe(table, "reward")
    assert by_default.analysis.summary == Summary(type="auc")
    assert [row.value for row in by_default.rows] == [2.0, 4.0, 2.0, 4.0]
    final = observe(table, "reward", Analysis(summary=Summary(type="final", last=1)))
    assert [row.value for row in final.rows] == [4.0, 8.0, 4.0, 8.0]


def test_a_series_of_a_run_that_failed_is_no_score() -> None:
    frame = [
        {"arm": "A", "seed": seed, "step": step, "reward": 1.0, "status": "failed" if seed else "succeeded"}
        for seed in (0, 1) for step in range(3)
    ]  # fmt: skip
    assert [row.state for row in observe(of_frame(frame), "reward").rows] == ["scored", "failed"]


def test_a_summary_of_a_table_without_steps_is_an_error() -> None:
    with pytest.raises(UsageError, match="is one number for each run, so there is no series"):
        rows(of_frame(ROWS), analysis=Analysis(summary=Summary(type="mean")))


def test_text_is_no_metric_and_an_empty_arm_no_arm() -> None:
    with pytest.raises(UsageError, match="no run reports 'note'; runs report score"):
        rows(of_frame(ROWS), "note")
    with pytest.raises(UsageError, match="column 'arm' has empty cells"):
        rows(of_frame([{"arm": None, "seed": 1, "score": 1.0}, {"arm": "A", "seed": 1, "score": 1.0}]))


def test_a_pandas_frame_is_a_table_too() -> None:
    found = rows(of_frame(pd.DataFrame(ROWS)))
    assert found[0] == Observation("old", "t1", 1, 0, "scored", 3.1)
    assert not any(math.isnan(row.value) for row in found)


def test_a_file_that_is_no_table_names_itself(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("nonsense")
    with pytest.raises(UsageError, match=r"t\.parquet: cannot be read"):
        read_tables([tmp_path / "t.parquet"], Columns())


def questions(column: str, extra: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Two arms, 20 questions, 10 attempts each, and no column that is called a task."""
    return [
        {"arm": arm, column: f"q{question}", "correct_share": (question * 7 + attempt * 3) % 11 / 11, **(extra or {})}
        for arm in "AB" for question in range(20) for attempt in range(10)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["question_id", "item", "prompt_hash", "fold", "plain_word"])
def test_an_unused_column_that_looks_like_an_identifier_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"column '{name}' looks like an identifier \(20 values .*--task-from {name}"):
        of_frame(questions(name))
    table = of_frame(questions(name), Columns(task=name, keep_duplicates=True))
    assert (len(table.tasks), table.reading["task"]) == (20, name)
    ignored = of_frame(questions(name), Columns(ignore=(name,), keep_duplicates=True))
    assert ignored.reading["ignored"] == [name]


def test_an_identifier_that_is_a_number_is_refused_too() -> None:
    frame = [{**row, "question_id": int(row["question_id"][1:])} for row in questions("question_id")]
    with pytest.raises(UsageError, match="looks like an identifier"):
        of_frame(frame)


def test_a_score_with_few_values_is_not_an_identifier() -> None:
    frame = [
        {"arm": arm, "seed": seed, "rollout": i, "rating": (seed * i + shift) % 5}
        for arm, shift in (("A", 0), ("B", 1)) for seed in range(6) for i in range(4)
    ]  # fmt: skip
    assert of_frame(frame).metrics == ["rating"]


def test_a_column_that_only_describes_the_task_is_ignored_and_named() -> None:
    frame = [
        {"arm": arm, "task": f"t{task}", "seed": seed, "category": "xyz"[task % 3], "score": 0.1 * task + 0.01 * seed}
        for arm in "AB" for task in range(6) for seed in range(3)
    ]  # fmt: skip
    assert of_frame(frame).reading == {
        "arm": "arm", "task": "task", "seed": "seed", "rollout": None, "status": None, "step": None,
        "metrics": ["score"], "ignored": ["category"],
    }  # fmt: skip


def test_a_sample_is_a_task_unless_it_counts_repeats_inside_one() -> None:
    alone = [{"arm": arm, "sample": sample, "score": 0.1 * sample} for arm in "AB" for sample in range(5)]
    assert of_frame(alone).reading["task"] == "sample"
    repeats = [{**row, "task": task} for row in alone for task in ("t1", "t2")]
    assert of_frame(repeats).reading["rollout"] == "sample"
    other = [{**row, "sample": row["sample"] * 10 + 3} for row in repeats for _ in range(2)]
    with pytest.raises(UsageError, match="column 'sample' looks like an identifier"):
        of_frame(other)


@pytest.mark.parametrize(
    ("word", "state"),
    [("ok", "scored"), ("completed", "scored"), (" Scored", "scored"), ("OK ", "scored"), ("Failed", "failed"),
     ("error", "failed"), ("Timed out", "failed"), ("canceled", "missing"), ("missing", "missing")],
)  # fmt: skip
def test_statuses_of_other_tools_are_known(word: str, state: str) -> None:
    table = of_frame([{"arm": "A", "seed": 1, "status": word, "score": 1.0}])
    assert [row.state for row in rows(table)] == [state]
    assert bool(table.notes) == (state != "scored")


def test_an_unknown_status_is_refused_by_name_with_its_count() -> None:
    frame = [{"arm": "A", "seed": i, "status": "weird" if i else "ok", "score": 1.0} for i in range(3)]
    with pytest.raises(UsageError, match=r"'status' has statuses that are not known: 'weird' \(2 rows\)"):
        of_frame(frame)


def test_names_are_trimmed_with_a_note() -> None:
    table = of_frame([{"arm": "A ", "seed": 1, "score": 1.0}, {"arm": "A", "seed": 2, "score": 2.0}])
    assert (table.arms, table.notes) == (["A"], ("spaces around 1 names in column 'arm' were removed",))


def test_a_copied_row_is_refused_where_nothing_numbers_the_runs() -> None:
    frame = [{"arm": arm, "score": 0.1 * i} for arm in "AB" for i in (1, 2, 3, 3)]
    with pytest.raises(UsageError, match=r"4 rows stand more than once, such as arm=A, score=0\.3"):
        of_frame(frame)
    assert len(rows(of_frame(frame, Columns(keep_duplicates=True)))) == 8
    outcomes = [{"arm": arm, "success": i % 2} for arm in "AB" for i in range(6)]
    assert len(rows(of_frame(outcomes), "success")) == 12


def test_nan_is_not_a_seed() -> None:
    with pytest.raises(UsageError, match="column 'seed' has NaN"):
        of_frame([{"arm": "A", "seed": seed, "score": 1.0} for seed in (1.0, math.nan)])


def test_a_word_for_nothing_is_not_a_seed() -> None:
    with pytest.raises(UsageError, match="column 'seed' has 'n/a'; every run needs its seed"):
        of_frame([{"arm": "A", "seed": seed, "score": 1.0} for seed in ("1", "n/a")])


def test_names_of_columns_are_trimmed_and_stand_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arm, seed, score\nA, 1, 0.5\n")
    table = read_tables([tmp_path / "t.csv"], Columns())
    assert (table.primary(), table.reading["seed"]) == (["score"], "seed")
    (tmp_path / "t.csv").write_text("arm,seed,score,score\nA,1,0.5,0.6\n")
    with pytest.raises(UsageError, match="two columns are called 'score'"):
        read_tables([tmp_path / "t.csv"], Columns())
    (tmp_path / "t.csv").write_text("arm,seed,score\n")
    with pytest.raises(UsageError, match="has no rows"):
        read_tables([tmp_path / "t.csv"], Columns())


def test_arms_that_differ_in_case_only_get_a_note() -> None:
    table = of_frame([{"arm": arm, "seed": 1, "score": 1.0} for arm in ("GPT", "gpt")])
    assert table.notes == ("column 'arm' has 'GPT' and 'gpt', which are two arms",)


def test_an_identifier_is_noticed_when_the_arms_have_other_numbers_of_attempts() -> None:
    frame = [row for i, row in enumerate(questions("plain_word")) if row["arm"] == "A" or i % 2]
    with pytest.raises(UsageError, match="column 'plain_word' looks like an identifier"):
        of_frame(frame)


@pytest.mark.parametrize(
    ("texts", "value"),
    [(["0,85", "1,5"], 0.85), (["1,234.5", "7"], 1234.5), ([" 12.5 ", "1e3"], 12.5), (["-0,309", "1,204"], -0.309),
     (["1.234,5", "2,5"], 1234.5), (["1 234.5", "7"], 1234.5), (["1'234.5", "7"], 1234.5), (["45 %", "7.5%"], 45.0),
     (["1\u00a0234,5", "NaN"], 1234.5)],
)  # fmt: skip
def test_numbers_as_spreadsheets_write_them_are_read(texts: list[str], value: float) -> None:
    table = of_frame([{"arm": "A", "seed": seed, "score": text} for seed, text in enumerate(texts)])
    assert rows(table)[0].value == value


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1,234", "2,345"], r"'1,234' in column 'score' may be a thousand or a decimal comma"),
        (["45%", "0.4"], "column 'score' has per cent signs in some cells only"),
        (["1.234,5", "2.5"], "column 'score' mixes decimal points and decimal commas"),
        (["12 ms", "13 ms"], "no column holds numbers: 'score' holds text such as '12 ms'"),
        (["0.5", "0.7", "N/A"], r"column 'score' has text among its numbers: 'N/A' \(1 cells\)"),
    ],
)
def test_numbers_that_can_be_misread_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_frame([{"arm": "A", "seed": seed, "score": text} for seed, text in enumerate(texts)])


@pytest.mark.parametrize("names", [("1", "01"), ("1.1", "1.10"), ("true", "True")])
@pytest.mark.parametrize("column", ["arm", "task"])
def test_numbers_that_name_something_are_names_as_they_are_written(
    tmp_path: Path, column: str, names: tuple[str, str]
) -> None:
    other = "task" if column == "arm" else "arm"
    lines = [f"{name},{row},{row * 2}" for name in names for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join([f"{column},{other},score", *lines]))
    (tmp_path / "more.csv").write_text(f"{column},{other},score\n{names[1]},3,5\n")
    for files in (["t.csv"], ["t.csv", "more.csv"]):
        table = read_tables([tmp_path / file for file in files], Columns())
        assert {getattr(row, column) for row in table.rows} == {*names}


def test_names_beside_one_column_for_each_arm_are_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task,plain,fancy\n1,1,2\n01,2,1\n001,3,2\n")
    table = read_tables([tmp_path / "t.csv"], Columns())
    assert {(row.arm, row.task) for row in table.rows} == {
        (a, t) for a in ("plain", "fancy") for t in ("1", "01", "001")
    }


@pytest.mark.parametrize("score", ["1e400", "-1e400", "9" * 400, "-" + "9" * 5000, "inf"])
@pytest.mark.parametrize("all_cells", [True, False])
def test_a_number_beyond_all_floats_is_refused_in_one_line(tmp_path: Path, score: str, all_cells: bool) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "arm,seed,score\n"
        + "".join(f"{a},{s},{score if all_cells or a + str(s) == 'a0' else s}\n" for a in "ab" for s in range(4))
    )
    with pytest.raises(UsageError, match=r"score is -?inf, and no mean and spread can be computed from it"):
        bakeoff.compare(path)


def test_names_and_seeds_may_be_numbers_beyond_all_floats() -> None:
    table = of_frame([{"arm": 10**400 + arm, "seed": 10**400 + s, "score": s} for arm in (1, 2) for s in range(3)])
    assert {(row.arm, row.seed) for row in table.rows} == {(str(10**400 + arm), s) for arm in (1, 2) for s in range(3)}
