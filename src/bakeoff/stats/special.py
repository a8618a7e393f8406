"""The few special functions this room needs, with types.

scipy ships no type information, so the untyped import happens here and nowhere else. Only `scipy.special` is
touched: `scipy.stats` would cost every command a second of start-up.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.special as _sp  # type: ignore[import-untyped,unused-ignore]

from bakeoff.stats.vectors import Array

TINY = float(np.finfo(np.float64).tiny)
"""Smallest p-value that is ever handed out: a p of 0 would claim certainty."""


def normal_cdf(z: float) -> float:
    """P(Z <= z) for a standard normal Z; accurate in the lower tail."""
    return float(_sp.ndtr(z))


def normal_quantile(p: float) -> float:
    """z with P(Z <= z) = p."""
    return float(_sp.ndtri(p))


def t_cdf(df: float, t: float) -> float:
    """P(T <= t) for Student's t with `df` degrees of freedom; accurate in the lower tail."""
    return float(_sp.stdtr(df, t))


def t_quantile(df: float, p: float) -> float:
    """t with P(T <= t) = p."""
    return float(_sp.stdtrit(df, p))


def noncentral_t_cdf(df: float, shift: float, t: float) -> float:
    """P(T <= t) for the noncentral t with noncentrality `shift`."""
    value = float(_sp.nctdtr(df, shift, t))
    # scipy answers NaN where the probability underflows; which end that is, the shift tells.
    return value if value == value else float(t > shift)


def chi2_quantile(df: float, p: float) -> float:
    """x with P(chi2_df <= x) = p."""
    return float(2.0 * _sp.gammaincinv(df / 2.0, p))


def chi2_sf(df: float, x: float) -> float:
    """P(chi2_df > x)."""
    return float(_sp.chdtrc(df, x))


def f_sf(df1: float, df2: float, x: float) -> float:
    """P(F > x) for the F distribution."""
    return float(_sp.fdtrc(df1, df2, x))


def binomial_half_tail(k: int, n: int) -> float:
    """P(X >= k) for X ~ Binomial(n, 1/2), by the incomplete beta function (fast for any n)."""
    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    return float(_sp.betainc(k, n - k + 1, 0.5))


def log_binomial_half(k: int, n: int) -> float:
    """log P(X = k) for X ~ Binomial(n, 1/2), through Stirling differences so that large n keeps its digits."""
    # xlogy-style entropy form: gammaln(n) alone would lose log10(n log n) digits at n = 500,000.
    if k in (0, n):
        return -n * math.log(2.0)
    p = k / n
    deviance = k * math.log(2.0 * p) + (n - k) * math.log(2.0 * (1.0 - p))
    correction = _stirling(n) - _stirling(k) - _stirling(n - k)
    return -deviance + correction - 0.5 * math.log(2.0 * math.pi * k * (1.0 - p))


def _stirling(n: int) -> float:
    """log n! minus Stirling's n log n - n + log(2 pi n)/2, for n >= 1."""
    if n < 16:
        return math.lgamma(n + 1.0) - (n * math.log(n) - n + 0.5 * math.log(2.0 * math.pi * n))
    inverse = 1.0 / n
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))


def log_choose(n: int, k: int) -> float:
    """log of the number of k-subsets of n things."""
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


def studentized_range_sf(q: float, groups: int) -> float:
    """P(range of `groups` standard normals > q): infinite degrees of freedom, which is Nemenyi's case."""
    z, weight = _grid()
    inner = _sp.ndtr(z) - _sp.ndtr(z - q)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    cdf = float(groups * np.sum(weight * density * inner ** (groups - 1)))
    return max(0.0, 1.0 - cdf)


def _grid() -> tuple[Array, Array]:
    """Trapezoid nodes on [-9, 9]; spectral accuracy because the integrand and its derivatives vanish at both ends."""
    z = np.linspace(-9.0, 9.0, 1801)
    return z, np.full(z.shape, z[1] - z[0])


def log_expit(y: Array) -> Array:
    """log of 1 / (1 + exp(-y)), elementwise, without overflow."""
    return np.asarray(_sp.log_expit(y), dtype=np.float64)


def logsumexp(y: Array) -> Array:
    """log of the sum of exp(y) along the first axis, without overflow."""
    peak = y.max(axis=0)
    return np.asarray(np.log(np.exp(y - peak).sum(axis=0)) + peak, dtype=np.float64)


def log_gamma_ratio(x: float) -> float:
    """log of Gamma(x) / Gamma(x - 1/2), x > 1/2."""
    return math.lgamma(x) - math.lgamma(x - 0.5)
