"""A clock that is set while runs go on makes no timeout, no negative duration, and uses up no budget."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing

import pytest

from support.processes import LONG, Lab, eventually

STEPPING = """
import os, time
real = time.time
def stepped():
    try: return real() + float(open(os.environ["CLOCK_STEP"]).read() or 0)
    except OSError: return real()
time.time = stepped
"""
"""Beside every Python process of the lab: what `date --set` does to time.time(), and only to that."""


@pytest.fixture
def stepping(lab: Lab) -> Lab:
    lab.write("site/sitecustomize.py", STEPPING)
    path = os.pathsep.join([str(lab.place / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    lab.environment |= {"PYTHONPATH": path, "CLOCK_STEP": str(lab.place / "step")}
    return lab


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_a_clock_that_is_set_changes_neither_limits_nor_durations(stepping: Lab, kind: str) -> None:
    text = "seeds = 4\njobs = 1\nlimits = { time = 3600 }\nbudget = { time = 3600 }\n"
    if kind == "command":
        stepping.experiment(
            text + "params = { command = 'sleep 0.1; echo $(( {seed} % 2 ? -7200 : 7200 )) > step; sleep 0.2' }"
        )
    else:
        code = """
import time
def run(ctx):
    time.sleep(0.1)
    (ctx.base / "step").write_text(str(-7200 if ctx.seed % 2 else 7200))
    time.sleep(0.2)
"""
        stepping.experiment(text + 'workload = "python"\nparams = { function = "sets:run" }', sets=code)
    stepping.cli("run", "trial.toml")
    with closing(stepping.edition()) as edition:
        runs = list(edition.runs())
        assert [run.status for run in runs] == ["succeeded"] * 4
        assert all(0.29 < (run.wall_s or 0.0) < 3600 for run in runs), "the clock was set by 7,200 s"
        assert 1.0 < edition.time_spent() < 3600


@pytest.mark.slow
def test_a_command_that_ended_while_the_scheduler_was_stopped_is_not_late(lab: Lab) -> None:
    """Ctrl-Z, or a disk that hangs: the run ended in time, and nobody was there to see it."""
    lab.experiment("limits = { time = 4 }\nparams = { command = 'echo $$$$ > pid; sleep 0.3; touch over' }")
    process = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "pid").exists(), "it runs")
    os.kill(process.pid, signal.SIGSTOP)
    over = lab.place / "over"
    eventually(lambda: over.exists() and time.time() - over.stat().st_mtime > 4.0, "it ended, and its limit passed")
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(timeout=LONG) == 0
    assert [row["status"] for row in lab.rows()] == ["succeeded"]
