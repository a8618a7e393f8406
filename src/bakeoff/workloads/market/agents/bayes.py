"""The Bayes-optimal beliefs, staked by Kelly: the best that can be done with what a seat may know.

It is told how reliable each source and chat is; it is not told what happens. Scores are measured against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bakeoff.workloads.market.agents.beliefs import Beliefs
from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.agents.orders import SMALLEST, signed_size, steer, tried
from bakeoff.workloads.market.agents.sizing import (
    Prospect,
    Shares,
    dollars_to_spend,
    notional_to_hold,
    shares_to_sell,
)
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.rules import rules_of

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import MarketView, PerpView


LEAST = 1e-6
"""Prices are shown in steps of this; one that looks like 0 is not."""


NEWS = 0.1
"""A probability that has moved less since it was stated is not stated again."""


class KellyBayes:
    """Exact beliefs from news, returns and the tips of chats it joins; a fraction of Kelly's stakes; no trade without an edge."""

    name = "kelly-bayes"
    needs: ClassVar[str] = "model"

    def __init__(self, fraction: float = 0.5, margin_share: float = 0.3, hysteresis: float = 0.1) -> None:
        """`margin_share` of its equity may be margin of one perpetual; changes below `hysteresis` of a position wait."""
        self.fraction = fraction
        self.margin_share = margin_share
        self.hysteresis = hysteresis

    def reset(self, brief: Brief) -> None:
        known = {name: brief.scenario[name] for name in Scenario.model_fields}
        self.rules = rules_of(Scenario.model_validate(known))
        self.beliefs = Beliefs(brief.model.reliability)
        self.feed = sum(known[name] for name in ("perpetuals", "agents", "markets"))  # most posts in a tick
        self.stated: dict[str, float] = {}

    def act(self, seat: Seat) -> None:
        perps, markets = seat.perpetuals(), seat.markets()
        self._listen(seat, perps)
        account, held = seat.account(), seat.positions()
        self.cash = account.cash
        shares = {(view.market_id, view.side): view.shares for view in held.markets}
        for market in markets:
            self._trade_market(seat, market, shares, self.fraction * account.equity)
        for perp in perps:
            self._trade_perp(seat, perp, signed_size(held.perps, perp.ticker), account.equity)
        self._state(seat, markets)

    def _listen(self, seat: Seat, perps: Sequence[PerpView]) -> None:
        chats = seat.chats()
        if invitations := [chat.id for chat in chats if chat.invited and not chat.joined]:
            for chat in invitations:
                tried(seat.join, chat)
            chats = seat.chats()
        self.beliefs.see(seat.tick, perps, seat.posts(self.feed), [chat for chat in chats if chat.joined])

    # -- markets

    def _trade_market(self, seat: Seat, market: MarketView, held: Mapping[tuple[str, str], float], pot: float) -> None:
        probability = self.chance(market)
        if probability is None:
            return
        yes = Shares(
            probability,
            min(max(market.yes_price, LEAST), 1 - LEAST),
            market.liquidity,
            self.rules.fee,
            held.get((market.id, "YES"), 0.0),
            held.get((market.id, "NO"), 0.0),
        )
        sides = (("YES", yes), ("NO", yes.turned))
        for side, view in sides:
            surplus = shares_to_sell(view, pot) if view.held else 0.0
            if surplus * view.price > SMALLEST / 2:
                self._settle(tried(seat.sell, market.id, side, min(view.held, surplus)))
                return
        for side, view in sides:
            dollars = dollars_to_spend(view, pot, 0.5 * self.cash)
            if dollars > SMALLEST / 2:
                self._settle(tried(seat.buy, market.id, side, round(dollars, 2)))

    def _settle(self, answer: Mapping[str, Any] | None) -> None:
        """Keep count of the cash."""
        if answer is not None:
            self.cash += answer.get("proceeds", 0.0) - answer.get("cost", 0.0)

    def chance(self, market: MarketView) -> float | None:
        return self.beliefs.chance(market)

    # -- perpetuals

    def _trade_perp(self, seat: Seat, perp: PerpView, held: float, equity: float) -> None:
        mean, variance, worst = self.prospect(perp)
        leverage = min(perp.max_leverage, max(1.0, 1 / (worst + self.rules.maintenance)))
        prospect = Prospect(
            mean=mean,
            variance=variance,
            premium=perp.price / perp.index_price - 1,
            fee=self.rules.perp_fee,
            depth=perp.depth,
            linear=self.rules.linear,
            root=self.rules.root,
        )
        limit = self.margin_share * equity * leverage
        wanted = notional_to_hold(prospect, held, self.fraction * equity, min(limit, 0.5 * perp.depth))
        affordable = max(0.0, 0.9 * self.cash - SMALLEST) * leverage
        wanted = max(min(wanted, max(held, 0.0) + affordable), min(held, 0.0) - affordable)
        if abs(wanted - held) > self.hysteresis * max(abs(wanted), abs(held)):
            steer(seat, perp.ticker, held, wanted, leverage)
            self.cash -= max(0.0, abs(wanted) - abs(held)) / leverage

    def prospect(self, perp: PerpView) -> tuple[float, float, float]:
        return self.beliefs.prospect(perp.ticker)

    # -- the feed

    def _state(self, seat: Seat, markets: Sequence[MarketView]) -> None:
        """Say what has changed, when orders are through: reputation opens chats, and forecasts are scored."""
        for market in markets:
            probability = self.chance(market)
            if probability is None or seat.actions_left < 1:
                continue
            if abs(probability - self.stated.get(market.id, -1.0)) > NEWS:
                self.stated[market.id] = probability
                tried(seat.post, f"I make it {probability:.0%}.", market.id, probability=round(probability, 4))
