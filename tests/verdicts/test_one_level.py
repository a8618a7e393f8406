"""One edition, asked in every way: the level of a comparison depends on its family, its rank and its looks alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bakeoff
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.results.editions import edition_results, open_all_editions
from bakeoff.results.sources import open_results
from bakeoff.verdicts.answer import answer, as_text
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.question import Compare, Gate, Litmus, Rank
from bakeoff.verdicts.questions.gate import policy
from bakeoff.verdicts.questions.litmus import Rules
from bakeoff.verdicts.sequential.evidence_path import path_of
from bakeoff.web import folder
from support import editions

ARMS = ("base", "one", "two", "three")
FILE = """
name = "asked"
seeds = "1..12"
params = {{ command = ["true"] }}
{arms}
[analysis]
metric = "score"
primary = ["reach"]
{analysis}
"""
PLANNED = (len(ARMS) - 1) * 2
EVERY_PAIR = len(ARMS) * (len(ARMS) - 1) // 2


def scores(arm: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([ARMS.index(arm), seed])
    values = {name: float(rng.normal()) + 0.4 * (arm == "two") for name in ("score", "reach", "luck")}
    return {"status": "succeeded", "exit_code": 0, "metrics": values}


@pytest.fixture
def edition(tmp_path: Path) -> Iterator[Edition]:
    yield made(tmp_path)


def made(place: Path, analysis: str = "", seeds: str = "1..12") -> Edition:
    arms = "".join(f"[[arms]]\nname = '{arm}'\nparams = {{ arguments = ['{arm}'] }}\n" for arm in ARMS)
    text = FILE.format(arms=arms, analysis=analysis).replace("1..12", seeds)
    return editions.make_edition(place, "asked", scores, text=text, files=False)


def compared(edition: Edition, **question: Any) -> list[Comparison]:
    return list(answer(edition_results(edition), Compare.ask(**question)).comparisons)


def largest_level(comparisons: list[Comparison]) -> float:
    """What Holm's first step tests at."""
    return min(1.0 - each.decision_interval.level for each in comparisons if each.decision_interval is not None)


def test_the_family_is_what_was_planned_whatever_is_asked_for(edition: Edition) -> None:
    everything = compared(edition)
    assert {each.family for each in everything} == {PLANNED} and len(everything) == PLANNED
    by_pair = {(each.candidate, each.metric): each for each in everything}
    for question in ({"arms": ("two",)}, {"metric": "score"}, {"metric": "reach", "arms": ("one", "two")}):
        for each in compared(edition, **question):
            same = by_pair[each.candidate, each.metric]
            assert (each.family, each.verdict, each.p_adjusted) == (PLANNED, same.verdict, same.p_adjusted)
            assert each.decision_interval == same.decision_interval


def test_python_and_the_report_show_the_same_family(edition: Edition, tmp_path: Path) -> None:
    expected = {(each.candidate, each.metric): (each.verdict, each.p_adjusted) for each in compared(edition)}
    edition.close()
    in_python = bakeoff.compare("asked", arms=["two"], root=tmp_path / "bakeoff-runs")
    assert [(each.verdict, each.p_adjusted) for each in in_python] == [
        expected["two", "score"],
        expected["two", "reach"],
    ]
    results = open_results(["asked"], tmp_path / "bakeoff-runs")
    folder.write(results, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"adjusted for {PLANNED} comparisons" in page


def test_a_control_that_is_not_declared_could_have_been_any(edition: Edition) -> None:
    assert {each.family for each in compared(edition, control="one")} == {EVERY_PAIR * 2}
    assert {each.family for each in compared(edition, control="one", arms=("two",))} == {EVERY_PAIR * 2}


def test_a_smaller_family_is_declared_in_the_file(tmp_path: Path) -> None:
    smaller = made(tmp_path, "candidates = ['two']")
    (first, second) = compared(smaller)
    assert {first.family, second.family} == {2}
    assert {each.reason for each in compared(smaller, arms=("one",))} == {"exploratory"}


def test_a_metric_that_was_not_declared_is_exploratory_and_exits_with_3(edition: Edition) -> None:
    compared(edition)
    later = answer(edition_results(edition), Compare.ask(metric="luck"))
    assert {each.reason for each in later.comparisons} == {"exploratory"} and later.exit_code == 3


def test_gate_and_litmus_take_their_level_from_the_same_family(edition: Edition) -> None:
    rules = policy({"metrics": {"score": {"max_regression": 0.5}}})
    levels = {}
    for name, asked in (
        ("all", {}), ("picked", {"arms": ("two",)}), ("other control", {"arms": ("two",), "control": "one"}),
    ):  # fmt: skip
        checks = answer(edition_results(edition), Gate(policy=rules, **asked)).checks
        levels[name] = {check.level for check in checks}
    assert levels == {"all": {0.05}, "picked": {0.05 / 3}, "other control": {0.05 / EVERY_PAIR}}
    litmus = Rules.model_validate(
        {"rules": [{"name": "lift", "metric": "score", "min_lift": 0.1, "direction": "maximize"}]}
    )
    for baseline, arms in (("base", 3), ("one", EVERY_PAIR)):
        asked_litmus = Litmus(rules=litmus, baseline=baseline, candidate="two")
        shown = json.dumps(answer(edition_results(edition), asked_litmus).facts())
        assert f"one-sided alpha {0.05 / arms:.4g}" in shown


def test_an_analysis_changed_after_results_is_judged_at_a_quarter_with_both_analyses_in_the_output(
    edition: Edition,
) -> None:
    first = compared(edition)
    changed = answer(edition_results(edition), Compare.ask(unpaired=True))
    assert {each.changes for each in changed.comparisons} == {1}
    assert largest_level(list(changed.comparisons)) == pytest.approx(largest_level(first) / 4.0)
    facts = changed.facts()["settings"]["changed"]
    both = {(each["candidate"], each["metric"]): (each["verdict"], each["p_adjusted"]) for each in facts["first"]}
    assert both == {(each.candidate, each.metric): (each.verdict, each.p_adjusted) for each in first}
    assert "By the analysis that was shown first: " in as_text(changed)
    second = answer(edition_results(edition), Compare.ask(statistic="rank"))
    assert largest_level(list(second.comparisons)) == pytest.approx(largest_level(first) / 16.0)
    assert compared(edition) == first  # what was shown first keeps its level


def test_means_that_were_shown_are_a_look(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as grown:
        answer(edition_results(grown), Rank(metric="score"))
        assert [look.verb for look in edition_results(grown).looks] == ["rank"]


def test_a_sequential_test_has_the_same_family(tmp_path: Path) -> None:
    def thresholds(analysis: str, **question: Any) -> set[float]:
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        with closing(made(place, f"{analysis}\n[sequential]\nmax_seeds = 12")) as sequential:
            report = answer(edition_results(sequential), Compare.ask(**question)).sequential
        assert report is not None
        return {path_of(each).threshold for each in report.comparisons}

    assert thresholds("") == {2 * PLANNED / 0.05}
    assert thresholds("", metric="score", arms=("two",)) == {2 * PLANNED / 0.05}
    with pytest.raises(UsageError, match="fixed when it began"):
        thresholds("", control="one")
    assert thresholds("candidates = ['two']") == {2 * 2 / 0.05}
    with pytest.raises(UsageError, match=r"analysis\.candidates"):
        thresholds("candidates = ['two']", arms=("one",))


def test_all_editions_together_have_the_same_family(tmp_path: Path) -> None:
    made(tmp_path).close()
    with closing(open_all_editions(["asked"], tmp_path / "bakeoff-runs")) as results:
        for question, family in (
            ({}, PLANNED), ({"metric": "score", "arms": ("two",)}, PLANNED), ({"control": "one"}, EVERY_PAIR * 2),
        ):  # fmt: skip
            report = answer(results, Compare.ask(editions="all", **question)).sequential
            assert report is not None
            assert {path_of(each).threshold for each in report.comparisons} == {2 * family / 0.05}
