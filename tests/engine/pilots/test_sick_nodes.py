"""Nodes that cannot be trusted: one whose probe fails gets no runs, and results of one can be set aside, all of them, once."""

from __future__ import annotations

import platform

import pytest

from bakeoff.records.looks import read_looks
from support.process_pilots import install
from support.processes import Lab

PILOTS = """
[executor]
kind = "processes"
pilots = 2
"""
FILE = """
seeds = 10
arms = [{ name = "a" }, { name = "b" }]
params = { command = "sh run.sh {seed}" }
[analysis]
metric = "score"
failure_score = 0.0
"""
ON_NODES = """
import os

def run(seed):
    return {"score": 100.0 if os.environ["BAKEOFF_NODE"] == "node-1-1" else 1.0}
"""


@pytest.mark.slow
def test_a_node_whose_probe_fails_gets_no_runs_and_status_says_why(lab: Lab) -> None:
    install(lab)
    lab.measured = False
    python = 'workload = "python"\nseeds = 6\nparams = { function = "work:run" }\n'
    probe = 'probe = "echo no device; test $BAKEOFF_NODE != node-1-1"\n'
    lab.experiment(python + PILOTS + probe, work=ON_NODES)
    lab.cli("run", "trial.toml")
    assert {row["score"] for row in lab.rows()} == {1.0}
    status = lab.look("status", "trial").output
    assert "node-1-1 got no more runs: executor.probe failed: exit code 1: no device" in status


@pytest.mark.slow
def test_results_of_a_node_are_set_aside_and_it_gets_no_more_runs(lab: Lab) -> None:
    install(lab)
    lab.measured = False
    lab.experiment('workload = "python"\nseeds = 12\nparams = { function = "work:run" }\n' + PILOTS, work=ON_NODES)
    lab.cli("run", "trial.toml")
    sick = {row["run_id"] for row in lab.rows() if row["score"] == 100.0}
    lab.cli("run", "trial.toml", "--set-aside", "node-1-1")
    assert {row["score"] for row in lab.rows()} == {1.0}
    assert {row["run_id"] for row in lab.rows() if row["attempts"] == 2} == sick
    assert "node-1-1 got no more runs: set aside" in lab.look("status", "trial").output


def test_all_results_of_a_node_are_discarded_once_whatever_they_are_and_that_counts_as_a_look(lab: Lab) -> None:
    lab.write("run.sh", 'test -e sick && [ $1 = 0 ] && exit 1; echo "{\\"score\\": $1}"\n')
    lab.write("sick", "")
    lab.experiment(FILE)
    lab.cli("run", "trial.toml", code=1)
    assert lab.statuses() == {"succeeded": 18, "failed": 2}
    assert '"level": 0.95,' in lab.look("compare", "trial", "--json", code=None).output
    (lab.place / "sick").unlink()
    said = lab.cli("run", "trial.toml", "--set-aside", platform.node())
    assert "20 results of" in said.stderr
    assert lab.statuses() == {"succeeded": 20} and {row["attempts"] for row in lab.rows()} == {2}
    assert [look.verb for look in read_looks(lab.edition())].count("set aside") == 1
    assert '"level": 0.9875,' in lab.look("compare", "trial", "--json", code=None).output, "a quarter of alpha is left"
    refused = lab.cli("run", "trial.toml", "--set-aside", platform.node(), code=2)
    assert "were set aside before; that is possible once" in refused.stderr
    unknown = lab.cli("run", "trial.toml", "--set-aside", "elsewhere", code=2)
    assert f"has no results of 'elsewhere'; it has results of {platform.node()}" in unknown.stderr


def test_an_experiment_without_results_has_none_to_set_aside(lab: Lab) -> None:
    lab.experiment(FILE.replace("sh run.sh {seed}", "true"))
    assert "no edition with results" in lab.cli("run", "trial.toml", "--set-aside", "n1", code=2).stderr
    assert not lab.root.exists() or not list(lab.root.glob("trial/2*"))
