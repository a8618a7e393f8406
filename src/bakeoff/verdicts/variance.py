"""How precise is the mean at N runs, and how many runs would make it precise enough.

Two questions with two answers. The relative standard error asks how well one arm's mean is known; the smallest
detectable difference (MDE) asks what N runs an arm can tell apart, and needs far more runs. Both shrink with the root
of N. The spread itself does not, which is why a rule about the spread says nothing about N.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bakeoff.stats.evidence import Interval
from bakeoff.stats.numerics import chi2_quantile, is_constant, mean, sd
from bakeoff.stats.power import minimum_detectable_effect, relative_error, units_for_relative_error, units_needed
from bakeoff.stats.ttests import one_sample_t
from bakeoff.verdicts.sample import Sample
from bakeoff.verdicts.units import Array

BANDS = "chi-square limits of the spread, the mean as observed; assumes roughly normal runs"
MOST_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity against the number of units, with its band. Shares of |mean|; arrays of one length."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class Needed:
    """Smallest number of units for a threshold, and the same with the spread at its upper limit. None: undefined."""

    units: int | None
    at_most: int | None


@dataclass(frozen=True, slots=True)
class Precision:
    """One statistic of one arm. `relative_error` and `mde` are None where the mean may be 0: shares are undefined."""

    statistic: str
    sample: Sample
    threshold: float
    level: float
    alpha: float
    power: float
    mean: float
    sd: float
    sd_interval: Interval
    mean_interval: Interval
    n: Array
    """Units: 2, 3, ... up to those at hand, and beyond (projected)."""
    relative_error: Curve | None
    mde: Curve | None
    """Smallest difference to another arm with this spread, unpaired, n units an arm; as a share of |mean|."""
    mde_at_hand: float
    """The same at the units at hand, in the metric's unit."""
    runs_for_error: Needed
    runs_for_mde: Needed

    @property
    def undefined(self) -> bool:
        return self.relative_error is None

    @property
    def at_hand(self) -> int:
        return int(self.sample.values.size)


def precision(
    sample: Sample,
    statistic: str = "value",
    *,
    threshold: float = 0.05,
    alpha: float = 0.05,
    power: float = 0.8,
    level: float = 0.95,
) -> Precision:
    """What N units say about the mean of `statistic`. Needs at least 2 values (ValueError otherwise)."""
    x = sample.values
    if x.size < 2:
        raise ValueError(f"one value has no spread: {statistic} needs at least 2 {sample.unit}s, got {x.size}")
    centre, spread = mean(x), (0.0 if is_constant(x) else sd(x))
    around = spread_interval(spread, x.size, level)
    defined = relative_error(x, level=level) is not None
    error = _needed_for_error(x, spread, around, threshold, level) if defined else Needed(None, None)
    goal = threshold * abs(centre)
    difference = _needed_for_mde(goal, spread, around, alpha, power) if defined else Needed(None, None)
    n = _grid(x.size, [error.units, error.at_most, difference.units])
    return Precision(
        statistic=statistic,
        sample=sample,
        threshold=threshold,
        level=level,
        alpha=alpha,
        power=power,
        mean=centre,
        sd=spread,
        sd_interval=around,
        mean_interval=one_sample_t(x).interval(level) if spread > 0 else Interval(centre, centre, level),
        n=n,
        relative_error=_curve(1.0 / np.sqrt(n), spread, around, centre) if defined else None,
        mde=_curve(_detectable(n, alpha, power), spread, around, centre) if defined else None,
        mde_at_hand=minimum_detectable_effect(spread, x.size, alpha, power, "unpaired"),
        runs_for_error=error,
        runs_for_mde=difference,
    )


def spread_interval(spread: float, n: int, level: float = 0.95) -> Interval:
    """Chi-square interval of a standard deviation from n normal values."""
    tail = (1.0 - level) / 2.0
    ends = [spread * math.sqrt((n - 1) / chi2_quantile(n - 1, p)) for p in (1.0 - tail, tail)]
    return Interval(ends[0], ends[1], level)


def _needed_for_error(x: Array, spread: float, around: Interval, threshold: float, level: float) -> Needed:
    least = units_for_relative_error(x, threshold, level)
    if least is None or spread == 0.0:
        return Needed(least, least)
    return Needed(least, max(2, math.ceil((around.high / abs(mean(x)) / threshold) ** 2 - 1e-9)))


def _needed_for_mde(goal: float, spread: float, around: Interval, alpha: float, power: float) -> Needed:
    if spread == 0.0:
        return Needed(2, 2)
    found = [_units(goal, s, alpha, power) for s in (spread, around.high)]
    return Needed(found[0], found[1])


def _units(goal: float, spread: float, alpha: float, power: float) -> int | None:
    try:
        return units_needed(goal, spread, alpha, power, "unpaired")
    except ValueError:  # more than anyone can run
        return None


def _grid(at_hand: int, wanted: Iterable[int | None]) -> Array:
    """Every number up to twice those at hand, then wider steps up to what is needed."""
    last = min(MOST_SHOWN, max(20, 2 * at_hand, *(math.ceil(1.2 * w) for w in wanted if w is not None)))
    dense = np.arange(2, min(last, max(20, 2 * at_hand), 60) + 1)
    sparse = np.unique(np.geomspace(dense[-1], last, 24).round()) if last > dense[-1] else dense[-1:]
    exact = [w for w in (at_hand, *wanted) if w is not None and w <= last]
    return np.unique(np.concatenate((dense, sparse, exact))).astype(np.float64)


def _detectable(n: Array, alpha: float, power: float) -> Array:
    return np.array([minimum_detectable_effect(1.0, float(units), alpha, power, "unpaired") for units in n])


def _curve(unit: Array, spread: float, around: Interval, centre: float) -> Curve:
    value, low, high = (unit * s / abs(centre) for s in (spread, around.low, around.high))
    return Curve(value, low, high)


def sentences(found: Precision) -> list[str]:
    """Both answers, in words."""
    share = f"{100 * found.threshold:.4g} %"
    units = f"{found.sample.unit}s"
    if found.undefined:
        inside = f"[{found.mean_interval.low:.4g}, {found.mean_interval.high:.4g}]"
        return [
            f"{found.statistic}: undefined. The mean, {found.mean:.4g}, may be 0 ({found.level:.0%} interval {inside}), "
            f"and a share of something that may be 0 says nothing. {found.at_hand} {units} an arm find differences "
            f"from {found.mde_at_hand:.4g} on."
        ]
    error = _phrase(found.runs_for_error, units)
    difference = _phrase(found.runs_for_mde, f"{units} an arm")
    return [
        f"{found.statistic}: relative standard error of the mean at most {share}: {error}.",
        f"{found.statistic}: differences from {share} of the mean on are found ({found.power:.0%} power, "
        f"unpaired): {difference}.",
    ]


def _phrase(needed: Needed, units: str) -> str:
    if needed.units is None:
        return f"more {units} than anyone can run"
    upper = f" (up to {needed.at_most} if the spread is at its upper limit)" if needed.at_most != needed.units else ""
    return f"N = {needed.units} {units}{upper}"
