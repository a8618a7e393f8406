"""How precise is a mean at N runs: one arm's values, both answers, and when there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.power import TTestIndPower

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.questions.variance import Sample, draw_sample, precision, spread_interval


def runs(values: list[float], **changes: object) -> Observations:
    rows = [Observation("a", "default", seed, 0, "scored", value) for seed, value in enumerate(values)]
    return replace(Observations("reward", rows, Analysis()), **changes)


def sample(values: list[float]) -> Sample:
    return draw_sample(runs(values), "a")


VALUES = np.random.default_rng(0).normal(10, 1, 15).tolist()


def test_both_numbers_are_the_smallest_that_do() -> None:
    found = precision(sample(VALUES), threshold=0.05)
    sd, mean = np.std(VALUES, ddof=1), np.mean(VALUES)
    assert found.runs_for_error.seen == max(2, math.ceil((sd / mean / 0.05) ** 2))
    n = found.runs_for_mde.seen
    assert n is not None
    power = TTestIndPower().power
    assert power(0.05 * mean / sd, n, 0.05) >= 0.8 > power(0.05 * mean / sd, n - 1, 0.05)


def test_the_curves_at_the_runs_at_hand_are_what_was_measured() -> None:
    found = precision(sample(VALUES))
    assert found.relative_error is not None and found.mde is not None
    here = int(np.flatnonzero(found.n == 15)[0])
    sd, mean = np.std(VALUES, ddof=1), np.mean(VALUES)
    assert found.relative_error.value[here] == pytest.approx(sd / math.sqrt(15) / mean, rel=1e-12)
    solved = TTestIndPower().solve_power(nobs1=15, alpha=0.05, power=0.8)
    assert found.mde.value[here] * mean == pytest.approx(solved * sd, rel=1e-6)
    assert found.mde_at_hand == pytest.approx(found.mde.value[here] * mean, rel=1e-9)
    assert (found.relative_error.low < found.relative_error.value).all()
    assert (found.relative_error.value < found.relative_error.high).all()


def test_the_band_of_the_spread_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2_000):
        interval = spread_interval(float(rng.normal(0, 2, 6).std(ddof=1)), 6)
        inside += interval.contains(2.0)
    assert 0.935 <= inside / 2_000 <= 0.965


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(order=st.permutations(list(range(8))), scale=st.sampled_from([1e-6, 1.0, 1e9]))
def test_the_order_of_runs_changes_nothing_at_all(order: list[int], scale: float) -> None:
    values = [scale * value for value in VALUES[:8]]
    first, second = precision(sample(values)), precision(sample([values[i] for i in order]))
    assert first.sd == second.sd and first.mean == second.mean
    assert (first.runs_for_error, first.runs_for_mde) == (second.runs_for_error, second.runs_for_mde)


def test_a_mean_that_may_be_zero_has_no_relative_error() -> None:
    found = precision(sample([-1.0, 1.2, 0.3, -0.4, 0.2]), "Derivative")
    assert found.undefined and found.mde is None
    assert found.runs_for_error.seen is None and found.runs_for_mde.seen is None
    (told,) = found.sentences()
    assert "undefined" in told and "may be 0" in told and math.isfinite(found.mde_at_hand)


def test_the_answer_grows_with_the_noise_instead_of_staying_at_two() -> None:
    unit = (np.array(VALUES) - np.mean(VALUES)) / np.std(VALUES, ddof=1)
    needed = [precision(sample((1 + cv * unit).tolist())).runs_for_error.seen for cv in (0.02, 0.1, 0.2, 0.4)]
    assert needed == [2, 4, 16, 64]


def test_runs_without_any_spread_need_the_fewest_runs_there_are() -> None:
    found = precision(sample([3.0, 3.0, 3.0]))
    assert (found.runs_for_error.seen, found.runs_for_mde.seen, found.mde_at_hand) == (2, 3, 0.0)


def test_one_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        precision(sample([1.0]))


def rows(table: dict[tuple[str, int], list[float]]) -> list[Observation]:
    return [
        Observation("a", task, seed, rollout, "scored", value)
        for (task, seed), values in table.items()
        for rollout, value in enumerate(values)
    ]


TABLE = {("t1", 0): [1.0, 3.0], ("t1", 1): [2.0, 2.0], ("t2", 0): [6.0, 6.0], ("t2", 1): [8.0, 8.0]}


def test_tasks_that_are_a_sample_are_the_units() -> None:
    found = draw_sample(Observations("m", rows(TABLE), Analysis()), "a")
    assert (found.unit, found.values.tolist()) == ("task", [2.0, 7.0])


@pytest.mark.parametrize("seeds", ["nested", "crossed"])
def test_fixed_tasks_are_averaged_seed_by_seed(seeds: str) -> None:
    found = draw_sample(Observations("m", rows(TABLE), Analysis(tasks="fixed", seeds=seeds)), "a")
    assert (found.unit, found.values.tolist()) == ("seed", [4.0, 5.0])


def test_missing_runs_are_named_and_failed_ones_are_scored() -> None:
    seen = runs([1.0, 2.0, 3.0])
    extra = [
        Observation("a", "default", 3, 0, "missing", math.nan, "lost-run"),
        Observation("a", "default", 4, 0, "failed", math.nan, "broken-run"),
    ]
    seen = replace(seen, rows=[*seen.rows, *extra], analysis=Analysis(failure_score=-1.0))
    found = draw_sample(seen, "a")
    assert (found.missing, found.failed, found.values.tolist()) == (("lost-run",), 1, [-1.0, 1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="broken-run"):
        draw_sample(replace(seen, analysis=Analysis()), "a")
    with pytest.raises(UsageError, match="no arm called 'b'"):
        draw_sample(seen, "b")


def test_values_keep_the_direction_of_a_metric_that_is_minimised() -> None:
    assert draw_sample(runs([3.0, 1.0], analysis=Analysis(direction="minimize")), "a").values.tolist() == [1.0, 3.0]
