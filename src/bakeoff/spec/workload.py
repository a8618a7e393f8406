"""The workload's face: what a kind of run looks like to the rest of the house.

A workload either runs inside a warm worker process (`run`), or names a command that the engine spawns
without Python between (`command`), and afterwards says what came of it (`outcome`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from bakeoff.spec.trajectory import Step as Step

if TYPE_CHECKING:  # whoever reads results imports this module, and needs neither
    import numpy as np
    from pydantic import BaseModel

Status = Literal["planned", "running", "succeeded", "failed", "timeout", "cancelled", "infra_error"]
FINISHED: frozenset[str] = frozenset({"succeeded", "failed", "timeout"})
"""The arm had its try. `cancelled` and `infra_error` are missing results and are tried again by the next `run`."""

Scalar = float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one try: scalar metrics, and `failed` when the arm itself failed."""

    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    status: Status = "succeeded"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """An argv to spawn. `env` is added to the scheduler's environment; `directories` are made before it starts."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a spawned command ended. `code` is 128 + signal for a signal, as shells count."""

    code: int
    stdout: Path | None
    """Where its output lies; None when it wrote nothing."""


class RunFacts(Protocol):
    """What every workload may know about the run at hand."""

    @property
    def run_id(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rollout(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def flags(self) -> tuple[str, ...]: ...
    @property
    def base(self) -> Path:
        """The experiment file's directory, where relative paths start."""

    @property
    def path(self) -> Path:
        """Where the run's directory is or would be."""

    @property
    def directory(self) -> Path:
        """The run's directory, which comes into being when it is first asked for."""


class RunContext(RunFacts, Protocol):
    """What an in-process run gets."""

    @property
    def deadline(self) -> float | None:
        """`time.monotonic()` value at which the run is ended, or None."""

    @property
    def cancelled(self) -> bool:
        """True once the run was politely asked to stop."""

    def rng(self, name: str = "", *, own: bool = False) -> np.random.Generator:
        """Keyed by (task, seed, name), so that arms meet the same world; `own=True` adds arm and rollout."""

    def log(self, step: int, **values: float) -> None:
        """Add to the run's per-step series."""

    def trajectory(self, step: Step) -> None:
        """Add a step to the run's trajectory."""


@runtime_checkable
class Workload(Protocol):
    kind: ClassVar[str]
    revision: ClassVar[str]
    """Goes into run ids: change it when the same parameters would give other results."""
    Params: ClassVar[type[BaseModel]]

    def run(self, params: Any, ctx: RunContext) -> Outcome: ...


@runtime_checkable
class CommandWorkload(Protocol):
    kind: ClassVar[str]
    revision: ClassVar[str]
    Params: ClassVar[type[BaseModel]]

    def command(self, params: Any, ctx: RunFacts) -> Command: ...

    def outcome(self, params: Any, ctx: RunFacts, exit: Exit) -> Outcome: ...


@runtime_checkable
class Equivalent(Protocol):
    """An in-process workload that knows the command line for the same run. Records and people are told of it."""

    def equivalent(self, params: Any, ctx: RunFacts) -> Command: ...


@runtime_checkable
class Checked(Protocol):
    """A workload that can tell, before anything starts, that a run could not be tried here."""

    def check(self, params: Any, base: Path) -> Iterable[str] | None:
        """UsageError that names the fix: a program that is not installed, a key that is not set. Else notes, if any."""


@runtime_checkable
class Configurable(Protocol):
    """A workload with options of its own for `bakeoff run`, declared in the entry-point group `bakeoff.run_options`."""

    def configure(self, options: Mapping[str, str], accept: Callable[[str], None]) -> None:
        """Called once before the runs start, in the scheduler's process. `options` are those that the user gave.

        `accept("risk in words")` returns if the user accepts the risk, and ends the command otherwise. Worker
        processes inherit the environment, so that is where settings for them go.
        """
