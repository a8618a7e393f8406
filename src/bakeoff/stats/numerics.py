"""What the other modules stand on: checked input, moments that do not overflow, and distribution functions.

Only `scipy.special` is imported. `scipy.stats` would add a second to the start of every command; the tests
use it as the reference instead. scipy ships no types, so its values pass through `float`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Seed = int | np.random.Generator

TINY = float(np.finfo(np.float64).tiny)
"""Smallest p-value that is ever returned: a p of 0 would claim certainty."""


def vector(values: ArrayLike, name: str, at_least: int = 1) -> Array:
    """Return `values` as a finite float array of shape (n,), n >= at_least.

    Anything else is a ValueError with `name`.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {x.shape}")
    if x.size < at_least:
        raise ValueError(f"{name} needs at least {at_least} value(s), got {x.size}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} has NaN or infinite values; score failures and bound missing runs before testing")
    return x


def matrix(values: ArrayLike, name: str, rows: int = 1, columns: int = 1) -> Array:
    """Return `values` as a finite float array of shape (>= rows, >= columns).

    Anything else is a ValueError.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got shape {x.shape}")
    if x.shape[0] < rows or x.shape[1] < columns:
        raise ValueError(f"{name} must be at least {rows} x {columns}, got {x.shape[0]} x {x.shape[1]}")
    vector(x.ravel(), name)
    return x


def pair(a: ArrayLike, b: ArrayLike, at_least: int = 1) -> tuple[Array, Array]:
    """Return two finite vectors of one length: the i-th entries belong to the same unit."""
    x, y = vector(a, "a", at_least), vector(b, "b", at_least)
    if x.size != y.size:
        raise ValueError(f"paired samples must have one length, got {x.size} and {y.size}")
    return x, y


def generator(seed: Seed) -> np.random.Generator:
    """Return `seed` itself if it is a Generator, else a new one whose stream depends on the integer alone."""
    if isinstance(seed, np.random.Generator):
        return seed
    # PCG64 by name: default_rng may use another generator in a later numpy.
    return np.random.Generator(np.random.PCG64(seed))


def probability(value: float, name: str) -> float:
    """Return `value` if it lies strictly between 0 and 1, else raise a ValueError with `name`."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return float(value)


def tail(level: float) -> float:
    """Return the probability on each side of a two-sided interval: 0.025 for a level of 0.95."""
    return (1.0 - probability(level, "level")) / 2.0


# Moments. Values near the largest double overflow when they are squared or summed, so everything is first divided by
# a power of two, which is exact.


def exponent(x: Array) -> int:
    """Return e with max|x| in [2^(e-1), 2^e), and 0 when every value is 0."""
    peak = float(np.abs(x).max(initial=0.0))
    return int(np.frexp(peak)[1]) if peak > 0.0 else 0


def mean(x: Array) -> float:
    """Return the arithmetic mean, also of values near the largest double."""
    e = exponent(x)
    return float(np.ldexp(np.ldexp(x, -e).mean(), e))


def sd(x: Array) -> float:
    """Return the standard deviation with n - 1 in the denominator (n >= 2), at any scale."""
    e = exponent(x)
    return float(np.ldexp(np.ldexp(x, -e).std(ddof=1), e))


def is_constant(x: Array) -> bool:
    """Whether all values are equal, up to 8 units in the last place of the largest one.

    That is what rounding leaves. A share of the magnitude would be wrong: noise of 0.5 around 1.7e9 is noise.
    """
    # The spread of two values near the largest double would overflow.
    y = np.ldexp(x, -exponent(x))
    return bool(y.max() - y.min() <= 8.0 * np.spacing(np.abs(y).max()))


def difference(b: Array, a: Array) -> Array:
    """b - a. Where all differences are equal up to the rounding of a and b, they are made equal; NaN stays NaN.

    The rounding is that of the values: 17.3 - 16.8 and 1.3 - 0.8 differ by more than 8 units in the last place of 0.5.
    """
    d: Array = b - a
    run = ~np.isnan(d)
    known = d[run]
    rounding = 8.0 * np.spacing(max(float(np.abs(a[run]).max(initial=0.0)), float(np.abs(b[run]).max(initial=0.0))))
    return np.where(run, np.median(known), np.nan) if known.size and float(np.ptp(known)) <= rounding else d


def average_ranks(x: ArrayLike) -> Array:
    """Ranks from 1, shape (n,); tied values share the mean of their ranks."""
    values = vector(x, "x")
    _, member, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[member], dtype=np.float64)


def bisect(keeps: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the point nearest to `outside` for which `keeps` is still true, to the last bit or so.

    `keeps` must be true at `inside` and change once on the way to `outside`. 80 halvings are more than the
    53 bits of a double need, unless the boundary lies next to 0.
    """
    for _ in range(80):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if keeps(middle) else (inside, middle)
    return inside


# Distribution functions.


def normal_cdf(z: float) -> float:
    """P(Z <= z) for a standard normal Z, accurate in the lower tail."""
    return float(sp.ndtr(z))


def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p."""
    return float(sp.ndtri(p))


def t_quantile(df: float, p: float) -> float:
    """The t with P(T <= t) = p, for Student's t with `df` degrees of freedom."""
    return float(sp.stdtrit(df, p))


def noncentral_t_cdf(df: float, shift: float, t: float) -> float:
    """P(T <= t) for the noncentral t with noncentrality `shift`."""
    value = float(sp.nctdtr(df, shift, t))
    # scipy returns NaN where the probability underflows. The sign of t - shift tells whether it is 0 or 1.
    return float(t > shift) if math.isnan(value) else value


def chi2_quantile(df: float, p: float) -> float:
    """The x with P(chi2_df <= x) = p."""
    return float(2.0 * sp.gammaincinv(df / 2.0, p))


def studentized_range_sf(q: float, groups: int) -> float:
    """P(range of `groups` independent standard normals > q): the studentized range with infinite degrees of freedom.

    1 - k * integral of phi(z) (Phi(z) - Phi(z - q))^(k-1) dz (Hochberg and Tamhane, Multiple Comparison
    Procedures 1987). The trapezoid rule converges exponentially here, because the integrand and all its
    derivatives vanish at both ends (Trefethen and Weideman, SIAM Review 2014).
    """
    # At 9 the normal density is 1e-18.
    z = np.linspace(-9.0, 9.0, 1801)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    inner = sp.ndtr(z) - sp.ndtr(z - q)
    cdf = float(groups * np.sum((z[1] - z[0]) * density * inner ** (groups - 1)))
    return max(0.0, 1.0 - cdf)
