"""Schedulers that start at the same instant make one edition, and a lost database connection is opened again."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from bakeoff.records.schema import LOCK
from support.processes import LONG, Lab, eventually

WAITING = 'jobs = 2\nseeds = 2\nparams = { command = "echo {seed} >> done; while ! [ -e flag ]; do sleep 0.02; done" }'


@pytest.fixture(autouse=True)
def _unmeasured(lab: Lab) -> None:
    lab.measured = False


def _start_together(lab: Lab, roots: list[str], *options: str) -> list[subprocess.Popen[str]]:
    return [lab.start("run", "trial.toml", "--root", root, *options) for root in roots]


def _one_works_and_the_others_are_told(lab: Lab, crowd: list[subprocess.Popen[str]]) -> None:
    eventually(lambda: sum(process.poll() is not None for process in crowd) == len(crowd) - 1, "all but one refuse")
    lab.write("flag", "")
    ends = [(process.communicate(timeout=LONG)[1], process.returncode) for process in crowd]
    assert Counter(code for _, code in ends) == {0: 1, 1: len(crowd) - 1}
    assert all("is being run" in told and "--wait" in told for told, code in ends if code)
    assert sorted((lab.place / "done").read_text().split()) == ["0", "1"]
    (lab.place / "done").unlink()
    (lab.place / "flag").unlink()


@pytest.mark.slow
def test_simultaneous_first_starts_make_one_edition(lab: Lab) -> None:
    lab.experiment(WAITING)
    for number in range(3):
        root = f"root-{number}"
        _one_works_and_the_others_are_told(lab, _start_together(lab, [root] * 3))
        assert len(list((lab.place / root / "trial").glob("2*"))) == 1


@pytest.mark.slow
def test_simultaneous_first_starts_that_wait_do_every_run_once(lab: Lab) -> None:
    lab.experiment('jobs = 2\nseeds = 8\nparams = { command = "echo {seed} >> done" }')
    crowd = _start_together(lab, ["root"] * 3, "--wait")
    assert [process.wait(timeout=LONG) for process in crowd] == [0, 0, 0]
    assert sorted(map(int, (lab.place / "done").read_text().split())) == list(range(8))


@pytest.mark.slow
def test_simultaneous_first_starts_with_postgresql_and_two_roots_make_one_edition(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    lab.experiment(WAITING)
    for number in range(3):
        url = lab.environment["BAKEOFF_DATABASE_URL"] = postgres_url()
        crowd = _start_together(lab, [f"a-{number}", f"b-{number}"])
        _one_works_and_the_others_are_told(lab, crowd)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT COUNT(*) FROM editions").fetchone() == (1,)
        done = lab.cli("run", "trial.toml", "--root", f"b-{number}")
        assert "complete already" in done.stdout, "whichever root it was begun from"


@pytest.mark.slow
def test_another_experiment_of_the_same_name_in_postgresql_is_left_alone(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    url = lab.environment["BAKEOFF_DATABASE_URL"] = postgres_url()
    for root in ("a", "b"):
        lab.experiment(f'params = {{ command = "echo {root}" }}')
        assert "1 succeeded" in lab.cli("run", "trial.toml", "--root", root).stdout
        eventually(lambda root=root: not (lab.place / root / "trial" / _stamp()).exists(), "the next second has begun")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT COUNT(*) FROM editions").fetchone() == (2,)


def _stamp() -> str:
    """What an edition that begins now is called."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


ONCE = """
import time
def run(ctx):
    with open("done", "a") as file: print(ctx.seed, file=file)
    time.sleep(0.02); ctx.log(1, x=ctx.seed)
    return {"value": ctx.seed}
"""
ENDING = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.mark.slow
def test_a_lost_connection_to_postgresql_is_opened_again_and_nothing_is_lost(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    url = lab.environment["BAKEOFF_DATABASE_URL"] = postgres_url()
    lab.experiment('workload = "python"\njobs = 2\nseeds = 200\nparams = { function = "once:run" }', once=ONCE)
    process = lab.start("run", "trial.toml")
    done = lab.place / "done"
    with psycopg.connect(url, autocommit=True) as killer:
        for count in range(10, 190, 15):
            eventually(lambda count=count: done.exists() and len(done.read_text().split()) > count, f"{count} runs")
            killer.execute(ENDING)
    assert process.wait(timeout=LONG) == 0
    assert sorted(map(int, done.read_text().split())) == list(range(200)), "none was done twice"
    rows = lab.rows()
    assert [(row["status"], row["value"], row["attempts"]) for row in rows] == [("succeeded", n, 1) for n in range(200)]
    assert lab.series(rows[7]["run_id"]) == {"x": [(1, 7.0)]}


@pytest.mark.slow
def test_a_session_whose_lock_was_taken_while_the_connection_was_lost_ends(
    lab: Lab, postgres_url: Callable[[], str]
) -> None:
    url = lab.environment["BAKEOFF_DATABASE_URL"] = postgres_url()
    lab.experiment('jobs = 1\nseeds = 2\nparams = { command = "touch began; sleep 600" }')
    process = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "began").exists(), "it runs")
    with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url, autocommit=True) as killer:
        (edition,) = other.execute("SELECT edition_id FROM editions").fetchone() or (0,)
        taking = threading.Thread(target=other.execute, args=(f"SELECT pg_advisory_lock({LOCK}, {edition})",))
        taking.start()
        eventually(
            lambda: killer.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone(), "it waits for the lock"
        )
        killer.execute(f"{ENDING} AND pid <> {other.info.backend_pid}")
        taking.join(timeout=LONG)
        _, told = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert "was taken over by another scheduler while the database was out of reach" in told and "Traceback" not in told
    eventually(lambda: not lab.processes(), "its runs are ended")
