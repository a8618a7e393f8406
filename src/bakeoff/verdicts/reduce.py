"""A run's series becomes one number, as the experiment file's `analysis.summary` says."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Summary
from bakeoff.stats.curves import Reduced, Window, exponential_average, reduce_series, restricted_times, series
from bakeoff.stats.curves import Summary as Reduction

Key = TypeVar("Key", bound=Hashable)
Curve = tuple[npt.ArrayLike, npt.ArrayLike]


def reduce_all(curves: Mapping[Key, Curve], summary: Summary, *, larger_is_better: bool) -> dict[Key, float]:
    """One number for each series (steps, values); NaN where the series itself has none.

    Runs that never reach a threshold count with the common horizon; unequal horizons are an error.
    """
    how = reduction(summary, larger_is_better=larger_is_better)
    reduced: dict[Key, Reduced] = {}
    horizons: dict[Key, float] = {}
    numbers: dict[Key, float] = {}
    for key, (steps, values) in curves.items():
        if not np.isfinite(np.asarray(values, dtype=float)).all():
            numbers[key] = float("nan")
            continue
        try:
            reduced[key] = _reduced(steps, values, summary, how)
        except ValueError as error:
            raise UsageError(f"run {key}: {error}; change analysis.summary or its window") from error
        numbers[key] = reduced[key].value
        horizons[key] = float(np.max(np.asarray(steps)))
    if summary.type == "time_to_threshold" and reduced:
        keys = list(reduced)
        try:
            times = restricted_times(
                [reduced[key].value for key in keys],
                [not reduced[key].censored for key in keys],
                [horizons[key] for key in keys],
            )
        except ValueError as error:
            raise UsageError(f"time_to_threshold: {error}") from error
        numbers |= dict(zip(keys, map(float, times), strict=True))
    return numbers


def _reduced(steps: npt.ArrayLike, values: npt.ArrayLike, summary: Summary, how: Reduction) -> Reduced:
    if summary.smoothing:
        ordered, smooth = series(steps, values)
        return reduce_series(ordered, exponential_average(smooth, summary.smoothing), how)
    return reduce_series(steps, values, how)


def reduction(summary: Summary, *, larger_is_better: bool) -> Reduction:
    """The file's words as the numerics take them."""
    if summary.type == "time_to_threshold" and summary.threshold is None:
        raise UsageError("summary time_to_threshold needs a threshold: set analysis.summary.threshold")
    return Reduction(
        kind=summary.type,
        window=window(summary.window),
        n=summary.last or 5,
        q=summary.percentile if summary.percentile is not None else 50.0,
        threshold=summary.threshold,
        larger_is_better=larger_is_better,
    )


def window(text: str | None) -> Window:
    """`first 20%`, `last 50%`, or steps such as `100..500` (either end may be left out)."""
    if text is None:
        return Window()
    if share := re.fullmatch(r"\s*(first|last)\s+(\d+(?:\.\d+)?)\s*%\s*", text):
        part = float(share[2]) / 100
        if not 0 < part <= 1:
            raise UsageError(f"window {text!r}: a share lies above 0 and at most at 100%")
        return Window(first=part) if share[1] == "first" else Window(last=part)
    if steps := re.fullmatch(r"\s*(\d+(?:\.\d+)?)?\s*\.\.\s*(\d+(?:\.\d+)?)?\s*", text):
        ends = [float(end) if end is not None else None for end in steps.groups()]
        try:
            return Window(start=ends[0], end=ends[1])
        except ValueError as error:
            raise UsageError(f"window {text!r}: {error}") from error
    raise UsageError(f"window {text!r}: write 'first 20%', 'last 50%' or steps such as '100..500'")
