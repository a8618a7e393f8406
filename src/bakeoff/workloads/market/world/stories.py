"""Stories: each asset is always in one. Its hidden direction drives the index until it is announced; then the next begins.

Lengths are drawn from a law that knows nothing of the scenario's end, so a longer world begins like a shorter one.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.belief import forget, hear
from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.feed import publish, whisper
from bakeoff.workloads.market.world.layout import (
    ASSET_FLOATS,
    ASSETS,
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
    asset_of,
)
from bakeoff.workloads.market.world.rules import (
    CLAIM_RATE,
    DRAWN,
    DRIFT,
    EXPOSURE,
    JUMP,
    KINDS_DRAWN,
    LOG_Z,
    LONGEST,
    PRIOR,
    RELAX,
    SHORTEST,
    SIGMA,
    STORY_ROW,
    TIP_RATE,
    regime_row,
    story_row,
)
from bakeoff.workloads.market.world.streams import (
    ASSET_STEP,
    STORY_START,
    TIP,
    Word,
    below,
    draw,
    low_bits,
    normal,
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
    i[asset + THETA] = -1 if u < r[law + PRIOR] else (0 if u < r[law + PRIOR] + r[law + PRIOR + 1] else 1)
    i[asset + REGIME] = kind
    i[asset + START] = i[TICK]
    i[asset + DUE_TICK] = i[TICK] + SHORTEST + below(length, LONGEST - SHORTEST + 1)
    i[asset + STORY] += 1
    f[a * ASSET_FLOATS + BEGAN] = f[a * ASSET_FLOATS + PRICE]
    f[a * ASSET_FLOATS + SCORE] = 0.0
    forget(f, r, a, kind)
    for weight in range(TIPS):
        f[i[AT_TIPS] + a * TIPS + weight] = 0.0
    for source in range(SOURCES):
        i[i[AT_HEARD] + a * SOURCES + source] = NO_NEWS


@kernel
def claimed(theta: int, reliability: float, word: Word) -> int:
    """What a source of that reliability says: the truth, or evenly one of the other two."""
    u = uniform(word)
    if u < reliability:
        return theta
    other = 1 if (u - reliability) * 2.0 < 1.0 - reliability else 2
    return (theta + 1 + other) % 3 - 1


@kernel
def step_asset(i: IntRow, f: FloatRow, r: FloatRow, a: int) -> None:
    """Move asset `a` to this tick: its index, and an announcement with the next story, or perhaps a claim."""
    asset, at = asset_of(i, a), a * ASSET_FLOATS
    shock, arrival, said, who = draw(i, i[TICK], ASSET_STEP, a)
    kind, start, due, theta = i[asset + REGIME], i[asset + START], i[asset + DUE_TICK], i[asset + THETA]
    now, law = story_row(kind, due - start, i[TICK] - start), regime_row(kind)
    before = now - STORY_ROW
    sigma, exposure = r[now + SIGMA], r[now + EXPOSURE] - r[before + EXPOSURE]
    moved = r[law + DRIFT + 1 + theta] * exposure + sigma * normal(shock)
    total = moved - (r[now + LOG_Z] - r[before + LOG_Z]) - 0.5 * sigma * sigma
    if i[TICK] == due:
        total += r[law + JUMP + 1 + theta]
    f[at + RETURN] = total
    f[at + PRICE] *= math.exp(total)
    f[at + TREND] = 0.8 * (f[at + TREND] + total)
    f[at + SENTIMENT] *= 0.9
    f[at + PUSH] *= r[RELAX]
    if i[TICK] == due:
        announce(i, f, r, a, low_bits(who))
        return
    precision = 1.0 / (sigma * sigma)
    for value in range(3):
        drift = r[law + DRIFT + value] * exposure
        f[at + WEIGHT + value] += drift * (moved - 0.5 * drift) * precision
    if uniform(arrival) < r[CLAIM_RATE]:
        claim_arrives(i, f, a, who, said)


@kernel
def claim_arrives(i: IntRow, f: FloatRow, a: int, who: Word, said: Word) -> None:
    """A source speaks about asset `a`."""
    source = below(who, SOURCES)
    asset, reliability = asset_of(i, a), i[RELIABILITY + source] * 1e-3
    claim = claimed(i[asset + THETA], reliability, said)
    hear(f, a * ASSET_FLOATS + WEIGHT, claim, reliability)
    i[i[AT_HEARD] + a * SOURCES + source] = claim
    f[a * ASSET_FLOATS + SENTIMENT] += NEWS_WEIGHT * claim
    trust = (i[RECORD + 2 * source] + 1.0) / (i[RECORD + 2 * source + 1] + 3.0) - 1.0 / 3.0
    f[a * ASSET_FLOATS + SCORE] += claim * (0.2 + trust)
    publish(i, BY_SOURCE, source, a, claim, -1, low_bits(who))


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
def drop_tip(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Perhaps one chat gets a tip about one asset."""
    arrival, where, about, said = draw(i, i[TICK], TIP, 0)
    if uniform(arrival) >= r[TIP_RATE] * CHATS:
        return
    chat, a = below(where, CHATS), below(about, i[ASSETS])
    reliability = i[RELIABILITY + SOURCES + chat] * 1e-3
    claim = claimed(i[asset_of(i, a) + THETA], reliability, said)
    hear(f, i[AT_TIPS] + a * TIPS + 3 * chat, claim, reliability)
    whisper(i, chat, BY_SOURCE, chat, a, claim, low_bits(where))
