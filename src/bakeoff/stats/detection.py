"""What the deciding tests detect on normal data: by simulation where the noncentral t is not their power.

In a simulated experiment without an effect, the critical effect is the smallest one that, added to every unit, makes
the test reject. The power at an effect is the share of experiments whose critical effect is at most that. `as_tested`
holds quantiles of critical effects twice, of the t test and of the test that decides, from the same experiments: a
point of one is read as a point of the other, and the exact power of the t test does the rest. Little of the
simulation's own noise is left that way.

`family_as_tested` does the same for the chance to detect any, or all, of several comparisons with one control.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
import scipy.special as sp

from bakeoff.stats.decision import flips_suffice
from bakeoff.stats.numerics import Array
from bakeoff.stats.permutation import permutation_is_useful

FLIPPED_UNITS = 14
"""Paired units up to which sign flips are simulated."""
SPLIT_UNITS = 7
"""Units an arm up to which permutations are simulated."""
EXPERIMENTS = 4_000
FAMILIES = 8_000
MOST_TOGETHER = 100
"""Comparisons up to which the chance to detect any or all of them is simulated."""
SHARED_CONTROL = 0.5
"""Correlation of two differences that share the control and nothing else."""
Design = Literal["paired", "unpaired"]
"""paired: n units, sd of their differences. unpaired: n units in each arm, sd inside an arm."""
_BLOCK = 2**22
"""Numbers held at once."""
_POINTS = np.linspace(0.0, 1.0, 801)


class Quantiles:
    """Critical effects in units of the spread: those of the t test, and those of what decides, in the same order."""

    def __init__(self, of_t: Array, of_test: Array) -> None:
        self._t, self._test = (np.quantile(each, _POINTS) for each in (of_t, of_test))

    def as_tested(self, effect: Array | float) -> Array:
        """The effect that what decides detects as often as the t test detects `effect`."""
        return _mapped(effect, self._t, self._test)

    def as_t(self, effect: Array | float) -> Array:
        """The effect that the t test detects as often as what decides detects `effect`."""
        return _mapped(effect, self._test, self._t)


def _mapped(effect: Array | float, source: Array, target: Array) -> Array:
    """Quantile to quantile; beyond the last one by the proportion that holds there."""
    x = np.asarray(effect, dtype=np.float64)
    inside = np.interp(x, source, target)
    return np.where(x > source[-1], x * (target[-1] / source[-1]), inside)


def as_tested(design: Design, sizes: tuple[int, int], alpha: float, comparisons: int) -> Quantiles | None:
    """The quantiles of one comparison at alpha / comparisons; None where the test is a t test, or as good as one.

    `sizes` are those of the two arms, equal when paired.
    """
    steps = _at_levels(design, sizes, alpha, comparisons, (alpha / comparisons,))
    return None if steps is None else steps[0]


def _at_levels(
    design: Design, sizes: tuple[int, int], alpha: float, comparisons: int, levels: tuple[float, ...]
) -> tuple[Quantiles, ...] | None:
    """One for each level. Which test it is depends on alpha / comparisons alone, as in `decision`."""
    smaller = min(sizes)
    if design == "paired":
        flips = smaller <= FLIPPED_UNITS and flips_suffice(smaller, alpha, comparisons)
        return _flipped(smaller, levels) if flips else None
    if smaller > SPLIT_UNITS:
        return None
    # Unequal arms permute Welch's t, whose power is that of Welch's own test.
    permuted = sizes[0] == sizes[1] and permutation_is_useful(*sizes, alpha, comparisons)
    return _unpaired(*sizes, levels, permuted)


@lru_cache(maxsize=256)
def _flipped(n: int, levels: tuple[float, ...]) -> tuple[Quantiles, ...]:
    """Sign flips reject an effect exactly when it exceeds minus the lower end of their interval (see `SignFlip`)."""
    subsets = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
    means = (subsets / subsets.sum(axis=1, keepdims=True)).T
    places = [math.floor(level * 2.0**n / 2.0 * (1.0 + 1e-12)) - 1 for level in levels]
    z = np.random.default_rng(0).standard_normal((min(EXPERIMENTS, 2 * _BLOCK >> n), n))
    errors = z.std(axis=1, ddof=1) / math.sqrt(n)
    of_flips = np.empty((len(levels), z.shape[0]))
    rows = max(1, _BLOCK >> n)
    for start in range(0, z.shape[0], rows):
        part = slice(start, start + rows)
        of_flips[:, part] = -np.partition(z[part] @ means, places, axis=1)[:, places].T
    return tuple(
        Quantiles(_critical(z.mean(axis=1), errors, n - 1.0, level), flips)
        for level, flips in zip(levels, of_flips, strict=True)
    )


@lru_cache(maxsize=256)
def _unpaired(n1: int, n2: int, levels: tuple[float, ...], permuted: bool) -> tuple[Quantiles, ...]:
    """Welch's t, and where `permuted` the permutation of n1 + n1 values too: the larger critical effect of both."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((EXPERIMENTS, n1)), rng.standard_normal((EXPERIMENTS, n2))
    effect = y.mean(axis=1) - x.mean(axis=1)
    vx, vy = x.var(axis=1, ddof=1), y.var(axis=1, ddof=1)
    pooled = np.sqrt((vx * (n1 - 1) + vy * (n2 - 1)) / (n1 + n2 - 2) * (1.0 / n1 + 1.0 / n2))
    error = np.sqrt(vx / n1 + vy / n2)
    df = error**4 / ((vx / n1) ** 2 / (n1 - 1) + (vy / n2) ** 2 / (n2 - 1))
    of_test = np.stack([_critical(effect, error, df, level) for level in levels])
    if permuted:
        # Added to B, an effect raises the observed difference by itself, and that of a split that keeps k of B's
        # values by (2k/n - 1) of itself: the split stays as extreme as the data up to the effect computed here.
        splits = np.array([[i in split for i in range(2 * n1)] for split in combinations(range(2 * n1), n1)])
        kept = splits[:, n1:].sum(axis=1)
        others = kept < n1
        signs = (2.0 * splits[others] - 1.0).T / n1
        lag = 2.0 - 2.0 * kept[others] / n1
        places = [lag.size - math.floor(level / 2.0 * splits.shape[0] * (1.0 + 1e-12)) for level in levels]
        values = np.concatenate((x, y), axis=1)
        rows = max(1, _BLOCK // splits.shape[0])
        for start in range(0, EXPERIMENTS, rows):
            part = slice(start, start + rows)
            until = (values[part] @ signs - effect[part, None]) / lag
            of_test[:, part] = np.maximum(of_test[:, part], np.partition(until, places, axis=1)[:, places].T)
    return tuple(
        Quantiles(_critical(effect, pooled, n1 + n2 - 2.0, level), critical)
        for level, critical in zip(levels, of_test, strict=True)
    )


def _critical(effect: Array, error: Array, df: Array | float, level: float) -> Array:
    """Smallest effect to be added before a two-sided t test at `level` rejects upwards."""
    return np.asarray(sp.stdtrit(df, 1.0 - level / 2.0) * error - effect, dtype=np.float64)


@lru_cache(maxsize=64)
def family_as_tested(
    design: Design, n: int, alpha: float, comparisons: int, wanted: Literal["any", "all"]
) -> Quantiles:
    """The quantiles for detecting any, or all, of several comparisons with one control by Holm, all with one effect.

    The t test beside it is the one of a single comparison at alpha / comparisons. Raises ValueError for more than 100
    comparisons.
    """
    m = comparisons
    if m > MOST_TOGETHER:
        raise ValueError(f"'{wanted}' is simulated for at most {MOST_TOGETHER} comparisons, got {m}")
    rng = np.random.default_rng(0)
    rows = max(1_000, min(FAMILIES, _BLOCK // m))
    g = rng.standard_normal((rows, m + 1))
    df = n - 1.0 if design == "paired" else 2.0 * n - 2.0
    if design == "paired":
        effects = (g[:, 1:] - g[:, :1]) * math.sqrt(SHARED_CONTROL / n)
        errors = np.sqrt(rng.chisquare(df, (rows, m)) / df / n)
    else:
        effects = (g[:, 1:] - g[:, :1]) / math.sqrt(n)
        variances = rng.chisquare(n - 1.0, (rows, m + 1)) / (n - 1.0)
        errors = np.sqrt((variances[:, 1:] + variances[:, :1]) / n)

    levels = tuple(alpha / (m - k) for k in range(m if wanted == "all" else 1))
    singles = _at_levels(design, (n, n), alpha, m, levels)
    together = np.full(rows, -np.inf)
    # Holm rejects all when, for each k, at least k + 1 comparisons pass at the level of step k; any, when one does at
    # the first.
    for k, level in enumerate(levels):
        criticals = _critical(effects, errors, df, level)
        if singles is not None:
            criticals = singles[k].as_tested(criticals)
        together = np.maximum(together, np.sort(criticals, axis=1)[:, k])
    return Quantiles(_critical(effects, errors, df, levels[0])[:, 0], together)
