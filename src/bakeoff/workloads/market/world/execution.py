"""What becomes of an order: it is carried out or refused, and told as a fill."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from bakeoff.workloads.market.world import calls, looking
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.orders import LEAST_PERP
from bakeoff.workloads.market.world.views import Fill, OrderKind, Rejected

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

LARGEST_ORDER = 1e9

_KINDS: dict[OrderKind, int] = {"buy": at.BUY, "sell": at.SELL, "open": at.OPEN_PERP, "close": at.CLOSE_PERP}
_REFUSALS = {
    at.UNKNOWN: ("market_resolved", "this market has resolved"),
    at.POOR: ("insufficient_funds", "not enough cash for the order and its fee"),
    at.TOO_SMALL: ("below_minimum", "the order is too small: 1 dollar for shares, 10 dollars for perpetuals"),
    at.TOO_LARGE: ("too_large", "the position would be larger than the perpetual's depth"),
    at.TOO_FEW: ("insufficient_shares", "you do not hold that many shares of this side"),
    at.NO_POSITION: ("no_position", "you hold no position in this perpetual"),
    at.BAD_LEVERAGE: ("bad_leverage", "too little margin for this position at this tick: lower the leverage"),
}


@dataclass(frozen=True, slots=True)
class Order:
    """An order as it was given. `amount` is dollars, shares or notional; None closes all."""

    id: int
    kind: OrderKind
    seat: int
    target: str
    side: str
    amount: float | None
    leverage: float = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """What an order came to, in micro-dollars, and in micro-shares or nano-units."""

    dollars: int = 0
    shares: int = 0
    value: int = 0
    """What changed hands, the fee left out."""
    fee: int = 0
    gain: int = 0


NOTHING = Done()


def execute(world: World, order: Order) -> Fill:
    fill = _trade_perp(world, order) if order.kind in ("open", "close") else _trade_shares(world, order)
    world.note_trades()
    return fill


def execute_sealed(world: World, order: Order) -> Fill:
    try:
        return execute(world, order)
    except Rejected as refusal:
        return replace(fill_of(world, order, status="rejected"), code=refusal.code)


def _trade_shares(world: World, order: Order) -> Fill:
    book = world.state.books[0, order.seat]
    realized, fees = int(book[at.REALIZED]), int(book[at.FEES_PAID])
    m, side, micro = world.slot(order.target), 0 if order.side == "YES" else 1, round((order.amount or 0.0) * at.MICRO)
    got = _call(world, order, _KINDS[order.kind], m, side, micro)
    fee, gain = int(book[at.FEES_PAID]) - fees, int(book[at.REALIZED]) - realized
    if order.kind == "buy":
        return fill_of(world, order, Done(micro, got, micro - fee, fee, gain))
    return fill_of(world, order, Done(got, micro, got + fee, fee, gain))


def _trade_perp(world: World, order: Order) -> Fill:
    """An opposite order first reduces what is held; a rest of it then opens the other side, if there is margin for it."""
    a = world.perp(order.target)
    book, position = world.state.books[0, order.seat], world.state.positions[0, a, order.seat]
    price, held = float(world.state.indices[0, a, at.PRICE]), int(position[at.UNITS])
    realized, fees = int(book[at.REALIZED]), int(book[at.FEES_PAID])
    micro = None if order.amount is None else round(order.amount * at.MICRO)
    sign = 1 if order.side == "LONG" else -1
    if order.kind == "open" and held * sign >= 0:
        assert micro is not None
        units = _call(world, order, at.OPEN_PERP, a, 0 if sign > 0 else 1, micro)
        return fill_of(world, order, Done(micro, units, _printed(world), int(book[at.FEES_PAID]) - fees))
    wanted = abs(held) if micro is None else math.floor(micro * 1e3 / price)
    units = _call(world, order, at.CLOSE_PERP, a, 0, min(wanted, max(1, abs(held))) if wanted else 0)
    dollars, value, side = math.floor(units * 1e-3 * price), _printed(world), "LONG" if held > 0 else "SHORT"
    rest = 0 if micro is None else micro - math.floor(abs(held) * 1e-3 * price)
    if order.kind == "open" and units == abs(held) and rest >= LEAST_PERP:
        with suppress(Rejected):
            units += _call(world, order, at.OPEN_PERP, a, 0 if sign > 0 else 1, rest)
            dollars, value, side = dollars + rest, value + _printed(world), order.side
    fee, gain = int(book[at.FEES_PAID]) - fees, int(book[at.REALIZED]) - realized
    return fill_of(world, replace(order, side=side), Done(dollars, units, value, fee, gain))


def _call(world: World, order: Order, kind: int, target: int, side: int, amount: int) -> int:
    state = world.state
    got = calls.order(state.ints, state.floats, world.r, kind, order.seat, target, side, amount, order.leverage)
    if got <= 0:
        raise Rejected(*_REFUSALS.get(got, ("below_minimum", "the order is too small")))
    return got


def _printed(world: World) -> int:
    """Micro-dollars that changed hands in the last trade on the tape."""
    made = int(world.state.header[0, at.TRADES_MADE])
    return int(world.state.trades[0, (made - 1) % world.state.trades.shape[1], at.TRADE_AMOUNT])


def fill_of(
    world: World, order: Order, done: Done = NOTHING, status: Literal["filled", "sealed", "rejected"] = "filled"
) -> Fill:
    of_market = order.kind in ("buy", "sell")
    units = done.shares / at.MICRO if of_market else done.shares * 1e-9
    return Fill(
        kind=order.kind,
        target=order.target,
        side=order.side,
        amount=done.dollars / at.MICRO,
        shares=units,
        price=looking.digits(done.value / at.MICRO / units) if units else 0.0,
        fee=done.fee / at.MICRO,
        realized_pnl=done.gain / at.MICRO,
        position_id=f"{order.target}:{order.side}" if of_market else order.target,
        tick=world.tick,
        order_id=order.id,
        status=status,
    )


def known_side(side: str, *allowed: str) -> str:
    if isinstance(side, str) and side.upper() in allowed:
        return side.upper()
    raise Rejected("unknown_side", f"side {side!r} is neither {' nor '.join(allowed)}")


def positive(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0.0:
        raise Rejected("bad_amount", f"{value!r} is not a positive amount")
    if value > LARGEST_ORDER:
        raise Rejected("bad_amount", f"{value!r} is more than {LARGEST_ORDER:g}")
    return float(value)
