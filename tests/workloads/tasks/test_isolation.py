"""A score from tests that share a sandbox with the work is labelled `self-reported` wherever it is shown, or refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from support.processes import Lab
from support.reports import parts_of_runs
from workloads.tasks.small import MEND, write_task

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

FILE = """
name = "{name}"
workload = "tasks"
jobs = 2
matrix.agent = ["honest", "idle"]
{tasks}
[params]
{params}
[params.agents.honest]
wire = "none"
command = {mend}
[params.agents.idle]
wire = "none"
command = "true"
[analysis]
metric = "total_score"
bounds = [0, 1]
"""
LAUNCHED = "from bakeoff_work import call\n\n\ndef test_adds():\n    assert call('sums:add', 2, 3) == 5\n"
LABEL = "total_score of honest, idle is self-reported: the work ran where its tests ran"


def write(lab: Lab, name: str, *tasks: str, params: str = "") -> Path:
    listed = "".join(f'[[tasks]]\nname = "{task}"\npath = "tasks/{task}"\n' for task in tasks)
    return lab.write(f"{name}.toml", FILE.format(name=name, tasks=listed, params=params, mend=json.dumps(MEND)))


def said(lab: Lab, *arguments: str) -> str:
    """What a command prints, on one line: a terminal may be narrow."""
    return " ".join(lab.look(*arguments, code=None).stdout.split())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two tasks whose tests import the work, and one whose tests call it through a launcher."""
    lab = Lab(tmp_path_factory.mktemp("i"))
    lab.environment |= {"BAKEOFF_CACHE": str(lab.place / "c")}
    for task in ("one", "two"):
        write_task(lab.place / "tasks" / task)
    script = lab.place / "tasks" / "two" / "metrics" / "lines.py"  # it runs where the work is
    script.parent.mkdir()
    script.write_text('print(\'{"lines": 3, "kept,lines": 2, "total_score ": 1, "self_reported": 0, "failure": 0}\')\n')
    isolated = {"timeout_sec": 20, "isolation": "launcher"}
    write_task(lab.place / "tasks" / "apart", tests={"adds": LAUNCHED}, verifier=isolated)
    ended = lab.cli("run", write(lab, "mixed", "one", "two", "apart"), cwd=lab.place)
    assert "scores of tasks here are self-reported" in ended.stderr + ended.stdout
    assert "* is self-reported" in ended.stdout  # the means at the end
    return lab


def test_a_run_says_which_of_its_metrics_the_work_could_have_written(ran: Lab) -> None:
    rows = ran.rows("mixed")
    labels = {row["task"]: row.get("self_reported") for row in rows}
    assert labels["apart"] is None
    assert labels["one"] == "total_score, passed, tampered, tests, tests_passed"
    assert labels["two"] == f"{labels['one']}, lines, kept,lines, total_score "  # no script can take the label away
    (row, *_) = [row for row in rows if row["task"] == "one"]
    facts = json.loads((ran.run_directory(str(row["run_id"]), "mixed") / "evaluation_results.json").read_text())
    assert facts["isolated"] is False and "total_score" in facts["self_reported"]


def test_every_answer_about_such_a_score_is_labelled(ran: Lab) -> None:
    assert LABEL in said(ran, "compare", "mixed")
    assert LABEL in said(ran, "compare", "mixed", "--verbose")
    facts = json.loads(ran.look("compare", "mixed", "--json", code=None).stdout)
    assert facts["self_reported"] == {"total_score": ["honest", "idle"]}
    assert LABEL in said(ran, "rank", "mixed")
    assert LABEL in said(ran, "summarize", "mixed")
    tallies = json.loads(ran.look("summarize", "mixed", "--json").stdout)["by_task"]
    assert {tally["task"]: tally["self_reported"] for tally in tallies} == {"one": True, "two": True, "apart": False}
    policy = ran.write("gate.toml", "[metrics.total_score]\nmax_regression = 0.5\n")
    gated = json.loads(ran.look("gate", "mixed", "--policy", policy, "--json", code=None).stdout)
    assert gated["self_reported"] == {"total_score": ["honest", "idle"]}
    report = ran.place / "site"
    ran.look("report", "mixed", "--out-dir", report)
    assert LABEL in "".join(page.read_text() for page in report.rglob("*.html"))


def test_means_that_are_no_verdict_are_labelled_too(ran: Lab) -> None:
    assert "* is self-reported" in said(ran, "status", "mixed")
    arms = json.loads(ran.look("status", "mixed", "--json").stdout)["arms"]
    assert [arm["means"]["total_score"]["self_reported"] for arm in arms.values()] == [True, True]
    others = json.loads(ran.look("summarize", "mixed", "--json").stdout)["others"]
    assert {name for name, means in others.items() if means["honest"]["self_reported"]} == {
        "passed", "tests", "tests_passed", "lines", "kept,lines", "total_score ",
    }  # fmt: skip
    assert "passed 1* 0*" in said(ran, "summarize", "mixed")


def test_the_csv_of_a_comparison_and_every_page_with_a_score_are_labelled(ran: Lab) -> None:
    ran.look("compare", "mixed", "--csv", ran.place / "compared.csv", code=None)
    with (ran.place / "compared.csv").open() as file:
        assert {row["self_reported"] for row in csv.DictReader(file)} == {"honest, idle"}
    ran.look("report", "mixed", "--out-dir", ran.place / "pages")
    pages = {page.stem: page.read_text() for page in (ran.place / "pages").glob("*.html")}
    labelled = {name for name, page in pages.items() if "self-reported" in page}
    assert labelled == pages.keys() - {"run", "curves", "task-2-apart"}  # nothing was logged by step
    parts = parts_of_runs(ran.place / "pages")
    tasks = {row["run_id"]: row["task"] for row in ran.rows("mixed")}
    assert {tasks[run] for run in tasks if "self-reported" not in parts[run]["Rollout"]} == {"apart"}


@pytest.mark.parametrize("metric", ["kept,lines", "total_score "])
def test_a_name_that_looks_like_two_or_like_another_keeps_its_label(ran: Lab, metric: str) -> None:
    asked = ("compare", "mixed", "--metric", metric, "--failure-score", "0", "--json")
    facts = json.loads(ran.look(*asked, code=None).stdout)
    assert facts["self_reported"] == {metric: ["honest", "idle"]}


def test_what_the_work_cannot_write_has_no_label(ran: Lab) -> None:
    facts = json.loads(ran.look("compare", "mixed", "--metric", "seconds", "--json", code=None).stdout)
    assert facts["self_reported"] == {"seconds": []}


def test_the_label_stays_with_a_table_that_was_collected(ran: Lab) -> None:
    table = ran.place / "mixed.csv"
    ran.look("collect", "mixed", "--out-csv", table)
    assert "self_reported" in table.read_text().splitlines()[0]
    facts = json.loads(ran.look("compare", table, "--metric", "total_score", "--json", code=None).stdout)
    assert facts["self_reported"] == {"total_score": ["honest", "idle"]}


def test_such_tasks_are_refused_before_anything_runs_if_isolation_is_required(ran: Lab) -> None:
    file = write(ran, "strict", "apart", "two", params="require_isolation = true")
    refused = ran.cli("run", file, cwd=ran.place, code=2)
    assert "tasks/two" in refused.stderr and "tests of two share a sandbox with the work" in refused.stderr
    assert '"isolation": "launcher"' in refused.stderr
    assert not (ran.root / "strict").exists()


def test_isolated_tasks_run_where_isolation_is_required_and_have_no_label(ran: Lab) -> None:
    ran.cli("run", write(ran, "apart", "apart", params="require_isolation = true"), cwd=ran.place)
    assert all("self_reported" not in row or row["self_reported"] is None for row in ran.rows("apart"))
    facts = json.loads(ran.look("compare", "apart", "--json", code=None).stdout)
    assert facts["self_reported"] == {"total_score": []}
