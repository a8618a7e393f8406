"""One rule for names in every verb, and stamps that never go back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from bakeoff.records.layout import editions
from support.editions import START
from support.processes import Lab

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
TOY = """
seeds = {seeds}
params = {{ command = "echo '{{{{\\"score\\": {{seed}}}}}}'" }}
analysis = {{ metric = "score" }}
"""


@pytest.mark.slow
def test_a_clock_that_went_back_does_not_send_new_runs_into_the_old_edition(lab: Lab) -> None:
    lab.experiment(TOY.format(seeds=1))
    lab.cli("run", "trial.toml")
    old = lab.directory()
    old.rename(old.with_name("20991231-235959"))  # it was begun while the clock was wrong
    lab.cli("run", "trial.toml", "--fresh")
    lab.experiment(TOY.format(seeds=3))
    grown = lab.cli("run", "trial.toml", "--json")
    assert json.loads(grown.stdout)["edition"] == "20991231-235959-2" and json.loads(grown.stdout)["runs"] == 3
    assert [paths.name for paths in editions(old.parent)] == ["20991231-235959", "20991231-235959-2"]
    assert lab.look("ls", "trial").stdout.index("235959-2") < lab.look("ls", "trial").stdout.rindex("235959 ")


def _other_directory() -> None:
    """A directory with the experiment's name and results of another tool in it."""
    for arm, level in (("bad", 0), ("good", 9)):
        for seed in range(6):
            home = Path("sorting", f"{arm}_s{seed}")
            home.mkdir(parents=True)
            (home / "metrics.jsonl").write_text(json.dumps({"step": 0, "score": level + seed / 10}) + "\n")


def test_an_experiment_goes_before_a_directory_of_its_name_in_every_verb(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    make_edition().close()
    verbs = (
        ["compare", "sorting", "--metric", "score"], ["variance", "sorting", "--metric", "score"], ["status", "sorting"],
        ["rank", "sorting", "--metric", "score"], ["summarize", "sorting"], ["ls", "sorting"],
        ["power", "sorting", "--metric", "score"], ["calibrate", "sorting", "--metric", "score"],
        ["gate", "sorting", "--max-regression", "score=0.1"],
    )  # fmt: skip
    before = [bakeoff(*verb).stdout for verb in verbs]
    _other_directory()
    note = (
        "sorting is an experiment under bakeoff-runs, and that is what is used; write ./sorting for the directory here"
    )
    for verb, was in zip(verbs, before, strict=True):
        result = bakeoff(*verb)
        arms = [name for name in ("good", "bad") if name in result.stdout.replace(note, "").split()]
        assert not arms and was.splitlines()[0] in result.stdout, verb
        assert note in " ".join((result.stdout + result.stderr).split()), verb
    here = bakeoff("compare", "./sorting", "--metric", "score", "--summary", "final", "--json")
    assert "good" in here.stdout and "that is what is used" not in here.stdout + here.stderr


def test_rm_is_not_talked_into_an_edition_by_a_directory_of_the_experiments_name(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    for stamp in (START, START + 60):
        make_edition(stamp=stamp).close()
    Path("sorting").mkdir()
    result = bakeoff("rm", "sorting", "--yes")
    assert result.exit_code == 2 and "sorting has 2 editions" in result.stderr


def test_an_edition_that_is_not_there_says_how_to_write_the_path(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition().close()
    Path("sorting/mine").mkdir(parents=True)
    result = bakeoff("status", "sorting/mine")
    assert result.exit_code == 2 and "write ./sorting/mine for the path" in result.stderr
