"""One world as its players see it: rows of numbers become views when somebody looks. Public floats are rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.world import calls, names, text
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.chronicle import QUESTION_KINDS
from bakeoff.workloads.market.world.rules import CHAT_GATES, GAP, KINDS, LIQUIDITY, archetype
from bakeoff.workloads.market.world.views import (
    Account,
    ChatView,
    MarketView,
    MessageView,
    PerpPositionView,
    PerpView,
    PositionsView,
    PositionView,
    PostView,
    SourceView,
    TraderView,
    TradeView,
)

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

_POST_KINDS = ("source", "wire", "trader", "seat")
_TRADE_KINDS = ("buy", "sell", "open", "close", "liquidation")


def digits(value: float, count: int = 9) -> float:
    """Rounded to that many significant digits."""
    return float(f"{value:.{count}g}")


def account(world: World, seat: int) -> Account:
    book = world.state.books[0, seat].tolist()
    margin = int(world.state.positions[0, :, seat, at.MARGIN].sum())
    return Account(
        cash=world.state.cash.item(0, seat) / at.MICRO,
        equity=calls.equity(world.state.ints, world.state.floats, world.r, seat) / at.MICRO,
        margin=margin / at.MICRO,
        realized_pnl=book[at.REALIZED] / at.MICRO,
        fees=book[at.FEES_PAID] / at.MICRO,
        funding=book[at.FUNDING_PAID] / at.MICRO,
        liquidations=book[at.LIQUIDATIONS],
        reputation=book[at.REPUTATION] / at.MICRO,
        initial=at.STAKE / at.MICRO,
        trades=book[at.TRADES],
        volume=book[at.VOLUME] / at.MICRO,
    )


def markets(world: World) -> list[MarketView]:
    """The open ones, by slot."""
    slots, prices = world.state.markets[0].tolist(), world.state.prices[0].tolist()
    return [_market(world, slot, price) for slot, price in zip(slots, prices, strict=True) if slot[at.OPEN]]


def resolved_markets(world: World) -> list[MarketView]:
    """Those that have resolved, oldest first; the latest `PAST_KEPT` are remembered."""
    made = int(world.state.header[0, at.PAST_MADE])
    found = []
    for number in range(max(0, made - at.PAST_KEPT), made):
        row = world.state.past[0, number % at.PAST_KEPT].tolist()
        price = [0.0] * at.MARKET_FLOATS
        for to, source in (
            (at.STRIKE, at.PAST_STRIKE),
            (at.PRICE_YES, at.PAST_PRICE),
            (at.B, at.PAST_B),
        ):
            price[to] = row[source] / at.MICRO
        price[at.BORN] = row[at.PAST_BORN]
        found.append(_market(world, row, price, row[at.PAST_OPENED] / at.MICRO, bool(row[at.OUTCOME])))
    return found


def _market(
    world: World, slot: list[int], price: list[float], opened: float | None = None, outcome: bool | None = None
) -> MarketView:
    ticker, kind, strike = world.ticker(slot[at.ASSET]), slot[at.KIND], digits(price[at.STRIKE])
    yes, born = round(price[at.PRICE_YES], 6), int(price[at.BORN])
    return MarketView(
        id=names.market_id(slot[at.ID]),
        question=text.question(kind, ticker, strike, slot[at.DUE]),
        ticker=ticker,
        kind=QUESTION_KINDS[kind],  # type: ignore[arg-type]
        strike=strike,
        yes_shares=slot[at.Q_YES] / at.MICRO,
        no_shares=slot[at.Q_NO] / at.MICRO,
        yes_price=yes,
        no_price=round(1.0 - yes, 6),
        opening_price=round(1.0 / (1.0 + math.exp(-price[at.OFFSET])) if opened is None else opened, 6),
        liquidity=price[at.B],
        total_volume=slot[at.TRADED] / at.MICRO,
        resolved=not slot[at.OPEN],
        outcome=outcome,
        created_tick=born,
        resolve_tick=slot[at.DUE],
        created_at=world.time_at(born),
        resolve_at=world.time_at(slot[at.DUE]),
    )


def assets(world: World) -> list[PerpView]:
    return [
        _perp(world, a, ints, floats)
        for a, (ints, floats) in enumerate(
            zip(world.state.assets[0].tolist(), world.state.indices[0].tolist(), strict=True)
        )
    ]


def _perp(world: World, a: int, ints: list[int], floats: list[float]) -> PerpView:
    rules, tick = world.rules, world.tick
    price = floats[at.PRICE]
    premium = premium_of(world, floats[at.PUSH])
    rate = max(-rules.funding_cap, min(rules.funding_cap, rules.funding_share * premium))
    due = tick - tick % rules.funding_every + rules.funding_every
    hours, now = world.state.hours[0, a], tick // rules.hour
    kept = [h % at.HOURS for h in range(max(0, now - at.HOURS + 1), now + 1)]
    return PerpView(
        ticker=world.ticker(a),
        price=digits(price * (1.0 + premium)),
        index_price=digits(price),
        price_change_24h=round(100.0 * (price / float(hours[kept[0], 0]) - 1.0), 4),
        volume_24h=round(float(hours[kept, 1].sum()), 2),
        open_interest=round((ints[at.LONG_UNITS] + ints[at.SHORT_UNITS]) * 1e-9 * price, 2),
        funding_rate=round(rate, 8),
        next_funding_tick=due,
        next_funding_time=world.time_at(due),
        max_leverage=max_leverage(world, a),
        depth=rules.depth * float(rules.regime[ints[at.REGIME], LIQUIDITY]),
        regime=KINDS[ints[at.REGIME]],
        story=ints[at.STORY],
        story_tick=ints[at.START],
        announcement_tick=ints[at.DUE_TICK],
        last_announcement=None if ints[at.LAST] == at.NO_NEWS else ints[at.LAST],
    )


def premium_of(world: World, push: float) -> float:
    return world.rules.linear * push + math.copysign(world.rules.root * math.sqrt(abs(push)), push)


def requirement(world: World, a: int) -> float:
    """Least margin for each dollar of position at this tick."""
    row = world.state.assets[0, a]
    if world.tick + 1 == row[at.DUE_TICK]:
        return max(world.rules.maintenance, float(world.rules.regime[row[at.REGIME], GAP]))
    return world.rules.maintenance


def max_leverage(world: World, a: int) -> float:
    """What an order may ask for now; a little below what margin and slippage allow on the eve of an announcement."""
    return min(world.rules.max_leverage, math.floor(9.5 / requirement(world, a)) / 10.0)


def posts(world: World, limit: int) -> list[PostView]:
    """The latest, newest first."""
    made = int(world.state.header[0, at.POSTS_MADE])
    numbers = range(made - 1, max(made - min(limit, at.POSTS_KEPT), 0) - 1, -1)
    return [_post(world, world.state.posts[0, number % at.POSTS_KEPT].tolist()) for number in numbers]


def _post(world: World, row: list[int]) -> PostView:
    (author, kind), style, claim = divmod(row[at.POST_BY], 4), row[at.POST_STYLE], row[at.POST_CLAIM]
    ticker = world.ticker(row[at.POST_ASSET]) if row[at.POST_ASSET] >= 0 else None
    number = row[at.POST_NO]
    known: dict[str, Any] = {
        "id": f"post-{number}",
        "kind": _POST_KINDS[kind],
        "tick": row[at.POST_TICK],
        "created_at": world.time_at(row[at.POST_TICK]),
        "ticker": ticker,
        "claim": claim,
        "market_id": names.market_id(row[at.POST_MARKET]) if row[at.POST_MARKET] >= 0 else None,
        "likes": style % 20,
        "comments": style % 5,
    }
    if kind == at.BY_SEAT:
        said = world.said[author, style]
        likes = _followers(world, row) if said.side is not None or said.probability is not None else 0
        known |= {
            "id": said.id,
            "claim": None,
            "side": said.side,
            "probability": said.probability,
            "likes": likes,
            "comments": likes // 3,
        }
        return PostView(
            **known, author_id=names.seat_id(author), author_name=names.seat_id(author), content=said.content
        )
    assert ticker is not None
    event = row[at.POST_EVENT]
    if kind == at.BY_SOURCE:
        who = names.source_id(author), names.SOURCE_NAMES[author], text.claim(claim, style, ticker, event)
    elif kind == at.BY_WIRE:
        who = "wire", names.WIRE_NAME, text.announcement(claim, style, ticker)
    else:
        who = names.agent_id(author), names.trader_name(author), text.rumour(claim, style, ticker)
    return PostView(**known, author_id=who[0], author_name=who[1], content=who[2])


def _followers(world: World, row: list[int]) -> int:
    """How many of the crowd a seat's post moves: those who trade by mood, as far as they trust its author.

    Whoever writes several posts in one tick shares that attention among them, and words without a stance move nobody.
    """
    if row[at.POST_TICK] >= world.tick:
        return 0
    crowd = sum(archetype(world.scenario, agent) in ("noise", "momentum") for agent in range(world.scenario.agents))
    fields = [at.POST_BY, at.POST_TICK]
    same = (world.state.posts[0][:, fields] == [row[field] for field in fields]).all(1)
    trust = int(world.state.books[0, row[at.POST_BY] // 4, at.REPUTATION]) / at.MICRO / 100.0
    return int(crowd * trust / max(1, int(same.sum())))


def chats(world: World, seat: int) -> list[ChatView]:
    """All chats; messages only of those that the seat has joined."""
    return [_chat(world, seat, chat) for chat in range(at.CHATS)]


def _chat(world: World, seat: int, chat: int) -> ChatView:
    state = world.state
    membership = state.books[0, : world.seats, at.MEMBER + chat].tolist()
    total = int(state.header[0, at.SAID + chat])
    rows = [
        state.messages[0, chat, number % at.MESSAGES_KEPT].tolist()
        for number in range(max(0, total - at.MESSAGES_KEPT), total)
    ]
    joined = membership[seat] == at.JOINED
    members = tuple(names.seat_id(each) for each, how in enumerate(membership) if how == at.JOINED)
    return ChatView(
        id=names.chat_id(chat),
        name=names.CHAT_NAMES[chat],
        member_ids=members,
        member_count=len(members) + 1,
        message_count=total,
        last_activity=world.time_at(rows[-1][at.POST_TICK] if rows else 0),
        invited=membership[seat] == at.INVITED,
        joined=joined,
        minimum_reputation=CHAT_GATES[chat],
        messages=tuple(_message(world, chat, row) for row in rows) if joined else (),
    )


def _message(world: World, chat: int, row: list[int]) -> MessageView:
    ticker = world.ticker(row[at.POST_ASSET]) if row[at.POST_ASSET] >= 0 else None
    common: dict[str, Any] = {
        "id": f"message-{row[at.POST_NO]}",
        "tick": row[at.POST_TICK],
        "created_at": world.time_at(row[at.POST_TICK]),
        "ticker": ticker,
    }
    number, kind = divmod(row[at.POST_BY], 4)
    if kind == at.BY_SEAT:
        author, said = names.seat_id(number), world.said[number, row[at.POST_STYLE]]
        return MessageView(**common, author_id=author, author_name=author, content=said.content, claim=None)
    assert ticker is not None
    content = text.tip(row[at.POST_CLAIM], row[at.POST_STYLE], ticker, row[at.POST_EVENT])
    return MessageView(
        **common,
        author_id=names.chat_id(chat),
        author_name=f"{names.CHAT_NAMES[chat]} host",
        content=content,
        claim=row[at.POST_CLAIM],
    )


def positions(world: World, seat: int) -> PositionsView:
    held = world.state.shares[0, :, seat].tolist()
    views = {m: _market(world, slot, price) for m, slot, price in _slots(world) if held[m][at.YES] or held[m][at.NO]}
    shares = [
        _position(world, seat, views[m], m, side, held[m])
        for m in views
        for side in (at.YES, at.NO)
        if held[m][side] > 0
    ]
    perps = [
        _perp_position(world, seat, a, row)
        for a, row in enumerate(world.state.positions[0, :, seat].tolist())
        if row[at.UNITS] != 0
    ]
    return PositionsView(tuple(shares), tuple(perps))


def _slots(world: World) -> list[tuple[int, list[int], list[float]]]:
    slots, prices = world.state.markets[0].tolist(), world.state.prices[0].tolist()
    return [(m, slot, prices[m]) for m, slot in enumerate(slots) if slot[at.OPEN]]


def _position(world: World, seat: int, market: MarketView, m: int, side: int, held: list[int]) -> PositionView:
    count, cost = held[side], held[at.COST_YES + side]
    name = "YES" if side == at.YES else "NO"
    value = calls.shares_worth(world.state.ints, world.state.floats, world.r, m, seat, side) / at.MICRO
    return PositionView(
        id=f"{market.id}:{name}",
        market_id=market.id,
        question=market.question,
        side=name,
        shares=count / at.MICRO,
        avg_price=round(cost / count, 6),
        cost=cost / at.MICRO,
        current_price=market.yes_price if side == at.YES else market.no_price,
        value=value,
        unrealized_pnl=round(value - cost / at.MICRO, 6),
    )


def _perp_position(world: World, seat: int, a: int, row: list[int]) -> PerpPositionView:
    units, margin, entry = row
    push, price = float(world.state.indices[0, a, at.PUSH]), float(world.state.indices[0, a, at.PRICE])
    mark = price * (1.0 + premium_of(world, push))
    size, need, sign = abs(units) * 1e-9 * mark, requirement(world, a), 1 if units > 0 else -1
    value = calls.position_worth(world.state.ints, world.state.floats, world.r, a, seat)
    return PerpPositionView(
        id=world.ticker(a),
        ticker=world.ticker(a),
        side="LONG" if units > 0 else "SHORT",
        size=round(size, 6),
        units=abs(units) * 1e-9,
        entry_price=digits(entry / units * 1e3),
        current_price=digits(mark),
        leverage=round(size * at.MICRO / margin, 4) if margin else math.inf,
        margin=margin / at.MICRO,
        unrealized_pnl=round(units * 1e-9 * mark - entry / at.MICRO, 6),
        liquidation_price=digits(max(0.0, (entry - margin) / (units * 1e-3 * (1.0 - sign * need)))),
        value=value / at.MICRO,
    )


def background(world: World) -> list[TraderView]:
    found = []
    for agent in range(world.scenario.agents):
        h = world.seats + agent
        book = world.state.books[0, h].tolist()
        worth = calls.equity(world.state.ints, world.state.floats, world.r, h)
        found.append(
            TraderView(
                id=names.agent_id(agent),
                name=names.trader_name(agent),
                archetype=archetype(world.scenario, agent),
                reputation=book[at.REPUTATION] / at.MICRO,
                total_pnl=(worth - at.STAKE - book[at.DEPOSITS]) / at.MICRO,
            )
        )
    return found


def sources(world: World) -> list[SourceView]:
    row = world.state.header[0, at.RECORD : at.RECORD + 2 * at.SOURCES].tolist()
    return [
        SourceView(names.source_id(s), names.SOURCE_NAMES[s], row[2 * s], row[2 * s + 1]) for s in range(at.SOURCES)
    ]


def trades(world: World, limit: int) -> list[TradeView]:
    """The latest, newest first."""
    return [_trade(world, row) for row in islice(_tape(world), limit)]


def latest_of(world: World, holder: int, count: int) -> list[TradeView]:
    """A holder's latest trades, oldest first; fewer than `count` when the tape has forgotten some."""
    own = islice((row for row in _tape(world) if row[at.TRADE_HOLDER] == holder), count)
    return [_trade(world, row) for row in own][::-1]


def _tape(world: World) -> Iterator[list[int]]:
    """Newest first."""
    made, kept = int(world.state.header[0, at.TRADES_MADE]), world.state.trades.shape[1]
    for number in range(made - 1, max(made - kept, 0) - 1, -1):
        yield world.state.trades[0, number % kept].tolist()


def _trade(world: World, row: list[int]) -> TradeView:
    kind, holder, shares = row[at.TRADE_KIND], row[at.TRADE_HOLDER], row[at.TRADE_SHARES]
    market = kind in (at.BUY, at.SELL)
    sides = ("YES", "NO") if market else ("LONG", "SHORT")
    units = shares / at.MICRO if market else shares * 1e-9
    return TradeView(
        tick=row[at.TRADE_TICK],
        trader_id=names.seat_id(holder) if holder < world.seats else names.agent_id(holder - world.seats),
        kind=_TRADE_KINDS[kind],  # type: ignore[arg-type]
        target=names.market_id(row[at.TRADE_TARGET]) if market else world.ticker(row[at.TRADE_TARGET]),
        side=sides[row[at.TRADE_SIDE]],
        amount=row[at.TRADE_AMOUNT] / at.MICRO,
        shares=units,
        price=digits(row[at.TRADE_AMOUNT] / at.MICRO / units),
    )
