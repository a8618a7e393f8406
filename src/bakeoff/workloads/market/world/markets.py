"""Prediction markets: questions about running stories, traded with a logarithmic market scoring rule.

The market maker (Hanson 2003, Combinatorial Information Market Design; 2007, Logarithmic Market Scoring Rules)
charges the difference of the cost function C = b ln(e^(yes/b) + e^(no/b)) between the outstanding shares before and
after a trade. The price of YES is its derivative, 1 / (1 + e^-((yes - no)/b)). An opening price other than 1/2 is an
OFFSET of the log-odds.

A slot caches the log-odds of YES and the cost C/b - no/b = ln(1 + e^log_odds), so that a trade needs few transcendental
functions and large share counts cancel before they are exponentiated.

Every slot asks one question at a time. A market opens at the chance that public information gives it, so its price is
calibrated and never points the wrong way.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import rules
from bakeoff.workloads.market.world.feed import append_trade
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import FloatRow, IntRow
from bakeoff.workloads.market.world.numerics import exp, log, one_minus_exp, softplus
from bakeoff.workloads.market.world.philox import QUESTION, below, draw, uniform
from bakeoff.workloads.market.world.stories import chance, public_belief, story_span

LEAST_BET = at.MICRO

LEAD = 4
"""A question stays open for at least this many ticks."""

WIDEST = 1.05
"""Strikes lie within this many standard deviations, so chances spread over about 0.15 to 0.85."""

SMALLEST_CHANCE = 0.02
REPUTATION_SCALE = 24.0
NEVER = 1 << 40


# -- trading


@kernel
def reprice(i: IntRow, f: FloatRow, m: int) -> None:
    """Refresh the cached odds, cost and price after the outstanding shares have changed."""
    slot, quote = at.market_of(i, m), at.prices_of(i, m)
    odds = f[quote + at.OFFSET] + (i[slot + at.Q_YES] - i[slot + at.Q_NO]) * 1e-6 / f[quote + at.B]
    e = exp(-abs(odds))  # at most 1, so neither odds nor cost can overflow
    f[quote + at.LOG_ODDS] = odds
    f[quote + at.COST] = max(odds, 0.0) + log(1.0 + e)
    f[quote + at.PRICE_YES] = (1.0 if odds >= 0.0 else e) / (1.0 + e)
    f[quote + at.SLOW] += 0.3 * (f[quote + at.PRICE_YES] - f[quote + at.SLOW])


@kernel
def buy_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, amount: int) -> int:
    """Spend `amount` micro-dollars, the fee included, on shares of `side`. Returns micro-shares, or a negative code."""
    slot, quote, book, held = at.market_of(i, m), at.prices_of(i, m), at.book_of(i, h), at.holding_of(i, m, h)
    if i[slot + at.OPEN] == 0:
        return at.CLOSED
    if amount < LEAST_BET:
        return at.TOO_SMALL
    if amount > i[at.cash_of(i, h)]:
        return at.POOR
    fee = math.ceil(amount * r[rules.FEE])
    odds, cost = f[quote + at.LOG_ODDS], f[quote + at.COST]
    if side != at.YES:
        # ln(1 + e^-x) = ln(1 + e^x) - x: the same market seen from NO.
        cost -= odds
        odds = -odds
    # The cost after the trade is known. Solve ln(1 + e^x) = after for the new log-odds: x = after + ln(1 - e^-after).
    after = cost + (amount - fee) * 1e-6 / f[quote + at.B]
    shares = math.floor((after + log(one_minus_exp(after)) - odds) * f[quote + at.B] * 1e6 - at.SLACK)
    if shares <= 0:
        return at.TOO_SMALL
    i[at.cash_of(i, h)] -= amount
    i[at.house_of(i, at.MAKER)] += amount - fee
    i[at.house_of(i, at.FEES)] += fee
    i[held + side] += shares
    i[held + at.COST_YES + side] += amount  # with the fee, so that profit is after fees
    note_net(i, m, h)
    i[slot + at.Q_YES + side] += shares
    i[slot + at.TRADED] += amount
    i[book + at.FEES_PAID] += fee
    i[book + at.TRADES] += 1
    i[book + at.VOLUME] += amount
    reprice(i, f, m)
    append_trade(i, h, at.BUY, i[slot + at.ID], side, amount, shares)
    return shares


@kernel
def sell_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, count: int) -> int:
    """Sell `count` micro-shares of `side`. Returns the micro-dollars after the fee, or a negative code."""
    slot, book, held = at.market_of(i, m), at.book_of(i, h), at.holding_of(i, m, h)
    if i[slot + at.OPEN] == 0:
        return at.CLOSED
    if count <= 0:
        return at.TOO_SMALL
    had = i[held + side]
    if count > had:
        return at.TOO_FEW
    gross = proceeds(i, f, m, side, count)
    fee = math.ceil(gross * r[rules.FEE])
    if gross - fee <= 0:
        return at.TOO_SMALL
    # The cost of the shares that are sold is their part of what all of them cost.
    spent = i[held + at.COST_YES + side]
    part = spent if count == had else math.floor(spent * (count / had))
    i[at.cash_of(i, h)] += gross - fee
    i[at.house_of(i, at.MAKER)] -= gross
    i[at.house_of(i, at.FEES)] += fee
    i[held + side] -= count
    i[held + at.COST_YES + side] -= part
    note_net(i, m, h)
    i[slot + at.Q_YES + side] -= count
    i[slot + at.TRADED] += gross
    i[book + at.REALIZED] += gross - fee - part
    i[book + at.FEES_PAID] += fee
    i[book + at.TRADES] += 1
    i[book + at.VOLUME] += gross
    reprice(i, f, m)
    append_trade(i, h, at.SELL, i[slot + at.ID], side, gross - fee, count)
    return gross - fee


@kernel
def proceeds(i: IntRow, f: FloatRow, m: int, side: int, count: int) -> int:
    """What `count` micro-shares of one side would bring, before the fee."""
    quote = at.prices_of(i, m)
    odds = f[quote + at.LOG_ODDS] if side == at.YES else -f[quote + at.LOG_ODDS]
    cost = f[quote + at.COST] if side == at.YES else f[quote + at.COST] + odds
    left = odds - count * 1e-6 / f[quote + at.B]
    drop = cost - softplus(left)
    return math.floor(drop * f[quote + at.B] * 1e6 - at.SLACK)


@kernel
def note_net(i: IntRow, m: int, h: int) -> None:
    """After a seat's holding has changed, note YES less NO where all of its markets lie together."""
    if h < i[at.SEATS]:
        held = at.holding_of(i, m, h)
        i[at.note_of(i, m, h) + at.NET] = i[held + at.YES] - i[held + at.NO]


@kernel
def market_worth(i: IntRow, f: FloatRow, m: int, h: int, fee_rate: float) -> int:
    """What holder `h` would get for selling everything in market `m` now, after the fee.

    Pairs of YES and NO are worth exactly 1, so only the difference moves the price.
    """
    held = at.holding_of(i, m, h)
    yes, no = i[held + at.YES], i[held + at.NO]
    if yes == 0 and no == 0:
        return 0
    quote = at.prices_of(i, m)
    left = f[quote + at.LOG_ODDS] - (yes - no) * 1e-6 / f[quote + at.B]
    gross = math.floor((f[quote + at.COST] - softplus(left)) * f[quote + at.B] * 1e6 + no - at.SLACK)
    return max(0, gross - math.ceil(gross * fee_rate))


# -- opening and resolving


@kernel
def renew_markets(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Resolve markets that are due, open new ones in free slots, and note the tick at which to look again."""
    soonest = NEVER
    for m in range(i[at.MARKETS]):
        slot = at.market_of(i, m)
        if i[slot + at.DUE] <= i[at.TICK]:
            if i[slot + at.OPEN]:
                resolve(i, f, m)
            open_market(i, f, r, m)
        soonest = min(soonest, i[slot + at.DUE])
    i[at.NEXT_DUE] = soonest


@kernel
def open_market(i: IntRow, f: FloatRow, r: FloatRow, m: int) -> None:
    """Ask a new question in slot `m`. When the story drawn for it ends too soon, the next tick tries again."""
    about, what, when, where = draw(i, i[at.TICK], QUESTION, m)
    a = below(about, i[at.ASSETS])
    left = i[at.asset_of(i, a) + at.DUE_TICK] - i[at.TICK]
    slot, quote, kind = at.market_of(i, m), at.prices_of(i, m), below(what, 3)
    if left < LEAD:
        i[slot + at.DUE] = i[at.TICK] + 1
        return
    due = i[at.TICK] + (left if kind == at.EVENT else LEAD + below(when, left - LEAD + 1))
    i[slot + at.OPEN] = 1
    i[slot + at.ID] = i[at.MARKETS_MADE]
    i[at.MARKETS_MADE] += 1
    i[slot + at.ASSET] = a
    i[slot + at.KIND] = kind
    i[slot + at.DUE] = due
    i[slot + at.Q_YES] = 0
    i[slot + at.Q_NO] = 0
    i[slot + at.TRADED] = 0
    f[quote + at.STRIKE] = 0.0
    index = f[a * at.ASSET_FLOATS + at.PRICE]
    if kind == at.RISE:
        f[quote + at.STRIKE] = index
    elif kind == at.ABOVE:
        deviations = (2.0 * uniform(where) - 1.0) * WIDEST
        now, then, _ = story_span(i, a, due)
        f[quote + at.STRIKE] = four_digits(
            index * exp(deviations * math.sqrt(r[then + rules.VARIANCE] - r[now + rules.VARIANCE]))
        )
    # The opening price is what exact inference from public news gives, kept away from 0 and 1.
    p = chance(i, f, r, m, public_belief(f, a))
    p = max(SMALLEST_CHANCE, min(1.0 - SMALLEST_CHANCE, p))
    f[quote + at.B] = r[rules.LIQUIDITY_B] * r[rules.regime_row(i[at.asset_of(i, a) + at.REGIME]) + rules.LIQUIDITY]
    f[quote + at.OFFSET] = log(p / (1.0 - p))
    f[quote + at.SLOW] = p
    f[quote + at.BORN] = i[at.TICK]
    reprice(i, f, m)
    for seat in range(i[at.SEATS]):
        note = at.note_of(i, m, seat)
        i[note + at.STATED] = -1
        i[note + at.NET] = 0


@kernel
def four_digits(price: float) -> float:
    """Rounded to four significant digits."""
    finer, coarser = 1.0, 1.0
    while price * finer < 1000.0:
        finer *= 10.0
    while price >= 10000.0 * coarser:
        coarser *= 10.0
    return math.floor(price * finer / coarser + 0.5) * coarser / finer


@kernel
def resolve(i: IntRow, f: FloatRow, m: int) -> None:
    """Settle market `m`: winning shares pay 1, stated probabilities are scored, and the slot becomes free.

    This runs after the index has moved. A story that ended with this tick has been announced, and the next has begun.
    """
    slot, maker = at.market_of(i, m), at.house_of(i, at.MAKER)
    a = i[slot + at.ASSET]
    if i[slot + at.KIND] == at.EVENT:
        won = i[at.asset_of(i, a) + at.LAST] == 1
    else:
        won = f[a * at.ASSET_FLOATS + at.PRICE] > f[at.prices_of(i, m) + at.STRIKE]
    i[slot + at.OPEN] = 0
    # A micro-share pays one micro-dollar, so counts of shares are amounts of money.
    for h in range(i[at.HOLDERS]):
        held, book = at.holding_of(i, m, h), at.book_of(i, h)
        if i[held + at.YES] == 0 and i[held + at.NO] == 0:
            continue
        paid = i[held + (at.YES if won else at.NO)]
        i[at.cash_of(i, h)] += paid
        i[maker] -= paid
        i[book + at.REALIZED] += paid - i[held + at.COST_YES] - i[held + at.COST_NO]
        for field in range(at.HOLDING):
            i[held + field] = 0
    for seat in range(i[at.SEATS]):
        stated = i[at.note_of(i, m, seat) + at.STATED]
        if stated >= 0:
            # A quadratic (Brier) score is proper: the honest probability has the best expectation. A half moves
            # nothing.
            miss = stated * 1e-6 - (1.0 if won else 0.0)
            reputation = at.book_of(i, seat) + at.REPUTATION
            i[reputation] = max(
                0, min(100 * at.MICRO, i[reputation] + math.floor(REPUTATION_SCALE * (0.25 - miss * miss) * at.MICRO))
            )
    # Copy the market to the ring of past ones.
    past, quote = i[at.AT_PAST] + (i[at.PAST_MADE] % at.PAST_KEPT) * at.PAST, at.prices_of(i, m)
    for field in range(at.MARKET_INTS):
        i[past + field] = i[slot + field]
    i[past + at.OUTCOME] = 1 if won else 0
    i[past + at.PAST_BORN] = int(f[quote + at.BORN])
    i[past + at.PAST_STRIKE] = math.floor(f[quote + at.STRIKE] * at.MICRO + 0.5)
    i[past + at.PAST_OPENED] = math.floor(at.MICRO / (1.0 + exp(-f[quote + at.OFFSET])) + 0.5)
    i[past + at.PAST_PRICE] = math.floor(f[quote + at.PRICE_YES] * at.MICRO + 0.5)
    i[past + at.PAST_B] = math.floor(f[quote + at.B] * at.MICRO + 0.5)
    i[at.PAST_MADE] += 1
