"""A run that was killed goes on from its checkpoint, and its curve is that of a run that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from bakeoff.records.rundir import CHECKPOINT, continued_attempts, set_aside, write_meta
from bakeoff.records.series import Series, read_block
from support.processes import Lab, eventually

STEPS = 30
SAVE = """
def save(place, step, state):
    new = place / "new"
    new.write_text(json.dumps([step, state]))
    new.replace(place / "state.json")

def saved(place):
    file = place / "state.json"
    return json.loads(file.read_text()) if file.exists() else (0, 0.0)
"""
FUNCTION = f"""
import json, pathlib, time
{SAVE}
def train(ctx, pause=0.0):
    step, state = saved(ctx.checkpoint)
    while step < {STEPS}:
        step += 1
        state = (state * 3 + step) % 101
        ctx.log(step, loss=state)
        if step % 3 == 0:
            save(ctx.checkpoint, step, state)
        time.sleep(pause)
    return {{"loss": state}}
"""
SCRIPT = f"""
import json, os, pathlib, sys, time
import bakeoff
{SAVE}
place = pathlib.Path(sys.argv[1])
assert str(place) == os.environ["BAKEOFF_CHECKPOINT_DIR"]
step, state = saved(place)
while step < {STEPS}:
    step += 1
    state = (state * 3 + step) % 101
    bakeoff.log(step, loss=state)
    if step % 3 == 0:
        save(place, step, state)
    time.sleep(float(sys.argv[2]))
bakeoff.finish(loss=state)
"""


def curve(lab: Lab, name: str = "trial") -> list[tuple[int, float]]:
    [row] = lab.rows(name)
    return lab.series(row["run_id"], name)["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["python", "command"])
def test_a_run_that_is_killed_three_times_ends_like_one_that_was_not(lab: Lab, workload: str) -> None:
    lab.write("trainer.py", FUNCTION)
    lab.write("script.py", SCRIPT)
    params = {
        "python": 'function = "trainer:train"\npause = ',
        "command": f'command = ["{sys.executable}", "script.py", "{{checkpoint}}", "{{pause}}"]\npause = ',
    }[workload]
    lab.experiment(f'workload = "{workload}"\n[params]\n{params}0.0\n', "quiet")
    lab.experiment(f'workload = "{workload}"\n[params]\n{params}0.05\n')
    lab.cli("run", "quiet.toml")
    expected = curve(lab, "quiet")
    for kill in range(1, 4):
        process = lab.start("run", "trial.toml")
        eventually(lambda kill=kill: _newest_step(lab) >= 6 * kill, "training goes on")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    lab.cli("run", "trial.toml")
    assert curve(lab) == expected
    assert [step for step, _ in expected] == list(range(1, STEPS + 1))
    [row] = lab.rows()
    assert (row["status"], row["loss"]) == ("succeeded", expected[-1][1])


def _newest_step(lab: Lab) -> int:
    steps = [0]
    for file in lab.root.glob("trial/2*/runs/*/metrics.jsonl"):
        steps += [json.loads(line)["step"] for line in file.read_text().splitlines() if line.endswith("}")]
    return max(steps)


def test_without_checkpoints_each_attempt_begins_with_an_empty_directory(lab: Lab) -> None:
    code = """
def train(ctx):
    known = sorted(path.name for path in ctx.checkpoint.iterdir())
    (ctx.checkpoint / f"attempt-{ctx.attempt}").touch()
    ctx.log(ctx.attempt, files=len(known))
    assert ctx.attempt == 3, known
    return len(known)
"""
    text = 'workload = "python"\nparams = { function = "trainer:train" }\nretries = { failed = 2, backoff = 0 }\n'
    lab.experiment(text, "kept", trainer=code)
    lab.experiment(text + "resume = { checkpoints = false }\n", "fresh")
    for name, files, curve in (("kept", 2, [(1, 0), (2, 1), (3, 2)]), ("fresh", 0, [(3, 0)])):
        lab.run(name)
        [row] = lab.rows(name)
        assert (row["status"], row["value"]) == ("succeeded", files)
        assert lab.series(row["run_id"], name)["files"] == curve


def test_a_link_in_place_of_the_checkpoint_is_not_followed(tmp_path: Path) -> None:
    directory, outside = tmp_path / "run", tmp_path / "outside"
    directory.mkdir()
    outside.mkdir()
    (directory / CHECKPOINT).symlink_to(outside)
    set_aside(directory, 0, checkpoint=True)
    assert not os.path.lexists(directory / CHECKPOINT)


def test_attempts_are_read_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).mkdir()
    for number, status in ((0, None), (0, None), (1, "failed"), (1, None), (2, "failed")):
        (tmp_path / "metrics.jsonl").write_text("{}\n")
        if status:
            write_meta(tmp_path, {"attempt": number, "status": status})
        set_aside(tmp_path, number, checkpoint=True)
    (tmp_path / "attempts" / "not-an-attempt").mkdir()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    attempts = ["1-lost", "1-lost-2", "1", "2-lost", "2"]
    assert continued_attempts(tmp_path) == [f"attempts/{name}" for name in attempts]
    (tmp_path / CHECKPOINT).rmdir()
    assert continued_attempts(tmp_path) == []


def test_of_a_step_that_two_attempts_did_only_the_later_one_counts() -> None:
    first, second = Series(), Series()
    for step in range(5):
        first.add(step, {"loss": step, "only_first": step} if step > 3 else {"loss": step})
    for step in range(3, 6):
        second.add(step, {"loss": 10.0 * step})
    columns = read_block(first.continued(second).block())
    assert {name: steps.tolist() for name, (steps, _) in columns.items()} == {"loss": [0, 1, 2, 3, 4, 5]}
    assert columns["loss"][1].tolist() == [0, 1, 2, 30, 40, 50]
