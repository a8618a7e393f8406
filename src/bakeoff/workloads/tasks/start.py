"""The start state: the repository at its start commit, without what comes later, with removals and overlays.

It is one directory whose `.git` holds the start commit's history and nothing else: no remote, no other branch, no
reflog, no unreachable object. If paths were removed there is no history at all, because it would give them back.
A start state is built once, kept in the cache by content, and never written to again.

    start = start_state(task)
    start.copy(tree)
"""

from __future__ import annotations

import hashlib
import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.sandbox import cache
from bakeoff.spec.identity import NOT_CONTENT, canonical_json, directory_digest
from bakeoff.workloads.tasks.model import REPOSITORY, File, Repository, Task
from bakeoff.workloads.tasks.repository import Commits, GitFailed, copy_objects, find_commits, git, git_query

REVISION = "1"
"""Part of the cache key. Change it when the same task would get another start state."""
HEAD = "HEAD"


@dataclass(frozen=True, slots=True)
class StartState:
    """A start state in the cache."""

    tree: Path
    """The repository's top. It is shared: copy it before changing anything."""
    baseline: str
    """The commit that diffs are taken from: the start commit with removals and overlays."""

    def copy(self, target: Path) -> None:
        """Copy it to `target`, which must not exist. Links stay links."""
        shutil.copytree(self.tree, target, symlinks=True)


def start_state(task: Task) -> StartState:
    """The start state of a prepared task, built if it is not in the cache.

    Raises UsageError for a task without a repository, a commit that does not exist, or a subdir or sparse checkout
    that matches nothing; InfraError if the repository cannot be fetched.
    """
    repository = task.repository
    if repository is None:
        raise UsageError(f"{task.directory}: a {task.format} task starts from its image and has no repository")
    home = cache.directory()
    commits = find_commits(repository, home)
    overlays = tuple(file for file in task.overlays if file.target.startswith(f"{REPOSITORY}/"))
    # Everything that changes a byte of the start state is part of its name in the cache.
    facts = {
        "revision": REVISION,
        "commit": commits.commit if commits else directory_digest(Path(repository.url)),
        "oldest": oldest(commits.directory) if commits else [],
        "branch": repository.branch,
        "sparse": repository.sparse,
        "removals": tuple(task.removals),
        "overlays": [(file.target, hashlib.sha256(file.read()).hexdigest(), file.executable) for file in overlays],
    }
    place = home / "starts" / hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:24]
    if not place.is_dir():
        with _built_at(place) as tree:
            _build(tree, repository, commits, task.removals, overlays)
    baseline = git_query("rev-parse", HEAD, at=place)
    if baseline is None:
        raise BakeoffError(f"{place} is damaged\n  fix: remove it; it will be built again")
    if repository.subdir and not (place / repository.subdir).is_dir():
        raise UsageError(
            f"repo.subdir: {repository.subdir!r} is not a directory at the start commit\n  fix: correct it"
        )
    return StartState(place, baseline)


def submodules(start: StartState) -> list[str]:
    """Paths of submodules in the start state. Nothing is fetched for them."""
    # Mode 160000 is a gitlink, the commit of another repository (git-ls-files(1), gitsubmodules(7)).
    listed = git("ls-files", "-s", "-z", at=start.tree).decode(errors="surrogateescape").split("\0")
    return [entry.partition("\t")[2] for entry in listed if entry.startswith("160000 ")]


def lfs_pointers(start: StartState) -> list[str]:
    """Files of the start state that stand for others on an LFS server."""
    listed = git_query("grep", "-l", "-F", "-e", "version https://git-lfs.github.com/spec/v1", "HEAD", at=start.tree)
    return [line.partition(":")[2] for line in (listed or "").splitlines()]


def real_parent(root: Path, relative: str) -> Path:
    """The directory of `root / relative`, with every part of the way a real directory.

    A link of the agent's in the way would lead a copy out of `root`, so links and files there are removed.
    """
    here = root
    for part in Path(relative).parts[:-1]:
        here = here / part
        if here.is_symlink() or not here.is_dir():
            remove(here)
        here.mkdir(exist_ok=True)
    return here


def place_file(root: Path, relative: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file below `root` where an untrusted diff was applied: links in the way are replaced, not followed."""
    target = real_parent(root, relative) / Path(relative).name
    remove(target)
    target.write_bytes(data)
    target.chmod(0o755 if executable else 0o644)


def remove(target: Path) -> None:
    """Remove a file, a link or a whole directory, if it is there."""
    if not target.is_symlink() and target.is_dir():  # a link may lead to what no call takes
        cache.remove(target)
    else:
        target.unlink(missing_ok=True)


@contextmanager
def _built_at(place: Path) -> Iterator[Path]:
    """A directory that is renamed to `place` if nothing was raised, so that `place` is complete or not there.

    If another process was faster its result stays: both are the same, because the name is a digest of the content.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        tree = scratch / "tree"
        yield tree
        try:
            tree.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build(
    tree: Path, repository: Repository, commits: Commits | None, removals: Iterable[str], overlays: Sequence[File]
) -> None:
    """Check out the start commit into `tree`, remove and overlay files, and commit the result."""
    if commits is None:
        shutil.copytree(repository.url, tree, symlinks=True, ignore=shutil.ignore_patterns(*NOT_CONTENT))
        init(tree, repository.branch)
        git("add", "-A", "-f", at=tree)  # files that .gitignore names are part of a plain directory too
        git("commit", "-q", "--allow-empty", "-m", "Start", at=tree)
    else:
        init(tree, repository.branch)
        bring(commits.directory, tree, commits.commit)
        if repository.sparse:
            _sparse(tree, repository.sparse)
        git("read-tree", "-m", "-u", HEAD, at=tree)  # a checkout that runs no hook and honours sparse-checkout
        if repository.sparse and not any(entry.name != ".git" for entry in tree.iterdir()):
            raise UsageError(
                f"repo.sparse_checkout: nothing at the start commit matches {', '.join(repository.sparse)}"
            )
    removed: set[Path] = set()
    for pattern in removals:
        try:
            matches = list(tree.glob(pattern))
        except ValueError as error:
            fix = "write ** as a whole part"
            raise UsageError(f"remove_repo_paths: {pattern!r} is not a valid pattern: {error}\n  fix: {fix}") from error
        # Neither the tree itself nor `.git` can be removed.
        removed |= {path for path in matches if path.relative_to(tree).parts[:1] not in ((), (".git",))}
    for path in removed:
        remove(path)
    written = [posixpath.relpath(file.target, REPOSITORY) for file in overlays]
    for relative, file in zip(written, overlays, strict=True):
        place_file(tree, relative, file.read(), executable=file.executable)
    if removed:
        git("add", "-A", "--sparse", at=tree)
    if written:
        git("add", "-f", "--sparse", "--", *written, at=tree)
    if removed or written:
        # A commit without parents has no history that would give removed files back.
        parents = ["-p", HEAD] if not removed else []
        written_tree = git("write-tree", at=tree).decode().strip()
        commit = git("commit-tree", written_tree, *parents, "-m", "Start", at=tree).decode().strip()
        git("update-ref", HEAD, commit, at=tree)
    _fresh_git(tree, repository.branch)


def init(tree: Path, branch: str) -> None:
    """Make an empty repository. UsageError if git does not accept the branch's name."""
    try:
        git("init", "-q", "--template=", f"--initial-branch={branch}", str(tree))
    except GitFailed as error:
        raise UsageError(f"repo.branch: {branch!r} is not a valid branch name: {error.output}") from error


def oldest(source: Path) -> list[str]:
    """The commits of a shallow clone whose parents are missing; none for a complete clone."""
    file = git_query("rev-parse", "--path-format=absolute", "--git-path", "shallow", at=source)
    return sorted(Path(file).read_text().split()) if file and Path(file).is_file() else []


def bring(source: Path, target: Path, commit: str) -> None:
    """Copy everything reachable from `commit`, and nothing else, into `target`, whose branch it becomes."""
    copy_objects(source, target, commit)
    # Without the `shallow` file (gitrepository-layout(5)) git would look for the parents that a shallow clone lacks.
    known = [line for line in oldest(source) if git_query("cat-file", "-e", line, at=target) is not None]
    if known:
        (target / ".git" / "shallow").write_text("".join(f"{line}\n" for line in known))
    git("update-ref", HEAD, commit, at=target)


def _sparse(tree: Path, paths: tuple[str, ...]) -> None:
    """Set up a sparse checkout. Plain paths are directories or files; with a pattern among them git's rules apply."""
    plain = all(not set(path) & set("*?[!") for path in paths)
    lines = [f"/{path.strip('/')}" if plain else path for path in paths]
    for name, value in (("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false")):
        git("config", name, value, at=tree)
    (tree / ".git" / "info").mkdir(exist_ok=True)
    (tree / ".git" / "info" / "sparse-checkout").write_text("".join(f"{line}\n" for line in lines))


def _fresh_git(tree: Path, branch: str) -> None:
    """Replace `.git` by one that holds only what HEAD reaches: objects made while building stay behind."""
    with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        fresh = Path(scratch, "fresh")
        init(fresh, branch)
        bring(tree, fresh, git("rev-parse", HEAD, at=tree).decode().strip())
        if (tree / ".git" / "info" / "sparse-checkout").is_file():
            _sparse(fresh, ())
            shutil.copyfile(tree / ".git" / "info" / "sparse-checkout", fresh / ".git" / "info" / "sparse-checkout")
        for name, value in (("user.name", "agent"), ("user.email", "agent@localhost"), ("gc.auto", "0")):
            git("config", name, value, at=fresh)
        # The index lists the files as checked out, with the skip-worktree bits of a sparse checkout.
        shutil.copyfile(tree / ".git" / "index", fresh / ".git" / "index")
        shutil.rmtree(tree / ".git")
        (fresh / ".git").rename(tree / ".git")
