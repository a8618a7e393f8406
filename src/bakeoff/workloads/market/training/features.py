"""What an instrument looks like as numbers. Only what every seat may see goes in.

`Sight` is the raw material for n worlds: `see` reads it from the rows of a batch, `agents.learned.Reader` from a
seat's views. `features` turns it into the inputs of the policy's networks, one row for each market and each
perpetual. A test checks that both ways give the same features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.layout import Floats, Ints
from bakeoff.workloads.market.world.rules import KINDS

STORY_FEATURES = ("news_up_down", "news_up_flat", "news_down_flat", "move", "move_scaled")
FEATURES: dict[str, tuple[str, ...]] = {
    "market": (
        *STORY_FEATURES, "ticks_left", "price", "opening_price", "distance", "held", "at_announcement",
        "is_above", "is_event", "is_rise", "news_if_above", "news_if_event", "news_if_rise",
    ),
    "perp": (*STORY_FEATURES, "ticks_left", "age", "held", *(f"regime_{name}" for name in KINDS)),
}  # fmt: skip
TYPICAL_LENGTH = 16.0
"""Of a story, in ticks."""
TYPICAL_MOVE = 0.003
"""Of an index in one tick."""
FAIR = 0.5
"""Reliability of a source before it has a record; it weighs as much as two claims."""


class Sight(NamedTuple):
    """Assets are [n, A], markets [n, M], sources [n, S]; times are in ticks from now."""

    heard: Ints  # [n, A, S]: what each source last said about the running story: -1, 0, 1, or NO_NEWS
    right: Ints  # [n, S]: claims on past stories that were true
    claims: Ints  # [n, S]: all of them
    regime: Ints
    left: Ints
    age: Ints
    price: Floats  # of the index
    began: Floats  # its price when the story began
    position: Ints  # -1, 0, 1: the sign of the perpetual position
    asset: Ints  # [n, M]
    kind: Ints
    market_left: Ints
    yes_price: Floats
    opening_price: Floats
    strike: Floats  # 0 where the question has none
    holding: Ints  # -1, 0, 1: the side of the shares


def see(state: at.State, tick: int) -> Sight:
    """What seat 0 of each world sees. Slots without an open question hold old numbers, which nobody may use."""
    record = state.header[:, at.RECORD : at.RECORD + 2 * at.SOURCES].reshape(-1, at.SOURCES, 2)
    assets, indices, markets, prices = state.assets, state.indices, state.markets, state.prices
    shares = state.shares[:, :, 0]
    return Sight(
        heard=state.heard,
        right=record[..., 0],
        claims=record[..., 1],
        regime=assets[:, :, at.REGIME],
        left=assets[:, :, at.DUE_TICK] - tick,
        age=tick - assets[:, :, at.START],
        price=indices[:, :, at.PRICE],
        began=indices[:, :, at.BEGAN],
        position=np.sign(state.positions[:, :, 0, at.UNITS]),
        asset=markets[:, :, at.ASSET],
        kind=markets[:, :, at.KIND],
        market_left=markets[:, :, at.DUE] - tick,
        yes_price=prices[:, :, at.PRICE_YES],
        opening_price=1.0 / (1.0 + np.exp(-prices[:, :, at.OFFSET])),
        strike=prices[:, :, at.STRIKE],
        holding=np.sign(shares[..., at.YES] - shares[..., at.NO]),
    )


def features(sight: Sight) -> dict[str, Floats]:
    """Inputs of the networks, "market" and "perp": [n, instruments, features], in the order of FEATURES."""
    # A source's claim weighs as much as its record says, in log-odds against the two other directions.
    reliability = (sight.right + 2 * FAIR) / (sight.claims + 2.0)
    weight = np.log(2 * reliability / (1 - reliability))[:, None]
    down, flat, up = (np.where(sight.heard == claim, weight, 0.0).sum(axis=-1) for claim in (-1, 0, 1))
    move = np.log(sight.price / sight.began) / (TYPICAL_MOVE * np.sqrt(TYPICAL_LENGTH))
    scaled = move * np.sqrt(TYPICAL_LENGTH / np.maximum(sight.age, 1))
    story = np.stack([up - down, up - flat, down - flat, move, scaled], axis=-1)
    single = np.stack([sight.left / TYPICAL_LENGTH, sight.age / TYPICAL_LENGTH, sight.position], axis=-1)
    perp = np.concatenate([story, single, np.eye(len(KINDS))[sight.regime]], axis=-1)
    return {"market": _market(sight, story), "perp": perp}


def _market(sight: Sight, story: Floats) -> Floats:
    """The features of the story that a question is about, and the question's own."""
    rows = np.arange(len(story))[:, None]
    about, kind = story[rows, sight.asset], np.eye(len(at.QUESTION_KINDS))[sight.kind]
    price = sight.price[rows, sight.asset]
    strike = np.where(sight.strike > 0, sight.strike, price)
    spread = TYPICAL_MOVE * np.sqrt(np.maximum(sight.market_left, 1))
    distance = np.clip(np.log(price / strike) / spread, -3, 3)
    single = np.stack(
        [
            sight.market_left / TYPICAL_LENGTH,
            4 * sight.yes_price - 2,
            4 * sight.opening_price - 2,
            distance,
            sight.holding,
            sight.market_left == sight.left[rows, sight.asset],
        ],
        axis=-1,
    )
    return np.concatenate([about, single, kind, kind * about[..., :1]], axis=-1)
