"""`bakeoff.log` and `bakeoff.finish` in a user's own script: under the scheduler, in a worker, and on its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from support.processes import LONG, Lab, eventually

SCRIPT = """
import sys, bakeoff
for step in range(5):
    bakeoff.log(step, loss=1 / (step + 1), size=step)
bakeoff.finish(score=int(sys.argv[1]) * 2)
bakeoff.finish(extra=0.5)
"""
IN_PROCESS = """
import bakeoff
def run(seed):
    for step in range(5):
        bakeoff.log(step, loss=1 / (step + 1), size=step)
    bakeoff.finish(score=seed * 2)
    bakeoff.finish(extra=0.5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_a_script_reports_to_the_scheduler_around_it(lab: Lab, kind: str) -> None:
    lab.write("script.py", SCRIPT)
    if kind == "command":
        command = f'["{sys.executable}", "script.py", "{{seed}}"]'
        lab.experiment(f"seeds = 2\nparams = {{ command = {command} }}")
    else:
        lab.experiment('workload = "python"\nseeds = 2\nparams = { function = "inside:run" }', inside=IN_PROCESS)
    lab.run()
    rows = lab.rows()
    assert [(row["status"], row["score"], row["extra"]) for row in rows] == [
        ("succeeded", 0, 0.5),
        ("succeeded", 2, 0.5),
    ]
    assert lab.series(rows[1]["run_id"]) == {
        "loss": [(step, 1 / (step + 1)) for step in range(5)],
        "size": [(step, float(step)) for step in range(5)],
    }


def test_a_script_on_its_own_makes_a_place_for_itself(lab: Lab) -> None:
    lab.write("script.py", SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", "4"], cwd=lab.place, env=lab.env(), capture_output=True, text=True, check=True
    )
    (directory,) = (lab.place / "bakeoff-runs" / "standalone").iterdir()
    assert f"bakeoff: logging to {directory}" in done.stderr
    assert json.loads((directory / "metrics.json").read_text()) == {"score": 8, "extra": 0.5}
    assert len((directory / "metrics.jsonl").read_text().splitlines()) == 5


@pytest.mark.slow
def test_the_series_of_a_long_run_can_be_read_while_it_runs_and_is_kept_when_it_is_killed(lab: Lab) -> None:
    code = """
import os, time
def run(ctx):
    step = 0
    (ctx.base / "pid").write_text(str(os.getpid()))
    while True:
        ctx.log(step, loss=1.0 / (step + 1)); step += 1
        time.sleep(0.01)
"""
    lab.experiment('workload = "python"\nparams = { function = "long:run" }', long=code)
    process = lab.start("run", "trial.toml")
    path = eventually(lambda: list(lab.root.glob("trial/2*/runs/*/metrics.jsonl")), "metrics.jsonl")[0]
    eventually(lambda: len(path.read_text().splitlines()) > 100, "it grows")
    assert process.poll() is None
    os.kill(int((lab.place / "pid").read_text()), signal.SIGTERM)
    assert process.wait(timeout=LONG) == 1
    (row,) = lab.rows()
    assert (row["status"], row["error"]) == ("failed", "killed by SIGTERM")
    steps = lab.series(row["run_id"])["loss"]
    assert [step for step, _ in steps] == list(range(len(steps))) and len(steps) > 100
    assert len(path.read_text().splitlines()) == len(steps), "no line is lost between run and housekeeper"


@pytest.mark.slow
def test_the_series_of_a_command_is_taken_in_when_it_is_ended(lab: Lab) -> None:
    lab.experiment(
        """
limits = { time = 1 }
[params]
command = '''mkdir -p {dir}; echo '{{"step": 3, "loss": 0.5}}' > {dir}/metrics.jsonl; printf '{{"step": 4, "lo' >> {dir}/metrics.jsonl; sleep 600'''
"""
    )
    lab.run()
    (row,) = lab.rows()
    assert row["status"] == "timeout" and lab.series(row["run_id"]) == {"loss": [(3, 0.5)]}


def test_trajectories_are_indexed(lab: Lab) -> None:
    code = """
from bakeoff import Step
def run(ctx):
    for number in range(10): ctx.trajectory(Step(observation=[number], action=1, reward=0.5))
"""
    lab.experiment('workload = "python"\nparams = { function = "walk:run" }', walk=code)
    lab.run()
    (row,) = lab.rows()
    edition = lab.edition()
    (found,) = edition.database.rows("SELECT path, steps, reward FROM trajectories")
    edition.close()
    assert found == ("trajectory.jsonl.zst", 10, 5.0)
    assert (lab.run_directory(row["run_id"]) / "trajectory.jsonl.zst").stat().st_size > 0
