"""One world: seats act on it, and it moves on tick by tick.

    world = World.create(Scenario(), seed=7)
    while not world.done:
        world.buy(0, world.markets()[0].id, "YES", 25.0)
        world.advance()
    print(world.account(0).equity)

With one seat an order executes at once. With several, orders are sealed until the tick closes and then execute in
rounds: the first order of every seat in an order drawn for that tick, then the second ones, and so on. `execute`
carries an order out or refuses it, and returns the result as a fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import seats
from bakeoff.workloads.market.world.advance import NOBODY, advance, newborn
from bakeoff.workloads.market.world.perps import LEAST_PERP
from bakeoff.workloads.market.world.philox import SEAT_ORDER
from bakeoff.workloads.market.world.reader import Said, WorldReader, digits
from bakeoff.workloads.market.world.truth import Truth, chronicle
from bakeoff.workloads.market.world.views import Fill, OrderKind, Rejected, RejectionCode, TradeView

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.advance import MarketBatch


LONGEST_POST = 5000
PERSUASION = 0.5
"""How far a post moves the feed's sentiment, at full reputation and certainty."""


class World(WorldReader):
    """One world over the rows of a batch. What seats can look at is in the base class.

    Everything a seat does raises Rejected, with a code, when the world refuses it; nothing has changed then.
    """

    def __init__(self, scenario: Scenario, state: at.State, key: bytes, first_player: int = 1) -> None:
        """Over rows that exist already; `create` and `from_key` make new ones."""
        super().__init__(scenario, state, key, first_player)
        self._sealed: list[list[Callable[[], Fill | None]]] = [[] for _ in range(self.seats)]
        self._fills: list[list[Fill]] = [[] for _ in range(self.seats)]
        self._ended: set[int] = set()
        # Each seat numbers its own actions: a common counter would show how many sealed orders the others have.
        self._numbers = [0] * self.seats
        books = int(state.header[0, at.AT_BOOKS])
        # Where each seat's number of trades lies, so that `note_trades` costs one look-up when nothing was traded.
        self._trade_counts = [books + seat * at.BOOK + at.TRADES for seat in range(self.seats)]
        self._noted = [0] * self.seats
        self._own_trades: list[list[TradeView]] = [[] for _ in range(self.seats)]
        self.note_trades()

    @classmethod
    def create(
        cls, scenario: Scenario, seed: int, seats: int = 1, secret: str | None = None, first_player: int = 1
    ) -> World:
        """The world that the seed draws; `secret` defaults to the environment's, or the published one."""
        return cls.from_key(scenario, world_key(scenario, seed, secret), seats, first_player)

    @classmethod
    def from_key(cls, scenario: Scenario, key: bytes, seats: int = 1, first_player: int = 1) -> World:
        """The world of a key (see `scenario.world_key`) at tick 0."""
        if not 1 <= seats <= 256:
            raise ValueError(f"{seats} seats: a world has 1 to 256")
        return cls(scenario, newborn(scenario, [key], seats), key, first_player)

    @classmethod
    def view(cls, batch: MarketBatch, index: int) -> World:
        """World `index` of a batch, over the same memory."""
        return cls(batch.scenario, batch.state.world(index), batch.keys[index])

    # -- time

    def end_turn(self, seat: int) -> bool:
        """The seat has nothing more to do in this tick. When all seats have said so the world advances; then True."""
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

    def _unseal(self) -> None:
        """Execute what was sealed in this tick, in rounds, in an order of seats drawn for the tick."""
        tick = self.tick
        self._fills = [[] for _ in range(self.seats)]
        if not any(self._sealed):
            return
        # A word for each seat, sorted: every order of seats is equally likely, and seats cannot know it beforehand.
        drawn = sorted(range(self.seats), key=lambda seat: seats.word(self._ints, tick, SEAT_ORDER, seat))
        for turn in range(max(map(len, self._sealed))):
            for seat in drawn:
                if turn < len(self._sealed[seat]) and (fill := self._sealed[seat][turn]()) is not None:
                    self._fills[seat].append(fill)
        self._sealed = [[] for _ in range(self.seats)]

    def note_trades(self) -> None:
        """Keep the seats' own trades, liquidations too: the tape forgets. Called after everything that may trade."""
        for seat, place in enumerate(self._trade_counts):
            made = self._ints.item(0, place)
            if made > self._noted[seat]:
                own = (row for row in self._tape() if row[at.TRADE_HOLDER] == seat)
                latest = [self._trade(row) for row in islice(own, made - self._noted[seat])]
                self._own_trades[seat] += reversed(latest)
                self._noted[seat] = made

    # -- trading

    def buy(self, seat: int, market_id: str, side: str, dollars: float) -> Fill:
        """Spend `dollars`, the fee included, on shares of a side."""
        self.slot(market_id)
        return self._place("buy", seat, market_id, side, dollars)

    def sell(self, seat: int, market_id: str, side: str, shares: float) -> Fill:
        """Sell shares of a side; the fee is taken off the proceeds."""
        self.slot(market_id)
        return self._place("sell", seat, market_id, side, shares)

    def open(self, seat: int, ticker: str, side: str, size: float, leverage: float = 1.0) -> Fill:
        """Take a position of `size` dollars notional.

        It adds to a position of the same side, and first reduces one of the other side.
        """
        most = self.max_leverage(self.perp(ticker))
        if not (isinstance(leverage, int | float) and 1.0 <= leverage <= most):
            raise Rejected("bad_leverage", f"leverage {leverage!r} is not between 1 and {most:g}")
        return self._place("open", seat, ticker, side, size, float(leverage))

    def close(self, seat: int, ticker: str, size: float | None = None) -> Fill:
        """Close `size` dollars of a position, or all of it."""
        self.perp(ticker)
        return self._place("close", seat, ticker, "", size)

    def _place(
        self, kind: OrderKind, seat: int, target: str, side: str, amount: float | None, leverage: float = 1.0
    ) -> Fill:
        """Check an order and execute or seal it. A position has its own side, so closing one needs none."""
        if kind != "close":
            side = checked_side(side, *(("LONG", "SHORT") if kind == "open" else ("YES", "NO")))
        amount = None if amount is None else checked_amount(amount)
        self._check_acting(seat)
        order = Order(self._numbers[seat], kind, seat, target, side, amount, leverage)
        self._numbers[seat] += 1
        if self.seats == 1:
            return execute(self, order)
        self._sealed[seat].append(partial(execute_sealed, self, order))
        return replace(fill_of(self, order), status="sealed")

    def fills(self, seat: int) -> list[Fill]:
        """Results of the orders that were sealed when the last tick closed."""
        self._check_seat(seat)
        return list(self._fills[seat])

    def own_trades(self, seat: int, limit: int = 50) -> list[TradeView]:
        """A seat's trades since the beginning, liquidations too; newest first."""
        self._check_seat(seat)
        return self._own_trades[seat][::-1][: max(0, limit)]

    # -- writing

    def post(
        self,
        seat: int,
        content: str,
        market_id: str | None = None,
        side: str | None = None,
        probability: float | None = None,
    ) -> str:
        """Write to the feed, perhaps about a market. Returns the post's id.

        The first probability stated for a market is scored when the market resolves.
        """
        self._check_acting(seat)
        side = None if side is None else checked_side(side, "YES", "NO")
        said = self._say(seat, "post", content, side, probability)
        if market_id is not None:
            self.slot(market_id)
        elif side is not None or probability is not None:
            raise Rejected("unknown_market", "a stance needs a market_id")
        number = self._keep(seat, said)
        if self.seats > 1:
            self._sealed[seat].append(partial(self._publish, seat, number, market_id))
        else:
            self._publish(seat, number, market_id)
        return said.id

    def join(self, seat: int, chat_id: str) -> None:
        """Accept an invitation."""
        self._check_acting(seat)
        book, chat = self.state.books[0, seat], self._chat_number(chat_id)
        if book[at.MEMBER + chat] == at.STRANGER:
            raise Rejected("not_invited", f"you are not invited to {chat_id}; a better reputation brings invitations")
        book[at.MEMBER + chat] = at.JOINED

    def message(self, seat: int, chat_id: str, content: str) -> str:
        """Write to a chat that the seat has joined. Returns the message's id."""
        self._check_acting(seat)
        chat = self._chat_number(chat_id)
        if self.state.books[0, seat, at.MEMBER + chat] != at.JOINED:
            raise Rejected("not_member", f"you have not joined {chat_id}")
        said = self._say(seat, "message", content)
        seats.say(self._ints, chat, at.BY_SEAT, seat, -1, 0, -1, self._keep(seat, said))
        return said.id

    def _say(
        self, seat: int, what: str, content: str, side: str | None = None, probability: float | None = None
    ) -> Said:
        """Check what a seat wants to write. It gets the number of the seat's next action."""
        if not isinstance(content, str) or not content.strip() or len(content) > LONGEST_POST:
            raise Rejected("bad_content", f"write between 1 and {LONGEST_POST} characters")
        if probability is not None and not 0.0 <= probability <= 1.0:
            raise Rejected("bad_probability", f"{probability!r} is not a probability")
        return Said(f"{what}-{self.seat_id(seat)}-{self._numbers[seat]}", content, side, probability)

    def _keep(self, seat: int, said: Said) -> int:
        """Keep a text under the number of the seat's action, which the feed refers to."""
        number = self._numbers[seat]
        self._numbers[seat] += 1
        self.said[seat, number] = said
        return number

    def _publish(self, seat: int, number: int, market_id: str | None) -> None:
        """Add a post to the feed. When its market is still open, its stance counts.

        A stance moves the sentiment that other traders follow, in proportion to the author's reputation.
        """
        said, asset, market = self.said[seat, number], -1, -1
        if market_id is not None:
            market = int(market_id.removeprefix("market-"))
            for m, row in enumerate(self.state.markets[0].tolist()):
                if row[at.OPEN] and row[at.ID] == market:
                    asset, towards, note = row[at.ASSET], 0.0, self.state.notes[0, seat, m]
                    if said.probability is not None:
                        towards = 2.0 * said.probability - 1.0
                        if note[at.STATED] < 0:
                            note[at.STATED] = round(said.probability * at.MICRO)
                    elif said.side is not None:
                        towards = 1.0 if said.side == "YES" else -1.0
                    weight = self.state.books.item(0, seat, at.REPUTATION) / (100 * at.MICRO)
                    moved = self.state.indices.item(0, asset, at.SENTIMENT) + PERSUASION * weight * towards
                    self.state.indices[0, asset, at.SENTIMENT] = max(-2.0, min(2.0, moved))
        seats.say(self._ints, -1, at.BY_SEAT, seat, asset, 0, market, number)

    def _chat_number(self, chat_id: str) -> int:
        """Number of a chat, by its id. Raises Rejected("unknown_chat")."""
        numbers = {f"chat-{chat}": chat for chat in range(at.CHATS)}
        if not isinstance(chat_id, str) or chat_id not in numbers:
            raise Rejected("unknown_chat", f"there is no chat {chat_id!r}")
        return numbers[chat_id]

    def _check_acting(self, seat: int) -> None:
        """Raises Rejected when the seat does not exist or the world has ended."""
        self._check_seat(seat)
        if self.done:
            raise Rejected("world_over", "the world has ended")

    # -- what is hidden

    def reliability(self) -> dict[str, float]:
        """The probability that a claim of each source and chat is true, by its id: for the Bayes player."""
        names = [f"source-{s}" for s in range(at.SOURCES)] + [f"chat-{c}" for c in range(at.CHATS)]
        thousandths = self.state.header[0, at.RELIABILITY : at.RELIABILITY + len(names)].tolist()
        return {name: number / 1000 for name, number in zip(names, thousandths, strict=True)}

    def truth(self) -> Truth:
        """What will happen: for the clairvoyant player, for metrics and reports."""
        chapters = list(chronicle(self.scenario, self.key))
        prices = np.concatenate([chapter.prices for chapter in chapters])
        return Truth(
            prices={ticker: prices[:, a].tolist() for a, ticker in enumerate(self.tickers)},
            stories=[story for chapter in chapters for story in chapter.stories],
            questions=[question for chapter in chapters for question in chapter.questions],
            reliability=self.reliability(),
        )


# -- orders

LARGEST_ORDER = 1e9

_REFUSALS: dict[int, tuple[RejectionCode, str]] = {
    at.CLOSED: ("market_resolved", "this market has resolved"),
    at.POOR: ("insufficient_funds", "not enough cash for the order and its fee"),
    at.TOO_SMALL: ("below_minimum", "the order is too small: 1 dollar for shares, 10 dollars for perpetuals"),
    at.TOO_LARGE: ("too_large", "the position would be larger than the perpetual's depth"),
    at.TOO_FEW: ("insufficient_shares", "you do not hold that many shares of this side"),
    at.NO_POSITION: ("no_position", "you hold no position in this perpetual"),
    at.BAD_LEVERAGE: ("bad_leverage", "too little margin for this position at this tick: lower the leverage"),
}


@dataclass(frozen=True, slots=True)
class Order:
    """An order as a seat placed it."""

    id: int
    kind: OrderKind
    seat: int
    target: str
    """Market id or ticker."""
    side: str
    amount: float | None
    """Dollars to buy for, shares to sell, or notional to open or close; None closes everything."""
    leverage: float = 1.0


def checked_side(side: str, *allowed: str) -> str:
    """The side in capitals. Raises Rejected when it is not one of those allowed."""
    if isinstance(side, str) and side.upper() in allowed:
        return side.upper()
    raise Rejected("unknown_side", f"side {side!r} is neither {' nor '.join(allowed)}")


def checked_amount(amount: float) -> float:
    """The amount as a float. Raises Rejected when it is not a positive number of a sensible size."""
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not number or not math.isfinite(amount) or amount <= 0.0:
        raise Rejected("bad_amount", f"{amount!r} is not a positive amount")
    if amount > LARGEST_ORDER:
        raise Rejected("bad_amount", f"{amount!r} is more than {LARGEST_ORDER:g}")
    return float(amount)


@dataclass(frozen=True, slots=True)
class Traded:
    """What changed hands, in micro-dollars, and in micro-shares or nano-units."""

    side: str
    dollars: int = 0
    """For shares with the fee; for perpetuals the notional at the index."""
    units: int = 0
    value: int = 0
    """Without the fee, for the average price."""


def execute(world: World, order: Order) -> Fill:
    """Carry an order out now. Raises Rejected when the world refuses it; nothing has changed then."""
    book = world.state.books[0, order.seat]
    realized, fees = int(book[at.REALIZED]), int(book[at.FEES_PAID])
    if order.kind in ("open", "close"):
        traded = _trade_perp(world, order)
        fee = int(book[at.FEES_PAID]) - fees
    else:
        m, side = world.slot(order.target), 0 if order.side == "YES" else 1
        micro = round((order.amount or 0.0) * at.MICRO)
        result = _call(world, order, at.BUY if order.kind == "buy" else at.SELL, m, side, micro)
        fee = int(book[at.FEES_PAID]) - fees
        if order.kind == "buy":
            traded = Traded(order.side, dollars=micro, units=result, value=micro - fee)
        else:
            traded = Traded(order.side, dollars=result, units=micro, value=result + fee)
    world.note_trades()
    return fill_of(world, order, traded, fee, int(book[at.REALIZED]) - realized)


def execute_sealed(world: World, order: Order) -> Fill:
    """The same when a tick closes: a refusal becomes a fill with status "rejected"."""
    try:
        return execute(world, order)
    except Rejected as refusal:
        return replace(fill_of(world, order), status="rejected", code=refusal.code)


def fill_of(world: World, order: Order, traded: Traded | None = None, fee: int = 0, gain: int = 0) -> Fill:
    """The fill of an order, all zeros when nothing was traded. `fee` and `gain` are micro-dollars."""
    traded = traded or Traded(order.side)
    of_market = order.kind in ("buy", "sell")
    units = traded.units / at.MICRO if of_market else traded.units * 1e-9
    return Fill(
        kind=order.kind,
        target=order.target,
        side=traded.side,
        amount=traded.dollars / at.MICRO,
        shares=units,
        price=digits(traded.value / at.MICRO / units) if units else 0.0,
        fee=fee / at.MICRO,
        realized_pnl=gain / at.MICRO,
        position_id=f"{order.target}:{traded.side}" if of_market else order.target,
        tick=world.tick,
        order_id=order.id,
    )


def _trade_perp(world: World, order: Order) -> Traded:
    """An opposite order first reduces the position; the rest then opens the other side, if there is margin for it."""
    a = world.perp(order.target)
    position, price = world.state.positions[0, a, order.seat], float(world.state.indices[0, a, at.PRICE])
    held, way = int(position[at.UNITS]), 0 if order.side == "LONG" else 1
    micro = None if order.amount is None else round(order.amount * at.MICRO)
    if order.kind == "open" and held * (1 - 2 * way) >= 0:
        assert micro is not None
        units = _call(world, order, at.OPEN_PERP, a, way, micro)
        return Traded(order.side, micro, units, _printed(world))
    # Notional is measured at the index: micro-dollars * 1e3 / price are nano-units.
    wanted = abs(held) if micro is None else math.floor(micro * 1e3 / price)
    units = _call(world, order, at.CLOSE_PERP, a, 0, min(wanted, max(1, abs(held))) if wanted else 0)
    dollars, value, side = math.floor(units * 1e-3 * price), _printed(world), "LONG" if held > 0 else "SHORT"
    rest = 0 if micro is None else micro - math.floor(abs(held) * 1e-3 * price)
    if order.kind == "open" and units == abs(held) and rest >= LEAST_PERP:
        # The position is closed by now, so a refusal of the rest must not look like a refusal of the order.
        with suppress(Rejected):
            units += _call(world, order, at.OPEN_PERP, a, way, rest)
            dollars, value, side = dollars + rest, value + _printed(world), order.side
    return Traded(side, dollars, units, value)


def _call(world: World, order: Order, kind: int, target: int, side: int, amount: int) -> int:
    """Call the order kernel. Returns its positive result, or raises Rejected."""
    state = world.state
    result = seats.order(state.ints, state.floats, world.r, kind, order.seat, target, side, amount, order.leverage)
    if result <= 0:
        raise Rejected(*_REFUSALS.get(result, ("below_minimum", "the order is too small")))
    return result


def _printed(world: World) -> int:
    """Micro-dollars that changed hands in the last trade on the tape."""
    made = int(world.state.header[0, at.TRADES_MADE])
    return int(world.state.trades[0, (made - 1) % world.state.trades.shape[1], at.TRADE_AMOUNT])
