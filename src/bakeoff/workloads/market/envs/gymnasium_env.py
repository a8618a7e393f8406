"""One seat in one world as a Gymnasium environment. A step is a tick, the reward is the change of equity in dollars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.market.batch import MarketBatch
from bakeoff.workloads.market.envs.render import rendered
from bakeoff.workloads.market.envs.shape import LARGEST_SEED, Actions, Observation, Shape, look, read_scenario
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.world import World


class MarketEnv(gymnasium.Env[Observation, NDArray[Any]]):
    """`seed` of `reset` draws the world: the same seed is the same world, whatever else plays in it.

    Observations are the numbers that `feature_names` names, cut to +-100. With actions "targets", each of the markets
    and perpetuals gets 0, 1 or 2: NO or SHORT, nothing, YES or LONG, in a fixed size. With "dollars" each gets a number
    from -1 to 1: how much to buy or sell now, as a share of that size.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        scenario: Scenario | Mapping[str, Any] | str | None = None,
        actions: Actions = "targets",
        secret: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        """`scenario` is a Scenario, the name of a preset, or a mapping of what differs from the default."""
        self.scenario = read_scenario(scenario)
        self.shape = Shape(self.scenario, actions)
        self.feature_names = self.shape.names
        self.observation_space = self.shape.observation_space()
        self.action_space = self.shape.action_space()
        self.render_mode = render_mode
        self._secret = secret
        self._batch: MarketBatch | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new world. `options["scenario"]` changes its scenario (not its size) for this episode."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(LARGEST_SEED)) if seed is None else seed
        scenario = self.shape.fits(read_scenario((options or {}).get("scenario"), self.scenario))
        self._batch = MarketBatch(scenario, [drawn], self._secret)
        return self.observe()

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """What the seat sees now, without a step."""
        return self.shape.cut(look(self.batch.state, self.batch.r, self.scenario)[0]), self._info()

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        seen, rewards, done = self.batch.step(self.shape.read(action)[None])
        return self.shape.cut(seen[0]), float(rewards[0]), bool(done[0]), False, self._info()

    def render(self) -> str | None:
        return rendered(self.world, 0) if self.render_mode == "ansi" else None

    @property
    def batch(self) -> MarketBatch:
        if self._batch is None:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self._batch

    @property
    def world(self) -> World:
        """The Python face of the world, over the same memory."""
        return World.view(self.batch, 0)

    def _info(self) -> dict[str, Any]:
        state = self.batch.state
        found: dict[str, Any] = {"tick": int(state.ints[0, 0]), "equity": float(self.batch.equity[0])}
        if self.shape.actions == "targets":
            found["action_mask"] = tuple(np.array(row) for row in self.shape.mask(state)[0])
        return found
