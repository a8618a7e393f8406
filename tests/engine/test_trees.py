"""Runs that leave directories thousands of levels deep, paths that nothing can open, and times beyond every clock.

Each gets a result, the session ends, and what they left can be shown and deleted.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from bakeoff.engine.pilots import arrivals
from bakeoff.engine.pilots.packing import pack, unpack
from bakeoff.trees import copy_tree, remove_tree, storable_time, walk
from bakeoff.workloads.tasks import start
from support.process_pilots import install
from support.processes import Lab

DEEP = """
workload = "python"
seeds = 1
retries = { infra = 0, backoff = 0 }
arms = [{ name = "deep", params = { levels = 1100, name = "d" } }, { name = "long", params = { levels = 40, name = "%s" } }]
params = { function = "work:run" }
""" % ("n" * 200)
WORK = """
import os

def run(ctx, levels, name):
    home = os.getcwd()
    (ctx.directory / "file").write_text("kept")
    os.utime(ctx.directory / "file", (2.0**62, 2.0**62))
    os.chdir(ctx.directory)
    for _ in range(levels):
        os.mkdir(name)
        os.chdir(name)
    open("bottom", "w").close()
    os.chdir(home)
    return {"score": 1.0}
"""
PILOTS = """
[executor]
kind = "processes"
pilots = 1
slots = 2
expiry = 30
"""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Pytest could not delete it."""
    yield
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def levels(directory: Path) -> int:
    return sum(1 for _ in walk(directory)) - 1


@pytest.mark.slow
def test_a_run_with_a_very_deep_directory_is_recorded_shown_and_deleted(lab: Lab) -> None:
    lab.experiment(DEEP, work=WORK)
    lab.cli("run", "trial.toml")
    assert {row["status"] for row in lab.rows()} == {"succeeded"}
    run = next(row["run_id"] for row in lab.rows() if row["arm"] == "deep")
    assert levels(lab.directory() / "runs" / run) == 1100
    assert "bottom" in lab.cli("show", run).stdout
    lab.cli("rm", "trial", "--yes")
    assert not (lab.root / "trial").exists()


@pytest.mark.slow
def test_a_pilot_brings_a_very_deep_directory_home_and_fails_a_run_whose_paths_are_too_long(lab: Lab) -> None:
    """Were the second one no result of the run, one that is wrong could make such a path to be tried again."""
    install(lab)
    lab.measured = False
    lab.experiment(DEEP + PILOTS, work=WORK)
    lab.cli("run", "trial.toml", code=1)
    rows = {row["arm"]: row for row in lab.rows()}
    assert rows["deep"]["status"] == "succeeded", rows["deep"]["error"]
    assert levels(lab.directory() / "runs" / rows["deep"]["run_id"]) == 1100
    assert (rows["long"]["status"], rows["long"]["attempts"]) == ("failed", 1)
    assert "its directory could not be brought home" in rows["long"]["error"]


CLOSED = """
workload = "python"
seeds = 1
retries = { infra = 0, backoff = 0 }
arms = [
  { name = "file", params = { kind = "file" } },
  { name = "inner", params = { kind = "inner" } },
  { name = "whole", params = { kind = "whole" } },
  { name = "holes", params = { kind = "holes" } },
]
params = { function = "work:run" }
"""
CLOSED_WORK = """
import os

def run(ctx, kind):
    (ctx.directory / "inner").mkdir()
    (ctx.directory / "inner" / "file").write_text("kept")
    if kind == "holes":
        os.truncate(ctx.directory / "inner" / "file", 1 << 40)
    else:
        os.chmod(ctx.directory / {"file": "inner/file", "inner": "inner", "whole": "."}[kind], 0)
    return {"score": 1.0}
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def as_ordinary_user() -> None:
    """Let modes of files count for root, too: capabilities(7). Others cannot do this, and need not."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.slow
def test_what_a_run_closes_to_everybody_comes_home_and_files_of_holes_take_no_room(lab: Lab) -> None:
    """A run that closed its directory ended its pilot, and with it the runs of other arms."""
    install(lab)
    lab.measured = False
    lab.experiment(CLOSED + PILOTS, work=CLOSED_WORK)
    lab.cli("run", "trial.toml", preexec_fn=as_ordinary_user)
    rows = {row["arm"]: row for row in lab.rows()}
    assert {arm: row["status"] for arm, row in rows.items()} == dict.fromkeys(
        ("file", "inner", "whole", "holes"), "succeeded"
    )
    files = {arm: lab.directory() / "runs" / row["run_id"] / "inner" / "file" for arm, row in rows.items()}
    for file in files.values():
        with file.open() as content:
            assert content.read(4) == "kept"
    assert files["holes"].stat().st_size == 1 << 40 and files["holes"].stat().st_blocks < 1 << 11


def test_a_file_that_is_almost_only_holes_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(OSError, match="more than 1 GiB of holes"):
        pack(tmp_path, BytesIO())


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    top = tmp_path / "deep"
    top.mkdir()
    here = os.getcwd()
    try:
        os.chdir(top)
        for _ in range(1100):
            os.mkdir("d")
            os.chdir("d")
        Path("bottom").write_text("bottom")
    finally:
        os.chdir(here)
    return top


def test_a_deep_tree_is_copied_packed_and_unpacked(deep: Path, tmp_path: Path) -> None:
    copy_tree(deep, tmp_path / "copy")
    archive = BytesIO()
    pack(deep, archive)
    archive.seek(0)
    unpack(archive, tmp_path / "unpacked", sync=False)
    for place in (deep, tmp_path / "copy", tmp_path / "unpacked"):
        assert [name for _, _, names in walk(place) for name in names] == ["bottom"]
        assert levels(place) == 1100


def test_times_beyond_every_clock_become_the_nearest_that_fits(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("content")
    archive = BytesIO()
    pack(tmp_path / "source", archive)
    for time in (2.0**63, -(2.0**70), math.inf, math.nan, 0.0, 1e9):
        assert -(2**31) <= storable_time(time) < 2**34
    assert storable_time(1e9) == 1e9
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):  # there a file may have any time
        place = memory / f"bakeoff-test-{os.getpid()}"
        place.mkdir()
        try:
            (place / "file").write_text("content")
            os.utime(place / "file", ns=((2**63 - 1) * 10**9,) * 2)
            archive = BytesIO()
            pack(place, archive)
            archive.seek(0)
            unpack(archive, tmp_path / "unpacked", sync=False)
            assert (tmp_path / "unpacked" / "file").read_text() == "content"
        finally:
            remove_tree(place)


def test_a_deep_directory_is_imported_with_its_runs(lab: Lab, deep: Path) -> None:
    run = deep / "a_s0"
    run.mkdir()
    (run / "metrics.json").write_text('{"condition": "a", "seed": 0, "score": 1.0}')
    (deep / "d").rename(run / "d")
    lab.cli("import", deep, "--name", "old")
    [copied] = (lab.directory("old") / "runs").iterdir()
    assert levels(copied) == 1100


def test_a_task_with_directories_too_deep_to_copy_is_refused(lab: Lab, deep: Path) -> None:
    tasks = f'workload = "tasks"\narms = [{{ name = "a", params = {{ agent = "oracle" }} }}]\ntasks = [{{ name = "t", path = "{deep}" }}]\n'
    said = lab.cli("validate", lab.write("deep.toml", tasks), code=2).stderr
    assert "nested more than 400 levels deep" in said and "Traceback" not in said


@pytest.mark.parametrize("remove", [arrivals.remove, start.remove])
def test_a_link_to_a_name_that_no_call_takes_is_removed(remove: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("x" * 300)
    remove(tmp_path / "link")
    assert not os.path.lexists(tmp_path / "link")
