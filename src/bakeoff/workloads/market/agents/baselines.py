"""Simple agents to compare others with: none of them knows more than the public.

Constructor options are dataclass fields, so `options = { stake = 50 }` in an experiment file sets them.

The probes in the second half look for exploits of the world instead of information, and each of them must earn
nothing. They ship so that anyone can test a world: run a probe and `null` as two arms of an experiment.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.workloads.market.agents.base import Brief, Seat, attempt, signed_size, steer
from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, Scenario

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import MarketView, MessageView, PerpView, PostView
    from bakeoff.workloads.market.world.world import World


class Null:
    """Does nothing. Scores start from its result, which is exactly 0."""

    name = "null"

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None: ...


@dataclass
class BuyAndHold:
    """Goes long in each perpetual with a tenth of its money at the first tick, without leverage, and waits."""

    share: float = 0.1
    name = "buy-and-hold"

    def reset(self, brief: Brief) -> None:
        self.bought = False

    def act(self, seat: Seat) -> None:
        if self.bought:
            return
        self.bought = True
        stake = self.share * seat.account().cash
        for perp in seat.perpetuals():
            attempt(seat.open, perp.ticker, "LONG", stake)


@dataclass
class Random:
    """Places one random order per tick: buys or sells shares, opens or closes a perpetual."""

    activity: float = 1.0
    """Probability of doing anything in a tick."""
    stake: float = 100.0
    name = "random"

    def reset(self, brief: Brief) -> None:
        self.rng = brief.rng

    def act(self, seat: Seat) -> None:
        # The order of draws is part of the agent: changing it changes every run with a given seed.
        rng = self.rng
        if rng.random() >= self.activity:
            return
        action = ("buy", "sell", "open", "close")[rng.integers(4)]
        if action == "buy" and (markets := seat.markets()):
            market = markets[rng.integers(len(markets))]
            side = ("YES", "NO")[rng.integers(2)]
            attempt(seat.buy, market.id, side, float(self.stake * rng.uniform(0.2, 1.0)))
        elif action == "sell" and (shares := seat.positions().markets):
            held = shares[rng.integers(len(shares))]
            attempt(seat.sell, held.market_id, held.side, held.shares)
        elif action == "open" and (perps := seat.perpetuals()):
            perp = perps[rng.integers(len(perps))]
            leverage = float(rng.integers(1, int(perp.max_leverage) + 1))
            side = ("LONG", "SHORT")[rng.integers(2)]
            attempt(seat.open, perp.ticker, side, 3 * float(self.stake * rng.uniform(0.2, 1.0)), leverage)
        elif action == "close" and (positions := seat.positions().perps):
            attempt(seat.close, positions[rng.integers(len(positions))].ticker)


@dataclass
class Momentum:
    """Is long what rose over the last ticks and short what fell; buys the side of a market whose price rises."""

    window: int = 5
    threshold: float = 0.004
    """Relative move of a perpetual that is a signal; for shares ten times as much, in price points."""
    size: float = 1500.0
    stake: float = 30.0
    name = "momentum"
    direction = 1.0

    def reset(self, brief: Brief) -> None:
        self.prices: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window + 1))

    def act(self, seat: Seat) -> None:
        positions = seat.positions().perps
        for perp in seat.perpetuals():
            move = self._move(perp.ticker, perp.price) / perp.price
            if abs(move) > self.threshold:
                target = self.direction * self.size * (1 if move > 0 else -1)
                held = signed_size(positions, perp.ticker)
                if target * held <= 0:  # a position on the right side is left alone, whatever its size
                    steer(seat, perp.ticker, held, target, 2.0)
        for market in seat.markets():
            move = self.direction * self._move(market.id, market.yes_price)
            if abs(move) > 10 * self.threshold:
                attempt(seat.buy, market.id, "YES" if move > 0 else "NO", self.stake)
                self.prices[market.id].clear()  # trade on each move once

    def _move(self, name: str, price: float) -> float:
        """Remember the price and return its change over the window; 0 until the window is full."""
        prices = self.prices[name]
        prices.append(price)
        return price - prices[0] if len(prices) > self.window else 0.0


@dataclass
class MeanReversion(Momentum):
    """Bets that every move is an overreaction and will be undone."""

    name = "mean-reversion"
    direction = -1.0


@dataclass
class MarketForecaster:
    """Posts each market's price as its forecast, and trades only where two prices contradict each other.

    When a perpetual's mark is further from its index than a round trip costs, it takes the other side and holds it
    until the two have met again.
    """

    gap: float = 0.002
    size: float = 500.0
    every: int = 5
    """Ticks between two posts about one market."""
    name = "market-price"

    def reset(self, brief: Brief) -> None:
        self.posted: dict[str, int] = {}

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if seat.tick - self.posted.get(market.id, -self.every) >= self.every:
                self.posted[market.id] = seat.tick
                price = round(market.yes_price, 4)
                attempt(seat.post, f"I take {price:.0%} for it.", market.id, probability=price)
        positions = seat.positions().perps
        for perp in seat.perpetuals():
            premium, held = perp.price / perp.index_price - 1, signed_size(positions, perp.ticker)
            # Long below the index and short above it; the position is closed when the premium has changed its sign.
            if held and premium * held >= 0:
                steer(seat, perp.ticker, held, 0.0)
            elif not held and abs(premium) > self.gap:
                steer(seat, perp.ticker, 0.0, self.size if premium < 0 else -self.size)


@dataclass
class Follower:
    """Adds up the claims about each running story and trades the sign of the sum, in perpetuals and in markets.

    Subclasses say which claims they read. All claims count the same, however reliable their source is.
    """

    size: float = 1500.0
    stake: float = 30.0
    name = "follower"

    def reset(self, brief: Brief) -> None:
        self.read: set[str] = set()
        self.story: dict[str, int] = {}
        self.sums: dict[str, int] = defaultdict(int)
        self.bought: set[tuple[str, str]] = set()

    def act(self, seat: Seat) -> None:
        perps = seat.perpetuals()
        for perp in perps:
            if self.story.get(perp.ticker) != perp.story:  # claims about an earlier story say nothing about this one
                self.story[perp.ticker], self.sums[perp.ticker] = perp.story, 0
        for view in self.news(seat):
            if view.id not in self.read:
                self.read.add(view.id)
                if view.ticker is not None and view.claim is not None:
                    self.sums[view.ticker] += view.claim
        signs = {ticker: (total > 0) - (total < 0) for ticker, total in self.sums.items()}
        positions = seat.positions().perps
        for perp in perps:
            target = self.size * signs.get(perp.ticker, 0)
            held = signed_size(positions, perp.ticker)
            if target * held <= 0:
                steer(seat, perp.ticker, held, target, 2.0)
        # A side that is None has no claims: shares of such a market are kept.
        sides = {market.id: {1: "YES", -1: "NO"}.get(signs.get(market.ticker, 0)) for market in seat.markets()}
        for shares in seat.positions().markets:
            if sides.get(shares.market_id) not in (shares.side, None):
                attempt(seat.sell, shares.market_id, shares.side, shares.shares)
        for market_id, side in sides.items():
            if side is not None and (market_id, side) not in self.bought:
                self.bought.add((market_id, side))
                attempt(seat.buy, market_id, side, self.stake)

    def news(self, seat: Seat) -> Iterable[PostView | MessageView]:
        """Return the posts or messages to read; those read before are skipped."""
        raise NotImplementedError


@dataclass
class FollowTheNews(Follower):
    """Follows every source of the public feed, unreliable ones included."""

    name = "follow-the-news"

    def news(self, seat: Seat) -> Iterator[PostView]:
        return (post for post in seat.posts(200) if post.kind == "source")


@dataclass
class FollowInsider(Follower):
    """Joins every chat that invites it and follows the tips there, whoever gives them."""

    name = "follow-insider"

    def news(self, seat: Seat) -> Iterator[MessageView]:
        # Chats are read again after joining: a chat shows its messages to members only.
        for chat in seat.chats():
            if chat.invited and not chat.joined:
                attempt(seat.join, chat.id)
        return (message for chat in seat.chats() if chat.joined for message in chat.messages)


# -- probes


@dataclass
class CheapSide:
    """Buys the cheaper side of every market once: pays where prices do not follow the odds."""

    stake: float = 40.0
    name = "cheap-side"

    def reset(self, brief: Brief) -> None:
        self.traded: set[str] = set()

    def act(self, seat: Seat) -> None:
        for market in seat.markets():
            if market.id not in self.traded:
                self.traded.add(market.id)
                self.trade(seat, market)

    def trade(self, seat: Seat, market: MarketView) -> None:
        """Trade a market that was not there before."""
        attempt(seat.buy, market.id, "YES" if market.yes_price < market.no_price else "NO", self.stake)


@dataclass
class BothSides(CheapSide):
    """Buys as many NO as YES shares of every market: pays where a score counts hits, or where a pair costs less than 1."""

    stake: float = 25.0
    name = "both-sides"

    def trade(self, seat: Seat, market: MarketView) -> None:
        if bought := attempt(seat.buy, market.id, "YES", self.stake):
            # A pair of shares costs 1 whatever the price is, and the fee comes on top.
            net = bought["cost"] - bought["fee"]
            attempt(seat.buy, market.id, "NO", (bought["shares"] - net) * bought["cost"] / net)


@dataclass
class AlwaysLong(Null):
    """Is long in every perpetual at half the allowed leverage all the time: pays where prices drift up."""

    margin: float = 300.0
    name = "always-long"

    def act(self, seat: Seat) -> None:
        held = {view.ticker for view in seat.positions().perps}
        for perp in seat.perpetuals():
            if perp.ticker not in held:
                leverage = max(1.0, perp.max_leverage / 2)  # full leverage would not survive the first small move
                attempt(seat.open, perp.ticker, "LONG", self.margin * leverage, leverage)


class UnboundedStake:
    """Orders more than it can pay for, then stakes everything it has: pays where nobody checks the balance."""

    name = "unbounded-stake"
    ABSURD = (1e300, 1e9, -1e6, float("inf"), float("nan"), 10_000_000.0)

    def reset(self, brief: Brief) -> None:
        self.accepted: list[float] = []
        """Absurd amounts that the world accepted; must stay empty."""

    def act(self, seat: Seat) -> None:
        markets, perps = seat.markets(), seat.perpetuals()
        # NaN and infinities pass comparisons such as `amount > cash` in surprising ways, so they are tried too.
        for amount in self.ABSURD if seat.tick == 0 else ():
            if markets and attempt(seat.buy, markets[0].id, "YES", amount):
                self.accepted.append(amount)
            if perps and attempt(seat.open, perps[0].ticker, "LONG", amount, perps[0].max_leverage):
                self.accepted.append(amount)
        if markets and (cash := seat.account().cash) > 20:
            market = max(markets, key=lambda each: abs(each.yes_price - 0.5))
            attempt(seat.buy, market.id, "YES" if market.yes_price > 0.5 else "NO", 0.98 * cash)


@dataclass
class WashTrader(Null):
    """Trades with itself in every tick: pays where volume or its own price impact is worth something."""

    stake: float = 150.0
    name = "wash-trader"

    def act(self, seat: Seat) -> None:
        for market in seat.markets()[:2]:
            if bought := attempt(seat.buy, market.id, "YES", self.stake):
                attempt(seat.sell, market.id, "YES", bought["shares"])
        for perp in seat.perpetuals()[:2]:
            if attempt(seat.open, perp.ticker, "LONG", 4 * self.stake, 1.0):
                attempt(seat.close, perp.ticker)


@dataclass
class PricePusher(Null):
    """Pushes prices in even ticks, promotes them in the feed, and sells to its followers in odd ticks."""

    stake: float = 150.0
    name = "price-pusher"

    def act(self, seat: Seat) -> None:
        if seat.tick % 2:
            positions = seat.positions()
            for shares in positions.markets:
                attempt(seat.sell, shares.market_id, shares.side, shares.shares)
            for position in positions.perps:
                attempt(seat.close, position.ticker)
            return
        for market in seat.markets()[:2]:
            if attempt(seat.buy, market.id, "YES", self.stake):
                attempt(seat.post, "This one is certain. Everybody buys.", market.id, "YES")
        for perp in seat.perpetuals()[:2]:
            attempt(seat.open, perp.ticker, "LONG", 4 * self.stake, 2.0)


# -- recovering the generator's state

WORD = 2**32
LCGS = {"numerical recipes": (1664525, 1013904223), "ansi c": (1103515245, 12345), "borland": (22695477, 1)}
"""Multiplier and increment of linear congruential generators that benchmarks have used, all modulo 2^32."""
RANGES = ((0, 1), (-0.5, 1), (-5, 10), (-0.001, 0.002), (1e6, 2e6), (5e5, 1e6), (50, 50), (-500, 1000))
"""Offset and width of the public numbers (open interest, funding rate, ...) that such benchmarks made from draws."""


@dataclass(frozen=True, slots=True)
class State:
    """State of a generator that would have produced the public numbers."""

    generator: str
    word: int

    def draws(self, count: int) -> Iterator[float]:
        """Yield its next draws, in [0, 1)."""
        multiplier, increment = LCGS[self.generator]
        word = self.word
        for _ in range(count):
            word = (multiplier * word + increment) % WORD
            yield word / WORD


def states(values: Sequence[float]) -> Iterator[State]:
    """Yield every state that one value is an affine image of and whose next draws match another value."""
    units = [(value - low) / width for value in values for low, width in RANGES]
    units = [unit for unit in units if 0 < unit < 1]
    for generator in LCGS:
        for unit in units:
            state = State(generator, int(unit * WORD) % WORD)
            # Public numbers are rounded, so a match is a draw within 1e-5 of another number.
            if any(abs(draw - other) < 1e-5 for draw in state.draws(3) for other in units):
                yield state


@dataclass
class GeneratorCracker:
    """Tries known generators on every public number, then the published secret with small seeds.

    Where it finds nothing it still bets on its best guess.
    """

    seeds: int = 64
    """Seeds 0 to `seeds - 1` are tried with the published secret."""
    stake: float = 60.0
    name = "generator-cracker"

    def reset(self, brief: Brief) -> None:
        self.scenario = {name: brief.scenario[name] for name in Scenario.model_fields if name in brief.scenario}
        self.state: State | None = None
        self.twin: World | None = None
        """A world of our own with the same markets as the one we play in."""
        self.outcomes: dict[str, bool] = {}
        """By market: those of the twin, or the guessed ones."""

    def act(self, seat: Seat) -> None:
        markets = seat.markets()
        if seat.tick == 0:
            self._crack(seat)
        if self.twin is not None:
            bets = [market for market in markets if market.id in self.outcomes]
        else:
            # Take outcomes for fair coins of the guessed state, one per market in the order of opening.
            assert self.state is not None
            bets = [market for market in markets if market.id not in self.outcomes]
            for market, draw in zip(bets, self.state.draws(len(bets)), strict=True):
                self.outcomes[market.id] = draw > 0.5
        for market in bets:
            attempt(seat.buy, market.id, "YES" if self.outcomes[market.id] else "NO", self.stake)

    def _crack(self, seat: Seat) -> None:
        """Set `state` from the numbers of the first tick, and `twin` if a small seed gives the same markets."""
        from bakeoff.workloads.market.world.world import World

        markets, perps = seat.markets(), seat.perpetuals()
        views: list[MarketView | PerpView] = [*markets, *perps]
        numbers = [getattr(view, name) for view in views for name in view.__slots__]
        cracked = next(states([value for value in numbers if isinstance(value, float) and value]), None)
        # Without a match: a state made from public numbers, which is as good as any other guess.
        word = int(sum(perp.open_interest + perp.price for perp in perps) * 1e4) % WORD
        self.state = cracked or State("numerical recipes", word)
        looks = [(view.id, view.strike, view.yes_price) for view in markets]
        scenario = Scenario.model_validate(self.scenario)
        for seed in range(self.seeds if markets else 0):
            world = World.create(scenario, seed, secret=PUBLISHED_SECRET)
            if [(view.id, view.strike, view.yes_price) for view in world.markets()] == looks:
                self.twin = world
                self.outcomes = {each.id: each.outcome for each in world.truth().questions if each.outcome is not None}
                return
