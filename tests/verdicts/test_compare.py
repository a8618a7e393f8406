"""From a table to better, worse, equivalent or undecided: failures, missing runs, families, margins and warnings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.results.editions import edition_results
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.text import format_interval
from bakeoff.verdicts.comparison import Comparison, compare, explore_metrics, recommendations
from bakeoff.verdicts.observations import Observations, observe, state_of
from bakeoff.verdicts.question import Compare
from support import editions
from support.tables import Row, grid, observations, paired, rollouts, verdict


def of_edition(edition: Edition, analysis: Analysis | None = None) -> Observations:
    results = edition_results(edition)
    metric = (analysis or results.analysis).metric or results.primary()[0]
    return observe(results, metric, analysis)


RNG = np.random.default_rng(11)
BASE = RNG.normal(size=12)
LIFTED = BASE + 1.0 + RNG.normal(0, 0.3, 12)
NOISY = BASE + RNG.normal(0, 0.3, 12)


def test_a_clear_lift_is_better_and_its_loss_is_worse() -> None:
    assert verdict(paired(BASE, LIFTED)).verdict == "better"
    assert verdict(paired(LIFTED, BASE)).verdict == "worse"
    assert verdict(paired(BASE, NOISY)).verdict == "undecided"


def test_the_sentence_says_what_for_whom_and_how_sure() -> None:
    found = verdict(paired(BASE, LIFTED))
    assert found.sentence.startswith("Better: B against A on score, for seeds like these (unit: seed, N = 12): +")
    assert "95 % interval" in found.sentence
    assert "p = " in found.sentence


def test_below_seven_units_the_sentence_names_what_t_assumes() -> None:
    assert "assumes roughly normal differences" in verdict(paired(BASE[:5], LIFTED[:5])).sentence


def test_a_metric_to_be_minimised_is_better_when_it_falls_and_effects_keep_their_sign() -> None:
    found = verdict(paired(LIFTED, BASE), direction="minimize")
    assert found.verdict == "better"
    assert found.effect is not None and found.effect < 0
    assert found.interval is not None and found.interval.high < 0
    assert found.sizes.cohens_dz is not None and found.sizes.cohens_dz < 0


@pytest.mark.parametrize(("verdicts", "word"), [
    (["better"], "statistically_significant_improvement"),
    (["better", "undecided"], "insufficient_statistical_evidence"),
    (["better", "worse"], "significant_degradation"),
    (["equivalent"], "insufficient_statistical_evidence"),
])  # fmt: skip
def test_the_campaign_word_follows_from_the_verdicts(verdicts: list[str], word: str) -> None:
    tables: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "better": (BASE, LIFTED, {}), "worse": (LIFTED, BASE, {}), "undecided": (BASE, NOISY, {}),
        "equivalent": (BASE, NOISY, {"margin": 5.0}),
    }  # fmt: skip
    found = [verdict(paired(*tables[name][:2]), **tables[name][2]) for name in verdicts]
    assert [one.verdict for one in found] == verdicts
    assert set(recommendations(found).values()) == {word}


class TestFailures:
    def test_a_metric_that_is_nan_or_absent_from_a_run_that_succeeded_is_a_failure(self) -> None:
        assert state_of("succeeded", math.nan)[0] == "failed"
        assert state_of("succeeded", None)[0] == "failed"
        assert state_of("succeeded", 3)[0] == "scored"

    @pytest.mark.parametrize(("status", "state"), [
        ("failed", "failed"), ("timeout", "failed"), ("infra_error", "missing"), ("cancelled", "missing"), ("planned", "missing"),
    ])  # fmt: skip
    def test_the_arms_own_failures_and_lost_runs_are_kept_apart(self, status: str, state: str) -> None:
        assert state_of(status, 3.0)[0] == state

    def test_without_a_score_for_failures_the_comparison_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"nothing says what a failure counts.*failure_score"):
            verdict(paired([*BASE[:-1], math.nan], LIFTED))

    def test_a_failure_counts_with_the_declared_score(self) -> None:
        found = verdict(paired(BASE, [*LIFTED[:-1], math.nan]), failure_score=-9.0)
        assert found.failed == 1
        assert found.effect == pytest.approx(np.mean([*(LIFTED - BASE)[:-1], -9.0 - BASE[-1]]))

    def test_else_with_the_bad_end_of_the_declared_range(self) -> None:
        up = verdict(paired([0.5] * 4 + [0.4], [0.6] * 4 + [math.nan]), bounds=(0.0, 1.0))
        down = verdict(paired([0.5] * 4 + [0.4], [0.6] * 4 + [math.nan]), bounds=(0.0, 1.0), direction="minimize")
        assert up.effect == pytest.approx((4 * 0.1 - 0.4) / 5)
        assert down.effect == pytest.approx((4 * 0.1 + 0.6) / 5)

    def test_the_metrics_range_says_nothing_about_a_time(self) -> None:
        summary = Summary(type="time_to_threshold", threshold=0.5)
        with pytest.raises(UsageError, match="nothing says what a failure counts"):
            verdict(paired([10, 20, math.nan], [11, 22, 30]), bounds=(0.0, 1.0), summary=summary)


class TestMissing:
    def test_a_verdict_that_no_lost_run_could_turn_stands(self) -> None:
        found = verdict(paired(BASE, [*LIFTED[:-1], None]))
        assert found.verdict == "better"
        assert found.missing == 1

    def test_a_verdict_that_a_lost_run_could_turn_is_undecided(self) -> None:
        lift = 0.12
        whole = verdict(paired(BASE, BASE + lift + RNG.normal(0, 0.05, 12)))
        assert whole.verdict == "better"
        found = verdict(paired(BASE, [*(BASE + lift)[:-1] + RNG.normal(0, 0.05, 11), None]), bounds=(-100.0, 100.0))
        assert (found.verdict, found.decision.reason) == ("undecided", "missing")
        assert "1 runs are missing" in found.sentence

    def test_it_is_bounded_from_both_ends_of_the_range(self) -> None:
        bounds = (-4.0, 4.0)
        found = verdict(paired(BASE, [*LIFTED[:-1], None]), bounds=bounds)
        corners = [verdict(paired(BASE, [*LIFTED[:-1], end])) for end in bounds]
        assert found.p == pytest.approx(max(corner.p or 0 for corner in corners))
        lows, highs = zip(*((c.interval.low, c.interval.high) for c in corners if c.interval), strict=True)
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx((min(lows), max(highs)))

    @given(st.integers(0, 10**6), st.sampled_from([5, 9]))
    @settings(max_examples=12, deadline=None)
    def test_no_filling_of_the_gaps_gives_a_larger_p_than_the_worst_case(self, seed: int, n: int) -> None:
        rng = np.random.default_rng(seed)
        a, b = rng.random(n) * 0.5, rng.random(n) * 0.5 + 0.3
        worst = verdict(paired([*a[:-1], None], [None, *b[1:]]), bounds=(0.0, 1.0), margin=0.4).decision
        assert worst.p is not None and worst.p_eq is not None
        for x, y in itertools.product((0.0, 0.4, 1.0), repeat=2):
            one = verdict(paired([*a[:-1], x], [y, *b[1:]]), margin=0.4).decision
            assert one.p is not None and one.p_eq is not None
            assert one.p <= worst.p + 1e-12
            # From 8 units on a bootstrap has a part in p_eq. It does not move one way with every value, so that its
            # largest p at the four corners is close to the largest of all, and not a bound.
            assert one.p_eq <= (worst.p_eq if n < 8 else 1.3 * worst.p_eq) + 1e-12

    def test_t_also_looks_at_both_arms_at_the_same_end(self) -> None:
        a, b = [*BASE[:4], None], [*LIFTED[:3], None, LIFTED[4]]
        found = verdict(paired(a, b), bounds=(-4.0, 4.0))
        ps = [
            verdict(paired([*BASE[:4], x], [*LIFTED[:3], y, LIFTED[4]])).p or 0.0 for x in (-4.0, 4.0) for y in (-4.0, 4.0)
        ]  # fmt: skip
        assert found.p is not None and found.p >= max(ps) - 1e-12

    def test_without_a_range_the_smallest_and_largest_value_of_any_arm_are_taken_and_told(self) -> None:
        rows = [*paired(BASE, [*LIFTED[:-1], None]), {"arm": "C", "seed": 0, "value": -50.0}]
        (found,) = compare([observations(rows)], Compare(arms=["B"]))
        assert found.seen_ends
        assert found.interval is not None and found.interval.low < -1
        assert any("no range is declared" in warning for warning in found.warnings)

    def test_a_task_that_one_arm_alone_saw_takes_the_ends_of_all_tasks(self) -> None:
        # One value on the task would say that the lost run was just like it.
        found = verdict(paired(BASE, [*LIFTED[:-1], None], unit="task"))
        seen = np.concatenate((BASE, LIFTED[:-1]))
        low = verdict(paired(BASE, [*LIFTED[:-1], seen.min()], unit="task"))
        assert found.p == pytest.approx(low.p)

    def test_a_lost_outcome_is_put_at_0_and_at_1(self) -> None:
        found = verdict(paired([0, 0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, None]))
        corners = [verdict(paired([0, 0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, end])) for end in (0, 1)]
        assert found.p == pytest.approx(max(corner.p or 0 for corner in corners))
        assert found.decision.method == "McNemar (mid-p)"

    def test_an_arm_that_is_missing_altogether_is_undecided(self) -> None:
        found = verdict(paired([None] * 8, LIFTED[:8]))
        assert (found.verdict, found.decision.reason) == ("undecided", "missing")
        assert found.control_mean is None


class TestTooLittle:
    @pytest.mark.parametrize("n", [1, 2])
    def test_fewer_than_three_units_decide_nothing(self, n: int) -> None:
        found = verdict(paired(BASE[:n], LIFTED[:n]))
        assert (found.verdict, found.decision.reason, found.p) == ("undecided", "too_few", None)

    def test_fixed_tasks_with_one_run_each_have_no_spread_to_judge_by(self) -> None:
        found = verdict(grid({"A": BASE[:6, None], "B": LIFTED[:6, None]}), tasks="fixed")
        assert (found.verdict, found.decision.reason) == ("undecided", "too_few")
        assert "run two seeds or more" in found.sentence

    def test_copies_are_not_replicates(self) -> None:
        found = verdict(paired([1.0] * 9, [2.0] * 9))
        assert (found.verdict, found.decision.reason) == ("undecided", "seed_has_no_effect")

    def test_unpaired_copies_are_none_either(self) -> None:
        found = verdict(rollouts({"A": [0.3] * 9, "B": [0.7] * 9}))
        assert found.decision.reason == "seed_has_no_effect"

    def test_outcomes_that_are_always_the_same_are_no_copies(self) -> None:
        assert verdict(rollouts({"A": [0] * 9, "B": [1] * 9})).verdict == "better"
        assert verdict(paired([0] * 9, [1] * 9)).verdict == "better"

    def test_a_constant_difference_is_counted_and_not_divided_by_zero(self) -> None:
        whole = np.arange(6.0)
        assert verdict(paired(whole, whole + 1)).p == pytest.approx(2 / 2**6)
        assert verdict(paired(whole[:5], whole[:5] + 1)).verdict == "undecided"

    def test_before_the_planned_end_there_are_effects_and_no_verdict(self) -> None:
        found = verdict(paired(BASE, LIFTED), final=False)
        assert (found.verdict, found.decision.reason, found.p, found.interval) == ("undecided", "not_final", None, None)
        assert found.effect == pytest.approx((LIFTED - BASE).mean())


class TestZeros:
    def test_arms_that_are_identical_are_equivalent_within_a_margin_and_warned_about(self) -> None:
        found = verdict(paired(BASE[:5], BASE[:5]), margin=0.1)
        assert (found.verdict, found.p) == ("equivalent", 1.0)
        assert any("identical" in warning for warning in found.warnings)
        assert verdict(paired(BASE[:4], BASE[:4]), margin=0.1).verdict == "undecided"

    def test_without_a_margin_nothing_is_equivalent(self) -> None:
        assert verdict(paired(BASE, BASE)).verdict == "undecided"

    def test_zeros_stay_in_as_evidence_of_no_difference(self) -> None:
        few = verdict(paired(BASE[:8], LIFTED[:8]))
        more = verdict(paired(BASE, [*LIFTED[:8], *BASE[8:]]))
        assert (few.units, more.units) == (8, 12)
        assert more.effect == pytest.approx((few.effect or 0) * 8 / 12)


class TestMargins:
    def test_equivalent_goes_first_and_says_when_the_small_difference_is_real(self) -> None:
        found = verdict(paired(BASE, LIFTED), margin=3.0)
        assert found.verdict == "equivalent"
        assert found.decision.differs
        assert "the small difference is real" in found.sentence
        assert found.campaign == "insufficient_statistical_evidence"

    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    @pytest.mark.parametrize("margin", [3.0, None])
    def test_the_interval_that_decided_is_the_one_in_the_sentence(self, direction: str, margin: float | None) -> None:
        found = verdict(paired(BASE, LIFTED), margin=margin, direction=direction)
        interval = found.deciding_interval
        assert interval is not None and interval.level == pytest.approx(0.95 if margin is None else 0.90)
        assert f"({format_interval(interval)})" in found.sentence

    def test_a_relative_margin_lets_the_controls_noise_count(self) -> None:
        a = 10 + BASE
        found = verdict(paired(a, a * 1.01 + RNG.normal(0, 0.05, 12)), relative_margin=0.05)
        assert found.verdict == "equivalent"
        wide = verdict(paired(a, a * 1.2 + RNG.normal(0, 0.05, 12)), relative_margin=0.05)
        assert wide.verdict == "better"

    def test_a_relative_margin_is_the_same_for_a_metric_to_be_minimised_and_a_negative_one(self) -> None:
        a = 10 + BASE
        b = a * 1.01 + RNG.normal(0, 0.05, 12)
        p = verdict(paired(a, b), relative_margin=0.05).decision.p_eq
        assert verdict(paired(a, b), relative_margin=0.05, direction="minimize").decision.p_eq == pytest.approx(p)
        assert verdict(paired(-a, -b), relative_margin=0.05).decision.p_eq == pytest.approx(p)

    def test_a_share_of_a_control_that_is_zero_means_nothing(self) -> None:
        with pytest.raises(UsageError, match="give an absolute margin"):
            verdict(paired([-1.0, 1.0, -2.0, 2.0], [1.0, 2.0, 3.0, 4.0]), relative_margin=0.05)

    def test_how_many_units_the_margin_would_take_is_told(self) -> None:
        found = verdict(paired(BASE, NOISY), margin=0.05)
        assert found.detectable.units_for_margin is not None and found.detectable.units_for_margin > 12


class TestFamily:
    def arms(self) -> list[Row]:
        rows = paired(BASE, BASE + 0.22 + RNG.normal(0, 0.25, 12))
        for arm in "CDEF":
            rows += [{"arm": arm, "seed": i, "value": v} for i, v in enumerate(BASE + RNG.normal(0, 0.3, 12))]
        return rows

    def test_holm_over_all_arms_and_metrics_adjusts_p_and_widens_the_decision_interval(self) -> None:
        rows = self.arms()
        (alone,) = compare([observations([row for row in rows if row["arm"] in "AB"])])
        family = compare([observations(rows), observations(rows, "again")])
        found = family[0]
        assert len(family) == 10
        assert found.p == alone.p
        assert found.p_adjusted is not None and alone.p is not None
        assert found.p_adjusted == pytest.approx(min(1.0, 10 * alone.p), rel=0.2)
        assert found.decision_interval is not None and alone.decision_interval is not None
        assert found.decision_interval.level > alone.decision_interval.level == 0.95
        assert found.interval == alone.interval

    def test_simultaneous_intervals_have_the_level_of_all_comparisons(self) -> None:
        family = compare([observations(self.arms())], Compare(simultaneous=True))
        assert {round(one.decision_interval.level, 9) for one in family if one.decision_interval} == {0.99}

    def test_the_family_has_one_method(self) -> None:
        rows = paired(BASE[:7], LIFTED[:7])
        assert verdict(rows).decision.method == "sign-flip"
        many = [*rows, *({**row, "arm": f"C{i}"} for i in range(4) for row in rows if row["arm"] == "B")]
        assert {one.decision.method for one in compare([observations(many)])} == {"paired t"}

    def test_an_arm_that_cannot_be_tested_does_not_make_the_others_easier(self) -> None:
        rows = [*paired(BASE, LIFTED), *({"arm": "C", "seed": i, "value": None} for i in range(12))]
        found = {one.candidate: one for one in compare([observations(rows)])}
        assert found["C"].decision.reason == "missing"
        assert found["B"].p_adjusted == pytest.approx(2 * (found["B"].p or 0))

    def test_unknown_arms_and_a_control_alone_are_errors(self) -> None:
        rows = paired(BASE, LIFTED)
        with pytest.raises(UsageError, match="no arm called 'X'; there are A, B"):
            verdict(rows, Compare(control="X"))
        with pytest.raises(UsageError, match="nothing to compare 'A' with"):
            verdict(rows, Compare(control="A", arms=["A"]))


class TestBinary:
    def test_one_pair_for_each_task_is_mcnemar_with_the_exact_p_beside(self) -> None:
        a, b = [0] * 10 + [1] * 5, [1] * 8 + [0] * 3 + [1] * 4
        found = verdict(paired(a, b, unit="task"))
        assert found.decision.method == "McNemar (mid-p)"
        assert found.p_exact is not None and found.p is not None and found.p_exact > found.p
        assert found.effect == pytest.approx(np.mean(b) - np.mean(a))

    def test_unpaired_outcomes_are_fisher(self) -> None:
        found = verdict(rollouts({"A": [0] * 12 + [1] * 3, "B": [1] * 12 + [0] * 3}))
        assert (found.decision.method, found.verdict) == ("Fisher (mid-p)", "better")

    def test_several_rollouts_of_a_task_make_a_share_and_no_outcome(self) -> None:
        rows = [
            {"arm": arm, "task": f"t{t}", "rollout": k, "value": float(RNG.random() < chance)}
            for arm, chance in (("A", 0.2), ("B", 0.9)) for t in range(9) for k in range(4)
        ]  # fmt: skip
        assert verdict(rows).decision.method == "sign-flip"

    def test_outcomes_to_be_minimised_are_turned(self) -> None:
        found = verdict(rollouts({"A": [1] * 14 + [0], "B": [0] * 14 + [1]}), direction="minimize")
        assert found.verdict == "better"
        assert found.effect == pytest.approx(-13 / 15)


class TestWarnings:
    def test_seeds_that_look_crossed_although_nested_was_said(self) -> None:
        seeds = RNG.normal(0, 2, size=6)
        a = RNG.normal(0, 0.1, size=(5, 6))
        found = verdict(grid({"A": a, "B": a + seeds + RNG.normal(0, 0.1, size=(5, 6))}), seeds="nested")
        assert any("look crossed" in warning for warning in found.warnings)
        honest = verdict(grid({"A": a, "B": a + RNG.normal(0, 1, size=(5, 6))}), seeds="nested")
        assert not any("look crossed" in warning for warning in honest.warnings)

    def test_skewed_differences_are_marked_when_the_bootstrap_disagrees(self) -> None:
        d = np.array([0.0, 0.05, 0.0, 0.02, 0.01, 0.0, 0.03, 9.0, 0.01, 0.04, 0.02, 0.03])
        found = verdict(paired(np.zeros(12), d))
        assert found.skew is not None
        marked = any("sensitive to skew" in warning for warning in found.warnings)
        assert found.skew.sensitive == marked
        assert found.decision_interval is not None
        assert marked == (found.skew.interval.contains(0.0) != found.decision_interval.contains(0.0))

    def test_below_eight_units_there_is_no_skew_check(self) -> None:
        assert verdict(paired(BASE[:7], LIFTED[:7])).skew is None
        assert verdict(paired(BASE[:8], LIFTED[:8])).skew is not None


def test_what_pairing_bought_is_told() -> None:
    found = verdict(paired(BASE, LIFTED))
    d = LIFTED - BASE
    assert found.sizes.correlation == pytest.approx(np.corrcoef(BASE, LIFTED)[0, 1])
    assert found.sizes.variance_reduction == pytest.approx(1 - d.var(ddof=1) / (BASE.var(ddof=1) + LIFTED.var(ddof=1)))
    assert verdict(rollouts({"A": BASE, "B": LIFTED})).sizes.correlation is None


def test_the_smallest_effect_that_could_be_found_depends_on_the_spread_alone() -> None:
    found, moved = verdict(paired(BASE, LIFTED)), verdict(paired(BASE, LIFTED + 7))
    assert found.detectable.mde == pytest.approx(moved.detectable.mde)
    assert (
        verdict(grid({"A": BASE.reshape(3, 4), "B": LIFTED.reshape(3, 4)}), seeds="crossed").detectable.mde is not None
    )


def test_the_chance_of_improvement_counts_wins_on_the_same_task() -> None:
    found = verdict(rollouts({"A": [1.0, 2.0, 3.0], "B": [2.0, 3.0, 4.0]}))
    wins = [[(y > x) + 0.5 * (y == x) for x in (1, 2, 3)] for y in (2, 3, 4)]
    assert found.sizes.improvement == pytest.approx(np.mean(wins))


class TestExploring:
    def test_it_adjusts_over_everything_looked_at_and_gives_no_verdict(self) -> None:
        seen = [observations(paired(BASE, LIFTED), "one"), observations(paired(BASE, NOISY), "two")]
        one, two = explore_metrics(seen)
        assert one.p is not None and one.p_adjusted == pytest.approx(2 * one.p)
        assert two.p_adjusted == two.p
        assert not hasattr(one, "verdict")

    def test_a_metric_that_cannot_be_compared_says_so_and_stops_nothing(self) -> None:
        seen = [observations(paired([math.nan, 1, 2], [1, 2, 3]), "bad"), observations(paired(BASE, LIFTED), "good")]
        bad, good = explore_metrics(seen)
        assert "failure counts" in bad.note
        assert good.p is not None


class TestFromAnEdition:
    TEXT = """\
name = "curves"
seeds = "1..8"
[params]
command = ["true"]
[[arms]]
name = "slow"
[[arms]]
name = "fast"
[analysis]
metric = "reward"
"""

    @pytest.fixture
    def edition(self, tmp_path: Path) -> Callable[..., Edition]:
        def make(short: int = 0) -> Edition:
            def outcome(arm: str, seed: int) -> dict[str, Any]:
                pace = (0.2 if arm == "fast" else 0.1) + 0.002 * seed
                length = 10 if seed == short and arm == "slow" else 20
                curve = [min(1.0, pace * i) for i in range(length)]
                return {
                    "status": "succeeded",
                    "metrics": {"reward": curve[-1]},
                    "series": editions.series(reward=curve),
                }

            return editions.make_edition(tmp_path, "curves", outcome, text=self.TEXT, files=False)

        return make

    def test_less_time_to_a_threshold_is_better_whatever_the_metrics_direction(
        self, edition: Callable[..., Edition]
    ) -> None:
        analysis = Analysis(metric="reward", summary=Summary(type="time_to_threshold", threshold=0.5), margin=0.1)
        found = self.judge(edition(), analysis)
        assert found.verdict == "better"
        assert found.effect is not None and found.effect < 0

    def test_runs_that_never_reach_it_count_with_the_common_horizon(self, edition: Callable[..., Edition]) -> None:
        analysis = Analysis(metric="reward", summary=Summary(type="time_to_threshold", threshold=2.0))
        seen = of_edition(edition(), analysis)
        assert {row.value for row in seen.rows} == {19.0}

    def test_unequal_horizons_are_an_error(self, edition: Callable[..., Edition]) -> None:
        analysis = Analysis(metric="reward", summary=Summary(type="time_to_threshold", threshold=2.0))
        with pytest.raises(UsageError, match="unequal horizons"):
            of_edition(edition(short=3), analysis)

    def test_a_summary_reduces_the_series(self, edition: Callable[..., Edition]) -> None:
        seen = of_edition(edition(), Analysis(metric="reward", summary=Summary(type="mean", window="0..4")))
        assert seen.rows[0].value == pytest.approx(np.mean([0.102 * i for i in range(5)]))

    def test_a_metric_that_nobody_reports_is_an_error_that_lists_the_others(
        self, edition: Callable[..., Edition]
    ) -> None:
        with pytest.raises(UsageError, match=r"no run reports 'rewrad'; runs report reward"):
            observe(edition_results(edition()), "rewrad")

    def judge(self, edition: Edition, analysis: Analysis) -> Comparison:
        (found,) = compare([of_edition(edition, analysis)])
        return found


def test_arms_that_must_be_alike_in_something_and_are_not_are_warned_about(tmp_path: Path) -> None:
    def outcome(arm: str, seed: int) -> dict[str, Any]:
        size = 194_000 if arm == "slow" else 55_000
        return {"status": "succeeded", "metrics": {"reward": seed + len(arm) % 2, "weights": size, "steps": 100}}

    text = TestFromAnEdition.TEXT + 'matched = ["weights", "steps", "flops"]\n'
    seen = of_edition(editions.make_edition(tmp_path, "curves", outcome, text=text, files=False))
    assert len(seen.notes) == 2
    assert "weights must be matched between arms, and is not (slow 194000, fast 55000)" in seen.notes[0]
    assert "flops must be matched between arms, but no run has it" in seen.notes[1]


def test_how_far_a_failed_run_came_is_no_score_and_no_horizon(tmp_path: Path) -> None:
    def outcome(arm: str, seed: int) -> dict[str, Any]:
        dead = arm == "slow" and seed == 1
        curve = [0.1 * i for i in range(3 if dead else 20)]
        return {"status": "failed" if dead else "succeeded", "series": editions.series(reward=curve)}

    edition = editions.make_edition(tmp_path, "curves", outcome, text=TestFromAnEdition.TEXT, files=False)
    analysis = Analysis(metric="reward", summary=Summary(type="time_to_threshold", threshold=0.5), failure_score=99.0)
    seen = of_edition(edition, analysis)
    assert [row.state for row in seen.rows].count("failed") == 1
    (found,) = compare([seen])
    assert found.failed == 1
