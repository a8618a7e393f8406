"""Verbs that read results need nothing of Linux, and those that run something say that they need it.

`tests/support/other_system` hides what only Linux has from the code of bakeoff in a subprocess.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.records import files
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.records.looks import read_looks
from support.editions import add_trajectories, make_edition, succeeds_with_series

SYSTEM = Path(__file__).parents[1] / "support" / "other_system"
CSV = "arm,task,seed,score\n" + "".join(
    f"{arm},t{task},{seed},{task + seed / 10 + (arm == 'b') + (seed * task % 3) / 7}\n"
    for arm in ("a", "b")
    for task in range(4)
    for seed in range(4)
)


def elsewhere(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call bakeoff in `place` on a system that is not Linux."""
    env = {**os.environ, "PYTHONPATH": str(SYSTEM), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "bakeoff", *words], cwd=place, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a table and a finished edition that was made on Linux."""
    (tmp_path / "t.csv").write_text(CSV)
    edition = make_edition(tmp_path, outcome=succeeds_with_series)
    add_trajectories(edition)
    return tmp_path


@pytest.mark.parametrize(
    "hidden",
    [
        "import fcntl",
        "os.O_NOFOLLOW",
        "os.fork",
        "os.sched_getaffinity(0)",
        "signal.SIGKILL",
        "socket.AF_UNIX",
        "open('/proc/self/stat')",
        "pathlib.Path('/proc/cpuinfo').read_text()",
        "os.open('.', os.O_RDONLY)",
        "pathlib.Path('link').symlink_to('x')",
        "ctypes.CDLL(None)",
        "subprocess.run(['true'])",
    ],
)
def test_what_only_linux_has_is_hidden_from_bakeoff_and_from_nothing_else(hidden: str, tmp_path: Path) -> None:
    text = f"import ctypes, os, pathlib, signal, socket, subprocess\n{hidden}\n"
    env = {**os.environ, "PYTHONPATH": str(SYSTEM)}
    for name, code in (("other", 0), ("bakeoff.made", 1)):
        words = f"import os\nexec(compile({text!r}, 'x', 'exec'), {{'__name__': {name!r}}})"
        done = subprocess.run([sys.executable, "-c", words], env=env, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == code, done.stderr.decode()


@pytest.mark.parametrize("source", ["t.csv", "sorting"])
@pytest.mark.parametrize(
    "verb",
    ["compare", "rank", "gate", "variance", "power", "calibrate", "summarize", "plot curves", "plot differences"],
)
def test_questions_are_answered_as_on_linux(verb: str, source: str, place: Path) -> None:
    if verb == "plot curves" and source == "t.csv":
        pytest.skip("a table has no curves")
    words = [*verb.split(), source]
    if verb == "plot curves":
        words += ["--metric", "loss"]
    if verb == "gate":
        words += ["--max-regression", "score=50%"]
    here = subprocess.run(
        [sys.executable, "-m", "bakeoff", *words], cwd=place, env={**os.environ, "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    there = elsewhere(place, *words)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
    assert here.returncode in (0, 3), here.stderr


def test_a_look_at_an_edition_is_recorded(place: Path) -> None:
    assert elsewhere(place, "compare", "sorting").returncode in (0, 3)
    with closing(Edition.open(find_edition("sorting", place / "bakeoff-runs"))) as edition:
        assert [look.verb for look in read_looks(edition)] == ["compare"]


def test_a_table_is_judged_and_a_run_is_refused_in_python(place: Path) -> None:
    text = "import bakeoff; print(bakeoff.compare('t.csv')[0].verdict); bakeoff.load('sorting.toml').run()"
    env = {**os.environ, "PYTHONPATH": str(SYSTEM)}
    done = subprocess.run([sys.executable, "-c", text], cwd=place, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "undecided\n"
    assert "UsageError: a run needs Linux, and this system is win32." in done.stderr


@pytest.mark.parametrize("words", ["ls", "ls sorting", "status", "status sorting", "validate sorting.toml", "report sorting", "collect sorting", "diff sorting sorting", "show sorting/RUN", "logs sorting/RUN", "export --format jsonl sorting"])  # fmt: skip
def test_editions_are_shown_and_reports_written(words: str, place: Path) -> None:
    runs = sorted(path.name for path in place.glob("bakeoff-runs/sorting/2*/runs/*"))
    done = elsewhere(place, *words.replace("RUN", runs[0]).split())
    assert done.returncode == 0, done.stderr


def test_links_and_pipes_in_an_edition_are_not_opened_where_there_is_no_openat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BY_DESCRIPTOR", False)
    home = tmp_path / "edition"
    (home / "runs").mkdir(parents=True)
    (home / "runs" / "out.txt").write_text("ours")
    (tmp_path / "secret.txt").write_text("theirs")
    (home / "link.txt").symlink_to(tmp_path / "secret.txt")
    (home / "folder").symlink_to(tmp_path)
    os.mkfifo(home / "pipe")
    assert files.read_inside(home, "runs/out.txt") == b"ours"
    for name, reason in (
        ("link.txt", "symbolic link"),
        ("folder/secret.txt", "symbolic link"),
        ("pipe", "not a regular file"),
        ("../secret.txt", "not the name of a file in it"),
        ("missing", "No such file"),
    ):
        with pytest.raises(OSError, match=reason):
            files.open_inside(home, name)


@pytest.mark.parametrize("words", ["run sorting.toml", "run sorting.toml --dry-run", "run missing.toml"])
def test_run_says_in_one_line_that_it_needs_linux_before_it_creates_anything(words: str, place: Path) -> None:
    before = sorted(place.rglob("*"))
    done = elsewhere(place, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: `bakeoff run` needs Linux, and this system is win32. "
        "Reading results (compare, rank, gate, plot, report, validate) works here.\n"
    )
    assert sorted(place.rglob("*")) == before
