"""Pilots as plain processes over a spool: results as local ones, losses, fencing, adoption."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.engine.pilots.messages import Report, Upward, decode_upward
from bakeoff.engine.pilots.spool import Reader
from bakeoff.records.claims import list_claims, list_nodes
from support.process_pilots import install, kill, pilots_of
from support.processes import LONG, Lab, eventually

EXECUTOR = """
[executor]
kind = "processes"
pilots = 2
slots = 2
expiry = 2
"""
COMMAND = """
seeds = 12
[params]
command = '''
if [ -d seen ]; then touch seen/$BAKEOFF_NODE; while [ $(ls seen | wc -l) -lt 2 ]; do sleep 0.05; done; fi
mkdir -p {out}; echo {seed} > {out}/seed.txt; echo said {seed}; echo "{{\\"score\\": $(( {seed} * 2 ))}}"'''
"""
"""If the directory `seen` is there, runs last until one has begun on each of two nodes."""
PYTHON = """
workload = "python"
seeds = 12
params = { function = "work:run" }
"""
WORK = """
import os, pathlib, time

def run(ctx):
    seen = pathlib.Path("seen")
    if seen.is_dir():
        (seen / os.environ["BAKEOFF_NODE"]).touch()
        while len(list(seen.iterdir())) < 2:
            time.sleep(0.05)
    for step in range(3):
        ctx.log(step, loss=float(ctx.rng("noise").normal()))
    (ctx.directory / "out").mkdir()
    (ctx.directory / "out" / "seed.txt").write_text(f"{ctx.seed}\\n")
    print("said", ctx.seed)
    return {"score": ctx.seed * 2}
"""
BEGUN = """
mkdir -p began; echo x >> began/{seed}
while [ ! -e go ]; do sleep 0.05; done
mkdir -p ended; echo x >> ended/{seed}
"""


@pytest.fixture(autouse=True)
def _with_pilots(lab: Lab) -> None:
    lab.measured = False
    install(lab)


def executions(lab: Lab, mark: str = "began") -> dict[int, int]:
    """Return how often a run of each seed has `began` or `ended`."""
    return {int(path.name): len(path.read_text().split()) for path in (lab.place / mark).glob("*")}


def out_files(lab: Lab) -> dict[str, bytes]:
    runs = lab.directory() / "runs"
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for path in runs.rglob("*")
        if path.is_file() and path.name not in ("meta.json",)
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command", "python"])
def test_runs_on_pilots_leave_what_local_runs_leave(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    lab.experiment((COMMAND if kind == "command" else PYTHON) + EXECUTOR, work=WORK)
    (lab.place / "seen").mkdir()
    lab.cli("run", "trial.toml")
    rows = lab.rows()
    assert [(row["status"], row["score"], row["attempts"]) for row in rows] == [
        ("succeeded", 2 * seed, 1) for seed in range(12)
    ]
    with closing(lab.edition()) as edition:
        assert {node.executor for node in list_nodes(edition)} == {"processes"}
        assert len({edition.attempts(position)[0]["node"] for position in range(12)}) == 2, "both pilots were used"
        assert list_claims(edition) == []
    left = {path.name for path in lab.directory().iterdir()}
    assert not left & {".spool", ".incoming", ".scratch"}
    with Lab(tmp_path_factory.mktemp("here")) as here:
        here.experiment(COMMAND if kind == "command" else PYTHON, work=WORK)
        here.run()
        assert out_files(lab) == out_files(here)
        assert [lab.series(row["run_id"]) for row in rows] == [here.series(row["run_id"]) for row in here.rows()]


@pytest.mark.slow
def test_a_killed_scheduler_is_followed_by_one_that_adopts(lab: Lab) -> None:
    """Four run when it is killed; two of them end while there is no scheduler. Each is executed once."""
    lab.experiment(f"seeds = 6\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR)
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    process.kill()
    process.wait(timeout=LONG)
    assert len(pilots_of(lab)) == 2, "pilots outlive their scheduler"
    (lab.place / "go").touch()
    eventually(lambda: len(executions(lab, "ended")) == 6, "what they hold they do without one")
    done = lab.cli("run", "trial.toml", "-v")
    assert "6 succeeded" in done.stdout + done.stderr
    assert executions(lab) == dict.fromkeys(range(6), 1)
    assert [row["attempts"] for row in lab.rows()] == [1] * 6


@pytest.mark.slow
def test_a_killed_pilot_loses_its_attempts_to_others(lab: Lab) -> None:
    lab.experiment(f"seeds = 4\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR)
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    kill(pilots_of(lab)[:1])
    eventually(lambda: sorted(executions(lab).values()) == [1, 1, 2, 2], "two are begun again")
    (lab.place / "go").touch()
    assert process.wait(timeout=LONG) == 0, process.stderr.read() if process.stderr else ""
    rows = lab.rows()
    assert sorted(row["attempts"] for row in rows) == [1, 1, 2, 2]
    for row in rows:
        tried = lab.attempts(row["run_id"])
        assert [entry["status"] for entry in tried] == ["infra_error"] * (len(tried) - 1) + ["succeeded"]


@pytest.mark.slow
def test_a_pilot_that_is_preempted_says_so_and_nobody_waits_for_an_expiry(lab: Lab) -> None:
    """SIGTERM is what an engine sends before it takes a node away."""
    executor = EXECUTOR.replace("expiry = 2", "expiry = 600").replace("slots = 2", "slots = 1")
    lab.experiment(f"seeds = 2\nlimits = {{ grace = 0.5 }}\nparams = {{ command = '''{BEGUN}'''}}\n" + executor)
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 2, "both run")
    kill(pilots_of(lab)[:1], signal.SIGTERM)
    eventually(lambda: sorted(executions(lab).values()) == [1, 2], "its run is begun again")
    (lab.place / "go").touch()
    assert process.wait(timeout=LONG) == 0
    tried = max((lab.attempts(row["run_id"]) for row in lab.rows()), key=len)
    assert [(entry["status"], entry["lost"]) for entry in tried] == [("infra_error", "yes"), ("succeeded", None)]
    assert "the allocation ended or was preempted" in tried[0]["error"]


@pytest.mark.slow
def test_a_pilot_that_stood_still_is_fenced(lab: Lab) -> None:
    """SIGSTOP for longer than the expiry: its runs are done by others, and what it reports then is dropped."""
    lab.experiment(f"seeds = 2\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR.replace("slots = 2", "slots = 1"))
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 2, "both run")
    stopped = pilots_of(lab)[0]
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: sum(executions(lab).values()) == 3, "another pilot does its run")
    (lab.place / "go").touch()
    eventually(lambda: sum(executions(lab, "ended").values()) == 3, "its own run ends, and that of the other pilot")
    os.kill(stopped, signal.SIGCONT)
    assert process.wait(timeout=LONG) == 0
    rows = lab.rows()
    assert [row["status"] for row in rows] == ["succeeded"] * 2 and sorted(row["attempts"] for row in rows) == [1, 2]
    assert sum(len(lab.attempts(row["run_id"])) for row in rows) == 3, "nothing is recorded twice"


@pytest.mark.slow
def test_a_pilot_that_cannot_reach_its_spool_ends_its_runs(lab: Lab) -> None:
    lab.experiment(f"seeds = 4\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR)
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    process.kill()
    process.wait(timeout=LONG)
    (lab.directory() / ".spool").rename(lab.place / "cut-off")
    eventually(lambda: not lab.processes(), "pilots, runs and supervisors have ended")


@pytest.mark.slow
def test_ctrl_c_twice_ends_runs_pilots_and_claims(lab: Lab) -> None:
    lab.experiment(f"seeds = 8\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR)
    log = lab.place / "stderr.txt"
    with log.open("wb") as stderr:
        process = lab.start("run", "trial.toml", stderr=stderr)
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    process.send_signal(signal.SIGINT)
    eventually(lambda: "starting nothing more" in log.read_text(), "the first signal is noticed")
    assert process.poll() is None, "once: what is running may finish"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LONG) == 130
    assert not lab.processes()
    assert lab.statuses() == {"cancelled": 4, "planned": 4}
    with closing(lab.edition()) as edition:
        assert list_claims(edition) == []


@pytest.mark.slow
def test_results_that_wait_in_the_spool_are_taken_in_when_an_edition_goes_on_locally(lab: Lab) -> None:
    """The pilots had finished them while there was no scheduler."""
    lab.experiment(
        f"seeds = 4\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR.replace("expiry = 2", "expiry = 30")
    )
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    process.kill()
    process.wait(timeout=LONG)
    (lab.place / "go").touch()
    eventually(lambda: len(_reports(lab)) == 4, "all reports are in the spool")
    lab.cli("run", "trial.toml", "--executor", "local")
    assert {(row["status"], row["attempts"]) for row in lab.rows()} == {("succeeded", 1)}
    assert executions(lab) == dict.fromkeys(range(4), 1), "nothing was executed again"
    with closing(lab.edition()) as edition:
        assert list_claims(edition) == []
        assert {attempt["node"] for run in edition.runs() for attempt in edition.attempts(run.position)} <= {
            "1-1",
            "1-2",
        }


def _reports(lab: Lab) -> list[Upward]:
    files = list(lab.root.glob("trial/2*/.spool/*/up"))
    messages = [decode_upward(frame) for file in files for frame in Reader(file).read()]
    return [message for message in messages if isinstance(message, Report)]


@pytest.mark.slow
def test_another_executor_goes_on_with_an_edition(lab: Lab) -> None:
    lab.experiment(f"seeds = 6\nparams = {{ command = '''{BEGUN}'''}}\n" + EXECUTOR)
    process = lab.start("run", "trial.toml")
    eventually(lambda: len(executions(lab)) == 4, "all slots are in use")
    process.kill()
    process.wait(timeout=LONG)
    (lab.place / "go").touch()
    lab.cli("run", "trial.toml", "--executor", "local")
    assert {row["status"] for row in lab.rows()} == {"succeeded"}
    eventually(lambda: not pilots_of(lab), "pilots that nobody needs have left")


TRAIN = """
import json, os, pathlib, sys, time
where = pathlib.Path(os.environ["BAKEOFF_CHECKPOINT_DIR"])
where.mkdir(parents=True, exist_ok=True)
file = where / "state.json"
state = json.loads(file.read_text()) if file.exists() else {"step": 0, "value": 1}
run = pathlib.Path(os.environ["BAKEOFF_RUN_DIR"])
while state["step"] < 40:
    state = {"step": state["step"] + 1, "value": state["value"] * 31 % 1000003}
    with open(run / "metrics.jsonl", "a") as log:
        log.write(json.dumps({"step": state["step"], "value": state["value"]}) + "\\n")
    if state["step"] % 10 == 0:
        (where / "state.new").write_text(json.dumps(state))
        (where / "state.new").rename(file)
        killed = pathlib.Path(f"killed-{state['step']}")
        if KILLED and state["step"] < 40 and not killed.exists():
            killed.touch()
            time.sleep(600)
print(json.dumps({"value": state["value"], "resumed": 0}))
"""


@pytest.mark.slow
def test_a_checkpointing_run_that_loses_its_pilot_goes_on_elsewhere(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its pilot is killed three times; result and curve are those of a run that nobody disturbed."""
    lab.write("train.py", TRAIN.replace("KILLED", "True"))
    executor = EXECUTOR.replace("pilots = 2", "pilots = 1").replace("slots = 2", "slots = 1")
    file = "seeds = 1\nparams = { command = 'python3 train.py' }\n"
    lab.experiment(file + executor)
    process = lab.start("run", "trial.toml")
    for number in range(1, 4):
        eventually(
            lambda number=number: any(_steps(path) >= 10 * number for path in _saved(lab)),
            f"step {10 * number} is saved",
        )
        kill(pilots_of(lab))
    assert process.wait(timeout=LONG) == 0
    (row,) = lab.rows()
    assert row["attempts"] == 4
    with Lab(tmp_path_factory.mktemp("calm")) as calm:
        calm.write("train.py", TRAIN.replace("KILLED", "False"))
        calm.experiment(file)
        calm.run()
        assert row["value"] == calm.rows()[0]["value"]
        assert lab.series(row["run_id"]) == calm.series(row["run_id"])


def _saved(lab: Lab) -> list[Path]:
    return [
        path / "checkpoint" / "state.json"
        for path in lab.root.glob("trial/2*/.incoming/*.saved-*")
        if not path.name.endswith(".part")
    ]


def _steps(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["step"])
    except (OSError, ValueError):
        return 0


@pytest.mark.slow
def test_a_run_that_may_outlast_every_allocation_is_refused_and_not_submitted_for_ever(lab: Lab) -> None:
    """The engine's own default may be shorter than a run, and nobody knew before the first pilot came."""
    lab.environment["BAKEOFF_ALLOCATION_ENDS"] = str(time.time() + 40)
    lab.experiment("seeds = 2\nlimits = { time = 60 }\nparams = { command = 'true' }\n" + EXECUTOR)
    said = lab.cli("run", "trial.toml", code=1).stderr
    assert "limits.time: a run may take 60 s, and the allocation on" in said and "executor.time" in said
