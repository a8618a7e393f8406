"""Sizes of an effect, and what pairing bought. Arms are a (control) and b; larger is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.special import log_gamma_ratio
from bakeoff.stats.vectors import Array, is_constant, mean, pair, sd, vector


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    """(mean b - mean a) / pooled sd, each arm of at least 2; inf (with the sign) or 0 without spread."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    df = x.size + y.size - 2
    pooled = math.hypot(sd(x) * math.sqrt((x.size - 1) / df), sd(y) * math.sqrt((y.size - 1) / df))
    return _standardised(mean(y) - mean(x), pooled, is_constant(x) and is_constant(y))


def hedges_g(a: ArrayLike, b: ArrayLike) -> float:
    """Cohen's d times the exact small-sample factor Gamma(df/2) / (sqrt(df/2) Gamma((df-1)/2)), df = n_a + n_b - 2."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    return cohens_d(x, y) * small_sample_factor(x.size + y.size - 2)


def small_sample_factor(df: float) -> float:
    """Hedges' correction J(df), df > 1: below 1, and about 1 - 3/(4 df - 1)."""
    return math.exp(log_gamma_ratio(df / 2.0) - 0.5 * math.log(df / 2.0))


def cohens_dz(d: ArrayLike) -> float:
    """mean / sd of the paired differences; inf (with the sign) or 0 without spread."""
    x = vector(d, "d", at_least=2)
    return _standardised(mean(x), sd(x), is_constant(x))


def _standardised(distance: float, spread: float, constant: bool) -> float:
    if constant or spread == 0.0:
        return 0.0 if distance == 0.0 else math.copysign(math.inf, distance)
    return distance / spread


@dataclass(frozen=True, slots=True)
class Pairing:
    """What sharing seeds or tasks bought: correlation of the arms and 1 - var(d) / (var a + var b).

    Both are None where an arm has no spread. A negative reduction means that pairing cost precision.
    """

    correlation: float | None
    variance_reduction: float | None


def pairing(a: ArrayLike, b: ArrayLike) -> Pairing:
    """Realised correlation and variance reduction of at least 2 pairs."""
    x, y = pair(a, b, at_least=2)
    spread_a, spread_b = _unit(x), _unit(y)
    total = sd(x) ** 2 + sd(y) ** 2
    reduction = 1.0 - sd(y - x) ** 2 / total if total > 0.0 and math.isfinite(total) else None
    if spread_a is None or spread_b is None:
        return Pairing(None, reduction)
    return Pairing(float(np.clip(spread_a @ spread_b, -1.0, 1.0)), reduction)


def _unit(x: Array) -> Array | None:
    """x centred and of length 1; None when constant."""
    if is_constant(x):
        return None
    centred = (x - mean(x)) / sd(x)
    return np.asarray(centred / math.sqrt(x.size - 1), dtype=np.float64)
