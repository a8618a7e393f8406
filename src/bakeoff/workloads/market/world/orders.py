"""Orders of a seat: the world carries an order out or refuses it, and returns the result as a fill."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world import seats
from bakeoff.workloads.market.world.perps import LEAST_PERP
from bakeoff.workloads.market.world.reader import digits
from bakeoff.workloads.market.world.views import Fill, OrderKind, Rejected, RejectionCode

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

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
