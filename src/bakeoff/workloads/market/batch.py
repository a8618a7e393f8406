"""Many worlds of one scenario at once, one seat each: for training and for statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world import seats
from bakeoff.workloads.market.world.advance import advance, newborn
from bakeoff.workloads.market.world.layout import MEMORY, MICRO, TICK, Floats, Observations
from bakeoff.workloads.market.world.rules import packed_rules, ticker_of


class MarketBatch:
    """n worlds that step together. World i of a batch is, bit for bit, the world that its seed draws alone.

        batch = MarketBatch(Scenario(), range(1024))
        while not batch.done:
            observations, rewards, done = batch.step(np.zeros((1024, batch.actions), np.int8))

    `names` says what each number of an observation is, `actions` how many numbers an action has. `state` has the rows
    of all worlds; `World.view(batch, i)` is the Python interface of one.
    """

    def __init__(self, scenario: Scenario, seeds: Sequence[int] | NDArray[np.int64], secret: str | None = None) -> None:
        """One world for each seed; raises ValueError without any. `secret` defaults to that of `read_secret()`."""
        self.scenario = scenario
        self.seeds = [int(seed) for seed in seeds]
        self.keys = [world_key(scenario, seed, secret) for seed in self.seeds]
        if not self.keys:
            raise ValueError("a batch needs at least one seed")
        self.r = packed_rules(scenario)
        self.names = feature_names(scenario)
        self.actions = scenario.markets + scenario.perpetuals
        self._equity = np.zeros(len(self.keys), np.int64)
        self._memory = np.zeros((len(self.keys), scenario.markets * MEMORY), np.int64)
        self.reset()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def done(self) -> bool:
        """All worlds of a batch end together."""
        return self.state.ints.item(0, TICK) >= self.scenario.ticks

    @property
    def equity(self) -> Floats:
        """[n] in dollars."""
        return self._equity / MICRO

    def reset(self) -> Observations:
        """Bring all worlds to tick 0. Returns what their seats see, [n, D]."""
        self.state = newborn(self.scenario, self.keys, 1)
        self._memory[:] = -1  # no market has this number: nothing is cached
        return self.observe()

    def observe(self) -> Observations:
        """What the seats see now, [n, D], without a step."""
        observations = np.empty((len(self), len(self.names)), np.float32)
        seats.look(self.state.ints, self.state.floats, self.r, 0, observations, self._equity)
        return observations

    def step(
        self, actions: NDArray[np.generic] | None = None, out: Observations | None = None
    ) -> tuple[Observations, Floats, NDArray[np.bool_]]:
        """Act, then one tick. Returns observations [n, D], rewards [n] in dollars, and whether each world is done.

        `actions` is [n, markets + perpetuals]. Whole numbers are wanted positions: -1, 0 or 1 stands for NO or SHORT,
        nothing, YES or LONG. Floats are signed dollars to trade now. Orders that a world refuses are skipped. The
        observations go into a new array, or into `out`.
        """
        if self.done:
            raise ValueError("the worlds have ended; reset() starts them again")
        mode, orders = seats.PASSIVE, np.zeros((len(self), 0))
        if actions is not None:
            if actions.shape != (len(self), self.actions):
                raise ValueError(f"actions have shape {actions.shape}, not {(len(self), self.actions)}")
            mode = seats.TARGETS if np.issubdtype(actions.dtype, np.integer) else seats.DOLLARS
            most = 1 if mode == seats.TARGETS else MICRO
            if actions.size and not (-most <= actions.min() and actions.max() <= most):
                raise ValueError(
                    "a whole-number action is -1, 0 or 1; give floats to trade dollars"
                    if mode == seats.TARGETS
                    else f"an action in dollars is finite and at most {MICRO}"
                )
            orders = np.ascontiguousarray(actions, np.float64)
        before = self._equity.copy()  # `advance` overwrites it
        observations = np.empty((len(self), len(self.names)), np.float32) if out is None else out
        advance(self.state.ints, self.state.floats, self.r, orders, mode, observations, self._equity, self._memory)
        rewards = (self._equity - before) / MICRO
        return observations, rewards, np.full(len(self), self.done)


def feature_names(scenario: Scenario) -> tuple[str, ...]:
    """The name of each number of an observation: "slot0.price", ..., "BTCX.return", ..., "cash", "equity"."""
    markets = [f"slot{m}.{name}" for m in range(scenario.markets) for name in seats.MARKET_FEATURES]
    assets = [f"{ticker_of(a)}.{name}" for a in range(scenario.perpetuals) for name in seats.ASSET_FEATURES]
    return (*markets, *assets, *seats.ACCOUNT_FEATURES)
