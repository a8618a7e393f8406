"""Tests that look after every pair: the e-process, for which this is valid, and the t-test, for which it is not."""

from __future__ import annotations

import numpy as np

from bakeoff.stats.decision import crossed_test
from bakeoff.stats.sequential import SequentialRule
from calibrate.laws import Array, Law, Rng
from calibrate.peers import quantile_t
from calibrate.table import Counts

PAIRS = 100
TASKS, BLOCK, EACH = 60, 4, 2
"""Tasks that are a sample, how many are added between two looks, and the nested seeds of each."""
CROSSED = (10, (5, 10, 20))
"""Tasks, and the seeds at the three looks, where both are samples."""
FIRST_LOOK = 6
EFFECTS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0)
"""In standard deviations of the differences."""


def no_effect(rng: Rng, replicates: int, law: Law) -> Counts:
    """Arms that do not differ: whether each analysis has decided by the last pair."""
    a, b = law.arms(rng, (replicates, 1, PAIRS, 1), *[(replicates, 1, PAIRS, 1)] * 2)
    d = (b - a)[:, 0, :, 0]
    return {"decided": (_stops(d) <= PAIRS).astype(np.float64), "t-test after every pair": _peeking(d)}


def effect(rng: Rng, replicates: int, size: float) -> Counts:
    """Pairs until the stop; PAIRS + 1 if there was none."""
    d = rng.normal(size, 1.0, (replicates, PAIRS))
    stops = _stops(d)
    return {"stop": stops, "decided": (stops <= PAIRS).astype(np.float64)}


def tasks(rng: Rng, replicates: int) -> Counts:
    """Tasks whose effects differ around 0, added in blocks of 4: whether the e-process has decided at any look."""
    by_task = rng.normal(size=(replicates, TASKS, 1))
    noise = rng.normal(size=(replicates, TASKS, EACH)) - rng.normal(size=(replicates, TASKS, EACH))
    stops, _ = SequentialRule(planned=TASKS).stops((by_task + noise).mean(axis=2))
    return {"decided": (stops <= TASKS).astype(np.float64)}


def crossed(rng: Rng, replicates: int) -> Counts:
    """Tasks and seeds that are both samples, looked at with S, 2 S and 4 S seeds, at a quarter of the level each time."""
    tasks, looks = CROSSED
    shape = (replicates, tasks, looks[-1])
    d = rng.normal(size=(replicates, tasks, 1)) + rng.normal(size=(replicates, 1, looks[-1]))
    d += rng.normal(size=shape) - rng.normal(size=shape)
    p = np.array([[crossed_test(table[:, :seeds]).p for seeds in looks] for table in d])
    corrected = p <= np.array([0.05 / 4**look for look in range(len(looks))])
    return {
        "decided": corrected.any(axis=1).astype(np.float64),
        "a new test at each look": (p <= 0.05).any(axis=1).astype(np.float64),
    }


def _stops(d: Array) -> Array:
    stops, _ = SequentialRule(planned=PAIRS).stops(d)
    return stops.astype(np.float64)


def _peeking(d: Array) -> Array:
    """An ordinary paired t-test after every pair from the sixth on, until it rejects."""
    n = np.arange(1, d.shape[1] + 1)
    mean = np.cumsum(d, axis=1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (np.cumsum(d**2, axis=1) - n * mean**2) / (n - 1)
        t = mean / np.sqrt(variance / n)
    looks = slice(FIRST_LOOK - 1, None)
    return np.asarray((np.abs(t[:, looks]) >= quantile_t(n[looks] - 1.0)).any(axis=1), dtype=np.float64)
