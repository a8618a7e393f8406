"""What seats can look at in one world: rows of numbers become views. Public floats are rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from bakeoff.workloads.market.world import feed, rules, seats, views
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.views import Rejected

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario

EPOCH = 1_735_689_600
"""2025-01-01T00:00:00Z: when every world begins."""

_POST_KINDS: tuple[views.PostKind, ...] = get_args(views.PostKind)
_TRADE_KINDS: tuple[views.TradeKind, ...] = get_args(views.TradeKind)


@dataclass(frozen=True, slots=True)
class Said:
    """What a seat wrote. The rows of the world hold numbers only, so texts are kept beside them."""

    id: str
    content: str
    side: str | None = None
    probability: float | None = None


def digits(value: float, count: int = 9) -> float:
    """Rounded to that many significant digits.

    Public floats never show all of their bits: an exact index price would give away the draws that moved it.
    """
    return float(f"{value:.{count}g}")


class WorldReader:
    """The public state of one world and its seats' own accounts; `World` adds acting and time.

    Methods that take a seat raise Rejected("unknown_seat") for one that does not exist.
    """

    def __init__(self, scenario: Scenario, state: at.State, key: bytes, first_player: int = 1) -> None:
        """`state` is a batch of one world; `key` is what drew it, for `World.truth`.

        Seats are called player-N; `first_player` is the N of the first one. Copies of a world have one seat each, and these
        seats have different names.
        """
        self.scenario = scenario
        self.state = state
        self.rules = rules.rules_of(scenario)
        self.r = rules.packed_rules(scenario)
        self.ticks = scenario.ticks
        self.seats = int(state.header[0, at.SEATS])
        self.key = key
        self.first_player = first_player
        self.said: dict[tuple[int, int], Said] = {}
        """By seat and number of what it did."""
        self.tickers = [rules.ticker_of(a) for a in range(scenario.assets)]
        """By the number of the asset."""
        self._ints, self._floats = state.ints, state.floats  # what entries take, without two attribute look-ups

    # -- time and laws

    @property
    def tick(self) -> int:
        """0 before the first advance."""
        return self._ints.item(0, at.TICK)

    @property
    def done(self) -> bool:
        """True after the last tick; nobody can act any more."""
        return self.tick >= self.ticks

    @property
    def time(self) -> int:
        """Simulated seconds since 1970."""
        return self.time_at(self.tick)

    def time_at(self, tick: int) -> int:
        """Simulated seconds since 1970 at a tick."""
        return EPOCH + tick * self.scenario.tick_interval

    def public_model(self) -> dict[str, Any]:
        """Everything about the laws of the scenario that everyone may know, ready for JSON."""
        numbers = self.rules._asdict()
        del numbers["regime"], numbers["story"]
        regimes = [self.scenario.regime] if self.scenario.regime != "mixed" else list(rules.REGIME_LAWS)
        tier = rules.TIER_LAWS[self.scenario.tier]
        return {
            **self.scenario.model_dump(mode="json"),
            "ticks": self.ticks,
            **numbers,
            "regimes": {name: rules.REGIME_LAWS[name]._asdict() for name in regimes},
            "source_reliabilities": list(tier.sources),
            "chat_reliabilities": list(tier.chats),
        }

    # -- accounts

    def account(self, seat: int) -> views.Account:
        """A seat's money, reputation and counts."""
        self._check_seat(seat)
        book = self.state.books[0, seat].tolist()
        margin = int(self.state.positions[0, :, seat, at.MARGIN].sum())
        return views.Account(
            cash=self.state.cash.item(0, seat) / at.MICRO,
            equity=self.equity(seat),
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

    def equity(self, holder: int) -> float:
        """Dollars: cash and what everything held would bring if it were sold now."""
        return seats.equity(self._ints, self._floats, self.r, holder) / at.MICRO

    def positions(self, seat: int) -> views.PositionsView:
        """Everything the seat holds: shares by market and side, and perpetual positions."""
        self._check_seat(seat)
        shares = []
        for m, held in enumerate(self.state.shares[0, :, seat].tolist()):
            for side, name in ((at.YES, "YES"), (at.NO, "NO")):
                if held[side] <= 0:
                    continue
                market = self._open_market(self.state.markets[0, m].tolist(), self.state.prices[0, m].tolist())
                value = seats.shares_worth(self._ints, self._floats, self.r, m, seat, side) / at.MICRO
                cost = held[at.COST_YES + side]
                position = views.PositionView(
                    id=f"{market.id}:{name}",
                    market_id=market.id,
                    question=market.question,
                    side=name,
                    shares=held[side] / at.MICRO,
                    avg_price=round(cost / held[side], 6),
                    cost=cost / at.MICRO,
                    current_price=market.yes_price if side == at.YES else market.no_price,
                    value=value,
                    unrealized_pnl=round(value - cost / at.MICRO, 6),
                )
                shares.append(position)
        rows = enumerate(self.state.positions[0, :, seat].tolist())
        perps = [self._perp_position(seat, a, *row) for a, row in rows if row[at.UNITS] != 0]
        return views.PositionsView(tuple(shares), tuple(perps))

    def _perp_position(self, seat: int, a: int, units: int, margin: int, entry: int) -> views.PerpPositionView:
        """The view of one perpetual position, given its row in nano-units and micro-dollars."""
        floats, sign = self.state.indices[0, a].tolist(), 1 if units > 0 else -1
        mark = floats[at.PRICE] * (1.0 + floats[at.MARKUP])
        size = abs(units) * 1e-9 * mark
        value = seats.position_worth(self._ints, self._floats, self.r, a, seat)
        # The index at which margin + units * index - entry equals the requirement; see perps.guard.
        liquidation = (entry - margin) / (units * 1e-3 * (1.0 - sign * self._requirement(a)))
        return views.PerpPositionView(
            id=self.tickers[a],
            ticker=self.tickers[a],
            side="LONG" if units > 0 else "SHORT",
            size=round(size, 6),
            units=abs(units) * 1e-9,
            entry_price=digits(entry / units * 1e3),
            current_price=digits(mark),
            leverage=round(size * at.MICRO / margin, 4) if margin else math.inf,
            margin=margin / at.MICRO,
            unrealized_pnl=round(units * 1e-9 * mark - entry / at.MICRO, 6),
            liquidation_price=digits(max(0.0, liquidation)),
            value=value / at.MICRO,
        )

    # -- markets and perpetuals

    def markets(self) -> list[views.MarketView]:
        """The open ones, by slot."""
        slots, prices = self.state.markets[0].tolist(), self.state.prices[0].tolist()
        return [self._open_market(slot, price) for slot, price in zip(slots, prices, strict=True) if slot[at.OPEN]]

    def resolved_markets(self) -> list[views.MarketView]:
        """The latest `PAST_KEPT` that have resolved, oldest first."""
        made = int(self.state.header[0, at.PAST_MADE])
        rows = [self.state.past[0, n % at.PAST_KEPT].tolist() for n in range(max(0, made - at.PAST_KEPT), made)]
        return [
            self._market(
                row,
                strike=row[at.PAST_STRIKE] / at.MICRO,
                yes=row[at.PAST_PRICE] / at.MICRO,
                opened=row[at.PAST_OPENED] / at.MICRO,
                liquidity=row[at.PAST_B] / at.MICRO,
                born=row[at.PAST_BORN],
                outcome=bool(row[at.OUTCOME]),
            )
            for row in rows
        ]

    def _open_market(self, slot: list[int], price: list[float]) -> views.MarketView:
        """The view of a market slot, given its rows of integers and floats."""
        return self._market(
            slot,
            strike=price[at.STRIKE],
            yes=price[at.PRICE_YES],
            opened=1.0 / (1.0 + math.exp(-price[at.OFFSET])),
            liquidity=price[at.B],
            born=int(price[at.BORN]),
            outcome=None,
        )

    def _market(
        self, slot: list[int], *, strike: float, yes: float, opened: float, liquidity: float, born: int, outcome: bool | None
    ) -> views.MarketView:  # fmt: skip
        ticker, kind, strike, yes = self.tickers[slot[at.ASSET]], slot[at.KIND], digits(strike), round(yes, 6)
        return views.MarketView(
            id=f"market-{slot[at.ID]}",
            question=feed.question(kind, ticker, strike, slot[at.DUE]),
            ticker=ticker,
            kind=at.QUESTION_KINDS[kind],
            strike=strike,
            yes_shares=slot[at.Q_YES] / at.MICRO,
            no_shares=slot[at.Q_NO] / at.MICRO,
            yes_price=yes,
            no_price=round(1.0 - yes, 6),
            opening_price=round(opened, 6),
            liquidity=liquidity,
            total_volume=slot[at.TRADED] / at.MICRO,
            resolved=not slot[at.OPEN],
            outcome=outcome,
            created_tick=born,
            resolve_tick=slot[at.DUE],
            created_at=self.time_at(born),
            resolve_at=self.time_at(slot[at.DUE]),
        )

    def perpetuals(self) -> list[views.PerpView]:
        """The perpetuals, with the story that each one's asset is in."""
        return self.assets()[: self.scenario.perpetuals]

    def assets(self) -> list[views.PerpView]:
        """What questions are about. These are the perpetuals; a world without any still has one asset."""
        laws, tick, assets = self.rules, self.tick, []
        funding_tick = tick - tick % laws.funding_every + laws.funding_every
        now = tick // laws.hour
        kept = [h % at.HOURS for h in range(max(0, now - at.HOURS + 1), now + 1)]
        rows = zip(self.state.assets[0].tolist(), self.state.indices[0].tolist(), self.state.hours[0], strict=True)
        for a, (ints, floats, hours) in enumerate(rows):
            price, premium = floats[at.PRICE], floats[at.MARKUP]
            rate = max(-laws.funding_cap, min(laws.funding_cap, laws.funding_share * premium))
            view = views.PerpView(
                ticker=self.tickers[a],
                price=digits(price * (1.0 + premium)),
                index_price=digits(price),
                price_change_24h=round(100.0 * (price / float(hours[kept[0], 0]) - 1.0), 4),
                volume_24h=round(float(hours[kept, 1].sum()), 2),
                open_interest=round((ints[at.LONG_UNITS] + ints[at.SHORT_UNITS]) * 1e-9 * price, 2),
                funding_rate=round(rate, 8),
                next_funding_tick=funding_tick,
                next_funding_time=self.time_at(funding_tick),
                max_leverage=self.max_leverage(a),
                depth=laws.depth * float(laws.regime[ints[at.REGIME], rules.LIQUIDITY]),
                regime=rules.KINDS[ints[at.REGIME]],
                story=ints[at.STORY],
                story_tick=ints[at.START],
                announcement_tick=ints[at.DUE_TICK],
                last_announcement=None if ints[at.LAST] == at.NO_NEWS else ints[at.LAST],
            )
            assets.append(view)
        return assets

    def _requirement(self, a: int) -> float:
        """Least margin for each dollar of position at this tick, as `perps.requirement` has it."""
        asset = self.state.assets[0, a]
        if self.tick + 1 == asset[at.DUE_TICK]:
            return max(self.rules.maintenance, float(self.rules.regime[asset[at.REGIME], rules.GAP]))
        return self.rules.maintenance

    def max_leverage(self, a: int) -> float:
        """The leverage that an order may ask for now.

        In the tick before an announcement it is a little below what margin and slippage allow.
        """
        return min(self.rules.max_leverage, math.floor(9.5 / self._requirement(a)) / 10.0)

    # -- the feed

    def posts(self, seat: int = 0, limit: int = 20) -> list[views.PostView]:
        """The feed, newest first. It is the same for all seats."""
        self._check_seat(seat)
        made, kept = int(self.state.header[0, at.POSTS_MADE]), min(max(0, limit), at.POSTS_KEPT)
        numbers = range(made - 1, max(made - kept, 0) - 1, -1)
        return [self._post(self.state.posts[0, number % at.POSTS_KEPT].tolist()) for number in numbers]

    def said_so_far(self) -> tuple[int, int]:
        """How many posts and how many chat messages there have been. They are numbered from 0."""
        return int(self.state.header[0, at.POSTS_MADE]), int(self.state.header[0, at.MESSAGES_MADE])

    def _post(self, row: list[int]) -> views.PostView:
        """A row of the ring in words. Text, stance and likes of a seat's post come from what the seat wrote."""
        (author, kind), style = divmod(row[at.POST_BY], 4), row[at.POST_STYLE]
        asset, market, claim = row[at.POST_ASSET], row[at.POST_MARKET], row[at.POST_CLAIM]
        ticker = self.tickers[asset] if asset >= 0 else None
        said = self.said[author, style] if kind == at.BY_SEAT else None
        # Two digits of one draw of 12 bits, as good as independent of each other: 4096 is 40 * 100 + 96.
        likes, comments = style % 20, style // 20 % 5
        if said is not None:
            author_id = author_name = self._player(author)
            content = said.content
            likes = self._followers(row) if said.side is not None or said.probability is not None else 0
            comments = likes // 3
        else:
            author_id, author_name, sentences = f"agent-{author}", feed.trader_name(author), feed.RUMOURS
            if kind == at.BY_SOURCE:
                author_id, author_name, sentences = f"source-{author}", feed.SOURCE_NAMES[author], feed.CLAIMS
            elif kind == at.BY_WIRE:
                author_id, author_name, sentences = "wire", feed.WIRE_NAME, feed.ANNOUNCEMENTS
            assert ticker is not None
            content = feed.sentence(sentences, claim, style, ticker, row[at.POST_EVENT])
        return views.PostView(
            id=f"post-{row[at.POST_NO]}" if said is None else said.id,
            author_id=author_id,
            author_name=author_name,
            kind=_POST_KINDS[kind],
            content=content,
            tick=row[at.POST_TICK],
            created_at=self.time_at(row[at.POST_TICK]),
            likes=likes,
            comments=comments,
            ticker=ticker,
            claim=claim if said is None else None,
            market_id=f"market-{market}" if market >= 0 else None,
            side=None if said is None else said.side,
            probability=None if said is None else said.probability,
        )

    def _followers(self, row: list[int]) -> int:
        """How many background traders a seat's post moves: those who trade by mood, in proportion to its reputation.

        Several posts of one tick share that attention, and a post moves nobody before the tick after it.
        """
        if row[at.POST_TICK] >= self.tick:
            return 0
        kinds = [rules.archetype(self.scenario, agent) for agent in range(self.scenario.agents)]
        crowd = kinds.count("noise") + kinds.count("momentum")
        fields = [at.POST_BY, at.POST_TICK]
        same = (self.state.posts[0][:, fields] == [row[field] for field in fields]).all(1)
        trust = int(self.state.books[0, row[at.POST_BY] // 4, at.REPUTATION]) / at.MICRO / 100.0
        return int(crowd * trust / max(1, int(same.sum())))

    def chats(self, seat: int) -> list[views.ChatView]:
        """All chats; messages only of those that the seat has joined."""
        self._check_seat(seat)
        chats = []
        for chat, name in enumerate(feed.CHAT_NAMES):
            membership = self.state.books[0, : self.seats, at.MEMBER + chat].tolist()
            members = tuple(self._player(member) for member, status in enumerate(membership) if status == at.JOINED)
            total = int(self.state.header[0, at.SAID + chat])
            numbers = range(max(0, total - at.MESSAGES_KEPT), total)
            rows = [self.state.messages[0, chat, number % at.MESSAGES_KEPT].tolist() for number in numbers]
            joined = membership[seat] == at.JOINED
            view = views.ChatView(
                id=f"chat-{chat}",
                name=name,
                member_ids=members,
                member_count=len(members) + 1,  # and its host
                message_count=total,
                last_activity=self.time_at(rows[-1][at.POST_TICK] if rows else 0),
                invited=membership[seat] == at.INVITED,
                joined=joined,
                minimum_reputation=rules.CHAT_GATES[chat],
                messages=tuple(self._message(chat, row) for row in rows) if joined else (),
            )
            chats.append(view)
        return chats

    def _message(self, chat: int, row: list[int]) -> views.MessageView:
        """A row of a chat's ring in words: written by a seat, or a tip from the chat's host."""
        author, kind = divmod(row[at.POST_BY], 4)
        ticker, claim = None, None
        if kind == at.BY_SEAT:
            author_id = author_name = self._player(author)
            content = self.said[author, row[at.POST_STYLE]].content
        else:
            author_id, author_name = f"chat-{chat}", f"{feed.CHAT_NAMES[chat]} host"
            ticker, claim = self.tickers[row[at.POST_ASSET]], row[at.POST_CLAIM]
            content = feed.sentence(feed.TIPS, claim, row[at.POST_STYLE], ticker, row[at.POST_EVENT])
        return views.MessageView(
            id=f"message-{row[at.POST_NO]}",
            author_id=author_id,
            author_name=author_name,
            content=content,
            tick=row[at.POST_TICK],
            created_at=self.time_at(row[at.POST_TICK]),
            ticker=ticker,
            claim=claim,
        )

    def sources(self) -> list[views.SourceView]:
        """News sources and their public records."""
        record = self.state.header[0, at.RECORD : at.RECORD + 2 * at.SOURCES].tolist()
        return [
            views.SourceView(f"source-{s}", feed.SOURCE_NAMES[s], right=record[2 * s], claims=record[2 * s + 1])
            for s in range(at.SOURCES)
        ]

    # -- other traders

    def background(self) -> list[views.TraderView]:
        """The background traders."""
        traders = []
        for agent, book in enumerate(self.state.books[0, self.seats :].tolist()):
            worth = seats.equity(self._ints, self._floats, self.r, self.seats + agent)
            view = views.TraderView(
                id=f"agent-{agent}",
                name=feed.trader_name(agent),
                archetype=rules.archetype(self.scenario, agent),
                reputation=book[at.REPUTATION] / at.MICRO,
                total_pnl=(worth - at.STAKE - book[at.DEPOSITS]) / at.MICRO,
            )
            traders.append(view)
        return traders

    def trades(self, limit: int = 50) -> list[views.TradeView]:
        """The public tape, newest first. Only a scenario with a named tape tells who traded."""
        named = self.scenario.tape == "named"
        return [self._trade(row, named=named) for row in islice(self._tape(), max(0, limit))]

    def _tape(self) -> Iterator[list[int]]:
        """Rows of trades, newest first."""
        made, kept = int(self.state.header[0, at.TRADES_MADE]), self.state.trades.shape[1]
        for number in range(made - 1, max(made - kept, 0) - 1, -1):
            yield self.state.trades[0, number % kept].tolist()

    def _trade(self, row: list[int], *, named: bool = True) -> views.TradeView:
        """A row of the tape in dollars and shares or units, with the trader's id if it is `named`."""
        kind, holder, target, side = row[at.TRADE_KIND], row[at.TRADE_HOLDER], row[at.TRADE_TARGET], row[at.TRADE_SIDE]
        of_market, dollars = kind in (at.BUY, at.SELL), row[at.TRADE_AMOUNT] / at.MICRO
        units = row[at.TRADE_SHARES] / at.MICRO if of_market else row[at.TRADE_SHARES] * 1e-9
        trader = self._player(holder) if holder < self.seats else f"agent-{holder - self.seats}"
        return views.TradeView(
            tick=row[at.TRADE_TICK],
            trader_id=trader if named else None,
            kind=_TRADE_KINDS[kind],
            target=f"market-{target}" if of_market else self.tickers[target],
            side=(("YES", "NO") if of_market else ("LONG", "SHORT"))[side],
            amount=dollars,
            shares=units,
            price=digits(dollars / units),
        )

    # -- finding by name

    def seat_id(self, seat: int) -> str:
        """How the feed, the tape and the protocols name a seat."""
        self._check_seat(seat)
        return self._player(seat)

    def _player(self, seat: int) -> str:
        return f"player-{self.first_player + seat}"

    def asset(self, ticker: str) -> int:
        """Number of an asset, by its ticker. Raises Rejected("unknown_ticker")."""
        if ticker not in self.tickers:
            raise Rejected("unknown_ticker", f"there is no {ticker!r}; there are {', '.join(self.tickers)}")
        return self.tickers.index(ticker)

    def perp(self, ticker: str) -> int:
        """Number of an asset that has a perpetual. Raises Rejected("unknown_ticker")."""
        a = self.asset(ticker)
        if a >= self.scenario.perpetuals:
            raise Rejected("unknown_ticker", f"{ticker} has no perpetual")
        return a

    def slot(self, market_id: str) -> int:
        """Slot of an open market. Raises Rejected("market_resolved") or Rejected("unknown_market").

        Only the canonical spelling counts: "market-07" is not "market-7".
        """
        number = market_id.removeprefix("market-") if isinstance(market_id, str) else ""
        if not (number.isascii() and number.isdigit() and market_id == f"market-{int(number)}"):
            raise Rejected("unknown_market", f"there is no market {market_id!r}")
        # There are at most 64 slots, and they change often: a dictionary of ids would cost more than it saves.
        for m, row in enumerate(self.state.markets[0, :, : at.ID + 1].tolist()):
            if row[at.OPEN] and row[at.ID] == int(number):
                return m
        if int(number) < self._ints.item(0, at.MARKETS_MADE):
            raise Rejected("market_resolved", f"{market_id} has resolved")
        raise Rejected("unknown_market", f"there is no market {market_id!r}")

    def _check_seat(self, seat: int) -> None:
        if not 0 <= seat < self.seats:
            raise Rejected("unknown_seat", f"there is no seat {seat}; there are {self.seats}")
