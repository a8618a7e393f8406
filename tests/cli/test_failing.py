"""What failed says why: in the lines of `run`, in `status` and in the report; and `run` agrees with `compare`."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bakeoff.cli import progress
from bakeoff.engine.session import Options, open_session
from bakeoff.records.run import why_unscored
from bakeoff.spec.load import load_plan
from bakeoff.verdicts.observations import state_of
from bakeoff.workloads.command import last_line
from support.processes import Lab

KEY = "sk-ant-api03-" + "abcdefghijklmnopqrstuvwxyz0123456789" * 2
ARMS = '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'


@pytest.mark.parametrize(
    ("stderr", "stdout", "line"),
    [
        ("Traceback:\n  File x\nValueError: bad lr\n\n", "", "ValueError: bad lr"),
        ("\x1b[31mred\x1b[0m   alert\x07\n\x1b[0m\n", "", "red alert"),
        ("10%\r50%\rdied at 60%\r\n", "", "died at 60%"),
        (f"using {KEY}\n", "", "using [redacted]"),
        ("x" * 1000, "", "x" * 297 + "..."),
        ("", 'thinking\nno data\n{"score": 1}\n', "no data"),
        ("", '{"score": 1}\n', ""),
        ("", "", ""),
    ],
)
def test_the_last_line_of_a_run_is_one_clean_line(tmp_path: Path, stderr: str, stdout: str, line: str) -> None:
    (tmp_path / "stderr.txt").write_text(stderr)
    (tmp_path / "stdout.txt").write_text(stdout)
    assert last_line(tmp_path) == line


def test_a_link_in_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "stderr.txt").symlink_to("/etc/passwd")
    assert last_line(tmp_path) == ""
    assert last_line(tmp_path / "gone") == ""


@pytest.mark.slow
def test_failures_say_why_in_run_status_and_report_without_secrets(lab: Lab) -> None:
    lab.environment["KEY"] = KEY
    command = "echo noise >&2; echo ValueError: lr of {arm} with $KEY >&2; exit 3"
    lab.experiment(f'seeds = 2\nparams = {{ command = "{command}" }}\n{ARMS}')
    done = lab.cli("run", "trial.toml", code=1)
    assert len(re.findall(r"FAILED .* exit code 3: ValueError: lr of [ab] with \[redacted\]$", done.stderr, re.M)) == 4
    for arm in "ab":
        line = rf"^2 runs failed \({arm} 2\): exit code 3: ValueError: lr of {arm} with \[redacted\]; see bakeoff logs {arm}__s0"
        assert re.search(line, done.stdout, re.M)
    assert "try the failed ones again: the same command with --retry-failed" in done.stdout
    status = lab.look("status", "trial").stdout
    assert "failed: exit code 3: ValueError: lr of b with [redacted]" in status
    assert f"bakeoff run {lab.place}/trial.toml --retry-failed" in status
    lab.look("report", "trial", "--out-dir", "report")
    pages = "".join(page.read_text() for page in (lab.place / "report").glob("*.html"))
    assert "exit code 3: ValueError: lr of a with [redacted]" in pages
    for text in (done.stderr, done.stdout, status, (lab.directory() / "runs").parent.joinpath("experiment.db").read_bytes().decode("latin-1")):  # fmt: skip
        assert KEY not in text


@pytest.mark.slow
def test_an_exception_of_several_lines_is_shown_from_its_first_line(lab: Lab) -> None:
    code = f"def run():\n    raise ValueError('first\\n  second {KEY}\\n')"
    lab.experiment('workload = "python"\nparams = { function = "raising:run" }', raising=code)
    done = lab.cli("run", "trial.toml", code=1)
    assert "ValueError: first second [redacted]" in done.stderr and KEY not in done.stderr + done.stdout
    assert "ValueError: first second [redacted]" in lab.look("status").stdout


# -- a metric that is not there


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"loss": 1}, None),
        ({"loss": True}, None),
        ({"loss": math.inf}, None),
        ({"Loss": 1, "other": 2}, "it reported no 'loss', only Loss, other (did you mean 'Loss'?)"),
        ({"reward": 1}, "it reported no 'loss', only reward"),
        ({}, "it reported no 'loss', and no other metric"),
        ({"loss": None}, "it reported no 'loss', only loss (did you mean 'loss'?)"),
        ({"loss": math.nan}, "'loss' is NaN"),
        ({"loss": "high"}, "'loss' is text ('high')"),
    ],
)
def test_a_run_has_a_score_when_verdicts_see_one(metrics: dict[str, Any], why: str | None) -> None:
    reason = why_unscored("loss", False, metrics, None)
    assert (reason and reason.why) == why
    assert (state_of("succeeded", metrics.get("loss"))[0] == "scored") == (why is None)


@pytest.mark.slow
def test_the_first_run_without_the_declared_metric_warns_at_once(lab: Lab) -> None:
    """And `run` and `status` count what the records say, while `compare` scores those runs as failed."""
    why = "it reported no 'loss', only Loss (did you mean 'Loss'?)"
    lab.experiment(
        f"""jobs = 1\nseeds = 6
[params]
command = "if [ {{seed}} = 1 ]; then echo '{{{{\\"Loss\\": 1}}}}'; else echo '{{{{\\"loss\\": {{seed}}}}}}'; fi"
[analysis]
metric = "loss"
direction = "minimize"
bounds = [0, 10]
{ARMS}"""
    )
    done = lab.cli("run", "trial.toml", "-v")
    lines = done.stderr.splitlines()
    warned = next(number for number, line in enumerate(lines) if line.startswith("warning: "))
    assert warned <= 4 and "__s1__" in lines[warned] and f"has no score: {why}. " in lines[warned]
    assert sum(line.startswith("warning: ") for line in lines) == 1, "once"
    assert ": 12 succeeded, 0 failed, 0 missing" in done.stdout
    assert "2 of the 12 that succeeded have no number for the metric 'loss' (a__s1__" in done.stdout
    assert why in done.stdout
    assert "--retry-failed" not in done.stdout, "it would not try them"
    told = json.loads(lab.cli("run", "trial.toml", "--json").stdout)
    assert (told["succeeded"], told["failed"], told["unscored"]) == (12, 0, 2)
    facts = json.loads(lab.look("status", "--json").stdout)
    assert (facts["succeeded"], facts["failed"], facts["arms"]["a"]["failed"]) == (12, 0, 0)
    assert facts["unscored"][0]["why"] == why
    shown = lab.look("status").stdout
    assert "Succeeded without a number for 'loss': 2" in shown and why in shown
    assert re.search(r"failed\D+2\b", lab.look("compare", "trial", code=None).stdout)


@pytest.mark.slow
def test_a_declared_summary_needs_the_series_and_nothing_else(lab: Lab) -> None:
    code = "def run(ctx):\n    for n in range(5): ctx.log(n, **{'los' if ctx.seed == 1 else 'loss': n})"
    text = 'workload = "python"\nseeds = 3\nparams = { function = "logging_it:run" }\n[analysis]\nmetric = "loss"\n'
    lab.experiment(f'{text}summary = {{ type = "mean" }}', logging_it=code)
    done = lab.cli("run", "trial.toml")
    assert "has no score: it logged no series 'loss'. " in done.stderr
    assert "3 succeeded, 0 failed, 0 missing" in done.stdout
    done = lab.cli("run", "trial.toml", "--fresh", "--only", "seed != 1", "--exp_name", "good")
    assert "warning" not in done.stderr and "2 succeeded, 0 failed" in done.stdout


@pytest.mark.slow
def test_trainings_that_log_their_metric_by_step_have_succeeded_wherever_they_are_counted(lab: Lab) -> None:
    code = "def run(ctx):\n    for n in range(5): ctx.log(n, loss=n + ctx.seed)"
    lab.experiment(
        'workload = "python"\nseeds = 4\nparams = { function = "training:run" }\n'
        f'[analysis]\nmetric = "loss"\ndirection = "minimize"\n{ARMS}',
        training=code,
    )
    done = lab.cli("run", "trial.toml")
    assert ": 8 succeeded, 0 failed, 0 missing" in done.stdout
    assert "8 of the 8 that succeeded have no number for the metric 'loss'" in done.stdout
    assert "it logged 'loss' by step only; [analysis.summary] makes one number of it" in done.stdout
    assert "`bakeoff compare --summary final` makes one number" in done.stderr and "--fresh" not in done.stderr
    assert json.loads(lab.look("ls", "--json").stdout)[0]["succeeded"] == 8
    facts = json.loads(lab.look("status", "--json").stdout)
    assert (facts["succeeded"], facts["failed"], facts["unscored"][0]["by_step"]) == (8, 0, True)
    asked = lab.look("compare", "trial", code=2)
    assert "log 'loss' by step only; --summary final (or [analysis.summary]) makes one number of it" in asked.output
    lab.look("compare", "trial", "--summary", "final", code=None)
    lab.look("report", "trial", "--out-dir", "report")
    assert "8 succeeded" in (lab.place / "report" / "index.html").read_text()


# -- progress without a terminal


class _Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.mark.slow
def test_without_a_terminal_there_is_a_line_a_minute_and_a_last_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.experiment('seeds = 2\nparams = { command = "true {seed}" }')
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)

    session = open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))
    try:
        state = progress.Progress(session, None, announce=True)
        state.total, state.before = 1_000_000, 0
        state.statuses.update(succeeded=3, failed=100)
        state.name = "an-experiment-with-a-long-name/" * 5
        shown = io.StringIO()
        monkeypatch.setenv("COLUMNS", "80")
        clock.now += 3600
        live = progress.Live(state)
        Console(file=shown, width=80).print(live._draw())
        live.close()
        assert re.search(r"done, 100 failed, .* a run, \d+ h \d+ min left$", shown.getvalue(), re.M), "no line is cut"
        clock.now = state.started
        state.name = "trial"
        lines = progress.Lines(state, every_run=False)
        for _ in range(720):  # two hours
            clock.now += 10
            lines.tick(())
        lines.close()
    finally:
        session.close()
    head, first, *rest = capsys.readouterr().err.splitlines()
    assert head.endswith("1000000 runs, 0 done already") and first.startswith("103/1000000 done, 100 failed")
    assert 118 <= len(rest) <= 122, "one a minute, and the last one"
    assert max(map(len, (first, *rest))) <= 80


@pytest.mark.slow
def test_a_short_run_ends_with_a_line_and_misses_no_metric_that_was_not_declared(lab: Lab) -> None:
    lab.experiment('seeds = 2\nparams = { command = "true {seed}" }')
    lines = lab.cli("run", "trial.toml").stderr.splitlines()
    assert len(lines) == 2 and lines[1].startswith("2/2 done")
