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
"""Where the protocol spells it in its own way."""


def plain(view: Any) -> dict[str, Any]:
    """One view as a table."""
    names, values = _shape(type(view))
    return dict(zip(names, values(view), strict=True))


def plains(views: Iterable[Any]) -> list[dict[str, Any]]:
    return [plain(view) for view in views]


_SHAPES: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}


def _shape(view: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Names in JSON and how to get the values, found out once for each kind of view."""
    found = _SHAPES.get(view)
    if found is None:
        attributes = [field.name for field in fields(view)]
        names = tuple(_NAMES.get(name) or to_camel(name) for name in attributes)
        found = _SHAPES[view] = names, attrgetter(*attributes)
    return found


def chat(view: ChatView) -> dict[str, Any]:
    """A chat with its messages, which a view has only for members."""
    return {**plain(view), "memberIds": list(view.member_ids), "messages": plains(view.messages)}


def positions(view: PositionsView) -> dict[str, Any]:
    return {"marketPositions": plains(view.markets), "perpPositions": plains(view.perps)}


def revived(view: type[V], told: Mapping[str, Any]) -> V:
    """The view that `plain` made a table of."""
    names, _ = _shape(view)
    return view(*(told[name] for name in names))


def revived_chat(told: Mapping[str, Any]) -> ChatView:
    messages = tuple(revived(MessageView, message) for message in told["messages"])
    return revived(ChatView, {**told, "memberIds": tuple(told["memberIds"]), "messages": messages})


def revived_positions(told: Mapping[str, Any]) -> PositionsView:
    markets = tuple(revived(PositionView, held) for held in told["marketPositions"])
    return PositionsView(markets, tuple(revived(PerpPositionView, held) for held in told["perpPositions"]))
