"""`bakeoff task`: make, show and prove tasks from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from workloads.tasks.tasked import BROKEN, DIFF, FIXED, TEST, commit, harbor_task, prepared_task, run_git

pytestmark = pytest.mark.apt  # bubblewrap and git


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)


def bakeoff(*arguments: str) -> Result:
    """The command line, with output and error apart."""
    result = CliRunner().invoke(main, arguments, prog_name="bakeoff")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_from_two_commits_to_a_proved_task(tmp_path: Path) -> None:
    commit(tmp_path / "repo", {"calc.py": BROKEN})
    run_git(tmp_path / "repo", "tag", "before")
    commit(tmp_path / "repo", {"calc.py": FIXED, "tests/test_double.py": TEST}, "Double by two")
    made = bakeoff(
        "task", "new", "t", "--repo", "repo", "--from", "before", "--to", "HEAD", "--title", "Double", "--tag", "bug"
    )
    assert made.exit_code == 0, made.output
    assert "tests/test_double.py" in made.stdout and "next: rewrite t/LM_INSTRUCTIONS.md" in made.stdout
    checked = bakeoff("task", "check", "t")
    assert checked.exit_code == 0, checked.output
    assert "reference passes: score 1, 1 of 1 tests passed" in checked.stdout
    shown = bakeoff("task", "show", "t")
    assert "Double by two" in shown.stdout and "assert double(4)" not in shown.stdout


def test_a_reference_that_fails_and_a_test_that_always_passes_are_found(tmp_path: Path) -> None:
    prepared_task(tmp_path / "tasks/wrong", {"diff.patch": DIFF.replace("x * 2", "x * 3")})
    easy = {"rubrics": [{"id": "a", "criterion": "", "weight": 1}], "test_scripts": [{"path": "t/test_a.py", "rubric_id": "a", "content": "def test_a():\n    pass\n"}]}  # fmt: skip
    prepared_task(tmp_path / "tasks/easy", {"diff.patch": DIFF}, evaluation=easy)
    result = bakeoff("task", "check", "tasks", "--json")
    assert result.exit_code == 1
    failed = {
        Path(row["task"]).name: [f["name"] for f in row["findings"] if f["ok"] is False]
        for row in json.loads(result.stdout)
    }
    assert failed == {"easy": ["doing nothing fails"], "wrong": ["reference passes"]}


def test_a_task_that_cannot_be_read_does_not_keep_others_from_being_checked(tmp_path: Path) -> None:
    prepared_task(tmp_path / "tasks/a", lm={})
    prepared_task(tmp_path / "tasks/b", {"diff.patch": DIFF})
    result = bakeoff("task", "check", "tasks")
    assert result.exit_code == 2
    assert "lm.instructions: is needed" in result.stdout and "reference passes" in result.stdout


def test_oracle_shows_the_tests_and_why_they_fail(tmp_path: Path) -> None:
    prepared_task(tmp_path / "t", {"diff.patch": DIFF.replace("x * 2", "x * 3")})
    result = bakeoff("task", "oracle", "t", "--logs", "kept")
    assert result.exit_code == 1
    assert "does not pass, score 0" in result.stdout and "assert 12 == 8" in result.stdout
    assert (tmp_path / "kept/t/tests__test_double.py.txt").is_file()
    harbor_task(tmp_path / "h")
    told = bakeoff("task", "oracle", "h", "--json")
    assert told.exit_code == 0 and json.loads(told.stdout)[0]["rewards"] == {"reward": 1.0}


def test_oracle_without_a_reference_says_what_to_add(tmp_path: Path) -> None:
    prepared_task(tmp_path / "t")
    result = bakeoff("task", "oracle", "t")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "add diff.patch" in result.stderr


def test_show_is_for_people_and_programs(tmp_path: Path) -> None:
    prepared_task(tmp_path / "t", {"diff.patch": DIFF, "overrides.json": json.dumps({"prompt": "other words"})})
    facts = json.loads(bakeoff("task", "show", "t", "--json").stdout)
    assert (facts["id"], facts["steps"][0]["instruction"], facts["hidden"]) == ("double", "other words", ["tests/test_double.py"])  # fmt: skip
    assert facts["reference"] is True
    assert "Repair double." in bakeoff("task", "show", "t", "--no-overrides").stdout
    refused = bakeoff("task", "show", "t", "--no-overrides", "--overrides", "o.json")
    assert refused.exit_code == 2


def test_prepare_writes_beside_or_says_what_is_missing(tmp_path: Path) -> None:
    prepared_task(tmp_path / "one_20250824_123456")
    assert bakeoff("task", "prepare", "one_20250824_123456").exit_code == 0
    assert (tmp_path / "data/tasks/prepared/one/tb_meta.json").is_file()
    prepared_task(tmp_path / "two", evaluation={})
    refused = bakeoff("task", "prepare", "two", "--out", "three")
    assert refused.exit_code == 2 and "evaluation.rubrics: is missing" in refused.stderr
    assert not (tmp_path / "three").exists()


def test_the_sandbox_is_chosen_by_name_and_none_asks_first(tmp_path: Path) -> None:
    prepared_task(tmp_path / "t", {"diff.patch": DIFF})
    wrong = bakeoff("task", "oracle", "t", "--sandbox", "bubblewarp")
    assert wrong.exit_code == 2 and "did you mean 'bubblewrap'" in wrong.stderr
    asked = bakeoff("task", "oracle", "t", "--sandbox", "none")
    assert asked.exit_code != 0 and "isolates nothing" in asked.output
