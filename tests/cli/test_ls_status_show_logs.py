"""ls, status, show and logs: what is there, and what became of it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from support.editions import FILE, START, Outcome, series, succeeds
from support.processes import LONG

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
MODULE = [sys.executable, "-m", "bakeoff"]


def mixed(arm: str, seed: int) -> Outcome:
    """small: all succeeded. large: seed 1 failed, seed 2 could not be tried, seed 3 was never run."""
    if arm == "small":
        return succeeds(arm, seed)
    if seed == 1:
        return {"status": "failed", "exit_code": 3, "error": "exit code 3", "metrics": {"score": 99.0}}
    return {"status": "infra_error", "error": "no such host"} if seed == 2 else None


def on_a_terminal(*arguments: str, cwd: Path, width: int = 80) -> str:
    """What the command shows to somebody at a terminal."""
    control, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    process = subprocess.Popen([*MODULE, *arguments], cwd=cwd, env=env, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            chunk = os.read(control, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    process.wait(LONG)
    os.close(control)
    return shown.decode().replace("\r\n", "\n")


def test_ls_lists_the_newest_edition_of_each_experiment_newest_first(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    make_edition("old", stamp=START)
    make_edition("new", stamp=START + 50, outcome=mixed)
    make_edition("old", stamp=START + 100)
    found = json.loads(bakeoff("ls", "--json").stdout)
    assert [(e["experiment"], e["state"]) for e in found] == [("old", "complete"), ("new", "unfinished")]
    assert [found[1][key] for key in ("planned", "succeeded", "failed", "missing")] == [6, 3, 1, 2]
    assert len(json.loads(bakeoff("ls", "old", "--json").stdout)) == 2


def test_ls_without_results_says_so_and_prints_an_empty_list(bakeoff: Bakeoff) -> None:
    result = bakeoff("ls", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_ls_says_that_an_edition_is_running_while_its_lease_is_held(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    edition = make_edition()
    with open(edition.paths.lease) as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        assert json.loads(bakeoff("ls", "--json").stdout)[0]["state"] == "running"


def test_ls_names_an_edition_that_it_cannot_read_and_lists_the_others(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    make_edition("fine")
    newer = make_edition("newer")
    newer.close()
    with sqlite3.connect(newer.paths.database) as connection:
        connection.execute("UPDATE meta SET value = '999'")
    connection.close()
    result = bakeoff("ls", "--json")
    assert result.exit_code == 1
    assert [entry["experiment"] for entry in json.loads(result.stdout)] == ["fine"]
    assert "written by a newer bakeoff" in result.stderr


def test_status_counts_failed_and_missing_runs_beside_the_means(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(outcome=mixed)
    result = bakeoff("status")
    assert result.exit_code == 0
    assert "6 runs planned: 3 succeeded, 1 failed, 2 missing (infra_error 1, planned 1)" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["small", "3", "3", "0", "0", "5.2"] in lines
    assert ["large", "3", "0", "1", "2", "-"] in lines
    assert "not a verdict" in result.stdout


def test_status_shows_the_last_failures_with_the_log_to_read(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition(outcome=mixed)
    failures = json.loads(bakeoff("status", "--json").stdout)["failures"]
    assert [failure["error"] for failure in failures] == ["no such host", "exit code 3"]
    assert failures[1]["log"] == str(edition.paths.run(failures[1]["run_id"]) / "stdout.txt")
    assert failures[1]["log"] in bakeoff("status").stdout


def test_status_averages_only_numbers_and_says_how_many_when_not_all(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    def outcome(arm: str, seed: int) -> Outcome:
        return {"status": "succeeded", "metrics": {"score": float("nan") if seed == 1 else 4.0}}

    make_edition(outcome=outcome)
    lines = [line.split() for line in bakeoff("status").stdout.splitlines()]
    assert ["small", "3", "3", "0", "0", "4", "(of", "2)"] in lines, "one that reported NaN has succeeded"


def test_status_says_when_no_run_reported_the_metric_of_the_analysis(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    make_edition(outcome=lambda arm, seed: {"status": "succeeded", "metrics": {"other": 1.0}})
    result = bakeoff("status")
    assert "mean other" in result.stdout
    assert "No succeeded run reported a number called 'score'" in result.stdout


def test_status_says_when_the_metric_of_the_analysis_is_a_series(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    curve = series(score=[1.0, 2.0, 3.0])
    make_edition(
        text=FILE.format(name="sorting") + 'summary = { type = "final", last = 1 }\n',
        outcome=lambda arm, seed: {"status": "succeeded", "metrics": {}, "series": curve},
    )
    result = bakeoff("status")
    assert "'score', the metric of the analysis, is a series" in result.stdout
    assert "No succeeded run" not in result.stdout


def test_status_lists_runs_by_status(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(outcome=mixed)
    assert len(json.loads(bakeoff("status", "--runs", "--json").stdout)) == 6
    found = json.loads(bakeoff("status", "--status", "infra_error", "--json").stdout)
    assert [(run["arm"], run["seed"]) for run in found] == [("large", 2)]


def test_status_of_an_unknown_experiment_suggests_a_near_one(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition("sorting")
    result = bakeoff("status", "sortin")
    assert result.exit_code == 2
    assert "did you mean 'sorting'?" in result.stderr


def test_status_draws_a_table_on_a_terminal_without_colours_where_they_are_not_wanted(
    make_edition: MakeEdition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_edition(outcome=mixed)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = on_a_terminal("status", "--runs", cwd=tmp_path)
    assert "───" in shown
    assert "\x1b[3" not in shown


@pytest.mark.parametrize("width", [20, 40])
def test_a_table_too_wide_for_the_terminal_is_split_and_loses_nothing(
    make_edition: MakeEdition, tmp_path: Path, width: int
) -> None:
    make_edition(outcome=mixed)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal("status", cwd=tmp_path, width=width)).splitlines()
    table = lines[3 : next(i for i, line in enumerate(lines) if line.startswith("Plain means"))]
    words = [line.split() for line in table]
    assert [line for line in table if len(line) > width] == []
    assert sum("arm" in line for line in words) == sum("small" in line for line in words), "each block names its lines"
    assert {"arm", "planned", "succeeded", "failed", "missing", "mean", "score"} <= {
        word for line in words for word in line
    }


def test_a_read_only_edition_can_be_looked_at(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition()
    edition.close()
    command = ["chattr", "+i"] if os.geteuid() == 0 else ["chmod", "a-w"]
    directory = edition.paths.directory
    shut = subprocess.run([*command, edition.paths.database, directory], capture_output=True)
    try:
        if shut.returncode != 0:
            pytest.skip("this file system cannot make files immutable")
        assert "6 succeeded" in bakeoff("status").stdout
    finally:
        undo = ["chattr", "-i"] if os.geteuid() == 0 else ["chmod", "u+w"]
        subprocess.run([*undo, edition.paths.database, directory], capture_output=True)


def test_show_tells_everything_about_a_run_in_standard_json(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    def outcome(arm: str, seed: int) -> Outcome:
        metrics = {"score": float("inf"), "n": 2}
        return {"status": "succeeded", "exit_code": 0, "metrics": metrics, "series": series(loss=[3.0, 2.0])}

    make_edition(outcome=outcome)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    facts = json.loads(bakeoff("show", "large__s2", "--json").stdout, parse_constant=refuse)
    assert (facts["arm"], facts["seed"], facts["status"], facts["exit_code"]) == ("large", 2, "succeeded", 0)
    assert facts["metrics"] == {"score": None, "n": 2}
    assert facts["series"]["loss"] == {
        "points": 2,
        "first": {"step": 0, "value": 3.0},
        "last": {"step": 1, "value": 2.0},
    }
    assert {file["path"] for file in facts["files"]} == {"meta.json", "stdout.txt"}
    text = bakeoff("show", "large__s2").stdout
    assert "2 points, 3 at step 0 to 2 at step 1" in text
    assert "size  2" in text


def test_latest_names_the_newest_run_alone_and_behind_an_experiment(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    make_edition("first", stamp=START)
    make_edition("second", stamp=START + 100)
    for name, experiment in (("latest", "second"), ("first/latest", "first"), ("second/latest", "second")):
        facts = json.loads(bakeoff("show", name, "--json").stdout)
        assert (facts["experiment"], facts["arm"], facts["seed"]) == (experiment, "large", 3)


def test_a_run_can_be_named_by_its_directory(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition()
    run_id = edition.run(2).run_id
    assert json.loads(bakeoff("show", edition.paths.run(run_id), "--json").stdout)["run_id"] == run_id


def test_a_part_of_an_id_that_several_runs_share_is_refused(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition()
    result = bakeoff("show", "large")
    assert result.exit_code == 2
    assert "could be 3 runs" in result.stderr


def test_logs_gives_a_pipe_the_bytes_as_they_are(make_edition: MakeEdition, tmp_path: Path) -> None:
    wrote = b"caf\xe9 \xff\x00\x1b[31mred\nlast"
    make_edition(outcome=lambda arm, seed: {"status": "succeeded", "stdout": wrote})
    done = subprocess.run([*MODULE, "logs", "latest"], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == wrote


def test_logs_shows_a_terminal_no_escapes(make_edition: MakeEdition, tmp_path: Path) -> None:
    wrote = b"caf\xe9 \x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]52;c;aGk=\x1b\\done\r\n"
    make_edition(outcome=lambda arm, seed: {"status": "succeeded", "stdout": wrote})
    assert on_a_terminal("logs", "latest", cwd=tmp_path) == "caf\ufffd red done\n"


@pytest.mark.parametrize(("count", "expected"), [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n")])
def test_logs_tail_prints_the_last_lines(
    bakeoff: Bakeoff, make_edition: MakeEdition, count: int, expected: str
) -> None:
    make_edition(outcome=lambda arm, seed: {"status": "succeeded", "stdout": b"a\nb\nc\n"})
    assert bakeoff("logs", "latest", "--tail", str(count)).stdout == expected


def test_logs_says_when_a_run_wrote_nothing(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(outcome=lambda arm, seed: {"status": "succeeded"}, files=False)
    result = bakeoff("logs", "latest")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "wrote nothing" in result.stderr


def test_logs_says_when_the_directory_was_deleted_by_hand_and_the_result_is_still_there(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    edition = make_edition()
    shutil.rmtree(edition.paths.runs)
    result = bakeoff("logs", "latest")
    assert result.exit_code == 1
    assert "was deleted by hand" in result.stderr
    assert "mean score" in bakeoff("status").stdout
    assert json.loads(bakeoff("show", "latest", "--json").stdout)["directory"] is None


def test_logs_of_a_run_that_was_not_run_yet_says_so(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(outcome=mixed)
    assert "has not been run yet" in bakeoff("logs", "large__s3").stderr


def test_logs_reads_an_earlier_attempt(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition(outcome=lambda arm, seed: {"status": "infra_error"})
    run_id = edition.run(0).run_id
    directory = edition.paths.run(run_id)
    (directory / "attempts/1").mkdir(parents=True)
    (directory / "stdout.txt").rename(directory / "attempts/1/stdout.txt")
    (directory / "stdout.txt").write_text("second\n")
    edition.finish([next(edition.runs()).next_attempt(status="succeeded")], 1)
    assert bakeoff("logs", run_id).stdout == "second\n"
    assert bakeoff("logs", run_id, "--attempt", "1").stdout == "hello\n"
    assert "has no attempt 3; there are 1, 2" in bakeoff("logs", run_id, "--attempt", "3").stderr


def test_logs_follow_prints_what_comes_until_the_run_has_ended(make_edition: MakeEdition, tmp_path: Path) -> None:
    edition = make_edition(outcome=lambda arm, seed: None)
    run_id = edition.run(0).run_id
    log = edition.paths.run(run_id) / "stdout.txt"
    log.parent.mkdir(parents=True)
    log.write_text("begin\n")
    with open(edition.paths.lease) as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        edition.beat(1, [next(edition.runs()).next_attempt(started_at=START)])
        process = subprocess.Popen([*MODULE, "logs", "-f", run_id], cwd=tmp_path, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        with log.open("a") as file:
            file.write("more\n")
        assert process.stdout.readline() == b"more\n"
        edition.finish([next(edition.runs()).next_attempt(status="succeeded")], 1)
        assert process.wait(LONG) == 0
        process.stdout.close()
