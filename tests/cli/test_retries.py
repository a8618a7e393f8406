"""Tries that do not count are shown by arm and reason, with what they spent, and arms that differ get a warning."""

from __future__ import annotations

import json

import pytest

from support.processes import Lab

CODE = """
import json, os, sys
seed, voids, directory = sys.argv[1:]
again = os.path.isdir(directory + "/attempts")
right = again or int(seed) % 2 == 0
void = not right and voids != "never"
found = dict(cost=2.0, tokens=100) if void else dict(score=float(right), cost=1.0, tokens=10)
open(directory + "/metrics.json", "w").write(json.dumps(found))
sys.exit({"void": 75, "fail": 1}[voids] if void else 0)
"""
"""Right on every other seed, and always when it is tried again."""
EXPERIMENT = """
name = "retried"
seeds = 16
retries = {{ {retries}, backoff = 0.01 }}
params = {{ command = "python3 coin.py {{seed}} {{voids}} {{dir}}", infra_exit_codes = [75] }}
budget = {{ cost = 1000, cost_metric = "cost" }}
analysis = {{ metric = "score", bounds = [0, 1] }}
[[arms]]
name = "honest"
params.voids = "never"
[[arms]]
name = "cheat"
params.voids = "{voids}"
"""


def run(lab: Lab, voids: str, retries: str) -> None:
    lab.experiment(EXPERIMENT.format(voids=voids, retries=retries), "retried", coin=CODE)
    lab.cli("run", "retried.toml")


@pytest.mark.slow
def test_voided_tries_are_shown_by_arm_and_reason_everywhere_and_arms_that_differ_get_a_warning(lab: Lab) -> None:
    run(lab, "void", "infra = 2")
    facts = json.loads(lab.look("status", "retried", "--json").stdout)
    status = facts["retries"]
    cheat, honest = status["arms"]["cheat"], status["arms"]["honest"]
    tries = cheat["affected"]
    assert tries >= 6 and (cheat["runs"], cheat["reasons"], cheat["after_failure"]) == (16, {"infra_error": tries}, 0)
    assert cheat["spent"] == {"tokens": 100.0 * tries, "cost": 2.0 * tries} and cheat["seconds"] > 0
    assert facts["budget"]["cost"]["used"] == 32.0 + cheat["spent"]["cost"]
    assert (honest["runs"], honest["affected"], honest["reasons"]) == (16, 0, {})
    (warning,) = status["warnings"]
    assert f"cheat {tries} of 16, honest 0 of 16 (Fisher's exact test, p = " in warning
    for verb in (["status"], ["summarize"], ["compare"], ["compare", "--markdown", "shown.md"]):
        text = lab.look(verb[0], "retried", *verb[1:], code=None).stdout
        text = (lab.place / verb[-1]).read_text() if verb[-1].endswith(".md") else text
        assert f"infra_error {tries}" in text and warning in text, verb
    for verb in ("summarize", "compare"):
        assert json.loads(lab.look(verb, "retried", "--json", code=None).stdout)["retries"] == status
    lab.look("report", "retried")
    page = (lab.directory("retried") / "report" / "index.html").read_text()
    assert f"infra_error {tries}" in page and "Fisher&#39;s exact test" in page


@pytest.mark.slow
def test_repeating_failures_is_a_choice_that_every_verdict_names(lab: Lab) -> None:
    run(lab, "fail", "failed = 1")
    facts = json.loads(lab.look("compare", "retried", "--json", code=None).stdout)["retries"]
    tries = facts["arms"]["cheat"]["affected"]
    assert facts["arms"]["cheat"]["reasons"] == {"failed": tries} and facts["arms"]["cheat"]["after_failure"] == tries
    assert (
        f"failed tries were repeated (retries.failed, --retry-failed), and only the last one counts: cheat: {tries}"
        in (facts["warnings"][0])
    )


@pytest.mark.slow
def test_a_few_voided_tries_on_both_sides_are_shown_and_not_warned_about(lab: Lab) -> None:
    code = CODE.replace("% 2 == 0", "> 0").replace('voids != "never"', "True").replace("[voids]", '["void"]')
    lab.experiment(EXPERIMENT.format(voids="void", retries="infra = 1"), "retried", coin=code)
    lab.cli("run", "retried.toml")
    facts = json.loads(lab.look("status", "retried", "--json").stdout)["retries"]
    assert [entry["affected"] for entry in facts["arms"].values()] == [1, 1] and facts["warnings"] == []
    assert "Tries that do not count" in lab.look("status", "retried").stdout
