"""How much to stake: expected logarithmic growth of a pot, through the venue's own prices, fees and impact.

Both problems are concave in the size, so the best one is where the slope changes sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

STEPS = 30


@dataclass(frozen=True, slots=True)
class Shares:
    """A market as somebody sees it who may buy YES: turned around, the same holds for NO."""

    probability: float
    """Of the side that pays."""
    price: float
    liquidity: float
    fee: float
    held: float
    """Shares of this side."""
    other: float
    """Shares of the other side."""

    @property
    def turned(self) -> Shares:
        return Shares(1 - self.probability, 1 - self.price, self.liquidity, self.fee, self.other, self.held)


def dollars_to_spend(market: Shares, pot: float, limit: float) -> float:
    """Dollars, the fee included, that a pot should put on this side now; 0 where the price is too high."""
    keep, b = 1 - market.fee, market.liquidity

    def slope(spent: float) -> float:
        grown = math.expm1(spent * keep / b)
        shares = b * math.log1p(grown / market.price)
        gain = keep * (1 + grown) / (market.price + grown) - 1  # shares for the next dollar, less the dollar
        won, lost = pot + market.held + shares - spent, pot + market.other - spent
        return market.probability * gain / won - (1 - market.probability) / lost

    return _root(slope, min(limit, 0.98 * (pot + market.other)))


def shares_to_sell(market: Shares, pot: float) -> float:
    """Shares of this side that are worth less to the pot than what they bring now."""
    keep, b = 1 - market.fee, market.liquidity

    def slope(sold: float) -> float:
        left = math.exp(-sold / b)
        rest = 1 - market.price * (1 - left)
        brought, price = -keep * b * math.log(rest), keep * market.price * left / rest
        won, lost = pot + market.held - sold + brought, pot + market.other + brought
        return market.probability * (price - 1) / won + (1 - market.probability) * price / lost

    return _root(slope, market.held)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a perpetual is expected to do until its announcement, and what trading it costs."""

    mean: float
    """Expected return of the index."""
    variance: float
    premium: float
    """How far the mark stands above the index; expected to vanish."""
    fee: float
    depth: float
    linear: float
    root: float

    def next_dollar(self, size: float) -> float:
        """Fee and own impact of the next dollar of an order that has come to `size`: linear and square-root impact."""
        displaced = size / self.depth
        return self.fee + self.linear * displaced + self.root * math.sqrt(displaced)


def notional_to_hold(prospect: Prospect, held: float, pot: float, limit: float) -> float:
    """Signed dollars to hold until the announcement, when all of it will have to be closed again.

    What is bought pays the way in now and the way out then; what is sold pays the way out now instead. Both ways get
    dearer with size, so a large position is built up, and left, over several ticks.
    """
    edge = prospect.mean - prospect.premium
    sign = math.copysign(1.0, edge) if edge else math.copysign(1.0, held)
    have = max(0.0, sign * held)

    def slope(size: float) -> float:
        now = math.copysign(prospect.next_dollar(abs(size - have)), size - have)
        return abs(edge) - size * prospect.variance / pot - prospect.next_dollar(size) - now

    return sign * _root(slope, limit)


def _root(slope: Callable[[float], float], most: float) -> float:
    """Where a falling slope crosses 0 between 0 and `most`."""
    if most <= 0 or slope(0.0) <= 0:
        return 0.0
    if slope(most) >= 0:
        return most
    low, high = 0.0, most
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low
