"""Data that break statistics: ties, constants, few values, huge and tiny scales."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

SCALES = (1e-200, 1e-6, 1.0, 1e6, 1e150)


@st.composite
def samples(draw: st.DrawFn, min_size: int = 2, max_size: int = 14) -> np.ndarray:
    """A vector of lumpy (quarters, many ties), constant or smooth values at some scale."""
    kind = draw(st.sampled_from(["lumpy", "constant", "smooth"]))
    n = draw(st.integers(min_size, max_size))
    if kind == "constant":
        values = np.full(n, draw(st.sampled_from([-1.5, 0.0, 0.3])))
    elif kind == "lumpy":
        values = np.array(draw(st.lists(st.integers(-8, 8), min_size=n, max_size=n))) / 4.0
    else:
        values = np.random.default_rng(draw(st.integers(0, 10**6))).normal(draw(st.sampled_from([0.0, 0.7])), 1.0, n)
    return values * draw(st.sampled_from(SCALES))


@st.composite
def spread_samples(draw: st.DrawFn, min_size: int = 2, max_size: int = 14) -> np.ndarray:
    """A vector that is surely not constant."""
    values = draw(samples(min_size, max_size))
    if np.ptp(values) <= 1e-6 * np.abs(values).max():
        values = values + np.arange(values.size) * (np.abs(values).max() or 1.0)
    return values
