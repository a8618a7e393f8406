"""Other analyses of the same numbers, all replicates at once. Each returns 1 if it rejects (or covers), else 0."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

from bakeoff.stats.bootstrap import bootstrap
from bakeoff.stats.many import ManyPairs
from bakeoff.stats.ranks import wilcoxon
from calibrate.laws import Array
from calibrate.table import ALPHA, Batch

Z = float(special.ndtri(1.0 - ALPHA / 2.0))


def quantile_t(df: float | Array) -> Array:
    return np.asarray(special.stdtrit(df, 1.0 - ALPHA / 2.0))


def one_sided_t(df: float, level: float) -> float:
    return float(special.stdtrit(df, level))


def _as_numbers(rejected: npt.NDArray[np.bool_]) -> Array:
    return np.asarray(rejected, dtype=np.float64)


def differences(batch: Batch) -> Array:
    """B - A of each seed if there is one task, else of each task: (replicates, units)."""
    d = batch.arm("B").mean(axis=3) - batch.arm("A").mean(axis=3)
    return np.asarray(d[:, 0, :] if d.shape[1] == 1 else d.mean(axis=2))


def t_test(batch: Batch) -> Array:
    d = differences(batch)
    return _as_numbers(np.abs(_t(d)) >= quantile_t(d.shape[1] - 1.0))


def _t(d: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(d.mean(axis=-1) / (d.std(axis=-1, ddof=1) / np.sqrt(d.shape[-1])))


def welch_test(batch: Batch) -> Array:
    a, b = (batch.arm(name)[:, 0, 0, :] for name in "AB")
    va, vb = (x.var(axis=1, ddof=1) / x.shape[1] for x in (a, b))
    df = (va + vb) ** 2 / (va**2 / (a.shape[1] - 1) + vb**2 / (b.shape[1] - 1))
    return _as_numbers(np.abs(b.mean(axis=1) - a.mean(axis=1)) >= quantile_t(df) * np.sqrt(va + vb))


def z_over_tasks(batch: Batch) -> Array:
    """A cluster-robust interval with 1.96, its variance with the usual factor T / (T - 1)."""
    return _as_numbers(np.abs(_t(differences(batch))) >= Z)


def z_over_tasks_plain(batch: Batch) -> Array:
    """The same without that factor."""
    d = differences(batch)
    return _as_numbers(np.abs(_t(d)) >= Z * np.sqrt(1.0 - 1.0 / d.shape[1]))


def equivalent_by_flips(batch: Batch, margin: float) -> Array:
    """Two one-sided sign-flip tests against the margin, with nothing against skew."""
    many = ManyPairs(differences(batch))
    return _as_numbers(many.rejects(-margin, ALPHA)[0] & many.rejects(margin, ALPHA)[1])


def wilcoxon_test(batch: Batch) -> Array:
    return _as_numbers(np.array([wilcoxon(d).p <= ALPHA for d in differences(batch)]))


def percentile_covers(batch: Batch) -> Array:
    """Percentile bootstrap of the mean difference, 2,000 resamples."""
    found = [bootstrap(d, method="percentile", resamples=2_000, seed=i) for i, d in enumerate(differences(batch))]
    return _as_numbers(np.array([one.low <= batch.effect <= one.high for one in found]))


def boschloo_test(batch: Batch) -> Array:
    a, b = (batch.arm(name)[:, 0, 0, :] for name in "AB")
    wins = zip(a.sum(axis=1).astype(int), b.sum(axis=1).astype(int), strict=True)
    return _as_numbers(np.array([_boschloo(int(x), int(y), a.shape[1], b.shape[1]) <= ALPHA for x, y in wins]))


@cache
def _boschloo(wins_a: int, wins_b: int, n_a: int, n_b: int) -> float:
    from scipy.stats import boschloo_exact

    if wins_a + wins_b in (0, n_a + n_b):
        return 1.0
    return float(boschloo_exact([[wins_a, wins_b], [n_a - wins_a, n_b - wins_b]]).pvalue)
