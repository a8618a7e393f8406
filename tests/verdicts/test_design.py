"""Every row of the table of units: which values are independent, and what the test then says. Oracle: scipy.stats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bakeoff.errors import UsageError
from bakeoff.results import table
from bakeoff.stats.decision import runs_test
from bakeoff.stats.ttests import runs_t
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.compare import answer
from support.tables import Row, grid, observations, paired, rollouts, verdict

RNG = np.random.default_rng(7)
TASKS, SEEDS = 5, 8
A = RNG.normal(size=(TASKS, SEEDS))
B = A + RNG.normal(0.4, 0.5, size=(TASKS, SEEDS))


def by_rollout(arms: dict[str, np.ndarray]) -> list[Row]:
    """Tasks with rollouts and no shared seeds."""
    return [
        {"arm": arm, "task": f"t{t}", "rollout": k, "value": float(v)}
        for arm, values in arms.items()
        for t, row in enumerate(values)
        for k, v in enumerate(row)
    ]


def test_rollouts_of_one_task_are_two_independent_samples() -> None:
    found = verdict(rollouts({"A": A[0], "B": B[0] + 1}))
    welch = stats.ttest_ind(B[0] + 1, A[0], equal_var=False)
    exact = stats.permutation_test(
        (B[0] + 1, A[0]), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=math.inf, vectorized=True
    )
    assert found.p == pytest.approx(max(welch.pvalue, exact.pvalue), rel=1e-9)
    assert found.population == "for rollouts like these (unit: rollout, N = 8 per arm)"
    assert found.units == 8


def test_seeds_of_one_task_are_the_units_and_pair_the_arms() -> None:
    found = verdict(paired(A[0], B[0]))
    exact = stats.permutation_test(
        (B[0] - A[0],), np.mean, permutation_type="samples", n_resamples=math.inf, vectorized=True, axis=0
    )
    assert found.p == pytest.approx(exact.pvalue, rel=1e-9)
    assert found.population == "for seeds like these (unit: seed, N = 8)"
    assert found.decision.method == "sign-flip"


@pytest.mark.parametrize(
    "rows", [by_rollout({"A": A, "B": B}), grid({"A": A, "B": B})], ids=["rollouts", "nested seeds"]
)
def test_tasks_that_are_a_sample_are_the_units_however_many_runs_each_has(rows: list[Row]) -> None:
    found = verdict(rows, seeds="nested")
    oracle = stats.ttest_rel(B.mean(axis=1), A.mean(axis=1))
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert found.population == "for tasks like these 5 (unit: task, N = 5)"
    assert found.decision.assumes == "assumes roughly normal differences"


def test_rollouts_on_fixed_tasks_are_stratified_by_task() -> None:
    found = verdict(by_rollout({"A": A, "B": B}), tasks="fixed")
    parts = np.array([row.var(ddof=1) / SEEDS for row in (*A, *B)]) / TASKS**2
    df = parts.sum() ** 2 / (parts**2 / (SEEDS - 1)).sum()
    t = (B.mean() - A.mean()) / math.sqrt(parts.sum())
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9)
    assert found.population == "on these 5 tasks only (unit: rollout within task, N = 40 per arm)"


def test_nested_seeds_on_fixed_tasks_are_stratified_pairs() -> None:
    found = verdict(grid({"A": A, "B": B}), seeds="nested", tasks="fixed")
    parts = (B - A).var(ddof=1, axis=1) / SEEDS / TASKS**2
    df = parts.sum() ** 2 / (parts**2 / (SEEDS - 1)).sum()
    t = (B - A).mean() / math.sqrt(parts.sum())
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9)
    assert found.population == "on these 5 tasks only (unit: seed within task, N = 40)"


def test_crossed_seeds_on_a_sample_of_tasks_count_both_margins() -> None:
    found = verdict(grid({"A": A, "B": B}), seeds="crossed")
    d = B - A
    rows, columns = d.mean(axis=1), d.mean(axis=0)
    rest = d - rows[:, None] - columns + d.mean()
    v_task, v_seed = rows.var(ddof=1) / TASKS, columns.var(ddof=1) / SEEDS
    v_cell = (rest**2).sum() / ((TASKS - 1) * (SEEDS - 1)) / d.size
    variance = max(v_task, v_seed, v_task + v_seed - v_cell)
    assert found.population == "for tasks like these 5 and seeds like these 8 (units: both)"
    assert found.interval is not None
    half = (found.interval.high - found.interval.low) / 2
    df = [q for q in np.linspace(TASKS - 1, TASKS + SEEDS - 2, 2000) if stats.t.ppf(0.975, q) * math.sqrt(variance) <= half * (1 + 1e-3)]  # fmt: skip
    assert df, "the interval is that of t with degrees of freedom inside the stated range"


def test_crossed_seeds_on_fixed_tasks_are_the_units() -> None:
    found = verdict(grid({"A": A, "B": B}), seeds="crossed", tasks="fixed")
    same = verdict(paired(A.mean(axis=0), B.mean(axis=0)))
    assert found.p == pytest.approx(same.p, rel=1e-12)
    assert found.population == "on these 5 tasks only (unit: seed, N = 8)"


def test_rollouts_narrow_a_unit_and_never_make_one() -> None:
    rows = [
        {"arm": arm, "seed": s, "rollout": k, "value": float(values[s] + noise)}
        for arm, values in (("A", A[0]), ("B", B[0]))
        for s in range(SEEDS)
        for k, noise in enumerate((-0.1, 0.1, 0.0))
    ]
    found = verdict(rows)
    assert found.units == SEEDS
    assert found.p == pytest.approx(verdict(paired(A[0], B[0])).p, rel=1e-12)


def test_every_task_weighs_the_same_whatever_its_number_of_runs() -> None:
    once = by_rollout({"A": A[:, :1], "B": B[:, :1]})
    more = [{**row, "rollout": 9} for row in once if row["task"] == "t0"]
    found = verdict([*once, *more, *({**row, "rollout": 8} for row in more)])
    assert found.effect == pytest.approx((B - A)[:, 0].mean(), rel=1e-12)
    assert found.p == pytest.approx(verdict(once).p, rel=1e-12)


def test_the_other_population_is_told_in_one_line() -> None:
    found = verdict(grid({"A": A, "B": B}), seeds="nested")
    fixed = verdict(grid({"A": A, "B": B}), seeds="nested", tasks="fixed")
    assert found.other is not None and (found.other.option, found.other.value) == ("tasks", "fixed")
    assert found.other.decision is not None and found.other.decision.verdict == fixed.verdict
    assert found.other.line.startswith("on these 5 tasks only (unit: seed within task, N = 40): ")
    assert found.other.line.endswith(f"{fixed.verdict}, p = {fixed.p:.2g}") or f"p = {fixed.p:.3f}" in found.other.line
    assert verdict(paired(A[0], B[0])).other is None


def test_tasks_that_were_swept_are_fixed_unless_the_file_says_otherwise() -> None:
    rows = grid({"A": A, "B": B})
    assert "only" in verdict(rows, fixed_tasks=True).population
    assert "like these" in verdict(rows, fixed_tasks=True, tasks="sample").population


def test_five_tasks_are_five_units_however_often_they_are_run() -> None:
    many = np.repeat(A, 50, axis=1), np.repeat(B, 50, axis=1)
    found = verdict(by_rollout({"A": many[0], "B": many[1]}))
    assert found.units == 5
    assert found.p == pytest.approx(verdict(by_rollout({"A": A, "B": B})).p, rel=1e-9)


class TestUnpaired:
    def test_one_task_compares_seeds_as_two_samples_with_rollouts_averaged(self) -> None:
        rows = [
            {"arm": arm, "seed": s + shift, "rollout": k, "value": float(values[s] + 0.1 * k)}
            for arm, values, shift in (("A", A[0], 0), ("B", B[0], 100))
            for s in range(SEEDS)
            for k in range(2)
        ]
        found = verdict(rows, Compare(unpaired=True))
        assert found.units == SEEDS
        assert found.p == pytest.approx(verdict(rollouts({"A": A[0], "B": B[0]})).p, rel=1e-9)

    def test_tasks_that_both_arms_have_still_pair(self) -> None:
        rows = grid({"A": A, "B": B})
        shifted = [{**row, "seed": row["seed"] + 50} if row["arm"] == "B" else row for row in rows]
        found = verdict(shifted, Compare(unpaired=True), seeds="nested")
        assert found.p == pytest.approx(verdict(rows, seeds="nested").p, rel=1e-12)

    def test_other_tasks_for_each_arm_are_two_samples_of_tasks(self) -> None:
        rows = grid({"A": A, "B": B})
        renamed = [{**row, "task": f"other {row['task']}"} if row["arm"] == "B" else row for row in rows]
        found = verdict(renamed, Compare(unpaired=True), seeds="nested")
        assert found.population == "for tasks like these 10 (unit: task, N = 5 per arm)"

    def test_crossed_seeds_on_sampled_tasks_are_runs_of_one_arm_each(self) -> None:
        found = verdict(grid({"A": A, "B": B}), Compare(unpaired=True), seeds="crossed")
        assert found.decision.method == "t over tasks and runs"

    def test_crossed_seeds_on_fixed_tasks_are_two_samples_of_seeds(self) -> None:
        found = verdict(grid({"A": A, "B": B}), Compare(unpaired=True), seeds="crossed", tasks="fixed")
        assert found.p == pytest.approx(verdict(rollouts({"A": A.mean(axis=0), "B": B.mean(axis=0)})).p, rel=1e-9)


class TestSetsThatDiffer:
    rows = paired(A[0], B[0])[:-2]

    def test_what_one_arm_lacks_is_missing_and_bounded_at_both_ends(self) -> None:
        found = verdict(self.rows, bounds=(-9.0, 9.0))
        spelled_out = verdict(
            [*self.rows, *({"arm": "B", "seed": s, "value": None} for s in (6, 7))], bounds=(-9.0, 9.0)
        )
        assert (found.units, found.missing) == (8, 2)
        assert (found.verdict, found.p, found.interval) == (spelled_out.verdict, spelled_out.p, spelled_out.interval)
        (warning,) = [text for text in found.warnings if "missing" in text]
        assert warning.startswith(
            "2 of A's runs and 0 of B's are on tasks and seeds that the other arm lacks, such as seed 6"
        )
        assert "--intersect" in warning and "--unpaired" in warning

    def test_a_small_share_that_cannot_matter_leaves_the_verdict(self) -> None:
        found = verdict(paired(A[0], A[0] + 5 + 0.1 * B[0])[:-1])
        assert (found.verdict, found.missing) == ("better", 1)

    def test_a_task_that_one_arm_lacks_is_missing_in_a_sample_of_tasks(self) -> None:
        rows = [row for row in by_rollout({"A": A, "B": B}) if (row["arm"], row["task"]) != ("B", "t2")]
        found = verdict(rows)
        assert (found.units, found.missing) == (5, SEEDS)

    def test_unequal_numbers_of_rollouts_are_not_missing_runs(self) -> None:
        rows = by_rollout({"A": A, "B": B[:, :3]})
        found = verdict(rows)
        assert (found.missing, found.warnings) == (0, ())

    def test_intersect_says_how_many_it_set_aside_and_warns_where_the_arms_differ(self) -> None:
        found = verdict(self.rows, Compare(intersect=True))
        assert found.missing == 0
        (warning,) = found.warnings
        assert "2 of A's runs and 0 of B's were set aside by --intersect" in warning
        assert "The numbers differ between the arms" in warning
        even = [row for row in self.rows if (row["arm"], row["seed"]) not in (("A", 0), ("A", 1))]
        (warning,) = verdict(even, Compare(intersect=True)).warnings
        assert "2 of A's runs and 2 of B's" in warning and "differ between" not in warning

    def test_unpaired_says_what_could_not_have_been_paired(self) -> None:
        (warning,) = verdict(self.rows, Compare(unpaired=True)).warnings
        assert "2 of A's runs and 0 of B's" in warning and "--unpaired uses them" in warning
        disjoint = [{**row, "seed": row["seed"] + 100} if row["arm"] == "B" else row for row in self.rows]
        assert verdict(disjoint, Compare(unpaired=True)).warnings == ()

    def test_intersect_compares_where_both_are(self) -> None:
        found = verdict(self.rows, Compare(intersect=True))
        assert found.units == 6
        assert found.p == pytest.approx(verdict(paired(A[0][:6], B[0][:6])).p, rel=1e-12)

    def test_nothing_in_common_is_an_error_even_then(self) -> None:
        rows = [{**row, "seed": row["seed"] + 100} if row["arm"] == "B" else row for row in self.rows]
        with pytest.raises(
            UsageError,
            match=r"share no task and seed: one has task .* with seed 0 and 7 more, the other task .* with seed 100 and",
        ):
            verdict(rows, Compare(intersect=True))


class TestTwoCrossedSeeds:
    a = np.random.default_rng(3).normal(size=(40, 2))
    rows = grid({"A": a, "B": a + 1.0 + np.random.default_rng(4).normal(0, 0.5, size=(40, 2)) + np.array([0.0, 0.2])})

    def test_the_verdict_has_one_degree_of_freedom_and_says_what_would_decide(self) -> None:
        found = verdict(self.rows, seeds="crossed")
        d = np.array([row["value"] for row in self.rows]).reshape(2, 40, 2)
        d = d[1] - d[0]
        rest = d - d.mean(axis=1)[:, None] - d.mean(axis=0) + d.mean()
        v_task, v_seed = d.mean(axis=1).var(ddof=1) / 40, d.mean(axis=0).var(ddof=1) / 2
        variance = max(v_task, v_seed, v_task + v_seed - (rest**2).sum() / 39 / 80)
        assert found.p == pytest.approx(2 * stats.t.sf(d.mean() / math.sqrt(variance), 1), rel=1e-9)
        assert (found.verdict, found.reason) == ("undecided", "inconclusive")
        assert any("1 degree of freedom" in text and "--seeds fixed" in text for text in found.warnings)

    def test_a_second_line_is_about_these_seeds_and_seeds_fixed_makes_it_the_verdict(self) -> None:
        found, fixed = verdict(self.rows, seeds="crossed"), verdict(self.rows, seeds="fixed")
        assert found.these_seeds is not None and found.these_seeds.line.startswith(
            "for tasks like these 40 with these 2 seeds only (unit: task, N = 40): better"
        )
        assert (fixed.verdict, fixed.these_seeds) == ("better", None)
        assert fixed.population == "for tasks like these 40 with these 2 seeds only (unit: task, N = 40)"
        assert fixed.p == pytest.approx(verdict(self.rows, seeds="nested").p, rel=1e-12)

    def test_three_seeds_need_no_second_line(self) -> None:
        assert verdict(grid({"A": A[:, :3], "B": B[:, :3]}), seeds="crossed").these_seeds is None

    @pytest.mark.parametrize("how", [{"rows": paired(A[0], B[0])}, {"rows": grid({"A": A, "B": B}), "tasks": "fixed"}])
    def test_fixed_seeds_need_a_sample_of_tasks(self, how: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="needs several tasks that are a sample"):
            verdict(**how, seeds="fixed")


class TestStrict:
    def test_every_design_with_an_exact_test_uses_it(self) -> None:
        pairs = verdict(paired(A[0][:5], A[0][:5] + 1 + 0.01 * B[0][:5]), ties="full")
        assert (pairs.p, pairs.verdict, pairs.decision.method) == (2 / 2**5, "undecided", "sign-flip (ties in full)")
        samples = verdict(rollouts({"A": A[0][:3], "B": A[0][:3] + 9}), ties="full")
        assert (samples.p, samples.verdict) == (pytest.approx(2 / 20), "undecided")
        outcomes = verdict(paired([0] * 5 + [1] * 3, [1] * 8), ties="full")
        assert (outcomes.p, outcomes.decision.method, outcomes.verdict) == (0.0625, "McNemar (exact)", "undecided")
        strata = verdict(grid({"A": A[:2, :3], "B": A[:2, :3] + 5 + 0.1 * B[:2, :3]}), tasks="fixed", ties="full")
        assert strata.p == pytest.approx(2 / 2**6)

    def test_there_is_none_where_tasks_and_seeds_are_both_samples(self) -> None:
        with pytest.raises(UsageError, match="no exact test where tasks and seeds are both samples"):
            verdict(grid({"A": A, "B": B}), seeds="crossed", ties="full")

    def test_the_exact_p_stands_beside_every_other_test(self) -> None:
        assert verdict(paired(A[0][:5], B[0][:5] + 9)).p_exact == 2 / 2**5
        half = verdict(paired(np.zeros(8), [1.0] * 3 + [2.0] * 2 + [0.0] * 3))
        assert half.p is not None and half.p < 0.05 < 0.0625 == half.p_exact
        assert verdict(rollouts({"A": A[0][:3], "B": A[0][:3] + 9})).p_exact == pytest.approx(2 / 20)
        assert verdict(grid({"A": A[:2, :3], "B": A[:2, :3] + 5 + 0.1 * B[:2, :3]}), tasks="fixed").p_exact == 2 / 2**6
        assert verdict(grid({"A": A, "B": B}), seeds="crossed").p_exact is None

    def test_better_never_stands_beside_an_interval_that_seems_to_contain_0(self) -> None:
        found = verdict(paired(np.zeros(8), [2.0] * 5 + [0.0] * 3))
        assert found.verdict == "better" and found.decision_interval is not None and found.decision_interval.low == 0.0
        assert "interval (0 to 2" in found.sentence


def test_few_units_that_are_equivalent_say_that_the_interval_is_wider() -> None:
    rows = paired(A[0][:5], A[0][:5] + 0.001 * B[0][:5])
    assert "the interval is widened" in verdict(rows, margin=1.0).sentence
    assert "the interval is widened" not in verdict(paired(A[0], A[0] + 0.001 * B[0]), margin=1.0).sentence


def test_identical_outcomes_get_the_note_that_identical_arms_get() -> None:
    for values in (A[0], [0, 1, 1, 0, 1, 1, 1, 0]):
        assert any("identical on every unit" in text for text in verdict(paired(values, values)).warnings)


def test_crossed_seeds_keep_absent_combinations_and_count_them() -> None:
    rows = [row for row in grid({"A": A, "B": B}) if (row["task"], row["seed"]) != ("t1", 3)]
    found = verdict(rows, seeds="crossed")
    size = len(A) * len(A[0])
    assert f"1 of {size} task-seed combinations were not run" in found.sentence
    unpaired = verdict(rows, seeds="crossed", tasks="fixed")
    assert "1 of" in unpaired.sentence and "unit: seed" in unpaired.sentence


def test_a_run_that_stands_twice_is_an_error() -> None:
    rows = paired(A[0], B[0])
    with pytest.raises(UsageError, match="two values for task 'default', seed 3"):
        verdict([*rows, dict(rows[3])])


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308])
def test_a_value_whose_square_is_infinite_is_an_error(value: float) -> None:
    with pytest.raises(UsageError, match=r"score is (-?inf|1e\+308), and no mean"):
        verdict(paired([*A[0][:-1], value], B[0]))


def test_a_value_outside_the_declared_range_is_an_error() -> None:
    with pytest.raises(UsageError, match="outside the declared bounds 0 to 1"):
        verdict(paired([0.5, 0.2, 1.5], [0.1, 0.2, 0.3]), bounds=(0.0, 1.0))


def test_the_table_knows_its_arms_and_tasks() -> None:
    seen = observations(grid({"A": A, "B": B}))
    assert seen.arms == ["A", "B"]
    assert seen.tasks == [f"t{t}" for t in range(TASKS)]


def runs_of(a: np.ndarray, b: np.ndarray) -> list[Row]:
    """(tasks x runs) tables of two arms that share no run."""
    rows = grid({"A": a, "B": b})
    return [{**row, "seed": row["seed"] + (100 if row["arm"] == "B" else 0)} for row in rows]


def test_runs_of_one_arm_each_are_units_beside_the_tasks() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(12, 1)) + rng.normal(size=(1, 6)) + rng.normal(size=(12, 6))
    b = rng.normal(size=(12, 1)) + rng.normal(size=(1, 9)) + rng.normal(size=(12, 9))
    found = verdict(runs_of(a, b), Compare(unpaired=True), seeds="crossed")
    d = b.mean(axis=1) - a.mean(axis=1)
    v_task, v_runs = d.var(ddof=1) / 12, [x.mean(axis=0).var(ddof=1) / x.shape[1] for x in (a, b)]
    rests = [x - x.mean(axis=0) - x.mean(axis=1, keepdims=True) + x.mean() for x in (a, b)]
    v_cell = sum((rest**2).sum() / (11 * (rest.shape[1] - 1)) / rest.size for rest in rests)
    total = max(v_task, sum(v_runs), v_task + sum(v_runs) - v_cell)
    squares = v_task**2 / 11 + v_runs[0] ** 2 / 5 + v_runs[1] ** 2 / 8
    df = min(max((v_task + sum(v_runs)) ** 2 / squares, 5), 24)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(d.mean()) / math.sqrt(total), df), rel=1e-9)
    assert found.population == "for tasks like these 12 and runs like these, 6 and 9 (units: tasks and runs)"
    swapped = verdict(runs_of(b, a), Compare(unpaired=True), seeds="crossed")
    assert swapped.p == pytest.approx(found.p, rel=1e-9)
    assert swapped.effect == pytest.approx(-found.effect, rel=1e-9)


@pytest.mark.parametrize(("runs", "df"), [(1, None), (2, 1)])
def test_one_run_of_an_arm_decides_nothing_and_two_have_one_degree_of_freedom(runs: int, df: int | None) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(20, runs)), 5 + rng.normal(size=(20, 6))
    found = verdict(runs_of(a, b), Compare(unpaired=True), seeds="crossed")
    if df is None:
        assert (found.verdict, found.reason) == ("undecided", "too_few")
    else:
        assert runs_t(a, b).df == df and found.units == 2
    assert any("run" in warning and "--seeds fixed" in warning for warning in found.warnings)


def test_runs_that_matter_do_not_become_false_verdicts() -> None:
    """The task as the unit gives over 70 % here."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(400):
        a, b = (rng.normal(size=(1, 5)) + rng.normal(size=(20, 5)) for _ in "ab")
        found += runs_test(a, b).p <= 0.05
    assert found / 400 <= 0.075 + 3 * math.sqrt(0.075 * 0.925 / 400)


def test_a_run_that_lacks_a_task_and_missing_runs_keep_the_runs_as_units() -> None:
    rng = np.random.default_rng(6)
    rows = runs_of(rng.normal(size=(10, 5)), 8 + rng.normal(size=(10, 5)))
    absent = [row for row in rows if (row["task"], row["seed"]) != ("t3", 2)]
    assert verdict(absent, Compare(unpaired=True), seeds="crossed", margin=0.1).verdict == "better"
    lost = [{**row, "value": None} if (row["task"], row["seed"]) == ("t3", 2) else row for row in rows]
    found = verdict(lost, Compare(unpaired=True), seeds="crossed")
    assert found.verdict == "better" and found.missing == 1
    with pytest.raises(UsageError, match="only one has 't9'"):
        verdict([r for r in rows if r["task"] != "t9" or r["arm"] == "A"], Compare(unpaired=True), seeds="crossed")


def grouped_tasks(seeds: int, groups: int, tasks: int) -> table.Results:
    """Old and new on tasks in groups, new better by 2 to 3 everywhere."""
    rows = [
        table.Row(
            arm, f"t{t:02}", s, metrics={"score": 0.1 * t + 0.01 * s * s + (2 + t * (s + 1) % 3 / 3) * (arm == "new")}
        )
        for arm in ("old", "new")
        for t in range(tasks)
        for s in range(seeds)
    ]
    return table.Results(rows, "test", groups={"repo": {f"t{t:02}": f"g{t % groups}" for t in range(tasks)}})


def test_strict_ties_hold_for_declared_clusters_too() -> None:
    results = grouped_tasks(1, 4, 9)
    [plain] = answer(results, Compare.ask(metric="score", cluster="repo")).comparisons
    [strict] = answer(results, Compare.ask(metric="score", cluster="repo", strict=True)).comparisons
    assert plain.decision.method == "t over blocks"
    assert strict.decision.method == "sign-flip (ties in full)"
    assert strict.p == 2 / 2**4 and strict.verdict == "undecided"  # 4 groups cannot decide exactly


def test_two_crossed_seeds_decide_where_tasks_may_depend_on_groups() -> None:
    results = grouped_tasks(2, 8, 24)
    [found] = answer(results, Compare.ask(metric="score", seeds="crossed")).comparisons
    assert found.design.group_columns == ("repo",)
    assert found.reason != "too_few" and found.p is not None
