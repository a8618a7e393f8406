"""The parameters of one run. This module does not import torch or numba: experiment files are checked without them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.gridworld.capacity import HEADS, REFERENCES, TRAINED
from bakeoff.workloads.gridworld.curricula import CURRICULA
from bakeoff.workloads.gridworld.levels import Level, find_level
from bakeoff.workloads.training.params import Count, Rate, Share, Weight


class GridworldParams(BaseModel):
    """One training of a policy by PPO on the rooms of a level, or the evaluation of a reference policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"save_every"})
    measured_by: ClassVar[frozenset[str]] = frozenset({"level", "horizon", "held_out"})

    policy: str = "vit_reset"
    """`vit_reset`, `trxl`, `memoryless`, your own as `module:Class`; `random` and `clairvoyant` are not trained."""
    width: Annotated[int, Field(ge=40, le=512, multiple_of=HEADS)] = 64
    """Of the encoder and the recurrent cell; other policies get as many parameters (52,390 for 64). Below 40 the
    positions of `trxl` alone would be more."""
    level: str = "level_0"
    """`level_0` to `terrain_4`, `full`: how rooms are drawn."""
    curriculum: str = "uniform"
    """`uniform`, `fixed`, `staged` or `learning_progress`: which rooms are trained on, and when."""
    horizon: Count | None = None
    """Steps of an episode at most (default: as long as the level says)."""
    shaping: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Reward for gaining a resource while training; a heart is 1. 0 for hearts only. Evaluations count hearts."""

    steps: Annotated[int, Field(ge=1)] = 1_000_000
    """Steps of all environments together, rounded up to whole updates."""
    envs: Count = 128
    unroll: Annotated[int, Field(ge=2)] = 32
    """Steps of each environment between two updates, and of training through time."""
    epochs: Count = 5
    minibatches: Count = 4
    """Parts of the environments; each is one step of the optimizer in every epoch."""
    learning_rate: Rate = 2e-3
    anneal: bool = False
    """Lower the learning rate linearly to 0."""
    gamma: Share = 0.97
    gae_lambda: Share = 0.95
    clip: Rate = 0.2
    entropy: Weight = 0.02
    """Weight of the entropy of actions in the loss."""
    value_weight: Weight = 0.5
    max_gradient: Rate = 0.5
    """Longer gradients are shortened to this norm."""

    shared_start: bool = True
    """Draw initial weights by seed, so that built-in policies start from the same numbers where parameters have the same
    name and shape, and a policy of your own finds torch's generator with the same seed. Otherwise each arm draws its own."""
    own_sampling: bool = False
    """Draw actions and minibatches from the arm's own random numbers. Otherwise arms with equal seeds use equal numbers,
    and an arm with equal parameters would be a copy."""

    held_out: Annotated[int, Field(ge=0)] = 128
    """Rooms of an evaluation, drawn by seed and never trained on; 0 for no evaluation."""
    eval_every: Count = 20
    """Updates between two evaluations. There is always one at the end."""
    save_every: Count = 20
    """Updates between two checkpoints. What a killed run repeats has the same results."""

    @field_validator("policy")
    @classmethod
    def _known(cls, value: str) -> str:
        known = (*TRAINED, *REFERENCES)
        module, colon, name = value.partition(":")
        if colon and all(part.isidentifier() for part in (*module.split("."), name)):
            return value
        if value not in known:
            hint = did_you_mean(value, known, f"there are {', '.join(known)}, and your own as module:Class")
            raise ValueError(f"there is no policy {value!r}; {hint}")
        return value

    @field_validator("level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        return _level(value).name

    @field_validator("curriculum")
    @classmethod
    def _known_curriculum(cls, value: str) -> str:
        if value not in CURRICULA:
            hint = did_you_mean(value, CURRICULA, f"there are {', '.join(CURRICULA)}")
            raise ValueError(f"there is no curriculum {value!r}; {hint}")
        return value

    @field_validator("horizon")
    @classmethod
    def _long_enough(cls, value: int | None, info: ValidationInfo) -> int | None:
        if "level" in info.data:
            _level(info.data["level"], value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.envs % self.minibatches:
            fits = [n for n in range(1, self.envs + 1) if self.envs % n == 0]
            raise ValueError(
                f"minibatches: {self.envs} environments cannot be divided into {self.minibatches} equal parts; "
                f"use {max((n for n in fits if n < self.minibatches), default=1)} minibatches, or "
                f"envs = {-(-self.envs // self.minibatches) * self.minibatches}"
            )
        if self.is_reference and not self.held_out:
            raise ValueError(f"held_out = 0: {self.policy} is not trained, so there would be nothing to measure")
        return self

    @property
    def is_reference(self) -> bool:
        """Whether nothing is trained."""
        return self.policy in REFERENCES

    @property
    def updates(self) -> int:
        return -(-self.steps // (self.envs * self.unroll))


def _level(name: str, horizon: int | None = None) -> Level:
    """As `find_level`, with an error that pydantic reports with its place in the file."""
    try:
        return find_level(name, horizon)
    except UsageError as error:
        raise ValueError(str(error)) from None
