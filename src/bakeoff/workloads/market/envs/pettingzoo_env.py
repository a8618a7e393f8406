"""Several seats in one world as a PettingZoo parallel environment: orders are sealed and execute in drawn order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from bakeoff.errors import UsageError, install
from bakeoff.workloads.market.envs.gymnasium_env import LIMIT, Actions, ScenarioLike, Shape, rendered
from bakeoff.workloads.market.scenario import LARGEST_SEED
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.layout import Observations
from bakeoff.workloads.market.world.seats import BET, LEVERAGE, SIZE, look
from bakeoff.workloads.market.world.views import Rejected
from bakeoff.workloads.market.world.world import World

try:
    from pettingzoo import ParallelEnv  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise UsageError(f"MarketParallelEnv needs pettingzoo: {install('environments')}") from error

_SIDES = {1: "YES", -1: "NO"}
_WAYS = {1: "LONG", -1: "SHORT"}
_Step = tuple[dict[str, Observations], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class MarketParallelEnv(ParallelEnv[str, Observations, NDArray[Any]]):  # type: ignore[misc]
    """The observations, actions and rewards of `MarketEnv`, for each of `seats` agents that share a world.

    Agents are named as the world names its seats: player-1, player-2, ... All of them stay until the world's last tick.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "bakeoff_market_v0",
        "render_modes": ["ansi"],
        "is_parallelizable": True,
    }

    def __init__(
        self,
        seats: int = 2,
        scenario: ScenarioLike = None,
        actions: Actions = "targets",
        secret: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.shape = Shape(scenario, actions)
        self.scenario = self.shape.scenario
        self.feature_names = self.shape.names
        self.render_mode = render_mode
        self.possible_agents = [f"player-{seat + 1}" for seat in range(seats)]
        self.agents: list[str] = []
        # A copy for each agent: a space has its own random generator.
        self._observation_spaces = {agent: deepcopy(self.shape.observation_space) for agent in self.possible_agents}
        self._action_spaces = {agent: deepcopy(self.shape.action_space) for agent in self.possible_agents}
        self._secret = secret
        self._rng: np.random.Generator | None = None
        self._world: World | None = None

    @property
    def world(self) -> World:
        if self._world is None:
            raise ResetNeeded("call reset() first")
        return self._world

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observations], dict[str, dict[str, Any]]]:
        """A new world, drawn by `seed`. `options["scenario"]` changes its scenario (not its size) for this episode."""
        if seed is not None or self._rng is None:
            self._rng = np_random(seed)[0]
        drawn = int(self._rng.integers(LARGEST_SEED)) if seed is None else seed
        self._world = World.create(self.shape.episode(options), drawn, len(self.possible_agents), self._secret)
        self.agents = list(self.possible_agents)
        self._equity = [self.world.equity(seat) for seat in range(self.world.seats)]
        return self._observations()

    def step(self, actions: Mapping[str, NDArray[Any]]) -> _Step:
        """One tick. An agent without an action does nothing."""
        if unknown := actions.keys() - set(self.possible_agents):
            raise ValueError(f"there is no agent {min(unknown)!r}; there are {', '.join(self.possible_agents)}")
        for seat, agent in enumerate(self.possible_agents):
            if agent in actions:
                place_orders(self.world, seat, self.shape.read(actions[agent]), self.shape.actions)
        self.world.advance()
        before, self._equity = self._equity, [self.world.equity(seat) for seat in range(self.world.seats)]
        gains = [now - then for now, then in zip(self._equity, before, strict=True)]
        # By PettingZoo's convention agents leave when they are done, but get their last observation.
        agents = self.agents
        if self.world.done:
            self.agents = []
        observations, infos = self._observations()
        rewards = dict(zip(agents, gains, strict=True))
        return observations, rewards, dict.fromkeys(agents, self.world.done), dict.fromkeys(agents, False), infos

    def render(self) -> str | None:
        """Every seat's view, one after another."""
        if self.render_mode != "ansi":
            return None
        return "\n\n".join(f"{agent}\n{rendered(self.world, seat)}" for seat, agent in enumerate(self.possible_agents))

    def observe(self, agent: str) -> tuple[Observations, dict[str, Any]]:
        """What an agent sees now, without a step."""
        seat, state = self.possible_agents.index(agent), self.world.state
        observations = np.zeros((1, len(self.feature_names)), np.float32)
        look(state.ints, state.floats, self.world.r, seat, observations, np.zeros(1, np.int64))
        return np.clip(observations[0], -LIMIT, LIMIT), self.shape.info(state, self._equity[seat])

    def _observations(self) -> tuple[dict[str, Observations], dict[str, dict[str, Any]]]:
        pairs = {agent: self.observe(agent) for agent in self.possible_agents}
        observations = {agent: observation for agent, (observation, _) in pairs.items()}
        return observations, {agent: info for agent, (_, info) in pairs.items()}


def place_orders(world: World, seat: int, row: NDArray[np.generic], actions: Actions) -> None:
    """One row of actions as orders, in the order in which a batch executes them. Refused orders are skipped."""
    orders = _target_orders if actions == "targets" else _dollar_orders
    for order in orders(world, seat, row):
        with suppress(Rejected):
            order()


def _target_orders(world: World, seat: int, row: NDArray[np.generic]) -> Iterator[Callable[[], Any]]:
    """From what is held to what is wanted: sell or close what is on the other side, then buy or open."""
    for m, want in enumerate(row[: world.scenario.markets].tolist()):
        if not world.state.markets[0, m, at.OPEN]:
            continue
        market, holding = f"market-{world.state.markets[0, m, at.ID]}", world.state.shares[0, m, seat]
        have = 1 if holding[at.YES] > 0 else -1 if holding[at.NO] > 0 else 0
        if have and have != want:
            side = at.YES if have > 0 else at.NO
            yield partial(world.sell, seat, market, _SIDES[have], int(holding[side]) / at.MICRO)
        if want and have != want:
            yield partial(world.buy, seat, market, _SIDES[int(want)], BET / at.MICRO)
    for a, want in enumerate(row[world.scenario.markets :].tolist()):
        have = int(np.sign(world.state.positions[0, a, seat, at.UNITS]))
        if have and have != want:
            yield partial(world.close, seat, world.tickers[a])
        if want and have != want:
            yield partial(world.open, seat, world.tickers[a], _WAYS[int(want)], SIZE / at.MICRO, LEVERAGE)


def _dollar_orders(world: World, seat: int, row: NDArray[np.generic]) -> Iterator[Callable[[], Any]]:
    """Signed dollars to trade now, in whole micro-dollars."""
    whole = (np.floor(row.astype(np.float64) * at.MICRO + 0.5) / at.MICRO).tolist()
    markets = world.scenario.markets
    for number, dollars in enumerate(whole):
        sign = 1 if dollars > 0 else -1
        if not dollars or (number < markets and not world.state.markets[0, number, at.OPEN]):
            continue
        if number < markets:
            market = f"market-{world.state.markets[0, number, at.ID]}"
            yield partial(world.buy, seat, market, _SIDES[sign], abs(dollars))
        else:
            yield partial(world.open, seat, world.tickers[number - markets], _WAYS[sign], abs(dollars), LEVERAGE)
