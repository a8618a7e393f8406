"""Makes tasks: from a repository and a range of commits (`new_task`), and from a created directory (`prepare`).

Nothing is made up: the instruction is a draft from commit messages that says so, tests are those of the range, and
what is missing is reported.
"""

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
from bakeoff.workloads.tasks.guard import TEST_FOLDERS
from bakeoff.workloads.tasks.isolation import imported, modules_in
from bakeoff.workloads.tasks.model import Repository, Task
from bakeoff.workloads.tasks.repository import Commits, find_commits, git, git_query, is_repository, public_url
from bakeoff.workloads.tasks.start import bring, init

BRANCH = "main"
BUNDLE = "repo.bundle"
HIDDEN = "evaluation/tests"
DRAFT = "<!-- draft: written from commit messages; say what is wanted, not how it was done, and remove this line -->"
RUBRIC = {"id": "tests", "criterion": "The hidden tests pass.", "weight": 1.0}
LEFT_OUT = ("codex-files", ".env", "mitmproxy-ca-cert.pem", "trace", "Dockerfile")
"""Names in a created directory that a task must not contain: keys, programs, a recorded session."""
_STAMP = re.compile(r"_\d{8}_\d{6}$")
_SCP = re.compile(r"^git@([^:/]+):(.+)$")


@dataclass(frozen=True, slots=True)
class Made:
    """What `new_task` wrote."""

    directory: Path
    tests: tuple[str, ...]
    """Scripts that pytest will run."""
    support: tuple[str, ...]
    """Hidden files that scripts need."""
    changed: tuple[str, ...]
    """Files of the reference."""
    modules: tuple[str, ...]
    """Modules of the repository that the tests import, through a launcher."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """Two commits of one repository on this machine."""

    place: Path
    start: str
    end: str

    def names(self, *how: str) -> list[str]:
        """The files that differ."""
        listed = git("diff", "--name-only", "-z", "--no-renames", *how, self.start, self.end, at=self.place)
        return [name for name in listed.decode(errors="surrogateescape").split("\0") if name]


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
    """Write a task into `directory`, which must not exist or be empty.

    Agents begin at the commit `start` of `repo` (a path or a URL). The changes up to `end` are the reference, and its
    tests are hidden: those that `tests` matches (files, directories, globs), else those named like tests.
    Raises UsageError that names the option of `bakeoff task new` that is wrong; nothing is written then.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: exists and is not empty\n  fix: give a directory that does not exist")
    commits = _range(repo, start, end)
    # Tests are hidden, everything else is the reference: a diff that contained its tests would show them to agents.
    hidden = [path for path in commits.names() if _is_test(path, tests)]
    source = [path for path in commits.names() if path not in hidden]
    for pattern in tests:
        if not any(_is_test(path, (pattern,)) for path in hidden):
            raise UsageError(
                f"--test: nothing that the range changes matches {pattern!r}\n  fix: correct it or leave it out"
            )
    if not source and not hidden:
        raise UsageError(f"{start}..{end} changes nothing\n  fix: give another --from or --to")
    if not source:
        raise UsageError(f"{start}..{end} changes nothing but tests\n  fix: give a range that changes what is tested")
    # Written aside first, so that an error leaves nothing behind.
    with scratch("new") as here:
        scripts, modules, notes = _write(here / "task", commits, source, hidden, repo, title, tags)
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(here / "task", directory, dirs_exist_ok=True)
    return Made(
        directory,
        tuple(script["path"] for script in scripts if "rubric_id" in script),
        tuple(script["path"] for script in scripts if "rubric_id" not in script),
        tuple(source),
        modules,
        tuple(notes),
    )


def _range(repo: str, start: str, end: str) -> _Range:
    """The two commits, resolved in a repository on this machine: the given one, or the mirror of a URL."""
    place = Path(repo).expanduser().absolute()
    local = place.exists()
    if not local and not prepared.is_remote(repo):
        raise UsageError(f"--repo: there is nothing at {place}\n  fix: correct the path, or give a URL")
    if place.is_dir() and not is_repository(place):
        top = git_query("rev-parse", "--show-toplevel", at=place)
        if top is None:
            raise UsageError(
                f"--repo: {place} is not a git repository\n  fix: give the directory that holds .git, or a URL"
            )
        place = Path(top)
    url = str(place) if local else repo
    resolved: list[Commits] = []
    for option, name in (("--from", start), ("--to", end)):
        try:
            commits = find_commits(Repository(url, name))
        except UsageError as error:
            raise UsageError(
                f"{option}: {public_url(url)} has no commit {name!r}\n  fix: give one that is in it"
            ) from error
        assert commits is not None
        resolved.append(commits)
    first, last = resolved
    # `merge-base --is-ancestor` answers by its exit code (git-merge-base(1)).
    if git_query("merge-base", "--is-ancestor", first.commit, last.commit, at=last.directory) is None:
        raise UsageError(f"--from: {start} does not come before {end}\n  fix: give the older commit first")
    return _Range(last.directory, first.commit, last.commit)


def _is_test(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file is a hidden test: it matches a pattern, or is named like a test if there are no patterns."""
    pure = PurePosixPath(path)
    if patterns:
        plain = (pattern.strip("/") for pattern in patterns)
        return any(pure.match(pattern) for pattern in patterns) or any(
            path == name or path.startswith(f"{name}/") for name in plain
        )
    return bool(TEST_FOLDERS & set(pure.parts[:-1])) or pure.name == "conftest.py" or _is_script(path)


def _is_script(path: str) -> bool:
    """Whether pytest would collect the file by its name."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _write(
    directory: Path, commits: _Range, source: list[str], hidden: list[str], repo: str, title: str, tags: tuple[str, ...]
) -> tuple[list[dict[str, Any]], tuple[str, ...], list[str]]:
    """Write the task's files. Returns its hidden scripts as `tb_meta.json` lists them, the modules of the repository that
    they import, and notes for its author."""
    directory.mkdir()
    remaining = commits.names("--diff-filter=d")  # without deleted files
    scripts, notes = _hide(directory, commits, [path for path in hidden if path in remaining])
    tested = any("rubric_id" in script for script in scripts)
    if not tested:
        notes.append("no test is in the range: write hidden tests and rubrics into tb_meta.json, evaluation")
    listed = git("ls-tree", "-r", "-z", "--name-only", commits.end, at=commits.place).decode(errors="surrogateescape")
    texts = [(directory / script["content_file"]).read_text(encoding="utf-8") for script in scripts]
    modules = imported(texts, modules_in(path for path in listed.split("\0") if path not in hidden))
    if tested and not modules:
        notes.append(
            "the tests import nothing of the repository, so scores will be self-reported: have them call the work through "
            "a launcher (docs/tasks.md)"
        )
    # `literal` keeps names with * or [ from being read as patterns (gitglossary(7), pathspec).
    paths = [f":(top,literal){path}" for path in source]
    how = ("--binary", "--no-renames", "--no-ext-diff")
    diff = git("diff", *how, commits.start, commits.end, "--", *paths, at=commits.place)
    (directory / prepared.DIFF).write_bytes(diff)
    log = git("log", "--reverse", "--format=%B", f"{commits.start}..{commits.end}", at=commits.place)
    text = f"{DRAFT}\n\n# {title}\n\n{log.decode(errors='replace').strip()}\n"
    (directory / prepared.INSTRUCTIONS).write_text(text, encoding="utf-8")
    if Path(repo).expanduser().exists():
        # A repository on this machine goes along as a bundle of the start commit's history; a URL is enough by itself.
        url = BUNDLE
        with scratch("bundle") as here:
            init(here / "repo", BRANCH)
            bring(commits.place, here / "repo", commits.start)
            git("bundle", "create", "-q", str(directory.absolute() / BUNDLE), "HEAD", BRANCH, at=here / "repo")
    else:
        url = public_url(repo)
    # The id names directories and sandboxes, so it is plain ASCII.
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    meta = {
        "task_id": re.sub(r"[^a-z0-9]+", "-", plain)[:50].strip("-") or "task",
        "metadata": {"title": title, "tags": list(tags)},
        "repo": {"git_url": url, "branch": BRANCH, "start_commit_sha": commits.start},
        "evaluation": {"rubrics": [RUBRIC] if tested else [], "test_scripts": scripts},
        **({"verifier": {"isolation": "launcher", "modules": list(modules)}} if tested and modules else {}),
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
    return scripts, modules if tested else (), notes


def _hide(directory: Path, commits: _Range, paths: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Write hidden files as they are at the end of the range; notes on those that cannot be hidden."""
    scripts: list[dict[str, Any]] = []
    notes = []
    for path in paths:
        data = git("cat-file", "blob", f"{commits.end}:{path}", at=commits.place)
        try:  # tb_meta.json holds text, so a binary file cannot be a hidden file
            data.decode()
        except UnicodeDecodeError:
            notes.append(f"{path} is not text and was left out: let a test make it, or put it into overlay_repo_files/")
            continue
        target = directory / HIDDEN / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        rubric = {"rubric_id": RUBRIC["id"]} if _is_script(path) else {}
        scripts.append({"path": path, **rubric, "content_file": f"{HIDDEN}/{path}"})
    return scripts, notes


def _write_json(file: Path, tree: dict[str, Any]) -> None:
    file.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def prepare(created: Path, target: Path) -> Task:
    """Copy a created directory to `target` as a prepared task, with today's keys.

    Raises SpecError with everything that is missing; nothing is written then.
    """
    if target.exists():
        raise UsageError(f"{target}: exists\n  fix: give another --out, or remove it")
    meta, _ = prepared.read_meta(created)
    missing = _missing(created, meta)
    if missing:
        raise SpecError(missing, created / prepared.FILE)
    with scratch("prepare") as here:
        copy = here / "task"
        shutil.copytree(created, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        tree = json.loads((copy / prepared.FILE).read_text(encoding="utf-8"))
        _write_json(copy / prepared.FILE, _current_keys(tree, meta))
        prepared.read(copy)  # raises before anything is written
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(copy, target, symlinks=True)
    return prepared.read(target)


def prepared_name(created: Path) -> str:
    """The directory's name without the time stamp at its end."""
    return _STAMP.sub("", created.absolute().name)


def _missing(created: Path, meta: prepared.MetaTable) -> list[Problem]:
    """A problem for everything that a prepared task needs and that a created directory may lack."""
    problems = []
    if not meta.evaluation.rubrics:
        fix = 'write what counts and how much: [{"id": ..., "criterion": ..., "weight": ...}]'
        problems.append(Problem("evaluation.rubrics", "is missing", fix))
    if not any(script.rubric_id for script in meta.evaluation.test_scripts):
        fix = 'write hidden tests: [{"path": ..., "rubric_id": ..., "content": ...}]'
        problems.append(Problem("evaluation.test_scripts", "has no test with a rubric", fix))
    if not meta.repo.git_url and not any((created / name).exists() for name in prepared.FIXTURES):
        fix = "give a git URL or a path, or put the repository into repo/"
        problems.append(Problem("repo.git_url", "is missing", fix))
    if meta.repo.git_url and not meta.repo.start_commit_sha and prepared.is_remote(meta.repo.git_url):
        problems.append(Problem("repo.start_commit_sha", "is missing", "write the commit that agents start from"))
    if not prepared.instruction_of(created, meta).strip():
        problems.append(Problem("lm.instructions", "is missing", f"write them there or into {prepared.INSTRUCTIONS}"))
    return problems


def _current_keys(tree: dict[str, Any], meta: prepared.MetaTable) -> dict[str, Any]:
    """`tb_meta.json` with today's keys: no aliases, no legacy rubrics, `git@host:path` as https."""
    repo = meta.repo.model_dump(exclude_unset=True, exclude={"end_commit_sha"})
    scp = _SCP.match(repo.get("git_url") or "")
    if scp:
        repo["git_url"] = f"https://{scp[1]}/{scp[2]}"
    evaluation = {
        name: value for name, value in tree.get("evaluation", {}).items() if name not in prepared.LEGACY_RUBRICS
    }
    rest = {name: value for name, value in tree.items() if name not in ("id", "repository")}
    return {**rest, "task_id": _STAMP.sub("", meta.task_id), "repo": repo, "evaluation": evaluation}
