"""Tables of tasks x seeds with absent cells: a complete table is the special case that was there before."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.stats.incomplete import additive_fit, connected_blocks, effective_seeds, seed_values
from bakeoff.stats.ttests import crossed_variance, one_sample_t, seeds_over_tasks_t

X = np.random.default_rng(0).normal(size=(12, 7))


def test_a_complete_table_has_the_variances_of_its_margins() -> None:
    v = crossed_variance(X)
    rest = X - X.mean(axis=1)[:, None] - X.mean(axis=0) + X.mean()
    assert v.task == pytest.approx(X.mean(axis=1).var(ddof=1) / 12)
    assert v.seed == pytest.approx(X.mean(axis=0).var(ddof=1) / 7)
    assert v.cell == pytest.approx((rest**2).sum() / (11 * 6) / X.size)
    assert effective_seeds(X) == pytest.approx(7.0)
    assert seed_values(X) == pytest.approx(X.mean(axis=0))


def test_fixed_tasks_with_a_complete_table_have_the_t_of_seed_means() -> None:
    table, means = seeds_over_tasks_t(X), one_sample_t(X.mean(axis=0))
    assert (table.effect, table.se, table.df) == pytest.approx((means.effect, means.se, means.df))


def test_the_additive_fit_of_absent_cells_is_least_squares() -> None:
    x = X.copy()
    x[[0, 3, 5], [1, 1, 6]] = np.nan
    task, seed = np.nonzero(~np.isnan(x))
    design = np.concatenate((np.eye(12)[task], np.eye(7)[seed]), axis=1)
    y = x[task, seed]
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    fit = additive_fit(x)
    assert (fit.rest, fit.rest_df) == (pytest.approx(float(rest @ rest)), y.size - 18)


def test_tasks_that_share_no_seed_are_in_other_blocks() -> None:
    x = np.full((4, 4), np.nan)
    x[0, :2], x[1, 1:3], x[2:, 3] = 1.0, 1.0, 1.0
    assert connected_blocks(x).tolist() == [0, 0, 1, 1]
