"""What the world shows: frozen records in dollars, shares and ticks.

Everything except `Question` and `Story` is public or the seat's own; nothing hidden is in it. `reader` fills them
from a world's rows; `plain` and `revived` turn them into JSON and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic.alias_generators import to_camel

OrderKind = Literal["buy", "sell", "open", "close"]
TradeKind = Literal["buy", "sell", "open", "close", "liquidation"]
PostKind = Literal["source", "wire", "trader", "seat"]
RejectionCode = Literal[
    "unknown_seat", "unknown_market", "market_resolved", "unknown_ticker", "unknown_chat", "unknown_side",
    "bad_amount", "below_minimum", "too_large", "bad_leverage", "insufficient_funds", "insufficient_shares",
    "no_position", "not_invited", "not_member", "bad_content", "bad_probability", "world_over",
]  # fmt: skip


class Rejected(Exception):
    """The world refuses an order or message; nothing has changed. `message` says what to do instead."""

    def __init__(self, code: RejectionCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Fill:
    """The result of an order. A sealed order executes when the tick closes; `World.fills` then has its result."""

    kind: OrderKind
    target: str
    """Market id or ticker."""
    side: str
    """YES or NO, LONG or SHORT (of the position)."""
    amount: float
    """Dollars paid or received for shares, the fee included; for perpetuals the notional that was traded."""
    shares: float
    """Shares, or units of the asset."""
    price: float
    """Average price of a share or unit, the fee left out."""
    fee: float
    realized_pnl: float
    """Of the shares sold or units closed; 0 for an order that opened something."""
    position_id: str
    tick: int
    order_id: int
    status: Literal["filled", "sealed", "rejected"] = "filled"
    code: RejectionCode | Literal[""] = ""
    """Why a sealed order was rejected when the tick closed."""


@dataclass(frozen=True, slots=True)
class Account:
    """A seat's money, in dollars."""

    cash: float
    equity: float
    """Cash and what everything held would bring if it were sold now."""
    margin: float
    """Reserved for perpetual positions."""
    realized_pnl: float
    fees: float
    funding: float
    """Paid in total; negative when received."""
    liquidations: int
    reputation: float
    initial: float
    trades: int
    volume: float


@dataclass(frozen=True, slots=True)
class MarketView:
    """A prediction market, open or resolved."""

    id: str
    question: str
    ticker: str
    kind: Literal["above", "event", "rise"]
    strike: float
    """The price the question compares with; 0 for an event."""
    yes_shares: float
    no_shares: float
    yes_price: float
    no_price: float
    opening_price: float
    """Of YES, when the market opened."""
    liquidity: float
    """The b of the scoring rule."""
    total_volume: float
    resolved: bool
    outcome: bool | None
    created_tick: int
    resolve_tick: int
    created_at: int
    """Simulated seconds since 1970."""
    resolve_at: int


@dataclass(frozen=True, slots=True)
class PerpView:
    """A perpetual future and the story its asset is in."""

    ticker: str
    price: float
    """Mark price."""
    index_price: float
    price_change_24h: float
    """In percent; against the start while the world is younger than a day."""
    volume_24h: float
    open_interest: float
    funding_rate: float
    """What longs would pay for each dollar of size if funding were due now."""
    next_funding_tick: int
    next_funding_time: int
    max_leverage: float
    """For an order now: lower on the eve of an announcement."""
    depth: float
    regime: str
    story: int
    """Number of the asset's running story, from 0."""
    story_tick: int
    announcement_tick: int
    last_announcement: int | None
    """-1, 0 or 1: what the announcement at the end of the previous story said."""


@dataclass(frozen=True, slots=True)
class PostView:
    """One post of the feed."""

    id: str
    author_id: str
    author_name: str
    kind: PostKind
    content: str
    tick: int
    created_at: int
    likes: int
    comments: int
    ticker: str | None
    claim: int | None
    """-1, 0 or 1: what the post says about the asset's running story, if anything."""
    market_id: str | None
    side: str | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message of a group chat."""

    id: str
    author_id: str
    author_name: str
    content: str
    tick: int
    created_at: int
    ticker: str | None
    claim: int | None


@dataclass(frozen=True, slots=True)
class ChatView:
    """A group chat. Messages are shown to members only."""

    id: str
    name: str
    member_ids: tuple[str, ...]
    member_count: int
    message_count: int
    last_activity: int
    invited: bool
    joined: bool
    minimum_reputation: float
    """An invitation needs this much."""
    messages: tuple[MessageView, ...]


@dataclass(frozen=True, slots=True)
class PositionView:
    """Shares of one side of one market."""

    id: str
    market_id: str
    question: str
    side: str
    shares: float
    avg_price: float
    cost: float
    current_price: float
    value: float
    """What selling all of these shares now would bring."""
    unrealized_pnl: float


@dataclass(frozen=True, slots=True)
class PerpPositionView:
    """A position in one perpetual, with its own margin."""

    id: str
    ticker: str
    side: str
    size: float
    """Notional at the mark."""
    units: float
    entry_price: float
    current_price: float
    leverage: float
    margin: float
    unrealized_pnl: float
    """At the mark."""
    liquidation_price: float
    """Of the index."""
    value: float
    """What closing it now would bring: margin and profit, never below 0."""


@dataclass(frozen=True, slots=True)
class PositionsView:
    """Everything a seat holds."""

    markets: tuple[PositionView, ...]
    perps: tuple[PerpPositionView, ...]


@dataclass(frozen=True, slots=True)
class TraderView:
    """A background trader."""

    id: str
    name: str
    archetype: str
    reputation: float
    total_pnl: float


@dataclass(frozen=True, slots=True)
class TradeView:
    """One trade of the public tape."""

    tick: int
    trader_id: str | None
    """None on a tape without names."""
    kind: TradeKind
    target: str
    side: str
    amount: float
    """Dollars that changed hands."""
    shares: float
    price: float


@dataclass(frozen=True, slots=True)
class SourceView:
    """A news source and its public record.

    For each story that is over, the last claim of the source counts; it is right when the announcement said the same.
    """

    id: str
    name: str
    right: int
    claims: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its outcome: hidden until it resolves. `outcome` is None when the world ends first."""

    id: str
    ticker: str
    kind: str
    strike: float
    created_tick: int
    resolve_tick: int
    opening_price: float
    outcome: bool | None


@dataclass(frozen=True, slots=True)
class Story:
    """A story with its hidden direction theta, from `start_tick` to the announcement at `event_tick`."""

    ticker: str
    number: int
    regime: str
    start_tick: int
    event_tick: int
    theta: int


# -- views as JSON, and back: the same fields, named in camelCase

V = TypeVar("V")

_NAMES = {
    "unrealized_pnl": "unrealizedPnL",
    "price_change_24h": "priceChange24h",
    "volume_24h": "volume24h",
    "markets": "marketPositions",
    "perps": "perpPositions",
}
"""Names that the protocol spells otherwise than `to_camel` would."""


class _Shape(NamedTuple):
    """How views of one type become JSON objects."""

    names: tuple[str, ...]
    """The JSON name of each field."""
    values: Callable[[Any], tuple[Any, ...]]
    nested: dict[str, type]
    """Fields that hold a tuple, by JSON name: the type of its items. JSON has lists instead."""


_SHAPES: dict[type, _Shape] = {}


def _shape(view: type[Any]) -> _Shape:
    """Return the shape of a type of views. Each is computed once."""
    if view in _SHAPES:
        return _SHAPES[view]
    attributes = [field.name for field in fields(view)]
    names = tuple(_NAMES.get(name) or to_camel(name) for name in attributes)
    hints = get_type_hints(view)
    kinds = {name: hints[attribute] for name, attribute in zip(names, attributes, strict=True)}
    nested = {name: get_args(kind)[0] for name, kind in kinds.items() if get_origin(kind) is tuple}
    _SHAPES[view] = _Shape(names, attrgetter(*attributes), nested)
    return _SHAPES[view]


def plain(view: Any) -> dict[str, Any]:
    """Return a view as a JSON object. Views inside it become objects too.

    plain(world.account(0))  # {"cash": 10000.0, "equity": 10000.0, ...}
    """
    shape = _shape(type(view))
    content = dict(zip(shape.names, shape.values(view), strict=True))
    for name, kind in shape.nested.items():
        content[name] = list(content[name]) if kind is str else plains(content[name])
    return content


def plains(views: Iterable[Any]) -> list[dict[str, Any]]:
    """Return views as a JSON list."""
    return [plain(view) for view in views]


def revived(view: type[V], content: Mapping[str, Any]) -> V:
    """Return the view that `plain` turned into this object. Keys that the view does not have are ignored."""
    shape = _shape(view)
    values = {name: content[name] for name in shape.names}
    for name, kind in shape.nested.items():
        values[name] = tuple(item if kind is str else revived(kind, item) for item in content[name])
    return view(*values.values())
