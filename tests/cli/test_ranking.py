"""rank: an experiment that really ran, tables, references, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from support.editions import Outcome, succeeds

Bakeoff = Callable[..., Result]


@pytest.fixture
def root(laboratory_root: Path) -> Path:
    return laboratory_root


def facts(result: Result, code: int = 0) -> dict:
    assert result.exit_code == code, result.output + result.stderr
    return json.loads(result.stdout)


def test_arms_come_out_in_order_with_everything_that_is_asked(bakeoff: Bakeoff, root: Path) -> None:
    result = bakeoff("rank", "bench", "--root", root)
    assert result.exit_code == 0
    rows = [line.split()[0] for line in result.stdout.splitlines()[3:6]]
    assert rows == ["strong", "middle", "weak"]
    for told in (
        "these tasks only",
        "Friedman",
        "cannot be separated",
        "pass^k (all)",
        "fewer than 10",
        "tasks like these",
    ):
        assert told in result.stdout


def test_json_has_the_settings_and_every_figure(bakeoff: Bakeoff, root: Path) -> None:
    found = facts(bakeoff("rank", "bench", "--json", "--root", root))
    assert found["settings"]["seed"] == 0 and found["version"] and found["tasks"][0] == "easy"
    strong = found["arms"][0]
    assert strong["iqm"]["low"] <= strong["iqm"]["estimate"] <= strong["iqm"]["high"]
    assert strong["optimality_gap"]["estimate"] == pytest.approx(1 - strong["mean"]["estimate"])
    assert len(strong["profile"]["share"]) == len(strong["profile"]["thresholds"])
    beats = found["probability_of_improvement"]
    assert beats["strong"]["weak"]["probability"] + beats["weak"]["strong"]["probability"] == pytest.approx(1)
    assert [p["k"] for p in found["pass"] if p["arm"] == "strong"] == [1, 2, 4]
    assert facts(bakeoff("rank", "bench", "--json", "--root", root)) == found


def test_scores_are_normalised_by_numbers_parameters_and_metrics(bakeoff: Bakeoff, root: Path) -> None:
    call = ["rank", "bench", "--metric", "score", "--json", "--root", root]
    plain = facts(bakeoff(*call))["arms"][0]["mean"]["estimate"]
    halved = facts(bakeoff(*call, "--normalize", "0", "2"))
    assert halved["normalized"] and halved["arms"][0]["mean"]["estimate"] == pytest.approx(plain / 2)
    own = facts(bakeoff(*call, "--normalize", "difficulty", "top"))  # a parameter, and a metric that is 10 above it
    assert own["arms"][0]["mean"]["estimate"] == pytest.approx((plain - (-1 + 0 + 1 + 1.5 + 2.5) / 5) / 10)
    wrong = bakeoff("rank", "bench", "--normalize", "0", "skill", "--root", root)
    assert wrong.exit_code == 2 and "has several" in wrong.stderr


def test_a_table_is_ranked_like_the_experiment_it_came_from(bakeoff: Bakeoff, root: Path, tmp_path: Path) -> None:
    assert bakeoff("collect", "bench", "--root", root).exit_code == 0
    table = next(root.glob("bench/2*/aggregate/runs.csv"))
    from_file = facts(bakeoff("rank", table, "--metric", "score", "--json"))
    from_edition = facts(bakeoff("rank", "bench", "--metric", "score", "--json", "--root", root))
    assert [arm["iqm"] for arm in from_file["arms"]] == [arm["iqm"] for arm in from_edition["arms"]]


def test_missing_runs_flag_the_arm_and_leave_the_ranking_open(
    bakeoff: Bakeoff, make_edition: Callable[..., Edition]
) -> None:
    def outcome(arm: str, seed: int) -> Outcome:
        if arm == "large" and seed == 1:
            return {"status": "infra_error", "error": "no such host"}
        return {"status": "failed", "error": "broke"} if arm == "small" and seed == 2 else succeeds(arm, seed)

    make_edition(outcome=outcome).close()
    assert "failure_score" in bakeoff("rank").stderr
    found = facts(bakeoff("rank", "--failure-score", "0", "--json"), code=3)
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert arms["large"]["flagged"] and len(arms["large"]["missing"]) == 1 and arms["small"]["failed"] == 1
    assert any("large (1)" in warning for warning in found["warnings"])


def test_pass_at_k_needs_successes_and_attempts(bakeoff: Bakeoff, root: Path) -> None:
    call = ["rank", "bench", "--root", root]
    assert "--success" in bakeoff(*call, "--metric", "score", "-k", "2").stderr
    assert bakeoff(*call, "--metric", "score", "-k", "2", "--success", "0.5").exit_code == 0
    too_many = bakeoff(*call, "-k", "9")
    assert too_many.exit_code == 2 and "9 attempts" in too_many.stderr


def test_the_profiles_can_be_drawn(bakeoff: Bakeoff, root: Path, tmp_path: Path) -> None:
    assert bakeoff("rank", "bench", "--metric", "score", "--output", "profiles.svg", "--root", root).exit_code == 0
    assert "<svg" in (tmp_path / "profiles.svg").read_text()
