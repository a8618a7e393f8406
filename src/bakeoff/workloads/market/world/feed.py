"""The feed: posts, chat messages and the tape of trades.

Kernels append them as whole numbers to rings (`append_post`, `append_message`, `append_trade`). Names and sentences are
made only when someone reads them, by the Python functions below. Everything is invented. The wording is chosen by bits
that carry no information.
"""

from __future__ import annotations

from collections.abc import Mapping

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import IntRow


@kernel
def append_post(i: IntRow, kind: int, author: int, asset: int, claim: int, market: int, style: int) -> None:
    """Add a post to the feed. `kind` is BY_SOURCE ... BY_SEAT; `market` is a market's number or -1."""
    number = i[at.POSTS_MADE]
    _write(i, i[at.AT_POSTS] + (number % at.POSTS_KEPT) * at.POST, number, kind, author, asset, claim, market, style)
    i[at.POSTS_MADE] = number + 1


@kernel
def append_message(i: IntRow, chat: int, kind: int, author: int, asset: int, claim: int, style: int) -> None:
    """Add a message to a chat."""
    number = i[at.MESSAGES_MADE]
    place = chat * at.MESSAGES_KEPT + i[at.SAID + chat] % at.MESSAGES_KEPT
    _write(i, i[at.AT_MESSAGES] + place * at.POST, number, kind, author, asset, claim, -1, style)
    i[at.SAID + chat] += 1
    i[at.MESSAGES_MADE] = number + 1


@kernel
def _write(
    i: IntRow, place: int, number: int, kind: int, author: int, asset: int, claim: int, market: int, style: int
) -> None:
    """Write the four words of a post or message, two 32-bit fields each.

    The tick of the announcement is kept, since the story may be over when the post is read.
    """
    event = i[at.asset_of(i, asset) + at.DUE_TICK] if asset >= 0 else -1
    i[place + at.POST_NO // 2] = halves(number, i[at.TICK])
    i[place + at.POST_BY // 2] = halves(author << 2 | kind, asset)
    i[place + at.POST_CLAIM // 2] = halves(claim, market)
    i[place + at.POST_STYLE // 2] = halves(style, event)


@kernel
def halves(low: int, high: int) -> int:
    """Two numbers of 32 bits in one word, as a little-endian machine reads it through an int32 view."""
    return (low & 0xFFFFFFFF) | high << 32


@kernel
def append_trade(i: IntRow, holder: int, kind: int, target: int, side: int, amount: int, shares: int) -> None:
    """Add a trade to the tape. `target` is a market's number or an asset; `side` 0 is YES or LONG, 1 is NO or SHORT."""
    end = at.tape_end(i)
    i[end + at.TRADE_TICK] = i[at.TICK]
    i[end + at.TRADE_HOLDER] = holder
    i[end + at.TRADE_KIND] = kind
    i[end + at.TRADE_TARGET] = target
    i[end + at.TRADE_SIDE] = side
    i[end + at.TRADE_AMOUNT] = amount
    i[end + at.TRADE_SHARES] = shares
    i[at.TRADES_MADE] += 1


# -- names

SOURCE_NAMES = (
    "Harbor Ledger",
    "The Copper Wire",
    "Tape & Tide",
    "Nightdesk",
    "Orchard Street Notes",
    "Basin Observer",
)
CHAT_NAMES = ("The Back Table", "Quiet Alpha", "Lantern Room")
WIRE_NAME = "Open Wire"
TRADER_NAMES = (
    "Ada Fenwick", "Bruno Castell", "Cleo Marsh", "Dario Lindt", "Edda Voss", "Farid Okoye", "Greta Holm", "Hugo Pratt-Lane",
    "Iris Tanaka-Bell", "Jonas Reuter-Vale", "Kira Solberg", "Levi Aramont", "Mina Duarte-Kess", "Nils Overbeck",
    "Odile Faure-Lind", "Piet Zandbergen",
)  # fmt: skip

assert len(SOURCE_NAMES) == at.SOURCES and len(CHAT_NAMES) == at.CHATS


def trader_name(agent: int) -> str:
    """Name of a background trader; numbered when there are more traders than names."""
    name, again = TRADER_NAMES[agent % len(TRADER_NAMES)], agent // len(TRADER_NAMES)
    return f"{name} {again + 1}" if again else name


# -- sentences, by claim. {t} is the ticker, {e} the tick of the announcement.

Sentences = Mapping[int, tuple[str, ...]]

CLAIMS: Sentences = {
    1: (
        "{t}: people close to the matter expect a favourable announcement at tick {e}.",
        "Hearing good things about {t} ahead of tick {e}.",
        "Our reading of the {t} file: the news due at tick {e} will please holders.",
        "Two desks tell us {t} comes out well when it reports at tick {e}.",
        "{t} looks set to surprise on the upside at tick {e}.",
        "Word on {t}: the decision at tick {e} goes its way.",
    ),
    -1: (
        "{t}: people close to the matter expect an unfavourable announcement at tick {e}.",
        "Hearing bad things about {t} ahead of tick {e}.",
        "Our reading of the {t} file: the news due at tick {e} will hurt holders.",
        "Two desks tell us {t} disappoints when it reports at tick {e}.",
        "{t} looks set to surprise on the downside at tick {e}.",
        "Word on {t}: the decision at tick {e} goes against it.",
    ),
    0: (
        "{t}: people close to the matter expect nothing new at tick {e}.",
        "We hear the {t} announcement at tick {e} will be neutral.",
        "Our reading of the {t} file: a non-event at tick {e}.",
        "Two desks tell us {t} will confirm what is known at tick {e}.",
        "Do not expect fireworks from {t} at tick {e}.",
        "Word on {t}: no change at tick {e}.",
    ),
}
ANNOUNCEMENTS: Sentences = {
    1: ("{t} announces: favourable.", "Announcement from {t}: the outcome is favourable.", "{t} delivers good news."),
    -1: (
        "{t} announces: unfavourable.",
        "Announcement from {t}: the outcome is unfavourable.",
        "{t} delivers bad news.",
    ),
    0: ("{t} announces: no change.", "Announcement from {t}: the outcome is neutral.", "{t} reports nothing new."),
}
RUMOURS: Sentences = {
    1: (
        "Loading up on {t}. Big things coming, trust me.",
        "{t} is about to fly, you heard it here first.",
        "Everyone I know is buying {t}. Last chance.",
        "{t} to the moon, insiders are all in.",
    ),
    -1: (
        "Get out of {t} while you can.",
        "{t} is finished, they just have not told you yet.",
        "Everyone I know is dumping {t}.",
        "Short {t}. Thank me later.",
    ),
}
TIPS: Sentences = {
    1: ("keep it here: {t} comes out well at {e}", "{t} @ {e}: good. source solid", "i would be long {t} into {e}"),
    -1: ("keep it here: {t} comes out badly at {e}", "{t} @ {e}: bad. source solid", "i would be short {t} into {e}"),
    0: (
        "keep it here: {t} is a non-event at {e}",
        "{t} @ {e}: nothing. source solid",
        "i would not trade {t} into {e}",
    ),
}


def sentence(table: Sentences, claim: int, style: int, ticker: str, event: int) -> str:
    """A claim in words. `style` picks the wording; its lowest bit is used elsewhere."""
    choices = table[claim]
    return choices[(style >> 1) % len(choices)].format(t=ticker, e=event)


def question(kind: int, ticker: str, strike: float, due: int) -> str:
    """What a market asks; `kind` is ABOVE, EVENT or RISE."""
    if kind == at.EVENT:
        return f"Will the {ticker} announcement at tick {due} be favourable?"
    if kind == at.RISE:
        return f"Will the {ticker} index at tick {due} be above its price when this market opened, {strike:.8g}?"
    return f"Will the {ticker} index be above {strike:g} at tick {due}?"
