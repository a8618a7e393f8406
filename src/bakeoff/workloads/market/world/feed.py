"""What is said: posts, tips and the tape of trades, as whole numbers in rings. Text is made only when someone reads it."""

from __future__ import annotations

from bakeoff.workloads.market.world.compiled import kernel
from bakeoff.workloads.market.world.layout import (
    AT_MESSAGES,
    AT_POSTS,
    DUE_TICK,
    MESSAGES_KEPT,
    MESSAGES_MADE,
    POST,
    POST_BY,
    POST_CLAIM,
    POST_NO,
    POST_STYLE,
    POSTS_KEPT,
    POSTS_MADE,
    SAID,
    TICK,
    TRADE_AMOUNT,
    TRADE_HOLDER,
    TRADE_KIND,
    TRADE_SHARES,
    TRADE_SIDE,
    TRADE_TARGET,
    TRADE_TICK,
    TRADES_MADE,
    IntRow,
    asset_of,
    tape_end,
)


@kernel
def publish(i: IntRow, kind: int, author: int, asset: int, claim: int, market: int, style: int) -> None:
    """Add a post to the feed. `market` is a market's number or -1."""
    number = i[POSTS_MADE]
    _write(i, i[AT_POSTS] + (number % POSTS_KEPT) * POST, number, kind, author, asset, claim, market, style)
    i[POSTS_MADE] = number + 1


@kernel
def whisper(i: IntRow, chat: int, kind: int, author: int, asset: int, claim: int, style: int) -> None:
    """Add a message to a chat."""
    number = i[MESSAGES_MADE]
    place = chat * MESSAGES_KEPT + i[SAID + chat] % MESSAGES_KEPT
    _write(i, i[AT_MESSAGES] + place * POST, number, kind, author, asset, claim, -1, style)
    i[SAID + chat] += 1
    i[MESSAGES_MADE] = number + 1


@kernel
def _write(
    i: IntRow, at: int, number: int, kind: int, author: int, asset: int, claim: int, market: int, style: int
) -> None:
    event = i[asset_of(i, asset) + DUE_TICK] if asset >= 0 else -1
    i[at + POST_NO // 2] = halves(number, i[TICK])
    i[at + POST_BY // 2] = halves(author << 2 | kind, asset)
    i[at + POST_CLAIM // 2] = halves(claim, market)
    i[at + POST_STYLE // 2] = halves(style, event)


@kernel
def halves(low: int, high: int) -> int:
    """Two numbers of 32 bits in one word."""
    return (low & 0xFFFFFFFF) | high << 32


@kernel
def print_trade(i: IntRow, holder: int, kind: int, target: int, side: int, amount: int, shares: int) -> None:
    """Add a trade to the tape. `target` is a market's number or an asset; `side` 0 is YES or LONG, 1 is NO or SHORT."""
    at = tape_end(i)
    i[at + TRADE_TICK] = i[TICK]
    i[at + TRADE_HOLDER] = holder
    i[at + TRADE_KIND] = kind
    i[at + TRADE_TARGET] = target
    i[at + TRADE_SIDE] = side
    i[at + TRADE_AMOUNT] = amount
    i[at + TRADE_SHARES] = shares
    i[TRADES_MADE] += 1
