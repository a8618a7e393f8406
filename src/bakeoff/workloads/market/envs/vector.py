"""Many worlds at once as a Gymnasium vector environment: what `MarketEnv` does, for n seeds in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.envs.shape import LARGEST_SEED, Actions, Observation, Shape, look, read_scenario
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.layout import TICK

Step = tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class MarketVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """World i of `reset(seed=s)` is that of `MarketEnv.reset(seed=s + i)`. All worlds end together.

    The step after the end begins new worlds, as Gymnasium's NEXT_STEP has it; their seeds are drawn as `MarketEnv` draws
    them, so a vector of n is bit for bit n single environments.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(
        self,
        num_envs: int = 1,
        scenario: Scenario | Mapping[str, Any] | str | None = None,
        actions: Actions = "targets",
        secret: str | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.scenario = read_scenario(scenario)
        self.shape = Shape(self.scenario, actions)
        self.feature_names = self.shape.names
        self.single_observation_space = self.shape.observation_space()
        self.single_action_space = self.shape.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._secret = secret
        self._draws: list[np.random.Generator] = []
        self._batch: MarketBatch | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed if isinstance(seed, int) else None)
        given = self._given(seed)
        if not self._draws:
            self._draws = [np_random()[0] for _ in given]
        for i, one in enumerate(given):
            if one is not None:
                self._draws[i] = np_random(one)[0]
        scenario = self.shape.fits(read_scenario((options or {}).get("scenario"), self.scenario))
        return self._begin(scenario, given)

    def step(self, actions: NDArray[Any]) -> Step:
        batch = self.batch
        if batch.done:
            seen, info = self._begin(self.scenario, [None] * self.num_envs)
            nothing = np.zeros(self.num_envs, np.bool_)
            return seen, np.zeros(self.num_envs), nothing, nothing.copy(), info
        seen, rewards, done = batch.step(self.shape.read(actions))
        return self.shape.cut(seen), rewards, done, np.zeros(self.num_envs, np.bool_), self._info()

    @property
    def batch(self) -> MarketBatch:
        if self._batch is None:
            raise ResetNeeded("call reset() first")
        return self._batch

    def _given(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        found: list[int | None] = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else [*seed]
        if len(found) != self.num_envs:
            raise ValueError(f"{len(found)} seeds for {self.num_envs} environments")
        return found

    def _begin(self, scenario: Scenario, given: Sequence[int | None]) -> tuple[Observation, dict[str, Any]]:
        drawn = [
            int(rng.integers(LARGEST_SEED)) if one is None else one for rng, one in zip(self._draws, given, strict=True)
        ]
        self._batch = MarketBatch(scenario, drawn, self._secret)
        return self.shape.cut(look(self._batch.state, self._batch.r, scenario)), self._info()

    def _info(self) -> dict[str, Any]:
        everywhere = np.ones(self.num_envs, np.bool_)
        found: dict[str, Any] = {"tick": self.batch.state.ints[:, TICK].copy(), "equity": self.batch.equity}
        if self.shape.actions == "targets":
            found["action_mask"] = self.shape.mask(self.batch.state)
        return {**found, **{f"_{name}": everywhere.copy() for name in found}}
