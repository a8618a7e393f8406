"""Evals that promptfoo itself wrote (scripts/make-fixtures-trackers.py): JSON, JSONL and its database."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.results.importers.promptfoo import outcome_of
from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "promptfoo"
SLIPS = {"careful": 1, "hasty": 3}


@pytest.fixture(params=["eval.json", "eval.jsonl", "promptfoo.db"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    if path.suffix == ".db":
        path.write_bytes(gzip.decompress((FIXTURES / "promptfoo.db.gz").read_bytes()))
    else:
        path.write_bytes((FIXTURES / request.param).read_bytes())
    return path


def right(arm: str, a: int) -> int:
    """Number of right answers among three repeats, as the provider in the script decides."""
    return sum((a + call) % 5 >= SLIPS[arm] for call in (1, 2, 3))


def test_all_three_formats_give_the_same_runs_and_the_means_that_arithmetic_gives(
    bakeoff: Bakeoff, source: Path
) -> None:
    results = open_results([str(source)], Path("root"))
    assert len(results.rows) == 36 and set(results.arms) == {"careful", "hasty"}
    assert results.tasks == ["a=1, b=1", "a=2, b=2", "sum 3", "sum 4", "large sum, a=5, b=2", "large sum, a=6, b=0"]
    assert Counter(row.rollout for row in results.rows) == {0: 12, 1: 12, 2: 12}, "testIdx is test x repeat"
    statuses = Counter((row.arm, row.status) for row in results.rows)
    assert statuses == {
        ("careful", "succeeded"): 15, ("careful", "infra_error"): 3, ("hasty", "succeeded"): 15, ("hasty", "failed"): 3,
    }  # fmt: skip
    answer = json.loads(bakeoff("compare", source, "--json").stdout)
    [comparison] = answer["comparisons"]
    assert comparison["control_mean"] == pytest.approx(sum(right("careful", a) for a in (1, 2, 3, 4, 6)) / 15)
    hasty = sum(right("hasty", a) for a in (1, 2, 3, 4, 5)) / 18
    assert comparison["candidate_mean"] == pytest.approx(hasty), "three failed: 0"
    assert (comparison["verdict"], comparison["reason"], comparison["units"]) == ("undecided", "missing", 6)
    shown = bakeoff("compare", source).stdout
    assert "6 of 36 results are errors (failureReason 2): 3 failed, 3 missing" in shown


def test_a_failed_assertion_is_a_score_although_promptfoo_writes_an_error_for_it() -> None:
    rows = [json.loads(line) for line in (FIXTURES / "eval.jsonl").read_text().splitlines()]
    asserted = [row for row in rows if row["failureReason"] == 1]
    assert asserted and all(row["error"] for row in asserted)
    assert {outcome_of(row) for row in asserted} == {"scored"}
    without = [{key: value for key, value in row.items() if key != "failureReason"} for row in rows]
    assert [outcome_of(row) for row in without] == [outcome_of(row) for row in rows], "versions before failureReason"


@pytest.mark.parametrize(("error", "outcome"), [
    ("API error: 429 Too Many Requests\n{}", "missing"), ("API call error: Error: Request failed: socket hang up", "missing"),
    ("Evaluation exceeded max duration of 1000ms", "missing"), ("Evaluation timed out after 100ms: Error", "failed"),
    ("Error: cannot add\n    at ECONNREFUSED.js", "failed"), ("", "failed"), ("context length 5000 exceeded", "failed"),
])  # fmt: skip
def test_only_causes_outside_of_the_arm_make_a_result_missing(error: str, outcome: str) -> None:
    assert outcome_of({"failureReason": 2, "error": error}) == outcome


def test_promptfoos_own_share_is_shown_where_missing_results_make_another_one(bakeoff: Bakeoff) -> None:
    shown = bakeoff("compare", FIXTURES / "eval.json").stdout
    assert "promptfoo's own success of careful is 0.667, ours is 0.8" in shown, "12 of 18; ours is 12 of 15"
    assert "provider hasty" not in shown, "6 of 18 either way"


def test_one_eval_in_two_formats_is_read_once_and_never_twice(bakeoff: Bakeoff) -> None:
    whole = json.loads(bakeoff("compare", FIXTURES, "--json").stdout)
    assert (
        whole["comparisons"] == json.loads(bakeoff("compare", FIXTURES / "eval.json", "--json").stdout)["comparisons"]
    )
    twice = bakeoff("compare", FIXTURES / "eval.json", FIXTURES / "eval.jsonl")
    assert twice.exit_code == 2 and "cannot count twice" in twice.stderr


def test_a_jsonl_file_that_grows_is_read_up_to_its_last_whole_line(bakeoff: Bakeoff, tmp_path: Path) -> None:
    lines = (FIXTURES / "eval.jsonl").read_bytes().splitlines(keepends=True)
    growing = tmp_path / "growing.jsonl"
    growing.write_bytes(b"".join(lines[:20]) + lines[20][:100])
    assert len(open_results([str(growing)], tmp_path).rows) == 20
    assert "the last line is not whole" in bakeoff("compare", growing).stdout
    growing.write_bytes(b"".join(lines))
    assert len(open_results([str(growing)], tmp_path).rows) == 36


@pytest.mark.parametrize("name", ["eval.json", "promptfoo.db", "eval.jsonl"])
@pytest.mark.parametrize("damage", ["cut", "empty", "middle"])
def test_a_damaged_file_is_one_line_and_exit_2(bakeoff: Bakeoff, tmp_path: Path, name: str, damage: str) -> None:
    content = (
        gzip.decompress((FIXTURES / "promptfoo.db.gz").read_bytes())
        if name.endswith(".db")
        else (FIXTURES / name).read_bytes()
    )
    half = len(content) // 2
    damaged = {"cut": content[:half], "empty": b"", "middle": content[:half] + b"\n\0\0\n" + content[half:]}[damage]
    if (name, damage) in {("eval.jsonl", "cut"), ("promptfoo.db", "middle")}:
        damaged = content[:50]
    (tmp_path / name).write_bytes(damaged)
    result = bakeoff("compare", name)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.stderr
    assert name in result.stderr


def test_a_database_with_several_evals_is_refused_with_the_command_that_writes_one(
    bakeoff: Bakeoff, tmp_path: Path
) -> None:
    import sqlite3

    path = tmp_path / "promptfoo.db"
    path.write_bytes(gzip.decompress((FIXTURES / "promptfoo.db.gz").read_bytes()))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO evals (id, results, config, description) VALUES ('eval-two', '{}', '{}', 'again')"
        )
    connection.close()
    result = bakeoff("compare", path)
    assert result.exit_code == 2 and "has 2 evals" in result.stderr
    assert "promptfoo export eval eval-two -o eval-two.json" in result.stderr


def test_settings_of_one_provider_without_labels_are_arms_of_their_own(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FIXTURES / "eval.jsonl").read_text().splitlines()]
    path = tmp_path / "eval.jsonl"
    path.write_text("\n".join(json.dumps(row | {"provider": {"id": "adder"}}) for row in rows))
    assert sorted(open_results([str(path)], tmp_path).arms) == ["0", "1"]


def test_answers_without_assertions_or_from_the_cache_are_noted(bakeoff: Bakeoff, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FIXTURES / "eval.jsonl").read_text().splitlines()]
    for row in rows:
        row["testCase"].pop("assert")
        row["response"] = {**(row.get("response") or {}), "cached": True}
    (tmp_path / "eval.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = bakeoff("compare", "eval.jsonl").stdout
    assert "30 of 30 answers have no assertion" in shown and "30 of 30 answers come from promptfoo's cache" in shown


def test_two_evals_with_the_same_tests_are_reruns_and_are_not_pooled_in_silence(
    bakeoff: Bakeoff, tmp_path: Path
) -> None:
    text = (FIXTURES / "eval.json").read_text()
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(text)
    tree = json.loads(text)
    tree["evalId"] = "another"
    for row in tree["results"]["results"]:
        row["id"] += "-again"
    after.write_text(json.dumps(tree))
    refused = bakeoff("compare", before, after)
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert "before.json" in refused.stderr and "after.json both have runs of" in refused.stderr
    for rule, line in (("newest", "in 1 log of promptfoo"), ("seeds", "x 2 logs of promptfoo")):
        shown = bakeoff("compare", before, after, "--reruns", rule).stdout
        assert line in shown and "careful is 0.667, ours is 0.8" in shown, "of the newest, or of each"
