"""Overrides: a task with another prompt, other files, rubrics, variables or repository. The task itself stays as it is.

Both families of keys are read: those of the rollout script (`prompt`, `overlay_files`, `remove_repo_paths`, ...) and
those of the command line (`inject_files`, `environment_variables`, `openai`, `model_provider`).
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.dialects.tasks import Variables
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.tasks import prepared
from bakeoff.workloads.tasks.model import APP, REPOSITORY, File, ModelOverride, Repository, Task
from bakeoff.workloads.tasks.schema import checked, read_tree

FILE = "overrides.json"
ONLY_PREPARED = (
    "overlay_repo_files",
    "inject_files",
    "remove_repo_paths",
    "evaluation",
    "rubrics",
    "test_scripts",
    "repo",
)


class InjectedFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: prepared.Relative
    content: str


class OpenaiTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    base_url: str | None = None
    api_key: str | None = None
    model: str | None = None
    provider: str | None = None


class Overrides(BaseModel):
    """The whole file. Unlike a task's own files it was written for this tool, so a key that does nothing is an error."""

    model_config = ConfigDict(extra="forbid")
    prompt: str | None = None
    lm_instructions: str | None = None
    overlay_files: dict[prepared.Relative, str] = {}
    overlay_repo_files: dict[prepared.Relative, str] = {}
    inject_files: list[InjectedFile] = []
    remove_repo_paths: list[prepared.Relative] = []
    evaluation: prepared.EvaluationTable | None = None
    rubrics: list[prepared.RubricTable] | None = None
    test_scripts: list[prepared.ScriptTable] | None = None
    repo: dict[str, Any] | None = None
    environment_variables: Variables = {}
    openai: OpenaiTable | None = None
    model_provider: str | None = None


def read(file: Path) -> Overrides:
    try:
        tree = read_tree(file)
    except FileNotFoundError as error:
        raise SpecError([Problem("", "there is no such overrides file", "correct its path")], file) from error
    overrides, _ = checked(Overrides, tree, file)
    if overrides.prompt is not None and overrides.lm_instructions not in (None, overrides.prompt):
        raise SpecError([Problem("prompt", "lm_instructions says something else", "keep one of them")], file)
    return overrides


def apply(task: Task, overrides: Overrides, file: Path) -> Task:
    """Another task. `file` is where the overrides came from, for errors."""
    if task.format != "prepared":
        refused = [name for name in ONLY_PREPARED if name in overrides.model_fields_set]
        if refused:
            message = f"is for prepared tasks, and {task.directory} is a {task.format} task"
            raise SpecError([Problem(name, message, "take it out") for name in refused], file)
    prompt = overrides.prompt if overrides.prompt is not None else overrides.lm_instructions
    steps = task.steps if prompt is None else (replace(task.steps[0], instruction=prompt), *task.steps[1:])
    evaluation = _evaluation(task, overrides, file)
    changed = replace(
        task,
        digest=_digest(task, overrides),
        steps=steps,
        overlays=_merged(task.overlays, _files(overrides)),
        removals=(*task.removals, *overrides.remove_repo_paths),
        repository=_repository(task, overrides, file),
        rubrics=tuple(rubric.rubric() for rubric in evaluation.rubrics) if evaluation else task.rubrics,
        scripts=tuple(script.script(task.directory, file) for script in evaluation.test_scripts)
        if evaluation
        else task.scripts,
        model=_model(overrides) or task.model,
    )
    return changed.with_env(overrides.environment_variables)


def _digest(task: Task, overrides: Overrides) -> str:
    given = overrides.model_dump(mode="json", exclude_unset=True, exclude={"openai": {"api_key"}})
    return hashlib.sha256(f"{task.digest}\n{canonical_json(given)}".encode()).hexdigest()


def _files(overrides: Overrides) -> Iterable[File]:
    for path, content in overrides.overlay_files.items():
        yield File(posixpath.join(APP, path), content=content.encode())
    for path, content in overrides.overlay_repo_files.items():
        yield File(posixpath.join(REPOSITORY, path), content=content.encode())
    for injected in overrides.inject_files:
        yield File(posixpath.join(REPOSITORY, injected.path), content=injected.content.encode())


def _merged(before: Iterable[File], after: Iterable[File]) -> tuple[File, ...]:
    """One file for each target; the later one counts."""
    return tuple({file.target: file for file in (*before, *after)}.values())


def _evaluation(task: Task, overrides: Overrides, file: Path) -> prepared.EvaluationTable | None:
    """The evaluation that replaces the task's, or None. `rubrics` and `test_scripts` may stand at the top, or one alone."""
    given = overrides.evaluation
    rubrics = overrides.rubrics if overrides.rubrics is not None else given.rubrics if given else None
    scripts = overrides.test_scripts if overrides.test_scripts is not None else given.test_scripts if given else None
    if rubrics is None and scripts is None:
        return None
    tree = {
        "rubrics": [one.model_dump() for one in rubrics] if rubrics is not None else [_plain(one) for one in task.rubrics],
        "test_scripts": [one.model_dump() for one in scripts] if scripts is not None else [_plain(one) for one in task.scripts],
    }  # fmt: skip
    return checked(prepared.EvaluationTable, tree, file)[0]


def _plain(part: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(part, name), tuple) else value for name in part.__slots__}


def _repository(task: Task, overrides: Overrides, file: Path) -> Repository | None:
    """Keys that are given replace the task's; the rest of its repository stays."""
    if overrides.repo is None or task.repository is None:
        return task.repository
    here = task.repository
    stands = {"git_url": here.url, "branch": here.branch, "start_commit_sha": here.commit, "subdir": here.subdir, "sparse_checkout": list(here.sparse)}  # fmt: skip
    given, _ = checked(prepared.RepoTable, overrides.repo, file)
    if "git_url" in given.model_fields_set and "start_commit_sha" not in given.model_fields_set:
        stands["start_commit_sha"] = ""  # a commit of another repository means nothing here
    table = prepared.RepoTable.model_validate({**stands, **given.model_dump(exclude_unset=True)})
    return prepared.repository(table, task.directory, file)


def _model(overrides: Overrides) -> ModelOverride | None:
    if overrides.openai is None and overrides.model_provider is None:
        return None
    given = overrides.openai or OpenaiTable()
    return ModelOverride(given.base_url, given.api_key, given.model, overrides.model_provider or given.provider)
