"""Commands: their output, their processes, and how they are ended."""

from __future__ import annotations

import os
import random
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.processes import Lab, process_exists


def _running(argument: str) -> bool:
    """Whether any process has this argument. Commands may be in a PID namespace, and know other numbers than we do."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and process_exists(int(entry.name)):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if argument.encode() in arguments:
                return True
    return False


def _nap() -> str:
    """An argument of `sleep` that nobody else uses."""
    return f"600.{random.SystemRandom().randrange(10**9)}"


@pytest.mark.slow
def test_output_of_half_a_gigabyte_goes_past_the_scheduler(lab: Lab) -> None:
    size = 500
    lab.experiment(
        f"""params = {{ command = "head -c {size}M /dev/zero; echo; echo '{{{{\\"done\\": 1}}}}'" }}""",
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lab.run()
    (row,) = lab.rows()
    assert (row["status"], row["done"]) == ("succeeded", 1)
    assert (lab.run_directory(row["run_id"]) / "stdout.txt").stat().st_size > size * 2**20
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 40, f"the scheduler grew by {grown:.0f} MB"
    (lab.run_directory(row["run_id"]) / "stdout.txt").unlink()


def test_output_that_is_no_text_is_kept_as_it_is(lab: Lab) -> None:
    lab.experiment(r"""params = { command = 'printf "\377\376\000x\n{{\"score\": 2}}\n"; printf "\201" >&2' }""")
    lab.run()
    (row,) = lab.rows()
    directory = lab.run_directory(row["run_id"])
    assert row["score"] == 2
    assert (directory / "stdout.txt").read_bytes() == b'\xff\xfe\x00x\n{"score": 2}\n'
    assert (directory / "stderr.txt").read_bytes() == b"\x81"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("prefix", ["", "env -i "], ids=["marked", "without an environment"])
def test_a_daemon_that_a_run_leaves_is_ended_and_told(lab: Lab, prefix: str, jobs: int) -> None:
    """It forked twice, has a session of its own and holds the run's output open."""
    nap = _nap()
    start = f"({prefix}setsid sh -c 'echo $$$$ > {{dir}}/pid; exec sleep {nap}' &)"
    lab.experiment(
        f"""
seeds = {2 * jobs}
jobs = {jobs}
[params]
command = '''mkdir -p {{dir}}
if [ {{seed}} = 0 ]; then {start}; while ! [ -s {{dir}}/pid ]; do sleep 0.01; done; fi
sleep 0.1; echo "{{{{\\"seed\\": {{seed}}}}}}"'''
"""
    )
    lab.run()
    rows = lab.rows()
    assert [row["metric.seed" if "metric.seed" in row else "seed"] for row in rows] == list(range(2 * jobs))
    assert {row["status"] for row in rows} == {"succeeded"}
    assert not _running(nap)
    if prefix == "" or jobs == 1:
        assert rows[0]["error"] == "left 1 process behind, ended"
    assert [row["error"] for row in rows[1:]] == [None] * (2 * jobs - 1), "nobody else is blamed"


@pytest.mark.slow
def test_a_daemon_that_belongs_to_a_run_that_goes_on_is_left_alone(lab: Lab) -> None:
    nap = _nap()
    lab.experiment(
        """
seeds = 3
jobs = 2
[params]
command = '''mkdir -p {dir}
if [ {seed} = 0 ]; then
  (env -i setsid sh -c 'echo $$$$ > {dir}/pid; exec sleep NAP' &)
  while ! [ -s {dir}/pid ]; do sleep 0.01; done
  sleep 1; kill -0 $(cat {dir}/pid) && echo '{{"alive": true}}'
else sleep 0.2; fi'''
""".replace("NAP", nap)
    )
    lab.run()
    rows = lab.rows()
    assert rows[0]["alive"] is True
    assert not _running(nap)


@pytest.mark.slow
def test_a_timeout_ends_children_and_grandchildren_that_do_not_listen(lab: Lab) -> None:
    nap = _nap()
    lab.experiment(
        """
limits = { time = 2, grace = 0.3 }
[params]
command = '''mkdir -p {dir}; trap "" TERM
sh -c 'trap "" TERM; sh -c "trap \\"\\" TERM; echo \\$\\$ > {dir}/grandchild; sleep NAP; sleep NAP" & echo $$$$ > {dir}/child; sleep NAP; sleep NAP' &
sleep NAP; sleep NAP'''
""".replace("NAP", nap)
    )
    assert lab.run().statuses == {"timeout": 1}
    (row,) = lab.rows()
    assert row["error"] is not None and row["error"].startswith("took longer than 2 s")
    assert {path.name for path in lab.run_directory(row["run_id"]).iterdir()} > {"child", "grandchild"}
    assert not _running(nap)


def test_a_polite_command_gets_the_time_to_clean_up(lab: Lab) -> None:
    lab.experiment(
        """
limits = { time = 1.5, grace = 120 }
[params]
command = '''mkdir -p {dir}; trap 'sleep 0.3; echo saved > {dir}/saved; exit 0' TERM; while true; do sleep 0.05; done'''
"""
    )
    assert lab.run().statuses == {"timeout": 1}
    (row,) = lab.rows()
    assert (lab.run_directory(row["run_id"]) / "saved").read_text() == "saved\n"
    assert row["exit_code"] == 0


def test_the_memory_limit_counts_the_whole_tree(lab: Lab) -> None:
    hog = "import time; x = bytearray(b'x') * 150_000_000; time.sleep(600)"
    lab.write("hog.py", hog)
    lab.experiment(
        """limits = { memory = "250MB" }\nparams = { command = "python3 {where}/hog.py & python3 {where}/hog.py & wait", where = "WHERE" }""".replace(
            "WHERE", str(lab.place)
        )
    )
    assert lab.run().statuses == {"failed": 1}
    assert lab.rows()[0]["error"].startswith("used more than 250,000,000 bytes of memory")


FORKING = """
import os, sys, time

def touched(size):
    memory = bytearray(size)
    for page in range(0, size, 4096):
        memory[page] = 1
    return memory

def run(how):
    if how == "alone":
        kept = touched(500_000_000)
        time.sleep(600)
    shared, children = touched(200_000_000), []
    for number in range(8):
        if (pid := os.fork()) == 0:
            time.sleep(1.0 + number / 100)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return {"done": 1}

if __name__ == "__main__":
    run(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["command", "python"])
def test_memory_that_forked_processes_share_is_counted_once(lab: Lab, workload: str) -> None:
    """200 MB that nine processes share stay below 400 MB, 500 MB in one process do not."""
    how = {"command": "command = 'python3 forking.py {how}'", "python": "function = 'forking:run'"}[workload]
    lab.experiment(
        f"workload = '{workload}'\njobs = 1\nlimits = {{ memory = '400MB' }}\nparams = {{ {how} }}\n"
        "matrix = { how = ['forked', 'alone'] }",
        forking=FORKING,
    )
    lab.run()
    forked, alone = lab.rows()
    assert (forked["status"], forked["error"], alone["status"]) == ("succeeded", None, "failed")
    assert alone["error"].startswith("used more than 400,000,000 bytes of memory")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("rm tool", "cannot start: No such file or directory: ./tool"),
        ("chmod -x tool", "cannot start: Permission denied: ./tool"),
        ("mv ../work ../gone", "cannot start: No such file or directory: {place}/work"),
    ],
)
def test_a_command_that_cannot_start_any_more_is_no_failure_of_the_arm(lab: Lab, change: str, error: str) -> None:
    lab.write("work/tool", f"#!/bin/sh\n{change}\n").chmod(0o755)
    lab.experiment(
        """seeds = 20\njobs = 1\nretries = { infra = 1, backoff = 0.05 }\nparams = { command = ["./tool"], cwd = "work" }"""
    )
    summary = lab.run()
    assert summary.statuses == {"succeeded": 1, "infra_error": 19} and summary.attempts == 39
    assert {row["error"] for row in lab.rows()[1:]} == {error.format(place=lab.place)}
    assert not summary.complete


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("printf '{{\"n\": 1}}' > {dir}/metrics.json; mkdir {dir}/metrics.jsonl", "metrics.jsonl cannot be read"),
        ('echo \'{{"step": 1e999, "x": 1}}\' > {dir}/metrics.jsonl', "metrics.jsonl: 1 line could not be read"),
        (
            "python3 -c 'print(\"[\" * 100000)' > {dir}/metrics.json",
            "",
        ),
        ('echo \'{{"n": 123456789012345678901234567890, "s": "\\ud800"}}\'', "more than 64 bits"),
    ],
)
def test_nothing_that_a_run_writes_ends_the_scheduler(lab: Lab, command: str, error: str | None) -> None:
    lab.experiment(f"seeds = 2\n[params]\ncommand = '''mkdir -p {{dir}}; {command}'''")
    summary = lab.run()
    assert sum(summary.statuses.values()) == 2 and summary.complete
    for row in lab.rows():
        assert (error is None) == (row["error"] is None) and (error or "") in (row["error"] or "")


@pytest.mark.slow
def test_many_runs_leave_no_descriptors_zombies_or_scratch_files(lab: Lab) -> None:
    lab.experiment(
        """
seeds = 150
jobs = 3
[params]
command = '''if [ $(( {seed} % 10 )) = 0 ]; then (setsid sleep 600 &); fi; if [ $(( {seed} % 3 )) = 0 ]; then echo hello; fi'''
"""
    )
    before = set(os.listdir("/proc/self/fd"))
    lab.run()
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert [pid for pid in children if "(sleep)" in Path(f"/proc/{pid}/stat").read_text()] == []
    assert list((lab.directory() / ".scratch").iterdir()) == []
    assert {row["status"] for row in lab.rows()} == {"succeeded"}


def test_the_run_knows_what_it_is(lab: Lab) -> None:
    lab.experiment(
        """
seeds = [7]
env = { GREETING = "${WHO:-nobody}" }
[params]
command = '''mkdir -p {out}; env | grep -E '^(BAKEOFF_|GREETING)' | sort > {out}/env; pwd >> {out}/env; cat >> {out}/env'''
size = 3
"""
    )
    lab.environment["WHO"] = "world"
    lab.run()
    (row,) = lab.rows()
    directory = lab.run_directory(row["run_id"])
    seen = (directory / "out" / "env").read_text().splitlines()
    for line in (
        "BAKEOFF_SEED=7", "BAKEOFF_ARM=default", "BAKEOFF_TASK=default", f"BAKEOFF_RUN_ID={row['run_id']}",
        f"BAKEOFF_RUN_DIR={directory}", f"BAKEOFF_OUT_DIR={directory}/out", 'BAKEOFF_PARAMS={"size": 3}',
        "BAKEOFF_PARAM_SIZE=3", "GREETING=world", str(lab.place),
    ):  # fmt: skip
        assert line in seen


def test_running_commands_leaves_the_working_directory_of_all_threads_the_same(lab: Lab, tmp_path: Path) -> None:
    """A library reads files in threads of its own, and must find them where the program that runs us has gone."""
    with ThreadPoolExecutor(1) as other:
        other.submit(os.getcwd).result()  # it has begun before the run
        lab.experiment('params = { command = "true" }')
        assert lab.run().statuses == {"succeeded": 1}
        before = os.getcwd()
        try:
            os.chdir(tmp_path)
            assert other.submit(os.getcwd).result() == str(tmp_path)
        finally:
            os.chdir(before)
