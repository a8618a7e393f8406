"""The Bayes player: exact beliefs, staked by the Kelly criterion. Scores are measured against it.

It knows how reliable each source and chat is, and nothing about what will happen. The module has its three parts:

* `Beliefs`: the posterior over the direction of every running story, by the same inference as the world's own kernel
  (`world/stories.py`), made from public views and the tips of chats that the agent has joined;
* `dollars_to_spend`, `shares_to_sell`, `notional_to_hold`: sizes that maximise the expected logarithm of wealth (Kelly,
  "A New Interpretation of Information Rate", 1956) through the venue's own prices, fees and impact;
* `KellyBayes`, which trades on both, and `Clairvoyant`, which replaces beliefs by the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from bakeoff.workloads.market.agents.base import MIN_ORDER, Brief, Seat, attempt, signed_size, steer
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.rules import REGIME_LAWS, Regime, rules_of

if TYPE_CHECKING:
    from bakeoff.workloads.market.world import views

THETAS = range(3)
"""Indices of the directions down, flat and up; a claim of -1, 0 or 1 is at index claim + 1."""
MIN_PRICE = 1e-6
"""Prices are shown rounded to this, so one that reads 0 is positive."""
NEWS = 0.1
"""Change of a probability that is worth a new post."""
CERTAIN = 0.999
"""Probability that the clairvoyant gives to what will happen: below 1, since losing the whole pot has no logarithm."""


# -- beliefs


@dataclass(frozen=True, slots=True)
class Stage:
    """The law of a story, accumulated from its start up to one of its ticks."""

    exposure: float
    """Sum of the drift's stage factors; the index drifts by `drift[theta] * exposure`."""
    variance: float
    log_z: float
    """Logarithm of the mean growth under the prior. The world divides it out, so the index is a martingale."""


@lru_cache(maxsize=256)
def stages(regime: str, length: int) -> tuple[Stage, ...]:
    """Return the stages of a story of `length` ticks, from its start to its announcement (`length + 1` of them)."""
    law = REGIME_LAWS[regime]
    # Drift and noise of some regimes change from third to third of a story.
    thirds = [min(2, 3 * tick // length) for tick in range(length)]
    exposures = [0.0, *accumulate(law.drift_stages[third] for third in thirds)]
    variances = [0.0, *accumulate((law.sigma * law.sigma_stages[third]) ** 2 for third in thirds)]
    rows = []
    for tick, (exposure, variance) in enumerate(zip(exposures, variances, strict=True)):
        growth = [law.drift[theta] * exposure + (law.jump[theta] if tick == length else 0.0) for theta in THETAS]
        mean = sum(share * math.exp(each) for share, each in zip(law.prior, growth, strict=True))
        rows.append(Stage(exposure, variance, math.log(mean)))
    return tuple(rows)


@dataclass(slots=True)
class Story:
    """A running story: its public law, and log-weights of the three directions."""

    number: int
    start: int
    due: int
    law: Regime
    stages: Sequence[Stage]
    weights: list[float]
    tick: int
    price: float

    @property
    def belief(self) -> list[float]:
        """P(down), P(flat), P(up)."""
        top = max(self.weights)  # subtracted before exp, so that large weights do not overflow
        raised = [math.exp(weight - top) for weight in self.weights]
        total = sum(raised)
        return [each / total for each in raised]

    def move(self, tick: int, price: float) -> None:
        """Update the weights with the index, which has moved to `price` by `tick`.

        The log return is normal with a mean that depends on theta. Terms of the log-likelihood that all three
        directions share cancel in the posterior and are left out.
        """
        if tick <= self.tick:
            return
        before, now = self.stages[self.tick - self.start], self.stages[tick - self.start]
        variance, exposure = now.variance - before.variance, now.exposure - before.exposure
        moved = math.log(price / self.price) + now.log_z - before.log_z + variance / 2
        for theta in THETAS:
            drift = self.law.drift[theta] * exposure
            self.weights[theta] += drift * (moved - drift / 2) / variance
        self.tick, self.price = tick, price

    def ahead(self, tick: int) -> tuple[list[float], float]:
        """Return the mean log growth of the index up to `tick` for each direction (without noise), and its variance."""
        now, then = self.stages[self.tick - self.start], self.stages[tick - self.start]
        exposure, normal = then.exposure - now.exposure, then.log_z - now.log_z
        jump = self.law.jump if tick == self.due else (0.0, 0.0, 0.0)
        growth = [self.law.drift[theta] * exposure + jump[theta] - normal for theta in THETAS]
        return growth, then.variance - now.variance


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the index of a perpetual is expected to do until its announcement."""

    mean: float
    """Expected return."""
    variance: float
    worst: float
    """Largest move, in either direction, that would not be a surprise. It limits the leverage."""


@dataclass(slots=True)
class Beliefs:
    """Posteriors of all running stories, kept up to date by `see`."""

    reliability: Mapping[str, float]
    """By id of a source or chat: the probability that its claims are true."""
    stories: dict[str, Story] = field(default_factory=dict)
    """By ticker."""
    heard: set[str] = field(default_factory=set)
    """Ids of posts and messages that count already."""

    def see(
        self,
        tick: int,
        perps: Iterable[views.PerpView],
        posts: Iterable[views.PostView],
        chats: Iterable[views.ChatView],
    ) -> None:
        """Learn from what a seat sees in one tick: prices, posts of sources, and tips in joined `chats`."""
        for perp in perps:
            story = self.stories.get(perp.ticker)
            if story is not None and story.number == perp.story:
                story.move(tick, perp.index_price)
                continue
            law = REGIME_LAWS[perp.regime]
            self.stories[perp.ticker] = Story(
                number=perp.story,
                start=perp.story_tick,
                due=perp.announcement_tick,
                law=law,
                stages=stages(perp.regime, perp.announcement_tick - perp.story_tick),
                weights=[math.log(each) for each in law.prior],
                tick=tick,
                price=perp.index_price,
            )
        for post in posts:
            if post.kind == "source":
                self._hear(post, post.author_id)
        for chat in chats:
            for message in chat.messages:
                if message.author_id == chat.id:
                    self._hear(message, chat.id)

    def _hear(self, claim: views.PostView | views.MessageView, author: str) -> None:
        """Weigh a claim once. A false claim is one of the other two directions with equal probability, hence the 2."""
        if claim.claim is None or claim.ticker is None or claim.id in self.heard:
            return
        self.heard.add(claim.id)
        story = self.stories.get(claim.ticker)
        if story is not None and claim.tick >= story.start:
            reliability = self.reliability[author]
            story.weights[claim.claim + 1] += math.log(2 * reliability / (1 - reliability))

    def chance(self, market: views.MarketView) -> float | None:
        """Return P(YES), or None for a market whose asset is not visible."""
        story = self.stories.get(market.ticker)
        if story is None:
            return None
        if market.kind == "event":
            return story.belief[2]
        growth, variance = story.ahead(market.resolve_tick)
        if variance <= 0:  # it resolves in this tick: the index is known
            return float(story.price > market.strike)
        # P(index > strike) is a mixture of three normal tails, one for each direction.
        middle = math.log(story.price / market.strike) - variance / 2
        scale = math.sqrt(2 * variance)
        return sum(
            share * 0.5 * math.erfc(-(middle + each) / scale) for share, each in zip(story.belief, growth, strict=True)
        )

    def outlook(self, ticker: str) -> Outlook:
        """Return the distribution of the index until its announcement."""
        story = self.stories[ticker]
        growth, variance = story.ahead(story.due)
        factors = [math.exp(each) for each in growth]
        mean = sum(share * factor for share, factor in zip(story.belief, factors, strict=True))
        square = sum(share * factor**2 for share, factor in zip(story.belief, factors, strict=True))
        worst = max(abs(factor - 1) for factor in factors) + 4 * math.sqrt(variance)
        # Each component is lognormal with mean `factor`, so its second moment is factor^2 e^variance.
        return Outlook(mean - 1, square * math.exp(variance) - mean**2, worst)


# -- sizes: both problems are concave in the size, so the best size is where the slope changes sign


@dataclass(frozen=True, slots=True)
class Shares:
    """One side of a market, as a buyer of that side sees it. `turned` is the same market for the other side."""

    probability: float
    """Of this side paying."""
    price: float
    liquidity: float
    fee: float
    held: float
    """Shares of this side."""
    other: float
    """Shares of the other side."""

    @property
    def turned(self) -> Shares:
        """The other side of the same market."""
        return Shares(1 - self.probability, 1 - self.price, self.liquidity, self.fee, self.other, self.held)


def dollars_to_spend(market: Shares, pot: float, limit: float) -> float:
    """Return the dollars, fee included, that a pot should spend on this side now; 0 where the price is too high.

    `market` is an LMSR with liquidity b: `a` dollars at price p buy `b ln(1 + (e^(a/b) - 1) / p)` shares.
    """
    keep, b = 1 - market.fee, market.liquidity

    def slope(spent: float) -> float:
        """Derivative of the expected logarithm of wealth after spending `spent`."""
        grown = math.expm1(spent * keep / b)
        shares = b * math.log1p(grown / market.price)
        gain = keep * (1 + grown) / (market.price + grown) - 1  # shares for the next dollar, less the dollar
        won, lost = pot + market.held + shares - spent, pot + market.other - spent
        return market.probability * gain / won - (1 - market.probability) / lost

    # Beyond pot + other nothing would be left if this side loses, and the logarithm has no value.
    return _root(slope, min(limit, 0.98 * (pot + market.other)))


def shares_to_sell(market: Shares, pot: float) -> float:
    """Return how many shares of this side are worth less to the pot than what they bring now."""
    keep, b = 1 - market.fee, market.liquidity

    def slope(sold: float) -> float:
        """Derivative of the expected logarithm of wealth after selling `sold` shares."""
        left = math.exp(-sold / b)
        rest = 1 - market.price * (1 - left)
        brought, price = -keep * b * math.log(rest), keep * market.price * left / rest
        won, lost = pot + market.held - sold + brought, pot + market.other + brought
        return market.probability * (price - 1) / won + (1 - market.probability) * price / lost

    return _root(slope, market.held)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a perpetual is expected to do until its announcement, and what trading it costs."""

    mean: float
    """Expected return of the index."""
    variance: float
    premium: float
    """Mark over index, less 1. It is expected to vanish."""
    fee: float
    depth: float
    linear: float
    root: float

    def next_dollar(self, size: float) -> float:
        """Cost of the next dollar of an order that has reached `size`: fee, linear and square-root impact."""
        displaced = size / self.depth
        return self.fee + self.linear * displaced + self.root * math.sqrt(displaced)


def notional_to_hold(prospect: Prospect, held: float, pot: float, limit: float) -> float:
    """Return the signed dollars to hold until the announcement, when all of it has to be closed.

    What is bought pays the way in now and the way out then; what is sold pays the way out now instead. Both get more
    expensive with size, so a large position is built up, and left, over several ticks.
    """
    edge = prospect.mean - prospect.premium
    sign = math.copysign(1.0, edge) if edge else math.copysign(1.0, held)
    have = max(0.0, sign * held)

    def slope(size: float) -> float:
        """Derivative of edge less half the variance over the pot (Kelly for small moves) less both ways' costs."""
        now = math.copysign(prospect.next_dollar(abs(size - have)), size - have)
        return abs(edge) - size * prospect.variance / pot - prospect.next_dollar(size) - now

    return sign * _root(slope, limit)


def _root(slope: Callable[[float], float], upper: float) -> float:
    """Return where a falling slope crosses 0 between 0 and `upper`, by 30 bisections."""
    if upper <= 0 or slope(0.0) <= 0:
        return 0.0
    if slope(upper) >= 0:
        return upper
    low, high = 0.0, upper
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


# -- agents


@dataclass
class KellyBayes:
    """Trades on exact beliefs from news, returns and the tips of chats it joins, and only with an edge."""

    fraction: float = 0.5
    """Of the Kelly stake."""
    margin_share: float = 0.3
    """Of its equity that may be margin of one perpetual."""
    hysteresis: float = 0.1
    """Changes of a position below this share of it wait."""
    name = "kelly-bayes"
    needs: ClassVar[str] = "model"

    def reset(self, brief: Brief) -> None:
        scenario = {name: brief.scenario[name] for name in Scenario.model_fields}
        self.rules = rules_of(Scenario.model_validate(scenario))
        self.beliefs = Beliefs(brief.model)
        self.feed = sum(scenario[name] for name in ("perpetuals", "agents", "markets"))  # most posts in a tick
        self.stated: dict[str, float] = {}

    def act(self, seat: Seat) -> None:
        perps, markets, chats = seat.perpetuals(), seat.markets(), seat.chats()
        if invitations := [chat.id for chat in chats if chat.invited and not chat.joined]:
            for invitation in invitations:
                attempt(seat.join, invitation)
            chats = seat.chats()
        self.beliefs.see(seat.tick, perps, seat.posts(self.feed), [chat for chat in chats if chat.joined])
        account, held = seat.account(), seat.positions()
        self.cash = account.cash
        shares = {(view.market_id, view.side): view.shares for view in held.markets}
        for market in markets:
            self._trade_market(seat, market, shares, self.fraction * account.equity)
        for perp in perps:
            self._trade_perp(seat, perp, signed_size(held.perps, perp.ticker), account.equity)
        # Posts come after the orders: reputation opens chats and forecasts are scored, but orders need the budget.
        for market in markets:
            probability = self.chance(market)
            if probability is None or seat.actions_left < 1:
                continue
            if abs(probability - self.stated.get(market.id, -1.0)) > NEWS:
                self.stated[market.id] = probability
                attempt(seat.post, f"I make it {probability:.0%}.", market.id, probability=round(probability, 4))

    def chance(self, market: views.MarketView) -> float | None:
        """Return P(YES), or None to leave the market alone."""
        return self.beliefs.chance(market)

    def outlook(self, perp: views.PerpView) -> Outlook:
        """Return what the index will do until the announcement."""
        return self.beliefs.outlook(perp.ticker)

    def _trade_market(
        self, seat: Seat, market: views.MarketView, held: Mapping[tuple[str, str], float], pot: float
    ) -> None:
        """Sell the surplus of one side, or else buy what the pot should add."""
        probability = self.chance(market)
        if probability is None:
            return
        yes = Shares(
            probability,
            min(max(market.yes_price, MIN_PRICE), 1 - MIN_PRICE),
            market.liquidity,
            self.rules.fee,
            held.get((market.id, "YES"), 0.0),
            held.get((market.id, "NO"), 0.0),
        )
        sides = (("YES", yes), ("NO", yes.turned))
        for side, view in sides:
            surplus = shares_to_sell(view, pot) if view.held else 0.0
            if surplus * view.price > MIN_ORDER / 2:
                self._settle(attempt(seat.sell, market.id, side, min(view.held, surplus)))
                return
        for side, view in sides:
            dollars = dollars_to_spend(view, pot, 0.5 * self.cash)
            if dollars > MIN_ORDER / 2:
                self._settle(attempt(seat.buy, market.id, side, round(dollars, 2)))

    def _settle(self, answer: Mapping[str, Any] | None) -> None:
        """Update the count of cash after an order."""
        if answer is not None:
            self.cash += answer.get("proceeds", 0.0) - answer.get("cost", 0.0)

    def _trade_perp(self, seat: Seat, perp: views.PerpView, held: float, equity: float) -> None:
        """Steer the position to the best size that margin, depth and cash allow."""
        outlook = self.outlook(perp)
        # With this leverage the worst expected move leaves the maintenance margin, so it is not liquidated.
        leverage = min(perp.max_leverage, max(1.0, 1 / (outlook.worst + self.rules.maintenance)))
        prospect = Prospect(
            mean=outlook.mean,
            variance=outlook.variance,
            premium=perp.price / perp.index_price - 1,
            fee=self.rules.perp_fee,
            depth=perp.depth,
            linear=self.rules.linear,
            root=self.rules.root,
        )
        limit = self.margin_share * equity * leverage
        target = notional_to_hold(prospect, held, self.fraction * equity, min(limit, 0.5 * perp.depth))
        # A tenth of the cash stays for fees and impact.
        affordable = max(0.0, 0.9 * self.cash - MIN_ORDER) * leverage
        target = max(min(target, max(held, 0.0) + affordable), min(held, 0.0) - affordable)
        if abs(target - held) > self.hysteresis * max(abs(target), abs(held)):
            steer(seat, perp.ticker, held, target, leverage)
            # An estimate: the answer of a perpetual order does not say how much margin it took.
            self.cash -= max(0.0, abs(target) - abs(held)) / leverage


@dataclass
class Clairvoyant(KellyBayes):
    """Trades like Kelly-Bayes, with the true outcomes and price paths in place of beliefs: a bound, not a rival."""

    name = "clairvoyant"
    needs: ClassVar[str] = "truth"

    def reset(self, brief: Brief) -> None:
        super().reset(brief)
        self.outcomes = {question.id: question.outcome for question in brief.truth.questions}
        self.paths = brief.truth.prices
        self.last = brief.ticks

    def chance(self, market: views.MarketView) -> float | None:
        outcome = self.outcomes.get(market.id)
        return None if outcome is None else CERTAIN if outcome else 1 - CERTAIN

    def outlook(self, perp: views.PerpView) -> Outlook:
        """Return the certain return until the announcement or the end, and the worst move on the way."""
        path = self.paths[perp.ticker]
        now = self.beliefs.stories[perp.ticker].tick
        until = min(perp.announcement_tick, self.last)
        ahead = [price / path[now] - 1 for price in path[now : until + 1]]
        worst = max(super().outlook(perp).worst, *map(abs, ahead))
        # Not 0: the size is edge over variance, and impact alone should limit it.
        return Outlook(ahead[-1], 1e-6, worst)
