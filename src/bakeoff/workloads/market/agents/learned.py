"""A trained policy as an agent: `policy:FILE`, a file that `bakeoff market train` wrote. It reads public views only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bakeoff.workloads.market.agents.base import Brief, Seat, attempt
from bakeoff.workloads.market.training.features import Sight, features
from bakeoff.workloads.market.training.policy import Policy
from bakeoff.workloads.market.world.layout import NO_NEWS, POSTS_KEPT
from bakeoff.workloads.market.world.rules import KINDS
from bakeoff.workloads.market.world.views import MarketView, PerpView, PositionsView

_QUESTIONS = ("above", "event", "rise")


class PolicyAgent:
    """Plays the policy in a file, which gives each market and perpetual a target: -1, 0 or 1."""

    def __init__(self, path: str | Path, sample: bool = False, name: str = "") -> None:
        """With `sample` it draws its choices by their probabilities, as in training; else it takes the likeliest."""
        self.policy = Policy.load(Path(path))
        self.policy_version = self.policy.version
        self.name = name or f"policy:{Path(path).name}"
        self._sample = sample

    def reset(self, brief: Brief) -> None:
        self._rng = brief.rng
        self._reader = Reader()

    def act(self, seat: Seat) -> None:
        perps = seat.perpetuals()
        if not perps:
            return  # its features are about perpetuals; a world without them tells it nothing
        tickers = {perp.ticker for perp in perps}
        markets = [market for market in seat.markets() if market.ticker in tickers]
        held = seat.positions()
        sight = self._reader.see(seat, perps, markets, held)
        inputs = features(sight)
        stakes = self.policy.stakes
        shares = {(view.market_id, view.side): view.shares for view in held.markets}
        for market, target in zip(markets, self._targets("market", inputs["market"][0]), strict=True):
            wanted = {1: "YES", -1: "NO"}.get(target)
            for side in ("YES", "NO"):
                if side != wanted and (count := shares.get((market.id, side), 0.0)) > 0:
                    attempt(seat.sell, market.id, side, count)
            if wanted and not shares.get((market.id, wanted)):
                attempt(seat.buy, market.id, wanted, stakes.market)
        for perp, sign, target in zip(perps, sight.position[0], self._targets("perp", inputs["perp"][0]), strict=True):
            # A position on the wrong side is closed before the other side is opened.
            if sign and target != sign:
                attempt(seat.close, perp.ticker)
            if target and target != sign:
                attempt(seat.open, perp.ticker, "LONG" if target > 0 else "SHORT", stakes.perp, stakes.leverage)

    def _targets(self, kind: str, rows: np.ndarray) -> list[int]:
        """Return the policy's target for each row of features."""
        if not len(rows):
            return []
        choices = self.policy.sample(kind, rows, self._rng)[0] if self._sample else self.policy.best(kind, rows)
        return [int(choice) - 1 for choice in choices]


class Reader:
    """Remembers from tick to tick what each source last claimed and where each story began."""

    def __init__(self) -> None:
        self._story: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._heard: dict[str, dict[str, int]] = {}
        self._read: set[str] = set()

    def see(self, seat: Seat, perps: list[PerpView], markets: list[MarketView], held: PositionsView) -> Sight:
        """Return what the policy's features are made of. One world, so every first axis has length 1."""
        sources = seat.call("a2a.getOrganizations")["organizations"]
        self._listen(seat, perps)
        signs = {view.ticker: 1 if view.side == "LONG" else -1 for view in held.perps}
        sides = {view.market_id: 1 if view.side == "YES" else -1 for view in held.markets if view.shares > 0}
        assets = {perp.ticker: number for number, perp in enumerate(perps)}
        heard = [[self._heard[perp.ticker].get(source["id"], NO_NEWS) for source in sources] for perp in perps]
        tick = seat.tick
        return Sight(
            heard=np.array([heard]),
            right=np.array([[source["right"] for source in sources]]),
            claims=np.array([[source["claims"] for source in sources]]),
            regime=np.array([[KINDS.index(perp.regime) for perp in perps]]),
            left=np.array([[perp.announcement_tick - tick for perp in perps]]),
            age=np.array([[tick - perp.story_tick for perp in perps]]),
            price=np.array([[perp.index_price for perp in perps]]),
            began=np.array([[self._began[perp.ticker] for perp in perps]]),
            position=np.array([[signs.get(perp.ticker, 0) for perp in perps]]),
            asset=np.array([[assets[market.ticker] for market in markets]], dtype=np.int64),
            kind=np.array([[_QUESTIONS.index(market.kind) for market in markets]], dtype=np.int64),
            market_left=np.array([[market.resolve_tick - tick for market in markets]], dtype=np.int64),
            yes_price=np.array([[market.yes_price for market in markets]], dtype=np.float64),
            opening_price=np.array([[market.opening_price for market in markets]], dtype=np.float64),
            strike=np.array([[market.strike for market in markets]], dtype=np.float64),
            holding=np.array([[sides.get(market.id, 0) for market in markets]], dtype=np.int64),
        )

    def _listen(self, seat: Seat, perps: list[PerpView]) -> None:
        """Take note of stories that began, and of claims that were not read before."""
        for perp in perps:
            if self._story.get(perp.ticker) != perp.story:
                self._story[perp.ticker], self._began[perp.ticker] = perp.story, perp.index_price
                self._heard[perp.ticker] = {}
        began = {perp.ticker: perp.story_tick for perp in perps}
        for post in reversed(seat.posts(POSTS_KEPT)):  # oldest first: the latest claim of a source counts
            if post.kind != "source" or post.ticker is None or post.claim is None or post.id in self._read:
                continue
            self._read.add(post.id)
            if post.tick >= began.get(post.ticker, post.tick + 1):
                self._heard[post.ticker][post.author_id] = post.claim
