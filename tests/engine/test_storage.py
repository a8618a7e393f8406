"""Disks that are full, read-only or gone: a clear word each, the right exit code, and nothing lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.records.run import Tally
from bakeoff.records.schema import VERSION
from support.processes import LONG, Lab, eventually, reported

WORDY = "def run(seed): return {'value': seed, 'text': 'x' * 20_000}"
WORDY_FILE = 'workload = "python"\nseeds = 300\njobs = 2\nparams = { function = "wordy:run" }'


@pytest.fixture
def disk(lab: Lab) -> Iterator[Callable[[str], None]]:
    """`disk("size=10m")` puts the lab's results on a small file system of its own, or changes it."""
    lab.root.mkdir()
    lab.measured = False  # a scheduler that cannot record kills its workers

    def mount(options: str) -> None:
        again = "remount," if os.path.ismount(lab.root) else ""
        subprocess.run(["mount", "-t", "tmpfs", "-o", again + options, "bakeoff-test", str(lab.root)], check=True)

    yield mount
    if os.path.ismount(lab.root):
        subprocess.run(["umount", "--lazy", str(lab.root)], check=True)


@pytest.mark.root
def test_a_disk_that_fills_up_stops_the_experiment_and_loses_nothing_that_was_reported(
    lab: Lab, disk: Callable[[str], None]
) -> None:
    disk("size=4m")
    lab.experiment(WORDY_FILE, wordy=WORDY)
    done = lab.cli("run", "trial.toml", "-v", code=1)
    assert "could not be recorded" in done.stderr and "full" in done.stderr
    assert "What was reported is safe; the same command does the rest" in done.stderr
    assert "Traceback" not in done.stderr
    told = reported(done.stderr)
    disk("size=64m")
    recorded = {row["run_id"]: row for row in lab.rows()}
    assert 0 < len(told) < 300
    assert all(recorded[run_id]["status"] == "succeeded" for run_id in told)
    again = lab.cli("run", "trial.toml", "-v")
    assert not set(told) & set(reported(again.stderr)), "done twice"
    rows = lab.rows()
    assert [row["value"] for row in rows] == list(range(300)) and {row["attempts"] for row in rows} == {1}


@pytest.mark.root
def test_a_disk_that_is_emptied_in_time_stops_nothing(lab: Lab, disk: Callable[[str], None]) -> None:
    disk("size=4m")
    lab.experiment(WORDY_FILE, wordy=WORDY)
    process = lab.start("run", "trial.toml", "-v", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: os.statvfs(lab.root).f_bavail * os.statvfs(lab.root).f_frsize < 50_000, "the disk is full")
    disk("size=64m")
    assert process.wait(timeout=LONG) == 0
    assert {row["status"] for row in lab.rows()} == {"succeeded"}


@pytest.mark.root
def test_a_run_that_fills_the_disk_is_not_the_arms_failure(lab: Lab, disk: Callable[[str], None]) -> None:
    disk("size=8m")
    lab.experiment('retries = { infra = 0 }\nparams = { command = "head -c 20M /dev/zero && echo whole" }')
    done = lab.cli("run", "trial.toml", code=1)
    assert "disk is full" in done.stderr
    disk("size=64m")
    with closing(lab.edition()) as edition:  # whether there is room to record it or not, the run counts as missing
        assert Tally.of(edition.counts()) == Tally(planned=1, succeeded=0, failed=0, missing=1)
    lab.cli("run", "trial.toml")
    assert [row["status"] for row in lab.rows()] == ["succeeded"]


@pytest.mark.root
def test_a_disk_that_is_full_from_the_start_is_told_and_the_same_command_works_later(
    lab: Lab, disk: Callable[[str], None]
) -> None:
    disk("size=64k")
    lab.experiment(WORDY_FILE, wordy=WORDY)
    done = lab.cli("run", "trial.toml", code=1)
    assert "experiment.db: database or disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    disk("size=64m")
    lab.cli("run", "trial.toml")
    assert len(lab.rows()) == 300


@pytest.mark.root
def test_a_root_that_became_read_only_is_told_and_nothing_is_lost(lab: Lab, disk: Callable[[str], None]) -> None:
    disk("size=16m")
    lab.experiment('seeds = 6\nparams = { command = "echo {{}}" }')
    lab.cli("run", "trial.toml", "--only", "seed<3", code=0)
    disk("ro")
    for more in ((), ("--fresh",), ("--only", "seed<3"), ("--dry-run",)):
        done = lab.cli("run", "trial.toml", *more, code=1)
        assert "Read-only file system" in done.stderr and str(lab.root) in done.stderr
        assert "Traceback" not in done.stderr
    disk("rw")
    lab.cli("run", "trial.toml")
    assert [row["attempts"] for row in lab.rows()] == [1] * 6


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/proc/bakeoff", "/dev/null/results"])
def test_a_root_that_cannot_be_written_is_told(lab: Lab, place: str) -> None:
    lab.experiment('params = { command = "true" }')
    done = lab.cli("run", "trial.toml", "--root", place, code=1)
    assert "cannot make a directory for results" in done.stderr and place in done.stderr


@pytest.mark.slow
def test_a_database_from_a_newer_version_is_left_alone(lab: Lab) -> None:
    lab.experiment('seeds = 2\nparams = { command = "true" }')
    lab.run(only="seed=0")
    database = lab.directory() / "experiment.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (VERSION + 1,))
    connection.close()
    before = database.read_bytes()
    done = lab.cli("run", "trial.toml", code=1)
    assert f"written by a newer bakeoff (schema {VERSION + 1}; this one knows {VERSION})" in done.stderr
    assert database.read_bytes() == before
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (VERSION,))
    connection.close()
    lab.cli("run", "trial.toml")


def test_a_database_that_is_none_is_told(lab: Lab) -> None:
    lab.experiment('params = { command = "true" }')
    lab.run()
    database = lab.directory() / "experiment.db"
    database.write_bytes(b"this is no database at all, whatever its name says" * 100)
    done = lab.cli("run", "trial.toml", code=1)
    assert f"{database}: " in done.stderr and "not a database" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_directory_deleted_afterwards_is_not_missed_by_resume_and_told_by_logs(lab: Lab) -> None:
    command = """echo hello; test {seed} = 0 || echo '{{"x": 1}}' """
    lab.experiment(f"seeds = 2\nparams = {{ command = '''{command}''' }}")
    lab.run()
    rows = lab.rows()
    shutil.rmtree(lab.directory() / "runs")
    done = lab.cli("run", "trial.toml")
    assert "complete already; 2 succeeded" in done.stdout
    mute, reporting = (row["run_id"] for row in rows)
    silence = lab.cli("logs", mute, code=1).stderr
    assert silence == f"{mute} has no directory: it wrote nothing, or the directory was deleted by hand\n"
    silence = lab.cli("logs", reporting, code=1).stderr
    assert silence == (
        f"{lab.run_directory(reporting)} was deleted by hand: the output of {reporting} is gone, "
        "its result is still recorded\n"
    )
    assert lab.rows() == rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_a_run_directory_deleted_during_the_run_costs_no_output(lab: Lab, kind: str) -> None:
    code = """
import time
def run(ctx):
    print("before", flush=True)
    ctx.log(1, loss=1.0)
    while not (ctx.base / "flag").exists(): time.sleep(0.02)
    print("after")
    ctx.log(2, loss=0.5)
"""
    script = "echo before; while ! [ -e flag ]; do sleep 0.02; done; echo after"
    if kind == "command":
        lab.experiment(f'params = {{ command = "{script}" }}')
    else:
        lab.experiment('workload = "python"\nparams = { function = "slow:run" }', slow=code)
    process = lab.start("run", "trial.toml")
    directory = eventually(lambda: list(lab.root.glob("trial/*/runs/*/stdout.txt")), "the run's directory")[0].parent
    shutil.rmtree(directory)
    lab.write("flag", "")
    assert process.wait(timeout=LONG) == 0
    (row,) = lab.rows()
    assert (directory / "stdout.txt").read_text() == "before\nafter\n"
    assert (directory / "meta.json").exists()
    if kind == "python":
        assert lab.series(row["run_id"]) == {"loss": [(1, 1.0), (2, 0.5)]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_an_experiment_deleted_while_it_runs_ends_with_a_clear_word(lab: Lab, kind: str) -> None:
    """SQLite alone would go on writing into the deleted file, and every result would be lost in silence."""
    lab.measured = False
    if kind == "command":
        lab.experiment('seeds = 1000\njobs = 2\nparams = { command = "sleep 0.02" }')
    else:
        code = "import time\ndef run(): time.sleep(0.02)"
        lab.experiment('workload = "python"\nseeds = 1000\njobs = 2\nparams = { function = "nap:run" }', nap=code)
    process = lab.start("run", "trial.toml", stdout=subprocess.DEVNULL)
    eventually(lambda: lab.statuses()["succeeded"], "it runs")
    shutil.rmtree(lab.root / "trial")
    assert process.wait(timeout=LONG) == 1
    assert process.stderr is not None
    told = process.stderr.read()
    assert "error: " in told and "Traceback" not in told
    eventually(lambda: not lab.processes(), "nothing is left")


def test_a_missing_variable_is_told_before_anything_is_made(lab: Lab) -> None:
    lab.experiment('env = { TOKEN = "${NOT_SET_ANYWHERE}" }\nparams = { command = "true" }')
    done = lab.cli("run", "trial.toml", code=2)
    assert "${NOT_SET_ANYWHERE} is not set" in done.stderr
    assert not lab.root.exists()


def test_results_in_postgresql_are_not_hidden_by_a_call_without_its_url(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    lab.experiment('seeds = 2\nparams = { command = "true" }')
    url = postgres_url()
    lab.environment["BAKEOFF_DATABASE_URL"] = url
    lab.cli("run", "trial.toml", "--only", "seed=0")
    lab.environment["BAKEOFF_DATABASE_URL"] = ""
    done = lab.cli("run", "trial.toml", code=2)
    assert "set BAKEOFF_DATABASE_URL" in done.stderr
    lab.environment["BAKEOFF_DATABASE_URL"] = url
    assert "1 succeeded, 0 failed" in lab.cli("run", "trial.toml", "--only", "seed=0").stdout
    assert Path(lab.directory() / "experiment.db").exists() is False
