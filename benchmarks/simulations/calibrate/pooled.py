"""Analyse the same training runs twice: pooled steps and generations of all seeds, and one value per seed.

Each arm has 8 seeds x 60 steps x 128 generations. A generation is correct with its run's rate: 47 % for every arm, plus
the seed's effect. The pooled analysis compares all generations of the two arms (a rate test) and the mean rewards of
all steps (a test of the mean). A z-test and a t-test replace its Fisher and permutation tests: with 61,440 generations
and 480 steps per arm they decide the same (a test checks this), and take microseconds.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from calibrate.laws import Array, Rng
from calibrate.peers import Z
from calibrate.table import Counts, Judge, two_arms

SEEDS, STEPS, GENERATIONS = 8, 60, 128
RATE = 0.47


def no_effect(rng: Rng, replicates: int, seed_sd: float, steps: int = STEPS) -> Counts:
    """Arms that do not differ; `seed_sd` in points of the correct rate."""
    control, candidate = (correct(rng, replicates, seed_sd, steps) for _ in "AB")
    runs = two_arms(*(arm.mean(axis=2)[:, None, :, None] / GENERATIONS for arm in (control, candidate)))
    return {
        **Judge().count(runs),
        "pooled generations": rate_test(control, candidate),
        "pooled steps": step_test(control, candidate),
    }


def correct(rng: Rng, replicates: int, seed_sd: float, steps: int) -> Array:
    """Correct generations of each step: (replicates, seeds, steps)."""
    rate = np.clip(RATE + seed_sd / 100.0 * rng.normal(size=(replicates, SEEDS, 1)), 0.0, 1.0)
    return rng.binomial(GENERATIONS, rate, size=(replicates, SEEDS, steps)).astype(np.float64)


def rate_test(a: Array, b: Array) -> Array:
    """Two proportions, every generation counted as independent."""
    n = a[0].size * GENERATIONS
    pa, pb = (x.sum(axis=(1, 2)) / n for x in (a, b))
    p = (pa + pb) / 2.0
    return np.asarray(np.abs(pb - pa) >= Z * np.sqrt(2.0 * p * (1.0 - p) / n), dtype=np.float64)


def step_test(a: Array, b: Array) -> Array:
    """Difference of the mean of all steps' rewards, every step counted as independent."""
    x, y = (arm.reshape(arm.shape[0], -1) / GENERATIONS for arm in (a, b))
    n = x.shape[1]
    error = np.sqrt((x.var(axis=1, ddof=1) + y.var(axis=1, ddof=1)) / n)
    bar = special.stdtrit(2.0 * n - 2.0, 0.975)
    return np.asarray(np.abs(y.mean(axis=1) - x.mean(axis=1)) >= bar * error, dtype=np.float64)
