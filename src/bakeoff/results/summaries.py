"""A series becomes one number, as `[analysis.summary]` of an experiment says."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Series
from bakeoff.spec.experiment import Summary
from bakeoff.stats.curves import (
    Reduced,
    Reduction,
    Window,
    exponential_average,
    reduce_series,
    restricted_times,
    series,
)


def reduce_all(
    curves: Mapping[int, Series], summary: Summary, larger_is_better: bool, names: Mapping[int, str]
) -> dict[int, float]:
    """One number for each series (steps, values), by its key; NaN where the series has values that are not finite.

    Runs that never reach a threshold count with the common horizon, and unequal horizons are an error. `names` says what
    errors call a run. Raises UsageError.
    """
    how = reduction(summary, larger_is_better=larger_is_better)
    numbers: dict[int, float] = {}
    reduced: dict[int, Reduced] = {}
    for key, (steps, values) in curves.items():
        if not np.isfinite(values).all():
            numbers[key] = math.nan
            continue
        try:
            if summary.smoothing:
                steps, values = series(steps, values)
                values = exponential_average(values, summary.smoothing)
            reduced[key] = reduce_series(steps, values, how)
        except ValueError as error:
            raise UsageError(f"{names[key]}: {error}; change analysis.summary or its window") from error
        numbers[key] = reduced[key].value
    if summary.type == "time_to_threshold" and reduced:
        keys = list(reduced)
        try:
            times = restricted_times(
                [reduced[key].value for key in keys],
                [not reduced[key].censored for key in keys],
                [float(np.max(curves[key][0])) for key in keys],
            )
        except ValueError as error:
            raise UsageError(f"time_to_threshold: {error}") from error
        numbers |= dict(zip(keys, map(float, times), strict=True))
    return numbers


def reduction(summary: Summary, *, larger_is_better: bool) -> Reduction:
    """The experiment file's summary as `stats.curves` takes it."""
    if summary.type == "time_to_threshold" and summary.threshold is None:
        raise UsageError("summary time_to_threshold needs a threshold: set analysis.summary.threshold")
    return Reduction(
        kind=summary.type,
        window=parse_window(summary.window),
        n=summary.last,
        q=summary.percentile if summary.percentile is not None else 50.0,
        threshold=summary.threshold,
        larger_is_better=larger_is_better,
    )


def parse_window(text: str | None) -> Window:
    """`first 20%`, `last 50%`, or steps such as `100..500` (either end may be left out). Raises UsageError."""
    if text is None:
        return Window()
    if share := re.fullmatch(r"\s*(first|last)\s+(\d+(?:\.\d+)?)\s*%\s*", text):
        part = float(share[2]) / 100
        if not 0 < part <= 1:
            raise UsageError(f"window {text!r}: the share must be above 0 and at most 100%")
        return Window(first=part) if share[1] == "first" else Window(last=part)
    if steps := re.fullmatch(r"\s*(\d+(?:\.\d+)?)?\s*\.\.\s*(\d+(?:\.\d+)?)?\s*", text):
        ends = [float(end) if end is not None else None for end in steps.groups()]
        try:
            return Window(start=ends[0], end=ends[1])
        except ValueError as error:
            raise UsageError(f"window {text!r}: {error}") from error
    raise UsageError(f"window {text!r}: write 'first 20%', 'last 50%' or steps such as '100..500'")
