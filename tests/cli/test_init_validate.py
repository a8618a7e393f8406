"""init and validate: experiment files before anything runs."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

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
