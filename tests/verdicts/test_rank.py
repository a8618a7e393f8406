"""Many arms on many tasks."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, mannwhitneyu, trim_mean

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Rank
from bakeoff.verdicts.questions.rank import MAX_PAIRED, rank
from bakeoff.verdicts.questions.summarize import is_binary, passing

QUICK = Rank(resamples=200)


def table(arms: int = 4, tasks: int = 6, runs: int = 10, **analysis: object) -> tuple[Observations, np.ndarray]:
    """(observations, values of shape arms x runs x tasks)."""
    rng = np.random.default_rng(11)
    x = rng.normal(np.arange(arms)[:, None, None] * 0.3, 1.0, (arms, runs, tasks)).round(3)
    rows = [
        Observation(f"arm{a}", f"t{t}", None, r, "scored", float(x[a, r, t]), f"arm{a}-t{t}-{r}")
        for a in range(arms) for t in range(tasks) for r in range(runs)
    ]  # fmt: skip
    return Observations("score", rows, Analysis(**analysis)), x


def test_aggregates_are_those_of_their_definitions_and_arms_stand_in_order_of_iqm() -> None:
    seen, x = table()
    found = rank(seen, question=QUICK)
    assert [arm.arm for arm in found.arms] == sorted(
        seen.arms, key=lambda arm: -trim_mean(x[int(arm[-1])], 0.25, axis=None)
    )
    for arm in found.arms:
        mine = x[int(arm.arm[-1])]
        assert arm.iqm.estimate == pytest.approx(trim_mean(mine, 0.25, axis=None), rel=1e-9)
        assert arm.mean.estimate == pytest.approx(mine.mean(), rel=1e-9)
        assert arm.iqm.low < arm.iqm.estimate < arm.iqm.high
        assert arm.optimality_gap is None  # nothing says what is best


def test_the_chance_to_beat_is_mann_whitneys_u_and_both_sides_add_up_to_one() -> None:
    seen, x = table(arms=3)
    found = rank(seen, question=QUICK)
    for (i, a), (j, b) in itertools.permutations(enumerate(arm.arm for arm in found.arms), 2):
        one, mirror = found.improvement[i][j], found.improvement[j][i]
        assert one is not None and mirror is not None
        first, second = x[int(a[-1])], x[int(b[-1])]
        u = [mannwhitneyu(first[:, t], second[:, t]).statistic / (10 * 10) for t in range(6)]
        assert one.probability == pytest.approx(np.mean(u), rel=1e-9)
        assert one.probability + mirror.probability == pytest.approx(1.0)
        assert one.low == pytest.approx(1.0 - mirror.high)


def test_of_very_many_arms_only_the_best_get_chances_against_each_other() -> None:
    """Of a thousand arms there would be half a million pairs, which took for ever."""
    seen, _ = table(arms=30, tasks=1, runs=3)
    found = rank(seen, question=QUICK)
    assert len(found.arms) == 30 and [len(row) for row in found.improvement] == [MAX_PAIRED] * MAX_PAIRED
    assert f"the best {MAX_PAIRED} of 30 arms; --arms names others" in "\n".join(found.warnings)


def test_average_ranks_are_friedmans_over_task_means() -> None:
    seen, x = table()
    found = rank(seen, question=QUICK)
    assert found.ranks is not None and found.blocks == "6 tasks"
    theirs = friedmanchisquare(*(x[a].mean(axis=0) for a in range(4)))
    assert found.ranks.statistic == pytest.approx(theirs.statistic, rel=1e-9)
    assert found.ranks.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert set(itertools.chain(*found.groups)) == set(seen.arms)
    # Nemenyi's constant for 4 arms is 2.569 (Demsar 2006, table 5).
    assert found.ranks.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 6)), abs=1e-3)


def test_arms_whose_ranks_are_far_apart_share_no_group() -> None:
    rows = [
        Observation(arm, f"t{t}", None, r, "scored", level + t + r / 100)
        for arm, level in (("bad", 0.0), ("middle", 10.0), ("good", 20.0)) for t in range(12) for r in range(2)
    ]  # fmt: skip
    found = rank(Observations("m", rows, Analysis()), question=QUICK)
    assert found.groups == (("good",), ("middle",), ("bad",))
    assert found.strengths is not None and list(found.strengths.strength) == sorted(found.strengths.strength)[::-1]
    assert any("never lost" in warning for warning in found.warnings)
    assert found.strengths.low == (-math.inf,) * 3, "leaving out any task changes nothing, so the interval was a point"


def test_two_arms_have_no_average_ranks_and_one_has_nothing_to_be_ranked_with() -> None:
    seen, _ = table(arms=2)
    found = rank(seen, question=QUICK)
    assert found.ranks is None and found.groups == () and found.strengths is not None
    assert any("3 arms" in warning for warning in found.warnings)
    with pytest.raises(UsageError, match="nothing to rank"):
        rank(seen.of(["arm0"]))


def test_one_task_is_ranked_over_the_seeds_that_arms_share() -> None:
    rows = [Observation(arm, "t", s, 0, "scored", level + s) for arm, level in zip("abc", (0, 1, 2), strict=True) for s in range(5)]  # fmt: skip
    found = rank(Observations("m", rows, Analysis()), question=QUICK)
    assert found.blocks == "5 seeds" and found.ranks is not None and found.ranks.ranks == (1.0, 2.0, 3.0)


def test_few_runs_a_task_are_warned_about() -> None:
    assert not rank(table(runs=10)[0], question=QUICK).warnings
    warning = rank(table(runs=3)[0], question=QUICK).warnings[0]
    assert "intervals are widened" in warning and "fewer than 10" in warning


def test_failures_count_their_score_and_missing_runs_flag_the_arm() -> None:
    seen, x = table(failure_score=-5.0)
    rows = list(seen.rows)
    rows[0] = rows[0]._replace(state="failed", value=math.nan)
    rows[-1] = rows[-1]._replace(state="missing", value=math.nan)
    found = rank(replace(seen, rows=rows), question=QUICK)
    arms = {arm.arm: arm for arm in found.arms}
    assert (arms["arm0"].failed, arms["arm0"].flagged) == (1, False)
    changed = x[0].copy()
    changed[0, 0] = -5.0
    assert arms["arm0"].mean.estimate == pytest.approx(changed.mean())
    assert (arms["arm3"].missing, arms["arm3"].flagged, arms["arm3"].runs) == ((rows[-1].run_id,), True, 59)
    assert any("arm3 (1)" in warning for warning in found.warnings)
    with pytest.raises(UsageError, match="failure_score"):
        rank(replace(seen, rows=rows, analysis=Analysis()), question=QUICK)


def test_an_arm_without_any_run_on_a_task_cannot_be_ranked() -> None:
    seen, _ = table()
    with pytest.raises(UsageError, match="'arm1' has no value on 't2'"):
        rank(replace(seen, rows=[r for r in seen.rows if (r.arm, r.task) != ("arm1", "t2")]), question=QUICK)


def test_scores_are_normalised_task_by_task() -> None:
    seen, x = table()
    references = {f"t{t}": (float(-t), float(t + 1)) for t in range(6)}
    found = rank(seen, references, QUICK)
    low, high = (np.array(ends) for ends in zip(*references.values(), strict=True))
    for arm in found.arms:
        scores = (x[int(arm.arm[-1])] - low) / (high - low)
        assert arm.iqm.estimate == pytest.approx(trim_mean(scores, 0.25, axis=None), rel=1e-9)
        assert arm.optimality_gap is not None
        assert arm.optimality_gap.estimate == pytest.approx(1 - np.minimum(scores, 1).mean(), rel=1e-9)
        shares = (scores[:, :, None] > np.array(arm.profile.thresholds)).mean(axis=(0, 1))
        assert arm.profile.share == pytest.approx(shares)


def test_references_that_are_missing_equal_or_the_wrong_way_round_are_refused() -> None:
    seen, _ = table()
    good = {f"t{t}": (0.0, 1.0) for t in range(6)}
    with pytest.raises(UsageError, match="'t5' has no reference"):
        rank(seen, {task: ends for task, ends in good.items() if task != "t5"})
    with pytest.raises(UsageError, match="both reference scores"):
        rank(seen, {**good, "t3": (1.0, 1.0)})
    with pytest.raises(UsageError, match="larger is better"):
        rank(seen, {**good, "t3": (1.0, 0.0)})


def test_a_metric_to_be_minimised_is_ranked_the_other_way_and_keeps_its_sign() -> None:
    seen, x = table()
    turned = rank(replace(seen, analysis=Analysis(direction="minimize")), question=QUICK)
    straight = rank(seen, question=QUICK)
    assert [arm.arm for arm in turned.arms] == [arm.arm for arm in straight.arms][::-1]
    best = turned.arms[0]
    assert best.iqm.estimate == pytest.approx(trim_mean(x[int(best.arm[-1])], 0.25, axis=None), rel=1e-9)
    assert best.iqm.low < best.iqm.estimate < best.iqm.high
    normalised = rank(
        replace(seen, analysis=Analysis(direction="minimize")), dict.fromkeys(seen.tasks, (2.0, -2.0)), QUICK
    )
    assert [arm.arm for arm in normalised.arms] == [arm.arm for arm in turned.arms]


def outcomes(successes: dict[str, list[int]]) -> Observations:
    rows = [
        Observation("a", task, None, r, "scored", float(value), f"{task}-{r}")
        for task, values in successes.items() for r, value in enumerate(values)
    ]  # fmt: skip
    return Observations("solved", rows, Analysis())


def test_pass_at_k_and_pass_hat_k_are_shares_of_all_ways_to_choose_k_attempts() -> None:
    tasks = {"t1": [1, 0, 0, 1, 0], "t2": [0, 0, 0, 0, 0, 0], "t3": [1, 1, 1, 0, 1]}
    for k in (1, 2, 3, 5):
        (found,) = passing(outcomes(tasks), [k])
        chosen = {task: list(itertools.combinations(values, k)) for task, values in tasks.items()}
        some = [np.mean([any(one) for one in ways]) for ways in chosen.values()]
        every = [np.mean([all(one) for one in ways]) for ways in chosen.values()]
        assert found.at.value == pytest.approx(np.mean(some), rel=1e-12)
        assert found.all.value == pytest.approx(np.mean(every), rel=1e-12)
        assert (found.attempts, found.tasks) == (5, 3)


def test_the_interval_of_pass_at_k_is_over_tasks_and_within_0_and_1() -> None:
    (found,) = passing(outcomes({"t1": [1, 1], "t2": [0, 0], "t3": [1, 0]}), [1])
    assert found.at.low == 0.0 and found.at.high == 1.0
    (same,) = passing(outcomes({"t1": [1, 0], "t2": [1, 0]}), [1])
    assert (same.at.value, same.at.low) == (0.5, None)


def test_k_doubles_up_to_the_fewest_attempts_and_failures_are_attempts() -> None:
    seen = outcomes({"t1": [1, 0, 1, 1, 0, 1], "t2": [1] * 7})
    assert [found.k for found in passing(seen)] == [1, 2, 4, 6]
    rows = [row._replace(state="failed") if row.run_id == "t2-0" else row for row in seen.rows]
    rows = [row._replace(state="missing") if row.run_id == "t1-5" else row for row in rows]
    found = passing(replace(seen, rows=rows))
    assert [one.k for one in found] == [1, 2, 4, 5]
    assert found[0].at.value == pytest.approx((3 / 5 + 6 / 7) / 2)


def test_scores_need_a_threshold_to_be_successes() -> None:
    seen = outcomes({"t1": [1, 0]})
    assert is_binary(seen)
    scores = replace(seen, rows=[row._replace(value=row.value * 0.7) for row in seen.rows])
    assert not is_binary(scores)
    assert passing(scores, [1], success=0.7)[0].at.value == 0.5
    smaller = replace(scores, analysis=Analysis(direction="minimize"))
    assert passing(smaller, [1], success=0.1)[0].at.value == 0.5
