"""Stories, and what can be inferred about them.

Each asset is always in a story. Its hidden direction theta (-1, 0 or 1) drives the index until the announcement; then
the next story begins. Sources make claims about theta in the public feed, and chats receive tips.

Inference is exact: theta takes three values, so a belief is three log-weights per asset. By Bayes' rule a claim of a
source with reliability p multiplies the weight of the claimed value by p and the others by (1 - p) / 2, and an index
return multiplies each weight by its normal density. The chance of a question is then a mixture of three normal
distribution functions.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import philox, rules
from bakeoff.workloads.market.world.feed import append_message, append_post
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import FloatRow, IntRow, WordRow
from bakeoff.workloads.market.world.numerics import exp, exp_near_0, log, normal_cdf
from bakeoff.workloads.market.world.perps import push_to
from bakeoff.workloads.market.world.philox import LANES, Word, below, bits_of, draw, uniform

NEWS_WEIGHT = 0.25
"""How far one claim moves the feed's sentiment."""

Belief = tuple[float, float, float]
"""P(theta = -1), P(theta = 0), P(theta = +1)."""


# -- what happens


@kernel
def begin_story(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """Draw the next story of asset `a` and forget what was said about the last one."""
    asset, floats = at.asset_of(i, a), a * at.ASSET_FLOATS
    which, length, direction, _ = draw(i, i[at.TICK], philox.STORY_START, a)
    kind = int(r[rules.DRAWN + below(which, int(r[rules.KINDS_DRAWN]))])
    u, law = uniform(direction), rules.regime_row(kind)
    # The push is relative to depth. Where there is more depth it weighs less; where there is less it must not grow, or
    # someone could push a deep market and gain when it turns shallow.
    was = r[rules.regime_row(i[asset + at.REGIME]) + rules.LIQUIDITY]
    push_to(f, r, a, f[floats + at.PUSH] * min(1.0, was / r[law + rules.LIQUIDITY]))
    i[asset + at.THETA] = (
        -1 if u < r[law + rules.PRIOR] else (0 if u < r[law + rules.PRIOR] + r[law + rules.PRIOR + 1] else 1)
    )
    i[asset + at.REGIME] = kind
    i[asset + at.START] = i[at.TICK]
    i[asset + at.DUE_TICK] = i[at.TICK] + rules.SHORTEST + below(length, rules.LONGEST - rules.SHORTEST + 1)
    i[asset + at.STORY] += 1
    f[floats + at.SINCE] = 0.0
    f[floats + at.BEGAN] = f[floats + at.PRICE]
    f[floats + at.SCORE] = 0.0
    for theta in range(3):
        f[floats + at.WEIGHT + theta] = r[law + rules.LOG_PRIOR + theta]
    for weight in range(at.TIPS):
        f[i[at.AT_TIPS] + a * at.TIPS + weight] = 0.0
    for source in range(at.SOURCES):
        i[i[at.AT_HEARD] + a * at.SOURCES + source] = at.NO_NEWS


@kernel
def step_asset(i: IntRow, f: FloatRow, r: FloatRow, a: int, shock: float, news: Word) -> None:
    """Move asset `a` to this tick: its index, then an announcement with the next story, or perhaps a claim.

    `shock` is a standard normal deviate. The `news` word has 8 bits for whether a source speaks, 6 for which one and 18
    for what it says.
    """
    asset, floats = at.asset_of(i, a), a * at.ASSET_FLOATS
    kind, start, due, theta = i[asset + at.REGIME], i[asset + at.START], i[asset + at.DUE_TICK], i[asset + at.THETA]
    now, law = rules.story_row(kind, due - start, i[at.TICK] - start), rules.regime_row(kind)
    moved = r[law + rules.DRIFT + 1 + theta] * r[now + rules.STEP] + r[now + rules.SIGMA] * shock
    total = moved - r[now + rules.FALL]
    if i[at.TICK] == due:
        total += r[law + rules.JUMP + 1 + theta]
    f[floats + at.RETURN] = total
    f[floats + at.PRICE] *= exp_near_0(total)
    f[floats + at.SINCE] += total
    # Trend and mood decay with half-lives of three and seven ticks.
    f[floats + at.TREND] = 0.8 * (f[floats + at.TREND] + total)
    f[floats + at.SENTIMENT] *= 0.9
    push_to(f, r, a, f[floats + at.PUSH] * r[rules.RELAX])
    if i[at.TICK] == due:
        announce(i, f, r, a, bits_of(news, 0, 12))
        return
    # The log-density of the return under each theta, less the part that all three share: (d x - d^2 / 2) / sigma^2.
    for value in range(3):
        drift = r[law + rules.DRIFT + value] * r[now + rules.STEP]
        f[floats + at.WEIGHT + value] += drift * (moved - 0.5 * drift) * r[now + rules.PRECISION]
    if bits_of(news, 24, 8) < r[rules.CLAIM_RATE] * 256.0:
        claim_arrives(i, f, a, news, bits_of(news, 0, 12))


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
    source = bits_of(news, 18, 6) * at.SOURCES >> 6
    asset, floats, reliability = at.asset_of(i, a), a * at.ASSET_FLOATS, i[at.RELIABILITY + source] * 1e-3
    claim = claimed(i[asset + at.THETA], reliability, (bits_of(news, 0, 18) + 0.5) * 2.0**-18)
    f[floats + at.WEIGHT + 1 + claim] += f[i[at.AT_CLAIM_WEIGHTS] + source]
    i[i[at.AT_HEARD] + a * at.SOURCES + source] = claim
    f[floats + at.SENTIMENT] += NEWS_WEIGHT * claim
    # SCORE is public, so it weighs the claim by the source's record (with one right claim in three added) and not by
    # its hidden reliability.
    trust = (i[at.RECORD + 2 * source] + 1.0) / (i[at.RECORD + 2 * source + 1] + 3.0) - 1.0 / 3.0
    f[floats + at.SCORE] += claim * (0.2 + trust)
    append_post(i, at.BY_SOURCE, source, a, claim, -1, style)


@kernel
def announce(i: IntRow, f: FloatRow, r: FloatRow, a: int, style: int) -> None:
    """Publish theta, update the sources' records, and begin the next story."""
    asset = at.asset_of(i, a)
    theta = i[asset + at.THETA]
    append_post(i, at.BY_WIRE, 0, a, theta, -1, style)
    for source in range(at.SOURCES):
        heard = i[i[at.AT_HEARD] + a * at.SOURCES + source]
        if heard != at.NO_NEWS:
            i[at.RECORD + 2 * source] += 1 if heard == theta else 0
            i[at.RECORD + 2 * source + 1] += 1
    i[asset + at.LAST] = theta
    begin_story(i, f, r, a)


@kernel
def drop_tip(i: IntRow, f: FloatRow, r: FloatRow, words: WordRow, lane: int) -> None:
    """Perhaps one chat gets a tip about one asset."""
    first = philox.TIP_WORDS
    arrival, where = words[first * LANES + lane], words[(first + 1) * LANES + lane]
    about, said = words[(first + 2) * LANES + lane], words[(first + 3) * LANES + lane]
    if uniform(arrival) >= r[rules.TIP_RATE] * at.CHATS:
        return
    chat, a = below(where, at.CHATS), below(about, i[at.ASSETS])
    reliability = i[at.RELIABILITY + at.SOURCES + chat] * 1e-3
    claim = claimed(i[at.asset_of(i, a) + at.THETA], reliability, uniform(said))
    f[i[at.AT_TIPS] + a * at.TIPS + 3 * chat + 1 + claim] += f[i[at.AT_CLAIM_WEIGHTS] + at.SOURCES + chat]
    append_message(i, chat, at.BY_SOURCE, chat, a, claim, bits_of(where, 0, 12))


# -- what can be inferred


@kernel
def claim_weight(reliability: float) -> float:
    """What a claim adds to the log-weight of the value it names: ln(p / ((1 - p) / 2))."""
    return log(2.0 * reliability / (1.0 - reliability))


@kernel
def public_belief(f: FloatRow, a: int) -> Belief:
    """The belief about the running story given public claims and returns alone."""
    weights = a * at.ASSET_FLOATS + at.WEIGHT
    down, flat, up = f[weights], f[weights + 1], f[weights + 2]
    top = max(down, flat, up)
    down, flat, up = exp(down - top), exp(flat - top), exp(up - top)
    scale = 1.0 / (down + flat + up)
    return down * scale, flat * scale, up * scale


@kernel
def story_span(i: IntRow, a: int, due: int) -> tuple[int, int, int]:
    """Rows of the story table now and at tick `due`, which lies in the running story, and the row of its regime."""
    asset = at.asset_of(i, a)
    kind, start = i[asset + at.REGIME], i[asset + at.START]
    length = i[asset + at.DUE_TICK] - start
    return (
        rules.story_row(kind, length, i[at.TICK] - start),
        rules.story_row(kind, length, due - start),
        rules.regime_row(kind),
    )


@kernel
def chance(i: IntRow, f: FloatRow, r: FloatRow, m: int, belief: Belief) -> float:
    """P(YES) of the open market `m`, given the belief about its asset's story.

    For a question about the index that is P(index > strike when due): given theta, the log-price then is normal.
    """
    slot = at.market_of(i, m)
    if i[slot + at.KIND] == at.EVENT:
        return belief[2]
    a, due = i[slot + at.ASSET], i[slot + at.DUE]
    now, then, law = story_span(i, a, due)
    variance = r[then + rules.VARIANCE] - r[now + rules.VARIANCE]
    distance = log(f[a * at.ASSET_FLOATS + at.PRICE] / f[at.prices_of(i, m) + at.STRIKE])
    middle = distance - (r[then + rules.LOG_Z] - r[now + rules.LOG_Z]) - 0.5 * variance
    scale = 1.0 / math.sqrt(variance)
    exposure = r[then + rules.EXPOSURE] - r[now + rules.EXPOSURE]
    jumps = 1.0 if due == i[at.asset_of(i, a) + at.DUE_TICK] else 0.0
    total = 0.0
    for theta in range(3):
        mean = middle + r[law + rules.DRIFT + theta] * exposure + r[law + rules.JUMP + theta] * jumps
        total += belief[theta] * normal_cdf(mean * scale)
    return total


@kernel
def growth_ahead(i: IntRow, r: FloatRow, a: int, due: int, belief: Belief) -> float:
    """Expected growth of the index until tick `due` of the running story, given the belief; 0 under the prior."""
    now, then, law = story_span(i, a, due)
    exposure = r[then + rules.EXPOSURE] - r[now + rules.EXPOSURE]
    jumps = 1.0 if due == i[at.asset_of(i, a) + at.DUE_TICK] else 0.0
    total = 0.0
    for theta in range(3):
        total += belief[theta] * exp(r[law + rules.DRIFT + theta] * exposure + r[law + rules.JUMP + theta] * jumps)
    return total * exp(r[now + rules.LOG_Z] - r[then + rules.LOG_Z]) - 1.0
