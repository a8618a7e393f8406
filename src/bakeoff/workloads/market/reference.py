"""What the Bayes player earns: in one world, for regret; and on average in worlds like it, for the optimality score.

Optimality is 100 * (agent - null) / (Bayes - null). The null agent earns exactly 0. In a single world the Bayes player's
gain is partly luck and may be negative, so the score's denominator is its mean over worlds of the same scenario that nobody
else plays: a constant, so that means of the score are the score of the mean.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import fmean, stdev

from bakeoff.workloads.market.agents.bayes import KellyBayes
from bakeoff.workloads.market.ledger import MICRO, micro
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world.world import World

CALIBRATION_SECRET = "bakeoff-market-calibration"
"""Calibration worlds have a secret of their own, so they are nobody's test worlds."""
FEWEST, WORLDS = 2, 16
TICKS = 1_000
"""Long scenarios vary less from world to world: fewer worlds, and about as many ticks in all."""
DOUBLINGS = 2
PRECISE, TOLD = 4.0, 2.0
"""Means over their standard errors: with the first no more worlds are needed, without the second there is no score."""


@lru_cache(maxsize=4096)
def bayes_pnl(scenario: Scenario, key: bytes) -> float:
    """Dollars that the Bayes player earns in the world of this key."""
    world = World.from_key(scenario, key)
    Episode(world, [KellyBayes()]).run()
    account = world.account(0)
    return (micro(account.equity) - micro(account.initial)) / MICRO


@lru_cache(maxsize=64)
def bayes_gain(scenario: Scenario) -> float | None:
    """The Bayes player's mean over the calibration worlds of a scenario; None where it is not told from 0.

    A few ticks leave it nothing to earn, and dividing by what chance left would make any score.
    """
    count = max(FEWEST, min(WORLDS, TICKS // scenario.ticks))
    for worlds in (count << doubling for doubling in range(DOUBLINGS + 1)):
        earned = [bayes_pnl(scenario, world_key(scenario, seed, CALIBRATION_SECRET)) for seed in range(worlds)]
        mean, error = fmean(earned), stdev(earned) / math.sqrt(worlds)
        if mean > PRECISE * error:
            break
    return mean if mean > TOLD * error else None


def optimality(pnl: float, scenario: Scenario) -> float | None:
    """None where the Bayes player itself finds nothing to earn."""
    gain = bayes_gain(scenario)
    return None if gain is None else 100 * pnl / gain
