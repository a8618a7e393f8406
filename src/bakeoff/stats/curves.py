"""A run's series as one number: area, last values, mean, best, slope, time to a threshold, percentile.

A series is a pair of vectors (steps, values). Windows are measured in steps, not in rows, so logging more
often does not move them. NaN is refused: a metric that became NaN is a failure of the run, not a gap in its
curve.

    reduce_series(steps, values, Summary("auc", Window(last=0.25))).value
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.numerics import Array, vector

Kind = Literal["auc", "final", "mean", "best", "slope", "time_to_threshold", "percentile"]


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a series: `first` or `last` share of its steps in (0, 1], or absolute steps [start, end], or everything.

    An absolute end beyond the series is an error unless at least `coverage` of the window was reached: a
    run that died early must not be averaged over the part it survived.
    """

    first: float | None = None
    last: float | None = None
    start: float | None = None
    end: float | None = None
    coverage: float = 0.9

    def __post_init__(self) -> None:
        absolute = self.start is not None or self.end is not None
        if (self.first is not None) + (self.last is not None) + absolute > 1:
            raise ValueError("a window is first, last or start/end: give one of them")
        for name in ("first", "last"):
            share = getattr(self, name)
            if share is not None and not 0.0 < share <= 1.0:
                raise ValueError(f"window.{name} must lie in (0, 1], got {share}")
        if self.start is not None and self.end is not None and not self.start < self.end:
            raise ValueError(f"window.start must be below window.end, got {self.start} and {self.end}")

    def edges(self, steps: Array) -> tuple[float, float]:
        """First and last step of the window for a series with these ascending steps, inside the series."""
        # Shares are of the distance between first and last step, not of the number of values.
        begin, finish = float(steps[0]), float(steps[-1])
        if self.first is not None:
            return begin, begin + self.first * (finish - begin)
        if self.last is not None:
            return finish - self.last * (finish - begin), finish
        low = begin if self.start is None else self.start
        high = finish if self.end is None else self.end
        inside_low, inside_high = max(low, begin), min(high, finish)
        if inside_high < inside_low or (inside_high - inside_low) < self.coverage * (high - low):
            raise ValueError(
                f"series covers steps {begin:g} to {finish:g}, too little of the window {low:g} to {high:g}"
            )
        return inside_low, inside_high


@dataclass(frozen=True, slots=True)
class Reduction:
    """How to reduce a series. Only the fields that `kind` names are read.

    final: mean of the last `n` values; None: of up to 5 that lie in the last fifth of the steps, so that sparse
    evaluations are not averaged with early ones. best: largest (smallest when `larger_is_better` is False).
    percentile: `q` in [0, 100]. time_to_threshold: first step at which `threshold` is reached. auc: area
    under the curve divided by the length of the window, which is a step-weighted mean in the metric's unit.
    """

    kind: Kind = "auc"
    window: Window = field(default_factory=Window)
    n: int | None = None
    q: float = 50.0
    threshold: float | None = None
    larger_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Reduced:
    """One run's number. `censored`: the threshold was never reached, and `value` is the last step."""

    value: float
    censored: bool = False


def series(steps: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    """Finite steps and values in ascending order of steps; of values logged twice at one step the later one stays."""
    s, v = vector(steps, "steps"), vector(values, "values")
    if s.size != v.size:
        raise ValueError(f"steps and values must have one length, got {s.size} and {v.size}")
    # A stable sort keeps the order of logging within a step.
    order = np.argsort(s, kind="stable")
    s, v = s[order], v[order]
    last = np.append(s[1:] != s[:-1], True)
    return s[last], v[last]


def reduce_series(steps: ArrayLike, values: ArrayLike, summary: Reduction) -> Reduced:
    """Reduce a series to the number that `summary` asks for.

    Raises ValueError when the window or a field does not fit.
    """
    s, v = series(steps, values)
    low, high = summary.window.edges(s)
    if summary.kind == "auc":
        return Reduced(area(s, v, low, high))
    keep = (s >= low) & (s <= high)
    if not keep.any():
        raise ValueError(f"no value was logged between steps {low:g} and {high:g}")
    s, v = s[keep], v[keep]
    match summary.kind:
        case "final":
            if summary.n is not None and summary.n < 1:
                raise ValueError(f"final needs n >= 1, got {summary.n}")
            late = int((s >= s[-1] - (s[-1] - s[0]) / 5.0).sum())
            return Reduced(float(v[-(summary.n or min(5, late)) :].mean()))
        case "mean":
            return Reduced(float(v.mean()))
        case "best":
            return Reduced(float(v.max() if summary.larger_is_better else v.min()))
        case "slope":
            return Reduced(slope(s, v))
        case "percentile":
            return Reduced(float(np.percentile(v, summary.q)))
        case "time_to_threshold":
            if summary.threshold is None:
                raise ValueError("time_to_threshold needs a threshold")
            return time_to_threshold(s, v, summary.threshold, summary.larger_is_better)
        case _:
            raise ValueError(f"unknown summary {summary.kind!r}")


def area(steps: Array, values: Array, low: float, high: float) -> float:
    """Area under the curve between two steps divided by their distance: the step-weighted mean.

    Trapezoid rule, with interpolated values at both edges. A window of length 0 has the value at that step.
    """
    if high <= low:
        return float(np.interp(low, steps, values))
    between = (steps > low) & (steps < high)
    x = np.concatenate(([low], steps[between], [high]))
    y = np.concatenate(([np.interp(low, steps, values)], values[between], [np.interp(high, steps, values)]))
    return float(((y[1:] + y[:-1]) * np.diff(x)).sum()) / 2.0 / (high - low)


def slope(steps: Array, values: Array) -> float:
    """Least-squares slope, metric unit per step; needs two different steps."""
    if steps.size < 2 or steps[0] == steps[-1]:
        raise ValueError("a slope needs values at two different steps or more")
    span = steps[-1] - steps[0]
    x = (steps - steps.mean()) / span  # squares of large step numbers would lose digits
    return float(x @ (values - values.mean()) / (x @ x) / span)


def time_to_threshold(steps: Array, values: Array, threshold: float, larger_is_better: bool = True) -> Reduced:
    """First step at which the curve, interpolated between values, reaches the threshold; the last step if never."""
    gain = values - threshold if larger_is_better else threshold - values
    hits = np.flatnonzero(gain >= 0.0)
    if not hits.size:
        return Reduced(float(steps[-1]), censored=True)
    i = int(hits[0])
    if i == 0:
        return Reduced(float(steps[0]))
    # Linear between the last value before the threshold and the first one past it.
    share = -gain[i - 1] / (gain[i] - gain[i - 1])
    return Reduced(float(steps[i - 1] + share * (steps[i] - steps[i - 1])))


def restricted_times(times: ArrayLike, reached: ArrayLike, horizons: ArrayLike) -> Array:
    """Times to a threshold, with the common horizon for runs that never reached it. Shapes (runs,).

    Their mean is the restricted mean time (Royston and Parmar, BMC Med. Res. Methodol. 2013). Unequal
    horizons are a ValueError: a run that was watched for longer had more time to succeed.
    """
    t, ends = vector(times, "times"), vector(horizons, "horizons")
    done = np.asarray(reached, dtype=bool)
    if not (t.shape == ends.shape == done.shape):
        raise ValueError("times, reached and horizons must have one length")
    horizon = float(ends[0])
    if not np.allclose(ends, horizon, rtol=1e-9, atol=0.0):
        raise ValueError(f"runs were watched for unequal horizons ({ends.min():g} to {ends.max():g} steps)")
    if (t[done] > horizon).any():
        raise ValueError("a threshold was reached after the horizon")
    return np.where(done, t, horizon)


def exponential_average(values: Array, weight: float) -> Array:
    """Exponential moving average, shape (n,); `weight` in [0, 1) is the share that the past keeps.

    Bias-corrected at the start, as in Adam (Kingma and Ba 2015, section 3).
    """
    if not 0.0 <= weight < 1.0:
        raise ValueError(f"weight must lie in [0, 1), got {weight}")
    out, state, mass = np.empty(values.size), 0.0, 0.0
    for i, value in enumerate(values):
        # mass = 1 - weight^i is the sum of the weights so far.
        state, mass = weight * state + (1.0 - weight) * float(value), weight * mass + (1.0 - weight)
        out[i] = state / mass
    return out


def common_grid(runs: list[tuple[Array, Array]], points: int = 200) -> tuple[Array, Array]:
    """Runs, each (steps, values), interpolated onto one grid over the steps they share.

    For bands around mean curves. Returns the grid, shape (points,), and the values, shape (runs, points).
    """
    # Only steps that every run has: extrapolating a short run would bend the band.
    low = max(float(s[0]) for s, _ in runs)
    high = min(float(s[-1]) for s, _ in runs)
    if not low <= high or math.isinf(low):
        raise ValueError("the runs share no steps")
    grid = np.linspace(low, high, points)
    return grid, np.stack([np.interp(grid, s, v) for s, v in runs])
