"""The `command` workload: what is spawned. Shell strings are given to a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bakeoff.spec.workload import Command, Exit, Outcome
from bakeoff.workloads.command import CommandParams, CommandWorkload
from bakeoff.workloads.template import fill, quotes_at
from support.processes import Lab

EVIL = """'; touch {0}; echo "`touch {0}` $(touch {0})" #\\ \n"""


@dataclass
class Facts:
    path: Path
    arm: str = "full"
    task: str = "easy"
    seed: int = 7
    rollout: int = 2
    run_id: str = "full__s7__abc"
    attempt: int = 1
    flags: tuple[str, ...] = ()
    base: Path = field(default=Path("/"))

    @property
    def directory(self) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path


def command_of(facts: Facts, **params: Any) -> Command:
    return CommandWorkload().command(CommandParams.model_validate(params), facts)


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(tmp_path / "runs" / "r", base=tmp_path)


def test_an_argv_is_filled_in_word_by_word(facts: Facts) -> None:
    command = command_of(
        facts,
        command=["p", "--n={n}", "{name}", "{arm}/{task}", "{seed}-{rollout}", "{run_id}", 5, 0.5],
        n=3,
        name="a b; c",
    )
    assert command.argv == ("p", "--n=3", "a b; c", "full/easy", "7-2", "full__s7__abc", "5", "0.5")
    assert command.cwd == facts.base
    assert not facts.path.exists()  # nothing asked for it


def test_values_look_as_people_write_them(facts: Facts) -> None:
    command = command_of(facts, command=["{a}", "{b}", "{c}", "{d}", "{e}", "{t.x}"], a=True, b=None, c=[1, "x"], d=1e-05, e="", t={"x": 1})  # fmt: skip
    assert command.argv == ("true", "", '[1, "x"]', "1e-05", "", "1")


def test_the_runs_directory_is_made_before_the_start_when_it_is_named(facts: Facts) -> None:
    for name, place in (("dir", facts.path), ("out", facts.path / "out")):
        for template in (["p", f"{{{name}}}"], f"p {{{name}}}"):
            command = command_of(facts, command=template)
            assert str(place) in command.argv[-1] and command.directories == (place,)
    assert not facts.path.exists(), "a dry run asks for the command too"


def test_flags_are_the_other_parameters_and_then_the_arms(facts: Facts) -> None:
    facts.flags = ("--disable", "x y")
    params = {"lr": 0.1, "deep": True, "wide": False, "none": None, "used": 1, "net": {"d": 2}, "l": [1]}
    command = command_of(facts, command=["p", "{used}", "{flags}", "--last"], **params)
    assert command.argv == (
        "p",
        "1",
        "--lr",
        "0.1",
        "--deep",
        "--net.d",
        "2",
        "--l",
        "[1]",
        "--disable",
        "x y",
        "--last",
    )


def test_flags_of_an_arm_go_to_the_end_where_the_template_has_no_place_for_them(facts: Facts) -> None:
    facts.flags = ("--disable", "x y")
    assert command_of(facts, command=["p", "{a}"], a=1, b=2).argv == ("p", "1", "--disable", "x y")
    assert command_of(facts, command="p {a}\n", a=1, b=2).argv == ("/bin/sh", "-c", "p 1 --disable 'x y'")
    facts.flags = ()
    assert command_of(facts, command="p {a}; q", a=1).argv == ("/bin/sh", "-c", "p 1; q")


def test_parameters_are_environment_variables_too(facts: Facts) -> None:
    env = command_of(facts, command=["p"], lr=0.1, deep=True, **{"net": {"depth": 2}, "max-steps": 3}, none=None).env
    assert env == {
        "BAKEOFF_PARAM_LR": "0.1", "BAKEOFF_PARAM_DEEP": "true", "BAKEOFF_PARAM_NET_DEPTH": "2", "BAKEOFF_PARAM_MAX_STEPS": "3",
    }  # fmt: skip


def test_the_working_directory_starts_at_the_experiment_file(facts: Facts) -> None:
    assert command_of(facts, command=["p"], cwd="sub").cwd == facts.base / "sub"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("awk '{{print}}'", "awk '{print}'"),
        ("{{ }}", "{ }"),
        ("{{x}}", "{x}"),
        ("{{{x}}}", "{1}"),
        ("${x} $x {x}", "${x} $x 1"),
        ('{"a":{"b":{x}}}', '{"a":{"b":1}}'),
        ('{{"a":{{"b":{x}}}}}', '{"a":{"b":1}}'),
        ("{}", "{}"),
        ("{ x }", "{ x }"),
        ("{0}", "{0}"),
        ("{unknown}", "{unknown}"),
        ("}}{{", "}}{"),
        ("find . -exec {} +", "find . -exec {} +"),
    ],
)
def test_braces_that_are_no_placeholders_stay(template: str, text: str) -> None:
    assert fill(template, {"x": "1"}) == text


def shell(command: Command, facts: Facts) -> str:
    """What the shell prints, with the environment that every run has."""
    context = {"BAKEOFF_ARM": facts.arm, "BAKEOFF_TASK": facts.task, "BAKEOFF_RUN_DIR": str(facts.path),
               "BAKEOFF_OUT_DIR": str(facts.path / "out"), "BAKEOFF_RUN_ID": facts.run_id}  # fmt: skip
    done = subprocess.run(
        command.argv,
        env={**os.environ, **context, **command.env},
        capture_output=True,
        text=True,
        cwd=facts.base,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TEMPLATES = [
    "printf '<%s>' {x}",
    "printf '<%s>' '{x}'",
    'printf "<%s>" "{x}"',
    "echo \"it's\" >/dev/null; printf '<%s>' {x}",
    "echo it\\'s >/dev/null; printf '<%s>' {x}",
    "true # don't\nprintf '<%s>' {x}",
    'printf "<%s>" "$(printf %s "{x}")"',
    'printf \'<%s>\' "`printf %s "{x}"`"',
    "cat <<EOF\n<{x}>\nEOF\n",
    "printf '<%s>' pre'{x}'post | sed s/pre// | sed s/post//",
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "value", ["plain-1.5", "two words", "it's", 'say "hi"', "$HOME `id` $(id)", "a\\b", "*", "", "é"]
)
def test_a_value_reaches_the_command_as_it_is_wherever_it_stands(facts: Facts, template: str, value: str) -> None:
    printed = shell(command_of(facts, command=template, x=value), facts)
    if "<<EOF" in template:  # a here-document keeps the quotes that stand in it; what counts is that nothing is run
        printed = printed.strip().replace('"', "") if '"' not in value else f"<{value}>"
    assert printed == f"<{value}>"


@pytest.mark.parametrize(
    "template",
    [*TEMPLATES, "printf %s {arm} \"{task}\" '{arm}'", "printf %s {flags}", "printf %s '{flags}' \"{flags}\""],
)
def test_no_value_is_ever_run_as_code(facts: Facts, tmp_path: Path, template: str) -> None:
    bad = EVIL.format(tmp_path / "pwned")
    facts.arm, facts.task, facts.flags = bad, bad, (bad,) if "{flags}" in template else ()
    shell(command_of(facts, command=template, **({"x": bad} if "{x}" in template else {"y": bad})), facts)
    assert not (tmp_path / "pwned").exists()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(value=st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=15))
def test_any_text_survives_the_shell(facts: Facts, value: str) -> None:
    template = "printf '%s|' {x} \"{x}\" '{x}'"
    printed = subprocess.run(
        (c := command_of(facts, command=template, x=value)).argv,
        env={**os.environ, **c.env},
        capture_output=True,
        check=True,
    ).stdout
    assert printed.decode() == f"{value}|" * 3


def test_plain_values_and_simple_commands_read_as_one_would_type_them(facts: Facts) -> None:
    assert command_of(facts, command="train --lr {lr} --note {note} > {out}/log", lr=0.1, note="a b").argv[2] == (
        f"train --lr 0.1 --note 'a b' > {facts.path}/out/log"
    )


@pytest.mark.parametrize(
    ("text", "quotes"),
    [("", ""), ("'", "'"), ('"', '"'), ("''", ""), ("'\"'", ""), ("\"'", '"'), ("\\'", ""), ("\"\\\"", '"'), ("'\\'", ""),
     ("# it's", ""), ("a#'", "'"), ("# it's\n'", "'"), ('"$(', ""), ('"$(echo "', '"'), ('"$(echo)', '"'), ('"`', ""),
     ('"`echo`', '"'), ("$(echo '", "'"), ("$((1 + 2", ""), ('"$( (true) ) ', '"'), ("(", "")],
)  # fmt: skip
def test_open_quotes_are_known(text: str, quotes: str) -> None:
    assert quotes_at(text) == quotes


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "Field required"),
        ({"command": []}, "at least 1 item"),
        ({"command": ""}, "pattern"),
        ({"command": "  \n"}, "pattern"),
        ({"command": [""]}, "at least 1 character"),
        ({"command": 5}, "valid"),
        ({"command": ["p", "{lr}"]}, "{lr} is not a parameter (known: arm, checkpoint, dir, flags"),
        ({"command": "p {lr}"}, "write {{lr}} for braces"),
        ({"command": ["p", "--x={flags}"]}, "{flags} is several arguments"),
        ({"command": ["p"], "out": 1}, "out cannot be a parameter"),
        ({"command": ["p"], "flags": 1}, "flags cannot be a parameter"),
        ({"command": ["p"], "a.b": 1, "a_b": 2}, "the environment variable BAKEOFF_PARAM_A_B"),
        ({"command": ["p"], "metrics": [{"file": "x.csv"}]}, "name"),
    ],
)
def test_commands_that_cannot_work_are_refused_before_anything_starts(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CommandParams.model_validate(params)
    assert message in str(caught.value)


def outcome_of(facts: Facts, code: int, **params: Any) -> Outcome:
    return CommandWorkload().outcome(
        CommandParams.model_validate({"command": ["p"], **params}), facts, Exit(code, None, 0.5)
    )


def test_the_exit_code_decides_and_metrics_are_kept_in_any_case(facts: Facts) -> None:
    assert outcome_of(facts, 0).status == "succeeded"
    (facts.directory / "metrics.json").write_text('{"x": 1}')
    assert outcome_of(facts, 0) == Outcome({"x": 1})
    assert outcome_of(facts, 3) == Outcome({"x": 1}, "failed", "exit code 3")
    assert outcome_of(facts, 75).status == "failed"
    lost = outcome_of(facts, 75, infra_exit_codes=[75])
    assert lost.status == "infra_error" and lost.metrics == {"x": 1}, "what it spent is charged"
    assert outcome_of(facts, 0, metrics="gone.json") == Outcome(
        {}, "failed", "gone.json: the command wrote no such file"
    )


def test_a_command_that_exits_before_its_last_step_has_failed(lab: Lab) -> None:
    lines = "".join(f'{{"step": {step}, "data": {{"loss": {step}}}}}\n' for step in range(1, 8))
    lab.write("log.jsonl", lines)
    command = 'command = "head -n {lines} log.jsonl > {out}/log.jsonl"\nlog = "verl:out"\nexpect_steps = 7\n'
    lab.experiment(f"[params]\n{command}[matrix]\nlines = [7, 5, 0]\n")
    lab.run()
    rows = {row["arm"]: row for row in lab.rows()}
    assert rows["lines=7"]["status"] == "succeeded"
    assert lab.series(rows["lines=7"]["run_id"])["loss"] == [(step, step) for step in range(1, 8)]
    assert (rows["lines=5"]["status"], rows["lines=0"]["status"]) == ("failed", "failed")
    assert rows["lines=5"]["error"] == "ended at step 5, and 7 are expected (expect_steps)"
    assert rows["lines=0"]["error"] == "logged no step, and 7 are expected (expect_steps)"
    lab.experiment(f"[params]\nlines = 7\n{command.replace('verl:out', 'wandb:out')}", "wrong")
    assert "log: 'wandb:out' is not FORMAT:PATH" in lab.cli("validate", "wrong.toml", code=2).stderr


@pytest.mark.slow
def test_a_long_log_is_read_beside_the_scheduler(lab: Lab) -> None:
    code = "import json\nfor n in range(9000): print(json.dumps({'step': n, 'data': {'loss': n / 2}}))"
    lab.write("write.py", code)
    command = f'command = "{sys.executable} write.py > {{out}}/log.jsonl"\nlog = "verl:out"\nexpect_steps = 8999\n'
    lab.experiment(f"[params]\n{command}")
    lab.run()
    [row] = lab.rows()
    assert row["status"] == "succeeded"
    assert lab.series(row["run_id"])["loss"][-1] == (8999, 4499.5)
