"""The interface of a workload: a kind of run, such as `python`, `command` or `market`.

A workload either runs inside a warm worker process (`Workload.run`), or names a command that the engine spawns without
Python in between and reads what the command left (`CommandWorkload.command` and `.outcome`). A complete one:

    from pydantic import BaseModel
    from bakeoff.spec.workload import Outcome, RunContext

    class CoinParams(BaseModel):
        bias: float = 0.5
        flips: int = 100

    class CoinWorkload:
        kind, revision, Params = "coin", "1", CoinParams

        def run(self, params: CoinParams, ctx: RunContext) -> Outcome:
            heads = ctx.rng("flips").random(params.flips) < params.bias
            ctx.log(0, heads=heads[0])
            return Outcome({"heads": float(heads.mean())})

A package registers it in its pyproject.toml, and experiment files then say `workload = "coin"`:

    [project.entry-points."bakeoff.workloads"]
    coin = "coins:CoinWorkload"

docs/write-a-workload.md goes on from here: commands, checks before a run, verbs, report pages.
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
"""The run was tried and counts. `cancelled` and `infra_error` are missing results; the next `run` tries them again."""

Scalar = float | int | bool | str | None
"""A metric, or any other single value that a run reports."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt.

    A run that returns is `succeeded` unless it says otherwise. One that raises is `failed`, and its traceback goes to
    its stderr. A workload raises `bakeoff.errors.InfraError` when the run could not be tried for reasons that are not the
    arm's: it is retried and never scored.
    """

    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    status: Status = "succeeded"
    error: str | None = None
    """One line for people, when the run did not succeed."""


@dataclass(frozen=True, slots=True)
class Command:
    """An argv to spawn in `cwd`. `env` is added to the scheduler's environment; `directories` are created first."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a spawned command ended."""

    code: int
    """The exit code; 128 + the number of the signal that ended it, as in a shell."""
    stdout: Path | None
    """The file with its output; None when it wrote nothing."""


class RunFacts(Protocol):
    """What a workload may know about the run at hand. The engine provides it."""

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
    def attempt(self) -> int:
        """How often this run has been started, counted from 1."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Command-line flags of the arm, as ablations have them."""

    @property
    def base(self) -> Path:
        """The directory of the experiment file, where relative paths start."""

    @property
    def path(self) -> Path:
        """The path of the run's directory, which need not exist."""

    @property
    def directory(self) -> Path:
        """The run's directory. It is created when it is first asked for, so runs without files leave none."""


class RunContext(RunFacts, Protocol):
    """What an in-process run gets besides the facts: random numbers, a log, and whether to stop."""

    @property
    def deadline(self) -> float | None:
        """The value of `time.monotonic()` at which the run is killed, or None."""

    @property
    def cancelled(self) -> bool:
        """Whether the run should stop. A run that looks here is given time to return; others are killed."""

    def rng(self, name: str = "", *, own: bool = False) -> np.random.Generator:
        """A generator keyed by (task, seed, name), so all arms meet the same world.

        `own=True` adds arm and rollout to the key, for what an arm draws for itself. The same key gives the same stream
        on every call.
        """

    def log(self, step: int, **values: float) -> None:
        """Add values to the run's per-step series, such as `ctx.log(step, loss=0.3)`."""

    def trajectory(self, step: Step) -> None:
        """Add a step to the run's trajectory."""


@runtime_checkable
class Workload(Protocol):
    """A workload that runs inside a warm worker process. One instance serves many runs, so it should hold no state."""

    kind: ClassVar[str]
    """The name in experiment files."""
    revision: ClassVar[str]
    """Part of every run id: change it when the same parameters give other results than before."""
    Params: ClassVar[type[BaseModel]]
    """The parameters of one run, validated before anything starts. An optional class attribute `settings` names
    parameters that say how to run rather than what; they are not columns of the results table."""

    def run(self, params: Any, ctx: RunContext) -> Outcome:
        """Do one run. `params` is an instance of `Params`."""


@runtime_checkable
class CommandWorkload(Protocol):
    """A workload whose runs are commands. The attributes are those of `Workload`."""

    kind: ClassVar[str]
    revision: ClassVar[str]
    Params: ClassVar[type[BaseModel]]

    def command(self, params: Any, ctx: RunFacts) -> Command:
        """The command of one run. Called in the scheduler, so it must be quick."""

    def outcome(self, params: Any, ctx: RunFacts, exit: Exit) -> Outcome:
        """The result, read from what the command left in `ctx.path` and in its output."""


@runtime_checkable
class Equivalent(Protocol):
    """A `Workload` that knows a command line for the same run. `meta.json` and `bakeoff reproduce` show it."""

    def equivalent(self, params: Any, ctx: RunFacts) -> Command:
        """The command that does this run outside bakeoff."""


@runtime_checkable
class Checked(Protocol):
    """A workload that checks, before anything starts, whether its runs can be tried on this machine."""

    def check(self, params: Any, base: Path) -> Iterable[str] | None:
        """Raise UsageError that names the fix (a program to install, a key to set), or return notes for the user."""


@runtime_checkable
class Configurable(Protocol):
    """A workload that adds options to `bakeoff run`, which it declares in the entry-point group `bakeoff.run_options`."""

    def configure(self, options: Mapping[str, str], accept: Callable[[str], None]) -> None:
        """Called once before the runs start, in the scheduler's process. `options` are those that the user gave.

        `accept("risk in words")` returns if the user accepts the risk, and ends the command otherwise. Worker
        processes inherit the environment, so that is where settings for them go.
        """
