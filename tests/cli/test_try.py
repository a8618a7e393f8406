"""`bakeoff try`: commands against each other, without an experiment file."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.cli.trial import arm_names
from bakeoff.spec.load import load_plan

Bakeoff = Callable[..., Result]
PYTHON = shlex.quote(sys.executable)
SCORE = "import random, sys\nrandom.seed(int(sys.argv[1]))\nprint('score:', {mean} + random.gauss(0, 0.1))\n"


@pytest.fixture
def scripts(tmp_path: Path) -> tuple[str, str]:
    """Two commands whose scores differ by 1 on every seed."""
    for name, mean in (("old", 1), ("new", 2)):
        (tmp_path / f"{name}.py").write_text(SCORE.format(mean=mean))
    return f"{PYTHON} old.py {{seed}}", f"{PYTHON} new.py {{seed}}"


def written(directory: Path) -> Path:
    """The one experiment file that `try` wrote."""
    (file,) = directory.glob("try-*.toml")
    return file


def test_two_scripts_get_a_verdict_and_a_file_that_run_and_compare_read(
    bakeoff: Bakeoff, tmp_path: Path, scripts: tuple[str, str]
) -> None:
    done = bakeoff("try", *scripts, "--seeds", "8", "--metric", "score")
    assert done.exit_code == 0, done.stderr
    assert "new.py minus old.py" in done.stdout and "Better: new.py against old.py on score" in done.stdout
    assert "`name: value` lines of the output" in done.stdout
    file = written(tmp_path)
    assert str(file.name) in done.stdout
    plan = load_plan(file)
    assert [arm.name for arm in plan.arms] == ["old.py", "new.py"] and len(plan) == 16
    assert bakeoff("run", file).exit_code == 0
    assert "Better: new.py" in bakeoff("compare", file).stdout


def test_the_same_call_again_runs_nothing_and_fresh_starts_anew(
    bakeoff: Bakeoff, tmp_path: Path, scripts: tuple[str, str]
) -> None:
    call = ("try", *scripts, "--seeds", "7")  # the metric is chosen, and remembered
    first, again = bakeoff(*call, "--json"), bakeoff(*call, "--json")
    assert json.loads(first.stdout)["source"] == json.loads(again.stdout)["source"]
    assert "14 done already" in again.stderr and "was changed" not in again.stderr
    fresh = bakeoff(*call, "--json", "--fresh")
    assert json.loads(fresh.stdout)["source"] != json.loads(first.stdout)["source"]


def test_a_script_that_was_edited_since_is_not_judged_by_its_old_runs(
    bakeoff: Bakeoff, tmp_path: Path, scripts: tuple[str, str]
) -> None:
    assert bakeoff("try", *scripts, "--seeds", "7").exit_code == 0
    (tmp_path / "new.py").write_text(SCORE.format(mean=0))
    refused = bakeoff("try", *scripts, "--seeds", "7")
    assert refused.exit_code == 2 and "new.py" in refused.stderr and "--fresh" in refused.stderr
    assert "Worse: new.py" in bakeoff("try", *scripts, "--seeds", "7", "--fresh").stdout


def test_a_file_that_was_edited_is_never_replaced(bakeoff: Bakeoff, tmp_path: Path, scripts: tuple[str, str]) -> None:
    bakeoff("try", *scripts, "--seeds", "3")
    file = written(tmp_path)
    edited = file.read_text().replace("seeds = 3", "seeds = 4")
    file.write_text(edited)
    refused = bakeoff("try", *scripts, "--seeds", "3")
    assert refused.exit_code == 2 and f"bakeoff run {file.name}" in refused.stderr
    assert file.read_text() == edited
    assert bakeoff("run", file).exit_code == 0


def test_values_of_an_option_are_arms(bakeoff: Bakeoff, tmp_path: Path) -> None:
    command = "echo final/reward: $(( {lr} * 100 + {seed} % 2 ))"
    done = bakeoff("try", "--arms", "lr=1,2,3", command, "--metric", "final/reward", "--seeds", "7")
    assert done.exit_code == 0, done.stderr
    assert "every arm minus lr=1" in done.stdout
    assert tomllib.loads(written(tmp_path).read_text())["matrix"] == {"lr": [1, 2, 3]}


def test_until_decided_stops_before_the_most_seeds(bakeoff: Bakeoff, tmp_path: Path, scripts: tuple[str, str]) -> None:
    refused = bakeoff("try", *scripts, "--until-decided")
    assert refused.exit_code == 2 and "--metric" in refused.stderr and not list(tmp_path.glob("*.toml"))
    done = bakeoff("try", *scripts, "--until-decided", "--seeds", "40", "--metric", "score")
    assert done.exit_code == 0, done.stderr
    assert "of at most 40" in done.stdout


@pytest.mark.parametrize(
    ("printed", "source"),
    [
        ("echo step: 1; echo '{{\"score\": {x}{seed}}}'", "the last JSON line"),
        ("echo score = 9; echo score={x}{seed}", "`name: value` lines"),
        ("echo loading: done; echo score: {x}{seed}", "`name: value` lines"),
        ("echo '{{\"score\": {x}{seed}}}' > {dir}/metrics.json", "files of the run"),
    ],
)
def test_metrics_are_read_from_what_is_printed_and_it_is_said_how(bakeoff: Bakeoff, printed: str, source: str) -> None:
    done = bakeoff("try", "--arms", "x=1,5", printed, "--seeds", "7")
    assert done.exit_code == 0, done.stderr
    assert f"metrics read from {source}" in done.stdout
    assert "Better: x=5 against x=1 on score" in done.stdout


def test_arms_that_print_in_different_ways_are_told_apart(bakeoff: Bakeoff) -> None:
    done = bakeoff("try", "echo score: 1{seed}", "echo '{{\"score\": 9{seed}}}'", "--seeds", "7")
    assert (
        done.exit_code == 0
        and "JSON line of the output (B)" in done.stdout
        and "lines of the output (A)" in done.stdout
    )
    assert "A is echo score: 1{seed}" in done.stdout


def test_several_metrics_need_a_choice_and_what_was_run_is_kept(bakeoff: Bakeoff) -> None:
    call = ("try", "--arms", "x=1,2", "echo acc={x}{seed} score={x}{seed}", "--seeds", "7", "-j", "1")
    asked = bakeoff(*call)
    assert asked.exit_code == 2 and "--metric: acc, score" in asked.stderr
    chosen = bakeoff(*call, "--metric", "acc")
    kept = re.search(r"14 runs, (\d+) done already", chosen.stderr)
    assert chosen.exit_code == 0 and kept is not None and 1 <= int(kept[1]) < 14


def test_metrics_that_only_some_commands_print_are_named_with_those(bakeoff: Bakeoff) -> None:
    result = bakeoff("try", "echo a=1{seed} b=1", "echo a=2{seed} c=1", "--seeds", "2")
    assert result.exit_code == 2 and "--metric: a, b (only a=1{seed} b=1), c (only a=2{seed} c=1)" in result.stderr
    result = bakeoff("try", "echo x={seed}", "echo y={seed}", "--seeds", "2")
    assert result.exit_code == 2 and "--metric: x (only x={seed}), y (only y={seed})" in result.stderr


@pytest.mark.parametrize(("command", "reason"), [("true", "it reported no 'score'"), ("echo score=nan", "is NaN")])
def test_a_command_without_a_number_for_the_metric_is_named(bakeoff: Bakeoff, command: str, reason: str) -> None:
    result = bakeoff("try", command, "echo score={seed}", "--seeds", "2")
    assert result.exit_code == 2 and "ended well without a number for 'score', which counts as failed" in result.stderr
    assert reason in result.stderr


def test_wall_time_is_judged_when_nothing_is_printed_and_lower_is_better(bakeoff: Bakeoff, tmp_path: Path) -> None:
    done = bakeoff("try", "sleep 0.2", "true", "--seeds", "7", "-j", "1")
    assert done.exit_code == 0, done.stderr
    assert "wall_time_s, lower is better" in done.stdout and "Better: true against sleep 0.2" in done.stdout
    assert tomllib.loads(written(tmp_path).read_text())["analysis"] == {
        "metric": "wall_time_s",
        "direction": "minimize",
    }
    shared = bakeoff("try", "sleep 0.01", "true", "--seeds", "3", "-j", "2")
    assert "-j 1 measures times without that" in shared.stdout


def test_a_metric_of_which_less_may_be_better_needs_a_direction(bakeoff: Bakeoff, tmp_path: Path) -> None:
    call = ("try", "--arms", "x=1,2", "echo loss: {x}{seed}", "--seeds", "7")
    before = bakeoff(*call, "--metric", "loss")
    assert before.exit_code == 2 and "--direction loss=minimize" in before.stderr
    assert not list(tmp_path.iterdir()), "it is said before anything runs"
    found = bakeoff(*call)
    assert found.exit_code == 2 and "--direction loss=minimize" in found.stderr
    assert "Worse: x=2" in bakeoff(*call, "--direction", "minimize").stdout


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        (["echo {sed}", "echo {seed}"], "did you mean 'seed'?"),
        (["no-such-program-here {seed}", "echo {seed}"], "no program called 'no-such-program-here'"),
        (["echo {seed}"], "nothing to compare"),
        (["echo {seed}", "--arms", "lr"], "--arms NAME=VALUE"),
        (["echo {seed}", "--arms", "seed=1,2"], "seed cannot be a parameter"),
        (["echo {seed}", "echo 1", "--seeds", "0"], "at least one seed"),
        (["echo {seed}", "echo 1", "--seeds", "many"], "seeds must be"),
    ],
)
def test_a_wrong_call_creates_nothing(bakeoff: Bakeoff, tmp_path: Path, commands: list[str], message: str) -> None:
    refused = bakeoff("try", *commands)
    assert refused.exit_code == 2 and message in refused.stderr
    assert not list(tmp_path.iterdir())


def test_odd_commands_are_pointed_out_before_anything_runs(bakeoff: Bakeoff) -> None:
    same = bakeoff("try", "true", "true", "--seeds", "3")
    assert "the command has no {seed}" in same.stderr and "are identical" in same.stderr
    assert same.stderr.index("identical") < same.stderr.index("0 done already")
    unused = bakeoff("try", "--arms", "lr=1,2", "true {seed}", "--seeds", "3")
    assert "BAKEOFF_PARAM_LR" in unused.stderr


def test_braces_and_dollars_reach_the_shell(bakeoff: Bakeoff) -> None:
    command = "A=3{x}{seed}; B='{{x}} $$'; test \"$B\" = '{{x}} $$' && echo score: ${A}"
    done = bakeoff("try", "--arms", "x=1,2", command, "--seeds", "7", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["comparisons"][0]["candidate_mean"] == 323


def test_failures_are_grouped_and_need_a_score(bakeoff: Bakeoff) -> None:
    call = ("try", "echo score: 1{seed}", "echo boom {seed} >&2; exit 3", "--seeds", "7")
    failed = bakeoff(*call)
    assert failed.exit_code == 2 and "--failure-score" in failed.stderr
    assert "7 runs failed (B 7): exit code 3: boom 0; see bakeoff logs B__s0__" in failed.stderr
    assert "Worse: B" in bakeoff(*call, "--failure-score", "0").stdout


def test_trials_of_which_every_run_failed_say_so(bakeoff: Bakeoff) -> None:
    failed = bakeoff("try", "exit 3", "exit 4", "--seeds", "3")
    assert failed.exit_code == 2 and "no run succeeded" in failed.stderr
    assert "3 runs failed (3 3): exit code 3" in failed.stderr and "3 runs failed (4 3): exit code 4" in failed.stderr


def test_numbers_in_the_error_output_are_not_read_and_pointed_out(bakeoff: Bakeoff) -> None:
    call = ("echo score: 1{seed} >&2", "echo score: 2{seed} >&2", "--seeds", "3")
    assert (
        "judged by wall_time_s, the time that a command takes; score in the error output is not read"
        in bakeoff("try", *call).stdout
    )


def test_a_place_that_cannot_be_written_is_one_line_and_exit_code_2(
    bakeoff: Bakeoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")  # whose modes bind nobody who runs the tests as root

    monkeypatch.setattr(Path, "write_text", refuse)
    refused = bakeoff("try", "echo {seed}", "echo 1{seed}", "--seeds", "3")
    assert refused.exit_code == 2 and "cannot be written: Read-only file system" in refused.stderr.splitlines()[-1]


def test_json_is_alone_on_standard_output(bakeoff: Bakeoff, scripts: tuple[str, str]) -> None:
    facts = json.loads(bakeoff("try", *scripts, "--seeds", "7", "--json").stdout)
    assert facts["comparisons"][0]["verdict"] == "better" and Path(facts["file"]).is_file()
    assert "lines of the output" in facts["reading"]


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (["python old.py --seed {seed}", "python new.py --seed {seed}"], ["old.py", "new.py"]),
        (["run --fast", "run --slow"], ["fast", "slow"]),
        (["run", "run --fast"], ["A", "B"]),
        (["python a/old.py", "python a/new.py"], ["old.py", "new.py"]),
        (["python a/run.py", "python b/run.py"], ["A", "B"]),
        (["run a:b", "run c"], ["A", "B"]),
        (["true", "true"], ["A", "B"]),
        (["a 'open", "b"], ["a 'open", "b"]),
    ],
)
def test_arms_are_named_after_what_differs(commands: list[str], names: list[str]) -> None:
    assert arm_names(commands) == names
