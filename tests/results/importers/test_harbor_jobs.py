"""Job directories that Harbor's own classes wrote (scripts/make_fixtures.py)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.reading import reading_line
from bakeoff.results.table import Results
from support.tables import compared

JOBS = Path(__file__).parents[2] / "fixtures" / "harbor"
Read = Callable[..., Results]


def test_trials_are_compared_by_task(read: Read) -> None:
    results = read("harbor/models")
    assert results.arms == ["terminus-2@openai/large", "terminus-2@openai/small"]
    assert reading_line(results.reading) == "read 12 trials x 2 logs of Harbor; arm = agent"
    facts = compared(results)
    # small solves attempt a of task t where (t + a) % 3 == 0, 4 of 12; large the other 8. By task the difference is
    # 0, -1, 0, 0, -1, 0, so -2/6.
    assert (facts["control_mean"], facts["candidate_mean"]) == pytest.approx((8 / 12, 4 / 12))
    assert facts["effect"] == pytest.approx(-2 / 6) and facts["units"] == 6


def test_causes_decide_what_is_failed_and_what_is_missing(read: Read) -> None:
    results = read("harbor/causes")
    states = {
        row.source.path.name: row.status
        for row in results.rows
        if row.source is not None and row.source.member is None and row.arm.endswith("small")
    }
    assert states == {
        "task-1__0": "succeeded",  # the agent ran out of time and keeps its reward
        "task-1__1": "failed",  # its context was full, and there is no reward
        "task-2__0": "infra_error", "task-2__1": "infra_error",  # sandbox, provider
        "task-3__0": "infra_error", "task-3__1": "infra_error",  # verifier, cancelled
        "task-4__0": "failed", "task-4__1": "failed",  # unclassified, and unknown to Harbor
        "task-5__0": "succeeded", "task-5__1": "infra_error",  # both in a step
        "task-6__0": "infra_error",  # ended before it had a result
    }  # fmt: skip
    counts = Counter(row.status for row in results.rows if row.arm.endswith("small"))
    assert counts == {"succeeded": 2, "failed": 3, "infra_error": 7}  # one attempt left no directory at all
    line = reading_line(results.reading)
    assert "3 of 24 trials errored (failed); 7 trials missing" in line
    assert (
        "2 trials with an unclassified error (failed)" in line
        and "2 trials with cause sandbox_failed (missing)" in line
    )


def test_two_jobs_of_one_agent_are_reruns(read: Read) -> None:
    with pytest.raises(
        UsageError, match=r"reruns/first and .*reruns/second both have runs of 'terminus-2@openai/small'"
    ):
        read("harbor/reruns")
    newest = read("harbor/reruns", reruns="newest")
    assert {row.metrics["reward"] for row in newest.rows if row.arm.endswith("small")} == {1.0}
    assert Counter(row.seed for row in read("harbor/reruns", reruns="seeds").rows) == {0: 12, 1: 6}
    by_job = read("harbor/reruns", arm="path")
    assert by_job.arms == ["first", "large", "second"]


def test_jobs_that_differ_in_nothing_else_are_the_arms(read: Read) -> None:
    assert read("harbor/reruns/first", "harbor/reruns/second").arms == ["first", "second"]


def test_a_task_that_changed_is_another_task(read: Read, tmp_path: Path) -> None:
    shutil.copytree(JOBS / "models", tmp_path / "jobs")
    for path in (tmp_path / "jobs" / "small").glob("task-1__*/result.json"):
        result = json.loads(path.read_text())
        path.write_text(json.dumps({**result, "task_checksum": "f" * 40}))
    results = read(tmp_path / "jobs")
    assert {"task-1@ffffffff", "task-1@00000000"} <= set(results.tasks) and "task-1" not in results.tasks
    assert any("task task-1 has several contents" in note for note in results.notes)


@pytest.mark.parametrize(
    ("content", "reason"), [("", "is empty"), ('{"task_name": "x", "trial_name"', "is not whole JSON")]
)
def test_a_torn_result_is_one_line(read: Read, tmp_path: Path, content: str, reason: str) -> None:
    shutil.copytree(JOBS / "models" / "small", tmp_path / "small")
    path = tmp_path / "small" / "task-1__0" / "result.json"
    if content:
        path.write_text(content)
    else:
        (tmp_path / "small" / "result.json").write_text("")
    with pytest.raises(UsageError, match=reason) as refused:
        read(tmp_path / "small")
    assert "\n" not in str(refused.value)


def test_a_reward_that_is_not_a_number_is_a_failure_and_keeps_the_range(read: Read, tmp_path: Path) -> None:
    shutil.copytree(JOBS / "models", tmp_path / "jobs")
    path = tmp_path / "jobs" / "small" / "task-1__0" / "result.json"
    result = json.loads(path.read_text())
    result["verifier_result"]["rewards"]["reward"] = float("nan")
    path.write_text(json.dumps(result))
    results = read(tmp_path / "jobs")
    assert results.analysis.bounds == (0, 1)
    assert compared(results)["candidate_mean"] == pytest.approx(3 / 12)  # it was 1 of 4 that small solves


@pytest.mark.parametrize(
    "changes", [{"config": {"agent": 3}}, {"verifier_result": {"rewards": "x"}}, {"agent_info": True}]
)
def test_fields_of_another_type_are_one_line_with_the_file(
    read: Read, tmp_path: Path, changes: dict[str, object]
) -> None:
    shutil.copytree(JOBS / "models" / "small", tmp_path / "small")
    path = tmp_path / "small" / "task-1__0" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(
        UsageError, match="small: is not as Harbor writes it, or was changed: AttributeError"
    ) as refused:
        read(tmp_path / "small")
    assert "\n" not in str(refused.value)


def test_one_trial_can_be_named(read: Read) -> None:
    (row,) = read("harbor/models/small/task-1__0").rows
    assert (row.task, row.metrics) == ("task-1", {"reward": 1.0})


def test_a_job_and_one_of_its_trials_are_not_counted_twice(read: Read) -> None:
    for again in ("harbor/models/small", "harbor/models/small/task-1__0"):
        with pytest.raises(UsageError, match="is read twice; the same run cannot count twice"):
            read("harbor/models", again)


def test_attempts_of_jobs_that_are_seeds_are_repeats(read: Read) -> None:
    results = read("harbor/models", "harbor/causes", reruns="seeds")
    small = [row for row in results.rows if row.arm.endswith("small")]
    assert len({(row.task, row.seed, row.rollout) for row in small}) == len(small) == 24
    assert {row.rollout for row in small} == {0, 1}


def test_planned_trials_without_a_directory_are_counted_in_the_reading_line(read: Read, tmp_path: Path) -> None:
    shutil.copytree(JOBS / "models", tmp_path / "jobs")
    for trial in sorted((tmp_path / "jobs" / "small").glob("task-[56]__*")):
        shutil.rmtree(trial)  # the job was stopped before two of its six tasks
    line = reading_line(read(tmp_path / "jobs").reading)
    assert "4 trials planned on tasks without a directory (not read)" in line
    assert "planned" not in reading_line(read("harbor/models").reading)
