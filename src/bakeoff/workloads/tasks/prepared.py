"""The prepared format: `tb_meta.json`, `LM_INSTRUCTIONS.md`, overlays, rubrics and hidden test scripts.

`read` makes a `Task` from such a directory; `loading.load_task` applies overrides on top. The pydantic tables are the
keys of `tb_meta.json`, and overrides validate their parts with the same tables.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.model import (
    APP,
    REPOSITORY,
    AgentSettings,
    Environment,
    File,
    Repository,
    Script,
    Solution,
    Step,
    Task,
    Verifier,
)
from bakeoff.workloads.tasks.schema import (
    AgentTable,
    EnvironmentTable,
    HoneypotsTable,
    Rubric,
    TaskFileTable,
    VerifierTable,
    read_tree,
    text_of,
    validated,
)

FILE = "tb_meta.json"
INSTRUCTIONS = "LM_INSTRUCTIONS.md"
DIFF = "diff.patch"
FIXTURES = ("repo", "repo.bundle")
"""A repository in the task's own directory, used if `repo.git_url` is not set."""
SCRIPT_SECONDS = 300.0
"""Time limit of one hidden script if the task sets none."""
KEPT_BACK = frozenset({FILE, DIFF, "notes.md", "repo_info.json", "overrides.json", ".env"})
"""Names in `overlay_files` that give away the solution or a key. Agents never see them."""
LAUNCHERS = frozenset({
    "box_bootstrap.sh", "codex-synth", "container_start_proxy.sh", "export_container_traces.sh",
    "container_trace_health_check.sh", "mitmproxy-ca-cert.pem",
})  # fmt: skip
"""Scripts of the runner that this format comes from (OneShot). Nothing here starts them."""
LEGACY_RUBRICS = ("content_rubric", "location_rubric", "clarity_rubric")

# As git decides: a scheme, `user@host:path`, or `host:path`; one letter before the colon is a Windows drive.
_REMOTE = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*://|[^/\\]+@[^/\\]+:|[^/\\:]{2,}:(?!\\))")


def relative(path: str) -> str:
    """`path` in its shortest form. ValueError unless it is below the repository's top and outside `.git`."""
    clean = posixpath.normpath(path)
    if not path or path.startswith("/") or clean == ".." or clean.startswith("../") or "\0" in path:
        raise ValueError(f"{path!r} must be a path inside the repository")
    if clean == ".git" or clean.startswith(".git/"):
        raise ValueError(f"{path!r} is in .git, which a task must not change")
    return clean


Relative = Annotated[str, AfterValidator(relative)]


class RepoTable(TaskFileTable):
    """`repo`: where the repository is and at which commit agents start. `repository` reads it."""

    git_url: str | None = None
    branch: str = "main"
    start_commit_sha: str = ""
    end_commit_sha: str = ""
    subdir: Annotated[str, AfterValidator(lambda path: relative(path) if path else "")] = ""
    sparse_checkout: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def older_names(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        older = {
            "clone_url": "git_url",
            "url": "git_url",
            "commit": "start_commit_sha",
            "start_commit": "start_commit_sha",
            "end_commit": "end_commit_sha",
        }
        # A key under its current name wins over the same under an older one.
        renamed = {older.get(name, name): value for name, value in tree.items() if value is not None}
        return {**renamed, **{name: value for name, value in tree.items() if name in cls.model_fields}}


class ScriptTable(TaskFileTable):
    """An entry of `evaluation.test_scripts`: a hidden file, written out or kept in the task's directory."""

    path: Relative
    content: str | None = None
    content_file: Relative | None = None
    rubric_id: str | None = None

    @model_validator(mode="after")
    def has_one_content(self) -> ScriptTable:
        if (self.content is None) == (self.content_file is None):
            raise ValueError("give content, or content_file with a path in the task's directory")
        return self


class EvaluationTable(HoneypotsTable):
    """`evaluation`: rubrics, and the scripts that score them. The other keys are older and only noted."""

    rubrics: tuple[Rubric, ...] = ()
    test_scripts: tuple[ScriptTable, ...] = ()
    script: str | None = None
    content_rubric: tuple[Any, ...] = ()
    location_rubric: tuple[Any, ...] = ()
    clarity_rubric: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def names_agree(self) -> EvaluationTable:
        """Every rubric once, every script for one that exists, and at least one weight above 0."""
        names = [rubric.id for rubric in self.rubrics]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"there are two rubrics {repeated[0]!r}")
        for number, script in enumerate(self.test_scripts):
            if script.rubric_id and script.rubric_id not in names:
                raise ValueError(f"test_scripts.{number}.rubric_id: there is no rubric {script.rubric_id!r}")
        if names and not any(rubric.weight for rubric in self.rubrics):
            raise ValueError("the weights of all rubrics are 0")
        return self

    def scripts(self, directory: Path, file: Path) -> tuple[Script, ...]:
        """The scripts with their content.

        `directory` is the task's, where every `content_file` starts; `file` is the one that a SpecError names.
        """
        scripts = []
        for script in self.test_scripts:
            content = script.content
            if content is None:
                place = directory / (script.content_file or "")
                try:
                    content = place.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError) as error:
                    key = f"evaluation.test_scripts.{script.path}.content_file"
                    problem = Problem(key, f"{place} cannot be read as text", "correct the path")
                    raise SpecError([problem], file) from error
            scripts.append(Script(script.path, content, script.rubric_id or None))
        return tuple(scripts)


class MetadataTable(TaskFileTable):
    title: str = ""
    tags: tuple[str, ...] = ()


class LmTable(TaskFileTable):
    instructions: str = ""


class SensitivityTable(TaskFileTable):
    level: str = "unknown"


class MetaTable(TaskFileTable):
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
    def older_names(cls, tree: Any) -> Any:
        older = {"id": "task_id", "repository": "repo"}
        if not isinstance(tree, dict):
            return tree
        return {
            older[name] if name in older and older[name] not in tree else name: value for name, value in tree.items()
        }


def read_meta(directory: Path) -> tuple[MetaTable, tuple[str, ...]]:
    """`tb_meta.json`, and a note for each unknown key."""
    file = directory / FILE
    return validated(MetaTable, read_tree(file), file)


def read(directory: Path) -> Task:
    """The task in this directory, without overrides. SpecError that names the key and the fix if it is not valid."""
    meta, notes = read_meta(directory)
    file = directory / FILE
    instruction = instruction_of(directory, meta)
    if not instruction.strip():
        raise SpecError([Problem("lm.instructions", "is needed", f"write it there or into {INSTRUCTIONS}")], file)
    diffs = (place for place in (directory / DIFF, directory / "overlay_files" / DIFF) if place.is_file())
    diff = next(diffs, None)
    # Runners before this one put the reference among the overlays, where agents could read it.
    overlays, kept_back = _overlays(directory)
    step = Step(
        name="main",
        instruction=instruction,
        agent=AgentSettings.of(meta.agent),
        verifier=Verifier.of(meta.verifier, task=Verifier(timeout=SCRIPT_SECONDS)),
        solution=Solution(diff=diff.read_bytes()) if diff is not None else None,
    )
    return Task(
        id=meta.task_id or directory.name,
        format="prepared",
        directory=directory,
        digest=directory_digest(directory),
        title=meta.metadata.title or meta.task_id or directory.name,
        environment=Environment.of(meta.environment),
        steps=(step,),
        repository=repository(meta.repo, directory, file),
        overlays=overlays,
        rubrics=meta.evaluation.rubrics,
        scripts=meta.evaluation.scripts(directory, file),
        honeypots=meta.evaluation.honeypots,
        tags=tuple(meta.metadata.tags),
        notes=(*notes, *kept_back, *_notes(meta, directory)),
    )


def repository(table: RepoTable, directory: Path, file: Path) -> Repository:
    """The repository of a table. Paths start at the task's directory; without `git_url` it is a fixture in there.

    `file` is the one that a SpecError names if there is nothing at the path.
    """
    url = table.git_url
    if not url:
        url = next((name for name in FIXTURES if (directory / name).exists()), None)
        if url is None:
            fix = "give a git URL or a path, or put the repository into repo/ or repo.bundle beside this file"
            raise SpecError([Problem("repo.git_url", "is needed", fix)], file)
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
    """Whether git would ask a server instead of this machine's disk."""
    return _REMOTE.match(url) is not None


def instruction_of(directory: Path, meta: MetaTable) -> str:
    """The instruction that agents get: the overlay's file, else the task's file, else the one in `tb_meta.json`."""
    for place in (directory / "overlay_files" / INSTRUCTIONS, directory / INSTRUCTIONS):
        if place.is_file():
            return text_of(place)
    return meta.lm.instructions


def _overlays(directory: Path) -> tuple[tuple[File, ...], list[str]]:
    """Files for the sandbox, and notes on those that agents must not see."""
    files, notes = [], []
    for folder, top in (("overlay_files", APP), ("overlay_repo_files", REPOSITORY)):
        place = directory / folder
        for file in sorted(place.rglob("*")) if place.is_dir() else ():
            # A link out of the task would copy any file of this machine into the sandbox.
            if file.is_symlink() and not file.resolve().is_relative_to(place.resolve()):
                raise SpecError([Problem(file.name, "is a link out of the task", "put the file itself there")], place)
            if not file.is_file():
                continue
            name = relative(file.relative_to(place).as_posix())
            if folder == "overlay_files" and name in KEPT_BACK:
                notes.append(f"overlay_files/{name} is not shown to agents")
            elif folder == "overlay_repo_files" or (name not in LAUNCHERS and name != INSTRUCTIONS):
                files.append(File(posixpath.join(top, name), source=file, executable=os.access(file, os.X_OK)))
    return tuple(files), notes


def _notes(meta: MetaTable, directory: Path) -> Iterator[str]:
    """Notes on a commit that may move, and on older keys that do not score."""
    url = meta.repo.git_url
    # A repository inside the task has a digest with it; elsewhere HEAD or a branch may be another commit tomorrow.
    inside = not url or (not is_remote(url) and (directory / url).resolve().is_relative_to(directory.resolve()))
    if not inside and not re.fullmatch(r"[0-9a-fA-F]{7,64}", meta.repo.start_commit_sha):
        commit = meta.repo.start_commit_sha or "HEAD"
        yield f"{FILE}: repo.start_commit_sha: {commit!r} moves; write the commit id, so that the task stays the same"
    if any(getattr(meta.evaluation, name) for name in LEGACY_RUBRICS):
        yield f"{FILE}: evaluation: {', '.join(LEGACY_RUBRICS)} are not scored; write rubrics and test_scripts"
    if meta.evaluation.script:
        yield f"{FILE}: evaluation.script is not run; write it as a test script"
