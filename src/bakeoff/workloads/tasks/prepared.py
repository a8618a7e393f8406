"""Reads prepared task directories: `tb_meta.json`, `LM_INSTRUCTIONS.md`, overlays, rubrics and hidden test scripts."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.model import (
    APP,
    REPOSITORY,
    File,
    Repository,
    Rubric,
    Script,
    Solution,
    Step,
    Task,
    Verifier,
)
from bakeoff.workloads.tasks.schema import (
    AgentTable,
    EnvironmentTable,
    Open,
    VerifierTable,
    checked,
    read_tree,
    text_of,
)

FILE = "tb_meta.json"
INSTRUCTIONS = "LM_INSTRUCTIONS.md"
DIFF = "diff.patch"
FIXTURES = ("repo", "repo.bundle")
"""A repository that lies in the task's own directory, where `repo.git_url` is left out."""

SCRIPT_SECONDS = 300.0
"""How long one hidden script may take where the task does not say."""
KEPT_BACK = frozenset({FILE, DIFF, "notes.md", "repo_info.json", "overrides.json", ".env"})
"""Names in `overlay_files` that give the solution or a key away; no agent sees them."""
LAUNCHERS = frozenset({
    "box_bootstrap.sh", "codex-synth", "container_start_proxy.sh", "export_container_traces.sh",
    "container_trace_health_check.sh", "mitmproxy-ca-cert.pem",
})  # fmt: skip
"""Scripts of the former runner, which nothing here starts."""
LEGACY_RUBRICS = ("content_rubric", "location_rubric", "clarity_rubric")
_REMOTE = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*://|[^/\\]+@[^/\\]+:|[^/\\:]{2,}:(?!\\))")


def relative(path: str) -> str:
    """A path below the repository's top, in its shortest form."""
    clean = posixpath.normpath(path)
    if not path or path.startswith("/") or clean == ".." or clean.startswith("../") or "\0" in path:
        raise ValueError(f"{path!r} has to be a path inside the repository")
    if clean == ".git" or clean.startswith(".git/"):
        raise ValueError(f"{path!r} is in .git, which is not the task's to change")
    return clean


Relative = Annotated[str, AfterValidator(relative)]


class RepoTable(Open):
    git_url: str | None = None
    branch: str = "main"
    start_commit_sha: str = ""
    end_commit_sha: str = ""
    subdir: Annotated[str, AfterValidator(lambda path: relative(path) if path else "")] = ""
    sparse_checkout: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def older_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        older = {"clone_url": "git_url", "url": "git_url", "commit": "start_commit_sha", "start_commit": "start_commit_sha", "end_commit": "end_commit_sha"}  # fmt: skip
        found = {older.get(name, name): value for name, value in given.items() if value is not None}
        return {**found, **{name: value for name, value in given.items() if name in cls.model_fields}}


class RubricTable(Open):
    id: Annotated[str, Field(min_length=1)]
    criterion: str = ""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    evaluation_criteria: tuple[str, ...] = ()

    def rubric(self) -> Rubric:
        return Rubric(self.id, self.criterion, self.weight, tuple(self.evaluation_criteria))


class ScriptTable(Open):
    path: Relative
    content: str | None = None
    content_file: Relative | None = None
    rubric_id: str | None = None

    @model_validator(mode="after")
    def has_one_content(self) -> ScriptTable:
        if (self.content is None) == (self.content_file is None):
            raise ValueError("give content, or content_file with a path in the task's directory")
        return self

    def script(self, directory: Path, file: Path) -> Script:
        """`directory` is the task's, where `content_file` starts; `file` is what to blame."""
        content = self.content
        if content is None:
            place = directory / (self.content_file or "")
            try:
                content = place.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                key = f"evaluation.test_scripts.{self.path}.content_file"
                raise SpecError([Problem(key, f"{place} cannot be read as text", "correct the path")], file) from error
        return Script(self.path, content, self.rubric_id or None)


class EvaluationTable(Open):
    rubrics: tuple[RubricTable, ...] = ()
    test_scripts: tuple[ScriptTable, ...] = ()
    script: str | None = None
    content_rubric: tuple[Any, ...] = ()
    location_rubric: tuple[Any, ...] = ()
    clarity_rubric: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def names_agree(self) -> EvaluationTable:
        names = [rubric.id for rubric in self.rubrics]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the rubric {twice[0]!r} stands twice")
        for number, script in enumerate(self.test_scripts):
            if script.rubric_id and script.rubric_id not in names:
                raise ValueError(f"test_scripts.{number}.rubric_id: there is no rubric {script.rubric_id!r}")
        if names and not any(rubric.weight for rubric in self.rubrics):
            raise ValueError("the weights of all rubrics are 0")
        return self


class MetadataTable(Open):
    title: str = ""
    tags: tuple[str, ...] = ()


class LmTable(Open):
    instructions: str = ""


class SensitivityTable(Open):
    level: str = "unknown"


class MetaTable(Open):
    """The whole of `tb_meta.json`."""

    task_id: str = ""
    metadata: MetadataTable = MetadataTable()
    repo: RepoTable = RepoTable()
    lm: LmTable = LmTable()
    evaluation: EvaluationTable = EvaluationTable()
    sensitivity: SensitivityTable = SensitivityTable()
    environment: EnvironmentTable = EnvironmentTable()
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()

    @model_validator(mode="before")
    @classmethod
    def older_names(cls, given: Any) -> Any:
        older = {"id": "task_id", "repository": "repo"}
        if not isinstance(given, dict):
            return given
        return {older[name] if name in older and older[name] not in given else name: value for name, value in given.items()}  # fmt: skip


def read_meta(directory: Path) -> tuple[MetaTable, tuple[str, ...]]:
    file = directory / FILE
    return checked(MetaTable, read_tree(file), file)


def read(directory: Path) -> Task:
    """The task as it stands in its directory; `loading.load_task` applies overrides on top."""
    meta, notes = read_meta(directory)
    instruction = instruction_of(directory, meta)
    if not instruction.strip():
        raise SpecError([Problem("lm.instructions", "is needed", f"write it there or into {INSTRUCTIONS}")], directory / FILE)  # fmt: skip
    overlays, kept = _overlays(directory)
    step = Step(
        name="main",
        instruction=instruction,
        agent=meta.agent.settings(),
        verifier=meta.verifier.verifier((), Verifier(timeout=SCRIPT_SECONDS)),
        solution=_solution(directory),
    )
    return Task(
        id=meta.task_id or directory.name,
        format="prepared",
        directory=directory,
        digest=directory_digest(directory),
        title=meta.metadata.title or meta.task_id or directory.name,
        environment=meta.environment.environment(),
        steps=(step,),
        repository=repository(meta.repo, directory, directory / FILE),
        overlays=overlays,
        rubrics=tuple(rubric.rubric() for rubric in meta.evaluation.rubrics),
        scripts=tuple(script.script(directory, directory / FILE) for script in meta.evaluation.test_scripts),
        tags=tuple(meta.metadata.tags),
        sensitivity=meta.sensitivity.level,
        notes=(*notes, *kept, *_notes(meta, directory)),
    )


def repository(table: RepoTable, directory: Path, file: Path) -> Repository:
    """Paths start at the task's directory; without `git_url` it is a fixture in there."""
    url = table.git_url
    if not url:
        fixture = next((name for name in FIXTURES if (directory / name).exists()), None)
        if fixture is None:
            fix = "give a git URL or a path, or put the repository into repo/ or repo.bundle beside this file"
            raise SpecError([Problem("repo.git_url", "is needed", fix)], file)
        url = fixture
    if not is_remote(url):
        place = Path(os.path.normpath(directory.absolute() / Path(url).expanduser()))
        if not place.exists():
            raise SpecError([Problem("repo.git_url", f"there is nothing at {place}", "correct the path")], file)
        url = str(place)
    return Repository(
        url=url,
        commit=table.start_commit_sha or "HEAD",
        branch=table.branch or "main",
        subdir=table.subdir,
        sparse=tuple(table.sparse_checkout),
    )


def is_remote(url: str) -> bool:
    """Whether git would ask a server, and not this machine's disk."""
    return _REMOTE.match(url) is not None


def instruction_of(directory: Path, meta: MetaTable) -> str:
    """What agents were shown: the overlay's file, then the task's, then the one in the meta file."""
    for place in (directory / "overlay_files" / INSTRUCTIONS, directory / INSTRUCTIONS):
        if place.is_file():
            return text_of(place)
    return meta.lm.instructions


def _solution(directory: Path) -> Solution | None:
    for place in (directory / DIFF, directory / "overlay_files" / DIFF):
        if place.is_file():
            return Solution(diff=place.read_bytes())
    return None


def _overlays(directory: Path) -> tuple[tuple[File, ...], list[str]]:
    """Files for the box, and notes on those that agents must not see."""
    files, kept = [], []
    for name, file in _below(directory / "overlay_files"):
        if name in KEPT_BACK:
            kept.append(f"overlay_files/{name} is kept from agents")
        elif name not in LAUNCHERS and name != INSTRUCTIONS:
            files.append(overlay(APP, name, file))
    files += [overlay(REPOSITORY, name, file) for name, file in _below(directory / "overlay_repo_files")]
    return tuple(files), kept


def overlay(top: str, name: str, file: Path) -> File:
    return File(posixpath.join(top, name), source=file, executable=os.access(file, os.X_OK))


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
            raise SpecError([Problem(file.name, "is a link out of the task", "put the file itself there")], folder)
        if file.is_file():
            yield relative(file.relative_to(folder).as_posix()), file


def _notes(meta: MetaTable, directory: Path) -> Iterator[str]:
    url = meta.repo.git_url
    inside = not url or (not is_remote(url) and (directory / url).resolve().is_relative_to(directory.resolve()))
    if not inside and not re.fullmatch(r"[0-9a-fA-F]{7,64}", meta.repo.start_commit_sha):
        named = meta.repo.start_commit_sha or "HEAD"
        yield f"{FILE}: repo.start_commit_sha: {named!r} moves; write the commit, so that the task stays the same"
    if any(getattr(meta.evaluation, name) for name in LEGACY_RUBRICS):
        yield f"{FILE}: evaluation: {', '.join(LEGACY_RUBRICS)} are not scored; write rubrics and test_scripts"
    if meta.evaluation.script:
        yield f"{FILE}: evaluation.script is not run; write it as a test script"
