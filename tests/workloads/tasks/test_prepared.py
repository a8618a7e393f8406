"""Prepared task directories are read as they stand, old keys too, and what is wrong is named with its file and fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Script
from bakeoff.workloads.tasks.schema import Rubric
from workloads.tasks.tasked import DIFF, TEST, meta, prepared_task, write_files


def test_a_prepared_task_has_all_its_parts(tmp_path: Path) -> None:
    task = load_task(prepared_task(tmp_path / "t", {"diff.patch": DIFF}))
    assert (task.id, task.format, task.title, task.tags) == ("double", "prepared", "Double it", ("bug",))
    assert task.first.instruction == "Repair double."
    assert task.rubrics == (Rubric(id="works", criterion="It doubles.", weight=1.0),)
    assert task.scripts == (Script("tests/test_double.py", TEST, "works"),)
    assert task.first.solution is not None and task.first.solution.diff == DIFF.encode()
    assert task.repository is not None and task.repository.url == str(tmp_path / "t/repo")
    assert task.workdir == "/app/repo"
    assert task.notes == ()


def test_the_older_names_of_keys_are_read(tmp_path: Path) -> None:
    tree = meta()
    del tree["task_id"], tree["repo"]
    old = {"id": "old", "repository": {"clone_url": "https://example.org/x.git", "branch": "dev", "commit": "a" * 40}}
    task = load_task(write_files(tmp_path / "t", {"tb_meta.json": json.dumps({**tree, **old})}))
    assert task.id == "old"
    assert task.repository is not None
    assert (task.repository.url, task.repository.branch, task.repository.commit) == ("https://example.org/x.git", "dev", "a" * 40)  # fmt: skip


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "Repair double."),
        ({"LM_INSTRUCTIONS.md": "\ufefffrom the task\n"}, "from the task\n"),
        ({"LM_INSTRUCTIONS.md": "from the task\n", "overlay_files/LM_INSTRUCTIONS.md": "shown\n"}, "shown\n"),
    ],
)
def test_the_instruction_is_the_one_that_agents_were_shown(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    assert load_task(prepared_task(tmp_path / "t", files)).first.instruction == expected


def test_overlays_go_beside_and_into_the_repository_and_secrets_stay_out(tmp_path: Path) -> None:
    files = {
        "overlay_files/tools/run.sh": "echo\n",
        "overlay_repo_files/config.ini": "x\n",
        "overlay_files/diff.patch": DIFF,
        "overlay_files/tb_meta.json": "{}",
        "overlay_files/notes.md": "changed calc.py\n",
        "overlay_files/repo_info.json": "{}",
        "overlay_files/.env": "OPENAI_API_KEY=sk-1\n",
        "overlay_files/box_bootstrap.sh": "codex\n",
    }
    task = load_task(prepared_task(tmp_path / "t", files))
    assert {file.target: file.executable for file in task.overlays} == {
        "/app/tools/run.sh": True,
        "/app/repo/config.ini": False,
    }
    assert len([note for note in task.notes if "not shown to agents" in note]) == 5
    assert task.first.solution is not None


def test_hidden_tests_may_lie_in_files_and_may_be_there_for_others(tmp_path: Path) -> None:
    scripts = [
        {"path": "tests/test_double.py", "rubric_id": "works", "content_file": "evaluation/test_double.py"},
        {"path": "tests/shared.py", "content": "X = 1\n"},
    ]
    evaluation = {**meta()["evaluation"], "test_scripts": scripts}
    task = load_task(prepared_task(tmp_path / "t", {"evaluation/test_double.py": TEST}, evaluation=evaluation))
    assert task.scripts == (Script("tests/test_double.py", TEST, "works"), Script("tests/shared.py", "X = 1\n", None))


def test_machine_and_times_are_said_as_in_harbor(tmp_path: Path) -> None:
    more = {
        "environment": {"memory_mb": 256, "cpus": 2, "env": {"A": "${HOME:-x}"}},
        "agent": {"timeout_sec": 5},
        "verifier": {"timeout_sec": 7, "user": 1000},
    }
    task = load_task(prepared_task(tmp_path / "t", **more))
    assert (task.environment.memory_mb, task.environment.cpus, task.environment.env) == (256, 2, {"A": "${HOME:-x}"})
    assert (task.first.agent.timeout, task.first.verifier.timeout, task.first.verifier.user) == (5, 7, "1000")


def broken(**changes: Any) -> dict[str, Any]:
    return meta(**changes)


RUBRIC = {"id": "works", "criterion": "", "weight": 1}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (broken(repo={"git_url": "nowhere"}), ["repo.git_url", "nowhere"]),
        (broken(lm={}), ["lm.instructions", "LM_INSTRUCTIONS.md"]),
        (broken(evaluation={"rubrics": [{"id": "a", "weight": "much"}]}), ["evaluation.rubrics.0.weight", ":1"]),
        (broken(evaluation={"rubrics": [RUBRIC, RUBRIC]}), ["two rubrics 'works'"]),
        (broken(evaluation={"rubrics": [{**RUBRIC, "weight": 0}]}), ["weights"]),
        (broken(evaluation={"test_scripts": [{"path": "a", "content": "", "rubric_id": "x"}]}), ["no rubric 'x'"]),
        (broken(evaluation={"test_scripts": [{"path": "../a", "content": ""}]}), ["test_scripts.0.path", "inside"]),
        (broken(evaluation={"test_scripts": [{"path": "/etc/x", "content": ""}]}), ["test_scripts.0.path"]),
        (broken(evaluation={"test_scripts": [{"path": ".git/config", "content": ""}]}), [".git"]),
        (broken(evaluation={"test_scripts": [{"path": "a"}]}), ["content_file"]),
        (broken(repo={"git_url": "repo", "subdir": "../x"}), ["repo.subdir"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_file_and_key(tmp_path: Path, tree: dict[str, Any], words: list[str]) -> None:
    folder = prepared_task(tmp_path / "t")
    (folder / "tb_meta.json").write_text(json.dumps(tree))
    with pytest.raises(SpecError) as raised:
        load_task(folder)
    assert "tb_meta.json" in str(raised.value)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_syntax_errors_name_the_line(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "t", {"tb_meta.json": '{"task_id": "x",\n "repo": }\n'})
    with pytest.raises(SpecError, match=r"tb_meta.json:2: not valid JSON"):
        load_task(folder)


def test_unknown_keys_are_noted_and_not_refused(tmp_path: Path) -> None:
    task = load_task(prepared_task(tmp_path / "t", difficulty="hard", repo={"git_url": "repo", "depth": 3}))
    assert [note.split(": ")[1] for note in task.notes] == ["difficulty", "repo.depth"]


def test_a_commit_that_moves_is_noted(tmp_path: Path) -> None:
    task = load_task(prepared_task(tmp_path / "t", repo={"git_url": "https://example.org/x.git"}))
    assert any("'HEAD' moves" in note for note in task.notes)


def test_legacy_rubrics_are_noted_and_no_rubric_is_made_up(tmp_path: Path) -> None:
    legacy = {"content_rubric": ["a"], "location_rubric": [], "clarity_rubric": []}
    task = load_task(prepared_task(tmp_path / "t", evaluation=legacy))
    assert (task.rubrics, task.scripts) == ((), ())
    assert any("content_rubric" in note for note in task.notes)


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    first, second = prepared_task(tmp_path / "a"), prepared_task(tmp_path / "b")
    assert load_task(first).digest == load_task(second).digest
    (second / "repo/calc.py").write_text("x = 1\n")
    assert load_task(first).digest != load_task(second).digest
