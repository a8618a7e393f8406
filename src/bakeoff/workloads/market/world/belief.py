"""Exact inference: what the public news, and the tips one has heard, say about a running story.

Theta takes three values, so a belief is three log-weights per asset. A claim of a source with reliability p multiplies the
weight of the claimed value by p and the others by (1 - p) / 2; an index return multiplies each by its normal density.
The chance of a question is then a mixture of three normal distribution functions.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    ASSET,
    ASSET_FLOATS,
    DUE,
    DUE_TICK,
    EVENT,
    KIND,
    PRICE,
    REGIME,
    START,
    STRIKE,
    TICK,
    WEIGHT,
    FloatRow,
    IntRow,
    asset_of,
    market_of,
    prices_of,
)
from bakeoff.workloads.market.world.numerics import exp, log, normal_cdf
from bakeoff.workloads.market.world.rules import (
    DRIFT,
    EXPOSURE,
    JUMP,
    LOG_PRIOR,
    LOG_Z,
    VARIANCE,
    regime_row,
    story_row,
)

Belief = tuple[float, float, float]
"""P(theta = -1), P(theta = 0), P(theta = +1)."""


@kernel
def forget(f: FloatRow, r: FloatRow, a: int, kind: int) -> None:
    """A new story: back to the prior."""
    for theta in range(3):
        f[a * ASSET_FLOATS + WEIGHT + theta] = r[regime_row(kind) + LOG_PRIOR + theta]


@kernel
def claim_weight(reliability: float) -> float:
    """What a claim adds to the log-weight of the value it names."""
    return log(2.0 * reliability / (1.0 - reliability))


@kernel
def belief_from(down: float, flat: float, up: float) -> Belief:
    """Probabilities from log-weights."""
    top = max(down, flat, up)
    down, flat, up = exp(down - top), exp(flat - top), exp(up - top)
    scale = 1.0 / (down + flat + up)
    return down * scale, flat * scale, up * scale


@kernel
def public_belief(f: FloatRow, a: int) -> Belief:
    """What public claims and returns alone say."""
    at = a * ASSET_FLOATS + WEIGHT
    return belief_from(f[at], f[at + 1], f[at + 2])


@kernel
def chance_above(i: IntRow, f: FloatRow, r: FloatRow, a: int, due: int, strike: float, belief: Belief) -> float:
    """P(index > strike at tick `due`), which lies in the running story, given the belief about it."""
    asset = asset_of(i, a)
    kind, start = i[asset + REGIME], i[asset + START]
    length = i[asset + DUE_TICK] - start
    now, then, law = story_row(kind, length, i[TICK] - start), story_row(kind, length, due - start), regime_row(kind)
    variance = r[then + VARIANCE] - r[now + VARIANCE]
    middle = log(f[a * ASSET_FLOATS + PRICE] / strike) - (r[then + LOG_Z] - r[now + LOG_Z]) - 0.5 * variance
    scale = 1.0 / math.sqrt(variance)
    exposure = r[then + EXPOSURE] - r[now + EXPOSURE]
    jumps = 1.0 if due - start == length else 0.0
    total = 0.0
    for theta in range(3):
        mean = middle + r[law + DRIFT + theta] * exposure + r[law + JUMP + theta] * jumps
        total += belief[theta] * normal_cdf(mean * scale)
    return total


@kernel
def chance(i: IntRow, f: FloatRow, r: FloatRow, m: int, belief: Belief) -> float:
    """P(YES) of the open market `m`, given the belief about its asset's story."""
    slot = market_of(i, m)
    if i[slot + KIND] == EVENT:
        return belief[2]
    return chance_above(i, f, r, i[slot + ASSET], i[slot + DUE], f[prices_of(i, m) + STRIKE], belief)


@kernel
def growth_ahead(i: IntRow, r: FloatRow, a: int, due: int, belief: Belief) -> float:
    """Expected growth of the index until tick `due` of the running story, given the belief; 0 under the prior."""
    asset = asset_of(i, a)
    kind, start = i[asset + REGIME], i[asset + START]
    length = i[asset + DUE_TICK] - start
    now, then, law = story_row(kind, length, i[TICK] - start), story_row(kind, length, due - start), regime_row(kind)
    exposure = r[then + EXPOSURE] - r[now + EXPOSURE]
    jumps = 1.0 if due - start == length else 0.0
    total = 0.0
    for theta in range(3):
        total += belief[theta] * exp(r[law + DRIFT + theta] * exposure + r[law + JUMP + theta] * jumps)
    return total * exp(r[now + LOG_Z] - r[then + LOG_Z]) - 1.0
