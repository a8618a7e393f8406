"""Two schedulers on one experiment: the second refuses or waits, and never is a run done twice."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from bakeoff.errors import LeaseHeld
from bakeoff.records import layout
from bakeoff.records.layout import Lease
from support.processes import LONG, Lab, eventually, reported
from support.simulated_cluster import Clock

MARKING = 'jobs = 2\nseeds = 6\nparams = { command = "echo {seed} >> done; while ! [ -e flag ]; do sleep 0.02; done" }'


@pytest.fixture(autouse=True)
def _unmeasured(lab: Lab) -> None:
    lab.measured = False


@pytest.mark.slow
def test_the_second_scheduler_refuses_and_names_the_first(lab: Lab) -> None:
    lab.experiment(MARKING)
    first = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "done").exists(), "the first one works")
    second = lab.cli("run", "trial.toml", code=1)
    assert f"trial/{lab.directory().name} is being run by process {first.pid} on" in second.stderr
    assert "--wait" in second.stderr and "--fresh" in second.stderr
    lab.write("flag", "")
    assert first.wait(timeout=LONG) == 0
    assert sorted((lab.place / "done").read_text().split()) == list("012345")


@pytest.mark.slow
def test_wait_waits_for_the_first_and_finds_nothing_left_to_do(lab: Lab) -> None:
    lab.experiment(MARKING)
    first = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "done").exists(), "the first one works")
    second = lab.start("run", "trial.toml", "--wait")
    lab.write("flag", "")
    assert first.wait(timeout=LONG) == 0
    assert second.wait(timeout=LONG) == 0
    assert second.stdout is not None and "complete already" in second.stdout.read()
    assert sorted((lab.place / "done").read_text().split()) == list("012345")


@pytest.mark.slow
def test_wait_takes_over_when_the_first_is_killed(lab: Lab) -> None:
    lab.experiment(MARKING)
    first = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "done").exists(), "the first one works")
    second = lab.start("run", "trial.toml", "--wait")
    lab.write("flag", "")
    first.kill()
    assert second.wait(timeout=LONG) == 0
    assert {row["status"] for row in lab.rows()} == {"succeeded"}


@pytest.mark.slow
def test_a_new_edition_runs_beside_the_first(lab: Lab) -> None:
    lab.experiment(MARKING)
    first = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "done").exists(), "the first one works")
    second = lab.start("run", "trial.toml", "--fresh")
    eventually(lambda: len(list((lab.root / "trial").glob("*/.lease"))) == 2, "a second edition")
    lab.write("flag", "")
    assert (first.wait(timeout=LONG), second.wait(timeout=LONG)) == (0, 0)
    done = (lab.place / "done").read_text().split()
    assert sorted(done) == sorted("012345" * 2)
    assert {row["attempts"] for row in lab.rows()} == {1}, "the supervisor of one leaves the other's runs alone"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_resuming_a_copy_leaves_the_originals_runs_alone(lab: Lab, kind: str) -> None:
    if kind == "command":
        lab.experiment(MARKING)
    else:
        code = """
import time
def run(ctx):
    with open("done", "a") as file: print(ctx.seed, file=file)
    while not (ctx.base / "flag").exists(): time.sleep(0.02)
"""
        lab.experiment('workload = "python"\njobs = 2\nseeds = 6\nparams = { function = "waits:run" }', waits=code)
    first = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "done").exists() and len((lab.place / "done").read_text().split()) == 2, "two run")
    subprocess.run(["cp", "-a", lab.root, lab.place / "copy"], check=True)
    copy = lab.start("run", "trial.toml", "--root", "copy")
    eventually(lambda: len((lab.place / "done").read_text().split()) == 4, "the copy does its own two")
    lab.write("flag", "")
    assert (first.wait(timeout=LONG), copy.wait(timeout=LONG)) == (0, 0)
    assert [(row["status"], row["attempts"]) for row in lab.rows()] == [("succeeded", 1)] * 6


@pytest.mark.slow
def test_many_schedulers_at_once_do_every_run_once(lab: Lab) -> None:
    lab.experiment('jobs = 2\nseeds = 20\nparams = { command = "echo {seed} >> done" }')
    lab.run(only="seed=0")
    crowd = [lab.start("run", "trial.toml", "--wait", stderr=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(timeout=LONG) for process in crowd] == [0] * 4
    assert sorted(map(int, (lab.place / "done").read_text().split())) == list(range(20))


def test_an_error_gives_the_lease_back(lab: Lab) -> None:
    lab.experiment('seeds = 2\nparams = { command = "true" }')
    lab.run()
    lab.experiment('seeds = 2\nparams = { command = "echo other" }')
    for _ in range(2):
        try:
            lab.run()
        except Exception as error:
            assert "other runs" in str(error)
    lab.run(fresh=True)


def test_the_whole_experiment_lives_in_postgresql_and_survives_kill_9(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    url = postgres_url()
    lab.environment["BAKEOFF_DATABASE_URL"] = url
    code = "import time\ndef run(ctx): time.sleep(0.01); ctx.log(1, x=ctx.seed); return {'value': ctx.seed}"
    lab.experiment('workload = "python"\njobs = 2\nseeds = 120\nparams = { function = "work:run" }', work=code)
    told: dict[str, str] = {}
    for number in range(4):
        log = lab.place / f"{number}.log"
        with log.open("wb") as stderr:
            process = lab.start("run", "trial.toml", "-v", stdout=subprocess.DEVNULL, stderr=stderr)
        eventually(lambda log=log: len(reported(log.read_text())) >= 15, "fifteen runs")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=LONG)
        told |= reported(log.read_text())
    with psycopg.connect(url) as connection:
        succeeded = {row[0] for row in connection.execute("SELECT run_id FROM runs WHERE status = 'succeeded'")}
    assert set(told) <= succeeded
    last = lab.cli("run", "trial.toml", "-v")
    assert not set(told) & set(reported(last.stderr))
    rows = lab.rows()
    assert [row["value"] for row in rows] == list(range(120)) and {row["status"] for row in rows} == {"succeeded"}
    assert lab.series(rows[7]["run_id"]) == {"x": [(1, 7.0)]}
    assert not (lab.directory() / "experiment.db").exists()


def test_postgresql_refuses_a_second_scheduler_from_elsewhere(lab: Lab, postgres_url: Callable[[], str]) -> None:
    lab.environment["BAKEOFF_DATABASE_URL"] = postgres_url()
    lab.experiment('seeds = 2\nparams = { command = "true" }')
    lab.run(only="seed=0")
    with closing(lab.edition()) as elsewhere:
        elsewhere.lock()
        assert "is being run from another machine" in lab.cli("run", "trial.toml", code=1).stderr
        waiting = lab.start("run", "trial.toml", "--wait")
    assert waiting.wait(timeout=LONG) == 0


class _Beating(Clock):
    """A clock for `layout`; while time passes on it, another machine does something."""

    beat: Callable[[], object] | None = None
    gmtime, strftime = staticmethod(time.gmtime), staticmethod(time.strftime)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.beat is not None:
            self.beat()


def test_on_a_network_file_system_another_machines_lease_is_watched_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock does not reach this machine: only what the file says does."""
    clock = _Beating()
    monkeypatch.setattr(layout, "time", clock)
    path = tmp_path / "trial" / "edition" / ".lease"
    path.parent.mkdir(parents=True)
    first = Lease(path, network=True)
    theirs = json.loads(path.read_text())
    fcntl.flock(first._file, fcntl.LOCK_UN)
    path.write_text(json.dumps({**theirs, "host": "elsewhere"}))

    clock.beat = lambda: path.write_text(json.dumps({**theirs, "host": "elsewhere", "beat": clock.monotonic()}))
    with pytest.raises(LeaseHeld, match=r"is being run by process .* on elsewhere"):
        Lease(path, network=True)
    clock.beat, silent_since = None, clock.monotonic()
    second = Lease(path, network=True)  # nothing changed for long enough: that machine is gone
    assert clock.monotonic() - silent_since >= layout.LEASE_EXPIRES
    with pytest.raises(LeaseHeld, match="was taken over by process"):
        first.renew()
    clock.sleep(layout.LEASE_EXPIRES)
    second.renew()
    second.close()
    first.close()
    assert json.loads(path.read_text())["over"]
    Lease(path, network=True).close()  # given back: nobody has to be watched
