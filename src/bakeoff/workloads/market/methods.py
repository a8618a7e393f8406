"""The `a2a.*` methods: what each takes, does and returns. Every transport is generated from this table.

Each function takes a session and its validated parameters. Its docstring is what agents read in tools and in the
OpenAPI document: a description, and after `Returns` a sketch of the result. A method that changes something takes a
`rpc.Mutation`; all others only read.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from bakeoff.workloads.market import rpc
from bakeoff.workloads.market.rpc import refusal
from bakeoff.workloads.market.world.views import plain, plains

if TYPE_CHECKING:
    from bakeoff.workloads.market.session import Session
    from bakeoff.workloads.market.world.views import Account, ChatView, Fill, MarketView, PostView

PREFIX = "a2a."
END_TURN = "a2a.endTurn"
OBSERVE = "a2a.observe"
OBSERVED_POSTS = 20
"""Posts in an observation at most: the newest."""
SEARCHED_POSTS = 500

Result = dict[str, Any]
Implementation = Callable[["Session", Any], Result]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the protocol."""

    name: str
    short: str
    """The name without its prefix, for places that allow no dots."""
    params: type[rpc.Params]
    run: Implementation
    description: str
    result: str
    """What it returns, as a sketch of the JSON."""
    mutates: bool
    """Whether it changes something, and so counts against the action budget."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters."""
        return rpc.schema(self.params)


@dataclass(slots=True)
class Looks:
    """What a reader has seen of feed and chats, so that the next observation can begin there.

    All looks in one tick begin at the same place. A look counts from the first one of its tick, so what is written after
    it, also by the reader, is news in the next tick.
    """

    tick: int = -1
    posts: int = 0
    messages: int = 0
    """The first post and the first message that are news in `tick`, by number."""
    chats: frozenset[str] = frozenset()
    """Chats whose messages the reader could see in an earlier tick."""
    _next: tuple[int, int, frozenset[str]] = (0, 0, frozenset())

    def news(self, session: Session) -> tuple[list[PostView], list[ChatView]]:
        """Return the newest posts since the last look, and all chats with their messages since then."""
        world, chats = session.world, session.chats()
        posts_made, messages_made = world.said_so_far()
        if world.tick != self.tick:
            self.posts, self.messages, self.chats = self._next
            joined = frozenset(view.id for view in chats if view.joined)
            self.tick, self._next = world.tick, (posts_made, messages_made, joined)
        posts = world.posts(session.seat, min(OBSERVED_POSTS, posts_made - self.posts))
        return posts, [
            replace(
                view, messages=tuple(each for each in view.messages if int(each.id.rpartition("-")[2]) >= self.messages)
            )
            if view.id in self.chats
            else view
            for view in chats
        ]


METHODS: dict[str, Method] = {}
"""Every method by its full name, in the order of this module."""


def _method(params: type[rpc.Params], name: str = "") -> Callable[[Implementation], Implementation]:
    """Register a function as a method: `get_feed` becomes `a2a.getFeed`, unless a name is given."""

    def register(run: Implementation) -> Implementation:
        short = name or to_camel(run.__name__)
        description, _, result = " ".join((run.__doc__ or "").split()).partition(" Returns ")
        mutates = issubclass(params, rpc.Mutation)
        METHODS[PREFIX + short] = Method(PREFIX + short, short, params, run, description, result, mutates)
        return run

    return register


def find(name: str) -> Method:
    """Return a method by its name, with or without the prefix. Raises RpcError `method_not_found` with a suggestion."""
    method = METHODS.get(name) or METHODS.get(PREFIX + name)
    if method is not None:
        return method
    # Cut first: names come from agents, and difflib takes quadratic time.
    close = difflib.get_close_matches(name[:100], METHODS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise refusal("method_not_found", f"there is no method {name[:100]!r}{hint}")


@_method(rpc.NoParams)
def observe(session: Session, _: rpc.NoParams) -> Result:
    """Everything you may see in this tick: markets, perpetuals, your account and positions, and the posts and chat
    messages since you last looked in an earlier tick. getFeed and getChatMessages have older ones.

    Returns {tick, ticks, timestamp, done, agentId, actionsLeft, account, predictionMarkets[], perpetualMarkets[],
    positions{marketPositions[], perpPositions[]}, fills[], posts[], groupChats[], agents[]}
    """
    return observation(session, session.looks)


def observation(session: Session, looks: Looks) -> Result:
    """Return what `observe` shows to a reader whose looks these are."""
    world, seat = session.world, session.seat
    posts, chats = looks.news(session)
    return {
        **session.clock_facts(),
        "agentId": session.agent_id,
        "actionsLeft": session.actions_left,
        "account": plain(world.account(seat)),
        "predictionMarkets": plains(world.markets()),
        "perpetualMarkets": plains(world.perpetuals()),
        "positions": plain(world.positions(seat)),
        "fills": plains(world.fills(seat)),
        "posts": plains(posts),
        "groupChats": plains(chats),
        "sources": plains(world.sources()),
        "agents": plains(world.background()),
    }


@_method(rpc.EndTurn)
def end_turn(session: Session, request: rpc.EndTurn) -> Result:
    """End your turn in this tick. Time advances when every agent of the world has ended its turn, or is late.

    Returns {tick, ticks, timestamp, done}
    """
    return session.end_turn() if request.ends(session.world.tick) else session.clock_facts()


# -- markets


@_method(rpc.GetPredictions)
def get_predictions(session: Session, request: rpc.GetPredictions) -> Result:
    """The prediction markets: open questions, or resolved ones.

    Returns {predictions: [{id, question, yesShares, noShares, yesPrice, noPrice, liquidity, totalVolume, createdAt,
    resolveAt, resolved, outcome}], count}
    """
    resolved = request.status == "resolved"
    markets = session.world.resolved_markets() if resolved else session.world.markets()
    rows = [plain(view) for view in markets if view.resolved is resolved]
    return {"predictions": rows, "count": len(rows)}


@_method(rpc.NoParams)
def get_perpetuals(session: Session, _: rpc.NoParams) -> Result:
    """The perpetual futures with index and mark price, funding and open interest.

    Returns {perpetuals: [{ticker, price, indexPrice, priceChange24h, volume24h, openInterest, fundingRate,
    nextFundingTime, maxLeverage, announcementTick, ...}]}
    """
    return {"perpetuals": plains(session.world.perpetuals())}


def _market(session: Session, market_id: str) -> MarketView:
    """Return a market, open or resolved. Raises RpcError `market_not_found`."""
    for view in (*session.world.markets(), *session.world.resolved_markets()):
        if view.id == market_id:
            return view
    raise refusal("market_not_found", f"there is no market {market_id!r}", marketId=market_id)


@_method(rpc.OfMarket)
def get_market_data(session: Session, request: rpc.OfMarket) -> Result:
    """One prediction market.

    Returns {marketId, question, outcomes: [YES, NO], prices: [yes, no], volume, liquidity, resolveAt, resolved}
    """
    view = _market(session, request.market_id)
    return {
        **plain(view),
        "marketId": view.id,
        "outcomes": ["YES", "NO"],
        "prices": [view.yes_price, view.no_price],
        "volume": view.total_volume,
    }


@_method(rpc.OfMarket)
def get_market_prices(session: Session, request: rpc.OfMarket) -> Result:
    """The prices of one prediction market.

    Returns {marketId, prices: [{outcome, price}], timestamp}
    """
    view = _market(session, request.market_id)
    prices = [{"outcome": "YES", "price": view.yes_price}, {"outcome": "NO", "price": view.no_price}]
    return {"marketId": view.id, "prices": prices, "timestamp": session.world.time}


# Of a sealed order an agent may see only what it ordered; price and size are known when the tick closes.
_SEALED = ("kind", "target", "side", "positionId", "tick", "orderId", "status")


def _fill(fill: Fill, **aliases: float) -> Result:
    """Return a fill as JSON, with `aliases` that the protocol uses. A sealed order has no price or size yet."""
    row = plain(fill)
    if fill.status == "sealed":
        return {**{name: row[name] for name in _SEALED}, "queued": True}
    return {**row, "avgPrice": fill.price, "queued": False, **aliases}


@_method(rpc.BuyShares)
def buy_shares(session: Session, request: rpc.BuyShares) -> Result:
    """Spend dollars on YES or NO shares of a prediction market. A share of the right side pays 1.

    Returns {shares, avgPrice, positionId, cost, fee} or {queued: true, positionId} when orders are sealed
    """
    fill = session.world.buy(session.seat, request.market_id, request.outcome, request.amount)
    return _fill(fill, cost=fill.amount)


@_method(rpc.SellShares)
def sell_shares(session: Session, request: rpc.SellShares) -> Result:
    """Sell shares you hold, named by positionId or by marketId and outcome.

    Returns {shares, avgPrice, positionId, proceeds, fee} or {queued: true, positionId}
    """
    market_id = request.market_id
    side: str | None = request.outcome
    if market_id is None or side is None:  # without an outcome it is the side that is held, if there is only one
        held = [
            view
            for view in session.world.positions(session.seat).markets
            if request.position_id == view.id or request.market_id == view.market_id
        ]
        if not held:
            raise refusal("position_not_found", f"you hold no shares of {request.position_id or market_id!r}")
        if len(held) > 1:
            raise refusal("invalid_params", "outcome: you hold both YES and NO; say which to sell", path="outcome")
        market_id, side = held[0].market_id, held[0].side
    fill = session.world.sell(session.seat, market_id, side, request.shares)
    return _fill(fill, proceeds=fill.amount)


@_method(rpc.OpenPosition)
def open_position(session: Session, request: rpc.OpenPosition) -> Result:
    """Go LONG or SHORT in a perpetual for `size` dollars of notional value with isolated margin size / leverage. The
    same side adds to your position, the other side reduces it first.

    Returns {positionId, entryPrice, size, fee} or {queued: true, positionId}
    """
    fill = session.world.open(session.seat, request.ticker, request.side, request.notional, request.leverage)
    return _fill(fill, entryPrice=fill.price, size=fill.amount)


@_method(rpc.ClosePosition)
def close_position(session: Session, request: rpc.ClosePosition) -> Result:
    """Close a perpetual position, or `size` dollars of it.

    Returns {pnl, exitPrice, size, fee, positionId} or {queued: true, positionId}
    """
    tickers = {view.id: view.ticker for view in session.world.positions(session.seat).perps}
    # There is one position per ticker, so a ticker names its position too.
    tickers |= {view.ticker: view.ticker for view in session.world.perpetuals()}
    if request.position_id not in tickers:
        raise refusal("position_not_found", f"you have no perpetual position {request.position_id!r}")
    fill = session.world.close(session.seat, tickers[request.position_id], request.size)
    return _fill(fill, exitPrice=fill.price, size=fill.amount, pnl=fill.realized_pnl)


@_method(rpc.AboutUser)
def get_positions(session: Session, request: rpc.AboutUser) -> Result:
    """Your open positions.

    Returns {marketPositions: [{id, marketId, question, side, shares, avgPrice, currentPrice, unrealizedPnL}],
    perpPositions: [{id, ticker, side, size, entryPrice, currentPrice, leverage, unrealizedPnL, liquidationPrice}]}
    """
    _check_own(session, request.user_id)
    return plain(session.world.positions(session.seat))


@_method(rpc.GetTrades)
def get_trades(session: Session, request: rpc.GetTrades) -> Result:
    """The newest trades of everybody.

    Returns {trades: [{tick, traderId, kind, target, side, amount, shares, price}]}
    """
    if request.market_id is None:
        return {"trades": plains(session.world.trades(request.limit))}
    trades = [trade for trade in session.world.trades(SEARCHED_POSTS) if trade.target == request.market_id]
    return {"trades": plains(trades[: request.limit])}


@_method(rpc.GetTradeHistory)
def get_trade_history(session: Session, request: rpc.GetTradeHistory) -> Result:
    """Your own newest trades.

    Returns {trades: [{tick, traderId, kind, target, side, amount, shares, price}]}
    """
    _check_own(session, request.user_id)
    return {"trades": plains(session.world.own_trades(session.seat, request.limit))}


# -- portfolio


def _check_own(session: Session, user_id: str | None) -> None:
    """Raise RpcError `not_permitted` for the account of anybody else."""
    if user_id is not None and user_id != session.agent_id:
        raise refusal("not_permitted", f"you are {session.agent_id}; accounts of others are private", path="userId")


def _profit(account: Account) -> float:
    """Return the result so far in dollars, to the micro-dollar that the world counts in."""
    return round(account.equity - account.initial, 6)


@_method(rpc.NoParams)
def get_balance(session: Session, _: rpc.NoParams) -> Result:
    """Your cash and your result so far.

    Returns {balance, totalDeposited, totalWithdrawn, lifetimePnL, reputationPoints}
    """
    account = session.world.account(session.seat)
    return {
        "balance": account.cash,
        "totalDeposited": account.initial,
        "totalWithdrawn": 0.0,
        "lifetimePnL": _profit(account),
        "reputationPoints": account.reputation,
    }


@_method(rpc.NoParams)
def get_portfolio(session: Session, _: rpc.NoParams) -> Result:
    """Your account and positions.

    Returns {balance, equity, pnl, positions: [...]}
    """
    account = session.world.account(session.seat)
    held = plain(session.world.positions(session.seat))
    return {
        "balance": account.cash,
        "equity": account.equity,
        "pnl": _profit(account),
        "positions": [*held["marketPositions"], *held["perpPositions"]],
    }


@_method(rpc.NoParams)
def get_dashboard(session: Session, _: rpc.NoParams) -> Result:
    """Your account in a few numbers.

    Returns {balance, equity, reputation, totalPnl, activePositions}
    """
    account = session.world.account(session.seat)
    held = session.world.positions(session.seat)
    return {
        "balance": account.cash,
        "equity": account.equity,
        "reputation": account.reputation,
        "totalPnl": _profit(account),
        "activePositions": len(held.markets) + len(held.perps),
    }


@_method(rpc.AboutUser)
def get_user_wallet(session: Session, request: rpc.AboutUser) -> Result:
    """Your account in full. Those of others are private.

    Returns {userId, balance, equity, margin, realizedPnl, fees, funding, liquidations, reputation}
    """
    _check_own(session, request.user_id)
    account = session.world.account(session.seat)
    return {"userId": session.agent_id, "balance": account.cash, **plain(account)}


# -- social


def _page(rows: Sequence[Any], request: rpc.Page) -> tuple[Sequence[Any], bool]:
    """Return the requested rows, and whether there are more."""
    end = request.offset + request.limit
    return rows[request.offset : end], len(rows) > end


@_method(rpc.GetFeed)
def get_feed(session: Session, request: rpc.GetFeed) -> Result:
    """The public feed, newest first: news, rumours, posts.

    Returns {posts: [{id, authorId, authorName, content, createdAt, marketId}], hasMore}
    """
    by_trader = {"post": True, "news": False, "article": False}.get(request.type or "")
    posts = [
        view
        for view in session.world.posts(session.seat, SEARCHED_POSTS)
        if by_trader in (None, view.kind in ("trader", "seat"))
        and request.market_id in (None, view.market_id, view.ticker)
    ]
    shown, more = _page(posts, request)
    return {"posts": plains(shown), "hasMore": more}


@_method(rpc.OfPost)
def get_post(session: Session, request: rpc.OfPost) -> Result:
    """One post of the feed.

    Returns {post: {...}}
    """
    for view in session.world.posts(session.seat, SEARCHED_POSTS):
        if view.id == request.post_id:
            return {"post": plain(view)}
    raise refusal("post_not_found", f"there is no post {request.post_id!r} among the newest {SEARCHED_POSTS}")


@_method(rpc.CreatePost)
def create_post(session: Session, request: rpc.CreatePost) -> Result:
    """Write to the feed. A probability you state for a market is scored when it resolves and moves your reputation.

    Returns {postId}
    """
    post_id = session.world.post(
        session.seat, request.content, request.market_id, side=request.outcome, probability=request.probability
    )
    return {"postId": post_id}


# -- chats


def _chat(views: Sequence[ChatView], chat_id: str, **data: Any) -> ChatView:
    """Return one of `views`. Raises RpcError `chat_not_found`."""
    for view in views:
        if view.id == chat_id:
            return view
    raise refusal("chat_not_found", f"there is no chat {chat_id!r}", **data)


@_method(rpc.GetChats)
def get_chats(session: Session, request: rpc.GetChats) -> Result:
    """Group chats you are in or invited to.

    Returns {chats: [{id, name, memberCount, messageCount, lastActivity, invited, joined}]}
    """
    return {"chats": [] if request.filter == "dms" else plains(session.chats())}


@_method(rpc.GetChatMessages)
def get_chat_messages(session: Session, request: rpc.GetChatMessages) -> Result:
    """The newest messages of a chat you are in.

    Returns {messages: [{id, authorId, content, createdAt}], hasMore}
    """
    view = _chat(session.chats(), request.chat_id, path="chatId")
    if not view.joined:
        raise refusal("not_permitted", f"you are not in {view.id}", path="chatId")
    shown, more = _page(view.messages, request)
    return {"messages": plains(shown), "hasMore": more}


@_method(rpc.SendMessage)
def send_message(session: Session, request: rpc.SendMessage) -> Result:
    """Write to a chat you are in.

    Returns {messageId}
    """
    return {"messageId": session.world.message(session.seat, request.chat_id, request.content)}


@_method(rpc.NoParams)
def get_group_invites(session: Session, _: rpc.NoParams) -> Result:
    """Chats that have invited you.

    Returns {invites: [{inviteId, groupId, name}]}
    """
    invited = [view for view in session.chats() if view.invited and not view.joined]
    return {"invites": [{"inviteId": view.id, "groupId": view.id, "name": view.name} for view in invited]}


def _hide(session: Session, chat_id: str, *, joined: bool) -> Result:
    """Do not show a chat until it is joined again. The world itself knows no leaving or declining."""
    view = _chat(session.world.chats(session.seat), chat_id)
    applies = view.joined if joined else view.invited and not view.joined
    if not applies or chat_id in session.hidden_chats:
        raise refusal("not_permitted", f"you are not {'in' if joined else 'invited to'} {chat_id!r}")
    session.hidden_chats.add(chat_id)
    return {"success": True, "chatId": chat_id}


@_method(rpc.OfInvite)
def decline_group_invite(session: Session, request: rpc.OfInvite) -> Result:
    """Hide an invitation.

    Returns {success}
    """
    return _hide(session, request.chat_id, joined=False)


@_method(rpc.OfInvite, "acceptGroupInvite")
@_method(rpc.JoinGroup)
def join_group(session: Session, request: rpc.JoinGroup | rpc.OfInvite) -> Result:
    """Join a chat that invited you.

    Returns {success}
    """
    if not _chat(session.world.chats(session.seat), request.chat_id).joined:
        session.world.join(session.seat, request.chat_id)
    session.hidden_chats.discard(request.chat_id)
    return {"success": True, "chatId": request.chat_id}


@_method(rpc.LeaveChat)
def leave_chat(session: Session, request: rpc.LeaveChat) -> Result:
    """Hide a chat you are in.

    Returns {success}
    """
    return _hide(session, request.chat_id, joined=True)


# -- traders and statistics


def _traders(session: Session) -> list[Result]:
    """Return all traders. The result of another agent is private, so it is None."""
    rows = [{**plain(view), "kind": "trader"} for view in session.world.background()]
    for seat in range(session.world.seats):
        account = session.world.account(seat)
        rows.append(
            {
                "id": session.world.seat_id(seat),
                "name": session.world.seat_id(seat),
                "archetype": "agent",
                "reputation": account.reputation,
                "totalPnl": _profit(account) if seat == session.seat else None,
                "kind": "agent",
            }
        )
    return rows


def _trader(session: Session, user_id: str) -> Result:
    """Return one trader. Raises RpcError `agent_not_found`."""
    for row in _traders(session):
        if row["id"] == user_id:
            return row
    raise refusal("agent_not_found", f"there is no trader {user_id!r}")


@_method(rpc.GetLeaderboard)
def get_leaderboard(session: Session, request: rpc.GetLeaderboard) -> Result:
    """Traders by result.

    Returns {leaderboard: [{rank, id, name, reputation, totalPnl}], page, pageSize, total}
    """
    rows = [row for row in _traders(session) if row["reputation"] >= (request.min_points or 0.0)]
    # Other agents, whose results are private, come last; the id makes the order of ties the same everywhere.
    rows.sort(key=lambda row: (row["totalPnl"] is None, -(row["totalPnl"] or 0.0), row["id"]))
    start = (request.page - 1) * request.page_size
    ranked = [{"rank": rank, **row} for rank, row in enumerate(rows, 1)]
    return {
        "leaderboard": ranked[start : start + request.page_size],
        "page": request.page,
        "pageSize": request.page_size,
        "total": len(ranked),
    }


@_method(rpc.AboutUser)
def get_reputation(session: Session, request: rpc.AboutUser) -> Result:
    """Reputation of a trader, from 0 to 100 (default: your own).

    Returns {userId, reputation}
    """
    row = _trader(session, request.user_id or session.agent_id)
    return {"userId": row["id"], "reputation": row["reputation"]}


@_method(rpc.GetInfo)
@_method(rpc.GetProfile, "getUserProfile")
def get_info(session: Session, request: rpc.GetInfo | rpc.GetProfile) -> Result:
    """What is public about a trader.

    Returns {id, name, archetype, reputation, totalPnl}
    """
    return _trader(session, request.user_id)


@_method(rpc.Discover)
def discover(session: Session, request: rpc.Discover) -> Result:
    """The other traders, filtered.

    Returns {agents: [{id, name, archetype, reputation, totalPnl}], total}
    """
    filters = request.filters or rpc.Filters.model_validate({})
    rows = [
        row
        for row in _traders(session)
        if row["reputation"] >= (filters.min_reputation or 0.0)
        and (filters.strategies is None or row["archetype"] in filters.strategies)
    ]
    return {"agents": rows[: request.limit], "total": len(rows)}


@_method(rpc.NoParams)
def get_organizations(session: Session, _: rpc.NoParams) -> Result:
    """The sources of news, and how often they were right so far.

    Returns {organizations: [{id, name, ...}]}
    """
    return {"organizations": plains(session.world.sources())}


@_method(rpc.NoParams)
def get_system_stats(session: Session, _: rpc.NoParams) -> Result:
    """Rules and numbers of the world: limits, fees, regime, tier.

    Returns {tick, ticks, timestamp, done, actionBudget, responseTimeout, scenario: {...}}
    """
    return {
        **session.clock_facts(),
        "agentId": session.agent_id,
        "actionBudget": session.action_budget,
        "responseTimeout": session.response_timeout,
        "scenario": session.world.public_model(),
    }


@_method(rpc.Page)
def get_trending_tags(session: Session, request: rpc.Page) -> Result:
    """What recent posts are about.

    Returns {tags: [{tag, count}]}
    """
    recent = session.world.posts(session.seat, SEARCHED_POSTS)
    counts = Counter(tag for view in recent if (tag := view.market_id or view.ticker))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown, more = _page(ranked, request)
    return {"tags": [{"tag": tag, "count": count} for tag, count in shown], "hasMore": more}
