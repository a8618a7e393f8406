"""Rollouts that succeed or not: pass@k and pass^k, unbiased, task by task."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.vectors import Array


def pass_at_k(successes: ArrayLike, attempts: ArrayLike, k: int) -> Array:
    """Unbiased chance, for each task, that at least one of k attempts succeeds: 1 - C(n-c, k) / C(n, k). Needs n >= k."""
    c, n = _counts(successes, attempts, k)
    return 1.0 - _all_of_k(n - c, n, k)


def pass_hat_k(successes: ArrayLike, attempts: ArrayLike, k: int) -> Array:
    """Unbiased chance, for each task, that all of k attempts succeed (pass^k): C(c, k) / C(n, k). Needs n >= k."""
    c, n = _counts(successes, attempts, k)
    return _all_of_k(c, n, k)


def _counts(successes: ArrayLike, attempts: ArrayLike, k: int) -> tuple[Array, Array]:
    c, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(attempts, dtype=np.float64))
    if k < 1 or not ((n >= k) & (c >= 0) & (c <= n) & (c == np.floor(c)) & (n == np.floor(n))).all():
        raise ValueError(f"need whole numbers 0 <= successes <= attempts and attempts >= k = {k} >= 1 on every task")
    return c, n


def _all_of_k(c: Array, n: Array, k: int) -> Array:
    """C(c, k) / C(n, k) as a product of k ratios: no large factorials."""
    out = np.ones(np.shape(c))
    for i in range(k):
        out = out * np.maximum(c - i, 0.0) / (n - i)
    return np.asarray(out, dtype=np.float64)
