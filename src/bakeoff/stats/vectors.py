"""What every function here accepts: finite numbers in one-dimensional float arrays, checked at the door."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Seed = int | np.random.Generator


def vector(values: ArrayLike, name: str, at_least: int = 1) -> Array:
    """`values` as a float array of shape (n,), n >= at_least, every entry finite; anything else is a ValueError."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {x.shape}")
    if x.size < at_least:
        raise ValueError(f"{name} needs at least {at_least} value(s), got {x.size}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds NaN or infinite values; score failures and bound missing runs before testing")
    return x


def matrix(values: ArrayLike, name: str, rows: int = 1, columns: int = 1) -> Array:
    """`values` as a finite float array of shape (>= rows, >= columns); anything else is a ValueError."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got shape {x.shape}")
    if x.shape[0] < rows or x.shape[1] < columns:
        raise ValueError(f"{name} must be at least {rows} x {columns}, got {x.shape[0]} x {x.shape[1]}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds NaN or infinite values; score failures and bound missing runs before testing")
    return x


def pair(a: ArrayLike, b: ArrayLike, at_least: int = 1) -> tuple[Array, Array]:
    """Two finite vectors of one length: the i-th entries belong to the same unit."""
    x, y = vector(a, "a", at_least), vector(b, "b", at_least)
    if x.size != y.size:
        raise ValueError(f"paired samples must have one length, got {x.size} and {y.size}")
    return x, y


def generator(seed: Seed) -> np.random.Generator:
    """A numpy Generator: the one given, or a fresh one whose stream depends on the integer alone."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.Generator(np.random.PCG64(seed))


def probability(value: float, name: str) -> float:
    """`value` if it lies strictly between 0 and 1, else a ValueError that names it."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return float(value)


def exponent(x: Array) -> int:
    """e with max|x| in [2^(e-1), 2^e); 0 for an all-zero x. Scaling by 2^-e is exact and avoids overflow."""
    peak = float(np.abs(x).max(initial=0.0))
    return int(np.frexp(peak)[1]) if peak > 0.0 else 0


def mean(x: Array) -> float:
    """Arithmetic mean that survives values near the largest double."""
    e = exponent(x)
    return float(np.ldexp(np.ldexp(x, -e).mean(), e))


def sd(x: Array) -> float:
    """Standard deviation with n - 1 in the denominator, for n >= 2, at any scale."""
    e = exponent(x)
    return float(np.ldexp(np.ldexp(x, -e).std(ddof=1), e))


def is_constant(x: Array) -> bool:
    """All values equal, up to 1e-9 of the largest magnitude (the tie tolerance of the whole room)."""
    e = exponent(x)
    y = np.ldexp(x, -e)
    return bool(y.max() - y.min() <= 1e-9 * np.abs(y).max())
