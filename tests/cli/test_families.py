"""Families, levels and looks through the command line: what is asked for later is not judged as if asked for first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import bakeoff as package
from bakeoff.records.edition import Edition
from support.editions import START
from support.processes import Lab

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
SHIFT = 0.25
ARMS = ("base", "b1", "b2", "b3", "b4")
FILE = """\
name = "{name}"
seeds = "1..10"
[params]
command = ["true"]
{arms}
[analysis]
{analysis}
"""


def entries(arms: tuple[str, ...]) -> str:
    return "".join(f'[[arms]]\nname = "{arm}"\n' for arm in arms)


def outcome(arm: str, seed: int) -> dict[str, Any]:
    """b1 is better by so little that it is significant alone and not among four; speed says nothing."""
    rng = np.random.default_rng([seed, *arm.encode()])
    world = float(np.random.default_rng(seed).normal())
    shift = {"b1": SHIFT}.get(arm, 0.0)
    score = world + shift + 0.5 * float(rng.normal())
    return {"status": "succeeded", "metrics": {"score": score, "speed": float(rng.normal()), "other": 2 * score}}


@pytest.fixture
def trial(make_edition: MakeEdition) -> Callable[..., Edition]:
    def make(analysis: str = 'metric = "score"', arms: tuple[str, ...] = ARMS, **rest: Any) -> Edition:
        text = FILE.format(name="trial", arms=entries(arms), analysis=analysis)
        return make_edition("trial", outcome, text=text, files=False, **rest)

    return make


def compared(bakeoff: Bakeoff, *arguments: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(bakeoff("compare", *arguments, "--json").stdout)
    return facts


def by_arm(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["candidate"]: each for each in facts["comparisons"]}


def test_naming_one_arm_does_not_make_its_family_smaller(bakeoff: Bakeoff, trial: Callable[..., Edition]) -> None:
    trial()
    whole = by_arm(compared(bakeoff, "trial"))
    assert whole["b1"]["p"] < 0.05 < whole["b1"]["p_adjusted"], "the example is significant alone, and not among four"
    (alone,) = compared(bakeoff, "trial", "--arms", "b1")["comparisons"]
    (beside,) = compared(bakeoff, "trial:base", "trial:b1")["comparisons"]
    assert alone["verdict"] == beside["verdict"] == "undecided"
    assert alone["p_adjusted"] == whole["b1"]["p_adjusted"] and alone["family"] == beside["family"] == 4


def test_a_smaller_family_is_declared_in_the_file(bakeoff: Bakeoff, trial: Callable[..., Edition]) -> None:
    trial('metric = "score"\ncandidates = ["b1"]')
    (alone,) = compared(bakeoff, "trial")["comparisons"]
    assert (alone["verdict"], alone["family"]) == ("better", 1)
    (other,) = compared(bakeoff, "trial", "--arms", "b2")["comparisons"]
    assert (other["verdict"], other["reason"]) == ("undecided", "exploratory")


def test_another_control_than_the_declared_one_counts_every_pair(
    bakeoff: Bakeoff, trial: Callable[..., Edition]
) -> None:
    trial()
    facts = compared(bakeoff, "trial", "--control", "b2")
    assert {each["family"] for each in facts["comparisons"]} == {10}


def test_a_metric_that_is_not_in_the_file_is_exploratory(bakeoff: Bakeoff, trial: Callable[..., Edition]) -> None:
    trial(arms=("base", "b1"))
    result = bakeoff("compare", "trial", "--metric", "other")
    assert result.exit_code == 3
    assert "Exploratory" in result.stdout and "undecided (exploratory)" in result.stdout
    assert "Better:" not in result.stdout
    (other,) = package.compare("trial", metric="other")
    assert (other.verdict, other.reason) == ("undecided", "exploratory") and other.p is not None


def test_without_a_metric_in_the_file_the_first_that_is_asked_for_stays_the_primary_one(
    bakeoff: Bakeoff, trial: Callable[..., Edition]
) -> None:
    trial("", arms=("base", "b1"))
    first = compared(bakeoff, "trial", "--metric", "score")
    assert first["comparisons"][0]["verdict"] == "better"
    assert "1 of 3 metrics" in first["settings"]["choice"]["sentence"]
    second = compared(bakeoff, "trial", "--metric", "other")
    assert second["comparisons"][0]["reason"] == "exploratory"
    assert compared(bakeoff, "trial", "--metric", "score")["comparisons"][0]["verdict"] == "better"


def test_a_table_says_that_its_metric_is_one_of_several(bakeoff: Bakeoff, tmp_path: Path) -> None:
    lines = ["arm,seed,score,accuracy"]
    for seed in range(10):
        for arm in ARMS:
            metrics = outcome(arm, seed + 1)["metrics"]
            lines.append(f"{arm},{seed},{metrics['score']},{metrics['speed']}")
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    facts = compared(bakeoff, "runs.csv", "--metric", "score", "--arms", "b1")
    assert facts["comparisons"][0]["family"] == 4 and facts["settings"]["choice"]["metrics"] == 2
    assert "p is at most 2 times as large" in bakeoff("compare", "runs.csv", "--metric", "score").stdout


@pytest.mark.parametrize("flag", [("--alpha", "0.2"), ("--unpaired",), ("--strict",), ("--margin", "1")])
def test_an_analysis_that_is_changed_after_a_look_gets_a_quarter_of_alpha(
    bakeoff: Bakeoff, trial: Callable[..., Edition], flag: tuple[str, ...]
) -> None:
    trial(arms=("base", "b1"))
    free = compared(bakeoff, "trial", *flag)
    assert "changed" not in free["settings"], "before a look it is free"
    trial(arms=("base", "b1"), stamp=START + 100)
    bakeoff("summarize", "trial")
    late = compared(bakeoff, "trial", *flag)
    (change,) = late["settings"]["changed"]["metrics"]
    assert change["change"] == 1 and late["comparisons"][0]["changes"] == 1
    assert late["comparisons"][0]["interval"]["level"] == pytest.approx(1 - 0.05 / 4)
    shown = bakeoff("compare", "trial", *flag).stdout
    assert "(declared)" in shown and "(asked)" in shown and "alpha 0.0125 instead of 0.05" in shown
    assert "changed" not in compared(bakeoff, "trial")["settings"]


def test_changing_the_analysis_again_costs_again_and_a_lower_alpha_costs_nothing(
    bakeoff: Bakeoff, trial: Callable[..., Edition]
) -> None:
    trial(arms=("base", "b1"))
    compared(bakeoff, "trial")
    compared(bakeoff, "trial", "--unpaired")
    assert compared(bakeoff, "trial", "--strict")["comparisons"][0]["changes"] == 2
    assert compared(bakeoff, "trial", "--unpaired")["comparisons"][0]["changes"] == 1
    assert compared(bakeoff, "trial", "--alpha", "0.01")["comparisons"][0]["changes"] == 0


def test_status_that_showed_means_is_a_look(bakeoff: Bakeoff, trial: Callable[..., Edition]) -> None:
    trial(arms=("base", "b1"))
    bakeoff("status", "trial")
    assert compared(bakeoff, "trial", "--unpaired")["comparisons"][0]["changes"] == 1


def test_repeated_editions_of_one_plan_are_counted(bakeoff: Bakeoff, trial: Callable[..., Edition]) -> None:
    for number in range(3):
        trial(arms=("base", "b1"), stamp=START + 100 * number)
    first = bakeoff("compare", "trial").stdout
    assert "Edition 3 of 3 of the same plan and code" in first
    trial(arms=("base", "b1", "b2"), stamp=START + 400)
    assert "edition" not in compared(bakeoff, "trial")["settings"], "another plan is not a repetition"
    bakeoff("report", "trial/" + json.loads(bakeoff("ls", "trial", "--json").stdout)[-1]["edition"], "--out-dir", "out")
    assert "of 3 of the same plan and code" in Path("out/index.html").read_text()


def test_a_gate_for_one_arm_of_several_has_the_level_of_its_family(
    bakeoff: Bakeoff, trial: Callable[..., Edition]
) -> None:
    trial()
    flags = ("gate", "trial", "--must-improve", "score", "--json")
    whole, alone = (json.loads(bakeoff(*flags, *more).stdout) for more in ((), ("--arms", "b1")))
    assert {check["level"] for check in whole["checks"]} == {0.05}
    assert alone["checks"][0]["level"] == pytest.approx(0.05 / 4)
    assert "1 of 4 planned comparisons" in alone["settings"]["choice"]["sentence"]


def test_a_direction_that_is_asked_for_is_no_change_of_the_analysis(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    def loss(arm: str, seed: int) -> dict[str, Any]:
        return {"status": "succeeded", "metrics": {"loss": outcome(arm, seed)["metrics"]["score"]}}

    text = FILE.format(name="trial", arms=entries(("base", "b1")), analysis='metric = "loss"')
    make_edition("trial", loss, text=text, files=False)
    bakeoff("status", "trial")
    assert bakeoff("compare", "trial").exit_code == 2
    assert compared(bakeoff, "trial", "--direction", "loss=minimize")["comparisons"][0]["changes"] == 0
    assert compared(bakeoff, "trial", "--direction", "loss=maximize")["comparisons"][0]["changes"] == 1


def test_a_gate_does_not_find_a_metric_that_passes_by_trying_them_in_turn(
    bakeoff: Bakeoff, trial: Callable[..., Edition], tmp_path: Path
) -> None:
    trial(arms=("base", "b1"))
    for metric in ("score", "speed", "other"):
        gate = ("gate", "trial", "--max-regression", f"{metric}=5", "--json")
        (tmp_path / "rules.toml").write_text(f'[[rules]]\nmetric = "{metric}"\nmin_lift = -5.0\n')
        litmus = ("litmus", "rules.toml", "trial", "--baseline", "base", "--candidate", "b1", "--json")
        for call in (gate, litmus, gate, litmus):
            changed = json.loads(bakeoff(*call).stdout)["settings"].get("changed", {"metrics": []})
            expected = {"score": [], "speed": [1], "other": [2]}[metric]
            assert [each["change"] for each in changed["metrics"]] == expected, (call, changed)
    assert "The rule of other was added after others had been checked" in changed["sentence"]


# -- litmus


LIFT = '[[rules]]\nmetric = "score"\nmin_lift = 0.01\n'


def litmus_table(place: Path, lift: float, seeds: int = 10) -> None:
    lines = ["arm,seed,score"]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        lines += [f"old,{seed},{rng.normal()}", f"new,{seed},{lift + rng.normal()}"]
    (place / "runs.csv").write_text("\n".join(lines))


def test_a_threshold_without_evidence_is_never_confirmed(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(LIFT)
    call = ("litmus", "rules.toml", "runs.csv", "--baseline", "old", "--candidate", "new")
    litmus_table(tmp_path, 0.5)
    chance = bakeoff(*call)
    assert chance.exit_code == 3 and "INCONCLUSIVE" in chance.stdout and "one-sided alpha 0.05" in chance.stdout
    litmus_table(tmp_path, 4.0)
    assert bakeoff(*call).exit_code == 0
    litmus_table(tmp_path, -4.0)
    assert bakeoff(*call).exit_code == 1
    litmus_table(tmp_path, 40.0, seeds=1)
    assert bakeoff(*call).exit_code == 3, "one run of each arm is no evidence"
    (tmp_path / "rules.toml").write_text('[[rules]]\nmetric = "score"\nat_least = 0.0\n')
    litmus_table(tmp_path, 0.2)
    assert bakeoff(*call).exit_code == 3


def test_litmus_asks_what_compare_asks(bakeoff: Bakeoff, trial: Callable[..., Edition], tmp_path: Path) -> None:
    trial()
    (tmp_path / "rules.toml").write_text('[[rules]]\nmetric = "score"\nverdict = "better"\n')
    result = bakeoff("litmus", "rules.toml", "trial", "--baseline", "base", "--candidate", "b1")
    assert result.exit_code == 3, "alone it is significant, among the four planned arms it is not"


# -- the experiment file is edited after the run


RUNNING = (
    "name = 'trial'\nworkload = 'python'\njobs = 2\nseeds = 8\nparams = {{ function = 'work:play' }}\n"
    "[[arms]]\nname = 'old'\n[[arms]]\nname = 'new'\nparams = {{ shift = 1.5 }}\n[analysis]\nmetric = 'score'\n{more}"
)
WORK = "def play(ctx, shift=0.0):\n    return {'score': shift + float(ctx.rng('noise', own=True).normal())}\n"


def test_an_edited_analysis_is_used_before_a_look_and_counted_after_one(lab: Lab) -> None:
    file = lab.experiment(RUNNING.format(more=""), work=WORK)
    lab.run()
    file.write_text(RUNNING.format(more="margin = 0.5\n"))
    by_name = lab.look("compare", "trial", code=None).stdout
    assert "trial.toml now says margin = 0.5" in by_name.replace("\n", " ")
    late = json.loads(lab.look("compare", "trial.toml", "--json", code=None).stdout)
    assert late["settings"]["margin"] == 0.5 and late["comparisons"][0]["changes"] == 1
    again = lab.cli("run", "trial.toml")
    assert "(margin: not set became 0.5). Results were shown before" in again.stderr
    lab.run(fresh=True)
    file.write_text(RUNNING.format(more="margin = 0.7\n"))
    free = json.loads(lab.look("compare", "trial.toml", "--json", code=None).stdout)
    assert free["settings"]["margin"] == 0.7 and free["comparisons"][0]["changes"] == 0
    assert "no result had been shown, so the file counts" in free["comparisons"][0]["warnings"][0]


def test_running_again_takes_over_an_edited_analysis_as_long_as_nothing_was_shown(lab: Lab) -> None:
    file = lab.experiment(RUNNING.format(more=""), work=WORK)
    lab.run()
    file.write_text(RUNNING.format(more="alpha = 0.01\n"))
    assert "No result was shown before" in lab.cli("run", "trial.toml").stderr
    facts = json.loads(lab.look("compare", "trial", "--json", code=None).stdout)
    assert facts["settings"]["alpha"] == 0.01 and facts["comparisons"][0]["warnings"] == []
