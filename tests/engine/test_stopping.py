"""Ctrl-C, SIGTERM and fail-fast: what is running ends as asked, nothing is lost, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.processes import LONG, Lab, eventually

NAPS = 'jobs = 2\nseeds = 2000\nparams = { command = "sleep 0.1" }'
STUBBORN = """jobs = 2\nseeds = 4\nlimits = { grace = 0.3 }
[params]
command = '''mkdir -p {dir}; touch {dir}/began; trap "" TERM; test -e flag || sleep 600; test -e flag || sleep 600'''"""


def _interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    """As a terminal does: the whole foreground group gets it."""
    os.killpg(process.pid, number)


def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=LONG)
    return process.returncode, stdout, stderr


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), [("command", signal.SIGINT), ("python", signal.SIGTERM)])
def test_once_starts_nothing_more_and_lets_running_ones_finish(lab: Lab, kind: str, number: int) -> None:
    if kind == "command":
        lab.experiment(NAPS)
    else:
        text = 'workload = "python"\njobs = 2\nseeds = 2000\nparams = { function = "nap:run" }'
        lab.experiment(text, nap="import time\ndef run(): time.sleep(0.1)")
    process = lab.start("run", "trial.toml")
    eventually(lambda: lab.statuses()["succeeded"] >= 3, "some are done")
    _interrupt(process, number)
    code, stdout, stderr = _ended(process)
    assert code == 130
    assert "starting nothing more" in stderr
    assert "interrupted" in stdout and "the same command continues from here" in stdout
    counts = lab.statuses()
    assert set(counts) == {"succeeded", "planned"} and counts["planned"] > 100
    lab.cli("run", "trial.toml", "--only", "seed<20")
    assert all(row["attempts"] == 1 for row in lab.rows() if row["seed"] < 20)


def test_a_signal_to_the_group_never_hits_a_run_that_is_just_being_started(lab: Lab) -> None:
    lab.experiment('jobs = 2\nseeds = 60\nparams = { command = "true" }')
    code = """
import os, signal, time
import bakeoff
signal.signal(signal.SIGINT, lambda *_: None)
scheduler = os.getpid()
if (pid := os.fork()) == 0:
    while os.getppid() == scheduler:
        os.killpg(scheduler, signal.SIGINT)
        time.sleep(0.001)
    os._exit(0)
bakeoff.load("trial.toml").run()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=lab.place, env=lab.env(), start_new_session=True, timeout=LONG
    )
    assert done.returncode == 0
    assert {(row["status"], row["attempts"], row["error"]) for row in lab.rows()} == {("succeeded", 1, None)}


@pytest.mark.slow
def test_twice_ends_what_is_running_too(lab: Lab) -> None:
    lab.experiment(STUBBORN)
    log = lab.place / "stderr.txt"
    with log.open("wb") as stderr:
        process = lab.start("run", "trial.toml", stderr=stderr)
    eventually(lambda: len(list(lab.root.glob("trial/2*/runs/*/began"))) == 2, "two are running")
    _interrupt(process)
    eventually(lambda: "starting nothing more" in log.read_text(), "the first signal is noticed")
    assert process.poll() is None, "once lets them finish"
    _interrupt(process)
    code, stdout, _ = _ended(process)
    assert code == 130 and "killing 2 that are running" in log.read_text()
    assert lab.statuses() == {"cancelled": 2, "planned": 2}
    assert "4 missing" in stdout
    lab.write("flag", "")
    lab.cli("run", "trial.toml")
    assert [row["status"] for row in lab.rows()] == ["succeeded"] * 4
    first = lab.attempts(lab.rows()[0]["run_id"])
    assert [entry["status"] for entry in first] == ["cancelled", "succeeded"]
    assert (lab.run_directory(lab.rows()[0]["run_id"]) / "attempts" / "1" / "began").exists()


@pytest.mark.slow
def test_an_interrupt_that_comes_when_all_is_done_is_no_interruption(lab: Lab) -> None:
    wait = "touch began-{seed}; until [ -e flag ]; do sleep 0.02; done"
    lab.experiment(f'jobs = 2\nseeds = 2\nparams = {{ command = "{wait}" }}')
    log = lab.place / "stderr.txt"
    with log.open("wb") as stderr:
        process = lab.start("run", "trial.toml", stderr=stderr)
    eventually(lambda: len(list(lab.place.glob("began-*"))) == 2, "both run")
    _interrupt(process)
    eventually(lambda: "starting nothing more" in log.read_text(), "the signal is noticed")
    lab.write("flag", "")
    assert _ended(process)[0] == 0


def test_interrupting_during_the_pause_before_a_retry_does_not_wait_for_it(lab: Lab) -> None:
    lab.experiment('retries = { backoff = 600 }\nparams = { command = "exit 75", infra_exit_codes = [75] }')
    process = lab.start("run", "trial.toml", "-v", stderr=subprocess.DEVNULL)
    eventually(lambda: lab.rows() and lab.rows()[0]["attempts"] == 1 if lab.statuses() else False, "the first try")
    _interrupt(process)
    assert process.wait(timeout=40) == 130, "the pause would be a minute"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_fail_fast_ends_what_is_running_and_says_so(lab: Lab, kind: str) -> None:
    if kind == "command":
        lab.experiment(
            """jobs = 2\nseeds = 10
[params]
command = '''if [ {seed} = 1 ] && ! [ -e flag ]; then while ! [ -e began ]; do sleep 0.02; done; exit 3; fi
test -e flag || {{ touch began; sleep 600; }}'''"""
        )
        error = "exit code 3"
    else:
        code = """
import time
def run(ctx):
    if (ctx.base / "flag").exists(): return
    if ctx.seed == 1:
        while not (ctx.base / "began").exists(): time.sleep(0.02)
        raise ValueError("no good")
    (ctx.base / "began").touch(); time.sleep(600)
"""
        text = 'workload = "python"\njobs = 2\nseeds = 10\nparams = { function = "some:run" }'
        lab.experiment(text, some=code)
        error = "ValueError: no good"
    done = lab.cli("run", "trial.toml", "--fail-fast", code=1)
    assert "stopped at the first failure: default__s1__" in done.stdout and error in done.stdout
    assert lab.statuses() == {"failed": 1, "cancelled": 1, "planned": 8}
    lab.write("flag", "")
    lab.cli("run", "trial.toml", code=1)
    assert lab.statuses() == {"succeeded": 9, "failed": 1}


def test_keep_going_is_the_default(lab: Lab) -> None:
    lab.experiment('jobs = 2\nseeds = 6\nparams = { command = "test {seed} != 1" }')
    lab.cli("run", "trial.toml", code=1)
    assert lab.statuses() == {"succeeded": 5, "failed": 1}


def test_a_session_whose_runs_fail_too_often_stops_and_the_same_command_goes_on(lab: Lab) -> None:
    command = "test {seed} -ge 6 || exit 1"  # 6 of the first 20, and none after them
    lab.experiment(f"jobs = 1\nseeds = 60\nlimits = {{ failures = 0.25 }}\nparams = {{ command = '{command}' }}")
    done = lab.cli("run", "trial.toml", code=1)
    assert "6 of 20 runs failed, and limits.failures is 0.25" in done.stdout
    assert lab.statuses() == {"failed": 6, "succeeded": 14, "planned": 40}
    lab.cli("run", "trial.toml", code=1)  # 1: some runs failed
    assert lab.statuses() == {"failed": 6, "succeeded": 54}


def test_failures_below_the_limit_stop_nothing(lab: Lab) -> None:
    lab.experiment("jobs = 1\nseeds = 40\nlimits = { failures = 0.5 }\nparams = { command = 'exit $(({seed} % 2))' }")
    lab.cli("run", "trial.toml", code=1)
    assert lab.statuses() == {"failed": 20, "succeeded": 20}
