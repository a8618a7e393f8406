"""Planning for success rates: how many outcomes, how small a difference of rates. Normal approximation, two-sided.

paired: one pair of 0/1 outcomes a unit, and `discordant` is the share of pairs that differ. unpaired: n outcomes in
each arm. Rates of outcomes that share a seed or a task are no such outcomes: plan with the seeds' or tasks' spread.
"""

from __future__ import annotations

import math

from bakeoff.stats.power import MOST_UNITS, Design
from bakeoff.stats.special import normal_cdf, normal_quantile
from bakeoff.stats.vectors import probability


def independent_discordance(rate: float, effect: float) -> float:
    """Share of pairs that differ when the two outcomes of a pair have nothing in common: the cautious default."""
    other = _other(rate, effect)
    return rate * (1.0 - other) + other * (1.0 - rate)


def rate_power(
    rate: float,
    effect: float,
    n: float,
    alpha: float = 0.05,
    design: Design = "unpaired",
    discordant: float | None = None,
) -> float:
    """Chance that n outcomes find the difference between `rate` and `rate + effect`."""
    probability(alpha, "alpha")
    null, alternative = _spreads(rate, effect, design, discordant)
    if not n > 0:
        raise ValueError(f"n must be positive, got {n}")
    z = -normal_quantile(alpha / 2.0)
    if alternative == 0.0:
        return 1.0 if abs(effect) * math.sqrt(n) > z * null else alpha
    shift = abs(effect) * math.sqrt(n)
    return min(1.0, normal_cdf((shift - z * null) / alternative) + normal_cdf((-shift - z * null) / alternative))


def outcomes_needed(
    rate: float,
    effect: float,
    alpha: float = 0.05,
    power: float = 0.8,
    design: Design = "unpaired",
    discordant: float | None = None,
) -> int:
    """Smallest number of pairs, or of outcomes in each arm, that finds the difference with this power."""
    probability(power, "power")
    null, alternative = _spreads(rate, effect, design, discordant)
    reach = -normal_quantile(alpha / 2.0) * null + normal_quantile(power) * alternative
    needed = (max(0.0, reach) / effect) ** 2
    if needed > MOST_UNITS:
        raise ValueError(f"more than {MOST_UNITS:,} outcomes would be needed; the effect is too small")
    return max(2, math.ceil(needed - 1e-9))


def detectable_rate_difference(
    rate: float, n: float, alpha: float = 0.05, power: float = 0.8, design: Design = "unpaired"
) -> float | None:
    """Smallest rise of the rate that n outcomes find with this power; None when even a rise to 1 is not found."""
    probability(power, "power")
    low, high = 0.0, 1.0 - rate
    if rate_power(rate, high, n, alpha, design) < power:
        return None
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rate_power(rate, middle, n, alpha, design) < power else (low, middle)
    return high


def _spreads(rate: float, effect: float, design: Design, discordant: float | None) -> tuple[float, float]:
    """Standard deviation of sqrt(n) times the estimated difference: with no effect, and with this one."""
    other = _other(rate, effect)
    if design == "unpaired":
        middle = (rate + other) / 2.0
        return (
            math.sqrt(2.0 * middle * (1.0 - middle)),
            math.sqrt(rate * (1.0 - rate) + other * (1.0 - other)),
        )
    share = independent_discordance(rate, effect) if discordant is None else discordant
    if not abs(effect) <= share <= 1.0:
        raise ValueError(f"the share of pairs that differ lies between |effect| = {abs(effect):g} and 1, got {share:g}")
    return math.sqrt(share), math.sqrt(max(0.0, share - effect * effect))


def _other(rate: float, effect: float) -> float:
    if effect == 0.0:
        raise ValueError("an effect of 0 is never found, whatever the number of outcomes")
    other = rate + effect
    if not (0.0 <= rate <= 1.0 and 0.0 <= other <= 1.0):
        raise ValueError(f"rates lie between 0 and 1, got {rate:g} and {other:g}")
    return other
