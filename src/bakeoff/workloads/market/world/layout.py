"""How a world lies in memory: one row of int64 and one row of float64 per world, each in sections.

A kernel gets the two rows (`i`, `f`) and the rules (`r`), three flat arrays and nothing else: passing many arrays to
many functions would cost more than the work they do. The integer row starts with a header that says where each section
begins. Money is in micro-dollars, shares in micro-shares, perpetual units in nano-units, so that sums are exact.
Holders are numbered seats first, then background traders; the four house accounts follow them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.world.compiled import kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Seen = NDArray[np.float32]


class IntRow(Protocol):
    """A row of int64 as kernels get it: a bare pointer."""

    def __getitem__(self, at: int, /) -> int: ...
    def __setitem__(self, at: int, value: int, /) -> None: ...


class WordRow(Protocol):
    """Random words as kernels get them."""

    def __getitem__(self, at: int, /) -> Any: ...


class FloatRow(Protocol):
    """A row of floats as kernels get it."""

    def __getitem__(self, at: int, /) -> float: ...
    def __setitem__(self, at: int, value: float, /) -> None: ...


MICRO = 1_000_000
STAKE = 10_000 * MICRO
"""What every account starts with."""

SOURCES = 6
CHATS = 3
POSTS_KEPT = 64
MESSAGES_KEPT = 16
LEAST_TAPE = 32  # trades on the tape; more where many seats may be liquidated in one tick
PAST_KEPT = 64
HOURS = 24

# The header: clock, key, how many there have been, how many there are, where sections begin, what all share.
TICK, KEY0, KEY1, KEY2, KEY3, MARKETS_MADE, POSTS_MADE, MESSAGES_MADE, TRADES_MADE, PAST_MADE = range(10)
MARKETS, ASSETS, PERPS, SEATS, AGENTS, HOLDERS = range(10, 16)
AT_CASH, AT_BOOKS, AT_MARKETS, AT_ASSETS, AT_POSITIONS, AT_SHARES, AT_NOTES, AT_HEARD = range(16, 24)
AT_POSTS, AT_MESSAGES, AT_TRADES, AT_PAST, AT_MARKET_FLOATS, AT_CLAIM_WEIGHTS, AT_TIPS, AT_HOURS = range(24, 32)
NEXT_DUE, NEXT_FUNDING, NEXT_HOUR, HOUR_NOW, TAPE = range(32, 37)
RELIABILITY = 37  # of each source, then each chat, in thousandths
RECORD = RELIABILITY + SOURCES + CHATS  # of each source: right claims, all claims, on stories that are over
SAID = RECORD + 2 * SOURCES  # messages ever, by chat
HEADER = SAID + CHATS

# A holder's books; cash has a section of its own. MEMBER has one entry for each chat.
REALIZED, FEES_PAID, FUNDING_PAID, LIQUIDATIONS, REPUTATION, TRADES, VOLUME, DEPOSITS, MEMBER = range(9)
BOOK = MEMBER + CHATS
STRANGER, INVITED, JOINED = range(3)
MAKER, VENUE, INSURANCE, FEES, HOUSES = range(5)

# A market slot.
OPEN, ID, ASSET, KIND, DUE, Q_YES, Q_NO, TRADED, MARKET_INTS = range(9)
STRIKE, OFFSET, B, LOG_ODDS, COST, PRICE_YES, SLOW, BORN, MARKET_FLOATS = range(9)
ABOVE, EVENT, RISE = range(3)

# What a holder has in a market.
YES, NO, COST_YES, COST_NO, HOLDING = range(5)

# What is noted about a seat in a market: the first probability it stated, in micro-units, else -1; and YES less NO.
STATED, NET, NOTE = range(3)

# What a batch remembers of a seat's holding, apart from the worlds: its worth, and the market and volume it was computed at.
WORTH, WORTH_ID, WORTH_TRADED, MEMORY = range(4)

# An asset, its story and its perpetual.
THETA, REGIME, START, DUE_TICK, STORY, LAST, LONG_UNITS, SHORT_UNITS, ASSET_INTS = range(9)
NO_NEWS = 2
"""In LAST and in `heard`: nothing has been said."""

# TREND: how far the log-price lies from its slow average. RETURN: its last change. SINCE: its change
# since the story began, at the price BEGAN.
# PUSH: net taker notional over depth. MARKUP: the premium that it makes.
# SCORE: the story's claims so far, each weighed by its source's public record.
# WEIGHT: log-weights of theta, from public news. SAFE_ABOVE, SAFE_BELOW: between these marks no position is liquidated.
PRICE, WEIGHT = 0, 1
TREND, SENTIMENT, PUSH, MARKUP, RETURN, SINCE, SCORE, SAFE_ABOVE, SAFE_BELOW, BEGAN, ASSET_FLOATS = range(4, 15)
TIPS = 3 * CHATS

# A holder's position in a perpetual.
UNITS, MARGIN, ENTRY, POSITION = range(4)

# Rings: posts and messages, trades, resolved markets (their integers, the outcome, then floats in micro-units).
# The fields of a post are halves of words, so that it fills half a cache line. POST_BY is the author's number and kind.
POST_NO, POST_TICK, POST_BY, POST_ASSET, POST_CLAIM, POST_MARKET, POST_STYLE, POST_EVENT, POST_FIELDS = range(9)
POST = POST_FIELDS // 2
BY_SOURCE, BY_WIRE, BY_TRADER, BY_SEAT = range(4)
TRADE_TICK, TRADE_HOLDER, TRADE_KIND, TRADE_TARGET, TRADE_SIDE, TRADE_AMOUNT, TRADE_SHARES, TRADE = range(8)
BUY, SELL, OPEN_PERP, CLOSE_PERP, LIQUIDATION = range(5)
OUTCOME, PAST_BORN, PAST_STRIKE, PAST_OPENED, PAST_PRICE, PAST_B, PAST = range(MARKET_INTS, MARKET_INTS + 7)

# What order kernels return in place of a result.
UNKNOWN, POOR, TOO_SMALL, TOO_LARGE, TOO_FEW, NO_POSITION, BAD_LEVERAGE = -1, -2, -3, -4, -5, -6, -7


@kernel
def cash_of(i: IntRow, h: int) -> int:
    return i[AT_CASH] + h


@kernel
def house_of(i: IntRow, account: int) -> int:
    """Where the cash of a house account lies."""
    return i[AT_CASH] + i[HOLDERS] + account


@kernel
def book_of(i: IntRow, h: int) -> int:
    return i[AT_BOOKS] + h * BOOK


@kernel
def tape_end(i: IntRow) -> int:
    """Where the next trade goes; the tape has a power of two of places."""
    return i[AT_TRADES] + (i[TRADES_MADE] & (i[TAPE] - 1)) * TRADE


@kernel
def market_of(i: IntRow, m: int) -> int:
    return i[AT_MARKETS] + m * MARKET_INTS


@kernel
def prices_of(i: IntRow, m: int) -> int:
    """Where market `m` begins in the row of floats."""
    return i[AT_MARKET_FLOATS] + m * MARKET_FLOATS


@kernel
def asset_of(i: IntRow, a: int) -> int:
    return i[AT_ASSETS] + a * ASSET_INTS


@kernel
def holding_of(i: IntRow, m: int, h: int) -> int:
    return i[AT_SHARES] + (m * i[HOLDERS] + h) * HOLDING


@kernel
def note_of(i: IntRow, m: int, seat: int) -> int:
    return i[AT_NOTES] + (seat * i[MARKETS] + m) * NOTE


@kernel
def position_of(i: IntRow, a: int, h: int) -> int:
    return i[AT_POSITIONS] + (h * i[ASSETS] + a) * POSITION


@dataclass(frozen=True)
class State:
    """The rows of n worlds of one shape, and every section of them as an array with names for its last axis.

    The sections are views: writing to one writes to the world.
    """

    ints: Ints
    floats: Floats

    def _ints(self, at: int, *shape: int) -> Ints:
        begin = int(self.ints[0, at]) if at < HEADER else at
        return self.ints[:, begin : begin + int(np.prod(shape))].reshape(len(self.ints), *shape)

    def _floats(self, begin: int, *shape: int) -> Floats:
        return self.floats[:, begin : begin + int(np.prod(shape))].reshape(len(self.floats), *shape)

    def _many(self, of: int) -> int:
        return int(self.ints[0, of])

    @cached_property
    def header(self) -> Ints:
        return self.ints[:, :HEADER]

    @cached_property
    def cash(self) -> Ints:
        """[n, holders and houses]"""
        return self._ints(AT_CASH, self._many(HOLDERS) + HOUSES)

    @cached_property
    def books(self) -> Ints:
        """[n, holder, BOOK]"""
        return self._ints(AT_BOOKS, self._many(HOLDERS), BOOK)

    @cached_property
    def markets(self) -> Ints:
        """[n, market, MARKET_INTS]"""
        return self._ints(AT_MARKETS, self._many(MARKETS), MARKET_INTS)

    @cached_property
    def prices(self) -> Floats:
        """[n, market, MARKET_FLOATS]"""
        return self._floats(self._many(AT_MARKET_FLOATS), self._many(MARKETS), MARKET_FLOATS)

    @cached_property
    def assets(self) -> Ints:
        """[n, asset, ASSET_INTS]"""
        return self._ints(AT_ASSETS, self._many(ASSETS), ASSET_INTS)

    @cached_property
    def indices(self) -> Floats:
        """[n, asset, ASSET_FLOATS]"""
        return self._floats(0, self._many(ASSETS), ASSET_FLOATS)

    @cached_property
    def heard(self) -> Ints:
        """[n, asset, SOURCES]: what each source last said about the running story."""
        return self._ints(AT_HEARD, self._many(ASSETS), SOURCES)

    @cached_property
    def tips(self) -> Floats:
        """[n, asset, CHATS, 3]: log-weights of theta from each chat's tips."""
        return self._floats(self._many(AT_TIPS), self._many(ASSETS), CHATS, 3)

    @cached_property
    def hours(self) -> Floats:
        """[n, asset, HOURS, 2]: index price and volume by hour."""
        return self._floats(self._many(AT_HOURS), self._many(ASSETS), HOURS, 2)

    @cached_property
    def shares(self) -> Ints:
        """[n, market, holder, HOLDING]"""
        return self._ints(AT_SHARES, self._many(MARKETS), self._many(HOLDERS), HOLDING)

    @cached_property
    def notes(self) -> Ints:
        """[n, seat, market, NOTE]"""
        return self._ints(AT_NOTES, self._many(SEATS), self._many(MARKETS), NOTE)

    @cached_property
    def positions(self) -> Ints:
        """[n, asset, holder, POSITION]; in memory those of one holder lie together"""
        return self._ints(AT_POSITIONS, self._many(HOLDERS), self._many(ASSETS), POSITION).swapaxes(1, 2)

    @cached_property
    def posts(self) -> NDArray[np.int32]:
        """[n, POSTS_KEPT, POST_FIELDS]"""
        return self._ints(AT_POSTS, POSTS_KEPT, POST).view(np.int32)

    @cached_property
    def messages(self) -> NDArray[np.int32]:
        """[n, CHATS, MESSAGES_KEPT, POST_FIELDS]"""
        return self._ints(AT_MESSAGES, CHATS, MESSAGES_KEPT, POST).view(np.int32)

    @cached_property
    def trades(self) -> Ints:
        """[n, TAPE, TRADE]: a ring"""
        return self._ints(AT_TRADES, self._many(TAPE), TRADE)

    @cached_property
    def past(self) -> Ints:
        """[n, PAST_KEPT, PAST]: markets that have resolved."""
        return self._ints(AT_PAST, PAST_KEPT, PAST)

    def world(self, index: int) -> State:
        """One world as a batch of one, over the same memory."""
        return State(self.ints[index : index + 1], self.floats[index : index + 1])


def allocate(worlds: int, markets: int, perps: int, seats: int, agents: int) -> State:
    """Worlds that are not born yet but know their own shape. The first advance brings them to tick 0."""
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
    room = np.zeros(worlds * width + 8)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + worlds * width].reshape(worlds, width)
