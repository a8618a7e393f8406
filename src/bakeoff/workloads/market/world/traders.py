"""Background traders.

Each has a real account and leans, by its kind, on the exact public belief, the trend, the feed's sentiment, chance or
the premium. None knows more than the public, so order flow tells a careful reader nothing new.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import philox, rules
from bakeoff.workloads.market.world.feed import append_post
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import FloatRow, IntRow, WordRow
from bakeoff.workloads.market.world.markets import buy_shares, sell_shares
from bakeoff.workloads.market.world.perps import LEAST_PERP, close_perp, depth_of, open_perp
from bakeoff.workloads.market.world.philox import LANES, below, bits_of, draw, rough_normal, signed, uniform
from bakeoff.workloads.market.world.stories import chance, growth_ahead, public_belief

SCHEME_TICKS, PUMP_TICKS = 12, 7
"""A manipulator's scheme: it pushes one target for the first ticks and unwinds in the rest."""

FAINT = 0.08
"""A trader whose lean is weaker than this does not trade."""

POOREST = at.STAKE // 20
"""A trader with less cash than this leaves, and a new one takes the account over with fresh money from the house."""

FULLEST = 8.0
"""A trader's perpetual position stays below this many of its largest orders."""

TREND_SCALE, PREMIUM_SCALE, GROWTH_SCALE = 12.0, 400.0, 12.0


@kernel
def traders_act(i: IntRow, f: FloatRow, r: FloatRow, words: WordRow, turns: WordRow, width: int, lane: int) -> None:
    """The traders that wake take their turns, as `philox.draw_tick` listed them. `turns` has rows of `width`."""
    last: int = signed(words[philox.LAST_TURN * LANES + lane])
    turn: int = signed(words[philox.FIRST_TURN * LANES + lane])
    while turn < last:
        act(i, f, r, turns, width, turn)
        turn += 1


@kernel
def act(i: IntRow, f: FloatRow, r: FloatRow, turns: WordRow, width: int, turn: int) -> None:
    """One trader looks at one market or perpetual and perhaps trades it."""
    trader: int = signed(turns[philox.TRADER * width + turn])
    words = philox.DECISION_WORDS
    where, luck = turns[words * width + turn], turns[(words + 1) * width + turn]
    how_much, style = turns[(words + 2) * width + turn], turns[(words + 3) * width + turn]
    h, row = i[at.SEATS] + trader, rules.trader_row(trader)
    if i[at.cash_of(i, h)] < POOREST:
        i[at.cash_of(i, h)] += at.STAKE
        i[at.house_of(i, at.MAKER)] -= at.STAKE
        i[at.book_of(i, h) + at.DEPOSITS] += at.STAKE
    # What it would bet at most, and its mood.
    bet, lean = r[row + rules.CAP] * (0.4 + 0.6 * uniform(how_much)), r[row + rules.NOISE] * rough_normal(luck)
    markets = i[at.MARKETS]
    target = below(where, markets + i[at.PERPS])
    if r[row + rules.MANIPULATES] > 0.0:
        # All ticks of a scheme draw the same words, so target and direction stay the same without being stored.
        scheme, way, _, _ = draw(i, i[at.TICK] // SCHEME_TICKS, philox.SCHEME, trader)
        target = below(scheme, markets + i[at.PERPS])
        lean = 1.0 if uniform(way) < 0.5 else -1.0
    # The slot may be between two questions.
    if target < markets and i[at.market_of(i, target) + at.OPEN] == 0:
        return
    if r[row + rules.MANIPULATES] > 0.0:
        if i[at.TICK] % SCHEME_TICKS >= PUMP_TICKS:
            unwind(i, f, r, target, h)
            return
        bet = pump(i, f, r, trader, target, lean, bet, bits_of(style, 0, 12))
    if target < markets:
        lean_market(i, f, r, target, h, lean + market_lean(i, f, r, target, row), bet)
    else:
        a = target - markets
        lean_perp(i, f, r, a, h, lean + perp_lean(i, f, r, a, row), bet * rules.PERP_SCALE)


@kernel
def market_lean(i: IntRow, f: FloatRow, r: FloatRow, m: int, row: int) -> float:
    """How much the trader leans towards YES; 1 is all it would bet."""
    a, quote = i[at.market_of(i, m) + at.ASSET], at.prices_of(i, m)
    lean = r[row + rules.MOMENTUM] * (f[quote + at.PRICE_YES] - f[quote + at.SLOW])
    lean += r[row + rules.FEELING] * f[a * at.ASSET_FLOATS + at.SENTIMENT]
    if r[row + rules.BELIEF] > 0.0:
        lean += r[row + rules.BELIEF] * (chance(i, f, r, m, public_belief(f, a)) - f[quote + at.PRICE_YES])
    return lean


@kernel
def perp_lean(i: IntRow, f: FloatRow, r: FloatRow, a: int, row: int) -> float:
    """How much the trader leans towards LONG."""
    floats = a * at.ASSET_FLOATS
    lean = (
        r[row + rules.MOMENTUM] * f[floats + at.TREND] * TREND_SCALE + r[row + rules.FEELING] * f[floats + at.SENTIMENT]
    )
    lean -= r[row + rules.PREMIUM] * f[floats + at.MARKUP] * PREMIUM_SCALE
    if r[row + rules.BELIEF] > 0.0:
        due = i[at.asset_of(i, a) + at.DUE_TICK]
        lean += growth_ahead(i, r, a, due, public_belief(f, a)) * GROWTH_SCALE
    return lean


@kernel
def lean_market(i: IntRow, f: FloatRow, r: FloatRow, m: int, h: int, lean: float, bet: float) -> None:
    """Move the market that way: sell the other side while there is some, else buy."""
    if abs(lean) < FAINT:
        return
    amount = math.floor(min(abs(lean), 1.0) * bet * at.MICRO)
    other = at.NO if lean > 0.0 else at.YES
    held = i[at.holding_of(i, m, h) + other]
    if held > 0:
        p = f[at.prices_of(i, m) + at.PRICE_YES]
        p = p if other == at.YES else 1.0 - p
        sell_shares(i, f, r, h, m, other, held if p * held <= amount else math.floor(amount / p))
    else:
        buy_shares(i, f, r, h, m, 1 - other, amount)


@kernel
def lean_perp(i: IntRow, f: FloatRow, r: FloatRow, a: int, h: int, lean: float, bet: float) -> None:
    """Move the perpetual that way: reduce an opposite position, else open or add at leverage 2."""
    if abs(lean) < FAINT:
        return
    size = math.floor(min(abs(lean), 1.0) * bet * at.MICRO)
    sign, price, held = (
        1 if lean > 0.0 else -1,
        f[a * at.ASSET_FLOATS + at.PRICE],
        i[at.position_of(i, a, h) + at.UNITS],
    )
    if held * sign < 0:
        close_perp(i, f, r, h, a, math.floor(max(size, LEAST_PERP) * 1e3 / price) + 1, False)
    elif abs(held) * 1e-3 * price < FULLEST * bet * at.MICRO:
        open_perp(i, f, r, h, a, sign, size, 2.0)


@kernel
def pump(i: IntRow, f: FloatRow, r: FloatRow, trader: int, target: int, way: float, bet: float, style: int) -> float:
    """Spread a rumour, drawn without regard to the truth. Returns how much to bet on it."""
    markets = i[at.MARKETS]
    a = target - markets if target >= markets else i[at.market_of(i, target) + at.ASSET]
    if style & 1:
        market = i[at.market_of(i, target) + at.ID] if target < markets else -1
        append_post(i, at.BY_TRADER, trader, a, 1 if way > 0.0 else -1, market, style)
        f[a * at.ASSET_FLOATS + at.SENTIMENT] += 0.3 * way
    # Manipulators bet more in a pump-and-dump, but never more than a twentieth of the depth.
    bet *= r[rules.regime_row(i[at.asset_of(i, a) + at.REGIME]) + rules.PUMP]
    return min(bet, 0.05 * depth_of(i, r, a) / rules.PERP_SCALE)


@kernel
def unwind(i: IntRow, f: FloatRow, r: FloatRow, target: int, h: int) -> None:
    """Sell or close everything the manipulator holds in its target."""
    markets = i[at.MARKETS]
    if target >= markets:
        units = abs(i[at.position_of(i, target - markets, h) + at.UNITS])
        if units > 0:
            close_perp(i, f, r, h, target - markets, units, False)
        return
    for side in range(2):
        count = i[at.holding_of(i, target, h) + side]
        if count > 0:
            sell_shares(i, f, r, h, target, side, count)
