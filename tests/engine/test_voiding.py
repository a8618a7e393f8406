"""No run can choose to be tried again: whatever its own code causes is a failure, and counts."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from support.processes import LONG, Lab, eventually, process_exists

SLY = """
seeds = 40
retries = { infra = 3, backoff = 0 }
arms = [{ name = "honest" }, { name = "sly" }]
[analysis]
metric = "right"
failure_score = 0.0
[params]
command = '''
right=$(( ({seed} / 2 + $(ls {dir}/attempts 2>/dev/null | wc -l)) % 2 ))
touch {dir}/tried
if [ $right = 0 ] && [ {arm} = sly ]; then kill -9 $$$$; fi
echo "{{\\"right\\": $right}}"
'''
"""


@pytest.mark.slow
def test_an_arm_that_kills_itself_when_it_is_wrong_is_not_better(lab: Lab) -> None:
    """Both arms are right for half of the seeds, and would be right for the other half at a second try."""
    lab.experiment(SLY)
    lab.cli("run", "trial.toml", code=1)
    rows = lab.of_arm("sly")
    assert {row["attempts"] for row in rows} == {1}
    assert [row["error"] for row in rows if row["status"] == "failed"] == ["killed by SIGKILL"] * 20
    assert "Undecided" in lab.look("compare", "trial", code=3).stdout


COMMANDS = {
    "kill -9 $$": "killed by SIGKILL",
    "kill -15 $$": "killed by SIGTERM",
    "kill -1 $$": "killed by SIGHUP",
    "kill -2 $$": "killed by SIGINT",
    "exit 75": "exit code 75",
    "echo a; rm -rf {dir}; echo b > {dir}": "its output cannot be read: FileExistsError",
    "echo a; rm -rf {dir}; ln -s /nowhere/at/all {dir}": "its output cannot be read: ",
    "echo a; rm -rf {dir}; ln -s {dir} {dir}": "its output cannot be read: ",
    "mkdir -p {dir}/stdout.txt; echo a": "its output cannot be read: IsADirectoryError",
}


@pytest.mark.slow
def test_nothing_that_a_command_does_to_itself_or_its_directory_is_tried_again(lab: Lab) -> None:
    arms = "\n".join(
        f"[[arms]]\nname = 'a{number}'\nparams = {{ command = ''': {{dir}}; {command.replace('$', '$$')}''' }}"
        for number, command in enumerate([*COMMANDS, "echo fine", "echo fine"])
    )
    lab.experiment(f"retries = {{ infra = 3, backoff = 0 }}\n{arms}")
    lab.cli("run", "trial.toml", code=1)
    *rows, first_after, last_after = lab.rows()
    assert {(row["status"], row["attempts"]) for row in rows} == {("failed", 1)}
    for row, error in zip(rows, COMMANDS.values(), strict=True):
        assert row["error"].startswith(error)
    for row in (first_after, last_after):
        assert row["status"] == "succeeded"
        assert (lab.run_directory(row["run_id"]) / "stdout.txt").read_text() == "fine\n", "not the output of others"
    lab.cli("run", "trial.toml", "--retry-failed", code=1)
    assert {(row["status"], row["attempts"]) for row in lab.rows()[:-2]} == {("failed", 2)}, "nothing is in the way"


WAYS = """
import os, shutil, signal, sys, threading, time
import bakeoff

def kill(): os.kill(os.getpid(), signal.SIGKILL)
def term(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)
def hup():  # nohup has everything ignore it
    signal.signal(signal.SIGHUP, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGHUP); time.sleep(60)
def raises(): raise bakeoff.InfraError("please again")
def says_infra(): return bakeoff.Outcome(status="infra_error")
def says_cancelled(): return bakeoff.Outcome(status="cancelled")
def stopped(): raise sys.modules["__main__"].Stopped
def connection():
    for number in range(3, 100):
        try: os.close(number)
        except OSError: pass
def half_a_report():
    for number in range(3, 100):
        try: os.write(number, b"\\xff\\xff\\xff\\x7f")
        except OSError: pass
    os._exit(0)
def file_for_directory(ctx):
    print("something"); shutil.rmtree(ctx.path, ignore_errors=True); ctx.path.parent.mkdir(exist_ok=True); ctx.path.write_text("")
def directory_for_output(ctx): print("something"); (ctx.directory / "stdout.txt").mkdir()
def run(ctx, way):
    function = globals()[way]
    return function(ctx) if "directory" in way else function()
"""
ERRORS = {
    "kill": "killed by SIGKILL",
    "term": "killed by SIGTERM",
    "hup": "killed by SIGHUP",
    "raises": "RuntimeError: the function raised InfraError: please again",
    "says_infra": "TypeError: a function ends with one of failed, succeeded, timeout, not 'infra_error'",
    "says_cancelled": "TypeError: a function ends with one of failed, succeeded, timeout, not 'cancelled'",
    "stopped": "killed by SIGTERM",
    "connection": "ended its process (exit code 1)",
    "half_a_report": "ended its process (exit code 0)",
    "file_for_directory": "its output cannot be kept: FileExistsError",
    "directory_for_output": "its output cannot be kept: IsADirectoryError",
}


@pytest.mark.slow
def test_nothing_that_a_function_does_to_its_worker_is_tried_again(lab: Lab) -> None:
    lab.experiment(
        'workload = "python"\nseeds = 1\njobs = 1\nretries = { infra = 3, backoff = 0 }\n'
        f'params = {{ function = "ways:run" }}\n[matrix]\nway = {list(ERRORS)}',
        ways=WAYS,
    )
    lab.cli("run", "trial.toml", code=1)
    rows = {row["way"]: row for row in lab.rows()}
    assert {(row["status"], row["attempts"]) for row in rows.values()} == {("failed", 1)}
    for way, error in ERRORS.items():
        assert rows[way]["error"].startswith(error)


def test_an_exit_code_means_infrastructure_only_if_the_file_says_so(lab: Lab) -> None:
    lab.experiment(
        "retries = { infra = 1, backoff = 0 }\n[[arms]]\nname = 'silent'\nparams = { command = 'exit 75' }\n"
        "[[arms]]\nname = 'named'\nparams = { command = 'exit 75', infra_exit_codes = [75] }"
    )
    lab.run()
    assert [(row["status"], row["attempts"]) for row in lab.rows()] == [("failed", 1), ("infra_error", 2)]


def test_a_command_that_cannot_be_started_is_still_infrastructure(lab: Lab) -> None:
    lab.write("once.sh", '#!/bin/sh\nrm "$0"\n').chmod(0o755)
    lab.experiment("seeds = 2\njobs = 1\nretries = { infra = 1, backoff = 0 }\nparams = { command = ['./once.sh'] }")
    lab.run()
    assert [(row["status"], row["attempts"]) for row in lab.rows()] == [("succeeded", 1), ("infra_error", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "command"])
def test_a_shutdown_that_signals_every_process_at_once_fails_no_run(lab: Lab, kind: str) -> None:
    """As systemd and batch systems stop a job: SIGTERM to the runs and to the scheduler, in any order."""
    if kind == "python":
        code = "import time\ndef run(seed): open(f'began-{seed}', 'w'); time.sleep(600)"
        lab.experiment('workload = "python"\nseeds = 2\njobs = 2\nparams = { function = "nap:run" }', nap=code)
    else:
        lab.experiment("seeds = 2\njobs = 2\nparams = { command = 'touch began-{seed}; exec sleep 600' }")
    patient = "from bakeoff.cli import main; from bakeoff.engine.node import node; node._DOUBT = 600.0; main()"
    process = lab.start("run", "trial.toml", program=("-c", patient))
    eventually(lambda: all((lab.place / f"began-{seed}").exists() for seed in (0, 1)), "both run")
    supervisors, enclosures = lab.processes_of("bakeoff.engine.processes"), lab.processes_of("enclosure.py")
    signalled = {*lab.processes()} - {process.pid, *supervisors}
    for pid in signalled:
        with suppress(ProcessLookupError):  # it ended with the one above it
            os.kill(pid, signal.SIGTERM)
    runs = signalled - {*enclosures}
    eventually(lambda: not any(map(process_exists, runs)), "they are dead before the scheduler hears of it")
    process.terminate()
    process.communicate(timeout=LONG)
    assert lab.statuses() == {"cancelled": 2}
