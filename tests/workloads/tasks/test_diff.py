"""What somebody changed in a copy of the start state."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.diff import apply_diff, changes_of, lines_changed, touched
from bakeoff.workloads.tasks.model import Repository
from bakeoff.workloads.tasks.start import StartState, start_state
from workloads.tasks.tasked import task_on, write_files


@pytest.fixture
def start(tmp_path: Path) -> StartState:
    write_files(
        tmp_path / "files", {"query.sql": "-- one\nselect 1;\n", "table.csv": "0," * 4000, ".gitignore": "*.log\n"}
    )
    (tmp_path / "files/link").symlink_to("query.sql")
    return start_state(task_on(Repository(str(tmp_path / "files"))))


@pytest.fixture
def work(start: StartState, tmp_path: Path) -> Path:
    start.copy(tmp_path / "work")
    return tmp_path / "work"


def test_files_that_a_diff_has_no_room_for_are_left_out_and_named(
    start: StartState, work: Path, tmp_path: Path
) -> None:
    write_files(work, {"small.txt": "kept\n", "debug.log": "x" * 9000, "query.sql": "select 2;\n" * 900})
    (work / "link").unlink()
    (work / "link").write_text("y" * 7000)
    with (work / "huge.img").open("wb") as image:
        image.truncate(1 << 33)
    changes = changes_of(start, work, most=6000)
    assert changes.left_out == ("huge.img", "query.sql", "link")
    again = tmp_path / "again"
    start.copy(again)
    apply_diff(again, changes.diff)
    assert touched(changes.diff) == ["small.txt"]
    assert os.readlink(again / "link") == "query.sql"


def test_a_large_file_of_the_start_state_takes_no_room(start: StartState, work: Path) -> None:
    write_files(work, {"small.txt": "kept\n"})
    changes = changes_of(start, work, most=100)
    assert (touched(changes.diff), changes.left_out) == (["small.txt"], ())


def test_names_are_told_as_they_are_however_git_quotes_them(start: StartState, work: Path) -> None:
    names = ["a b/c b/d", "back\\slash", "n\u00e4me", 'quote"d', "tab\there"]
    write_files(work, {name: "x\n" for name in names})
    Path(os.fsdecode(bytes(work) + b"/latin\xe4")).write_text("feed\x0cdiff --git a/no b/no\rdiff --git a/no b/no\n")
    assert sorted(touched(changes_of(start, work).diff)) == sorted([*names, "latin\ufffd"])


def test_lines_that_begin_with_signs_of_their_own_are_counted(start: StartState, work: Path) -> None:
    write_files(work, {"query.sql": "-- two\n++ i;\r-- three\nselect 1;\n"})
    assert lines_changed(changes_of(start, work).diff) == 3
