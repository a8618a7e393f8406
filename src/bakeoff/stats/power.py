"""Planning: how many units, how small an effect, where to spend runs. Only spreads enter, never an observed effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.binary import wilson
from bakeoff.stats.interval import Interval
from bakeoff.stats.special import chi2_quantile, noncentral_t_cdf, normal_quantile, t_quantile
from bakeoff.stats.ttests import one_sample_t
from bakeoff.stats.vectors import Array, Seed, generator, is_constant, mean, probability, sd, vector

Design = Literal["paired", "unpaired"]
"""paired: n units, sd of the differences. unpaired: n units in each arm, sd inside an arm."""
MOST_UNITS = 10**9


def _shape(n: float, design: Design) -> tuple[float, float]:
    """Degrees of freedom and the factor that turns effect/sd into a noncentrality."""
    return (n - 1.0, math.sqrt(n)) if design == "paired" else (2.0 * n - 2.0, math.sqrt(n / 2.0))


def t_power(effect: float, spread: float, n: float, alpha: float = 0.05, design: Design = "paired") -> float:
    """Chance that a two-sided t test at alpha rejects, by the noncentral t. n > 1; spread > 0 in the effect's unit."""
    probability(alpha, "alpha")
    if not (spread > 0.0 and n > 1.0):
        raise ValueError(f"power needs spread > 0 and n > 1, got spread {spread}, n {n}")
    df, root = _shape(n, design)
    return _power(df, abs(effect) / spread * root, alpha)


def _power(df: float, shift: float, alpha: float) -> float:
    critical = -t_quantile(df, alpha / 2.0)
    upper = 1.0 - noncentral_t_cdf(df, shift, critical)
    lower = noncentral_t_cdf(df, shift, -critical)
    return min(1.0, max(alpha, upper + lower))


def minimum_detectable_effect(
    spread: float, n: float, alpha: float = 0.05, power: float = 0.8, design: Design = "paired"
) -> float:
    """Smallest true effect that n units detect with this power, in the spread's unit."""
    probability(power, "power")
    if power <= alpha:
        raise ValueError(f"power {power} must exceed alpha {alpha}")
    if n <= 1.0:
        return math.inf
    df, root = _shape(n, design)
    low, high = 0.0, 4.0
    while _power(df, high, alpha) < power:
        high *= 2.0
    for _ in range(70):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _power(df, middle, alpha) < power else (low, middle)
    return 0.5 * (low + high) * spread / root


def units_needed(
    effect: float, spread: float, alpha: float = 0.05, power: float = 0.8, design: Design = "paired"
) -> int:
    """Smallest whole number of units (per arm when unpaired) that detects `effect` with this power; at least 2."""
    probability(power, "power")
    if not (effect != 0.0 and spread > 0.0):
        raise ValueError("units_needed needs an effect other than 0 and a positive spread")
    ratio = abs(effect) / spread
    z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power)
    start = (z / ratio) ** 2 * (1.0 if design == "paired" else 2.0)
    if start > MOST_UNITS:
        raise ValueError(f"more than {MOST_UNITS:,} units would be needed; the effect is too small for this spread")
    low, high = 1, max(2, math.ceil(start) + 4)
    while t_power(effect, spread, high, alpha, design) < power:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, spread, middle, alpha, design) >= power else (middle, high)
    return high


def spread_bound(spread: float, n: int, confidence: float = 0.8) -> float:
    """Upper confidence bound of a pilot's sd from n >= 2 normal values (n = 15, 80 %: times 1.22)."""
    return spread * math.sqrt((n - 1) / chi2_quantile(n - 1, 1.0 - probability(confidence, "confidence")))


def relative_error(x: ArrayLike, n: int | None = None, level: float = 0.95) -> float | None:
    """Relative standard error of the mean at n units (default: those at hand): sd / sqrt(n) / |mean|.

    None, 'undefined', where the interval of the mean includes 0: a share of something that may be 0 says nothing.
    """
    values = vector(x, "x", at_least=2)
    centre = mean(values)
    if is_constant(values):
        return 0.0 if centre != 0.0 else None
    if one_sample_t(values).interval(level).contains(0.0):
        return None
    return sd(values) / math.sqrt(n or values.size) / abs(centre)


def units_for_relative_error(x: ArrayLike, target: float, level: float = 0.95) -> int | None:
    """Smallest n whose relative standard error is at most `target`; None where it is undefined."""
    once = relative_error(x, 1, level)
    if once is None:
        return None
    return max(2, math.ceil((once / target) ** 2 - 1e-9))


@dataclass(frozen=True, slots=True)
class Simulated:
    """Share of simulated experiments that said yes, with its Wilson interval."""

    share: float
    interval: Interval
    replicates: int


def simulate(
    draw: Callable[[np.random.Generator], Array],
    decide: Callable[[Array], bool],
    replicates: int = 1_000,
    seed: Seed = 0,
) -> Simulated:
    """Power (or error rate) of any decision on any data: draw an experiment, decide, count."""
    rng = generator(seed)
    hits = sum(bool(decide(draw(rng))) for _ in range(replicates))
    return Simulated(hits / replicates, wilson(hits, replicates), replicates)


def from_pilot(pilot: ArrayLike, n: int, effect: float) -> Callable[[np.random.Generator], Array]:
    """A `draw` for `simulate`: n units resampled from the pilot's differences, moved so that their mean is `effect`.

    Residuals are widened by sqrt(m/(m-1)): a resample of m values has too little spread by that factor.
    """
    values = vector(pilot, "pilot", at_least=2)
    residuals = (values - values.mean()) * math.sqrt(values.size / (values.size - 1)) + effect
    return lambda rng: np.asarray(rng.choice(residuals, n), dtype=np.float64)
