"""Runs that were lost: what they could have been, and what the comparison says in every such case.

A missing value is NaN here. It is never dropped and never zero: B's lost runs are put at the bad end and A's at the
good end of what the metric can be, then the other way round. t and Welch are not monotone in a single value, so for
them the two mixed corners (both bad, both good) are looked at as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.choose import worst_case
from bakeoff.stats.evidence import Test
from bakeoff.stats.vectors import Array

Ends = tuple[float, float] | tuple[Array, Array]
"""(bad end, good end) of the metric, larger being better: two numbers, or two arrays shaped like the values."""

ADVERSE, FAVOURABLE, BOTH_BAD, BOTH_GOOD = (0, 1), (1, 0), (0, 0), (1, 1)
"""Corners as (end for B, end for A): 0 is the bad end, 1 the good one."""


def compare_with_missing(a: ArrayLike, b: ArrayLike, ends: Ends, compare: Callable[[Array, Array], Test]) -> Test:
    """`compare(a, b)` over the corners of what NaN entries of a and b could be, as one worst-case Test.

    a, b: any shape that `compare` accepts, NaN where a run is missing, larger is better. Without NaN this is
    `compare(a, b)` itself.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not (np.isnan(x).any() or np.isnan(y).any()):
        return compare(x, y)
    tests = [_at(x, y, ends, corner, compare) for corner in (ADVERSE, FAVOURABLE)]
    if not all(t.evidence.monotone for t in tests):
        tests += [_at(x, y, ends, corner, compare) for corner in (BOTH_BAD, BOTH_GOOD)]
    return worst_case(tests)


def _at(x: Array, y: Array, ends: Ends, corner: tuple[int, int], compare: Callable[[Array, Array], Test]) -> Test:
    return compare(fill(x, ends[corner[1]]), fill(y, ends[corner[0]]))


def fill(values: Array, end: float | Array) -> Array:
    """`values` with every NaN replaced by the end given (a number, or an array of the same shape)."""
    ends = np.broadcast_to(np.asarray(end, dtype=np.float64), values.shape)
    gaps = np.isnan(values)
    if not np.isfinite(ends[gaps]).all():
        raise ValueError("missing runs need finite ends: declare the metric's range")
    return np.where(gaps, ends, values)


def seen_ends(*arms: ArrayLike) -> tuple[Array, Array]:
    """Smallest and largest value seen in each column over all arms, for a metric without a declared range.

    Each arm has shape (runs, tasks) with NaN for missing; the ends have shape (1, tasks). The output that uses this
    must say so. A task on which nothing was seen in any arm has no ends: ValueError.
    """
    stacked = np.concatenate([np.atleast_2d(np.asarray(arm, dtype=np.float64)) for arm in arms])
    nothing = np.isnan(stacked).all(axis=0)
    if nothing.any():
        raise ValueError(f"no run of any arm finished on task column(s) {np.flatnonzero(nothing).tolist()}")
    return np.nanmin(stacked, axis=0)[None, :], np.nanmax(stacked, axis=0)[None, :]
