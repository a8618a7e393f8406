"""Tables without a column for the arm: one column, or one file, for each arm; and masks of failed rows in Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import bakeoff
from bakeoff.cli import main
from bakeoff.errors import UsageError

GPT = [0.50, 0.62, 0.71, 0.44, 0.58, 0.66, 0.53, 0.69]
CLAUDE = [0.61, 0.70, 0.80, 0.57, 0.66, 0.79, 0.60, 0.77]
WIDE = "task,seed,gpt,claude\n" + "".join(f"t{n},1,{g},{c}\n" for n, (g, c) in enumerate(zip(GPT, CLAUDE, strict=True)))
LONG = "arm,task,seed,value\n" + "".join(
    f"{arm},t{n},1,{value}\n" for arm, values in (("gpt", GPT), ("claude", CLAUDE)) for n, value in enumerate(values)
)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["compare", *words])


def one_line(result: Result) -> str:
    """The message of a refusal."""
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    return result.stderr


def verdict(path: str, **question: object) -> tuple[object, ...]:
    (answer,) = bakeoff.compare(path, **question)
    return answer.verdict, answer.candidate, answer.control, answer.effect, answer.units


def test_a_column_for_each_arm_gives_the_verdict_of_the_same_values_below_each_other(
    compare: Callable[..., Result],
) -> None:
    Path("wide.csv").write_text(WIDE)
    Path("long.csv").write_text(LONG)
    assert verdict("wide.csv") == verdict("long.csv")
    (answer,) = bakeoff.compare("wide.csv")
    # By hand: the mean of the eight differences.
    assert answer.control == "gpt" and answer.effect == pytest.approx((sum(CLAUDE) - sum(GPT)) / 8)
    assert "columns: arm from columns gpt, claude, task from task, seed from seed" in compare("wide.csv").stdout


def test_spreadsheets_write_wide_tables_with_commas_and_percent_signs(compare: Callable[..., Result]) -> None:
    rows = "".join(f"t{n};{100 * g:.0f} %;{100 * c:.0f} %\n" for n, (g, c) in enumerate(zip(GPT, CLAUDE, strict=True)))
    Path("wide.csv").write_text(f"Task;gpt;claude\n{rows}")
    (answer,) = bakeoff.compare("wide.csv")
    assert answer.effect == pytest.approx(100 * (sum(CLAUDE) - sum(GPT)) / 8)


def test_empty_cells_are_missing_and_nan_is_a_failure_of_that_arm(compare: Callable[..., Result]) -> None:
    Path("wide.csv").write_text(WIDE.replace(",0.8\n", ",\n").replace(",0.79\n", ",NaN\n"))
    assert "'claude', task 't5', seed 1 failed" in one_line(compare("wide.csv"))
    (answer,) = bakeoff.compare("wide.csv", failure_score=0)
    assert (answer.failed, answer.missing) == (1, 1)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("task,seed,em,f1", "metrics"),
        ("task,accuracy,latency_ms", "metrics"),
        ("task,train,test", "splits"),
        ("task,seed1,seed2", "seeds"),
        ("task,1,2", "seeds"),
        ("seed,mmlu,gsm8k", "tasks of one arm"),
        ("task,gpt,mean", "computed"),
        ("task,gpt,diff", "computed"),
        ("task,temperature,gpt", "a setting"),
        ("a,b", "nothing says that rows belong together"),
    ],
)
def test_columns_that_may_be_something_else_than_arms_are_refused_with_both_spellings(
    compare: Callable[..., Result], header: str, reason: str
) -> None:
    columns = header.split(",")
    rows = [",".join(f"t{n}" if name == "task" else str((n * 7 + place) % 5 / 10) for place, name in enumerate(columns)) for n in range(6)]  # fmt: skip
    Path("t.csv").write_text("\n".join([header, *rows]) + "\n")
    message = one_line(compare("t.csv"))
    assert "--arm-from COLUMN" in message and "--arm-from columns:" in message, reason


def test_columns_of_different_scales_are_not_taken_for_arms_unless_they_are_named(
    compare: Callable[..., Result],
) -> None:
    Path("t.csv").write_text("task,foo,bar\n" + "".join(f"t{n},{n / 10},{1000 + n}\n" for n in range(6)))
    assert "--arm-from columns:foo,bar" in one_line(compare("t.csv"))
    assert verdict("t.csv", columns={"arm": "columns:foo,bar"})[:3] == ("better", "bar", "foo")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("columns:gpt,nobody", "no column 'nobody'"),
        ("columns:gpt,task", "'task' cannot be an arm"),
        ("columns:gpt", "names one arm"),
    ],
)
def test_columns_that_cannot_be_arms_are_refused_by_name(
    compare: Callable[..., Result], name: str, message: str
) -> None:
    Path("wide.csv").write_text(WIDE)
    assert message in one_line(compare("wide.csv", "--arm-from", name))


def test_a_status_beside_columns_for_arms_is_refused_because_it_names_no_arm(compare: Callable[..., Result]) -> None:
    Path("wide.csv").write_text(re.sub(r"(?m)$", ",ok", WIDE.strip()).replace("claude,ok", "claude,status") + "\n")
    assert "column 'status' does not say which of the arms gpt, claude" in one_line(compare("wide.csv"))


def test_a_row_of_means_in_a_wide_table_is_refused(compare: Callable[..., Result]) -> None:
    means = f"mean,1,{sum(GPT) / 8},{sum(CLAUDE) / 8}\n"
    Path("wide.csv").write_text(WIDE + means)
    assert "'mean'" in one_line(compare("wide.csv"))


def test_a_column_that_groups_tasks_of_a_wide_table_is_seen(compare: Callable[..., Result]) -> None:
    lines = WIDE.splitlines()
    Path("wide.csv").write_text(
        "\n".join([f"repo,{lines[0]}", *(f"r{n // 2},{line}" for n, line in enumerate(lines[1:]))])
    )
    assert "repo" in compare("wide.csv").stdout


def test_each_file_is_an_arm_where_no_file_names_one(compare: Callable[..., Result]) -> None:
    for arm, values in (("gpt", GPT), ("claude", CLAUDE)):
        Path(f"{arm}.csv").write_text("task,seed,value\n" + "".join(f"t{n},1,{v}\n" for n, v in enumerate(values)))
    Path("long.csv").write_text(LONG)
    (answer,) = bakeoff.compare("gpt.csv", "claude.csv")
    assert (answer.verdict, answer.candidate, answer.control, answer.effect, answer.units) == verdict("long.csv")
    assert "arm from the names of files" in compare("gpt.csv", "claude.csv").stdout


def test_files_of_one_name_are_told_apart_by_their_directories(compare: Callable[..., Result]) -> None:
    for arm, values in (("old", GPT), ("new", CLAUDE)):
        Path(arm).mkdir()
        Path(arm, "eval.csv").write_text("task,score\n" + "".join(f"t{n},{v}\n" for n, v in enumerate(values)))
    (answer,) = bakeoff.compare("old/eval.csv", "new/eval.csv")
    assert (answer.control, answer.candidate) == ("old/eval", "new/eval")


def test_files_that_disagree_about_their_columns_are_refused(compare: Callable[..., Result]) -> None:
    Path("a.csv").write_text("task,seed,score\nt1,1,0.5\nt2,1,0.6\n")
    Path("b.csv").write_text("task,score\nt1,0.5\nt2,0.7\n")
    Path("c.csv").write_text("task,seed,model,score\nt1,1,x,0.5\nt2,1,x,0.7\n")
    assert "a.csv has the column 'seed' for the seed, and b.csv has not" in one_line(compare("a.csv", "b.csv"))
    assert "c.csv has a column that names the arm, and a.csv has none" in one_line(compare("a.csv", "c.csv"))


def test_one_file_without_arms_says_that_a_second_one_may_be_named(compare: Callable[..., Result]) -> None:
    Path("a.csv").write_text("task,seed,score\nt1,1,0.5\nt2,1,0.6\n")
    assert "say --arm-from, or name one file for each arm" in one_line(compare("a.csv"))


def test_wide_files_below_each_other_are_refused_unless_their_columns_are_named(
    compare: Callable[..., Result],
) -> None:
    Path("1.csv").write_text(WIDE)
    Path("2.csv").write_text(WIDE.replace("\nt", "\nu"))
    assert "say --arm-from columns:gpt,claude" in one_line(compare("1.csv", "2.csv"))
    (answer,) = bakeoff.compare("1.csv", "2.csv", columns={"arm": "columns:gpt,claude"})
    assert answer.units == 16


@pytest.mark.parametrize("kind", ["polars", "pandas", "columns", "rows"])
def test_a_mask_of_failed_rows_in_python_counts_them_as_failed(kind: str) -> None:
    data = {
        "arm": ["a"] * 8 + ["b"] * 8,
        "task": [f"t{n}" for n in range(8)] * 2,
        "score": [*GPT, *CLAUDE],
        "failed": [False] * 15 + [True],
    }
    frame: object = data
    if kind == "polars":
        frame = pl.DataFrame(data)
    elif kind == "pandas":
        frame = pytest.importorskip("pandas").DataFrame(data)
    elif kind == "rows":
        frame = pl.DataFrame(data).to_dicts()
    (answer,) = bakeoff.compare(frame, metric="score", columns={"status": "failed"}, failure_score=0)
    assert answer.failed == 1
    fine = pl.DataFrame(data).with_columns(succeeded=~pl.col("failed")).drop("failed")
    (same,) = bakeoff.compare(fine, metric="score", columns={"status": "succeeded"}, failure_score=0)
    assert (same.failed, same.effect) == (1, answer.effect)
    with pytest.raises(UsageError, match="does not say which of them failed"):
        bakeoff.compare(fine.rename({"succeeded": "mask"}), metric="score", columns={"status": "mask"})


def test_frames_as_other_tools_return_them_are_judged_with_the_calls_of_the_page() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [(model, f"q{n}", epoch) for model in ("old", "new") for n in range(8) for epoch in (1, 2)]
    samples = pandas.DataFrame(
        {
            # Columns and types of Inspect's samples_df, with NA where nothing is known; its `error` is then empty.
            "sample_id": pandas.array([f"s{n}" for n in range(32)], dtype="string"),
            "model": [model for model, _, _ in rows],
            "model_args": pandas.array([pandas.NA] * 32, dtype="object"),
            "model_usage": [{} for _ in rows],
            "id": [task for _, task, _ in rows],
            "epoch": [epoch for _, _, epoch in rows],
            "score_match": ["C" if model == "new" or n % 4 == 0 else "I" for n, (model, _, _) in enumerate(rows)],
            "error": pandas.array(["OOM"] + [""] * 31, dtype="string"),
        }
    )
    samples["correct"] = samples["score_match"].map({"C": 1, "P": 0.5, "I": 0, "N": 0})
    columns = {"arm": "model", "task": "id", "rollout": "epoch", "status": "error", "ignore": ("sample_id",)}
    (answer,) = bakeoff.compare(samples, metric="correct", columns=columns, failure_score=0)
    assert (answer.control, answer.candidate, answer.failed, answer.units) == ("old", "new", 1, 8)
    # By hand: 3 of 16 answers of `old` are right, since the one that ran out of memory counts 0; all of `new` are.
    right = sum(n % 4 == 0 for n in range(1, 16))
    assert answer.effect == pytest.approx(1 - right / 16)
    runs = pandas.DataFrame(  # MLflow's search_runs: parameters are text, tags may be None
        {
            "run_id": [f"r{n}" for n in range(16)],
            "status": ["FINISHED"] * 15 + ["FAILED"],
            "start_time": pandas.to_datetime(["2026-01-01"] * 16),
            "metrics.acc": [*GPT, *CLAUDE[:7], float("nan")],
            "params.lr": ["0.1"] * 8 + ["0.01"] * 8,
            "params.seed": [str(n) for n in range(8)] * 2,
            "tags.note": [None] * 16,
        }
    )
    columns = {"arm": "params.lr", "seed": "params.seed"}
    (answer,) = bakeoff.compare(runs, metric="metrics.acc", columns=columns, failure_score=0)
    assert (answer.control, answer.failed, answer.units) == ("0.1", 1, 8)
