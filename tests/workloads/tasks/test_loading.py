"""Any directory becomes a task; overrides change a copy, by both families of keys, and never a byte of the task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.loading import find_tasks, load_task
from bakeoff.workloads.tasks.model import Task
from workloads.tasks.tasked import harbor_task, prepared_task


def overridden(tmp_path: Path, tree: dict[str, Any]) -> Task:
    folder = tmp_path / "t"
    if not folder.exists():
        prepared_task(folder, {"overlay_repo_files/a.txt": "task\n"})
    file = tmp_path / "given.json"
    file.write_text(json.dumps(tree))
    before = directory_digest(folder)
    task = load_task(folder, overrides_file=file)
    assert directory_digest(folder) == before
    return task


@pytest.mark.parametrize("key", ["prompt", "lm_instructions"])
def test_the_instruction_is_replaced(tmp_path: Path, key: str) -> None:
    assert overridden(tmp_path, {key: "other"}).first.instruction == "other"


def test_files_are_added_and_replaced(tmp_path: Path) -> None:
    tree = {
        "overlay_files": {"x/tool.py": "1"},
        "overlay_repo_files": {"a.txt": "mine"},
        "inject_files": [{"path": "b/c.txt", "content": "2"}],
    }
    found = {file.target: file.read() for file in overridden(tmp_path, tree).overlays}
    assert found == {"/app/repo/a.txt": b"mine", "/app/x/tool.py": b"1", "/app/repo/b/c.txt": b"2"}


@pytest.mark.parametrize("nested", [True, False])
def test_rubrics_and_tests_are_replaced_from_either_place(tmp_path: Path, nested: bool) -> None:
    evaluation = {
        "rubrics": [{"id": "r", "criterion": "c", "weight": 2}],
        "test_scripts": [{"path": "t.py", "rubric_id": "r", "content": "x"}],
    }
    task = overridden(tmp_path, {"evaluation": evaluation} if nested else evaluation)
    assert [rubric.id for rubric in task.rubrics] == ["r"]
    assert [script.path for script in task.scripts] == ["t.py"]


def test_tests_alone_speak_for_the_rubrics_of_the_task(tmp_path: Path) -> None:
    task = overridden(tmp_path, {"test_scripts": [{"path": "t.py", "rubric_id": "works", "content": "x"}]})
    assert [rubric.id for rubric in task.rubrics] == ["works"]
    assert [script.path for script in task.scripts] == ["t.py"]


def test_the_repository_is_replaced_key_by_key(tmp_path: Path) -> None:
    here = overridden(tmp_path, {"repo": {"subdir": "src"}}).repository
    assert here is not None and (Path(here.url).name, here.subdir) == ("repo", "src")
    other = overridden(
        tmp_path, {"repo": {"git_url": "https://example.org/y.git", "start_commit_sha": "b" * 40}}
    ).repository
    assert other is not None and (other.url, other.commit) == ("https://example.org/y.git", "b" * 40)


def test_variables_removals_and_the_model_are_kept_for_the_run(tmp_path: Path) -> None:
    tree = {
        "environment_variables": {"TIMEOUT_SEC": "1800"},
        "remove_repo_paths": ["docs/*", "old"],
        "openai": {"base_url": "http://x/v1", "api_key": "sk-secret", "model": "m"},
        "model_provider": "p",
    }
    task = overridden(tmp_path, tree)
    assert task.environment.env == {"TIMEOUT_SEC": "1800"}
    assert task.removals == ("docs/*", "old")
    assert task.model is not None and (task.model.base_url, task.model.provider) == ("http://x/v1", "p")
    assert "sk-secret" not in repr(task)


def test_the_tasks_own_file_counts_unless_another_is_given_or_none_is_wanted(tmp_path: Path) -> None:
    folder = prepared_task(tmp_path / "t", {"overrides.json": json.dumps({"prompt": "own"})})
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"prompt": "given"}))
    found = [
        load_task(folder).first.instruction,
        load_task(folder, overrides_file=other).first.instruction,
        load_task(folder, apply_overrides=False).first.instruction,
    ]
    assert found == ["own", "given", "Repair double."]


def test_a_task_with_overrides_has_another_digest_and_the_key_is_not_in_it(tmp_path: Path) -> None:
    plain = load_task(prepared_task(tmp_path / "t"))
    first = overridden(tmp_path, {"prompt": "x", "openai": {"api_key": "a"}})
    second = overridden(tmp_path, {"prompt": "x", "openai": {"api_key": "b"}})
    assert plain.digest != first.digest == second.digest


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"promt": "x"}, ["promt", "did you mean 'prompt'"]),
        ({"remove_repo_paths": ["../x"]}, ["remove_repo_paths.0", "inside"]),
        ({"overlay_repo_files": {"/etc/passwd": ""}}, ["overlay_repo_files"]),
        ({"prompt": "a", "lm_instructions": "b"}, ["keep one"]),
        ({"test_scripts": [{"path": "t.py", "rubric_id": "other", "content": ""}]}, ["no rubric 'other'"]),
        ({"repo": {"git_url": "nowhere"}}, ["repo.git_url"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, tree: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SpecError) as raised:
        overridden(tmp_path, tree)
    assert "given.json" in str(raised.value)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none.json: there is no such overrides file"):
        load_task(prepared_task(tmp_path / "t"), overrides_file=tmp_path / "none.json")


def test_a_harbor_task_takes_a_prompt_and_variables_but_no_rubrics(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "t")
    file = tmp_path / "o.json"
    file.write_text(json.dumps({"prompt": "other", "environment_variables": {"A": "1"}}))
    task = load_task(folder, overrides_file=file)
    assert (task.first.instruction, dict(task.environment.env)) == ("other", {"A": "1"})
    file.write_text(json.dumps({"rubrics": [], "remove_repo_paths": []}))
    with pytest.raises(SpecError, match="is for prepared tasks"):
        load_task(folder, overrides_file=file)


def test_a_directory_without_a_task_is_refused_with_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tb_meta.json.*task.toml.*task.yaml"):
        load_task(tmp_path)
    with pytest.raises(UsageError, match="no such task directory"):
        load_task(tmp_path / "nowhere")


def test_a_directory_of_tasks_holds_each_of_them(tmp_path: Path) -> None:
    a, b = prepared_task(tmp_path / "a"), prepared_task(tmp_path / "b")
    (tmp_path / "c").mkdir()
    assert find_tasks(tmp_path) == [a, b]
    assert find_tasks(a) == [a]
