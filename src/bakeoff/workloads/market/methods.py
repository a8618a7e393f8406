"""The table of `a2a.*` methods: what each takes, gives and does. Every transport is generated from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import acts, looks, requests
from bakeoff.workloads.market.rpc import RpcError, refusal

if TYPE_CHECKING:
    from bakeoff.workloads.market.session import Session

PREFIX = "a2a."
END_TURN = "a2a.endTurn"
OBSERVE = "a2a.observe"


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    params: type[requests.Params]
    run: Callable[[Session, Any], dict[str, Any]]
    description: str
    result: str
    """What comes back, as a sketch of the JSON."""
    mutates: bool = False
    """Whether it changes something, and so counts against the action budget."""

    @property
    def short(self) -> str:
        """The name without its prefix, for places that allow no dots."""
        return self.name.removeprefix(PREFIX)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters."""
        return requests.schema(self.params)


def _table(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


METHODS: dict[str, Method] = _table(
    Method(
        "a2a.observe",
        requests.Nothing,
        looks.observe,
        "Everything you may see in this tick: markets, perpetuals, your account and positions, posts, chats.",
        "{tick, ticks, timestamp, done, agentId, actionsLeft, account, predictionMarkets[], perpetualMarkets[], "
        "positions{marketPositions[], perpPositions[]}, fills[], posts[], groupChats[], agents[]}",
    ),
    Method(
        "a2a.endTurn",
        requests.EndTurn,
        acts.end_turn,
        "You are done with this tick. Time goes on when every agent of the world is done, or late.",
        "{tick, ticks, timestamp, done}",
        mutates=True,
    ),
    # -- markets
    Method(
        "a2a.getPredictions",
        requests.GetPredictions,
        looks.predictions,
        "The prediction markets: questions that are open, or that have resolved.",
        "{predictions: [{id, question, yesShares, noShares, yesPrice, noPrice, liquidity, totalVolume, createdAt, "
        "resolveAt, resolved, outcome}], count}",
    ),
    Method(
        "a2a.getPerpetuals",
        requests.Nothing,
        looks.perpetuals,
        "The perpetual futures with index and mark price, funding, open interest.",
        "{perpetuals: [{ticker, price, indexPrice, priceChange24h, volume24h, openInterest, fundingRate, nextFundingTime, "
        "maxLeverage, announcementTick, ...}]}",
    ),
    Method(
        "a2a.getMarketData",
        requests.OfMarket,
        looks.market_data,
        "One prediction market.",
        "{marketId, question, outcomes: [YES, NO], prices: [yes, no], volume, liquidity, resolveAt, resolved}",
    ),
    Method(
        "a2a.getMarketPrices",
        requests.OfMarket,
        looks.market_prices,
        "The prices of one prediction market.",
        "{marketId, prices: [{outcome, price}], timestamp}",
    ),
    Method(
        "a2a.buyShares",
        requests.BuyShares,
        acts.buy_shares,
        "Spend dollars on YES or NO shares of a prediction market. A share of the right side pays 1.",
        "{shares, avgPrice, positionId, cost, fee} or {queued: true, positionId} when orders are sealed",
        mutates=True,
    ),
    Method(
        "a2a.sellShares",
        requests.SellShares,
        acts.sell_shares,
        "Sell shares you hold, named by positionId or by marketId and outcome.",
        "{shares, avgPrice, positionId, proceeds, fee} or {queued: true, positionId}",
        mutates=True,
    ),
    Method(
        "a2a.openPosition",
        requests.OpenPosition,
        acts.open_position,
        "Go LONG or SHORT in a perpetual for `size` dollars of notional value with isolated margin size / leverage. "
        "The same side adds to your position, the other side reduces it first.",
        "{positionId, entryPrice, size, fee} or {queued: true, positionId}",
        mutates=True,
    ),
    Method(
        "a2a.closePosition",
        requests.ClosePosition,
        acts.close_position,
        "Close a perpetual position, or `size` dollars of it.",
        "{pnl, exitPrice, size, fee, positionId} or {queued: true, positionId}",
        mutates=True,
    ),
    Method(
        "a2a.getPositions",
        requests.AboutUser,
        looks.positions,
        "Your open positions.",
        "{marketPositions: [{id, marketId, question, side, shares, avgPrice, currentPrice, unrealizedPnL}], "
        "perpPositions: [{id, ticker, side, size, entryPrice, currentPrice, leverage, unrealizedPnL, liquidationPrice}]}",
    ),
    Method(
        "a2a.getTrades",
        requests.GetTrades,
        looks.trades,
        "The newest trades of everybody.",
        "{trades: [{tick, traderId, kind, target, side, amount, shares, price}]}",
    ),
    Method(
        "a2a.getTradeHistory",
        requests.GetTradeHistory,
        looks.trade_history,
        "Your own newest trades.",
        "{trades: [{tick, traderId, kind, target, side, amount, shares, price}]}",
    ),
    # -- portfolio
    Method(
        "a2a.getBalance",
        requests.Nothing,
        looks.balance,
        "Your cash and your result so far.",
        "{balance, totalDeposited, totalWithdrawn, lifetimePnL, reputationPoints}",
    ),
    Method(
        "a2a.getPortfolio",
        requests.Nothing,
        looks.portfolio,
        "Your account and positions.",
        "{balance, equity, pnl, positions: [...]}",
    ),
    Method(
        "a2a.getDashboard",
        requests.Nothing,
        looks.dashboard,
        "Your account in a few numbers.",
        "{balance, equity, reputation, totalPnl, activePositions}",
    ),
    Method(
        "a2a.getUserWallet",
        requests.AboutUser,
        looks.wallet,
        "Your account in full. Those of others are private.",
        "{userId, balance, equity, margin, realizedPnl, fees, funding, liquidations, reputation}",
    ),
    # -- social
    Method(
        "a2a.getFeed",
        requests.GetFeed,
        looks.feed,
        "The public feed, newest first: news, rumours, posts.",
        "{posts: [{id, authorId, authorName, content, createdAt, marketId}], hasMore}",
    ),
    Method("a2a.getPost", requests.OfPost, looks.post, "One post of the feed.", "{post: {...}}"),
    Method(
        "a2a.createPost",
        requests.CreatePost,
        acts.create_post,
        "Write to the feed. A probability you state for a market is scored when it resolves and moves your reputation.",
        "{postId}",
        mutates=True,
    ),
    # -- chats
    Method(
        "a2a.getChats",
        requests.GetChats,
        looks.chats,
        "Group chats you are in or invited to.",
        "{chats: [{id, name, memberCount, messageCount, lastActivity, invited, joined}]}",
    ),
    Method(
        "a2a.getChatMessages",
        requests.GetChatMessages,
        looks.chat_messages,
        "The newest messages of a chat you are in.",
        "{messages: [{id, authorId, content, createdAt}], hasMore}",
    ),
    Method(
        "a2a.sendMessage", requests.SendMessage, acts.send_message, "Write to a chat you are in.", "{messageId}", True
    ),
    Method(
        "a2a.getGroupInvites",
        requests.Nothing,
        looks.invites,
        "Chats that have invited you.",
        "{invites: [{inviteId, groupId, name}]}",
    ),
    Method(
        "a2a.acceptGroupInvite",
        requests.OfInvite,
        acts.accept_invite,
        "Join a chat that invited you.",
        "{success}",
        True,
    ),
    Method(
        "a2a.declineGroupInvite",
        requests.OfInvite,
        acts.decline_invite,
        "Do not show an invitation any more.",
        "{success}",
        True,
    ),
    Method("a2a.joinGroup", requests.JoinGroup, acts.join_group, "Join a chat that invited you.", "{success}", True),
    Method("a2a.leaveChat", requests.LeaveChat, acts.leave_chat, "Do not see a chat any more.", "{success}", True),
    # -- people and numbers
    Method(
        "a2a.getLeaderboard",
        requests.GetLeaderboard,
        looks.leaderboard,
        "Traders by result.",
        "{leaderboard: [{rank, id, name, reputation, totalPnl}], page, pageSize, total}",
    ),
    Method(
        "a2a.getReputation",
        requests.AboutUser,
        looks.reputation,
        "Somebody's reputation, from 0 to 100; your own without a userId.",
        "{userId, reputation}",
    ),
    Method(
        "a2a.getUserProfile",
        requests.GetProfile,
        looks.profile,
        "What is public about a trader or a source.",
        "{id, name, archetype, reputation, totalPnl}",
    ),
    Method(
        "a2a.getInfo",
        requests.GetInfo,
        looks.info,
        "The same as getUserProfile, by agentId.",
        "{id, name, archetype, reputation, totalPnl}",
    ),
    Method(
        "a2a.discover",
        requests.Discover,
        looks.discover,
        "The other traders, filtered.",
        "{agents: [{id, name, archetype, reputation, totalPnl}], total}",
    ),
    Method(
        "a2a.getOrganizations",
        requests.Nothing,
        looks.sources,
        "The sources of news, and how often they were right so far.",
        "{organizations: [{id, name, ...}]}",
    ),
    Method(
        "a2a.getSystemStats",
        requests.Nothing,
        looks.system_stats,
        "The world's rules and numbers: limits, fees, regime, tier.",
        "{tick, ticks, timestamp, done, actionBudget, responseTimeout, scenario: {...}}",
    ),
    Method(
        "a2a.getTrendingTags",
        requests.Page,
        looks.trending,
        "What recent posts are about.",
        "{tags: [{tag, count}]}",
    ),
)
"""Every method there is, by its full name."""

_STANDARD = "standard A2A is spoken at POST /a2a/v1 of `bakeoff market serve`"
_NO_TRANSFERS = "accounts of this world do not pay each other"
_NO_EDITING = "what was posted stays"
_NO_REACTIONS = "likes, shares and comments move nothing in this world; post instead"
_NO_GRAPH = "there is no social graph in this world; everybody reads the same feed"
_NO_STREAM = "nothing happens inside a tick; call a2a.observe after a2a.endTurn"
_NO_NOTES = "there are no notifications; a2a.observe shows what is new"

ABSENT: Mapping[str, str] = {
    **dict.fromkeys(("subscribeMarket",), _NO_STREAM),
    **dict.fromkeys(("message/send", "message/stream", "tasks/get", "tasks/cancel", "SendMessage", "SendStreamingMessage"), _STANDARD),
    **dict.fromkeys(("transferPoints", "paymentRequest", "paymentReceipt", "createEscrow", "releaseEscrow"), _NO_TRANSFERS),
    **dict.fromkeys(("deletePost", "deleteComment", "updateProfile"), _NO_EDITING),
    **dict.fromkeys(
        ("likePost", "unlikePost", "sharePost", "getComments", "createComment", "likeComment"), _NO_REACTIONS
    ),
    **dict.fromkeys(
        ("followUser", "unfollowUser", "getFollowers", "getFollowing", "searchUsers", "favoriteProfile",
         "unfavoriteProfile", "getFavorites", "getFavoritePosts"), _NO_GRAPH,
    ),
    **dict.fromkeys(("getNotifications", "markNotificationsRead", "getUnreadCount"), _NO_NOTES),
    **dict.fromkeys(("createGroup",), "groups belong to the world; they invite you by reputation"),
    **dict.fromkeys(("getUserStats",), "use a2a.getUserProfile"),
    **dict.fromkeys(("getReputationBreakdown",), "reputation is one number: use a2a.getReputation"),
    **dict.fromkeys(("getPostsByTag",), "use a2a.getFeed with marketId"),
    **dict.fromkeys(("getReferrals", "getReferralStats", "getReferralCode"), "there are no referrals"),
    **dict.fromkeys(
        ("proposeCoalition", "joinCoalition", "coalitionMessage", "leaveCoalition", "shareAnalysis", "requestAnalysis",
         "getAnalyses"), "there are no coalitions; orders of a tick are sealed",
    ),
}  # fmt: skip
"""Methods of the protocol that do not exist here, without their prefix, and why."""


def find(name: str) -> Method:
    """The method, or an error that says why there is none."""
    found = METHODS.get(name) or METHODS.get(PREFIX + name)
    if found is not None:
        return found
    if reason := ABSENT.get(name.removeprefix(PREFIX)):
        raise refusal("method_not_found", f"{name} does not exist in this world: {reason}", reason=reason)
    close = difflib.get_close_matches(name[:100], METHODS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise refusal("method_not_found", f"there is no method {name[:100]!r}{hint}")


def call(session: Session, name: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What every transport does with a request."""
    return session.call(name, params)


def tool(method: Method) -> dict[str, Any]:
    """A method as a tool of a chat model."""
    described = {"name": method.short, "description": method.description, "parameters": method.schema}
    return {"type": "function", "function": described}


__all__ = ["ABSENT", "METHODS", "Method", "RpcError", "call", "find", "tool"]
