"""How a world lies in memory: one row of int64 and one row of float64 per world, each divided into sections.

A kernel gets three flat arrays and nothing else: the two rows (`i`, `f`) and the rules (`r`, see `rules`). Passing
dozens of arrays through dozens of functions would cost more than the work they do. In all kernels

    i, f, r     the world's integers, the world's floats, the rules
    h, m, a     number of a holder, of a market slot, of an asset
    seat        number of a player; holders are numbered seats first, then background traders

The integer row starts with a header that says where each section begins. Functions such as `market_of` return the index
at which a record begins; the constants below are the offsets of its fields, as in `i[market_of(i, m) + DUE]`.

Money is int64 micro-dollars, shares are micro-shares and perpetual units nano-units, so sums are exact and do not
depend on their order. Four house accounts follow the cash of the holders: every trade moves cash between accounts,
and the sum over all of them never changes.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.world.jit import kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Observations = NDArray[np.float32]


# Rows as kernels get them are bare pointers, which index like sequences.
IntRow = MutableSequence[int]
FloatRow = MutableSequence[float]
WordRow = Sequence[Any]
"""Random words, see `philox`."""

MICRO = 1_000_000
STAKE = 10_000 * MICRO
"""What every account starts with."""

SLACK = 0.01
"""What a trader pays is rounded up and what he gets is rounded down to whole units, after moving it by this part
of a unit against him. It lies far above the error of the floating-point part, so no sequence of trades gains from
rounding."""

SOURCES = 6
CHATS = 3
HOURS = 24

# Rings keep the latest entries. The tape is longer where many seats may be liquidated in one tick.
POSTS_KEPT = 64
MESSAGES_KEPT = 16
LEAST_TAPE = 32
PAST_KEPT = 64

# The header: clock and key, how many posts, trades ... there have been, how many markets, seats ... there are, where
# the sections begin, and what the whole world shares.
TICK, KEY0, KEY1, KEY2, KEY3, MARKETS_MADE, POSTS_MADE, MESSAGES_MADE, TRADES_MADE, PAST_MADE = range(10)
MARKETS, ASSETS, PERPS, SEATS, AGENTS, HOLDERS = range(10, 16)
AT_CASH, AT_BOOKS, AT_MARKETS, AT_ASSETS, AT_POSITIONS, AT_SHARES, AT_NOTES, AT_HEARD = range(16, 24)
AT_POSTS, AT_MESSAGES, AT_TRADES, AT_PAST, AT_MARKET_FLOATS, AT_CLAIM_WEIGHTS, AT_TIPS, AT_HOURS = range(24, 32)
NEXT_DUE, NEXT_FUNDING, NEXT_HOUR, HOUR_NOW, TAPE = range(32, 37)
RELIABILITY = 37  # of each source, then of each chat, in thousandths
RECORD = RELIABILITY + SOURCES + CHATS  # of each source: right claims and all claims, on stories that are over
SAID = RECORD + 2 * SOURCES  # number of messages so far, of each chat
HEADER = SAID + CHATS

# A holder's book; cash has its own section. MEMBER has one entry for each chat.
REALIZED, FEES_PAID, FUNDING_PAID, LIQUIDATIONS, REPUTATION, TRADES, VOLUME, DEPOSITS, MEMBER = range(9)
BOOK = MEMBER + CHATS
STRANGER, INVITED, JOINED = range(3)

# House accounts, after the cash of the holders.
MAKER, VENUE, INSURANCE, FEES, HOUSES = range(5)

# A market slot: its integers, and its floats. BORN is the tick it opened at, SLOW a slow average of the price.
OPEN, ID, ASSET, KIND, DUE, Q_YES, Q_NO, TRADED, MARKET_INTS = range(9)
STRIKE, OFFSET, B, LOG_ODDS, COST, PRICE_YES, SLOW, BORN, MARKET_FLOATS = range(9)
ABOVE, EVENT, RISE = range(3)
QUESTION_KINDS: tuple[Literal["above", "event", "rise"], ...] = ("above", "event", "rise")

# What a holder has in a market.
YES, NO, COST_YES, COST_NO, HOLDING = range(5)

# What is noted about a seat in a market: the first probability it stated (micro-units, -1 for none), and YES less NO.
STATED, NET, NOTE = range(3)

# A batch's cache of a seat's exit value in a market: the value, and the market and volume that it was computed for.
WORTH, WORTH_ID, WORTH_TRADED, MEMORY = range(4)

# An asset, its running story and its perpetual.
THETA, REGIME, START, DUE_TICK, STORY, LAST, LONG_UNITS, SHORT_UNITS, ASSET_INTS = range(9)
NO_NEWS = 2
"""In LAST and in `heard`: nothing has been said. Claims are -1, 0 and 1."""

# WEIGHT: log-weights of theta = -1, 0, 1 given public news. TREND: how far the log-price lies from its slow average.
# RETURN: its last change. SINCE: its change since the story began, at the price BEGAN. PUSH: net taker notional over
# depth. MARKUP: the premium of the mark that it makes. SCORE: the story's claims so far, each weighed by its source's
# public record. SAFE_ABOVE, SAFE_BELOW: between these index prices no position can be liquidated.
PRICE, WEIGHT = 0, 1
TREND, SENTIMENT, PUSH, MARKUP, RETURN, SINCE, SCORE, SAFE_ABOVE, SAFE_BELOW, BEGAN, ASSET_FLOATS = range(4, 15)
TIPS = 3 * CHATS

# A holder's position in a perpetual. ENTRY is what was paid for the units, signed like them.
UNITS, MARGIN, ENTRY, POSITION = range(4)

# Rings. A post's fields are 32 bits wide, two to a word, so that a post fills half a cache line; POST_BY is the
# author's number and kind. A resolved market keeps its integers, the outcome, then its floats in micro-units.
POST_NO, POST_TICK, POST_BY, POST_ASSET, POST_CLAIM, POST_MARKET, POST_STYLE, POST_EVENT, POST_FIELDS = range(9)
POST = POST_FIELDS // 2
BY_SOURCE, BY_WIRE, BY_TRADER, BY_SEAT = range(4)
TRADE_TICK, TRADE_HOLDER, TRADE_KIND, TRADE_TARGET, TRADE_SIDE, TRADE_AMOUNT, TRADE_SHARES, TRADE = range(8)
BUY, SELL, OPEN_PERP, CLOSE_PERP, LIQUIDATION = range(5)
OUTCOME, PAST_BORN, PAST_STRIKE, PAST_OPENED, PAST_PRICE, PAST_B, PAST = range(MARKET_INTS, MARKET_INTS + 7)

# What an order kernel returns when it refuses the order; `world` words these for players.
CLOSED, POOR, TOO_SMALL, TOO_LARGE, TOO_FEW, NO_POSITION, BAD_LEVERAGE = -1, -2, -3, -4, -5, -6, -7


@kernel
def cash_of(i: IntRow, h: int) -> int:
    """Index of a holder's cash, in micro-dollars."""
    return i[AT_CASH] + h


@kernel
def house_of(i: IntRow, account: int) -> int:
    """Index of the cash of a house account."""
    return i[AT_CASH] + i[HOLDERS] + account


@kernel
def book_of(i: IntRow, h: int) -> int:
    """Index of a holder's book: REALIZED ... MEMBER."""
    return i[AT_BOOKS] + h * BOOK


@kernel
def tape_end(i: IntRow) -> int:
    """Index at which the next trade is written.

    The tape's length is a power of two, so a mask replaces the division.
    """
    return i[AT_TRADES] + (i[TRADES_MADE] & (i[TAPE] - 1)) * TRADE


@kernel
def market_of(i: IntRow, m: int) -> int:
    """Index of a market slot: OPEN ... TRADED."""
    return i[AT_MARKETS] + m * MARKET_INTS


@kernel
def prices_of(i: IntRow, m: int) -> int:
    """Index of a market slot in the row of floats: STRIKE ... BORN."""
    return i[AT_MARKET_FLOATS] + m * MARKET_FLOATS


@kernel
def asset_of(i: IntRow, a: int) -> int:
    """Index of an asset: THETA ... SHORT_UNITS. In the row of floats it begins at `a * ASSET_FLOATS`."""
    return i[AT_ASSETS] + a * ASSET_INTS


@kernel
def holding_of(i: IntRow, m: int, h: int) -> int:
    """Index of what a holder has in a market: YES ... COST_NO. Those of one market lie together, for its resolution."""
    return i[AT_SHARES] + (m * i[HOLDERS] + h) * HOLDING


@kernel
def note_of(i: IntRow, m: int, seat: int) -> int:
    """Index of a seat's note on a market: STATED, NET. Those of one seat lie together, for its observation."""
    return i[AT_NOTES] + (seat * i[MARKETS] + m) * NOTE


@kernel
def position_of(i: IntRow, a: int, h: int) -> int:
    """Index of a holder's position in a perpetual: UNITS, MARGIN, ENTRY. Those of one holder lie together."""
    return i[AT_POSITIONS] + (h * i[ASSETS] + a) * POSITION


class State:
    """The rows of n worlds of one shape, and every section of them as an array.

    The sections are views: writing to one writes to the worlds. The last axis is indexed by the constants above, as in
    `state.books[world, seat, REPUTATION]`.
    """

    def __init__(self, ints: Ints, floats: Floats) -> None:
        """Over rows [n, ...] with filled headers, all of the same shape; see `allocate`."""
        header = ints[0, :HEADER].tolist()
        markets, assets, seats, holders = header[MARKETS], header[ASSETS], header[SEATS], header[HOLDERS]

        def integers(section: int, *shape: int) -> Ints:
            begin = header[section]
            return ints[:, begin : begin + int(np.prod(shape))].reshape(len(ints), *shape)

        def reals(begin: int, *shape: int) -> Floats:
            return floats[:, begin : begin + int(np.prod(shape))].reshape(len(floats), *shape)

        # A slice of columns is strided over worlds and contiguous inside one, so `reshape` gives a view, never a copy.
        self.ints = ints
        self.floats = floats
        self.header = ints[:, :HEADER]
        self.cash = integers(AT_CASH, holders + HOUSES)
        self.books = integers(AT_BOOKS, holders, BOOK)
        self.markets = integers(AT_MARKETS, markets, MARKET_INTS)
        self.prices = reals(header[AT_MARKET_FLOATS], markets, MARKET_FLOATS)
        self.assets = integers(AT_ASSETS, assets, ASSET_INTS)
        self.indices = reals(0, assets, ASSET_FLOATS)
        self.heard = integers(AT_HEARD, assets, SOURCES)
        """What each source last said about the running story."""
        self.tips = reals(header[AT_TIPS], assets, CHATS, 3)
        """Log-weights of theta from each chat's tips."""
        self.hours = reals(header[AT_HOURS], assets, HOURS, 2)
        """Index price and volume by hour."""
        self.shares = integers(AT_SHARES, markets, holders, HOLDING)
        self.notes = integers(AT_NOTES, seats, markets, NOTE)
        # [n, asset, holder, POSITION], although in memory the positions of one holder lie together.
        self.positions = integers(AT_POSITIONS, holders, assets, POSITION).swapaxes(1, 2)
        self.posts = integers(AT_POSTS, POSTS_KEPT, POST).view(np.int32)
        self.messages = integers(AT_MESSAGES, CHATS, MESSAGES_KEPT, POST).view(np.int32)
        self.trades = integers(AT_TRADES, header[TAPE], TRADE)
        self.past = integers(AT_PAST, PAST_KEPT, PAST)
        """Markets that have resolved."""

    def world(self, index: int) -> State:
        """One world as a batch of one, over the same memory."""
        return State(self.ints[index : index + 1], self.floats[index : index + 1])


def allocate(worlds: int, markets: int, perps: int, seats: int, agents: int) -> State:
    """Worlds with their shape in the header and zeros elsewhere. The first advance brings them to tick 0.

    Sections that every tick touches come first, so that prefetching a world is one run of cache lines.
    """
    assets, holders = max(1, perps), seats + agents
    tape = max(LEAST_TAPE, 1 << (4 * seats - 1).bit_length()) if seats else LEAST_TAPE
    sizes = {
        AT_CASH: holders + HOUSES,
        AT_ASSETS: assets * ASSET_INTS,
        AT_MARKETS: markets * MARKET_INTS,
        AT_NOTES: seats * markets * NOTE,
        AT_POSITIONS: assets * holders * POSITION,
        AT_BOOKS: holders * BOOK,
        AT_SHARES: markets * holders * HOLDING,
        AT_HEARD: assets * SOURCES,
        AT_TRADES: tape * TRADE,
        AT_POSTS: POSTS_KEPT * POST,
        AT_MESSAGES: CHATS * MESSAGES_KEPT * POST,
        AT_PAST: PAST_KEPT * PAST,
    }
    header = {MARKETS: markets, ASSETS: assets, PERPS: perps, SEATS: seats, AGENTS: agents, HOLDERS: holders}
    header[AT_MARKET_FLOATS] = assets * ASSET_FLOATS
    header[AT_CLAIM_WEIGHTS] = header[AT_MARKET_FLOATS] + markets * MARKET_FLOATS
    header[AT_TIPS] = header[AT_CLAIM_WEIGHTS] + SOURCES + CHATS
    header[AT_HOURS] = header[AT_TIPS] + assets * TIPS
    header[TAPE] = tape
    header[TICK] = -1
    width = _whole_lines(HEADER)
    for section, size in sizes.items():
        header[section] = width
        width += _whole_lines(size)
    ints = _aligned(worlds, width).view(np.int64)
    ints[:, list(header)] = list(header.values())
    return State(ints, _aligned(worlds, _whole_lines(header[AT_HOURS] + assets * HOURS * 2)))


def _whole_lines(words: int) -> int:
    """Rounded up to whole cache lines of 8 words: a batch larger than the cache is bound by the lines it touches."""
    return -(-words // 8) * 8


def _aligned(worlds: int, width: int) -> Floats:
    """Zeros that begin at a cache line of 64 bytes; NumPy alone aligns to 16."""
    room = np.zeros(worlds * width + 8)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + worlds * width].reshape(worlds, width)
