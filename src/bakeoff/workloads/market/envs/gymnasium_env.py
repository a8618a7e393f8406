"""One seat in one world as a Gymnasium environment, and many worlds as a vector environment.

A step is a tick, the reward is the change of equity in dollars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bakeoff.errors import UsageError
from bakeoff.workloads.market import scenario as scenarios
from bakeoff.workloads.market.scenario import LARGEST_SEED, PRESETS, Scenario
from bakeoff.workloads.market.world.advance import MarketBatch, feature_names
from bakeoff.workloads.market.world.layout import MICRO, OPEN, TICK, Observations, State
from bakeoff.workloads.market.world.seats import BET, SIZE
from bakeoff.workloads.market.world.world import World

Actions = Literal["targets", "dollars"]
ScenarioLike = Scenario | Mapping[str, Any] | str | None
"""A Scenario, the name of a preset, or a mapping of what differs from the default."""
Step = tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]

LIMIT = 100.0
"""Observations are clipped at it, so that the space has bounds; prices and positions stay far below."""
CHOICES = 3
"""Of a target: NO or SHORT, nothing, YES or LONG."""


class Shape:
    """What all environments share: the scenario, the spaces, how an action is read, and what may be chosen.

    The spaces depend on the scenario's numbers of markets and perpetuals and on nothing else.
    """

    def __init__(self, scenario: ScenarioLike, actions: Actions) -> None:
        if actions not in get_args(Actions):
            raise UsageError(f'actions = {actions!r}: choose "targets" or "dollars"')
        self.scenario = _read_scenario(scenario, PRESETS["default"])
        self.actions = actions
        self.names = feature_names(self.scenario)
        self.instruments = self.scenario.markets + self.scenario.perpetuals
        self._scale = np.array([BET / MICRO] * self.scenario.markets + [SIZE / MICRO] * self.scenario.perpetuals)
        self.observation_space: spaces.Space[Any] = spaces.Box(-LIMIT, LIMIT, (len(self.names),), np.float32)
        # One number for each market slot, then one for each perpetual.
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (self.instruments,), np.float32)
        if actions == "targets":
            self.action_space = spaces.MultiDiscrete([CHOICES] * self.instruments)

    def episode(self, options: Mapping[str, Any] | None) -> Scenario:
        """The scenario of an episode: `options["scenario"]` may change everything that the spaces do not depend on."""
        scenario = _read_scenario((options or {}).get("scenario"), self.scenario)
        if (scenario.markets, scenario.perpetuals) != (self.scenario.markets, self.scenario.perpetuals):
            raise UsageError(
                f"scenario: this environment has {self.scenario.markets} markets and {self.scenario.perpetuals} "
                "perpetuals; make another environment for other numbers"
            )
        return scenario

    def read(self, action: Any) -> NDArray[np.generic]:
        """An action as `MarketBatch.step` takes it: targets -1, 0, 1, or signed dollars. Leading axes are kept."""
        numbers = np.asarray(action)
        if numbers.shape[-1:] != (self.instruments,):
            raise ValueError(f"an action has {self.instruments} numbers; this has the shape {numbers.shape}")
        if self.actions == "targets":
            targets = numbers.astype(np.int64)
            if ((targets != numbers) | (targets < 0) | (targets >= CHOICES)).any():
                raise ValueError("a target is 0 (NO or SHORT), 1 (nothing) or 2 (YES or LONG)")
            return targets - 1
        dollars = numbers.astype(np.float64)
        if not np.isfinite(dollars).all():
            raise ValueError("an action in dollars has finite numbers from -1 to 1")
        scaled: NDArray[np.float64] = np.clip(dollars, -1.0, 1.0) * self._scale
        return scaled

    def mask(self, state: State) -> NDArray[np.int8]:
        """[n, instruments, CHOICES]: a market slot between two questions leaves only "nothing"."""
        mask = np.ones((len(state.ints), self.instruments, CHOICES), np.int8)
        mask[:, : self.scenario.markets, ::2] = (state.markets[:, :, OPEN] > 0)[..., None]
        return mask

    def info(self, state: State, equity: float) -> dict[str, Any]:
        """The info of one seat in a single world. The mask has the form that `action_space.sample` takes."""
        info: dict[str, Any] = {"tick": int(state.ints[0, TICK]), "equity": equity}
        if self.actions == "targets":
            info["action_mask"] = tuple(np.array(row) for row in self.mask(state)[0])
        return info


def _read_scenario(scenario: ScenarioLike, default: Scenario) -> Scenario:
    """Raises UsageError for an unknown preset or a key that is wrong."""
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, str):
        if scenario not in PRESETS:
            raise UsageError(f"scenario: there is no preset {scenario!r}; there are {', '.join(PRESETS)}")
        return PRESETS[scenario]
    return scenarios.scenario(**{**default.model_dump(), **(scenario or {})})


def rendered(world: World, seat: int) -> str:
    """A seat's view of its world as text."""
    account, held = world.account(seat), world.positions(seat)
    shares = {view.market_id: f"{view.shares:.1f} {view.side}" for view in held.markets}
    sizes = {view.ticker: f"{view.side} {view.size:.0f}" for view in held.perps}
    lines = [f"tick {world.tick} of {world.ticks}   equity {account.equity:.2f}   cash {account.cash:.2f}"]
    lines += [
        f"{view.id:>10}  {view.yes_price:.3f}  {shares.get(view.id, '-'):>12}  {view.question}"
        for view in world.markets()
    ]
    lines += [
        f"{view.ticker:>10}  {view.price:.6g}  {sizes.get(view.ticker, '-'):>12}  "
        f"announcement at tick {view.announcement_tick}"
        for view in world.perpetuals()
    ]
    return "\n".join(lines)


class _OverBatch:
    """What both Gymnasium environments share: their shape, and the batch of worlds since the last reset."""

    def __init__(self, scenario: ScenarioLike, actions: Actions, secret: str | None) -> None:
        self.shape = Shape(scenario, actions)
        self.scenario = self.shape.scenario
        self.feature_names = self.shape.names
        self._secret = secret
        self._batch: MarketBatch | None = None

    @property
    def batch(self) -> MarketBatch:
        """The worlds. Raises ResetNeeded before the first reset."""
        if self._batch is None:
            raise ResetNeeded("call reset() first")
        return self._batch


class MarketEnv(_OverBatch, gymnasium.Env[Observations, NDArray[Any]]):
    """One seat in one world. `reset(seed=s)` draws the world: the same seed is the same world.

    Observations are the numbers that `feature_names` names, clipped to +-100. With actions "targets", each market and
    perpetual gets 0, 1 or 2: NO or SHORT, nothing, YES or LONG, in a fixed size. With "dollars" each gets a number
    from -1 to 1: how much to buy or sell now, as a share of that size.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        scenario: ScenarioLike = None,
        actions: Actions = "targets",
        secret: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(scenario, actions, secret)
        self.observation_space, self.action_space = self.shape.observation_space, self.shape.action_space
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """A new world. `options["scenario"]` changes its scenario (not its size) for this episode."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(LARGEST_SEED)) if seed is None else seed
        self._batch = MarketBatch(self.shape.episode(options), [drawn], self._secret)
        return self.observe()

    def observe(self) -> tuple[Observations, dict[str, Any]]:
        """What the seat sees now, without a step."""
        return np.clip(self.batch.observe()[0], -LIMIT, LIMIT), self.shape.info(
            self.batch.state, float(self.batch.equity[0])
        )

    def step(self, action: NDArray[Any]) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """One tick. Returns observation, reward, terminated, truncated (never) and info."""
        observations, rewards, done = self.batch.step(self.shape.read(action)[None])
        info = self.shape.info(self.batch.state, float(self.batch.equity[0]))
        return np.clip(observations[0], -LIMIT, LIMIT), float(rewards[0]), bool(done[0]), False, info

    def render(self) -> str | None:
        return rendered(self.world, 0) if self.render_mode == "ansi" else None

    @property
    def world(self) -> World:
        """The Python interface of the world, over the same memory."""
        return World.view(self.batch, 0)


class MarketVectorEnv(_OverBatch, VectorEnv[Observations, NDArray[Any], NDArray[Any]]):
    """Many worlds in one call. World i of `reset(seed=s)` is that of `MarketEnv.reset(seed=s + i)`. All end together.

    The step after the end begins new worlds, as Gymnasium's NEXT_STEP mode has it. Their seeds are drawn as `MarketEnv`
    draws them, so a vector of n is bit for bit n single environments.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike = None,
        actions: Actions = "targets",
        secret: str | None = None,
    ) -> None:
        super().__init__(scenario, actions, secret)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = self.shape.observation_space, self.shape.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._draws: list[np.random.Generator] = []

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """New worlds. `seed` is that of the first world or one for each; without one, seeds are drawn."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is None:
            seeds: list[int | None] = [None] * self.num_envs
        else:
            seeds = [seed + number for number in range(self.num_envs)] if isinstance(seed, int) else [*seed]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        # Each world has its own generator, as a single environment would.
        if not self._draws:
            self._draws = [np_random()[0] for _ in seeds]
        for number, fixed in enumerate(seeds):
            if fixed is not None:
                self._draws[number] = np_random(fixed)[0]
        return self._begin(self.shape.episode(options), seeds)

    def step(self, actions: NDArray[Any]) -> Step:
        """One tick of all worlds; when they have ended, new worlds instead, and the actions are ignored."""
        batch = self.batch
        if batch.done:
            # NEXT_STEP: the step after the end resets, with reward 0.
            observations, info = self._begin(self.scenario, [None] * self.num_envs)
            nothing = np.zeros(self.num_envs, np.bool_)
            return observations, np.zeros(self.num_envs), nothing, nothing.copy(), info
        observations, rewards, done = batch.step(self.shape.read(actions))
        return np.clip(observations, -LIMIT, LIMIT), rewards, done, np.zeros(self.num_envs, np.bool_), self._info()

    def _begin(self, scenario: Scenario, seeds: Sequence[int | None]) -> tuple[Observations, dict[str, Any]]:
        """Worlds of these seeds; those without one draw theirs."""
        drawn = [
            int(rng.integers(LARGEST_SEED)) if fixed is None else fixed
            for rng, fixed in zip(self._draws, seeds, strict=True)
        ]
        self._batch = MarketBatch(scenario, drawn, self._secret)
        return np.clip(self._batch.observe(), -LIMIT, LIMIT), self._info()

    def _info(self) -> dict[str, Any]:
        """Arrays over worlds. By Gymnasium's convention `_key` says in which worlds `key` is set."""
        info: dict[str, Any] = {"tick": self.batch.state.ints[:, TICK].copy(), "equity": self.batch.equity}
        if self.shape.actions == "targets":
            info["action_mask"] = self.shape.mask(self.batch.state)
        everywhere = np.ones(self.num_envs, np.bool_)
        return {**info, **{f"_{name}": everywhere.copy() for name in info}}
