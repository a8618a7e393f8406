"""kill -9 of anything at any moment loses at most what was in flight; the same command again does the rest, once each."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from bakeoff.engine import processes
from bakeoff.sandbox import cache, cgroups
from bakeoff.sandbox.base import Limits
from bakeoff.text import number as for_people
from support.processes import LONG, Lab, eventually, reported

RUNS, KILLS = 300, 15
Victim = Literal["scheduler", "supervisor", "scheduler and worker", "everything"]
VICTIMS: tuple[Victim, ...] = ("scheduler", "supervisor", "scheduler and worker", "everything")
"""Not a run alone: it could have killed itself, so that is its failure."""

PYTHON = """
import time
def run(ctx, factor):
    time.sleep(float(ctx.rng("pace").uniform(0.002, 0.05)))
    if ctx.seed % 5 == 0:
        for step in range(20): ctx.log(step, loss=float(ctx.rng("noise").normal()))
    if ctx.seed % 7 == 0:
        (ctx.directory / "notes.txt").write_text("kept" * 100)
        print("said", ctx.seed)
    return {"value": int(ctx.rng("world").integers(10**6)) * factor + ctx.seed}
"""
PYTHON_FILE = """
workload = "python"
jobs = 2
seeds = 150
retries = { backoff = 0.05 }
params = { function = "work:run" }
[matrix]
factor = [1, 2]
"""
COMMAND_FILE = """
jobs = 2
seeds = 150
retries = { backoff = 0.05 }
[params]
command = '''
sleep 0.0$(( ({seed} * 7) % 5 ))
if [ $(( {seed} % 7 )) = 0 ]; then mkdir -p {out}; echo kept > {out}/notes.txt; fi
if [ $(( {seed} % 5 )) = 0 ]; then mkdir -p {dir}; for s in 1 2 3; do echo "{{\\"step\\": $s, \\"loss\\": $s.5}}" >> {dir}/metrics.jsonl; done; fi
echo "{{\\"value\\": $(( {seed} * {factor} + 17 ))}}"
'''
[matrix]
factor = [1, 2]
"""


@pytest.fixture(autouse=True)
def _unmeasured(lab: Lab) -> None:
    lab.measured = False


class Round:
    """One scheduler, from its start to its end, and what it reported."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab = lab
        self.log = lab.place / f"round-{number}.log"
        with self.log.open("wb") as stderr:
            self.process = lab.start("run", "trial.toml", "-v", stdout=subprocess.DEVNULL, stderr=stderr)

    def reported(self) -> dict[str, str]:
        return reported(self.log.read_text(errors="replace"))

    def wait_for_more(self, count: int) -> bool:
        """False when it ended first."""
        wanted = len(self.reported()) + count
        eventually(lambda: self.process.poll() is not None or len(self.reported()) >= wanted, f"{count} more runs")
        return self.process.poll() is None

    def kill(self, victim: Victim) -> None:
        """What belongs to whom is looked up first, so that all of it dies at one moment."""
        supervisors = self.lab.processes_of("bakeoff.engine.processes")
        others = [pid for pid in self.lab.processes() if pid not in (*supervisors, self.process.pid)]
        chosen = {
            "scheduler": [self.process.pid],
            "supervisor": supervisors,
            "scheduler and worker": [self.process.pid, *others],
            "everything": [*supervisors, self.process.pid, *others],
        }[victim]
        for pid in chosen:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # a short run ended by itself meanwhile


def _records(lab: Lab) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in lab.rows()}


def _what_came_out(lab: Lab) -> dict[str, Any]:
    found = {}
    for row in lab.rows():
        notes = [str(path.relative_to(lab.run_directory(row["run_id"]))) for path in _notes(lab, row["run_id"])]
        found[row["run_id"]] = (row["status"], row["value"], lab.series(row["run_id"]), notes)
    return found


def _notes(lab: Lab, run_id: str) -> list[Path]:
    directory = lab.run_directory(run_id)
    return [path for path in (directory / "notes.txt", directory / "out" / "notes.txt") if path.exists()]


def _is_consistent(lab: Lab) -> None:
    """Attempts are numbered from 1, the last one is the one that counts, and only infrastructure failed before."""
    with closing(lab.edition()) as edition:
        for run in edition.runs():
            tried = edition.attempts(run.position)
            assert [entry["attempt"] for entry in tried] == list(range(1, run.attempts + 1))
            assert [entry["status"] for entry in tried] == ["infra_error"] * (run.attempts - 1) + [run.status]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "command"])
def test_kill_9_at_random_moments_loses_nothing_and_repeats_nothing(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    chance = random.Random(f"{kind} {os.environ.get('BAKEOFF_KILL_SEED', 1)}")
    lab.experiment(PYTHON_FILE if kind == "python" else COMMAND_FILE, work=PYTHON)
    told: dict[str, str] = {}
    recorded: dict[str, dict[str, Any]] = {}
    kills, number = 0, 0
    while kills < KILLS and len(told) < RUNS:
        number += 1
        this = Round(lab, number)
        while kills < KILLS:
            if chance.random() < 0.15:  # also while it is starting
                time.sleep(chance.uniform(0.0, 0.6))
            elif not this.wait_for_more(chance.randint(1, 7)):
                break
            victim = chance.choice(VICTIMS)
            this.kill(victim)
            kills += 1
            if victim != "supervisor":
                break
        if kills == KILLS and this.process.poll() is None:
            this.kill("everything")
        this.process.wait(timeout=LONG)
        if not (lab.root / "trial").exists():
            continue  # killed before there was anything
        told |= this.reported()
        now = _records(lab) if told else {}
        for run_id, metrics in this.reported().items():
            assert now[run_id]["status"] == "succeeded"
            assert f"value={for_people(now[run_id]['value'])}" == metrics
            recorded[run_id] = now[run_id]
    assert kills > KILLS / 3, "where this process hardly gets a turn, everything is done before all the kills"

    for _ in range(5):  # a run whose worker was killed three times waits for the next call
        done = lab.cli("run", "trial.toml", "-v", code=None)
        if done.returncode == 0:
            break
        assert "missing" in done.stdout
    assert done.returncode == 0, f"still not done\n{done.stdout}\n{done.stderr}"

    rows = lab.rows()
    assert len(rows) == RUNS and len({row["run_id"] for row in rows}) == RUNS
    assert len({(row["arm"], row["seed"]) for row in rows}) == RUNS
    assert {row["status"] for row in rows} == {"succeeded"}
    final = _records(lab)
    assert all(final[run_id] == row for run_id, row in recorded.items()), "a reported run was done again"
    _is_consistent(lab)
    eventually(lambda: not lab.processes(), "no orphan is left")

    with Lab(tmp_path_factory.mktemp("undisturbed")) as calm:
        calm.experiment((lab.place / "trial.toml").read_text(), work=PYTHON)
        calm.run()
        assert _what_came_out(lab) == _what_came_out(calm)


@pytest.mark.slow
def test_the_supervisor_of_a_killed_scheduler_leaves_the_next_ones_runs_alone(lab: Lab) -> None:
    lab.experiment('jobs = 2\nseeds = 6\nparams = { command = "test -e flag && sleep 0.4 || sleep 600" }')
    for number in range(3):
        this = Round(lab, number)
        eventually(lambda: len(lab.processes()) >= 4, "scheduler, supervisor and runs")
        os.kill(this.process.pid, signal.SIGKILL)  # and at once the next one
        this.process.wait(timeout=LONG)
    lab.write("flag", "")
    lab.cli("run", "trial.toml")
    assert {row["attempts"] for row in lab.rows()} == {1}
    assert all("killed" not in (row["error"] or "") for row in lab.rows())


@pytest.mark.slow
def test_a_supervisor_that_was_killed_is_replaced(lab: Lab) -> None:
    lab.experiment('jobs = 1\nseeds = 1\nparams = { command = "sleep 600" }')
    this = Round(lab, 1)
    first = eventually(lambda: lab.processes_of("bakeoff.engine.processes"), "a supervisor")
    os.kill(first[0], signal.SIGKILL)
    eventually(lambda: set(lab.processes_of("bakeoff.engine.processes")) - set(first), "another supervisor")
    os.kill(this.process.pid, signal.SIGKILL)
    this.process.wait(timeout=LONG)
    eventually(lambda: not lab.processes(), "the run died with its scheduler")


def _without_namespaces() -> None:
    """In a child before its exec: no capability to make them, as for users who are not root (prctl(2), PR_CAPBSET_DROP;
    CAP_SYS_ADMIN is 21)."""
    ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)


@pytest.mark.slow
def test_what_lost_its_supervisor_too_is_ended_by_the_next_scheduler(lab: Lab) -> None:
    lab.experiment('jobs = 1\nseeds = 1\nparams = { command = "test -e flag || sleep 600" }')
    process = lab.start("run", "trial.toml", preexec_fn=_without_namespaces)
    eventually(lambda: lab.processes_of("600") and lab.processes_of("bakeoff.engine.processes"), "run and supervisor")
    supervisors = lab.processes_of("bakeoff.engine.processes")
    orphans = set(lab.processes()) - {*supervisors, process.pid}
    for pid in (*supervisors, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait(timeout=LONG)
    assert orphans <= set(lab.processes())
    lab.write("flag", "")
    lab.cli("run", "trial.toml", preexec_fn=_without_namespaces)
    assert not orphans & set(lab.processes())
    assert [row["attempts"] for row in lab.rows()] == [1]


DAEMONS = """jobs = 2
seeds = 2
[params]
command = '''(setsid sleep NAP &) ; (env -i setsid sh -c 'sleep NAP; true' &) ; touch began-{seed}; sleep NAP'''
"""


@pytest.mark.root
@pytest.mark.slow
def test_whole_trees_die_with_a_scheduler_and_supervisor_that_are_killed_together(lab: Lab) -> None:
    nap = f"600.{random.SystemRandom().randrange(10**9)}"
    lab.experiment(DAEMONS.replace("NAP", nap))
    process = lab.start("run", "trial.toml")
    eventually(lambda: all((lab.place / f"began-{seed}").exists() for seed in (0, 1)), "both run")
    eventually(lambda: len(_having(nap)) >= 6, "with their daemons")
    for pid in (*lab.processes_of("bakeoff.engine.processes"), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait(timeout=LONG)
    eventually(lambda: not _having(nap), "nothing outlives them")


def _having(argument: str) -> list[int]:
    """Processes with this argument, also those that shed their environment."""
    having = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                having.append(int(entry.name))
        except OSError:
            continue
    return having


LOOK = """
import json, os, signal
os.kill(1, signal.SIGKILL)
try: os.kill(os.getppid(), 0)
except OSError: pass
seen = [name for name in os.listdir("/proc") if name.isdigit()]
own = open(f"/proc/{os.getpid()}/cmdline").read()
print(json.dumps({"seen": len(seen), "itself": "look.py" in own}))
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_command_sees_only_commands_and_cannot_end_what_keeps_them(lab: Lab) -> None:
    lab.write("look.py", LOOK)
    lab.experiment('params = { command = "python3 look.py" }')
    lab.cli("run", "trial.toml")
    (row,) = lab.rows()
    assert (row["status"], row["itself"]) == ("succeeded", True)
    assert row["seen"] < 10, "init, sh and this program"


@pytest.mark.root
@pytest.mark.slow
def test_commands_whose_keeper_was_killed_are_tried_again_in_a_new_namespace(lab: Lab) -> None:
    lab.experiment(
        'jobs = 1\nseeds = 1\nretries = { backoff = 0 }\nparams = { command = "test -e flag && exit; touch began; sleep 600" }'
    )
    process = lab.start("run", "trial.toml")
    eventually(lambda: (lab.place / "began").exists(), "it runs")
    lab.write("flag", "")
    os.kill(min(lab.processes_of("enclosure.py")), signal.SIGKILL)
    assert process.wait(timeout=LONG) == 0
    (row,) = lab.rows()
    assert [entry["status"] for entry in lab.attempts(row["run_id"])] == ["infra_error", "succeeded"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_by_hand_costs_its_own_run_and_no_other(lab: Lab, number: signal.Signals) -> None:
    code = """
import os, time
def run(ctx):
    if ctx.seed == 1:
        (ctx.directory / "pid").write_text(str(os.getpid()))
        time.sleep(600)
    return ctx.seed
"""
    lab.experiment(
        'workload = "python"\nseeds = 3\njobs = 1\nretries = { backoff = 0.05 }\nparams = { function = "slow:run" }',
        slow=code,
    )
    process = lab.start("run", "trial.toml")
    pid = eventually(
        lambda: [text for path in lab.root.glob("*/2*/runs/*__s1__*/pid") if (text := path.read_text())], "its pid"
    )
    os.kill(int(pid[0]), number)
    assert process.wait(timeout=LONG) == 1
    assert [(row["status"], row["attempts"], row["error"]) for row in lab.rows()] == [
        ("succeeded", 1, None), ("failed", 1, f"killed by {number.name}"), ("succeeded", 1, None),
    ]  # fmt: skip


@contextmanager
def _short_of_memory(megabytes: int) -> Iterator[list[int]]:
    """A cgroup with little memory, by its open doors."""
    groups = cgroups.Groups(
        {"memory": cgroups.planned(cache.unique_name("memory"))["memory"]},
        Limits(memory_mb=megabytes, pids=None, cpus=None),
    )
    doors = groups.join_fds()
    try:
        yield doors
    finally:
        for door in doors:
            os.close(door)
        groups.remove()


def _enter(doors: list[int]) -> None:
    for door in doors:
        os.write(door, b"0")


needs_a_cgroup = pytest.mark.skipif("memory" not in cgroups.parents(), reason="no cgroup with memory may be made here")
GREEDY = "room = bytearray(2_000_000_000)"


@pytest.mark.root
@needs_a_cgroup
@pytest.mark.parametrize("workload", ["python", "command"])
def test_a_run_that_the_kernel_ended_for_want_of_memory_has_failed(lab: Lab, workload: str) -> None:
    if workload == "python":
        lab.experiment(
            'workload = "python"\nseeds = 1\nparams = { function = "greedy:run" }', greedy=f"def run(ctx): {GREEDY}"
        )
    else:
        lab.experiment(f"seeds = 1\nparams = {{ command = 'exec python -c \"{GREEDY}\"' }}")
    with _short_of_memory(400) as doors:
        lab.cli("run", "trial.toml", code=1, preexec_fn=lambda: _enter(doors), pass_fds=doors)
    assert [(row["status"], row["error"]) for row in lab.rows()] == [("failed", "killed by the kernel: out of memory")]


@pytest.mark.root
@needs_a_cgroup
def test_somebody_elses_want_of_memory_is_not_the_runs(lab: Lab) -> None:
    """A run killed by hand while the kernel ends a process of another group has not run out of memory."""
    lab.experiment("seeds = 1\nparams = { command = 'exec sleep 600' }")
    process = lab.start("run", "trial.toml")
    (pid,) = eventually(lambda: lab.processes_of("600"), "the run")
    of_all = processes.counter_in(Path("/proc"), "vmstat", "oom_kill")
    with _short_of_memory(50) as doors:
        other = subprocess.run(["python", "-c", GREEDY], preexec_fn=lambda: _enter(doors), pass_fds=doors, check=False)
    assert other.returncode == -signal.SIGKILL
    assert processes.counter_in(Path("/proc"), "vmstat", "oom_kill") > of_all
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=LONG)
    (row,) = lab.rows()
    assert (row["status"], row["error"]) == ("failed", "killed by SIGKILL")
