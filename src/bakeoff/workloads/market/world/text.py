"""Sentences for what the feed holds as numbers. The wording is chosen by bits that carry no information."""

from __future__ import annotations

from collections.abc import Mapping

from bakeoff.workloads.market.world.layout import EVENT, RISE

Worded = Mapping[int, tuple[str, ...]]

_CLAIMS: Worded = {
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
_WIRE: Worded = {
    1: ("{t} announces: favourable.", "Announcement from {t}: the outcome is favourable.", "{t} delivers good news."),
    -1: (
        "{t} announces: unfavourable.",
        "Announcement from {t}: the outcome is unfavourable.",
        "{t} delivers bad news.",
    ),
    0: ("{t} announces: no change.", "Announcement from {t}: the outcome is neutral.", "{t} reports nothing new."),
}
_RUMOURS: Worded = {
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
_TIPS: Worded = {
    1: ("keep it here: {t} comes out well at {e}", "{t} @ {e}: good. source solid", "i would be long {t} into {e}"),
    -1: ("keep it here: {t} comes out badly at {e}", "{t} @ {e}: bad. source solid", "i would be short {t} into {e}"),
    0: (
        "keep it here: {t} is a non-event at {e}",
        "{t} @ {e}: nothing. source solid",
        "i would not trade {t} into {e}",
    ),
}


def _worded(table: Worded, claim: int, style: int, ticker: str, event: int) -> str:
    choices = table[claim]
    return choices[(style >> 1) % len(choices)].format(t=ticker, e=event)


def claim(claim: int, style: int, ticker: str, event: int) -> str:
    return _worded(_CLAIMS, claim, style, ticker, event)


def announcement(claim: int, style: int, ticker: str) -> str:
    return _worded(_WIRE, claim, style, ticker, 0)


def rumour(claim: int, style: int, ticker: str) -> str:
    return _worded(_RUMOURS, claim, style, ticker, 0)


def tip(claim: int, style: int, ticker: str, event: int) -> str:
    return _worded(_TIPS, claim, style, ticker, event)


def question(kind: int, ticker: str, strike: float, due: int) -> str:
    if kind == EVENT:
        return f"Will the {ticker} announcement at tick {due} be favourable?"
    if kind == RISE:
        return f"Will the {ticker} index at tick {due} be above its price when this market opened, {strike:.8g}?"
    return f"Will the {ticker} index be above {strike:g} at tick {due}?"
