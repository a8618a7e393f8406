"""Planning from numbers and from earlier runs, and power by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from statsmodels.stats.power import TTestIndPower, TTestPower

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis
from bakeoff.stats.plans import TwoWay
from bakeoff.stats.power import Costs
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare, Question
from bakeoff.verdicts.questions import planning as simulation
from bakeoff.verdicts.questions.planning import EarlierRuns, NotAnswerable, PlanningSpread, earlier_runs
from bakeoff.verdicts.questions.power import Goal, curve, more_rollouts, plan, plan_of_both, spend


def numbers(sd: float, design: str) -> PlanningSpread:
    return PlanningSpread(sd, sd, design, "unit")


@pytest.mark.parametrize(("design", "oracle"), [("paired", TTestPower()), ("unpaired", TTestIndPower())])
@pytest.mark.parametrize(("effect", "n"), [(0.5, 15), (1.5, 16), (0.1, 300)])
def test_the_answers_are_those_of_statsmodels(design: str, oracle: TTestPower, effect: float, n: int) -> None:
    found = plan(numbers(2.0, design), Goal(effect=effect, n=n))
    assert found.chance is not None and found.needed is not None and found.mde is not None
    where = {"nobs1": n} if design == "unpaired" else {"nobs": n}
    assert found.chance.seen == pytest.approx(oracle.power(effect / 2, n, 0.05), rel=1e-6)
    assert found.mde.seen == pytest.approx(2.0 * oracle.solve_power(alpha=0.05, power=0.8, **where), rel=1e-5)
    needed = int(found.needed.seen or 0)
    assert oracle.power(effect / 2, needed, 0.05) >= 0.8 - 1e-9 > oracle.power(effect / 2, needed - 1, 0.05) - 1e-9


def test_only_what_was_asked_is_answered() -> None:
    assert plan(numbers(1.0, "paired"), Goal(effect=0.5)).mde is None
    only_n = plan(numbers(1.0, "paired"), Goal(n=10))
    assert only_n.needed is None and only_n.chance is None and only_n.mde is not None
    assert plan(numbers(1.0, "paired"), Goal(n=1)).mde is None


def experiment(
    count: int, seeds: int, rollouts: int, task_sd: float, noise: float, effect: float = 0.0, **analysis: object
) -> Observations:
    """Two arms; the difference of b has a part of its own on each task."""
    rng = np.random.default_rng(7)
    shift = rng.normal(effect, task_sd, count) if task_sd else np.full(count, effect)
    rows = [
        Observation(arm, f"t{t}", s, r, "scored", float(rng.normal(0, noise) + (arm == "b") * shift[t]))
        for arm in "ab"
        for t in range(count)
        for s in range(seeds)
        for r in range(rollouts)
    ]
    return Observations("score", rows, Analysis(**analysis))


def test_five_tasks_stay_five_whatever_the_rollouts() -> None:
    seen = experiment(5, 1, 40, task_sd=1.0, noise=0.5)
    found = earlier_runs(seen, "a", "b")
    assert (found.n, found.spread.unit, found.spread.design) == (5, "task", "paired")
    answer = plan(found.spread, Goal(effect=0.3, n=found.n))
    more = more_rollouts(found, answer)
    assert more is not None and more.floor is not None and more.tasks_needed is not None
    assert more.hopeless and more.floor <= more.now
    assert (more.tasks_needed.seen or 0) > 5


def test_one_run_a_task_does_not_tell_tasks_from_runs() -> None:
    found = earlier_runs(experiment(6, 1, 1, 1.0, 1.0), "a", "b")
    more = more_rollouts(found, plan(found.spread, Goal(n=6)))
    assert more is not None and more.floor is None and not more.hopeless


def test_fixed_tasks_make_the_seed_the_unit_and_have_no_spread_of_their_own() -> None:
    found = earlier_runs(experiment(3, 8, 2, 1.0, 0.5, tasks="fixed"), "a", "b")
    assert (found.n, found.spread.unit) == (8, "seed")
    assert found.components is not None and found.components.task == 0.0
    assert more_rollouts(found, plan(found.spread, Goal(n=8))) is None


def test_seeds_that_are_shared_between_tasks_count_in_the_spread() -> None:
    rng = np.random.default_rng(2)
    world = rng.normal(0, 2.0, 6)  # what a seed does to b on every task
    rows = [
        Observation(arm, f"t{t}", s, 0, "scored", float(rng.normal(0, 0.1) + (arm == "b") * world[s]))
        for arm in "ab" for t in range(8) for s in range(6)
    ]  # fmt: skip
    crossed = earlier_runs(Observations("m", rows, Analysis(seeds="crossed")), "a", "b")
    nested = earlier_runs(Observations("m", rows, Analysis(seeds="nested")), "a", "b")
    se = float(np.std(world, ddof=1)) / math.sqrt(6)
    assert crossed.spread.sd / math.sqrt(8) == pytest.approx(se, rel=0.1)
    assert nested.spread.sd < crossed.spread.sd / 5
    assert any("both samples" in note for note in crossed.notes)
    assert crossed.components is not None and crossed.components.seed == pytest.approx(np.var(world, ddof=1), rel=0.1)


def test_the_observed_effect_is_never_used() -> None:
    still, moved = (earlier_runs(experiment(6, 4, 1, 0.5, 1.0, effect=e), "a", "b") for e in (0.0, 50.0))
    assert still.spread.sd == pytest.approx(moved.spread.sd, rel=1e-9)
    assert plan(still.spread, Goal(effect=1.0)).needed == plan(moved.spread, Goal(effect=1.0)).needed


def test_the_upper_limit_of_the_spread_lies_above_the_truth_as_often_as_it_says() -> None:
    rng, above = np.random.default_rng(3), 0
    for _ in range(500):
        rows = [Observation(arm, "default", s, 0, "scored", float(rng.normal())) for arm in "ab" for s in range(6)]
        above += earlier_runs(Observations("m", rows, Analysis()), "a", "b", confidence=0.8).spread.upper > math.sqrt(2)
    assert above / 500 == pytest.approx(0.8, abs=0.05)


def test_unpaired_runs_pool_the_spread_inside_the_arms() -> None:
    values = {"a": [1.0, 2.0, 3.0], "b": [11.0, 15.0]}
    rows = [Observation(arm, "default", None, r, "scored", v) for arm in values for r, v in enumerate(values[arm])]
    found = earlier_runs(Observations("m", rows, Analysis()), "a", "b")
    assert found.spread.design == "unpaired" and found.n == 2
    assert found.spread.sd == pytest.approx(math.sqrt((2 * 1.0 + 1 * 8.0) / 3))


def test_earlier_runs_that_cannot_answer_say_so() -> None:
    same = [Observation(arm, "default", s, 0, "scored", 1.0) for arm in "ab" for s in range(4)]
    with pytest.raises(NotAnswerable, match="no spread"):
        earlier_runs(Observations("m", same, Analysis()), "a", "b")
    with pytest.raises(NotAnswerable, match="at least 2"):
        earlier_runs(Observations("m", [row for row in same if row.seed == 0], Analysis()), "a", "b")


def test_missing_runs_are_left_out_and_told() -> None:
    seen = experiment(1, 6, 1, 0.0, 1.0)
    rows = [row._replace(state="missing") if row.arm == "b" and row.seed == 2 else row for row in seen.rows]
    found = earlier_runs(Observations("m", rows, Analysis()), "a", "b")
    assert found.n == 5 and found.notes == ("missing runs, left out: 1",)
    absent = earlier_runs(replace(seen, rows=[row for row in seen.rows if (row.arm, row.seed) != ("b", 2)]), "a", "b")
    assert absent.n == 5
    assert absent.notes == ("runs on tasks and seeds that the other arm lacks, left out: 1",)


def test_a_budget_goes_where_the_noise_is() -> None:
    costs = Costs(rollout=1.0)
    noisy_tasks = earlier_runs(experiment(6, 1, 8, task_sd=3.0, noise=0.3), "a", "b")
    now, best = spend(noisy_tasks, Goal(), 48, costs, None)
    assert (now.tasks, now.rollouts, now.cost) == (6, 8, 48)
    assert (best.tasks, best.rollouts) == (48, 1) and best.mde < now.mde
    _, kept = spend(noisy_tasks, Goal(), 48, costs, tasks=6)
    assert (kept.tasks, kept.seeds * kept.rollouts) == (6, 8)
    with pytest.raises(UsageError, match="no design fits"):
        spend(noisy_tasks, Goal(), 1, costs, None)


def test_a_table_with_holes_has_no_components() -> None:
    seen = experiment(4, 3, 1, 1.0, 1.0)
    rows = [row for row in seen.rows if not (row.task == "t0" and row.seed == 0)]
    holed = earlier_runs(Observations("m", rows, Analysis()), "a", "b", Compare())
    assert holed.components is None
    with pytest.raises(NotAnswerable, match="holes"):
        spend(holed, Goal(), 100, Costs(), None)


def test_the_curve_of_detectable_effects_falls_with_the_units() -> None:
    drawn = curve(plan(numbers(1.0, "paired"), Goal(effect=0.5, n=10)))
    assert (np.diff(drawn["mde"]) < 0).all() and drawn["n"][-1] >= 34


def setting(statistic: str, design: str = "paired", effect: float = 1.0, **changes: object) -> simulation.Setting:
    known = {"sd": 1.0, "alpha": 0.05, "replicates": 800, "seed": 0}
    return simulation.Setting(statistic=statistic, design=design, effect=effect, **{**known, **changes})


@pytest.mark.parametrize(("design", "oracle"), [("paired", TTestPower()), ("unpaired", TTestIndPower())])
def test_simulated_t_tests_have_the_power_that_is_computed(design: str, oracle: TTestPower) -> None:
    found = simulation.power_at(setting("t", design), 12)
    assert found.interval.contains(float(oracle.power(1.0, 12, 0.05)))


@pytest.mark.slow
@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_every_statistic_keeps_its_error_rate_when_there_is_no_effect(design: str) -> None:
    for name in (*simulation.TESTS[design], *simulation.STATISTICS):
        assert simulation.power_at(setting(name, design, 0.0, replicates=400), 9).power <= 0.085, name


def test_the_search_ends_at_the_smallest_number_that_was_enough() -> None:
    tried = simulation.units_for(setting("t"), 0.8)
    assert tried[-1].power >= 0.8 and abs(tried[-1].n - 10) <= 1
    assert all(one.power < 0.8 for one in tried[:-1] if one.n < tried[-1].n)


def test_values_of_earlier_runs_are_drawn_when_there_are_some() -> None:
    skewed = np.array([0.0] * 9 + [10.0])
    normal = simulation.power_at(setting("wilcoxon", effect=1.0, sd=float(skewed.std(ddof=1))), 20)
    drawn = simulation.power_at(setting("wilcoxon", effect=1.0, residuals=(skewed,)), 20)
    assert drawn.power != normal.power


def test_unknown_statistics_and_hopeless_effects_are_told() -> None:
    with pytest.raises(UsageError, match="mann-whitney"):
        simulation.power_at(setting("mode", "unpaired"), 5)
    with pytest.raises(ValueError, match="more than 8"):
        simulation.units_for(setting("t", effect=0.01, replicates=100), 0.8, most=8)


def both_sampled(own_runs: bool) -> EarlierRuns:
    """Ten tasks x five seeds that the arms share, or five runs of each arm; seeds differ more than tasks do."""
    rng = np.random.default_rng(4)
    luck = {"a": rng.normal(0, 1.0, 5), "b": rng.normal(0, 1.0, 5)}
    rows = [
        Observation(arm, f"t{t}", s + 10 * own_runs * (arm == "b"), 0, "scored", float(luck[arm][s] + rng.normal(0, 0.5)))
        for arm in "ab" for t in range(10) for s in range(5)
    ]  # fmt: skip
    asked = Question(unpaired=own_runs)
    return earlier_runs(Observations("m", rows, Analysis(seeds="crossed")), "a", "b", asked)


@pytest.mark.parametrize("own_runs", [False, True])
def test_more_tasks_alone_do_not_help_where_seeds_or_runs_make_the_noise(own_runs: bool) -> None:
    noise = both_sampled(own_runs)
    assert isinstance(noise.noise, TwoWay) and noise.components is not None
    made = plan_of_both(noise, noise.noise, Goal(effect=1.0, n=noise.n))
    assert made.both is not None and made.mde is not None and made.mde.planned is not None
    assert made.both.more_tasks is None and made.both.more_seeds is not None and made.both.more_seeds > 5
    assert 0.8 * made.mde.planned < made.both.floor_of_tasks <= made.mde.planned
    assert made.both.floor_of_seeds < 0.3 * made.mde.planned
    assert noise.components.seed > 5 * noise.components.task


def test_the_figure_to_follow_lies_between_the_spread_as_seen_and_its_upper_limit() -> None:
    found = earlier_runs(experiment(8, 1, 1, 1.0, 1.0), "a", "b")
    made = plan(found.spread, Goal(effect=1.0, n=8))
    assert made.needed is not None and made.mde is not None
    for each in (made.needed, made.mde):
        assert each.seen is not None and each.planned is not None and each.upper is not None
        assert each.seen < each.planned < each.upper
