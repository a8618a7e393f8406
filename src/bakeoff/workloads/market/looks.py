"""What the methods that only look give back. Each takes a session and its checked parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import render
from bakeoff.workloads.market.rpc import refusal

if TYPE_CHECKING:
    from bakeoff.workloads.market import requests
    from bakeoff.workloads.market.session import Session

Result = dict[str, Any]
FEED_SHOWN = 20
"""Posts in an observation."""
FEED_SEARCHED = 500


def observe(session: Session, _: requests.Nothing) -> Result:
    world, seat = session.world, session.seat
    return {
        **session.clock_facts(),
        "agentId": session.agent_id,
        "actionsLeft": session.actions_left,
        "account": render.plain(world.account(seat)),
        "predictionMarkets": render.plains(world.markets()),
        "perpetualMarkets": render.plains(world.perpetuals()),
        "positions": render.positions(world.positions(seat)),
        "fills": render.plains(world.fills(seat)),
        "posts": render.plains(world.posts(seat, FEED_SHOWN)),
        "groupChats": [render.chat(view) for view in session.chats()],
        "sources": render.plains(world.sources()),
        "agents": render.plains(world.background()),
    }


# -- markets


def predictions(session: Session, request: requests.GetPredictions) -> Result:
    wanted = request.status == "resolved"
    markets = session.world.resolved_markets() if wanted else session.world.markets()
    found = [render.plain(view) for view in markets if view.resolved is wanted]
    return {"predictions": found, "count": len(found)}


def perpetuals(session: Session, _: requests.Nothing) -> Result:
    return {"perpetuals": render.plains(session.world.perpetuals())}


def market(session: Session, market_id: str) -> Any:
    for view in (*session.world.markets(), *session.world.resolved_markets()):
        if view.id == market_id:
            return view
    raise refusal("market_not_found", f"there is no market {market_id!r}", marketId=market_id)


def market_data(session: Session, request: requests.OfMarket) -> Result:
    found = market(session, request.market_id)
    return {
        **render.plain(found),
        "marketId": found.id,
        "outcomes": ["YES", "NO"],
        "prices": [found.yes_price, found.no_price],
        "volume": found.total_volume,
    }


def market_prices(session: Session, request: requests.OfMarket) -> Result:
    found = market(session, request.market_id)
    prices = [{"outcome": "YES", "price": found.yes_price}, {"outcome": "NO", "price": found.no_price}]
    return {"marketId": found.id, "prices": prices, "timestamp": session.world.time}


def positions(session: Session, request: requests.AboutUser) -> Result:
    only_own(session, request.user_id)
    return render.positions(session.world.positions(session.seat))


def trades(session: Session, request: requests.GetTrades) -> Result:
    if request.market_id is None:
        return {"trades": render.plains(session.world.trades(request.limit))}
    about = [trade for trade in session.world.trades(FEED_SEARCHED) if trade.target == request.market_id]
    return {"trades": render.plains(about[: request.limit])}


def trade_history(session: Session, request: requests.GetTradeHistory) -> Result:
    only_own(session, request.user_id)
    return {"trades": render.plains(session.world.own_trades(session.seat, request.limit))}


def only_own(session: Session, user_id: str | None) -> None:
    if user_id is not None and user_id != session.agent_id:
        raise refusal("not_permitted", f"you are {session.agent_id}; accounts of others are private", path="userId")


# -- portfolio


def balance(session: Session, _: requests.Nothing) -> Result:
    account = session.world.account(session.seat)
    return {
        "balance": account.cash,
        "totalDeposited": account.initial,
        "totalWithdrawn": 0.0,
        "lifetimePnL": account.equity - account.initial,
        "reputationPoints": account.reputation,
    }


def portfolio(session: Session, _: requests.Nothing) -> Result:
    account = session.world.account(session.seat)
    held = render.positions(session.world.positions(session.seat))
    return {
        "balance": account.cash,
        "equity": account.equity,
        "pnl": account.equity - account.initial,
        "positions": [*held["marketPositions"], *held["perpPositions"]],
    }


def dashboard(session: Session, _: requests.Nothing) -> Result:
    account = session.world.account(session.seat)
    held = session.world.positions(session.seat)
    return {
        "balance": account.cash,
        "equity": account.equity,
        "reputation": account.reputation,
        "totalPnl": account.equity - account.initial,
        "activePositions": len(held.markets) + len(held.perps),
    }


def wallet(session: Session, request: requests.AboutUser) -> Result:
    only_own(session, request.user_id)
    account = session.world.account(session.seat)
    return {"userId": session.agent_id, "balance": account.cash, **render.plain(account)}


# -- social


def feed(session: Session, request: requests.GetFeed) -> Result:
    seen = session.world.posts(session.seat, FEED_SEARCHED)
    traders = {"post": True, "news": False, "article": False}.get(request.type or "")
    found = [
        view
        for view in seen
        if traders in (None, view.kind in ("trader", "seat"))
        and request.market_id in (None, view.market_id, view.ticker)
    ]
    shown, more = page(found, request)
    return {"posts": render.plains(shown), "hasMore": more}


def page(found: Sequence[Any], request: requests.Page) -> tuple[Sequence[Any], bool]:
    end = request.offset + request.limit
    return found[request.offset : end], len(found) > end


def post(session: Session, request: requests.OfPost) -> Result:
    for view in session.world.posts(session.seat, FEED_SEARCHED):
        if view.id == request.post_id:
            return {"post": render.plain(view)}
    raise refusal("post_not_found", f"there is no post {request.post_id!r} among the newest {FEED_SEARCHED}")


# -- chats


def chats(session: Session, request: requests.GetChats) -> Result:
    found = [] if request.filter == "dms" else session.chats()
    return {"chats": [render.chat(view) for view in found]}


def chat_messages(session: Session, request: requests.GetChatMessages) -> Result:
    for view in session.chats():
        if view.id == request.chat_id:
            if not view.joined:
                raise refusal("not_permitted", f"you are not in {view.id}", path="chatId")
            shown, more = page(view.messages, request)
            return {"messages": render.plains(shown), "hasMore": more}
    raise refusal("chat_not_found", f"there is no chat {request.chat_id!r}", path="chatId")


def invites(session: Session, _: requests.Nothing) -> Result:
    waiting = [view for view in session.chats() if view.invited and not view.joined]
    return {"invites": [{"inviteId": view.id, "groupId": view.id, "name": view.name} for view in waiting]}


# -- people and numbers


def people(session: Session) -> list[Result]:
    """Everybody who trades. Of other seats the result is their own affair."""
    found = [{**render.plain(view), "kind": "trader"} for view in session.world.background()]
    for seat in range(session.world.seats):
        account = session.world.account(seat)
        own = seat == session.seat
        found.append(
            {
                "id": session.world.seat_id(seat),
                "name": session.world.seat_id(seat),
                "archetype": "agent",
                "reputation": account.reputation,
                "totalPnl": account.equity - account.initial if own else None,
                "kind": "agent",
            }
        )
    return found


def person(session: Session, user_id: str) -> Result:
    for found in people(session):
        if found["id"] == user_id:
            return found
    raise refusal("agent_not_found", f"there is no trader {user_id!r}")


def leaderboard(session: Session, request: requests.GetLeaderboard) -> Result:
    known = [one for one in people(session) if one["reputation"] >= (request.min_points or 0.0)]
    everybody = sorted(known, key=lambda one: (one["totalPnl"] is None, -(one["totalPnl"] or 0.0), one["id"]))
    start = (request.page - 1) * request.page_size
    ranked = [{"rank": rank, **one} for rank, one in enumerate(everybody, 1)]
    return {
        "leaderboard": ranked[start : start + request.page_size],
        "page": request.page,
        "pageSize": request.page_size,
        "total": len(ranked),
    }


def reputation(session: Session, request: requests.AboutUser) -> Result:
    found = person(session, request.user_id or session.agent_id)
    return {"userId": found["id"], "reputation": found["reputation"]}


def profile(session: Session, request: requests.GetProfile) -> Result:
    return person(session, request.user_id)


def info(session: Session, request: requests.GetInfo) -> Result:
    return person(session, request.agent_id)


def discover(session: Session, request: requests.Discover) -> Result:
    strategies = request.filters and request.filters.strategies
    least = (request.filters and request.filters.min_reputation) or 0.0
    found = [
        one
        for one in people(session)
        if one["reputation"] >= least and (strategies is None or one["archetype"] in strategies)
    ]
    return {"agents": found[: request.limit], "total": len(found)}


def sources(session: Session, _: requests.Nothing) -> Result:
    return {"organizations": render.plains(session.world.sources())}


def system_stats(session: Session, _: requests.Nothing) -> Result:
    return {
        **session.clock_facts(),
        "agentId": session.agent_id,
        "actionBudget": session.action_budget,
        "responseTimeout": session.response_timeout,
        "scenario": session.world.public_model(),
    }


def trending(session: Session, request: requests.Page) -> Result:
    recent = session.world.posts(session.seat, FEED_SEARCHED)
    counted = Counter(tag for view in recent if (tag := view.market_id or view.ticker))
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    shown, more = page(ranked, request)
    return {"tags": [{"tag": tag, "count": count} for tag, count in shown], "hasMore": more}
