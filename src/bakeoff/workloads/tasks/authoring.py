"""Making tasks: from a repository and a range of commits (`new`), and from a created directory (`prepare`)."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks import prepared
from bakeoff.workloads.tasks.git import git, git_asks
from bakeoff.workloads.tasks.guard import TEST_FOLDERS
from bakeoff.workloads.tasks.model import Repository, Task
from bakeoff.workloads.tasks.repository import Commits, find_commits, is_repository, public_url
from bakeoff.workloads.tasks.start import bring, init

BRANCH = "main"
BUNDLE = "repo.bundle"
HIDDEN = "evaluation/tests"
DRAFT = "<!-- draft: written from commit messages; say what is wanted, not how it was done, and remove this line -->"
RUBRIC = {"id": "tests", "criterion": "The hidden tests pass.", "weight": 1.0}
LEFT_OUT = ("codex-files", ".env", "mitmproxy-ca-cert.pem", "trace", "Dockerfile")
"""What a created or once-run directory may hold and a task must not: keys, programs, somebody's session."""
_STAMP = re.compile(r"_\d{8}_\d{6}$")
_SCP = re.compile(r"^git@([^:/]+):(.+)$")


@dataclass(frozen=True, slots=True)
class Made:
    directory: Path
    tests: tuple[str, ...]
    """Scripts that pytest will run."""
    support: tuple[str, ...]
    """Hidden files that scripts need."""
    changed: tuple[str, ...]
    """Files of the reference."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """Two commits of one repository on this machine."""

    place: Path
    start: str
    end: str

    def names(self, *how: str) -> list[str]:
        listed = git("diff", "--name-only", "-z", "--no-renames", *how, self.start, self.end, at=self.place)
        return [name for name in listed.decode(errors="surrogateescape").split("\0") if name]

    def content(self, path: str) -> bytes:
        return git("cat-file", "blob", f"{self.end}:{path}", at=self.place)

    def diff(self, paths: list[str]) -> bytes:
        return git("diff", "--binary", "--no-renames", "--no-ext-diff", self.start, self.end, "--", *(f":(top,literal){path}" for path in paths), at=self.place)  # fmt: skip

    def messages(self) -> str:
        return git("log", "--reverse", "--format=%B", f"{self.start}..{self.end}", at=self.place).decode(
            errors="replace"
        )


def new_task(
    directory: Path,
    *,
    repo: str,
    start: str,
    end: str,
    title: str,
    tests: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
) -> Made:
    """Write a task: `start` is where agents begin, the changes up to `end` are the reference, its tests are hidden."""
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: something is there already\n  fix: give a directory that does not exist")
    commits = _range(repo, start, end)
    hidden = [path for path in commits.names() if _is_test(path, tests)]
    source = [path for path in commits.names() if path not in hidden]
    _must_match(tests, hidden)
    if not source and not hidden:
        raise UsageError(f"{start}..{end} changes nothing\n  fix: give another --from or --to")
    if not source:
        raise UsageError(f"{start}..{end} changes nothing but tests\n  fix: give a range that changes what is tested")
    with scratch("new") as here:
        scripts, notes = _write(here / "task", commits, source, hidden, repo, title, tags)
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(here / "task", directory, dirs_exist_ok=True)
    runnable = [script for script in scripts if "rubric_id" in script]
    return Made(
        directory,
        tuple(script["path"] for script in runnable),
        tuple(script["path"] for script in scripts if script not in runnable),
        tuple(source),
        tuple(notes),
    )


def _write(
    directory: Path, commits: _Range, source: list[str], hidden: list[str], repo: str, title: str, tags: tuple[str, ...]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The task's files; its hidden scripts, and what its author should know."""
    directory.mkdir()
    kept = commits.names("--diff-filter=d")
    scripts, notes = _hide(directory, commits, [path for path in hidden if path in kept])
    tested = any("rubric_id" in script for script in scripts)
    if not tested:
        notes.append("no test is in the range: write hidden tests and rubrics into tb_meta.json, evaluation")
    (directory / prepared.DIFF).write_bytes(commits.diff(source))
    text = f"{DRAFT}\n\n# {title}\n\n{commits.messages().strip()}\n"
    (directory / prepared.INSTRUCTIONS).write_text(text, encoding="utf-8")
    url = _store(directory, commits, repo)
    meta = {
        "task_id": _id(title),
        "metadata": {"title": title, "tags": list(tags)},
        "repo": {"git_url": url, "branch": BRANCH, "start_commit_sha": commits.start},
        "evaluation": {"rubrics": [RUBRIC] if tested else [], "test_scripts": scripts},
        "sensitivity": {"level": "unknown"},
    }
    info = {
        "remote_urls": [url] if url != BUNDLE else [],
        "branch": BRANCH,
        "start_commit": commits.start,
        "end_commit": commits.end,
        "touched_files": [*source, *hidden],
    }
    _write_json(directory / prepared.FILE, meta)
    _write_json(directory / "repo_info.json", info)
    return scripts, notes


def _id(title: str) -> str:
    """A title as a name: small letters, digits and dashes."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:50].strip("-") or "task"


def _range(repo: str, start: str, end: str) -> _Range:
    place = Path(repo).expanduser().absolute()
    local = place.exists()
    if not local and not prepared.is_remote(repo):
        raise UsageError(f"--repo: there is nothing at {place}\n  fix: correct the path, or give a URL")
    if place.is_dir() and not is_repository(place):
        top = git_asks("rev-parse", "--show-toplevel", at=place)
        if top is None:
            raise UsageError(
                f"--repo: {place} is no git repository\n  fix: give the directory that holds .git, or a URL"
            )
        place = Path(top)
    url = str(place) if local else repo
    found: list[Commits] = []
    for option, name in (("--from", start), ("--to", end)):
        try:
            commits = find_commits(Repository(url, name))
        except UsageError as error:
            raise UsageError(
                f"{option}: {public_url(url)} has no commit {name!r}\n  fix: give one that is in it"
            ) from error
        assert commits is not None
        found.append(commits)
    first, last = found
    if git_asks("merge-base", "--is-ancestor", first.commit, last.commit, at=last.directory) is None:
        raise UsageError(f"--from: {start} does not come before {end}\n  fix: give the older commit first")
    return _Range(last.directory, first.commit, last.commit)


def _is_test(path: str, given: tuple[str, ...]) -> bool:
    """By name, or by what was given: files, directories and globs."""
    pure = PurePosixPath(path)
    if given:
        return any(pure.match(one) or path == one.strip("/") or path.startswith(one.strip("/") + "/") for one in given)
    return bool(TEST_FOLDERS & set(pure.parts[:-1])) or pure.name == "conftest.py" or _is_script(path)


def _is_script(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _must_match(given: tuple[str, ...], hidden: list[str]) -> None:
    for one in given:
        if not any(_is_test(path, (one,)) for path in hidden):
            raise UsageError(
                f"--test: nothing that the range changes matches {one!r}\n  fix: correct it or leave it out"
            )


def _hide(directory: Path, commits: _Range, paths: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Hidden files as they are at the end of the range, and notes on those that cannot be hidden."""
    scripts: list[dict[str, Any]] = []
    notes = []
    for path in paths:
        data = commits.content(path)
        try:
            data.decode()
        except UnicodeDecodeError:
            notes.append(f"{path} is not text and was left out: let a test make it, or put it into overlay_repo_files/")
            continue
        target = directory / HIDDEN / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        run = _is_script(path) and PurePosixPath(path).name != "conftest.py"
        scripts.append(
            {"path": path, **({"rubric_id": RUBRIC["id"]} if run else {}), "content_file": f"{HIDDEN}/{path}"}
        )
    return scripts, notes


def _store(directory: Path, commits: _Range, repo: str) -> str:
    """A repository on this machine goes along as a bundle of the start commit's history; a URL is enough by itself."""
    if not Path(repo).expanduser().exists():
        return public_url(repo)
    with scratch("bundle") as here:
        init(here / "repo", BRANCH)
        bring(commits.place, here / "repo", commits.start)
        git("bundle", "create", "-q", str(directory.absolute() / BUNDLE), "HEAD", BRANCH, at=here / "repo")
    return BUNDLE


def _write_json(file: Path, tree: dict[str, Any]) -> None:
    file.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def prepare(created: Path, target: Path) -> Task:
    """A created directory as a prepared task in `target`. Everything that is missing is told; nothing is made up."""
    if target.exists():
        raise UsageError(f"{target}: something is there already\n  fix: give another --out, or remove it")
    meta, _ = prepared.read_meta(created)
    missing = _missing(created, meta)
    if missing:
        raise SpecError(missing, created / prepared.FILE)
    with scratch("prepare") as here:
        copy = here / "task"
        shutil.copytree(created, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        tree = json.loads((copy / prepared.FILE).read_text(encoding="utf-8"))
        _write_json(copy / prepared.FILE, _normal(tree, meta))
        prepared.read(copy)  # what is wrong is told before anything is written
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(copy, target, symlinks=True)
    return prepared.read(target)


def prepared_name(created: Path) -> str:
    """The directory's name without the stamp behind it."""
    return _STAMP.sub("", created.absolute().name)


def _missing(created: Path, meta: prepared.MetaTable) -> list[Problem]:
    found = []
    if not meta.evaluation.rubrics:
        fix = 'write what counts and how much: [{"id": ..., "criterion": ..., "weight": ...}]'
        found.append(Problem("evaluation.rubrics", "is missing", fix))
    if not any(script.rubric_id for script in meta.evaluation.test_scripts):
        fix = 'write hidden tests: [{"path": ..., "rubric_id": ..., "content": ...}]'
        found.append(Problem("evaluation.test_scripts", "has no test that speaks for a rubric", fix))
    if not meta.repo.git_url and not any((created / name).exists() for name in prepared.FIXTURES):
        found.append(
            Problem("repo.git_url", "is missing", "give a git URL or a path, or put the repository into repo/")
        )
    if meta.repo.git_url and not meta.repo.start_commit_sha and prepared.is_remote(meta.repo.git_url):
        found.append(Problem("repo.start_commit_sha", "is missing", "write the commit that agents start from"))
    if not prepared.instruction_of(created, meta).strip():
        found.append(Problem("lm.instructions", "is missing", f"write them there or into {prepared.INSTRUCTIONS}"))
    return found


def _normal(tree: dict[str, Any], meta: prepared.MetaTable) -> dict[str, Any]:
    """The same with today's keys: no aliases, no legacy rubrics, `git@host:path` as https."""
    repo = meta.repo.model_dump(exclude_unset=True, exclude={"end_commit_sha"})
    scp = _SCP.match(repo.get("git_url") or "")
    if scp:
        repo["git_url"] = f"https://{scp[1]}/{scp[2]}"
    evaluation = {
        name: value for name, value in tree.get("evaluation", {}).items() if name not in prepared.LEGACY_RUBRICS
    }
    rest = {name: value for name, value in tree.items() if name not in ("id", "repository")}
    return {**rest, "task_id": _STAMP.sub("", meta.task_id), "repo": repo, "evaluation": evaluation}


def is_draft(task: Task) -> bool:
    return DRAFT in task.instruction
