"""A directory becomes a `Task`, whichever format it is in, with its overrides applied.

    task = load_task(Path("examples/tasks/retry-budget"))

Overrides change the prompt, files, rubrics, variables or repository of a task. They make another `Task` with another
digest; the directory stays as it is. Two families of keys are read: those of OneShot's rollout script (`prompt`,
`overlay_files`, `remove_repo_paths`, ...) and those of its command line (`inject_files`, `environment_variables`,
`openai`, `model_provider`).
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.tasks import harbor, prepared
from bakeoff.workloads.tasks.model import APP, REPOSITORY, File, Repository, Task
from bakeoff.workloads.tasks.schema import ModelEndpoint, Rubric, Variables, read_tree, validated

OVERRIDES = "overrides.json"
FILES = (prepared.FILE, harbor.FILE, *harbor.TERMINAL_BENCH_FILES)
"""A directory with one of these files is a task."""
ONLY_PREPARED = (
    "overlay_repo_files",
    "inject_files",
    "remove_repo_paths",
    "evaluation",
    "rubrics",
    "test_scripts",
    "repo",
)
"""Keys of overrides that make sense for prepared tasks only."""


class InjectedFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: prepared.Relative
    content: str


class Overrides(BaseModel):
    """The whole overrides file. It is written for this tool, unlike a task, so an unknown key is an error."""

    model_config = ConfigDict(extra="forbid")
    prompt: str | None = None
    lm_instructions: str | None = None
    overlay_files: dict[prepared.Relative, str] = {}
    overlay_repo_files: dict[prepared.Relative, str] = {}
    inject_files: list[InjectedFile] = []
    remove_repo_paths: list[prepared.Relative] = []
    evaluation: prepared.EvaluationTable | None = None
    rubrics: list[Rubric] | None = None
    test_scripts: list[prepared.ScriptTable] | None = None
    repo: dict[str, Any] | None = None
    environment_variables: Variables = {}
    openai: ModelEndpoint | None = None
    model_provider: str | None = None


def load_task(directory: Path, *, overrides_file: Path | None = None, apply_overrides: bool = True) -> Task:
    """The task in `directory` with its overrides.

    They come from `overrides_file` if given, else from the directory's own `overrides.json` if there is one. Raises
    UsageError or SpecError that names the file, the key and the fix.
    """
    directory = directory.absolute()
    task = read_task(directory)
    file = overrides_file or directory / OVERRIDES
    if not apply_overrides or (overrides_file is None and not file.is_file()):
        return task
    return apply(task, read_overrides(file), file)


def read_task(directory: Path) -> Task:
    """The task in `directory` without overrides."""
    if (directory / prepared.FILE).is_file():
        return prepared.read(directory)
    if (directory / harbor.FILE).is_file():
        return harbor.read(directory)
    for name in harbor.TERMINAL_BENCH_FILES:
        if (directory / name).is_file():
            return harbor.read_terminal_bench(directory, directory / name)
    if not directory.is_dir():
        raise UsageError(f"{directory}: there is no such task directory\n  fix: correct the path")
    known = f"{prepared.FILE} (prepared), {harbor.FILE} (Harbor) or {harbor.TERMINAL_BENCH_FILES[0]} (terminal-bench)"
    raise UsageError(f"{directory}: this is not a task\n  fix: give a directory that holds {known}")


def find_tasks(place: Path) -> list[Path]:
    """`place` itself if it is a task (or not a directory), else the tasks in it, sorted by name."""
    if any((place / name).is_file() for name in FILES) or not place.is_dir():
        return [place]
    return sorted(folder for folder in place.iterdir() if any((folder / name).is_file() for name in FILES))


def read_overrides(file: Path) -> Overrides:
    """The content of an overrides file. SpecError that names the key and the fix if it is not valid."""
    try:
        tree = read_tree(file)
    except FileNotFoundError as error:
        raise SpecError([Problem("", "there is no such overrides file", "correct its path")], file) from error
    overrides, _ = validated(Overrides, tree, file)
    # The same key of the two families. Both are fine if they agree.
    if overrides.prompt is not None and overrides.lm_instructions not in (None, overrides.prompt):
        raise SpecError([Problem("prompt", "lm_instructions says something else", "keep one of them")], file)
    return overrides


def apply(task: Task, overrides: Overrides, file: Path) -> Task:
    """`task` changed by `overrides`. `file` is where they came from, for errors."""
    if task.format != "prepared":
        wrong = [name for name in ONLY_PREPARED if name in overrides.model_fields_set]
        if wrong:
            message = f"is for prepared tasks, and {task.directory} is a {task.format} task"
            raise SpecError([Problem(name, message, "remove it") for name in wrong], file)
    # The key is left out of the digest: another key for the same endpoint does not make another task.
    content = overrides.model_dump(mode="json", exclude_unset=True, exclude={"openai": {"api_key"}})
    digest = hashlib.sha256(f"{task.digest}\n{canonical_json(content)}".encode()).hexdigest()
    prompt = overrides.prompt if overrides.prompt is not None else overrides.lm_instructions
    # A prompt replaces the first instruction; later steps of a Harbor task keep theirs.
    steps = task.steps if prompt is None else (replace(task.steps[0], instruction=prompt), *task.steps[1:])
    # One file for each target: later ones replace earlier ones and the task's own.
    texts = {posixpath.join(APP, path): text for path, text in overrides.overlay_files.items()}
    texts |= {posixpath.join(REPOSITORY, path): text for path, text in overrides.overlay_repo_files.items()}
    texts |= {posixpath.join(REPOSITORY, entry.path): entry.content for entry in overrides.inject_files}
    overlays = {file.target: file for file in task.overlays}
    overlays |= {target: File(target, content=text.encode()) for target, text in texts.items()}
    rubrics, scripts = task.rubrics, task.scripts
    if evaluation := _evaluation(task, overrides, file):
        rubrics, scripts = evaluation.rubrics, evaluation.scripts(task.directory, file)
    model = overrides.openai or task.model
    if overrides.model_provider:
        model = (model or ModelEndpoint()).model_copy(update={"provider": overrides.model_provider})
    changed = replace(
        task,
        digest=digest,
        steps=steps,
        overlays=tuple(overlays.values()),
        removals=(*task.removals, *overrides.remove_repo_paths),
        repository=_repository(task, overrides, file),
        rubrics=rubrics,
        scripts=scripts,
        model=model,
    )
    return changed.with_env(overrides.environment_variables)


def _evaluation(task: Task, overrides: Overrides, file: Path) -> prepared.EvaluationTable | None:
    """The evaluation that replaces the task's, or None.

    `rubrics` and `test_scripts` may be at the top level, and one may be given without the other: the task's own are
    used for the rest, so the whole is validated again.
    """
    given = overrides.evaluation
    rubrics = overrides.rubrics if overrides.rubrics is not None else given.rubrics if given else None
    scripts = overrides.test_scripts if overrides.test_scripts is not None else given.test_scripts if given else None
    if rubrics is None and scripts is None:
        return None
    tree = {
        "rubrics": [rubric.model_dump() for rubric in (task.rubrics if rubrics is None else rubrics)],
        "test_scripts": [asdict(script) for script in task.scripts]
        if scripts is None
        else [script.model_dump() for script in scripts],
    }
    return validated(prepared.EvaluationTable, tree, file)[0]


def _repository(task: Task, overrides: Overrides, file: Path) -> Repository | None:
    """The task's repository with the keys of `overrides.repo` replaced."""
    if overrides.repo is None or task.repository is None:
        return task.repository
    before = task.repository
    tree: dict[str, Any] = {
        "git_url": before.url,
        "branch": before.branch,
        "start_commit_sha": before.commit,
        "subdir": before.subdir,
        "sparse_checkout": before.sparse,
    }
    given, _ = validated(prepared.RepoTable, overrides.repo, file)
    if "git_url" in given.model_fields_set and "start_commit_sha" not in given.model_fields_set:
        tree["start_commit_sha"] = ""  # a commit of the task's repository means nothing in another one
    table = prepared.RepoTable.model_validate({**tree, **given.model_dump(exclude_unset=True)})
    return prepared.repository(table, task.directory, file)
