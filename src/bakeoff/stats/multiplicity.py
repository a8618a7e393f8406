"""Several hypotheses at once: Holm (with the level at which each was tested) and Benjamini-Hochberg."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.vectors import Array, probability


@dataclass(frozen=True, slots=True)
class Holm:
    """Holm's step-down procedure over m p-values, in the order given.

    `levels[i]` is a_k = alpha/(m-k+1), the level at which hypothesis i was tested; one that was not rejected has the
    level of the first failure. Invariants: rejected[i] iff p[i] <= levels[i] iff adjusted[i] <= alpha.
    """

    adjusted: tuple[float, ...]
    levels: tuple[float, ...]
    rejected: tuple[bool, ...]
    alpha: float


def holm(p: ArrayLike, alpha: float = 0.05) -> Holm:
    """Control of any false rejection among the hypotheses at alpha, whatever their dependence."""
    values = _p_values(p)
    probability(alpha, "alpha")
    m = values.size
    adjusted, levels, rejected = np.ones(m), np.full(m, alpha), np.zeros(m, dtype=bool)
    running, failed = 0.0, 0.0
    for k, i in enumerate(np.argsort(values, kind="stable")):
        level = alpha / (m - k)
        running = max(running, min(1.0, (m - k) * float(values[i])))
        if failed == 0.0 and values[i] <= level:
            levels[i], rejected[i] = level, True
        else:
            failed = failed or level
            levels[i] = failed
        # (m - k) p and alpha / (m - k) round differently: the rejection rules, and the adjusted p follows it.
        adjusted[i] = min(running, alpha) if rejected[i] else max(running, math.nextafter(alpha, 1.0))
    return Holm(_floats(adjusted), _floats(levels), tuple(bool(r) for r in rejected), alpha)


def benjamini_hochberg(p: ArrayLike) -> tuple[float, ...]:
    """Adjusted p that bounds the expected share of false discoveries (independent or positively dependent tests)."""
    values = _p_values(p)
    m = values.size
    order = np.argsort(values, kind="stable")
    scaled = values[order] * m / np.arange(1, m + 1)
    smallest_from_here = np.minimum.accumulate(scaled[::-1])[::-1]
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, smallest_from_here)
    return _floats(adjusted)


def _p_values(p: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(p, dtype=np.float64))
    if values.ndim != 1 or not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError("p-values must be a vector of numbers between 0 and 1")
    return values


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
