"""init and validate: experiment files before anything runs."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from bakeoff.cli.init import STARTER

EXAMPLES = Path(__file__).parents[2] / "examples"

Bakeoff = Callable[..., Result]


def test_init_writes_an_experiment_that_runs(bakeoff: Bakeoff, tmp_path: Path) -> None:
    assert bakeoff("init", "mine.toml").exit_code == 0
    assert bakeoff("validate", "mine.toml").exit_code == 0
    assert bakeoff("run", "mine.toml", "--set", "seeds=1").exit_code == 0
    assert "mean error" in bakeoff("status", "mine").stdout


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
    assert (facts["arms"], facts["seeds"], facts["runs"]) == (["few", "some", "many"], [1, 2, 3, 4, 5], 30)
    assert "runs      15" in bakeoff("validate", "experiment.toml").stdout


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
    assert checker.is_valid(tomllib.loads(STARTER.format(file="x.toml", name="x")))
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
