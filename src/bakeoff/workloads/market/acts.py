"""What the methods that change something do. Each takes a session and its checked parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import render
from bakeoff.workloads.market.rpc import refusal

if TYPE_CHECKING:
    from bakeoff.workloads.market import requests
    from bakeoff.workloads.market.session import Session
    from bakeoff.workloads.market.world.views import ChatView, Fill

Result = dict[str, Any]


def end_turn(session: Session, request: requests.EndTurn) -> Result:
    return session.end_turn() if request.ends(session.world.tick) else session.clock_facts()


def buy_shares(session: Session, request: requests.BuyShares) -> Result:
    fill = session.world.buy(session.seat, request.market_id, request.outcome, request.amount)
    return _told(fill, cost=fill.amount)


def sell_shares(session: Session, request: requests.SellShares) -> Result:
    market_id, side = _shares_meant(session, request)
    fill = session.world.sell(session.seat, market_id, side, request.shares)
    return _told(fill, proceeds=fill.amount)


def _shares_meant(session: Session, request: requests.SellShares) -> tuple[str, Any]:
    """Market and outcome. An outcome that is left out is the one that is held, if it is only one."""
    if request.market_id is not None and request.outcome is not None:
        return request.market_id, request.outcome
    held = [
        view
        for view in session.world.positions(session.seat).markets
        if request.position_id == view.id or request.market_id == view.market_id
    ]
    if not held:
        what = request.position_id or request.market_id
        raise refusal("position_not_found", f"you hold no shares of {what!r}")
    if len(held) > 1:
        raise refusal("invalid_params", "outcome: you hold both YES and NO; say which to sell", path="outcome")
    return held[0].market_id, held[0].side


def open_position(session: Session, request: requests.OpenPosition) -> Result:
    fill = session.world.open(session.seat, request.ticker, request.side, request.notional, request.leverage)
    return _told(fill, entryPrice=fill.price, size=fill.amount)


def close_position(session: Session, request: requests.ClosePosition) -> Result:
    fill = session.world.close(session.seat, _ticker_meant(session, request.position_id), request.size)
    return _told(fill, exitPrice=fill.price, size=fill.amount, pnl=fill.realized_pnl)


def _ticker_meant(session: Session, position_id: str) -> str:
    """A position's ticker; a ticker means itself, since there is one position in each."""
    for view in session.world.positions(session.seat).perps:
        if view.id == position_id:
            return view.ticker
    if any(view.ticker == position_id for view in session.world.perpetuals()):
        return position_id
    raise refusal("position_not_found", f"you have no perpetual position {position_id!r}")


_ORDER = ("kind", "target", "side", "positionId", "tick", "orderId", "status")


def _told(fill: Fill, **words: float) -> Result:
    """A fill, also in the protocol's words. Of a sealed order there is nothing to tell but that it waits."""
    told = render.plain(fill)
    if fill.status == "sealed":
        return {**{name: told[name] for name in _ORDER}, "queued": True}
    return {**told, "avgPrice": fill.price, "queued": False, **words}


def create_post(session: Session, request: requests.CreatePost) -> Result:
    made = session.world.post(
        session.seat, request.content, request.market_id, side=request.outcome, probability=request.probability
    )
    return {"postId": made}


def send_message(session: Session, request: requests.SendMessage) -> Result:
    return {"messageId": session.world.message(session.seat, request.chat_id, request.content)}


def join_group(session: Session, request: requests.JoinGroup) -> Result:
    return _join(session, request.group_id)


def accept_invite(session: Session, request: requests.OfInvite) -> Result:
    return _join(session, request.invite_id)


def _join(session: Session, chat_id: str) -> Result:
    if not _chat(session, chat_id).joined:
        session.world.join(session.seat, chat_id)
    session.hidden_chats.discard(chat_id)
    return {"success": True, "chatId": chat_id}


def decline_invite(session: Session, request: requests.OfInvite) -> Result:
    return _turn_away(session, request.invite_id, "invited to", lambda view: view.invited and not view.joined)


def leave_chat(session: Session, request: requests.LeaveChat) -> Result:
    return _turn_away(session, request.chat_id, "in", lambda view: view.joined)


def _turn_away(session: Session, chat_id: str, being: str, fits: Callable[[ChatView], bool]) -> Result:
    """The chat is not shown any more until it is joined again; the world does not mind."""
    if not fits(_chat(session, chat_id)) or chat_id in session.hidden_chats:
        raise refusal("not_permitted", f"you are not {being} {chat_id!r}")
    session.hidden_chats.add(chat_id)
    return {"success": True, "chatId": chat_id}


def _chat(session: Session, chat_id: str) -> ChatView:
    for view in session.world.chats(session.seat):
        if view.id == chat_id:
            return view
    raise refusal("chat_not_found", f"there is no chat {chat_id!r}")
