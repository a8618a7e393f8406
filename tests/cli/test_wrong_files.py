"""Files that are wrong in ways that people get them wrong: each error names the file, the key and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

RUNS = 'params = { command = "true" }\n'

WRONG: dict[str, tuple[str, str, str]] = {
    # what: (file name, text, what is told)
    "empty": ("x.toml", "\n", "x.toml: the file is empty\n  fix: `bakeoff init` writes"),
    "empty JSON": ("x.json", "", "x.json: the file is empty"),
    "a table of results": ("x.csv", "arm,score\na,1\n", "tables are for `bakeoff compare x.csv`"),
    "YAML called TOML": ("x.toml", "seeds: 3\n", "x.toml:1: not valid TOML: Expected '='"),
    "YAML called TOML, fix": ("x.toml", "seeds: 3\n", "fix: it is YAML: give it a name that ends in .yaml"),
    "TOML called YAML": ("x.yml", RUNS, "fix: it is TOML: give it a name that ends in .toml"),
    "JSON called TOML": ("x.toml", '{"seeds": 3}', "fix: it is JSON: give it a name that ends in .json"),
    "a list": ("x.json", "[1, 2]", "x.json: an experiment file is a table of keys and values"),
    "a word for a number": ("x.toml", RUNS + 'jobs = "many"', 'x.toml:2: jobs: must be a whole number, not "many"'),
    "a number below": ("x.toml", RUNS + "rollouts = 0", "rollouts: must be greater than or equal to 1, not 0"),
    "a number for a text": ("x.toml", RUNS + "[analysis]\nmetric = 3", "x.toml:3: analysis.metric: must be text, not 3"),
    "names for arms": ("x.toml", RUNS + 'arms = ["a"]', 'x.toml:2: arms.0: must be a table, not "a"'),
    "names for arms, fix": ("x.toml", RUNS + 'arms = ["a"]', 'write each entry as [[arms]] with its keys below: name = "a"'),
    "single brackets": ("x.toml", RUNS + "[arms]\na = {}", 'x.toml:2: arms: must be a list\n  fix: write each entry as [[arms]]'),
    "one value for an axis": ("x.toml", RUNS + "[matrix]\nlr = 0.1", "x.toml:3: matrix.lr: must be a list, not 0.1"),
    "two arms of a name": ("x.toml", RUNS + '[[arms]]\nname = "a"\n[[arms]]\nname = "a"', "x.toml:2: arms: two arms"),
    "another case": ("x.toml", RUNS + '[analysis]\ncontrol = "A"\n[[arms]]\nname = "a"', "did you mean 'a'?"),
    "another case altogether": ("x.toml", RUNS + "SEEDS = 3", "x.toml:2: SEEDS: unknown key\n  fix: did you mean 'seeds'?"),
    "no command": ("x.toml", "seeds = 3", "x.toml: params.command: is needed\n  fix: add command = ... to [params]"),
    "a placeholder": ("x.toml", '[params]\ncommand = ["echo", "{lrr}"]\nlr = 3', "{lrr} is not a parameter (did you mean 'lr'?)"),
    "a number for a command": ("x.toml", "params = { command = 3 }", "params.command: must be a list, or must be text, not 3"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_told_by_name_key_and_fix(what: str, bakeoff: Callable[..., Result]) -> None:
    name, text, told = WRONG[what]
    Path(name).write_text(text)
    results = [bakeoff("validate", name), bakeoff("run", name), bakeoff("run", name, "--dry-run")]
    assert {result.exit_code for result in results} == {2}
    assert len({result.stderr for result in results}) == 1
    assert told in results[0].stderr and "Traceback" not in results[0].stderr
    assert not Path("bakeoff-runs").exists()


def test_a_directory_is_told_with_the_experiment_files_in_it(bakeoff: Callable[..., Result]) -> None:
    Path("folder").mkdir()
    assert "folder: is a directory; there is no experiment file in it" in bakeoff("run", "folder").stderr
    Path("folder/mine.toml").write_text(RUNS)
    assert "did you mean one of folder/mine.toml?" in bakeoff("run", "folder").stderr


def test_only_that_chooses_nothing_is_refused(bakeoff: Callable[..., Result]) -> None:
    Path("x.toml").write_text(RUNS + '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n')
    for more in ((), ("--dry-run",)):
        result = bakeoff("run", "x.toml", "--only", "arm=c", *more)
        assert result.exit_code == 2 and "no run matches --only; arms are a, b" in result.stderr


@pytest.mark.slow
def test_an_experiment_file_where_results_are_asked_for_is_told_what_to_do(bakeoff: Callable[..., Result]) -> None:
    Path("x.toml").write_text('name = "trial"\n' + RUNS)
    for verb in ("compare", "status", "report", "rank"):
        result = bakeoff(verb, "x.toml")
        assert result.exit_code == 2 and "run it first (`bakeoff run x.toml`), then ask for 'trial'" in result.stderr
    assert bakeoff("run", "x.toml").exit_code == 0
    told = bakeoff("status", "x.toml").stderr
    assert "results go by the experiment's name: ask for 'trial'" in told and "run it first" not in told
