"""init and validate: experiment files before anything runs."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from bakeoff.cli import init
from bakeoff.errors import install
from bakeoff.plugins import entry_points, load
from bakeoff.spec.starters import STARTERS, Starter

EXAMPLES = Path(__file__).parents[2] / "examples"

Bakeoff = Callable[..., Result]


def test_init_writes_an_experiment_that_runs(bakeoff: Bakeoff, tmp_path: Path) -> None:
    assert bakeoff("init", "mine.toml").exit_code == 0
    assert bakeoff("validate", "mine.toml").exit_code == 0
    assert bakeoff("run", "mine.toml", "--set", "seeds=1").exit_code == 0
    assert "mean score" in bakeoff("status", "mine").stdout


STARTER_NAMES = list(entry_points(STARTERS))


@pytest.mark.parametrize("template", STARTER_NAMES)
def test_every_template_is_a_valid_file_without_analysis(bakeoff: Bakeoff, tmp_path: Path, template: str) -> None:
    starter: Starter = load(entry_points(STARTERS)[template])
    result = bakeoff("init", "--template", template)
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / starter.main).read_text()
    assert "[analysis]" not in [line.strip() for line in text.splitlines()] and "{file}" not in text
    first = starter.verbs[0].format(file=starter.main)
    assert f"next: bakeoff {first}, then" in result.stdout
    if first.startswith("run"):
        checked = bakeoff("validate", starter.main)
        assert checked.exit_code == 0, checked.stderr
    again = bakeoff("init", "--template", template)
    assert again.exit_code == 2 and "exists already" in again.stderr


def test_the_help_of_init_names_every_template(bakeoff: Bakeoff) -> None:
    told = " ".join(bakeoff("init", "--help").stdout.split())
    assert [name for name in STARTER_NAMES if name not in told] == []


def test_init_refuses_unknown_templates_and_other_formats(bakeoff: Bakeoff) -> None:
    assert "did you mean 'market'?" in bakeoff("init", "--template", "markt").stderr
    wrong = bakeoff("init", "--template", "sweep", "sweep.toml")
    assert (wrong.exit_code, "is JSON; choose a name that ends in .json" in wrong.stderr) == (2, True)


def test_init_writes_nothing_when_a_file_beside_it_exists(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "estimate.py").write_text("mine")
    result = bakeoff("init", "other.toml")
    assert result.exit_code == 2 and "estimate.py exists already; call it in another directory" in result.stderr
    assert (tmp_path / "estimate.py").read_text() == "mine" and not (tmp_path / "other.toml").exists()


def test_init_asks_at_a_terminal(bakeoff: Bakeoff, tmp_path: Path) -> None:
    terminal, ours = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "bakeoff", "init"], stdin=ours, stdout=ours, stderr=ours, cwd=tmp_path
    )
    os.close(ours)
    os.write(terminal, b"csv\n")
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # what Linux says at the end
            break
        shown += part
    assert started.wait() == 0 and (tmp_path / "results.csv").exists()
    assert b"market" in shown and b"Which one" in shown
    os.close(terminal)


def test_a_template_names_the_extra_that_is_missing(bakeoff: Bakeoff, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "find_spec", lambda name: None)
    assert "its runs need llvmlite, numba: " + install("market") in bakeoff("init", "--template", "market").stdout


def test_init_never_replaces_a_file(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("mine")
    result = bakeoff("init")
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert (tmp_path / "experiment.toml").read_text() == "mine"


def test_init_into_a_directory_that_is_not_there_says_so(bakeoff: Bakeoff) -> None:
    result = bakeoff("init", "nowhere/x.toml")
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


def test_validate_says_what_would_run(bakeoff: Bakeoff) -> None:
    bakeoff("init")
    facts = json.loads(bakeoff("validate", "experiment.toml", "--set", "rollouts=2", "--json").stdout)
    assert facts["valid"] is True
    assert (facts["arms"], facts["seeds"], facts["runs"]) == (["few", "some", "many"], list(range(1, 9)), 48)
    assert "runs      24" in bakeoff("validate", "experiment.toml").stdout


def test_validate_names_every_problem_with_file_line_key_and_fix(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('sedes = 3\nrollouts = 0\n[params]\ncommand = ["true"]\n')
    result = bakeoff("validate", "bad.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bad.toml:1: sedes: unknown key\n  fix: did you mean 'seeds'?" in result.stderr
    assert "bad.toml:2: rollouts:" in result.stderr
    told = bakeoff("validate", "bad.toml", "--json")
    assert told.exit_code == 2
    assert {(p["key"], p["line"]) for p in json.loads(told.stdout)["problems"]} == {("sedes", 1), ("rollouts", 2)}


def test_validate_of_a_file_that_is_not_there_suggests_a_near_one(bakeoff: Bakeoff) -> None:
    bakeoff("init")
    result = bakeoff("validate", "experment.toml")
    assert result.exit_code == 2
    assert "did you mean experiment.toml?" in result.stderr


@pytest.mark.parametrize("verb", ["collect", "rm"])
def test_what_cannot_be_written_is_a_clear_error(
    bakeoff: Bakeoff, make_edition: Callable[..., object], tmp_path: Path, verb: str
) -> None:
    """A file stands where a directory is needed: this fails for root too."""
    make_edition()
    target = tmp_path / "file"
    target.write_text("")
    target.chmod(stat.S_IRUSR)
    arguments = (
        ["collect", "--out_csv", target / "runs.csv"] if verb == "collect" else ["rm", "latest", "--root", target]
    )
    result = bakeoff(*arguments)
    assert result.exit_code in (1, 2)
    assert str(target) in result.stderr
    assert "Traceback" not in result.stderr


def test_the_schema_takes_what_validate_takes(bakeoff: Bakeoff, tmp_path: Path) -> None:
    printed = bakeoff("validate", "--schema")
    assert printed.exit_code == 0
    schema = json.loads(printed.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    for name in ("command", "python", "market", "language", "gridworld", "tasks"):
        starter: Starter = load(entry_points(STARTERS)[name])
        assert checker.is_valid(tomllib.loads((starter.directory / starter.main).read_text())), name
    for file in EXAMPLES.glob("*.toml"):
        assert list(checker.iter_errors(tomllib.loads(file.read_text()))) == [], file
    rich = """
seeds = { count = 3, base = 1 }
matrix = { optimizer = { lr = [1, 2] } }
limits = { time = "5m", memory = "2GB" }
analysis = { metric = "m", summary = "final" }
"""
    assert checker.is_valid(tomllib.loads(rich))
    assert checker.is_valid(
        tomllib.loads('seeds = "1..5"\nanalysis = { summary = { type = "mean", window = "last 50%" } }')
    )


@pytest.mark.parametrize(
    "wrong", ["sedes = 3", "rollouts = 0", 'analysis = { direction = "up" }', 'analysis = { summary = "last" }']
)
def test_the_schema_refuses_what_validate_refuses(bakeoff: Bakeoff, tmp_path: Path, wrong: str) -> None:
    checker = jsonschema.Draft202012Validator(json.loads(bakeoff("validate", "--schema").stdout))
    assert not checker.is_valid(tomllib.loads(wrong))
    (tmp_path / "x.toml").write_text(f'params = {{ command = "true" }}\n{wrong}\n')
    assert bakeoff("validate", "x.toml").exit_code == 2


def test_init_names_the_schema_where_editors_look_for_it(bakeoff: Bakeoff, tmp_path: Path) -> None:
    bakeoff("init")
    first, second, *_ = (tmp_path / "experiment.toml").read_text().splitlines()
    assert first == "#:schema ./bakeoff.schema.json" and second.endswith(
        "bakeoff validate --schema > bakeoff.schema.json"
    )
