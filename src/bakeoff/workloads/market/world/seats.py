"""What holders do, as kernels: what a seat does, sees and owns, and what background traders do.

In a batch, seat 0 of each world acts by one row of numbers (`play`) and sees one row of numbers (`observe`). All of
it is public or the seat's own. `World` goes through the entries at the end, which take the rows of a batch and act on
its first world.

A background trader has a real account and leans, by its kind, on the exact public belief, the trend, the feed's
sentiment, chance or the premium. None knows more than the public, so order flow tells a careful reader nothing new.
"""

from __future__ import annotations

import math
from typing import Any

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import philox, rules
from bakeoff.workloads.market.world.feed import append_message, append_post
from bakeoff.workloads.market.world.jit import entry, kernel, row
from bakeoff.workloads.market.world.layout import FloatRow, Floats, IntRow, Ints, Observations, WordRow
from bakeoff.workloads.market.world.markets import buy_shares, market_worth, proceeds, sell_shares
from bakeoff.workloads.market.world.perps import LEAST_PERP, close_perp, depth_of, open_perp, perp_worth
from bakeoff.workloads.market.world.philox import LANES, below, bits_of, draw, rough_normal, signed, uniform
from bakeoff.workloads.market.world.rules import FEE, LONGEST
from bakeoff.workloads.market.world.stories import chance, growth_ahead, public_belief

PASSIVE, TARGETS, DOLLARS = range(3)
"""How actions are read: not at all; as wanted positions -1, 0, 1; as signed dollars to trade now."""

BET = 100 * at.MICRO
SIZE = 1000 * at.MICRO
LEVERAGE = 2.0
"""What a target of 1 or -1 means: shares for 100 dollars, or 1000 dollars of a perpetual at leverage 2."""

MARKET_FEATURES = ("price", "opening_odds", "left", "moneyness", "event", "shares", "story_return", "claims")
ASSET_FEATURES = ("return", "story_return", "claims", "sentiment", "left", "premium", "position", "last")
ACCOUNT_FEATURES = ("cash", "equity")


# -- acting


@kernel
def play(i: IntRow, f: FloatRow, r: FloatRow, actions: FloatRow, mode: int) -> None:
    """Carry out one row of actions: a number for each market, then one for each perpetual.

    Orders that the world refuses are skipped.
    """
    markets = i[at.MARKETS]
    for m in range(markets):
        if i[at.market_of(i, m) + at.OPEN]:
            play_market(i, f, r, m, actions[m], mode)
    for a in range(i[at.PERPS]):
        if mode == DOLLARS:
            trade_perp(i, f, r, a, math.floor(actions[markets + a] * at.MICRO + 0.5))
        else:
            turn_perp(i, f, r, a, int(actions[markets + a]))


@kernel
def play_market(i: IntRow, f: FloatRow, r: FloatRow, m: int, action: float, mode: int) -> None:
    """Buy for signed dollars (NO when negative), or go from the side that is held to the one that is wanted."""
    if mode == DOLLARS:
        dollars = math.floor(action * at.MICRO + 0.5)
    else:
        want, net = int(action), i[at.note_of(i, m, 0) + at.NET]
        have = 1 if net > 0 else (-1 if net < 0 else 0)
        if want == have:
            return
        if have != 0:
            side = at.YES if have > 0 else at.NO
            sell_shares(i, f, r, 0, m, side, i[at.holding_of(i, m, 0) + side])
        dollars = want * BET
    if dollars != 0:
        buy_shares(i, f, r, 0, m, at.YES if dollars > 0 else at.NO, abs(dollars))


@kernel
def trade_perp(i: IntRow, f: FloatRow, r: FloatRow, a: int, dollars: int) -> None:
    """Trade a signed notional: an opposite position is reduced first, and a rest opens the other side."""
    held = i[at.position_of(i, a, 0) + at.UNITS]
    if dollars == 0:
        return
    sign = 1 if dollars > 0 else -1
    size, price = abs(dollars), f[a * at.ASSET_FLOATS + at.PRICE]
    if held * sign < 0:
        units = math.floor(size * 1e3 / price)
        close_perp(i, f, r, 0, a, min(units, abs(held)), False)
        if units < abs(held) or i[at.position_of(i, a, 0) + at.UNITS] != 0:
            return
        size -= math.floor(abs(held) * 1e-3 * price)
    open_perp(i, f, r, 0, a, sign, size, LEVERAGE)


@kernel
def turn_perp(i: IntRow, f: FloatRow, r: FloatRow, a: int, want: int) -> None:
    """Go from the position that is held to the one that is wanted."""
    held = i[at.position_of(i, a, 0) + at.UNITS]
    have = 1 if held > 0 else (-1 if held < 0 else 0)
    if want == have:
        return
    if have != 0:
        close_perp(i, f, r, 0, a, abs(held), False)
    if want != 0:
        open_perp(i, f, r, 0, a, want, SIZE, LEVERAGE)


# -- owning and seeing


@kernel
def equity_of(i: IntRow, f: FloatRow, r: FloatRow, h: int) -> int:
    """Cash and what selling everything now would bring, in micro-dollars."""
    total = i[at.cash_of(i, h)]
    for m in range(i[at.MARKETS]):
        if i[at.market_of(i, m) + at.OPEN]:
            total += market_worth(i, f, m, h, r[FEE])
    for a in range(i[at.PERPS]):
        total += perp_worth(i, f, r, a, h)
    return total


@kernel
def equity_of_player(i: IntRow, f: FloatRow, r: FloatRow, memory: IntRow) -> int:
    """The same for seat 0, with a cache of what its shares in each market are worth.

    The worth is computed again only when someone has traded in the market: every trade adds volume.
    """
    total = i[at.cash_of(i, 0)]
    for m in range(i[at.MARKETS]):
        slot, cell = at.market_of(i, m), m * at.MEMORY
        if i[slot + at.OPEN]:
            if memory[cell + at.WORTH_TRADED] != i[slot + at.TRADED] or memory[cell + at.WORTH_ID] != i[slot + at.ID]:
                memory[cell + at.WORTH] = market_worth(i, f, m, 0, r[FEE])
                memory[cell + at.WORTH_TRADED] = i[slot + at.TRADED]
                memory[cell + at.WORTH_ID] = i[slot + at.ID]
            total += memory[cell + at.WORTH]
    for a in range(i[at.PERPS]):
        total += perp_worth(i, f, r, a, 0)
    return total


@kernel
def observe(i: IntRow, f: FloatRow, seat: int, out: FloatRow, equity: int) -> None:
    """Write what a seat sees, in the order of MARKET_FEATURES, ASSET_FEATURES and ACCOUNT_FEATURES.

    A slot between two questions shows zeros.
    """
    column = 0
    for m in range(i[at.MARKETS]):
        slot, quote = at.market_of(i, m), at.prices_of(i, m)
        if i[slot + at.OPEN] == 0:
            for feature in range(8):
                out[column + feature] = 0.0
        else:
            floats = i[slot + at.ASSET] * at.ASSET_FLOATS
            event = i[slot + at.KIND] == at.EVENT
            out[column] = f[quote + at.PRICE_YES]
            out[column + 1] = f[quote + at.OFFSET]
            out[column + 2] = (i[slot + at.DUE] - i[at.TICK]) * (1.0 / LONGEST)
            out[column + 3] = 0.0 if event else (f[floats + at.PRICE] / f[quote + at.STRIKE] - 1.0) * 100.0
            out[column + 4] = 1.0 if event else 0.0
            out[column + 5] = i[at.note_of(i, m, seat) + at.NET] * (0.01 / at.MICRO)
            out[column + 6] = f[floats + at.SINCE] * 100.0
            out[column + 7] = f[floats + at.SCORE]
        column += 8
    for a in range(i[at.PERPS]):
        asset, floats = at.asset_of(i, a), a * at.ASSET_FLOATS
        out[column] = f[floats + at.RETURN] * 100.0
        out[column + 1] = f[floats + at.SINCE] * 100.0
        out[column + 2] = f[floats + at.SCORE]
        out[column + 3] = f[floats + at.SENTIMENT]
        out[column + 4] = (i[asset + at.DUE_TICK] - i[at.TICK]) * (1.0 / LONGEST)
        out[column + 5] = f[floats + at.MARKUP] * 1000.0
        out[column + 6] = i[at.position_of(i, a, seat) + at.UNITS] * 1e-12 * f[floats + at.PRICE]
        out[column + 7] = 0.0 if i[asset + at.LAST] == at.NO_NEWS else i[asset + at.LAST] * 1.0
        column += 8
    out[column] = i[at.cash_of(i, seat)] * (1.0 / at.STAKE)
    out[column + 1] = equity * (1.0 / at.STAKE)


# -- background traders

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


# -- entries


@entry
def order(
    ints: Ints, floats: Floats, r: Floats, kind: int, h: int, target: int, side: int, amount: int, leverage: float
) -> int:
    """One order of holder `h`: `kind` is BUY, SELL, OPEN_PERP or CLOSE_PERP.

    `side` 0 is YES or LONG, 1 is NO or SHORT. `amount` is micro-dollars to buy or open for, micro-shares to sell, or
    nano-units to close. Returns what the kernel of that kind returns, or a negative code.
    """
    i, f, p = row(ints, 0), row(floats, 0), row(r, 0)
    if kind == at.BUY:
        return buy_shares(i, f, p, h, target, side, amount)
    if kind == at.SELL:
        return sell_shares(i, f, p, h, target, side, amount)
    if kind == at.OPEN_PERP:
        return open_perp(i, f, p, h, target, 1 - 2 * side, amount, leverage)
    return close_perp(i, f, p, h, target, amount, False)


@entry
def equity(ints: Ints, floats: Floats, r: Floats, h: int) -> int:
    """A holder's equity in micro-dollars."""
    return equity_of(row(ints, 0), row(floats, 0), row(r, 0), h)


@entry
def look(ints: Ints, floats: Floats, r: Floats, seat: int, observations: Observations, equity: Ints) -> None:
    """What a seat of each world of a batch sees and owns."""
    for w in range(ints.shape[0]):
        equity[w] = equity_of(row(ints, w), row(floats, w), row(r, 0), seat)
        observe(row(ints, w), row(floats, w), seat, row(observations, w), equity[w])


@entry
def shares_worth(ints: Ints, floats: Floats, r: Floats, m: int, h: int, side: int) -> int:
    """What selling all shares of one side now would bring after the fee, in micro-dollars."""
    i = row(ints, 0)
    gross = proceeds(i, row(floats, 0), m, side, i[at.holding_of(i, m, h) + side])
    net: int = max(0, gross - math.ceil(gross * r[FEE]))
    return net


@entry
def position_worth(ints: Ints, floats: Floats, r: Floats, a: int, h: int) -> int:
    """What closing a perpetual position now would bring, in micro-dollars."""
    return perp_worth(row(ints, 0), row(floats, 0), row(r, 0), a, h)


@entry
def say(ints: Ints, chat: int, kind: int, author: int, asset: int, claim: int, market: int, style: int) -> None:
    """A post for the feed, or a message when `chat` is not negative."""
    if chat < 0:
        append_post(row(ints, 0), kind, author, asset, claim, market, style)
    else:
        append_message(row(ints, 0), chat, kind, author, asset, claim, style)


@entry
def word(ints: Ints, tick: int, domain: int, index: int) -> Any:
    """The first of the world's four words for (domain, tick, index); `World` draws the order of seats from it."""
    first, _, _, _ = draw(row(ints, 0), tick, domain, index)
    return first
