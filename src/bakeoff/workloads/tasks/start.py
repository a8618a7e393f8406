"""The start state: the repository at its start commit, without what comes later, with removals and overlays.

It is one directory with a `.git` of its own that holds the start commit's history and nothing else: no remote, no
other branch, no reflog, no object that cannot be reached. Where paths were removed, there is no history at all,
because it would give them back. It is built once, kept by content, and never written to again.
"""

from __future__ import annotations

import hashlib
import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.sandbox import cache
from bakeoff.spec.identity import NOT_CONTENT, canonical_json, directory_digest
from bakeoff.workloads.tasks.git import GitFailed, git, git_asks, git_copies_objects
from bakeoff.workloads.tasks.model import REPOSITORY, File, Repository, Task
from bakeoff.workloads.tasks.repository import Commits, find_commits

REVISION = "1"
"""Change it when the same task would get another start state."""
HEAD = "HEAD"


class PatchFailed(BakeoffError):
    """A diff does not apply to the start state."""


@dataclass(frozen=True, slots=True)
class StartState:
    tree: Path
    """The repository's top. Copy it; it is shared."""
    baseline: str
    """The commit that diffs are taken from: the start commit with removals and overlays."""

    def copy(self, target: Path) -> None:
        shutil.copytree(self.tree, target, symlinks=True)


def start_state(task: Task) -> StartState:
    """Of a prepared task."""
    repository = task.repository
    if repository is None:
        raise UsageError(f"{task.directory}: a {task.format} task starts from its image and has no repository")
    home = cache.directory()
    commits = find_commits(repository, home)
    overlays = tuple(file for file in task.overlays if file.target.startswith(f"{REPOSITORY}/"))
    place = home / "starts" / _key(repository, commits, task.removals, overlays)
    if not place.is_dir():
        with _room(place) as room:
            _build(room, repository, commits, task.removals, overlays)
    baseline = git_asks("rev-parse", HEAD, at=place)
    if baseline is None:
        raise BakeoffError(f"{place} is damaged\n  fix: remove it; it is built again")
    if repository.subdir and not (place / repository.subdir).is_dir():
        raise UsageError(f"repo.subdir: {repository.subdir!r} is no directory at the start commit\n  fix: correct it")
    return StartState(place, baseline)


def apply_diff(tree: Path, diff: bytes) -> None:
    """Apply a diff to a copy of a start state. git refuses paths that lead out of it, through links too."""
    if not diff.strip():
        return
    try:
        git("apply", "--whitespace=nowarn", "-", at=tree, stdin=diff)
    except GitFailed as first:
        git_asks("update-index", "-q", "--refresh", at=tree)  # a copy's files are newer than its index thinks
        try:
            git("apply", "--whitespace=nowarn", "--3way", "-", at=tree, stdin=diff)
        except GitFailed:
            raise PatchFailed(f"the diff does not apply to the start state: {first.said}") from first


def submodules(start: StartState) -> list[str]:
    """Paths of the start state where another repository would lie; nothing is fetched for them."""
    listed = git("ls-files", "-s", "-z", at=start.tree).decode(errors="surrogateescape").split("\0")
    return [entry.partition("\t")[2] for entry in listed if entry.startswith("160000 ")]


def lfs_pointers(start: StartState) -> list[str]:
    """Files of the start state that stand for others on an LFS server."""
    found = git_asks("grep", "-l", "-F", "-e", "version https://git-lfs.github.com/spec/v1", "HEAD", at=start.tree)
    return [line.partition(":")[2] for line in (found or "").splitlines()]


def place_file(root: Path, relative: str, data: bytes, *, executable: bool = False) -> None:
    """Write below `root` where an untrusted diff was applied: links and files in the way are replaced, not followed."""
    here = root
    for part in Path(relative).parts[:-1]:
        here = here / part
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            here.unlink()
        here.mkdir(exist_ok=True)
    target = here / Path(relative).name
    remove(target)
    target.write_bytes(data)
    target.chmod(0o755 if executable else 0o644)


def remove(target: Path) -> None:
    """A file, a link or a whole directory, if it is there."""
    if target.is_dir() and not target.is_symlink():
        cache.remove(target)
    else:
        target.unlink(missing_ok=True)


def _key(repository: Repository, commits: Commits | None, removals: Iterable[str], overlays: Iterable[File]) -> str:
    facts = {
        "revision": REVISION,
        "commit": commits.commit if commits else directory_digest(Path(repository.url)),
        "oldest": oldest(commits.directory) if commits else [],
        "branch": repository.branch,
        "sparse": repository.sparse,
        "removals": tuple(removals),
        "overlays": [(file.target, hashlib.sha256(file.read()).hexdigest(), file.executable) for file in overlays],
    }
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:24]


@contextmanager
def _room(place: Path) -> Iterator[Path]:
    """A directory that becomes `place` when all went well; another process may have been quicker."""
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        room = scratch / "tree"
        yield room
        try:
            room.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build(
    room: Path, repository: Repository, commits: Commits | None, removals: Iterable[str], overlays: Iterable[File]
) -> None:
    if commits is None:
        shutil.copytree(repository.url, room, symlinks=True, ignore=shutil.ignore_patterns(*NOT_CONTENT))
        init(room, repository.branch)
        git("add", "-A", "-f", at=room)
        git("commit", "-q", "--allow-empty", "-m", "Start", at=room)
    else:
        init(room, repository.branch)
        bring(commits.directory, room, commits.commit)
        _check_out(room, repository)
    removed = _remove(room, removals)
    written = [_overlay(room, file) for file in overlays]
    if removed:
        git("add", "-A", "--sparse", at=room)
    if written:
        git("add", "-f", "--sparse", "--", *written, at=room)
    if removed or written:
        _commit(room, keep_history=not removed)
    _fresh_git(room, repository.branch)


def init(room: Path, branch: str) -> None:
    try:
        git("init", "-q", "--template=", f"--initial-branch={branch}", str(room))
    except GitFailed as error:
        raise UsageError(f"repo.branch: {branch!r} is no name for a branch: {error.said}") from error


def oldest(source: Path) -> list[str]:
    """Commits of a shallow clone whose parents nobody has; none of a whole one."""
    file = git_asks("rev-parse", "--path-format=absolute", "--git-path", "shallow", at=source)
    return sorted(Path(file).read_text().split()) if file and Path(file).is_file() else []


def bring(source: Path, target: Path, commit: str) -> None:
    """All that can be reached from `commit`, and nothing else, into `target`, whose branch it becomes."""
    git_copies_objects(source, target, commit)
    known = [line for line in oldest(source) if git_asks("cat-file", "-e", line, at=target) is not None]
    if known:
        (target / ".git" / "shallow").write_text("".join(f"{line}\n" for line in known))
    git("update-ref", HEAD, commit, at=target)


def _check_out(room: Path, repository: Repository) -> None:
    if repository.sparse:
        _sparse(room, repository.sparse)
    git("read-tree", "-m", "-u", HEAD, at=room)
    if repository.sparse and not any(entry.name != ".git" for entry in room.iterdir()):
        raise UsageError(f"repo.sparse_checkout: nothing at the start commit matches {', '.join(repository.sparse)}")


def _sparse(room: Path, paths: tuple[str, ...]) -> None:
    """Directories by name; anything with a pattern in it is read as git reads such patterns."""
    plain = all(not set(path) & set("*?[!") for path in paths)
    lines = [f"/{path.strip('/')}" if plain else path for path in paths]
    for name, value in (("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false")):
        git("config", name, value, at=room)
    (room / ".git" / "info").mkdir(exist_ok=True)
    (room / ".git" / "info" / "sparse-checkout").write_text("".join(f"{line}\n" for line in lines))


def _remove(room: Path, patterns: Iterable[str]) -> bool:
    """Take out what matches. Whether anything did."""
    found = {path for pattern in patterns for path in _matching(room, pattern)}
    for path in found:
        remove(path)
    return bool(found)


def _matching(room: Path, pattern: str) -> list[Path]:
    try:
        matches = list(room.glob(pattern))
    except ValueError as error:
        raise UsageError(
            f"remove_repo_paths: {pattern!r} is no pattern: {error}\n  fix: write ** as a whole part"
        ) from error
    return [path for path in matches if path.relative_to(room).parts[:1] not in ((), (".git",))]


def _overlay(room: Path, file: File) -> str:
    relative = posixpath.relpath(file.target, REPOSITORY)
    place_file(room, relative, file.read(), executable=file.executable)
    return relative


def _commit(room: Path, *, keep_history: bool) -> None:
    tree = git("write-tree", at=room).decode().strip()
    parents = ["-p", HEAD] if keep_history else []
    commit = git("commit-tree", tree, *parents, "-m", "Start", at=room).decode().strip()
    git("update-ref", HEAD, commit, at=room)


def _fresh_git(room: Path, branch: str) -> None:
    """Exchange `.git` for one that holds what HEAD reaches: what was built on the way stays behind."""
    with tempfile.TemporaryDirectory(dir=room.parent) as scratch:
        fresh = Path(scratch, "fresh")
        init(fresh, branch)
        bring(room, fresh, git("rev-parse", HEAD, at=room).decode().strip())
        if (room / ".git" / "info" / "sparse-checkout").is_file():
            _sparse(fresh, ())
            shutil.copyfile(room / ".git" / "info" / "sparse-checkout", fresh / ".git" / "info" / "sparse-checkout")
        for name, value in (("user.name", "agent"), ("user.email", "agent@localhost"), ("gc.auto", "0")):
            git("config", name, value, at=fresh)
        shutil.copyfile(room / ".git" / "index", fresh / ".git" / "index")
        shutil.rmtree(room / ".git")
        (fresh / ".git").rename(room / ".git")
