"""One world: seats act on it, and it moves on tick by tick.

With one seat an order executes at once. With several, orders are sealed until the tick closes and then execute in rounds:
the first order of every seat in an order drawn for that tick, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world import calls, execution, looking, names
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.advance import NOBODY, advance
from bakeoff.workloads.market.world.chronicle import newborn
from bakeoff.workloads.market.world.execution import Order
from bakeoff.workloads.market.world.knowledge import Model, Truth, public_model, truth_of
from bakeoff.workloads.market.world.layout import State
from bakeoff.workloads.market.world.rules import packed_rules, rules_of, ticker_price
from bakeoff.workloads.market.world.streams import SEAT_ORDER
from bakeoff.workloads.market.world.views import (
    Account,
    ChatView,
    Fill,
    MarketView,
    OrderKind,
    PerpView,
    PositionsView,
    PostView,
    Rejected,
    SourceView,
    TraderView,
    TradeView,
)

if TYPE_CHECKING:
    from bakeoff.workloads.market.batch import MarketBatch

EPOCH = 1_735_689_600
"""2025-01-01T00:00:00Z: when every world begins."""

LONGEST_POST = 5000
LIKELY = 0.5
"""How far a post moves the feed's sentiment, at full reputation and certainty."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a seat wrote."""

    id: str
    content: str
    side: str | None = None
    probability: float | None = None


class World:
    """The Python face of one world, over the rows of a batch."""

    def __init__(self, scenario: Scenario, state: State, key: bytes) -> None:
        self.scenario = scenario
        self.state = state
        self.rules = rules_of(scenario)
        self.r = packed_rules(scenario)
        self.ticks = scenario.ticks
        self.seats = int(state.header[0, at.SEATS])
        self.key = key
        self.said: dict[tuple[int, int], Said] = {}
        self._tickers = [ticker_price(a)[0] for a in range(scenario.assets)]
        self._ints, self._floats = state.ints, state.floats
        self._sealed: list[list[Callable[[], Fill | None]]] = [[] for _ in range(self.seats)]
        self._fills: list[list[Fill]] = [[] for _ in range(self.seats)]
        self._ended: set[int] = set()
        self._numbers = [0] * self.seats  # each seat counts for itself: sealed orders of others must not show
        books = int(state.header[0, at.AT_BOOKS])
        self._made = [books + seat * at.BOOK + at.TRADES for seat in range(self.seats)]
        self._noted = [0] * self.seats
        self._traded: list[list[TradeView]] = [[] for _ in range(self.seats)]
        self.note_trades()

    @classmethod
    def create(cls, scenario: Scenario, seed: int, seats: int = 1, secret: str | None = None) -> World:
        """The world that the secret (the environment's, or the published one) and the seed draw."""
        return cls.from_key(scenario, world_key(scenario, seed, secret), seats)

    @classmethod
    def from_key(cls, scenario: Scenario, key: bytes, seats: int = 1) -> World:
        if not 1 <= seats <= 256:
            raise ValueError(f"{seats} seats: a world has 1 to 256")
        return cls(scenario, newborn(scenario, [key], seats), key)

    @classmethod
    def view(cls, batch: MarketBatch, index: int) -> World:
        """World `index` of a batch, over the same memory."""
        return cls(batch.scenario, batch.state.world(index), batch.keys[index])

    # -- time

    @property
    def tick(self) -> int:
        return self._ints.item(0, at.TICK)

    @property
    def done(self) -> bool:
        return self.tick >= self.ticks

    @property
    def time(self) -> int:
        """Simulated seconds since 1970."""
        return self.time_at(self.tick)

    def time_at(self, tick: int) -> int:
        return EPOCH + tick * self.scenario.tick_interval

    def end_turn(self, seat: int) -> bool:
        """Seat has nothing more to do in this tick. When all seats have said so the world advances; then True."""
        self._check_seat(seat)
        self._ended.add(seat)
        if len(self._ended) < self.seats:
            return False
        self.advance()
        return True

    def advance(self) -> None:
        """Close the tick: sealed orders execute, then the world moves on."""
        if self.done:
            raise Rejected("world_over", "the world has ended")
        if self.seats > 1:
            self._unseal()
        if self._ended:
            self._ended.clear()
        advance(self._ints, self._floats, self.r, *NOBODY)
        self.note_trades()

    def note_trades(self) -> None:
        """Keep the seats' own trades, liquidations too: the tape forgets."""
        for seat, place in enumerate(self._made):
            made = self._ints.item(0, place)
            if made > self._noted[seat]:
                self._traded[seat] += looking.latest_of(self, seat, made - self._noted[seat])
                self._noted[seat] = made

    def _unseal(self) -> None:
        tick = self.tick
        self._fills = [[] for _ in range(self.seats)]
        if not any(self._sealed):
            return
        drawn = sorted(range(self.seats), key=lambda seat: calls.word(self._ints, tick, SEAT_ORDER, seat))
        for turn in range(max(map(len, self._sealed))):
            for seat in drawn:
                if turn < len(self._sealed[seat]) and (fill := self._sealed[seat][turn]()) is not None:
                    self._fills[seat].append(fill)
        self._sealed = [[] for _ in range(self.seats)]

    # -- acting

    def buy(self, seat: int, market_id: str, side: str, dollars: float) -> Fill:
        """Spend `dollars`, the fee included, on shares of a side."""
        self.slot(market_id)
        return self._place("buy", seat, market_id, execution.known_side(side, "YES", "NO"), execution.positive(dollars))

    def sell(self, seat: int, market_id: str, side: str, shares: float) -> Fill:
        self.slot(market_id)
        return self._place("sell", seat, market_id, execution.known_side(side, "YES", "NO"), execution.positive(shares))

    def open(self, seat: int, ticker: str, side: str, size: float, leverage: float = 1.0) -> Fill:
        """Take a position of `size` dollars notional. It adds to one of the same side and first reduces one of the other."""
        a = self.perp(ticker)
        if not (isinstance(leverage, int | float) and 1.0 <= leverage <= looking.max_leverage(self, a)):
            most = looking.max_leverage(self, a)
            raise Rejected("bad_leverage", f"leverage {leverage!r} is not between 1 and {most:g}")
        return self._place(
            "open", seat, ticker, execution.known_side(side, "LONG", "SHORT"), execution.positive(size), float(leverage)
        )

    def close(self, seat: int, ticker: str, size: float | None = None) -> Fill:
        """Close `size` dollars of a position, or all of it."""
        self.perp(ticker)
        return self._place("close", seat, ticker, "", None if size is None else execution.positive(size))

    def post(
        self,
        seat: int,
        content: str,
        market_id: str | None = None,
        side: str | None = None,
        probability: float | None = None,
    ) -> str:
        """Write to the feed, perhaps about a market. The first probability stated for a market is scored when it resolves."""
        self._check_acting(seat)
        said = self._say(
            seat, content, "post", None if side is None else execution.known_side(side, "YES", "NO"), probability
        )
        slot = None if market_id is None else self.slot(market_id)
        if slot is None and (side is not None or probability is not None):
            raise Rejected("unknown_market", "a stance needs a market_id")
        number = self._next(seat)
        self.said[seat, number] = said

        def publish() -> None:
            self._publish(seat, number, market_id)

        if self.seats > 1:
            self._sealed[seat].append(publish)
        else:
            publish()
        return said.id

    def join(self, seat: int, chat_id: str) -> None:
        """Accept an invitation."""
        self._check_acting(seat)
        book, chat = self.state.books[0, seat], self._chat(chat_id)
        if book[at.MEMBER + chat] == at.STRANGER:
            raise Rejected("not_invited", f"you are not invited to {chat_id}; a better reputation brings invitations")
        book[at.MEMBER + chat] = at.JOINED

    def message(self, seat: int, chat_id: str, content: str) -> str:
        """Write to a chat one has joined."""
        self._check_acting(seat)
        chat = self._chat(chat_id)
        if self.state.books[0, seat, at.MEMBER + chat] != at.JOINED:
            raise Rejected("not_member", f"you have not joined {chat_id}")
        said, number = self._say(seat, content, "message"), self._next(seat)
        self.said[seat, number] = said
        calls.say(self._ints, chat, at.BY_SEAT, seat, -1, 0, -1, number)
        return said.id

    # -- looking

    def seat_id(self, seat: int) -> str:
        self._check_seat(seat)
        return names.seat_id(seat)

    def account(self, seat: int) -> Account:
        self._check_seat(seat)
        return looking.account(self, seat)

    def equity(self, seat: int) -> float:
        """Dollars: cash and what everything held would bring if it were sold now."""
        return calls.equity(self._ints, self._floats, self.r, seat) / at.MICRO

    def markets(self) -> list[MarketView]:
        """The open ones."""
        return looking.markets(self)

    def resolved_markets(self) -> list[MarketView]:
        """The latest that have resolved, oldest first."""
        return looking.resolved_markets(self)

    def perpetuals(self) -> list[PerpView]:
        return looking.assets(self)[: self.scenario.perpetuals]

    def assets(self) -> list[PerpView]:
        """What questions are about. These are the perpetuals; a world without any still has one asset."""
        return looking.assets(self)

    def posts(self, seat: int = 0, limit: int = 20) -> list[PostView]:
        """The feed, newest first. It is the same for all seats."""
        self._check_seat(seat)
        return looking.posts(self, max(0, limit))

    def chats(self, seat: int) -> list[ChatView]:
        self._check_seat(seat)
        return looking.chats(self, seat)

    def positions(self, seat: int) -> PositionsView:
        self._check_seat(seat)
        return looking.positions(self, seat)

    def fills(self, seat: int) -> list[Fill]:
        """What came of the orders that were sealed until the last tick closed."""
        self._check_seat(seat)
        return list(self._fills[seat])

    def trades(self, limit: int = 50) -> list[TradeView]:
        """The public tape, newest first."""
        return looking.trades(self, max(0, limit))

    def own_trades(self, seat: int, limit: int = 50) -> list[TradeView]:
        """A seat's own trades from the beginning on, liquidations too; newest first."""
        self._check_seat(seat)
        return self._traded[seat][::-1][: max(0, limit)]

    def background(self) -> list[TraderView]:
        return looking.background(self)

    def sources(self) -> list[SourceView]:
        """News sources and their public records."""
        return looking.sources(self)

    # -- knowing

    def public_model(self) -> dict[str, Any]:
        """What everyone may know about the world's laws."""
        return public_model(self.scenario)

    def model(self) -> Model:
        """The laws and the reliabilities: for the Bayes player."""
        return Model(self)

    def truth(self) -> Truth:
        """What will happen: for the clairvoyant, for metrics and reports."""
        return truth_of(self.scenario, self.key, self.model().reliability, self._tickers)

    # -- finding

    def ticker(self, a: int) -> str:
        return self._tickers[a]

    def asset(self, ticker: str) -> int:
        if ticker not in self._tickers:
            raise Rejected("unknown_ticker", f"there is no {ticker!r}; there are {', '.join(self._tickers)}")
        return self._tickers.index(ticker)

    def slot(self, market_id: str) -> int:
        """Where an open market lies."""
        number = market_id.removeprefix("market-") if isinstance(market_id, str) else ""
        if not (number.isascii() and number.isdigit() and market_id == f"market-{int(number)}"):
            raise Rejected("unknown_market", f"there is no market {market_id!r}")
        for m, row in enumerate(self.state.markets[0, :, : at.ID + 1].tolist()):
            if row[at.OPEN] and row[at.ID] == int(number):
                return m
        if int(number) < self._ints.item(0, at.MARKETS_MADE):
            raise Rejected("market_resolved", f"{market_id} has resolved")
        raise Rejected("unknown_market", f"there is no market {market_id!r}")

    def perp(self, ticker: str) -> int:
        a = self.asset(ticker)
        if a >= self.scenario.perpetuals:
            raise Rejected("unknown_ticker", f"{ticker} has no perpetual")
        return a

    def _chat(self, chat_id: str) -> int:
        for chat in range(at.CHATS):
            if chat_id == names.chat_id(chat):
                return chat
        raise Rejected("unknown_chat", f"there is no chat {chat_id!r}")

    def _check_seat(self, seat: int) -> None:
        if not 0 <= seat < self.seats:
            raise Rejected("unknown_seat", f"there is no seat {seat}; there are {self.seats}")

    def _check_acting(self, seat: int) -> None:
        self._check_seat(seat)
        if self.done:
            raise Rejected("world_over", "the world has ended")

    def _next(self, seat: int) -> int:
        """Numbers what a seat does."""
        self._numbers[seat] += 1
        return self._numbers[seat] - 1

    def _place(
        self, kind: OrderKind, seat: int, target: str, side: str, amount: float | None, leverage: float = 1.0
    ) -> Fill:
        self._check_acting(seat)
        order = Order(self._next(seat), kind, seat, target, side, amount, leverage)
        if self.seats == 1:
            return execution.execute(self, order)
        self._sealed[seat].append(lambda: execution.execute_sealed(self, order))
        return execution.fill_of(self, order, status="sealed")

    # -- saying

    def _say(
        self, seat: int, content: str, what: str, side: str | None = None, probability: float | None = None
    ) -> Said:
        if not isinstance(content, str) or not content.strip() or len(content) > LONGEST_POST:
            raise Rejected("bad_content", f"write between 1 and {LONGEST_POST} characters")
        if probability is not None and not 0.0 <= probability <= 1.0:
            raise Rejected("bad_probability", f"{probability!r} is not a probability")
        return Said(f"{what}-{names.seat_id(seat)}-{self._numbers[seat]}", content, side, probability)

    def _publish(self, seat: int, number: int, market_id: str | None) -> None:
        said = self.said[seat, number]
        asset, market = -1, -1
        if market_id is not None:
            market = int(market_id.removeprefix("market-"))
            for m, row in enumerate(self.state.markets[0].tolist()):
                if row[at.OPEN] and row[at.ID] == market:
                    asset = row[at.ASSET]
                    self._take_stance(seat, m, asset, said)
        calls.say(self._ints, -1, at.BY_SEAT, seat, asset, 0, market, number)

    def _take_stance(self, seat: int, m: int, asset: int, said: Said) -> None:
        """A stance moves the sentiment that other traders follow, in proportion to the author's reputation."""
        towards = 0.0
        if said.probability is not None:
            towards = 2.0 * said.probability - 1.0
            note = self.state.notes[0, seat, m]
            if note[at.STATED] < 0:
                note[at.STATED] = round(said.probability * at.MICRO)
        elif said.side is not None:
            towards = 1.0 if said.side == "YES" else -1.0
        weight = self.state.books.item(0, seat, at.REPUTATION) / (100 * at.MICRO)
        moved = self.state.indices.item(0, asset, at.SENTIMENT) + LIKELY * weight * towards
        self.state.indices[0, asset, at.SENTIMENT] = max(-2.0, min(2.0, moved))
