"""Rules with thresholds and evidence: the file, the checks, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bakeoff.errors import SpecError, UsageError
from bakeoff.results.table import Results, Row
from bakeoff.verdicts.question import Litmus
from bakeoff.verdicts.questions import litmus
from bakeoff.verdicts.questions.litmus import LitmusAnswer, Rules, arm_evidence


def arm(name: str, level: float, seeds: int = 8, steps: int = 20, **changes: object) -> list[Row]:
    """Runs whose reward rises to `level`; the noise of a seed is the same in every arm."""
    runs = []
    for seed in range(seeds):
        noise = np.random.default_rng(seed).normal(0, 0.01) + np.random.default_rng([seed, len(name)]).normal(0, 0.002)
        at = np.arange(steps, dtype=float)
        series = {
            "mean_reward": (at, np.full(steps, level + noise)),
            "total_count": (at, np.full(steps, 128.0)),
            "correct_rate": (at, np.full(steps, level + noise)),
        }
        fields = {"task": "default", "rollout": 0, "status": "succeeded", "series": series, **changes}
        runs.append(Row(run_id=f"{name}_s{seed}", arm=name, seed=seed, **fields))
    return runs


def check(rules: dict[str, object] | Rules, base: list[Row], cand: list[Row]) -> LitmusAnswer:
    parsed = rules if isinstance(rules, Rules) else Rules.model_validate(rules)
    return litmus.answer(Results([*base, *cand], "test"), Litmus(rules=parsed, baseline="old", candidate="new!"))


LIFT = {"rules": [{"metric": "mean_reward", "min_lift": 0.01}]}


def test_a_lift_above_the_threshold_is_confirmed_and_one_below_it_fails() -> None:
    assert check(LIFT, arm("old", 0.4), arm("new!", 0.45)).status == "CONFIRMED"
    failed = check(LIFT, arm("old", 0.4), arm("new!", 0.4))
    assert failed.status == "FAILED"
    assert "does not hold" in failed.checks[0].sentence and failed.checks[0].passed is False


def test_the_built_in_profile_says_that_a_metric_is_never_logged_and_still_decides() -> None:
    found = check(litmus.built_in(), arm("old", 0.4), arm("new!", 0.6))
    assert found.status == "CONFIRMED" and [c.metric for c in found.checks] == ["mean_reward", "correct_rate"]
    assert any("gram_entropy_delta" in note and "not judged" in note for note in found.notes)


def test_a_metric_that_is_never_logged_stops_a_file_that_needs_it() -> None:
    rules = {"rules": [{"metric": "mean_rewrd", "min_lift": 0.01}]}
    with pytest.raises(UsageError, match=r"no run of either arm logs 'mean_rewrd'.*did you mean 'mean_reward'"):
        check(rules, arm("old", 0.4), arm("new!", 0.6))
    skipped = {"rules": [{"metric": "mean_rewrd", "min_lift": 0.01, "when_absent": "skip"}]}
    with pytest.raises(UsageError, match="none of the rules can be judged"):
        check(skipped, arm("old", 0.4), arm("new!", 0.6))


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        ({"min_runs": 9}, "old: 8 runs, 9 needed"),
        ({"min_steps": 21}, "old_s0: 20 steps, 21 needed"),
        ({"min_completions": 5000}, "new!_s7: 2560 completions, 5000 needed"),
    ],
)
def test_too_little_evidence_is_inconclusive_whatever_the_lift(evidence: dict[str, int], told: str) -> None:
    for level in (0.3, 0.9):
        found = check({**LIFT, "evidence": evidence}, arm("old", 0.4), arm("new!", level))
        assert found.status == "INCONCLUSIVE" and told in found.evidence_failures


def test_completions_that_nobody_counts_stop_the_check_or_are_told() -> None:
    evidence = {"min_completions": 10, "completions": "episodes"}
    with pytest.raises(UsageError, match="no run logs 'episodes'"):
        check({**LIFT, "evidence": evidence}, arm("old", 0.4), arm("new!", 0.6))
    lenient = {**evidence, "when_absent": "skip"}
    found = check({**LIFT, "evidence": lenient}, arm("old", 0.4), arm("new!", 0.6))
    assert found.status == "CONFIRMED" and "episodes" in found.notes[0]


def test_steps_that_a_resumed_run_logged_twice_count_once() -> None:
    at = np.array([0.0, 1.0, 1.0, 2.0])
    run = Row("old", seed=0, series={"total_count": (at, np.full(4, 10.0))})
    evidence = arm_evidence("old", [run], "total_count")
    assert evidence.steps == 3 and evidence.completions == 30.0


def test_a_rule_can_require_the_verdict_and_not_only_a_difference_of_means() -> None:
    rule = {"metric": "mean_reward", "min_lift": 0.0, "verdict": "better"}
    sure = check({"rules": [rule]}, arm("old", 0.4), arm("new!", 0.42))
    assert (sure.status, sure.checks[0].verdict) == ("CONFIRMED", "better")
    worse = check({"rules": [rule]}, arm("old", 0.42), arm("new!", 0.40))
    assert (worse.status, worse.checks[0].verdict) == ("FAILED", "worse")
    few = check({"rules": [rule]}, arm("old", 0.4, seeds=2), arm("new!", 0.42, seeds=2))
    assert (few.status, few.checks[0].passed) == ("INCONCLUSIVE", None)
    assert any("Undecided" in sentence for sentence in few.evidence_failures)


def test_a_failed_rule_outweighs_an_open_one() -> None:
    rules = {
        "rules": [
            {"metric": "mean_reward", "verdict": "better"},
            {"metric": "correct_rate", "at_least": 0.9},
        ]
    }
    found = check(rules, arm("old", 0.4), arm("new!", 0.4))
    assert [c.passed for c in found.checks] == [None, False] and found.status == "FAILED"


def test_equivalence_is_a_verdict_too() -> None:
    rule = {"metric": "mean_reward", "verdict": "equivalent", "margin": 0.05}
    assert check({"rules": [rule]}, arm("old", 0.4), arm("new!", 0.401)).status == "CONFIRMED"
    assert check({"rules": [rule]}, arm("old", 0.4), arm("new!", 0.6)).status == "FAILED"


def test_a_metric_to_be_minimised_is_lifted_by_falling() -> None:
    rule = {"metric": "mean_reward", "direction": "minimize", "min_lift": 0.05, "at_most": 0.36}
    assert check({"rules": [rule]}, arm("old", 0.4), arm("new!", 0.3)).status == "CONFIRMED"
    assert check({"rules": [rule]}, arm("old", 0.3), arm("new!", 0.4)).status == "FAILED"


def test_runs_that_are_lost_open_or_silent_are_evidence_that_is_missing() -> None:
    base, cand = arm("old", 0.4), arm("new!", 0.6)
    lost = [*cand[:-1], *arm("new!", 0.6, seeds=8, status="infra_error")[-1:]]
    found = check(LIFT, base, lost)
    assert found.status == "INCONCLUSIVE" and "1 of 8 runs are missing" in found.evidence_failures[0]
    silent = [*cand[:-1], *arm("new!", 0.6, series={"loss": (np.arange(3.0), np.arange(3.0))})[-1:]]
    found = check(LIFT, base, silent)
    assert found.status == "INCONCLUSIVE" and "without 'mean_reward', such as new!_s7" in found.evidence_failures[0]
    unfinished = [*cand, replace(cand[-1], seed=99, status="planned", series={})]
    assert check(LIFT, base, unfinished).status == "INCONCLUSIVE"


WRONG: list[tuple[str, str]] = [
    ('[[rules]]\nmetric = "x"\nmin_lft = 1\n', "did you mean 'min_lift'?"),
    ('[[rules]]\nmetric = "x"\n', "asks for nothing"),
    ('[[rules]]\nmetric = "x"\nverdict = "equivalent"\n', "needs margin"),
    ('[[rules]]\nmetric = "x"\nmin_lift = 1\nmargin = 1\n', "margin goes with"),
    ("[evidence]\nmin_runs = 3\n", "rules: is needed"),
    ("rules = []\n", "at least 1 item"),
    ('[evidence]\nmin_runs = 0\n[[rules]]\nmetric = "x"\nmin_lift = 1\n', "evidence.min_runs"),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_a_wrong_file_is_told_with_its_place_and_the_fix(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        litmus.load_rules(file)
    assert told in str(error.value) and str(file) in str(error.value)


def test_the_printed_profile_is_the_built_in_one(tmp_path: Path) -> None:
    file = tmp_path / "training.toml"
    file.write_text(litmus.PROFILE)
    load: Callable[[Path], Rules] = litmus.load_rules
    assert load(file) == litmus.built_in()
