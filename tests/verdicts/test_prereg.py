"""A registration is made before the first result, kept with the results, and held against the analysis."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bakeoff.cli import main
from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.sequential import prereg
from support.processes import Lab

WORK = """
def play(ctx, shift=0.0):
    return {"score": shift + float(ctx.rng("noise", own=True).normal()), "cost": 1.0}
"""
FILE = """
name = "trial"
workload = "python"
seeds = 8
params = { function = "work:play" }
[[arms]]
name = "old"
[[arms]]
name = "new"
params = { shift = 1.0 }
[analysis]
metric = "score"
alpha = 0.05
margin = 0.2
"""


@pytest.fixture
def registered(lab: Lab) -> Lab:
    file = lab.experiment(FILE, work=WORK)
    done = CliRunner().invoke(main, ["prereg", str(file), "--root", str(lab.root)])
    assert done.exit_code == 0, done.output
    return lab


def written(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.place / "trial.toml.prereg.json").read_text())
    return found


def check(lab: Lab, *arguments: Any) -> prereg.Registration:
    with closing(lab.edition()) as edition:
        found = prereg.check(edition, *arguments)
    assert found is not None
    return found


def test_it_freezes_plan_seeds_metric_test_and_alpha_under_a_hash(registered: Lab) -> None:
    content = written(registered)
    assert content["hash"] == prereg.digest(content)
    assert content["runs"]["count"] == 16
    assert content["seeds"] == list(range(8))
    assert {key: content["analysis"][key] for key in ("metric", "alpha", "margin")} == {
        "metric": "score", "alpha": 0.05, "margin": 0.2,
    }  # fmt: skip
    assert (content["test"]["name"], content["test"]["unit"], content["test"]["units"]) == ("sign-flip", "seed", 8)


@pytest.mark.slow
def test_registering_the_same_again_changes_nothing_and_another_promise_is_refused(registered: Lab) -> None:
    before = (registered.place / "trial.toml.prereg.json").read_bytes()
    registered.cli("prereg", "trial.toml")
    assert (registered.place / "trial.toml.prereg.json").read_bytes() == before
    refused = registered.cli("prereg", "trial.toml", "--set", "analysis.alpha=0.1", code=2)
    assert "never overwritten" in refused.stderr


@pytest.mark.slow
def test_compare_says_that_the_analysis_is_the_registered_one(registered: Lab) -> None:
    registered.run()
    found = json.loads(registered.cli("compare", "trial", "--json", code=None).stdout)
    assert found["registration"]["kept"]
    assert found["registration"]["hash"] == written(registered)["hash"]
    assert "This is the analysis that was registered" in registered.cli("compare", "trial", code=None).stdout


@pytest.mark.slow
def test_compare_lists_every_deviation(registered: Lab) -> None:
    registered.run()
    shown = registered.cli("compare", "trial", "--alpha", "0.1", "--control", "new", "--unpaired", code=None).stdout
    assert "deviates in 3 points" in shown
    for deviation in ("analysis.alpha: registered 0.05, used 0.1", "control: registered old, used new", "unpaired"):
        assert deviation in shown


@pytest.mark.slow
def test_another_metric_is_a_deviation(registered: Lab) -> None:
    registered.run()
    assert check(registered, None, None, ["cost"]).deviations == ("metrics: registered score, used cost",)


@pytest.mark.slow
def test_a_plan_that_grew_after_the_registration_is_a_deviation(registered: Lab) -> None:
    registered.run(overrides=("seeds=10",))
    assert check(registered).deviations == ("seeds not registered: 8, 9",)


@pytest.mark.slow
def test_a_plan_that_shrank_is_a_deviation(registered: Lab) -> None:
    registered.run(overrides=("seeds=6",))
    assert check(registered).deviations == ("seeds never run: 6, 7",)


@pytest.mark.slow
def test_other_parameters_are_other_runs(registered: Lab) -> None:
    registered.run(overrides=("arms.new.params.shift=3.0",))
    assert check(registered).deviations[0].startswith("seeds with other runs than registered: 0, 1")


@pytest.mark.slow
def test_a_registration_that_was_edited_is_found_out(registered: Lab) -> None:
    registered.run()
    kept = registered.directory() / "prereg.json"
    kept.write_text(kept.read_text().replace('"alpha": 0.05', '"alpha": 0.2'))
    assert "its hash does not match" in check(registered).deviations[0]


@pytest.mark.slow
def test_after_results_it_is_refused_and_with_late_it_is_marked(lab: Lab) -> None:
    lab.experiment(FILE, work=WORK)
    lab.run()
    assert "has results already" in lab.cli("prereg", "trial.toml", code=2).stderr
    assert "Registered late" in lab.cli("prereg", "trial.toml", "--late").stdout
    assert written(lab)["late"]
    lab.run(fresh=True)
    found = check(lab)
    assert found.late
    assert not found.kept


@pytest.mark.slow
def test_a_registration_dated_after_the_first_result_is_late_whatever_it_says(registered: Lab) -> None:
    registered.run()
    content = written(registered)
    content["registered_at"] += 1e6
    content["hash"] = prereg.digest(content)
    (registered.directory() / "prereg.json").write_text(json.dumps(content))
    assert check(registered).late


@pytest.mark.slow
def test_until_decided_may_stop_early_but_not_change_its_rule(lab: Lab) -> None:
    lab.experiment(FILE + "[sequential]\nmax_seeds = 30\nblock = 4\n", work=WORK)
    lab.cli("prereg", "trial.toml")
    lab.run()
    assert check(lab).kept
    lab.run(overrides=("sequential.max_seeds=40",), fresh=True)
    assert check(lab).deviations == ("sequential.max_seeds: registered 30, used 40",)


@pytest.mark.slow
def test_code_that_changed_since_is_a_deviation_but_committing_the_registration_is_not(lab: Lab) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=lab.place, check=True, capture_output=True)

    lab.experiment(FILE, work=WORK)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "begin")
    lab.cli("prereg", "trial.toml")
    git("add", "trial.toml.prereg.json")
    git("commit", "-qm", "register")
    lab.run()
    assert check(lab).kept
    lab.write("work.py", WORK.replace("1.0}", "2.0}"))
    lab.run(fresh=True)
    assert "code: " in check(lab).deviations[0]


@pytest.mark.slow
def test_code_that_changed_outside_of_git_is_a_deviation_too(lab: Lab) -> None:
    lab.experiment(FILE, work=WORK)
    lab.cli("prereg", "trial.toml")
    lab.write("work.py", WORK.replace("1.0}", "2.0}"))
    lab.run()
    assert check(lab).deviations == ("code: work.py differs before session 1",)


@pytest.mark.slow
def test_without_a_registration_there_is_nothing_to_say(lab: Lab) -> None:
    lab.experiment(FILE, work=WORK)
    lab.run()
    with closing(lab.edition()) as edition:
        assert prereg.check(edition, Analysis(), Compare()) is None


def test_a_file_that_is_no_registration_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(UsageError, match=r"x\.json: is not a registration"):
        prereg.read(tmp_path / "x.json")
