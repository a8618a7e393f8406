"""Many runs on many tasks in one number: IQM, optimality gap, performance profile, pass@k and pass^k.

Scores have shape (runs, tasks), larger is better, usually normalised so that 1 is the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.resample import trimmed_range
from bakeoff.stats.vectors import Array, Seed, generator, matrix, probability, vector


def iqm(scores: ArrayLike) -> float:
    """Mean of the middle half of all values (whole ranks: int(n/4) cut from each end), any shape."""
    x = np.sort(vector(np.ravel(np.asarray(scores, dtype=np.float64)), "scores"))
    low, high = trimmed_range(x.size)
    return float(x[low:high].mean())


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """How far the scores fall short of `target` on average; what lies above it earns nothing. Smaller is better."""
    x = vector(np.ravel(np.asarray(scores, dtype=np.float64)), "scores")
    return float(target - np.minimum(x, target).mean())


@dataclass(frozen=True, slots=True)
class Profile:
    """Share of runs above each threshold, with a pointwise band. Arrays of one length as tuples."""

    thresholds: tuple[float, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0
) -> Profile:
    """Share of (run, task) cells strictly above each threshold; band by resampling runs inside each task.

    Population: these tasks only.
    """
    x = matrix(scores, "scores")
    taus = vector(thresholds, "thresholds")
    rng = generator(seed)
    runs, tasks = x.shape
    total = np.zeros((resamples, taus.size))
    for task in range(tasks):
        above = (x[:, task][:, None] > taus[None, :]).astype(np.float64)
        counts = rng.multinomial(runs, np.full(runs, 1.0 / runs), size=resamples).astype(np.float64)
        total += counts @ above
    tail = (1.0 - probability(level, "level")) / 2.0
    low, high = np.quantile(total / x.size, [tail, 1.0 - tail], axis=0)
    share = (x[:, :, None] > taus).mean(axis=(0, 1))
    return Profile(_floats(taus), _floats(share), _floats(low), _floats(high), level)


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


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
