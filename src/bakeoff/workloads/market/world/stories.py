"""Stories: each asset is always in one. Its hidden direction drives the index until it is announced; then the next begins.

Lengths are drawn from a law that knows nothing of the scenario's end, so a longer world begins like a shorter one.
"""

from __future__ import annotations

from bakeoff.workloads.market.world.belief import forget
from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.feed import publish, whisper
from bakeoff.workloads.market.world.lanes import LANES, NEWS, TIP_WORDS
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    ASSETS,
    AT_CLAIM_WEIGHTS,
    AT_HEARD,
    AT_TIPS,
    BEGAN,
    BY_SOURCE,
    BY_WIRE,
    CHATS,
    DUE_TICK,
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
    THETA,
    TICK,
    TIPS,
    TREND,
    WEIGHT,
    FloatRow,
    IntRow,
    WordRow,
    asset_of,
)
from bakeoff.workloads.market.world.numerics import exp_near_0
from bakeoff.workloads.market.world.perps import push_to
from bakeoff.workloads.market.world.rules import (
    CLAIM_RATE,
    DRAWN,
    DRIFT,
    FALL,
    JUMP,
    KINDS_DRAWN,
    LIQUIDITY,
    LONGEST,
    PRECISION,
    PRIOR,
    RELAX,
    SHORTEST,
    SIGMA,
    STEP,
    TIP_RATE,
    regime_row,
    story_row,
)
from bakeoff.workloads.market.world.streams import (
    STORY_START,
    Word,
    below,
    bits_of,
    draw,
    low_bits,
    uniform,
)

NEWS_WEIGHT = 0.25
"""How far one claim moves the feed's sentiment."""


@kernel
def begin_story(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    asset = asset_of(i, a)
    which, length, direction, _ = draw(i, i[TICK], STORY_START, a)
    kind = int(r[DRAWN + below(which, int(r[KINDS_DRAWN]))])
    u, law = uniform(direction), regime_row(kind)
    was = r[regime_row(i[asset + REGIME]) + LIQUIDITY]
    push_to(f, r, a, f[a * ASSET_FLOATS + PUSH] * min(1.0, was / r[law + LIQUIDITY]))  # weighs less where there is more
    i[asset + THETA] = -1 if u < r[law + PRIOR] else (0 if u < r[law + PRIOR] + r[law + PRIOR + 1] else 1)
    i[asset + REGIME] = kind
    i[asset + START] = i[TICK]
    i[asset + DUE_TICK] = i[TICK] + SHORTEST + below(length, LONGEST - SHORTEST + 1)
    i[asset + STORY] += 1
    f[a * ASSET_FLOATS + SINCE] = 0.0
    f[a * ASSET_FLOATS + BEGAN] = f[a * ASSET_FLOATS + PRICE]
    f[a * ASSET_FLOATS + SCORE] = 0.0
    forget(f, r, a, kind)
    for weight in range(TIPS):
        f[i[AT_TIPS] + a * TIPS + weight] = 0.0
    for source in range(SOURCES):
        i[i[AT_HEARD] + a * SOURCES + source] = NO_NEWS


@kernel
def claimed(theta: int, reliability: float, u: float) -> int:
    """What a source of that reliability says: the truth, or evenly one of the other two."""
    if u < reliability:
        return theta
    other = 1 if (u - reliability) * 2.0 < 1.0 - reliability else 2
    return (theta + 1 + other) % 3 - 1


@kernel
def step_assets(i: IntRow, f: FloatRow, r: FloatRow, shocks: FloatRow, words: WordRow, lane: int) -> None:
    """Move all assets to this tick."""
    for a in range(i[ASSETS]):
        step_asset(i, f, r, a, shocks[a * LANES + lane], words[(NEWS + a) * LANES + lane])


@kernel
def step_asset(i: IntRow, f: FloatRow, r: FloatRow, a: int, shock: float, news: Word) -> None:
    """Move asset `a`: its index, and an announcement with the next story, or perhaps a claim.

    The news word has 8 bits for whether a source speaks, 6 for which and 18 for what it says.
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
    for value in range(3):
        drift = r[law + DRIFT + value] * r[now + STEP]
        f[at + WEIGHT + value] += drift * (moved - 0.5 * drift) * r[now + PRECISION]
    if bits_of(news, 24, 8) < r[CLAIM_RATE] * 256.0:
        claim_arrives(i, f, a, news, low_bits(news))


@kernel
def claim_arrives(i: IntRow, f: FloatRow, a: int, news: Word, style: int) -> None:
    """A source speaks about asset `a`."""
    source = bits_of(news, 18, 6) * SOURCES >> 6
    asset, reliability = asset_of(i, a), i[RELIABILITY + source] * 1e-3
    claim = claimed(i[asset + THETA], reliability, (bits_of(news, 0, 18) + 0.5) * 2.0**-18)
    f[a * ASSET_FLOATS + WEIGHT + 1 + claim] += f[i[AT_CLAIM_WEIGHTS] + source]
    i[i[AT_HEARD] + a * SOURCES + source] = claim
    f[a * ASSET_FLOATS + SENTIMENT] += NEWS_WEIGHT * claim
    trust = (i[RECORD + 2 * source] + 1.0) / (i[RECORD + 2 * source + 1] + 3.0) - 1.0 / 3.0
    f[a * ASSET_FLOATS + SCORE] += claim * (0.2 + trust)
    publish(i, BY_SOURCE, source, a, claim, -1, style)


@kernel
def announce(i: IntRow, f: FloatRow, r: FloatRow, a: int, style: int) -> None:
    """The truth comes out, sources' records are settled, and the next story begins."""
    asset = asset_of(i, a)
    theta = i[asset + THETA]
    publish(i, BY_WIRE, 0, a, theta, -1, style)
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
    whisper(i, chat, BY_SOURCE, chat, a, claim, low_bits(where))
