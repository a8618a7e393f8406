"""Orders as the shipped agents place them: what the venue refuses is left, and the agent goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.agents.face import Seat
from bakeoff.workloads.market.rpc import RpcError

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.views import PerpPositionView

SMALLEST = 10.0
"""Dollars; what is below it is not worth an order (and a perpetual order is refused)."""


def tried(action: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any] | None:
    """The answer, or None where the order was refused."""
    try:
        return action(*args, **options)
    except RpcError:
        return None


def signed_size(positions: Iterable[PerpPositionView], ticker: str) -> float:
    """Notional of the position in a perpetual, negative when short, 0 when there is none."""
    sizes = (view.size if view.side == "LONG" else -view.size for view in positions if view.ticker == ticker)
    return next(sizes, 0.0)


def steer(seat: Seat, ticker: str, held: float, wanted: float, leverage: float = 1.0) -> None:
    """Move a perpetual position from `held` to `wanted` signed dollars: what is too much goes first, then what is missing."""
    if held and (wanted == 0 or (wanted > 0) != (held > 0)):
        tried(seat.close, ticker)
        held = 0.0
    missing = wanted - held
    if abs(missing) < SMALLEST:
        return
    if held and (missing > 0) != (held > 0):
        tried(seat.close, ticker, abs(missing))
    else:
        tried(seat.open, ticker, "LONG" if wanted > 0 else "SHORT", abs(missing), leverage)


def sell_all(seat: Seat, keep: Callable[[str, str], bool]) -> None:
    """Sell the shares of every (market, side) that `keep` does not want."""
    for held in seat.positions().markets:
        if not keep(held.market_id, held.side):
            tried(seat.sell, held.market_id, held.side, held.shares)
