"""Prediction markets: questions about running stories, traded with a logarithmic market scoring rule.

The market maker (Hanson 2003, Combinatorial Information Market Design; 2007, Logarithmic Market Scoring Rules) charges the
difference of the cost function C = b ln(e^(yes/b) + e^(no/b)) between the outstanding shares before and after a trade. The
price of YES is its derivative, 1 / (1 + e^-((yes - no)/b)). An opening price other than 1/2 is an OFFSET of the log-odds.

A slot caches the log-odds of YES and the cost C/b - no/b = ln(1 + e^log_odds), so that a trade needs few transcendental
functions and large share counts cancel before they are exponentiated.

Every slot asks one question at a time. A market opens at the chance that public information gives it, so its price is
calibrated and never points the wrong way.
"""

from __future__ import annotations

import math

from bakeoff.workloads.market.world.feed import append_trade
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import (
    ABOVE,
    ASSET,
    ASSET_FLOATS,
    ASSETS,
    AT_PAST,
    BORN,
    BUY,
    CLOSED,
    COST,
    COST_NO,
    COST_YES,
    DUE,
    DUE_TICK,
    EVENT,
    FEES,
    FEES_PAID,
    HOLDERS,
    HOLDING,
    ID,
    KIND,
    LAST,
    LOG_ODDS,
    MAKER,
    MARKET_INTS,
    MARKETS,
    MARKETS_MADE,
    MEMORY,
    MICRO,
    NET,
    NEXT_DUE,
    NO,
    OFFSET,
    OPEN,
    OUTCOME,
    PAST,
    PAST_B,
    PAST_BORN,
    PAST_KEPT,
    PAST_MADE,
    PAST_OPENED,
    PAST_PRICE,
    PAST_STRIKE,
    POOR,
    PRICE,
    PRICE_YES,
    Q_NO,
    Q_YES,
    REALIZED,
    REGIME,
    REPUTATION,
    RISE,
    SEATS,
    SELL,
    SLACK,
    SLOW,
    STATED,
    STRIKE,
    TICK,
    TOO_FEW,
    TOO_SMALL,
    TRADED,
    TRADES,
    VOLUME,
    WORTH,
    WORTH_ID,
    WORTH_TRADED,
    YES,
    B,
    FloatRow,
    IntRow,
    asset_of,
    book_of,
    cash_of,
    holding_of,
    house_of,
    market_of,
    note_of,
    prices_of,
)
from bakeoff.workloads.market.world.numerics import exp, log, one_minus_exp, softplus
from bakeoff.workloads.market.world.philox import QUESTION, below, draw, uniform
from bakeoff.workloads.market.world.rules import FEE, LIQUIDITY, LIQUIDITY_B, VARIANCE, regime_row
from bakeoff.workloads.market.world.stories import chance, public_belief, story_span

LEAST_BET = MICRO

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
    slot, at = market_of(i, m), prices_of(i, m)
    odds = f[at + OFFSET] + (i[slot + Q_YES] - i[slot + Q_NO]) * 1e-6 / f[at + B]
    e = exp(-abs(odds))
    f[at + LOG_ODDS] = odds
    f[at + COST] = max(odds, 0.0) + log(1.0 + e)
    f[at + PRICE_YES] = (1.0 if odds >= 0.0 else e) / (1.0 + e)
    f[at + SLOW] += 0.3 * (f[at + PRICE_YES] - f[at + SLOW])


@kernel
def buy_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, amount: int) -> int:
    """Spend `amount` micro-dollars, the fee included, on shares of `side`. Returns micro-shares, or a negative code."""
    slot, at, book, held = market_of(i, m), prices_of(i, m), book_of(i, h), holding_of(i, m, h)
    if i[slot + OPEN] == 0:
        return CLOSED
    if amount < LEAST_BET:
        return TOO_SMALL
    if amount > i[cash_of(i, h)]:
        return POOR
    fee = math.ceil(amount * r[FEE])
    odds, cost = f[at + LOG_ODDS], f[at + COST]
    if side != YES:
        # ln(1 + e^-x) = ln(1 + e^x) - x: the same market seen from NO.
        cost -= odds
        odds = -odds
    # The cost after the trade is known. Solve ln(1 + e^x) = after for the new log-odds: x = after + ln(1 - e^-after).
    after = cost + (amount - fee) * 1e-6 / f[at + B]
    shares = math.floor((after + log(one_minus_exp(after)) - odds) * f[at + B] * 1e6 - SLACK)
    if shares <= 0:
        return TOO_SMALL
    i[cash_of(i, h)] -= amount
    i[house_of(i, MAKER)] += amount - fee
    i[house_of(i, FEES)] += fee
    i[held + side] += shares
    i[held + COST_YES + side] += amount
    note_net(i, m, h)
    i[slot + Q_YES + side] += shares
    i[slot + TRADED] += amount
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += amount
    reprice(i, f, m)
    append_trade(i, h, BUY, i[slot + ID], side, amount, shares)
    return shares


@kernel
def sell_shares(i: IntRow, f: FloatRow, r: FloatRow, h: int, m: int, side: int, count: int) -> int:
    """Sell `count` micro-shares of `side`. Returns the micro-dollars after the fee, or a negative code."""
    slot, book, held = market_of(i, m), book_of(i, h), holding_of(i, m, h)
    if i[slot + OPEN] == 0:
        return CLOSED
    if count <= 0:
        return TOO_SMALL
    had = i[held + side]
    if count > had:
        return TOO_FEW
    gross = proceeds(i, f, m, side, count)
    fee = math.ceil(gross * r[FEE])
    if gross - fee <= 0:
        return TOO_SMALL
    spent = i[held + COST_YES + side]
    part = spent if count == had else math.floor(spent * (count / had))
    i[cash_of(i, h)] += gross - fee
    i[house_of(i, MAKER)] -= gross
    i[house_of(i, FEES)] += fee
    i[held + side] -= count
    i[held + COST_YES + side] -= part
    note_net(i, m, h)
    i[slot + Q_YES + side] -= count
    i[slot + TRADED] += gross
    i[book + REALIZED] += gross - fee - part
    i[book + FEES_PAID] += fee
    i[book + TRADES] += 1
    i[book + VOLUME] += gross
    reprice(i, f, m)
    append_trade(i, h, SELL, i[slot + ID], side, gross - fee, count)
    return gross - fee


@kernel
def proceeds(i: IntRow, f: FloatRow, m: int, side: int, count: int) -> int:
    """What `count` micro-shares of one side would bring, before the fee."""
    at = prices_of(i, m)
    odds = f[at + LOG_ODDS] if side == YES else -f[at + LOG_ODDS]
    cost = f[at + COST] if side == YES else f[at + COST] + odds
    left = odds - count * 1e-6 / f[at + B]
    drop = cost - softplus(left)
    return math.floor(drop * f[at + B] * 1e6 - SLACK)


@kernel
def note_net(i: IntRow, m: int, h: int) -> None:
    """After a seat's holding has changed, note YES less NO where all of its markets lie together."""
    if h < i[SEATS]:
        held = holding_of(i, m, h)
        i[note_of(i, m, h) + NET] = i[held + YES] - i[held + NO]


@kernel
def market_worth(i: IntRow, f: FloatRow, m: int, h: int, fee_rate: float) -> int:
    """What holder `h` would get for selling everything in market `m` now, after the fee.

    Pairs of YES and NO are worth exactly 1, so only the difference moves the price.
    """
    held = holding_of(i, m, h)
    yes, no = i[held + YES], i[held + NO]
    if yes == 0 and no == 0:
        return 0
    at = prices_of(i, m)
    left = f[at + LOG_ODDS] - (yes - no) * 1e-6 / f[at + B]
    gross = math.floor((f[at + COST] - softplus(left)) * f[at + B] * 1e6 + no - SLACK)
    return max(0, gross - math.ceil(gross * fee_rate))


@kernel
def cached_worth(i: IntRow, f: FloatRow, memory: IntRow, m: int, fee_rate: float) -> int:
    """`market_worth` of seat 0, computed again only when someone has traded in the market: every trade adds volume."""
    slot, at = market_of(i, m), m * MEMORY
    if memory[at + WORTH_TRADED] != i[slot + TRADED] or memory[at + WORTH_ID] != i[slot + ID]:
        memory[at + WORTH] = market_worth(i, f, m, 0, fee_rate)
        memory[at + WORTH_TRADED] = i[slot + TRADED]
        memory[at + WORTH_ID] = i[slot + ID]
    return memory[at + WORTH]


# -- opening and resolving


@kernel
def renew_markets(i: IntRow, f: FloatRow, r: FloatRow) -> None:
    """Resolve markets that are due, open new ones in free slots, and note the tick at which to look again."""
    soonest = NEVER
    for m in range(i[MARKETS]):
        slot = market_of(i, m)
        if i[slot + DUE] <= i[TICK]:
            if i[slot + OPEN]:
                resolve(i, f, m)
            open_market(i, f, r, m)
        soonest = min(soonest, i[slot + DUE])
    i[NEXT_DUE] = soonest


@kernel
def open_market(i: IntRow, f: FloatRow, r: FloatRow, m: int) -> None:
    """Ask a new question in slot `m`. When the story drawn for it ends too soon, the next tick tries again."""
    about, what, when, where = draw(i, i[TICK], QUESTION, m)
    a = below(about, i[ASSETS])
    left = i[asset_of(i, a) + DUE_TICK] - i[TICK]
    slot, at, kind = market_of(i, m), prices_of(i, m), below(what, 3)
    if left < LEAD:
        i[slot + DUE] = i[TICK] + 1
        return
    due = i[TICK] + (left if kind == EVENT else LEAD + below(when, left - LEAD + 1))
    i[slot + OPEN] = 1
    i[slot + ID] = i[MARKETS_MADE]
    i[MARKETS_MADE] += 1
    i[slot + ASSET] = a
    i[slot + KIND] = kind
    i[slot + DUE] = due
    i[slot + Q_YES] = 0
    i[slot + Q_NO] = 0
    i[slot + TRADED] = 0
    f[at + STRIKE] = 0.0
    index = f[a * ASSET_FLOATS + PRICE]
    if kind == RISE:
        f[at + STRIKE] = index
    elif kind == ABOVE:
        deviations = (2.0 * uniform(where) - 1.0) * WIDEST
        now, then, _ = story_span(i, a, due)
        f[at + STRIKE] = four_digits(index * exp(deviations * math.sqrt(r[then + VARIANCE] - r[now + VARIANCE])))
    p = chance(i, f, r, m, public_belief(f, a))
    p = max(SMALLEST_CHANCE, min(1.0 - SMALLEST_CHANCE, p))
    f[at + B] = r[LIQUIDITY_B] * r[regime_row(i[asset_of(i, a) + REGIME]) + LIQUIDITY]
    f[at + OFFSET] = log(p / (1.0 - p))
    f[at + SLOW] = p
    f[at + BORN] = i[TICK]
    reprice(i, f, m)
    for seat in range(i[SEATS]):
        note = note_of(i, m, seat)
        i[note + STATED] = -1
        i[note + NET] = 0


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
    slot, maker = market_of(i, m), house_of(i, MAKER)
    a = i[slot + ASSET]
    if i[slot + KIND] == EVENT:
        won = i[asset_of(i, a) + LAST] == 1
    else:
        won = f[a * ASSET_FLOATS + PRICE] > f[prices_of(i, m) + STRIKE]
    i[slot + OPEN] = 0
    for h in range(i[HOLDERS]):
        held, book = holding_of(i, m, h), book_of(i, h)
        if i[held + YES] == 0 and i[held + NO] == 0:
            continue
        paid = i[held + (YES if won else NO)]
        i[cash_of(i, h)] += paid
        i[maker] -= paid
        i[book + REALIZED] += paid - i[held + COST_YES] - i[held + COST_NO]
        for field in range(HOLDING):
            i[held + field] = 0
    for seat in range(i[SEATS]):
        stated = i[note_of(i, m, seat) + STATED]
        if stated >= 0:
            # A quadratic (Brier) score is proper: the honest probability has the best expectation. A half moves nothing.
            miss = stated * 1e-6 - (1.0 if won else 0.0)
            at = book_of(i, seat) + REPUTATION
            i[at] = max(0, min(100 * MICRO, i[at] + math.floor(REPUTATION_SCALE * (0.25 - miss * miss) * MICRO)))
    archive(i, f, m, won)


@kernel
def archive(i: IntRow, f: FloatRow, m: int, won: bool) -> None:
    """Copy a resolved market to the ring of past ones."""
    past, slot, at = i[AT_PAST] + (i[PAST_MADE] % PAST_KEPT) * PAST, market_of(i, m), prices_of(i, m)
    for field in range(MARKET_INTS):
        i[past + field] = i[slot + field]
    i[past + OUTCOME] = 1 if won else 0
    i[past + PAST_BORN] = int(f[at + BORN])
    i[past + PAST_STRIKE] = math.floor(f[at + STRIKE] * MICRO + 0.5)
    i[past + PAST_OPENED] = math.floor(MICRO / (1.0 + exp(-f[at + OFFSET])) + 0.5)
    i[past + PAST_PRICE] = math.floor(f[at + PRICE_YES] * MICRO + 0.5)
    i[past + PAST_B] = math.floor(f[at + B] * MICRO + 0.5)
    i[PAST_MADE] += 1
