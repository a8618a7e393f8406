"""A verdict about ranks or a trimmed mean: declared before results, named in the sentence, refused where there is no test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.results.editions import edition_results
from bakeoff.verdicts.answer import answer, as_json, as_text
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.gate import check, policy
from support import editions
from support.tables import Row, grid, observations, paired, rollouts, verdict

RNG = np.random.default_rng(7)
A = RNG.normal(size=12)
B = A + 1.0 + 0.2 * RNG.normal(size=12)
WILD = np.concatenate((B[:-1], [-500.0]))
"""B, and one run that went wrong."""


@pytest.mark.parametrize(
    ("statistic", "estimand"),
    [("rank", "typical difference (Hodges-Lehmann)"), ("trimmed", "20 % trimmed mean difference")],
)
@pytest.mark.parametrize("independent", [False, True])
def test_one_wild_run_does_not_hide_a_difference_and_the_sentence_names_the_estimand(
    statistic: str, estimand: str, independent: bool
) -> None:
    rows = rollouts({"A": A, "B": WILD + 2.0}) if independent else paired(A, WILD)
    assert verdict(rows).verdict == "undecided"
    found = verdict(rows, statistic=statistic)
    assert found.verdict == "better" and f"{estimand} +" in found.sentence
    assert found.effect is not None and found.effect > 0.5 and found.lift is None
    assert f"statistic = '{statistic}' is declared" in found.chosen
    assert found.p_exact is None and found.skew is None and found.detectable.mde is None


def test_nine_units_are_too_few_and_the_answer_says_so() -> None:
    found = verdict(paired(A[:9], B[:9]), statistic="rank")
    assert (found.verdict, found.reason) == ("undecided", "too_few_for_statistic")
    assert "10 independent units" in found.sentence


def test_lost_runs_are_tried_at_both_ends() -> None:
    values: list[float | None] = [*B[:-1], None]
    ends = [verdict(paired(A, [*B[:-1], end]), statistic="rank") for end in (-3.0, 5.0)]
    found = verdict(paired(A, values), statistic="rank", bounds=(-3.0, 5.0))
    assert found.missing == 1 and found.p == pytest.approx(max(each.p or 0.0 for each in ends))


@pytest.mark.parametrize(
    ("rows", "how", "about"),
    [
        (grid({"A": RNG.normal(size=(10, 10)), "B": RNG.normal(size=(10, 10))}), {"seeds": "crossed"}, "at once"),
        (grid({"A": RNG.normal(size=(4, 6)), "B": RNG.normal(size=(4, 6))}), {"tasks": "fixed"}, "stratified by task"),
        (paired(A, B), {"ties": "full"}, "exact tests of the mean"),
    ],
)
def test_designs_without_such_a_test_are_refused_by_name(rows: list[Row], how: dict[str, Any], about: str) -> None:
    with pytest.raises((UsageError, ValueError), match=about):
        verdict(rows, statistic="rank", **how)


def test_outcomes_of_0_and_1_are_judged_as_numbers_with_a_warning() -> None:
    found = verdict(paired([0] * 12, [1] * 10 + [0] * 2), statistic="rank")
    assert found.verdict == "better" and any("success rates" in warning for warning in found.warnings)


def test_it_is_recorded_and_asking_for_it_after_a_look_counts_as_a_change(tmp_path: Path) -> None:
    text = editions.FILE.format(name="sorting").replace("1..3", "1..12")
    edition = editions.make_edition(
        tmp_path,
        text=text,
        outcome=lambda arm, seed: {"status": "succeeded", "metrics": {"score": (arm == "large") * 0.3 + seed**2 % 7}},
    )
    first = answer(edition_results(edition), Compare())
    later = answer(edition_results(edition), Compare(statistic="rank"))
    assert (first.comparisons[0].changes, later.comparisons[0].changes) == (0, 1)
    assert '"statistic": "rank"' in as_json(later)
    assert "statistic not set (declared) and rank (asked)" in as_text(later)
    assert answer(edition_results(edition), Compare()).comparisons[0].changes == 0


def test_a_gate_judges_by_the_same_statistic() -> None:
    rules = policy({"metrics": {"score": {"max_regression": 0.5}}})
    rows = paired(A, WILD)
    (by_mean,), (by_rank,) = (check([observations(rows, **how)], rules) for how in ({}, {"statistic": "rank"}))
    assert (by_mean.outcome, by_rank.outcome) == ("undecided", "pass")
    assert by_rank.effect == verdict(rows, statistic="rank").effect
