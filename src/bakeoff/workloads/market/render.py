"""Views of the world as JSON, and back: the same fields, named in camelCase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from pydantic.alias_generators import to_camel

from bakeoff.workloads.market.world.views import ChatView, MessageView, PerpPositionView, PositionsView, PositionView

V = TypeVar("V")

_NAMES = {"unrealized_pnl": "unrealizedPnL", "price_change_24h": "priceChange24h", "volume_24h": "volume24h"}
"""Names that the protocol spells otherwise than `to_camel` would."""


Shape = tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]
_SHAPES: dict[type, Shape] = {}


def _shape(view: type[Any]) -> Shape:
    """The JSON names of a view's fields, and a function that returns their values. Computed once for each type."""
    shape = _SHAPES.get(view)
    if shape is None:
        attributes = [field.name for field in fields(view)]
        names = tuple(_NAMES.get(name) or to_camel(name) for name in attributes)
        shape = _SHAPES[view] = names, attrgetter(*attributes)
    return shape


def plain(view: Any) -> dict[str, Any]:
    """One view as a JSON object. `PositionsView` and `ChatView` hold other views: use `positions` and `chat`."""
    names, values = _shape(type(view))
    return dict(zip(names, values(view), strict=True))


def plains(views: Iterable[Any]) -> list[dict[str, Any]]:
    return [plain(view) for view in views]


def chat(view: ChatView) -> dict[str, Any]:
    """A chat with its messages, which a view has only for members."""
    return {**plain(view), "memberIds": list(view.member_ids), "messages": plains(view.messages)}


def positions(view: PositionsView) -> dict[str, Any]:
    """Everything a seat holds, as the protocol names it."""
    return {"marketPositions": plains(view.markets), "perpPositions": plains(view.perps)}


def revived(view: type[V], content: Mapping[str, Any]) -> V:
    """The view that `plain` turned into this object."""
    names, _ = _shape(view)
    return view(*(content[name] for name in names))


def revived_chat(content: Mapping[str, Any]) -> ChatView:
    """The chat that `chat` turned into this object."""
    messages = tuple(revived(MessageView, message) for message in content["messages"])
    return revived(ChatView, {**content, "memberIds": tuple(content["memberIds"]), "messages": messages})


def revived_positions(content: Mapping[str, Any]) -> PositionsView:
    """The positions that `positions` turned into this object."""
    markets = tuple(revived(PositionView, held) for held in content["marketPositions"])
    return PositionsView(markets, tuple(revived(PerpPositionView, held) for held in content["perpPositions"]))
