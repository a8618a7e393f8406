"""`bakeoff run` as people and scripts see it: displays, JSON, dry runs and exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.records.looks import read_looks
from support.processes import LONG, Lab, eventually, reported

MIXED = """
seeds = 4
jobs = 2
params = { command = "echo out-{seed}; echo err-{seed} >&2; test {arm} != bad || exit 3; echo {{}}" }
[[arms]]
name = "good"
[[arms]]
name = "bad"
"""


class Terminal:
    """A real pseudo-terminal with a command in it."""

    def __init__(self, lab: Lab, *arguments: str | Path) -> None:
        self._master, self._slave = pty.openpty()
        self.before = termios.tcgetattr(self._slave)
        self.shown = b""
        self.process = lab.start(
            *arguments, stdin=self._slave, stdout=self._slave, stderr=self._slave, text=False, errors=None,
            env={**lab.env(), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        )  # fmt: skip

    def read(self, seconds: float = 0.1) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self._master], [], [], 0.02)
            if ready:
                self.shown += os.read(self._master, 65536)
        return self.text

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown.decode(errors="replace"))

    def end(self) -> int:
        eventually(lambda: (self.read(), self.process.poll() is not None)[1], "it ends")
        self.read()
        self.after = termios.tcgetattr(self._slave)
        os.close(self._master)
        os.close(self._slave)
        return int(self.process.returncode)


@pytest.mark.slow
def test_a_terminal_shows_progress_and_failures_and_is_left_as_it_was(lab: Lab) -> None:
    lab.experiment(MIXED.replace("echo out", "sleep 0.2; echo out"))
    terminal = Terminal(lab, "run", "trial.toml")
    assert terminal.end() == 1
    text = terminal.text
    assert re.search(r"[1-7]/8 done", text), "counts while it goes on"
    assert re.search(r"bad +\d ok +\d failed", text) and re.search(r"good +\d ok", text), "counts of each arm"
    assert "FAILED: exit code 3" in text, "the last failures"
    assert "4 succeeded, 4 failed, 0 missing" in text
    assert terminal.after == terminal.before
    hidden, shown = terminal.shown.rfind(b"\x1b[?25l"), terminal.shown.rfind(b"\x1b[?25h")
    assert shown > hidden, "the cursor is there again"


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_is_understood_and_leaves_it_as_it_was(lab: Lab) -> None:
    lab.experiment('seeds = 100\njobs = 2\nparams = { command = "sleep 0.8" }')
    terminal = Terminal(lab, "run", "trial.toml")
    eventually(lambda: re.search(r"[1-9]/100 done", terminal.read()), "it shows something")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert "starting nothing more" in terminal.text and "the same command continues from here" in terminal.text
    assert terminal.after == terminal.before
    assert terminal.shown.rfind(b"\x1b[?25h") > terminal.shown.rfind(b"\x1b[?25l")


def test_without_a_terminal_there_are_plain_lines(lab: Lab) -> None:
    lab.experiment(MIXED)
    done = lab.cli("run", "trial.toml", code=1)
    lines = done.stderr.splitlines()
    assert lines[0] == f"trial/{lab.directory().name}: 8 runs, 0 done already"
    assert sum("FAILED" in line and "exit code 3" in line for line in lines) == 4
    assert "\x1b" not in done.stderr + done.stdout
    assert done.stdout.splitlines()[0].endswith(": 4 succeeded, 4 failed, 0 missing")
    assert "see why: bakeoff status trial" in done.stdout


@pytest.mark.slow
def test_v_prints_a_line_for_each_run(lab: Lab) -> None:
    lab.experiment(MIXED)
    done = lab.cli("run", "trial.toml", "-v", code=1)
    assert len(reported(done.stderr)) == 4
    assert len(re.findall(r"^\[\d/8\] FAILED +bad__s\d", done.stderr, re.MULTILINE)) == 4
    assert "[8/8]" in done.stderr


def test_vv_prints_what_runs_write_with_their_name_in_front(lab: Lab) -> None:
    lab.experiment(MIXED)
    done = lab.cli("run", "trial.toml", "-vv", code=1)
    for seed in range(4):
        assert re.search(rf"^good__s{seed}__\w+ \| out-{seed}$", done.stderr, re.MULTILINE)
        assert re.search(rf"^bad__s{seed}__\w+ \| err-{seed}$", done.stderr, re.MULTILINE)


@pytest.mark.slow
def test_vv_shows_output_while_the_run_goes_on_and_breaks_lines_that_never_end(lab: Lab) -> None:
    lab.experiment(
        """params = { command = "head -c 300000 /dev/zero | tr '\\\\0' x; printf 'tail'; while ! [ -e flag ]; do sleep 0.05; done" }"""
    )
    log = lab.place / "log"
    with log.open("wb") as stderr:
        process = lab.start("run", "trial.toml", "-vv", stderr=stderr)
    eventually(lambda: log.read_text().count("x") >= 250_000, "output is shown")
    assert process.poll() is None
    lab.write("flag", "")
    assert process.wait(timeout=LONG) == 0
    lines = [line for line in log.read_text().splitlines() if " | " in line]
    assert sum(line.count("x") for line in lines) == 300_000 and lines[-1].endswith("tail")


@pytest.mark.slow
def test_json_is_alone_on_standard_output(lab: Lab) -> None:
    """Whatever prints: the run, its children, or a workload inside the scheduler."""
    code = """
import os, subprocess, sys
def run(seed):
    print("noise"); os.write(1, b"noise"); subprocess.run(["echo", "noise"]); sys.__stdout__.write("noise")
    if seed == 1: raise ValueError("noise")
"""
    lab.experiment('workload = "python"\nseeds = 2\nparams = { function = "loud:run" }', loud=code)
    done = lab.cli("run", "trial.toml", "--json", code=1)
    told = json.loads(done.stdout)
    assert (told["runs"], told["succeeded"], told["failed"], told["missing"]) == (2, 1, 1, 0)
    assert (told["complete"], told["exit_code"], told["experiment"]) == (True, 1, "trial")
    assert Path(told["directory"]).is_dir()


def test_json_stays_alone_when_a_workload_prints_in_the_scheduler(lab: Lab) -> None:
    plugin = lab.place / "site"
    lab.write(
        "site/loudly.py",
        """
import os
from bakeoff.workloads.command import CommandWorkload
class Loud(CommandWorkload):
    kind = "loud"
    def command(self, params, ctx):
        print("from python"); os.write(1, b"from the descriptor")
        return super().command(params, ctx)
""",
    )
    lab.write("site/loudly-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: loudly\nVersion: 1\n")
    lab.write("site/loudly-1.dist-info/entry_points.txt", "[bakeoff.workloads]\nloud = loudly:Loud\n")
    lab.environment["PYTHONPATH"] = str(plugin)
    lab.experiment('workload = "loud"\nparams = { command = "true" }')
    done = lab.cli("run", "trial.toml", "--json")
    assert json.loads(done.stdout)["succeeded"] == 1
    assert "from python" in done.stderr and "from the descriptor" in done.stderr


@pytest.mark.slow
def test_an_interruption_is_in_the_json_too(lab: Lab) -> None:
    lab.experiment('seeds = 50\njobs = 1\nparams = { command = "sleep 0.2" }')
    process = lab.start("run", "trial.toml", "--json", stderr=subprocess.DEVNULL)
    eventually(lambda: lab.statuses()["succeeded"], "one is done")
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=LONG)
    told = json.loads(stdout)
    assert (process.returncode, told["exit_code"], told["stopped"]) == (130, 130, "interrupted")


def _snapshot(place: Path) -> dict[str, str]:
    return {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
        for path in sorted(place.rglob("*"))
    }


def test_a_dry_run_shows_the_plan_and_creates_nothing(lab: Lab) -> None:
    lab.experiment(MIXED)
    before = _snapshot(lab.place)
    done = lab.cli("run", "trial.toml", "--dry-run")
    assert _snapshot(lab.place) == before
    assert "8 planned, 0 done, 8 to run" in done.stdout
    assert "/bin/sh -c 'echo out-0;" in done.stdout and "nothing was created" in done.stderr


@pytest.mark.slow
def test_a_dry_run_knows_what_is_done_and_changes_nothing(lab: Lab) -> None:
    lab.experiment(MIXED)
    lab.cli("run", "trial.toml", "--only", "seed<2", code=1)
    before = _snapshot(lab.place)
    told = json.loads(lab.cli("run", "trial.toml", "--dry-run", "--json", "--only", "arm=good").stdout)
    assert _snapshot(lab.place) == before
    assert (told["planned"], told["done"], told["to_run"]) == (8, 4, 2)
    assert told["edition"] == lab.directory().name
    states = {(run["arm"], run["seed"]): run["state"] for run in told["runs"]}
    assert states["good", 0] == states["bad", 1] == "done"
    assert (states["good", 3], states["bad", 3]) == ("will run", "left out")
    fresh = json.loads(lab.cli("run", "trial.toml", "--dry-run", "--json", "--fresh").stdout)
    assert (fresh["edition"], fresh["to_run"]) == (None, 8)


@pytest.mark.slow
def test_a_dry_run_of_an_in_process_workload_has_no_commands(lab: Lab) -> None:
    lab.experiment('workload = "python"\nseeds = 30\nparams = { function = "quiet:run" }', quiet="def run(): ...")
    done = lab.cli("run", "trial.toml", "--dry-run")
    assert "30 planned, 0 done, 30 to run" in done.stdout and "and 10 more; -v shows all" in done.stdout
    assert "more; -v shows" not in lab.cli("run", "trial.toml", "--dry-run", "-v").stdout


@pytest.mark.slow
def test_only_counts_only_what_it_chose(lab: Lab) -> None:
    lab.experiment(MIXED)
    done = lab.cli("run", "trial.toml", "--only", "arm=good", "-v")
    assert "[4/4]" in done.stderr
    assert "4 succeeded, 0 failed, 0 missing; 4 left out by --only" in done.stdout


@pytest.mark.slow
def test_retry_failed_counts_from_what_stays(lab: Lab) -> None:
    lab.experiment(MIXED)
    lab.cli("run", "trial.toml", code=1)
    done = lab.cli("run", "trial.toml", "--retry-failed", "-v", code=1)
    assert "[5/8]" in done.stderr and "[8/8]" in done.stderr and "[9/8]" not in done.stderr


@pytest.mark.slow
def test_errors_end_without_a_traceback_and_with_their_code(lab: Lab) -> None:
    lab.experiment(MIXED)
    for arguments, code, words in (
        (("run", "trial.toml", "--bogus"), 2, "No such option"),
        (("run", "nowhere.toml"), 2, "no such file"),
        (("run", "trial.toml", "--only", "arms=good"), 2, "did you mean 'arm'?"),
        (("run", "trial.toml", "-j", "0"), 2, "0 is not in the range"),
    ):
        done = lab.cli(*arguments, code=code)
        assert words in done.stderr and "Traceback" not in done.stderr
    assert not lab.root.exists(), "nothing was made"


def test_the_sweep_runners_names_for_options_are_understood(lab: Lab) -> None:
    lab.experiment(MIXED)
    lab.cli("run", "--config", "trial.toml", "--out_root", "elsewhere", "--exp_name", "renamed", "--resume", code=1)
    assert (lab.place / "elsewhere" / "renamed" / "latest" / "experiment.db").exists()


SCORED = """
seeds = 6
params = { command = '''test {arm}{seed} != b4 && test {arm}{seed} != b5 || { echo died at {seed} >&2; exit 3; }; echo "{{\\"score\\": {seed}}}"''' }
analysis = { metric = "score", failure_score = 0 }
[[arms]]
name = "a"
[[arms]]
name = "b"
"""


def test_run_ends_with_means_that_count_as_a_look_failures_by_message_and_the_next_command(lab: Lab) -> None:
    lab.experiment(SCORED)
    done = lab.cli("run", "trial.toml", code=1)
    assert "mean score" in done.stdout and "not a verdict" in done.stdout
    assert "2 runs failed (b 2): exit code 3: died at 4; see bakeoff logs b__s4" in done.stdout
    assert done.stdout.splitlines()[-1] == "next: bakeoff compare trial"
    with closing(lab.edition()) as edition:
        assert [(look.verb, look.kind) for look in read_looks(edition)] == [("run", "means")]


def test_json_of_run_shows_no_means_and_is_no_look(lab: Lab) -> None:
    lab.experiment(SCORED)
    assert "mean" not in json.loads(lab.cli("run", "trial.toml", "--json", code=1).stdout)
    with closing(lab.edition()) as edition:
        assert read_looks(edition) == ()
