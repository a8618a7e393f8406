"""Sizes of an effect, what pairing and covariates gained, and rewards relative to their group.

Arms are a (control) and b; larger is better. Nothing here decides a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.numerics import Array, is_constant, mean, pair, sd, vector

EPSILON = 1e-6
"""Added to a group's standard deviation in `group_relative`."""


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    """(mean b - mean a) / pooled sd (Cohen 1988), each arm of at least 2; without spread +-inf, or 0."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    df = x.size + y.size - 2
    # hypot, because squares of large standard deviations would overflow.
    pooled = math.hypot(sd(x) * math.sqrt((x.size - 1) / df), sd(y) * math.sqrt((y.size - 1) / df))
    return _standardised(mean(y) - mean(x), pooled, is_constant(x) and is_constant(y))


def hedges_g(a: ArrayLike, b: ArrayLike) -> float:
    """Cohen's d times Hedges' small-sample factor, df = n_a + n_b - 2: an unbiased estimate for normal data."""
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    return cohens_d(x, y) * small_sample_factor(x.size + y.size - 2)


def small_sample_factor(df: float) -> float:
    """J(df) = Gamma(df/2) / (sqrt(df/2) Gamma((df-1)/2)), about 1 - 3/(4 df - 1), df > 1 (Hedges 1981)."""
    return math.exp(math.lgamma(df / 2.0) - math.lgamma((df - 1.0) / 2.0) - 0.5 * math.log(df / 2.0))


def cohens_dz(d: ArrayLike) -> float:
    """mean / sd of the paired differences; without spread +-inf, or 0."""
    x = vector(d, "d", at_least=2)
    return _standardised(mean(x), sd(x), is_constant(x))


def _standardised(distance: float, spread: float, constant: bool) -> float:
    if constant or spread == 0.0:
        return 0.0 if distance == 0.0 else math.copysign(math.inf, distance)
    return distance / spread


@dataclass(frozen=True, slots=True)
class Pairing:
    """What sharing seeds or tasks gained: correlation of the arms and 1 - var(d) / (var a + var b).

    Both are None where an arm has no spread. A negative reduction means that pairing cost precision.
    """

    correlation: float | None
    variance_reduction: float | None


def pairing(a: ArrayLike, b: ArrayLike) -> Pairing:
    """Realised correlation and variance reduction of at least 2 pairs, shape (n,) each."""
    x, y = pair(a, b, at_least=2)
    total = sd(x) ** 2 + sd(y) ** 2
    reduction = 1.0 - sd(y - x) ** 2 / total if total > 0.0 and math.isfinite(total) else None
    if is_constant(x) or is_constant(y):
        return Pairing(None, reduction)
    # Vectors of length 1: their product is the correlation, at any scale.
    u, v = ((z - mean(z)) / sd(z) / math.sqrt(z.size - 1) for z in (x, y))
    return Pairing(float(np.clip(u @ v, -1.0, 1.0)), reduction)


@dataclass(frozen=True, slots=True)
class Cuped:
    """Adjusted values, one for each unit, with the same mean; slope, and the share of variance removed.

    The slope is estimated from the same units, which costs one degree of freedom in a t test of the
    adjusted values.
    """

    adjusted: tuple[float, ...]
    slope: float
    variance_reduction: float


def cuped(y: ArrayLike, covariate: ArrayLike) -> Cuped:
    """Remove from at least 3 units what a covariate explains: y - slope (x - mean x), slope = cov(y, x) / var(x).

    The covariate must not be affected by the arm: a score before training, a task's difficulty (Deng, Xu,
    Kohavi and Walker, WSDM 2013).
    """
    values, x = pair(y, covariate, at_least=3)
    if is_constant(x):
        raise ValueError("the covariate is constant: it explains nothing")
    centred = x - x.mean()
    slope = float(centred @ (values - values.mean()) / (centred @ centred))
    adjusted = values - slope * centred
    spread = float(values.var())
    # Least squares never increases the variance, so this is at least 0.
    reduction = 1.0 - float(adjusted.var()) / spread if spread > 0.0 else 0.0
    return Cuped(tuple(float(v) for v in adjusted), slope, reduction)


def cuped_arms(
    a: ArrayLike, b: ArrayLike, covariate_a: ArrayLike, covariate_b: ArrayLike
) -> tuple[Array, Array, float]:
    """Adjust two independent arms with one pooled within-arm slope, as in analysis of covariance.

    Returns adjusted a, adjusted b and the slope. One slope for both arms, and deviations from the overall
    covariate mean, take a chance imbalance in the covariate out of the difference.
    """
    ya, xa = pair(a, covariate_a, at_least=2)
    yb, xb = pair(b, covariate_b, at_least=2)
    # Deviations inside each arm: the effect of the arm must not leak into the slope.
    inside = np.concatenate((xa - xa.mean(), xb - xb.mean()))
    if not float(inside @ inside) > 0.0:
        raise ValueError("the covariate is constant inside both arms: it explains nothing")
    slope = float(inside @ np.concatenate((ya - ya.mean(), yb - yb.mean())) / (inside @ inside))
    overall = float(np.concatenate((xa, xb)).mean())
    return ya - slope * (xa - overall), yb - slope * (xb - overall), slope


def group_relative(rewards: Array) -> Array:
    """Group-relative advantages, (r - mean) / (std + 1e-6), of rewards of shape (..., group); std divides by n.

    The advantage of GRPO (Shao et al., DeepSeekMath 2024, section 4.1). A group whose rewards are all equal
    says nothing about its rollouts: its advantages are exactly 0, whatever rounding makes of its mean.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    centred = rewards - rewards.mean(axis=-1, keepdims=True)
    advantages = centred / (rewards.std(axis=-1, keepdims=True) + EPSILON)
    # Not std > 0: rounding can leave a tiny spread in equal rewards.
    return np.where(varies(rewards)[..., None], advantages, 0.0)


def varies(rewards: Array) -> NDArray[np.bool_]:
    """Which groups (last axis) have rewards that differ, shape (...)."""
    return np.asarray(rewards.max(axis=-1) > rewards.min(axis=-1))
