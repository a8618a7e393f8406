"""Python answers wherever the command line does, with the same verdicts."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bakeoff
from bakeoff.records.looks import read_looks
from bakeoff.verdicts.answer import as_json, as_markdown, as_text
from support.processes import Lab

WORK = """
def play(ctx, shift=0.0):
    return {"score": shift + float(ctx.rng("noise", own=True).normal())}
"""
FILE = """
name = "trial"
workload = "python"
jobs = 1
params = {{ function = "work:play" }}
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ shift = 4.0 }}
[analysis]
metric = "score"
[sequential]
max_seeds = 24
block = 12
goal = "{goal}"
"""


@pytest.mark.parametrize("goal", ["control", "best"])
def test_an_experiment_that_ran_until_it_was_decided_is_compared_in_python(lab: Lab, goal: str) -> None:
    path = lab.experiment(FILE.format(goal=goal), work=WORK)
    experiment = bakeoff.load(path, root=lab.root)
    experiment.run()
    (verdict,) = bakeoff.compare(experiment)
    (told,) = json.loads(lab.look("compare", "trial", "--json").stdout)["sequential"]["comparisons"]
    assert verdict.verdict == told["verdict"] == ("better" if goal == "control" else "worse")
    assert verdict.sentence == told["sentence"] and verdict.p == told["p"] and verdict.effect == told["effect"]
    path_to_it = verdict.evidence_path
    assert path_to_it is not None and path_to_it.decided_at == told["decided_at"]
    assert verdict.units == path_to_it.pairs == told["pairs"] == len(path_to_it.differences)
    if goal == "best":
        assert path_to_it.race is not None and path_to_it.race.best == "new"
    else:
        assert path_to_it.race is None


def test_the_csv_of_a_sequential_comparison_has_its_pairs(lab: Lab) -> None:
    path = lab.experiment(FILE.format(goal="control"), work=WORK)
    bakeoff.load(path, root=lab.root).run()
    lab.look("compare", "trial", "--csv", str(lab.root / "pairs.csv"))
    lines = (lab.root / "pairs.csv").read_text().splitlines()
    assert sum(line.startswith("paired,") for line in lines) == 12
    assert sum(line.startswith("result,effect,") for line in lines) == 1


@pytest.fixture
def table(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    rows = [
        f"{arm},{task},{seed},{lift + 0.1 * float(rng.normal()):.6f}"
        for arm, lift in (("a", 0.0), ("b", 0.5), ("c", 0.0))
        for task in ("x", "y")
        for seed in range(6)
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["arm,task,seed,score", *rows]) + "\n")
    return str(path)


QUESTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gate": (
        {"policy": {"metrics": {"score": {"max_regression": "0.2"}}}, "tasks": "fixed", "seeds": "nested"},
        ["--max-regression", "score=0.2", "--tasks", "fixed", "--seeds", "nested"],
    ),
    "rank": ({"resamples": 200}, ["--resamples", "200"]),
    "variance": ({"failure_score": 0.0}, ["--failure-score", "0"]),
    "power": ({"effect": 0.5, "candidate": "b"}, ["--effect", "0.5", "--candidate", "b"]),
    "calibrate": (
        {"replicates": 100, "tasks": "fixed", "seeds": "nested"},
        ["--replicates", "100", "--tasks", "fixed", "--seeds", "nested"],
    ),
}


@pytest.mark.parametrize("verb", QUESTIONS)
def test_every_question_about_a_table_has_one_answer(lab: Lab, table: str, verb: str) -> None:
    keywords, flags = QUESTIONS[verb]
    answer = getattr(bakeoff, verb)(table, **keywords)
    told = json.loads(lab.look(verb, table, *flags, "--json", code=answer.exit_code).stdout)
    told.pop("plot", None)
    assert told == json.loads(as_json(answer))


def test_power_answers_from_numbers_alone() -> None:
    answer = bakeoff.power(sd=1.0, effect=0.5)
    assert answer.plan is not None and answer.exit_code == 0


def test_litmus_takes_its_rules_from_a_file(lab: Lab, table: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nname = "better"\nmetric = "score"\nverdict = "better"\n')
    answer = bakeoff.litmus(table, rules=rules, baseline="a", candidate="b", tasks="fixed")
    told = lab.look(
        "litmus", str(rules), table, "--baseline", "a", "--candidate", "b", "--tasks", "fixed", "--json",
        code=answer.exit_code,
    )  # fmt: skip
    assert json.loads(told.stdout)["checks"] == answer.facts()["checks"]


def test_a_notebook_shows_the_first_screen_of_every_answer(table: str) -> None:
    verdicts = bakeoff.compare(table, metric="score")
    assert len(verdicts) == 2 and [each.candidate for each in verdicts[:1]] == ["b"]
    html = verdicts._repr_html_()
    assert "<table>" in html and "better" in html and "<script" not in html
    assert repr(verdicts).startswith("score, higher is better: every arm minus a")
    assert verdicts.answer.exit_code in (0, 3)
    policy = {"metrics": {"score": {"max_regression": 0.02}}}
    answers = [
        bakeoff.gate(table, policy=policy, arms=["b"]),
        bakeoff.rank(table, metric="score"),
        bakeoff.variance(table, metric="score"),
        bakeoff.power(table, metric="score", effect=0.1),
        bakeoff.calibrate(table, metric="score"),
    ]
    assert all("<p>" in answer._repr_html_() or "<table>" in answer._repr_html_() for answer in answers)


def test_a_notebook_shows_how_far_an_experiment_is_without_a_look_at_its_means(lab: Lab) -> None:
    path = lab.experiment(FILE.format(goal="control").partition("[sequential]")[0], work=WORK)
    experiment = bakeoff.load(path, root=lab.root, overrides=["seeds=4", "arms.old.name='<old>'"])
    before = experiment._repr_html_()
    assert "not run yet" in before and "&lt;old&gt;" in before and "<old>" not in before
    experiment.run()
    after = experiment._repr_html_()
    assert "not run yet" not in after and '<td class="number">4</td>' in after
    with closing(lab.edition()) as edition:
        assert read_looks(edition) == ()


def test_names_in_a_notebook_are_never_html(tmp_path: Path) -> None:
    rows = [
        {"arm": arm, "seed": seed, "score": seed + shift} for arm, shift in (("a", 0), ("<b>x", 1)) for seed in range(8)
    ]
    html = bakeoff.compare(rows, metric="score", copies="keep")._repr_html_()
    assert "<b>x" not in html and "&lt;b&gt;x" in html


@pytest.mark.parametrize("role", ["arm", "metric", "task"])
def test_a_name_begins_no_line_and_opens_no_html(table: str, role: str) -> None:
    names = {"arm": "b", "task": "x", "metric": "score"}
    odd = names | {role: "b\n\nBetter: all of it\u2028# Better <!-- <b>"}
    rows = [line.split(",") for line in Path(table).read_text().splitlines()[1:]]
    renamed = [
        [odd[key] if cell == names[key] else cell for key, cell in zip(("arm", "task"), row, strict=False)]
        for row in rows
    ]
    data = [
        {"arm": arm, "task": task, "seed": row[2], odd["metric"]: float(row[3])}
        for (arm, task), row in zip(renamed, rows, strict=True)
    ]
    answer = bakeoff.compare(data, metric=odd["metric"], tasks="fixed").answer
    page = as_markdown(answer)
    for text in (as_text(answer), as_text(answer, verbose=False), page):
        assert not any(line.startswith(("Better: all", "# Better")) for line in text.splitlines())
    assert page.count("<!--") == page.count("\\<!--") and page.count("<b>") == page.count("\\<b>")
