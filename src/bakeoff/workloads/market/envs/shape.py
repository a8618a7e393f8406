"""What the environments share: their spaces, how an action is read, what may be chosen, and a scenario from options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bakeoff.errors import UsageError
from bakeoff.workloads.market.batch import feature_names
from bakeoff.workloads.market.scenario import PRESETS, Scenario
from bakeoff.workloads.market.world import seats
from bakeoff.workloads.market.world.layout import MICRO, OPEN, State
from bakeoff.workloads.market.world.seats import BET, SIZE

Actions = Literal["targets", "dollars"]
Observation = NDArray[np.float32]

LIMIT = 100.0
"""Observations are cut at it, so that the space has an end; prices and positions stay far below."""
CHOICES = 3
"""Of a target: NO or SHORT, nothing, YES or LONG."""
LARGEST_SEED = 2**63 - 1


class Shape:
    """The spaces of one scenario: they depend on its numbers of markets and perpetuals and on nothing else."""

    def __init__(self, scenario: Scenario, actions: Actions) -> None:
        if actions not in get_args(Actions):
            raise UsageError(f'actions = {actions!r}: choose "targets" or "dollars"')
        self.actions = actions
        self.names = feature_names(scenario)
        self.instruments = scenario.markets + scenario.perpetuals
        self._sizes = scenario.markets, scenario.perpetuals
        self._scale = np.array([BET / MICRO] * scenario.markets + [SIZE / MICRO] * scenario.perpetuals)

    def observation_space(self) -> spaces.Space[Any]:
        return spaces.Box(-LIMIT, LIMIT, (len(self.names),), np.float32)

    def action_space(self) -> spaces.Space[Any]:
        if self.actions == "targets":
            return spaces.MultiDiscrete([CHOICES] * self.instruments)
        return spaces.Box(-1.0, 1.0, (self.instruments,), np.float32)

    def read(self, action: Any) -> NDArray[np.generic]:
        """What a batch understands: targets -1, 0, 1, or signed dollars; rows are kept."""
        given = np.asarray(action)
        if given.shape[-1:] != (self.instruments,):
            raise ValueError(f"an action has {self.instruments} numbers; this has the shape {given.shape}")
        if self.actions == "targets":
            targets = given.astype(np.int64)
            if ((targets != given) | (targets < 0) | (targets >= CHOICES)).any():
                raise ValueError("a target is 0 (NO or SHORT), 1 (nothing) or 2 (YES or LONG)")
            return targets - 1
        dollars = given.astype(np.float64)
        if not np.isfinite(dollars).all():
            raise ValueError("an action in dollars has finite numbers from -1 to 1")
        scaled: NDArray[np.float64] = np.clip(dollars, -1.0, 1.0) * self._scale
        return scaled

    def cut(self, seen: Observation) -> Observation:
        return np.clip(seen, -LIMIT, LIMIT)

    def mask(self, state: State) -> NDArray[np.int8]:
        """[n, instruments, CHOICES]: a market slot between two questions leaves only "nothing"."""
        found = np.ones((len(state.ints), self.instruments, CHOICES), np.int8)
        found[:, : self._sizes[0], ::2] = (state.markets[:, :, OPEN] > 0)[..., None]
        return found

    def fits(self, scenario: Scenario) -> Scenario:
        """The scenario, if the spaces fit it."""
        if (scenario.markets, scenario.perpetuals) != self._sizes:
            raise UsageError(
                f"scenario: this environment has {self._sizes[0]} markets and {self._sizes[1]} perpetuals; "
                "make another environment for other numbers"
            )
        return scenario


def read_scenario(given: Scenario | Mapping[str, Any] | str | None, default: Scenario = PRESETS["default"]) -> Scenario:
    """A scenario as it is, the name of a preset, or values that differ from the default."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, str):
        if given not in PRESETS:
            raise UsageError(f"scenario: there is no preset {given!r}; there are {', '.join(PRESETS)}")
        return PRESETS[given]
    from bakeoff.workloads.market.scenario import scenario

    return scenario(**{**default.model_dump(), **(given or {})})


def look(state: State, r: NDArray[np.float64], scenario: Scenario, seat: int = 0) -> Observation:
    """[n, features]: what seat 0 of each world sees now."""
    seen: Any = np.zeros((len(state.ints), len(feature_names(scenario))), np.float32)
    seats.look(state.ints, state.floats, r, seat, seen, np.zeros(len(seen), np.int64))
    return np.asarray(seen, np.float32)
