"""The start state: any commit, from anywhere, with nothing in it of what came later."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bakeoff.errors import InfraError, UsageError
from bakeoff.workloads.tasks.diff import apply_diff
from bakeoff.workloads.tasks.model import File, Repository
from bakeoff.workloads.tasks.start import place_file, start_state
from workloads.tasks.tasked import commit, run_git, task_on, write_files

pytestmark = pytest.mark.apt  # git

SECRET = "the-solution-nobody-may-see"


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, str]:
    """A repository with a commit in the middle of it: before and after it, on other branches, in tags and in a stash."""
    repo = tmp_path / "history"
    commit(repo, {"src/a.py": "a = 0\n", "docs/x.md": "x\n", "docs/y.md": "y\n", "top.txt": "t\n"}, "first")
    start = commit(repo, {"src/a.py": "a = 1\n"}, "start")
    commit(repo, {"src/a.py": f"a = '{SECRET}'\n"}, SECRET)
    run_git(repo, "tag", "-a", "-m", SECRET, "v1")
    run_git(repo, "checkout", "-q", "-b", "other")
    commit(repo, {"other.txt": SECRET}, "other")
    write_files(repo, {"src/a.py": SECRET})
    run_git(repo, "stash")
    return repo, start


def sources(repo: Path, tmp_path: Path) -> dict[str, str]:
    run_git(repo, "bundle", "create", "-q", str(tmp_path / "r.bundle"), "--all")
    run_git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    return {
        "path": str(repo),
        "bare": str(tmp_path / "bare.git"),
        "bundle": str(tmp_path / "r.bundle"),
        "url": f"file://{tmp_path / 'bare.git'}",
    }


@pytest.mark.parametrize("kind", ["path", "bare", "bundle", "url"])
def test_nothing_that_came_later_can_be_found(history: tuple[Path, str], tmp_path: Path, kind: str) -> None:
    repo, start = history
    made = start_state(task_on(Repository(sources(repo, tmp_path)[kind], start)))
    assert (made.baseline, (made.tree / "src/a.py").read_text()) == (start, "a = 1\n")
    assert run_git(made.tree, "log", "--all", "--format=%s") == "start\nfirst"
    assert run_git(made.tree, "fsck", "--lost-found", "--unreachable", "--no-reflogs") == ""
    assert run_git(made.tree, "reflog", "--all") == run_git(made.tree, "stash", "list") == ""
    assert (
        run_git(made.tree, "remote") == run_git(made.tree, "tag") == run_git(made.tree, "status", "--porcelain") == ""
    )
    listed = run_git(made.tree, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    reached = run_git(made.tree, "rev-list", "--objects", "HEAD").splitlines()
    assert {line.split()[0] for line in listed} == {line.split()[0] for line in reached}
    packs = b"".join(run_git(made.tree, "cat-file", "-p", line.split()[0]).encode() for line in listed)
    assert SECRET.encode() not in packs
    everything = b"".join(file.read_bytes() for file in made.tree.rglob("*") if file.is_file())
    assert SECRET.encode() not in everything and str(repo).encode() not in everything


def test_a_repository_that_was_fetched_once_is_there_without_its_server(
    history: tuple[Path, str], tmp_path: Path
) -> None:
    repo, start = history
    first = run_git(repo, "rev-parse", "main~2")
    url = sources(repo, tmp_path)["url"]
    start_state(task_on(Repository(url, start)))
    named = start_state(task_on(Repository(url, "HEAD", branch="main")))
    shutil.rmtree(tmp_path / "bare.git")
    assert start_state(task_on(Repository(url, first))).baseline == first
    assert start_state(task_on(Repository(url, "HEAD", branch="main"))).baseline == named.baseline
    with pytest.raises(InfraError, match="cannot be fetched"):
        start_state(task_on(Repository(url, "f" * 40)))


def test_a_login_in_the_url_is_neither_stored_nor_shown(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(InfraError) as raised:
        start_state(task_on(Repository("https://user:hunter2@127.0.0.1:1/x.git", "a" * 40)))
    assert "hunter2" not in str(raised.value)
    found = subprocess.run(["grep", "-r", "hunter2", str(cache)], capture_output=True, text=True)
    assert found.stdout == ""


@pytest.mark.parametrize("name", ["e" * 40, "nobranch", "--upload-pack=touch /tmp/x", "HEAD~99"])
def test_a_commit_that_is_not_there_is_named(history: tuple[Path, str], name: str) -> None:
    with pytest.raises(UsageError, match=r"repo.start_commit_sha.*no commit"):
        start_state(task_on(Repository(str(history[0]), name)))


def test_a_plain_directory_becomes_one_commit_that_is_the_same_everywhere(tmp_path: Path) -> None:
    states = []
    for name in ("a", "b"):
        write_files(tmp_path / name, {"x.txt": "1", ".gitignore": "*.log\n", "kept.log": "l"})
        states.append(start_state(task_on(Repository(str(tmp_path / name)))))
    assert states[0].baseline == states[1].baseline
    assert (states[0].tree / "kept.log").is_file()
    assert run_git(states[0].tree, "ls-files").split() == [".gitignore", "kept.log", "x.txt"]
    with pytest.raises(UsageError, match="plain directory"):
        start_state(task_on(Repository(str(tmp_path / "a"), "main")))


def test_removed_paths_are_gone_from_the_history_too(history: tuple[Path, str]) -> None:
    repo, start = history
    made = start_state(task_on(Repository(str(repo), start), removals=("docs/*.md", "top.*", "nothing/here")))
    assert sorted(run_git(made.tree, "ls-files").split()) == ["src/a.py"]
    assert run_git(made.tree, "log", "--format=%s") == "Start"
    assert "docs" not in run_git(made.tree, "log", "--name-only", "--all")
    assert run_git(made.tree, "status", "--porcelain") == ""


def test_a_star_does_not_remove_the_repository_itself(history: tuple[Path, str]) -> None:
    repo, start = history
    made = start_state(task_on(Repository(str(repo), start), removals=("*",)))
    assert [entry.name for entry in made.tree.iterdir()] == [".git"]


def test_a_pattern_that_is_none_is_named(history: tuple[Path, str]) -> None:
    repo, start = history
    with pytest.raises(UsageError, match=r"remove_repo_paths: 'a\*\*b' is not a valid pattern"):
        start_state(task_on(Repository(str(repo), start), removals=("a**b",)))


def test_overlays_are_part_of_the_baseline_and_history_stays(history: tuple[Path, str]) -> None:
    repo, start = history
    overlays = (File("/app/repo/docs/x.md", content=b"new"), File("/app/other", content=b"elsewhere"))
    made = start_state(task_on(Repository(str(repo), start), overlays=overlays))
    assert (made.tree / "docs/x.md").read_text() == "new"
    assert run_git(made.tree, "log", "--format=%s").split() == ["Start", "start", "first"]
    assert run_git(made.tree, "status", "--porcelain") == ""
    assert not (made.tree / "other").exists()


@pytest.mark.parametrize(
    ("sparse", "there"),
    [
        (("src",), ["src/a.py"]),
        (("docs/x.md", "src"), ["docs/x.md", "src/a.py"]),
        (("*.md",), ["docs/x.md", "docs/y.md"]),
    ],
)
def test_a_sparse_checkout_has_only_its_paths(
    history: tuple[Path, str], sparse: tuple[str, ...], there: list[str]
) -> None:
    repo, start = history
    made = start_state(task_on(Repository(str(repo), start, sparse=sparse)))
    files = [file.relative_to(made.tree).as_posix() for file in made.tree.rglob("*") if file.is_file()]
    assert sorted(name for name in files if not name.startswith(".git/")) == there
    assert run_git(made.tree, "status", "--porcelain") == ""


def test_a_diff_may_change_what_a_sparse_checkout_left_out(history: tuple[Path, str], tmp_path: Path) -> None:
    repo, _ = history
    start = commit(repo, {"src/b.py": "one\n", "docs/z.md": "one\n"})
    end = commit(repo, {"src/b.py": "two\n", "docs/z.md": "two\n"})
    diff = run_git(repo, "diff", start, end) + "\n"
    start_state(task_on(Repository(str(repo), start, sparse=("src",)))).copy(tmp_path / "tree")
    apply_diff(tmp_path / "tree", diff.encode())
    assert (tmp_path / "tree/src/b.py").read_text() == (tmp_path / "tree/docs/z.md").read_text() == "two\n"


def test_a_sparse_checkout_of_nothing_and_a_subdir_that_is_not_there_are_refused(history: tuple[Path, str]) -> None:
    repo, start = history
    with pytest.raises(UsageError, match=r"repo.sparse_checkout"):
        start_state(task_on(Repository(str(repo), start, sparse=("nowhere",))))
    with pytest.raises(UsageError, match=r"repo.subdir"):
        start_state(task_on(Repository(str(repo), start, subdir="nowhere")))
    assert task_on(Repository(str(repo), start, subdir="src")).workdir == "/app/repo/src"


def test_a_shallow_clone_is_enough(history: tuple[Path, str], tmp_path: Path) -> None:
    repo, start = history
    run_git(repo, "checkout", "-q", "-f", "main")
    run_git(repo, "reset", "-q", "--hard", start)
    run_git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", "shallow")
    made = start_state(task_on(Repository(str(tmp_path / "shallow"), start)))
    assert run_git(made.tree, "log", "--format=%s") == "start"


def test_files_are_placed_over_links_and_not_through_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "tests").symlink_to(outside)
    place_file(tree, "tests/deep/test_x.py", b"mine")
    assert (tree / "tests/deep/test_x.py").read_bytes() == b"mine"
    assert list(outside.iterdir()) == []
