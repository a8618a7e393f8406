"""What an agent changed in its copy of the start state comes back as a diff, and applies to another copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.diff import PatchFailed, apply_diff, changes_of, lines_changed, touched
from bakeoff.workloads.tasks.model import Repository
from bakeoff.workloads.tasks.start import StartState, lfs_pointers, start_state, submodules
from workloads.tasks.tasked import DIFF, added, commit, linked, run_git, task_on, write_files

pytestmark = pytest.mark.apt  # git


@pytest.fixture
def start(tmp_path: Path) -> StartState:
    files = {
        "query.sql": "-- one\nselect 1;\n",
        "table.csv": "0," * 4000,
        ".gitignore": "*.log\n",
        "calc.py": "def double(x):\n    return x + 1\n",
        "tests/t.py": "t\n",
        "run.sh": "#\n",
    }
    write_files(tmp_path / "files", files)
    (tmp_path / "files/link").symlink_to("query.sql")
    return start_state(task_on(Repository(str(tmp_path / "files"))))


def untouched(start: StartState, tmp_path: Path) -> Path:
    start.copy(tmp_path / "untouched")
    return tmp_path / "untouched"


@pytest.fixture
def work(start: StartState, tmp_path: Path) -> Path:
    start.copy(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("name", [" /%/..a", "a /b", "x / b c", "a b"])
def test_an_empty_file_below_a_directory_that_ends_with_a_space_arrives(
    start: StartState, work: Path, tmp_path: Path, name: str
) -> None:
    write_files(work, {name: "", "query.sql": "diff --git a/x /y b/x /y\n"})
    diff = changes_of(start, work).diff
    again = untouched(start, tmp_path)
    apply_diff(again, diff)
    assert (again / name).read_bytes() == b"" and (again / "query.sql").read_text().startswith("diff --git a/x /y")
    assert set(touched(diff)) == {name, "query.sql"}


def test_files_that_a_diff_has_no_room_for_are_left_out_and_named(
    start: StartState, work: Path, tmp_path: Path
) -> None:
    write_files(work, {"small.txt": "kept\n", "debug.log": "x" * 9000, "query.sql": "select 2;\n" * 900})
    (work / "link").unlink()
    (work / "link").write_text("y" * 7000)
    with (work / "huge.img").open("wb") as image:
        image.truncate(1 << 33)
    changes = changes_of(start, work, most=6000)
    assert [entry.path for entry in changes.left_out] == ["huge.img", "query.sql", "link"]
    again = tmp_path / "again"
    start.copy(again)
    apply_diff(again, changes.diff)
    assert touched(changes.diff) == ["small.txt"]
    assert os.readlink(again / "link") == "query.sql"


def test_a_large_file_of_the_start_state_takes_no_room(start: StartState, work: Path) -> None:
    write_files(work, {"small.txt": "kept\n"})
    changes = changes_of(start, work, most=100)
    assert (touched(changes.diff), changes.left_out) == (["small.txt"], ())


def test_file_names_are_read_however_git_quotes_them(start: StartState, work: Path) -> None:
    names = ["a b/c b/d", "back\\slash", "n\u00e4me", 'quote"d', "tab\there"]
    write_files(work, {name: "x\n" for name in names})
    Path(os.fsdecode(bytes(work) + b"/latin\xe4")).write_text("feed\x0cdiff --git a/no b/no\rdiff --git a/no b/no\n")
    assert sorted(touched(changes_of(start, work).diff)) == sorted([*names, "latin\ufffd"])


def test_lines_that_begin_with_signs_of_their_own_are_counted(start: StartState, work: Path) -> None:
    write_files(work, {"query.sql": "-- two\n++ i;\r-- three\nselect 1;\n"})
    assert lines_changed(changes_of(start, work).diff) == 3


def test_what_an_agent_did_comes_back_as_a_diff_whatever_became_of_its_git(start: StartState, tmp_path: Path) -> None:
    tree = tmp_path / "work"
    start.copy(tree)
    (tree / "calc.py").write_text("def double(x):\n    return 2 * x\n")
    (tree / "data.bin").write_bytes(bytes(range(256)))
    (tree / "tests/t.py").unlink()
    (tree / "outside").symlink_to("/etc/passwd")
    (tree / "run.sh").chmod(0o644)
    run_git(tree, "init", "-q", "inner")
    write_files(tree, {"inner/file": "kept\n"})
    shutil.rmtree(tree / ".git")
    (tree / ".git").mkdir()
    (tree / ".git/config").write_text("[core]\n\tfsmonitor = touch /tmp/owned\n")
    before = directory_digest(start.tree)
    diff = changes_of(start, tree).diff
    again = tmp_path / "again"
    start.copy(again)
    apply_diff(again, diff)
    assert (again / "calc.py").read_text() == "def double(x):\n    return 2 * x\n"
    assert (again / "data.bin").read_bytes() == bytes(range(256))
    assert os.readlink(again / "outside") == "/etc/passwd"
    assert not (again / "tests/t.py").exists()
    assert (again / "inner/file").read_text() == "kept\n"
    assert (again / "run.sh").stat().st_mode & 0o111 == 0
    assert changes_of(start, again).diff == diff
    assert directory_digest(start.tree) == before
    assert changes_of(start, untouched(start, tmp_path)).diff == b""


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({".gitattributes": "* working-tree-encoding=UTF-16\n", "new.py": "x = 1\n"}, {"new.py", ".gitattributes"}),
        ({".GIT/config": "x", "git~1/config": "x", "new.py": "x = 1\n"}, {"new.py"}),
    ],
    ids=["attributes that cannot be followed", "names that git keeps for itself"],
)
def test_what_git_refuses_does_not_cost_the_rest_of_the_work(
    start: StartState, tmp_path: Path, files: dict[str, str], kept: set[str]
) -> None:
    work = write_files(untouched(start, tmp_path), files)
    diff = changes_of(start, work).diff
    again = tmp_path / "again"
    start.copy(again)
    apply_diff(again, diff)
    assert {name for name in files if (again / name).is_file()} == kept
    assert (again / "new.py").read_text() == "x = 1\n"


def test_files_in_a_submodules_place_are_part_of_the_diff(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    commit(repo, {"big.dat": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"})
    run_git(repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendored")
    run_git(repo, "commit", "-q", "-m", "not all is here")
    start = start_state(task_on(Repository(str(repo), "HEAD")))
    assert (submodules(start), lfs_pointers(start)) == (["vendored"], ["big.dat"])
    assert not any((start.tree / "vendored").iterdir())
    work = write_files(untouched(start, tmp_path), {"vendored/lib.py": "x = 1\n"})
    diff = changes_of(start, work).diff
    start.copy(tmp_path / "again")
    apply_diff(tmp_path / "again", diff)
    assert (tmp_path / "again/vendored/lib.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    "diff",
    [
        added("../escape.txt", "x"),
        added(".git/hooks/post-checkout", "x"),
        linked("out", "/tmp") + added("out/escape.txt", "x"),
        DIFF.replace("x + 1", "x + 7"),
        "this is no diff\n",
    ],
    ids=["up", "git", "link", "other", "noise"],
)
def test_a_diff_that_leads_out_or_does_not_fit_is_refused(start: StartState, tmp_path: Path, diff: str) -> None:
    tree = untouched(start, tmp_path)
    with pytest.raises(PatchFailed, match="does not apply"):
        apply_diff(tree, diff.encode())
    assert not (tmp_path / "escape.txt").exists() and not Path("/tmp/escape.txt").exists()
