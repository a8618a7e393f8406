"""Tasks are made from a range of commits, and prepared from created ones; nothing is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError, UsageError
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.authoring import DRAFT, new_task, prepare, prepared_name
from bakeoff.workloads.tasks.check import check
from bakeoff.workloads.tasks.loading import load_task
from workloads.tasks.tasked import BROKEN, FIXED, TEST, commit, meta, run_git, write_files

pytestmark = pytest.mark.apt  # git and bubblewrap


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repair in two commits, with its test, a helper of the test and a file that nobody can read as text."""
    place = tmp_path / "repo"
    commit(place, {"calc.py": BROKEN, "tests/test_old.py": "def test_old():\n    pass\n", "notes.txt": "n\n"}, "begin")
    run_git(place, "tag", "before")
    commit(place, {"calc.py": FIXED}, "Double by two\n\nIt added one.")
    (place / "tests/data").mkdir(parents=True)
    (place / "tests/data/blob.bin").write_bytes(b"\xff\xfe\x00")
    helped = TEST.replace("from calc", "from helpers import EIGHT\nfrom calc").replace("== 8", "== EIGHT")
    commit(place, {"tests/test_double.py": helped, "tests/helpers.py": "EIGHT = 8\n", "notes.txt": "more\n"}, "Test it")
    run_git(place, "tag", "after")
    commit(place, {"calc.py": "# later\n"}, "later")
    return place


def made_from(repo: Path, **more: Any) -> Path:
    folder = repo.parent / "task"
    new_task(folder, repo=str(repo), start="before", end="after", title="Double properly", **more)
    return folder


def test_a_range_becomes_a_task_that_can_be_proved(repo: Path, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    folder = made_from(repo)
    task = load_task(folder)
    assert task.id == "double-properly"
    assert task.repository is not None and task.repository.commit == run_git(repo, "rev-parse", "before")
    assert {(script.path, script.rubric_id) for script in task.scripts} == {("tests/test_double.py", "tests"), ("tests/helpers.py", None)}  # fmt: skip
    assert task.first.solution is not None and b"tests/" not in (task.first.solution.diff or b"") and b"notes.txt" in (task.first.solution.diff or b"")  # fmt: skip
    assert (
        "Double by two" in task.first.instruction
        and "Test it" in task.first.instruction
        and DRAFT in task.first.instruction
    )
    findings = list(check(task, bubblewrap, tmp_path / "logs"))
    assert {finding.name: finding.ok for finding in findings if finding.ok is not None} == {
        "has hidden tests": True,
        "has a reference": True,
        "start state": True,
        "reference passes": True,
        "doing nothing fails": True,
        "cheats score nothing": True,
    }
    assert (task.isolated, task.first.verifier.modules) == (True, ("calc",))
    assert any("draft" in finding.message for finding in findings)


def test_a_made_task_needs_nothing_else_and_holds_no_later_commit(repo: Path) -> None:
    folder = made_from(repo)
    heads = run_git(folder, "bundle", "list-heads", "repo.bundle")
    assert set(heads.split()[::2]) == {run_git(repo, "rev-parse", "before")}
    repo.rename(repo.with_name("moved"))
    from bakeoff.workloads.tasks.start import start_state

    assert (start_state(load_task(folder)).tree / "calc.py").read_text() == BROKEN


def test_files_that_cannot_be_hidden_are_noted(repo: Path) -> None:
    made = new_task(repo.parent / "t", repo=str(repo), start="before", end="after", title="x")
    assert (made.tests, made.support) == (("tests/test_double.py",), ("tests/helpers.py",))
    assert made.changed == ("calc.py", "notes.txt")
    assert len(made.notes) == 1 and "blob.bin" in made.notes[0]


def test_tests_can_be_named(repo: Path) -> None:
    task = load_task(made_from(repo, tests=("tests/test_double.py",)))
    assert [script.path for script in task.scripts] == ["tests/test_double.py"]
    assert task.first.solution is not None and b"tests/helpers.py" in (task.first.solution.diff or b"")


def test_a_range_without_tests_has_no_rubric_and_says_so(repo: Path, bubblewrap: Bubblewrap) -> None:
    middle = run_git(repo, "rev-parse", "before~0")
    end = run_git(repo, "rev-list", "--reverse", "before..after").split()[0]
    made = new_task(repo.parent / "t", repo=str(repo), start=middle, end=end, title="x")
    assert made.tests == () and any("no test is in the range" in note for note in made.notes)
    task = load_task(made.directory)
    assert task.rubrics == ()
    findings = list(check(task, bubblewrap, repo.parent / "logs"))
    assert [finding.name for finding in findings if finding.ok is False] == ["has hidden tests"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start": "nowhere"}, "--from: .* has no commit 'nowhere'"),
        ({"end": "nowhere"}, "--to: .* has no commit 'nowhere'"),
        ({"start": "after", "end": "before"}, "--from: after does not come before before"),
        ({"tests": ("other/",)}, "--test: nothing that the range changes matches 'other/'"),
        ({"start": "before", "end": "before"}, "changes nothing\n"),
        ({"repo": "/nowhere/at/all"}, "--repo: there is nothing at /nowhere/at/all"),
    ],
)
def test_a_range_that_makes_no_task_is_refused(repo: Path, changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"repo": str(repo), "start": "before", "end": "after", "title": "x", **changes}
    with pytest.raises(UsageError, match=words):
        new_task(repo.parent / "t", **given)
    assert not (repo.parent / "t").exists()


def test_what_is_there_is_not_written_over(repo: Path) -> None:
    folder = write_files(repo.parent / "t", {"mine.txt": "x"})
    with pytest.raises(UsageError, match="exists and is not empty"):
        new_task(folder, repo=str(repo), start="before", end="after", title="x")


def created(folder: Path, **changes: Any) -> Path:
    """As the recorder of sessions leaves it."""
    tree = meta(task_id="double_it_20250824_123456", **changes)
    files = {"tb_meta.json": json.dumps(tree), "diff.patch": "", "repo/calc.py": BROKEN, ".env": "KEY=1", "trace/session_clean.json": "{}"}  # fmt: skip
    return write_files(folder, files)


def test_a_created_task_is_prepared_in_another_place_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = created(tmp_path / "double_it_20250824_123456")
    before = directory_digest(folder)
    task = prepare(folder, tmp_path / "out")
    assert directory_digest(folder) == before
    assert (task.id, prepared_name(folder)) == ("double_it", "double_it")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["diff.patch", "repo", "tb_meta.json"]


def test_older_keys_and_ssh_urls_become_todays(tmp_path: Path) -> None:
    tree = meta()
    del tree["repo"]
    tree["repository"] = {"clone_url": "git@github.com:a/b.git", "commit": "c" * 40}
    tree["evaluation"]["content_rubric"] = []
    task = prepare(write_files(tmp_path / "c", {"tb_meta.json": json.dumps(tree)}), tmp_path / "out")
    written = json.loads((tmp_path / "out/tb_meta.json").read_text())
    assert written["repo"] == {"git_url": "https://github.com/a/b.git", "start_commit_sha": "c" * 40}
    assert "repository" not in written and "content_rubric" not in written["evaluation"]
    assert task.notes == ()


def test_everything_missing_is_reported_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    legacy = {"content_rubric": [], "location_rubric": [], "clarity_rubric": []}
    folder = created(tmp_path / "c", evaluation=legacy, lm={}, repo={"git_url": "https://github.com/a/b"})
    with pytest.raises(SpecError) as raised:
        prepare(folder, tmp_path / "out")
    keys = [problem.key for problem in raised.value.problems]
    assert keys == ["evaluation.rubrics", "evaluation.test_scripts", "repo.start_commit_sha", "lm.instructions"]
    assert all(problem.fix for problem in raised.value.problems)
    assert not (tmp_path / "out").exists()
