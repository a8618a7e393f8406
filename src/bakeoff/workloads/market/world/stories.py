"""Stories, and what can be inferred about them.

Each asset is always in a story. Its hidden direction theta (-1, 0 or 1) drives the index until the announcement; then the
next story begins. Sources make claims about theta in the public feed, and chats receive tips.

Inference is exact: theta takes three values, so a belief is three log-weights per asset. By Bayes' rule a claim of a source
with reliability p multiplies the weight of the claimed value by p and the others by (1 - p) / 2, and an index return multiplies
each weight by its normal density. The chance of a question is then a mixture of three normal distribution functions.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.feed import append_message, append_post
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import (
    ASSET,
    ASSET_FLOATS,
    ASSETS,
    AT_CLAIM_WEIGHTS,
    AT_HEARD,
    AT_TIPS,
    BEGAN,
    BY_SOURCE,
    BY_WIRE,
    CHATS,
    DUE,
    DUE_TICK,
    EVENT,
    KIND,
    LAST,
    NO_NEWS,
    PRICE,
    PUSH,
    RECORD,
    REGIME,
    RELIABILITY,
    RETURN,
    SCORE,
    SENTIMENT,
    SINCE,
    SOURCES,
    START,
    STORY,
    STRIKE,
    THETA,
    TICK,
    TIPS,
    TREND,
    WEIGHT,
    FloatRow,
    IntRow,
    WordRow,
    asset_of,
    market_of,
    prices_of,
)
from bakeoff.workloads.market.world.numerics import exp, exp_near_0, log, normal_cdf
from bakeoff.workloads.market.world.perps import push_to
from bakeoff.workloads.market.world.philox import (
    LANES,
    STORY_START,
    TIP_WORDS,
    Word,
    below,
    bits_of,
    draw,
    low_bits,
    uniform,
)
from bakeoff.workloads.market.world.rules import (
    CLAIM_RATE,
    DRAWN,
    DRIFT,
    EXPOSURE,
    FALL,
    JUMP,
    KINDS_DRAWN,
    LIQUIDITY,
    LOG_PRIOR,
    LOG_Z,
    LONGEST,
    PRECISION,
    PRIOR,
    RELAX,
    SHORTEST,
    SIGMA,
    STEP,
    TIP_RATE,
    VARIANCE,
    regime_row,
    story_row,
)

NEWS_WEIGHT = 0.25
"""How far one claim moves the feed's sentiment."""

Belief = tuple[float, float, float]
"""P(theta = -1), P(theta = 0), P(theta = +1)."""


# -- what happens


@kernel
def begin_story(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """Draw the next story of asset `a` and forget what was said about the last one."""
    asset, at = asset_of(i, a), a * ASSET_FLOATS
    which, length, direction, _ = draw(i, i[TICK], STORY_START, a)
    kind = int(r[DRAWN + below(which, int(r[KINDS_DRAWN]))])
    u, law = uniform(direction), regime_row(kind)
    # The push is relative to depth. Where there is more depth it weighs less; where there is less it must not grow, or
    # someone could push a deep market and gain when it turns shallow.
    was = r[regime_row(i[asset + REGIME]) + LIQUIDITY]
    push_to(f, r, a, f[at + PUSH] * min(1.0, was / r[law + LIQUIDITY]))
    i[asset + THETA] = -1 if u < r[law + PRIOR] else (0 if u < r[law + PRIOR] + r[law + PRIOR + 1] else 1)
    i[asset + REGIME] = kind
    i[asset + START] = i[TICK]
    i[asset + DUE_TICK] = i[TICK] + SHORTEST + below(length, LONGEST - SHORTEST + 1)
    i[asset + STORY] += 1
    f[at + SINCE] = 0.0
    f[at + BEGAN] = f[at + PRICE]
    f[at + SCORE] = 0.0
    for theta in range(3):
        f[at + WEIGHT + theta] = r[law + LOG_PRIOR + theta]
    for weight in range(TIPS):
        f[i[AT_TIPS] + a * TIPS + weight] = 0.0
    for source in range(SOURCES):
        i[i[AT_HEARD] + a * SOURCES + source] = NO_NEWS


@kernel
def step_asset(i: IntRow, f: FloatRow, r: FloatRow, a: int, shock: float, news: Word) -> None:
    """Move asset `a` to this tick: its index, then an announcement with the next story, or perhaps a claim.

    `shock` is a standard normal deviate. The `news` word has 8 bits for whether a source speaks, 6 for which one and 18
    for what it says.
    """
    asset, at = asset_of(i, a), a * ASSET_FLOATS
    kind, start, due, theta = i[asset + REGIME], i[asset + START], i[asset + DUE_TICK], i[asset + THETA]
    now, law = story_row(kind, due - start, i[TICK] - start), regime_row(kind)
    moved = r[law + DRIFT + 1 + theta] * r[now + STEP] + r[now + SIGMA] * shock
    total = moved - r[now + FALL]
    if i[TICK] == due:
        total += r[law + JUMP + 1 + theta]
    f[at + RETURN] = total
    f[at + PRICE] *= exp_near_0(total)
    f[at + SINCE] += total
    f[at + TREND] = 0.8 * (f[at + TREND] + total)
    f[at + SENTIMENT] *= 0.9
    push_to(f, r, a, f[at + PUSH] * r[RELAX])
    if i[TICK] == due:
        announce(i, f, r, a, low_bits(news))
        return
    # The log-density of the return under each theta, less the part that all three share: (d x - d^2 / 2) / sigma^2.
    for value in range(3):
        drift = r[law + DRIFT + value] * r[now + STEP]
        f[at + WEIGHT + value] += drift * (moved - 0.5 * drift) * r[now + PRECISION]
    if bits_of(news, 24, 8) < r[CLAIM_RATE] * 256.0:
        claim_arrives(i, f, a, news, low_bits(news))


@kernel
def claimed(theta: int, reliability: float, u: float) -> int:
    """What a source of that reliability says: the truth, or one of the other two values evenly."""
    if u < reliability:
        return theta
    other = 1 if (u - reliability) * 2.0 < 1.0 - reliability else 2
    return (theta + 1 + other) % 3 - 1


@kernel
def claim_arrives(i: IntRow, f: FloatRow, a: int, news: Word, style: int) -> None:
    """A source posts a claim about asset `a`."""
    source = bits_of(news, 18, 6) * SOURCES >> 6
    asset, at, reliability = asset_of(i, a), a * ASSET_FLOATS, i[RELIABILITY + source] * 1e-3
    claim = claimed(i[asset + THETA], reliability, (bits_of(news, 0, 18) + 0.5) * 2.0**-18)
    f[at + WEIGHT + 1 + claim] += f[i[AT_CLAIM_WEIGHTS] + source]
    i[i[AT_HEARD] + a * SOURCES + source] = claim
    f[at + SENTIMENT] += NEWS_WEIGHT * claim
    # SCORE is public, so it weighs the claim by the source's record (with one right claim in three added) and not by
    # its hidden reliability.
    trust = (i[RECORD + 2 * source] + 1.0) / (i[RECORD + 2 * source + 1] + 3.0) - 1.0 / 3.0
    f[at + SCORE] += claim * (0.2 + trust)
    append_post(i, BY_SOURCE, source, a, claim, -1, style)


@kernel
def announce(i: IntRow, f: FloatRow, r: FloatRow, a: int, style: int) -> None:
    """Publish theta, update the sources' records, and begin the next story."""
    asset = asset_of(i, a)
    theta = i[asset + THETA]
    append_post(i, BY_WIRE, 0, a, theta, -1, style)
    for source in range(SOURCES):
        heard = i[i[AT_HEARD] + a * SOURCES + source]
        if heard != NO_NEWS:
            i[RECORD + 2 * source] += 1 if heard == theta else 0
            i[RECORD + 2 * source + 1] += 1
    i[asset + LAST] = theta
    begin_story(i, f, r, a)


@kernel
def drop_tip(i: IntRow, f: FloatRow, r: FloatRow, words: WordRow, lane: int) -> None:
    """Perhaps one chat gets a tip about one asset."""
    arrival, where = words[TIP_WORDS * LANES + lane], words[(TIP_WORDS + 1) * LANES + lane]
    about, said = words[(TIP_WORDS + 2) * LANES + lane], words[(TIP_WORDS + 3) * LANES + lane]
    if uniform(arrival) >= r[TIP_RATE] * CHATS:
        return
    chat, a = below(where, CHATS), below(about, i[ASSETS])
    reliability = i[RELIABILITY + SOURCES + chat] * 1e-3
    claim = claimed(i[asset_of(i, a) + THETA], reliability, uniform(said))
    f[i[AT_TIPS] + a * TIPS + 3 * chat + 1 + claim] += f[i[AT_CLAIM_WEIGHTS] + SOURCES + chat]
    append_message(i, chat, BY_SOURCE, chat, a, claim, low_bits(where))


# -- what can be inferred


@kernel
def claim_weight(reliability: float) -> float:
    """What a claim adds to the log-weight of the value it names: ln(p / ((1 - p) / 2))."""
    return log(2.0 * reliability / (1.0 - reliability))


@kernel
def public_belief(f: FloatRow, a: int) -> Belief:
    """The belief about the running story given public claims and returns alone."""
    at = a * ASSET_FLOATS + WEIGHT
    down, flat, up = f[at], f[at + 1], f[at + 2]
    top = max(down, flat, up)
    down, flat, up = exp(down - top), exp(flat - top), exp(up - top)
    scale = 1.0 / (down + flat + up)
    return down * scale, flat * scale, up * scale


@kernel
def story_span(i: IntRow, a: int, due: int) -> tuple[int, int, int]:
    """Rows of the story table now and at tick `due`, which lies in the running story, and the row of its regime."""
    asset = asset_of(i, a)
    kind, start = i[asset + REGIME], i[asset + START]
    length = i[asset + DUE_TICK] - start
    return story_row(kind, length, i[TICK] - start), story_row(kind, length, due - start), regime_row(kind)


@kernel
def chance_above(i: IntRow, f: FloatRow, r: FloatRow, a: int, due: int, strike: float, belief: Belief) -> float:
    """P(index > strike at tick `due`), which lies in the running story, given the belief about it."""
    now, then, law = story_span(i, a, due)
    variance = r[then + VARIANCE] - r[now + VARIANCE]
    middle = log(f[a * ASSET_FLOATS + PRICE] / strike) - (r[then + LOG_Z] - r[now + LOG_Z]) - 0.5 * variance
    scale = 1.0 / math.sqrt(variance)
    exposure = r[then + EXPOSURE] - r[now + EXPOSURE]
    jumps = 1.0 if due == i[asset_of(i, a) + DUE_TICK] else 0.0
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
    now, then, law = story_span(i, a, due)
    exposure = r[then + EXPOSURE] - r[now + EXPOSURE]
    jumps = 1.0 if due == i[asset_of(i, a) + DUE_TICK] else 0.0
    total = 0.0
    for theta in range(3):
        total += belief[theta] * exp(r[law + DRIFT + theta] * exposure + r[law + JUMP + theta] * jumps)
    return total * exp(r[now + LOG_Z] - r[then + LOG_Z]) - 1.0
