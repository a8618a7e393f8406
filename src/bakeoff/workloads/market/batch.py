"""Many worlds of one scenario at once, one seat each: for training and for statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.world.advance import advance
from bakeoff.workloads.market.world.calls import look
from bakeoff.workloads.market.world.chronicle import newborn
from bakeoff.workloads.market.world.layout import MEMORY, MICRO, TICK, Seen, State
from bakeoff.workloads.market.world.playing import (
    ACCOUNT_FEATURES,
    ASSET_FEATURES,
    DOLLARS,
    MARKET_FEATURES,
    PASSIVE,
    TARGETS,
)
from bakeoff.workloads.market.world.rules import packed_rules, ticker_price


class MarketBatch:
    """n worlds that step together. World i of a batch is, bit for bit, the world that its seed draws alone."""

    def __init__(self, scenario: Scenario, seeds: Sequence[int] | NDArray[np.int64], secret: str | None = None) -> None:
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
    def worlds(self) -> State:
        """The rows of all worlds; `World.view(batch, i)` is the Python face of one."""
        return self.state

    @property
    def done(self) -> bool:
        """All worlds of a batch end together."""
        return self.state.ints.item(0, TICK) >= self.scenario.ticks

    @property
    def equity(self) -> NDArray[np.float64]:
        """[n] in dollars."""
        return self._equity / MICRO

    def reset(self) -> Seen:
        """All worlds at tick 0. Returns what their seats see, [n, D]; every call of `step` returns an array of its own."""
        self.state = newborn(self.scenario, self.keys, 1)
        self._memory[:] = -1
        seen = np.empty((len(self), len(self.names)), np.float32)
        look(self.state.ints, self.state.floats, self.r, 0, seen, self._equity)
        return seen

    def step(
        self, actions: NDArray[np.generic] | None = None, out: Seen | None = None
    ) -> tuple[Seen, NDArray[np.float64], NDArray[np.bool_]]:
        """Act, then one tick. Returns observations [n, D], rewards [n] in dollars, and whether each world is done.

        `actions` is [n, markets + perpetuals]. Whole numbers are wanted positions: -1, 0 or 1 stands for NO or SHORT,
        nothing, YES or LONG. Floats are signed dollars to trade now. What a world refuses is skipped. `out` gets the
        observations in place of a new array.
        """
        if self.done:
            raise ValueError("the worlds have ended; reset() starts them again")
        mode, given = PASSIVE, np.zeros((len(self), 0))
        if actions is not None:
            given, mode = self._read(actions)
        before = self._equity.copy()
        seen = np.empty((len(self), len(self.names)), np.float32) if out is None else out
        advance(self.state.ints, self.state.floats, self.r, given, mode, seen, self._equity, self._memory)
        rewards = (self._equity - before) / MICRO
        return seen, rewards, np.full(len(self), self.done)

    def _read(self, actions: NDArray[np.generic]) -> tuple[NDArray[np.float64], int]:
        if actions.shape != (len(self), self.actions):
            raise ValueError(f"actions have shape {actions.shape}, not {(len(self), self.actions)}")
        whole = np.issubdtype(actions.dtype, np.integer)
        most = 1 if whole else MICRO
        if actions.size and not (-most <= actions.min() and actions.max() <= most):
            raise ValueError(
                "a whole-number action is -1, 0 or 1; give floats to trade dollars"
                if whole
                else f"an action in dollars is finite and at most {MICRO}"
            )
        return np.ascontiguousarray(actions, np.float64), TARGETS if whole else DOLLARS


def feature_names(scenario: Scenario) -> tuple[str, ...]:
    """What each number of an observation is."""
    markets = [f"slot{m}.{name}" for m in range(scenario.markets) for name in MARKET_FEATURES]
    assets = [f"{ticker_price(a)[0]}.{name}" for a in range(scenario.perpetuals) for name in ASSET_FEATURES]
    return (*markets, *assets, *ACCOUNT_FEATURES)
