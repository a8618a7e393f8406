"""Covariate adjustment (CUPED): remove from each unit what something measured before the treatment explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.vectors import is_constant, pair, vector


@dataclass(frozen=True, slots=True)
class Cuped:
    """Adjusted values, one for each unit, with the same mean; slope, and the share of variance removed.

    The slope is estimated from the same units, which costs one degree of freedom in a t test of the adjusted values.
    """

    adjusted: tuple[float, ...]
    slope: float
    variance_reduction: float


def cuped(y: ArrayLike, covariate: ArrayLike) -> Cuped:
    """y - slope (x - mean x) for at least 3 units. x must not be affected by the arm (baseline score, difficulty)."""
    values, x = pair(y, covariate, at_least=3)
    if is_constant(x):
        raise ValueError("the covariate is constant: it explains nothing")
    centred = x - x.mean()
    slope = float(centred @ (values - values.mean()) / (centred @ centred))
    adjusted = values - slope * centred
    spread = float(values.var())
    reduction = 1.0 - float(adjusted.var()) / spread if spread > 0.0 else 0.0
    return Cuped(tuple(float(v) for v in adjusted), slope, reduction)


def cuped_arms(
    a: ArrayLike, b: ArrayLike, covariate_a: ArrayLike, covariate_b: ArrayLike
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Two independent arms adjusted with one pooled within-arm slope: (adjusted a, adjusted b, slope).

    One slope for both arms, and deviations from the overall covariate mean, so that a chance imbalance in the
    covariate is taken out of the difference.
    """
    ya, xa = pair(a, covariate_a, at_least=2)
    yb, xb = pair(b, covariate_b, at_least=2)
    inside = np.concatenate((xa - xa.mean(), xb - xb.mean()))
    if not float(inside @ inside) > 0.0:
        raise ValueError("the covariate is constant inside both arms: it explains nothing")
    slope = float(inside @ np.concatenate((ya - ya.mean(), yb - yb.mean())) / (inside @ inside))
    overall = float(vector(np.concatenate((xa, xb)), "covariate").mean())
    adjusted_a, adjusted_b = ya - slope * (xa - overall), yb - slope * (xb - overall)
    return tuple(float(v) for v in adjusted_a), tuple(float(v) for v in adjusted_b), slope
