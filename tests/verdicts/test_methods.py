"""Methods beside the verdict's own: each agrees with scipy.stats or statsmodels, and each knows where it does not fit."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.weightstats import ttost_paired

from bakeoff.cli.compare import command
from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Summary
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.designs.testing import METHODS, Line
from bakeoff.verdicts.question import Compare
from support.tables import Row, grid, observations, paired, rollouts, verdict

RNG = np.random.default_rng(3)
A = RNG.normal(size=10)
B = A + RNG.normal(0.3, 0.6, 10)
QUICK = settings(max_examples=30, deadline=None)


def line(name: str, rows: list[Row], options: dict[str, Any] | None = None, **how: Any) -> Line:
    (found,) = verdict(rows, Compare(methods=[name], **options or {}), **how).methods
    assert found.name == name or name == "bootstrap"
    return found


@st.composite
def two_samples(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, lift = draw(st.integers(4, 12)), draw(st.sampled_from([0.0, 1.0]))
    a = rng.normal(size=n)
    return a, a + rng.normal(lift, 0.7, n)


@QUICK
@given(two_samples())
def test_t_is_the_paired_t_test(data: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = data
    oracle = stats.ttest_rel(b, a)
    found = line("t", paired(a, b))
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(oracle.confidence_interval(0.95)), rel=1e-9)


@QUICK
@given(two_samples())
def test_welch_is_welch(data: tuple[np.ndarray, np.ndarray]) -> None:
    oracle = stats.ttest_ind(data[1], data[0], equal_var=False)
    found = line("welch", rollouts({"A": data[0], "B": data[1]}))
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)


@pytest.mark.slow
@QUICK
@given(two_samples())
def test_wilcoxon_and_mannwhitney_are_scipys(data: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = data
    assert line("wilcoxon", paired(a, b)).p == pytest.approx(stats.wilcoxon(b - a).pvalue, rel=1e-9)
    oracle = stats.mannwhitneyu(b, a, method="exact" if len(a) <= 8 else "asymptotic")
    assert line("mannwhitney", rollouts({"A": a, "B": b})).p == pytest.approx(oracle.pvalue, rel=1e-9)


def test_signflip_is_exact_up_to_40_pairs_and_drawn_beyond() -> None:
    exact = stats.permutation_test((B - A,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert line("signflip", paired(A, B)).p == pytest.approx(exact.pvalue, rel=1e-9)
    d = RNG.normal(0.2, 1, 41)
    assert "Monte Carlo" in line("signflip", paired(np.zeros(41) + np.arange(41), np.arange(41) + d)).note
    assert "exact" in line("signflip", paired(np.arange(40.0), np.arange(40) + d[:40])).note


def test_permutation_is_exact_for_small_samples() -> None:
    oracle = stats.permutation_test(
        (B[:7], A[:7]), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=np.inf, vectorized=True
    )
    assert line("permutation", rollouts({"A": A[:7], "B": B[:7]})).p == pytest.approx(oracle.pvalue, rel=1e-9)


def test_bootstraps_give_intervals_and_the_short_ones_say_that_they_under_cover() -> None:
    notes = {name: line(name, paired(A, B)) for name in ("bootstrap", "studentized", "percentile", "bca")}
    assert all(one.interval is not None and one.p is None for one in notes.values())
    assert "under-covers" in notes["percentile"].note
    assert "under-covers" in notes["bca"].note
    assert notes["bootstrap"].interval == notes["studentized"].interval
    assert line("percentile", paired(A, B), {"resamples": 20_000}).note.startswith("20,000 resamples")
    assert line("percentile", rollouts({"A": A, "B": B})).interval is not None


def test_mcnemar_is_exact() -> None:
    a, b = RNG.integers(0, 2, 25), RNG.integers(0, 2, 25)
    table = [[int(((a == i) & (b == j)).sum()) for j in (0, 1)] for i in (0, 1)]
    found = line("mcnemar", paired(a, b, unit="task"))
    assert found.p == pytest.approx(mcnemar(table, exact=True).pvalue, rel=1e-9)


@pytest.mark.slow
def test_fisher_is_exact_at_a_hundred_thousand_runs_an_arm() -> None:
    small = line("fisher", rollouts({"A": [1] * 3 + [0] * 9, "B": [1] * 8 + [0] * 4}))
    assert small.p == pytest.approx(stats.fisher_exact([[8, 4], [3, 9]]).pvalue, rel=1e-9)
    n = 100_000
    seen = observations(rollouts({"A": (np.arange(n) % 100 < 45), "B": (np.arange(n) % 100 < 46)}))
    (found,) = compare([seen], Compare(methods=["fisher"]))
    assert found.methods[0].p == pytest.approx(
        stats.fisher_exact([[46_000, 54_000], [45_000, 55_000]]).pvalue, rel=1e-6
    )
    assert found.verdict == "better"


def test_tost_is_two_one_sided_t_tests_and_needs_a_margin() -> None:
    found = line("tost", paired(A, B), margin=0.8)
    assert found.p == pytest.approx(ttost_paired(B, A, -0.8, 0.8)[0], rel=1e-9)
    assert found.interval is not None and found.interval.level == pytest.approx(0.9)
    assert "needs --margin" in line("tost", paired(A, B)).note


def test_cluster_is_the_cluster_robust_error_with_t_and_tasks_less_one_degrees_of_freedom() -> None:
    a, b = RNG.normal(size=(6, 4)), RNG.normal(0.3, 1, size=(6, 4))
    d, groups = (b - a).ravel(), np.repeat(np.arange(6), 4)
    found = line("cluster", grid({"A": a, "B": b}), seeds="nested")
    plain = sm.OLS(d, np.ones(d.size)).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False})
    se = plain.bse[0] * np.sqrt(6 / 5)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(d.mean() / se), 5), rel=1e-9)
    assert "5 df, never z" in found.note


def test_the_hierarchical_bootstrap_says_that_it_over_covers_or_resamples_both_margins() -> None:
    tables = grid({"A": RNG.normal(size=(6, 4)), "B": RNG.normal(0.3, 1, size=(6, 4))})
    assert "over-covers" in line("hierarchical", tables, seeds="nested").note
    assert "independently" in line("hierarchical", tables, seeds="crossed").note


def test_t_on_stratified_and_crossed_designs_is_the_designs_own() -> None:
    tables = grid({"A": RNG.normal(size=(4, 5)), "B": RNG.normal(0.3, 1, size=(4, 5))})
    for how in ({"seeds": "nested", "tasks": "fixed"}, {"seeds": "crossed"}):
        found = verdict(tables, Compare(methods=["t"]), **how)
        assert found.methods[0].p == pytest.approx(found.p)


@pytest.mark.parametrize(("name", "rows", "message"), [
    ("t", rollouts({"A": A, "B": B}), "needs pairs"),
    ("wilcoxon", rollouts({"A": A, "B": B}), "needs pairs"),
    ("mcnemar", paired(A, B), "outcomes of 0 and 1"),
    ("mcnemar", rollouts({"A": [0, 1, 1], "B": [1, 1, 1]}), "fisher compares unpaired"),
    ("cluster", paired(A, B), "needs several tasks"),
])  # fmt: skip
def test_a_method_that_does_not_fit_the_design_says_why(name: str, rows: list[Row], message: str) -> None:
    found = line(name, rows)
    assert found.p is None and found.interval is None and message in found.note


def test_an_unknown_method_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"methods\.0: Input should be 't', 'welch'"):
        Compare.ask(methods=["anova"])


def test_the_command_line_knows_every_method_and_every_summary() -> None:
    choices = {option.name: option.type.choices for option in command.params if hasattr(option.type, "choices")}
    assert set(choices["methods"]) == set(METHODS)
    assert set(choices["summary"]) == set(get_args(Summary.model_fields["type"].annotation))


def test_no_method_votes() -> None:
    rows = paired(A, B)
    plain = verdict(rows)
    asked = verdict(
        rows, Compare(methods=[n for n in METHODS if n not in ("mcnemar", "fisher", "tost", "cluster", "hierarchical")])
    )
    assert (plain.verdict, plain.p, plain.interval) == (asked.verdict, asked.p, asked.interval)


def test_methods_are_told_in_the_metrics_own_direction() -> None:
    found = verdict(paired(A, B + 2), Compare(methods=["t"]), direction="minimize")
    assert found.verdict == "worse"
    assert found.methods[0].interval is not None and found.methods[0].interval.low > 0


def test_a_covariate_takes_out_what_it_explains_and_costs_a_degree_of_freedom() -> None:
    x = RNG.normal(size=14)
    a = RNG.normal(size=14)
    b = a + 0.5 + 2.0 * x + RNG.normal(0, 0.2, 14)
    explains = observations(paired(x, x), "difficulty")
    found = verdict(paired(a, b), covariate=explains)
    (line,) = found.methods
    fit = sm.OLS(b - a, sm.add_constant(x - x.mean())).fit()
    assert line.name == "cuped"
    assert line.p == pytest.approx(fit.pvalues[0], rel=1e-9)
    assert found.p is not None and line.p is not None and line.p < found.p
