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

This module imports nothing heavy: whoever reads results imports it for `Status` and `Scalar`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from pydantic import BaseModel

    from bakeoff.errors import Problem
    from bakeoff.spec.identity import RunId
    from bakeoff.spec.plan import Cell, Plan

Status = Literal["planned", "running", "succeeded", "failed", "timeout", "cancelled", "infra_error"]
FINISHED: frozenset[str] = frozenset({"succeeded", "failed", "timeout"})
"""Statuses of a run with an outcome. `cancelled` and `infra_error` are missing results; the next `run` tries again."""

LONGEST_VARIABLE = 120_000
"""Bytes of a command's argument or variable. Linux refuses more than 131,072 for one, its name included (execve(2),
MAX_ARG_STRLEN)."""

Scalar = float | int | bool | str | None
"""The value of a metric."""

SELF_REPORTED = "self_reported"
"""The metric of a run that names its metrics which the work under test could have written itself: `score, passed`. It is
a fact of how the run was scored, and not of what it did. Verdicts on these metrics are labelled."""
ESTIMATED = "_estimated"
"""The end of the name of a metric that is the part of another one which nobody counted: `cost_estimated` of `cost`."""
UNCACHED = "_uncached"
"""The end of the name of a metric that is what another one would be if no provider kept a cache: `cost_uncached` of `cost`."""


def is_self_reported(metrics: Mapping[str, object], metric: str) -> bool:
    """Tell whether the work could have written `metric` of a run with these metrics.

    Scripts beside the work choose names of metrics, so a name may hold the separator of the list: it is found whole, too.
    """
    named = metrics.get(SELF_REPORTED)
    if not isinstance(named, str):
        return False
    return metric in (name.strip() for name in named.split(",")) or f", {metric}, " in f", {named}, "


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt.

    A run that returns is `succeeded` unless it says otherwise. One that raises is `failed`, and its traceback goes to
    its stderr. A workload raises `bakeoff.errors.InfraError` when the run could not be tried for reasons that are not the
    arm's: it is retried and never scored. It must not do so for anything that the code under test can cause.
    """

    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    status: Status = "succeeded"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """An argv to spawn. `env` is added to the scheduler's environment; `directories` are made before it starts.

    `log` is the file of another trainer with its curve, as `FORMAT:PATH` (records/logs.py). Without `expect_steps` in
    the curve, the run has failed.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()
    log: str | None = None
    expect_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a spawned command ended. `code` is 128 + signal for a signal, as shells count."""

    code: int
    stdout: Path | None
    """The file with its output; None when it wrote nothing."""
    seconds: float
    """Wall time from its start to its end."""


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model really read and wrote, where the client reports it: ids and log-probabilities, one per token."""

    prompt_ids: list[int] = []
    completion_ids: list[int] = []
    logprobs: list[float] = []


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a trajectory, the unit of training data: what the agent saw, what it did, what it got.

    `reward` is what this step earned, not a running sum. `truth` is what the agent could not see.
    """

    observation: Any = None
    action: Any = None
    reward: float | None = None
    done: bool = False
    time_s: float | None = None
    """Seconds since the run began, on the run's own clock (simulated where there is one)."""
    messages: list[dict[str, Any]] = []
    tool_calls: list[dict[str, Any]] = []
    tokens: Tokens | None = None
    agent: str | None = None
    policy_version: str | None = None
    info: dict[str, Any] = {}
    truth: Any = None


class RunFacts(Protocol):
    """What every workload may know about its run."""

    run_id: RunId
    arm: str
    task: str
    seed: int
    rollout: int
    attempt: int
    """Counted from 1."""
    flags: tuple[str, ...]
    """Extra command-line flags of the arm and its ablation."""
    base: Path
    """The experiment file's directory, where relative paths start."""
    path: Path
    """Where the run's directory is or would be."""

    @property
    def directory(self) -> Path:
        """The run's directory, which is created at the first access."""


class RunContext(RunFacts, Protocol):
    """What an in-process run gets."""

    deadline: float | None
    """`time.monotonic()` value at which the run is ended, or None."""

    @property
    def checkpoint(self) -> Path:
        """A directory that outlives attempts: a run that was killed finds there what its earlier attempt wrote.

        Replace files in it atomically (write another name, fsync, rename), and log a step before its checkpoint is
        written: the curves of all attempts become one, in which the last attempt's values of a step count.
        """

    @property
    def cancelled(self) -> bool:
        """True once the run is asked to stop. A run that never looks is interrupted by an exception."""

    def rng(self, name: str = "", *, own: bool = False) -> np.random.Generator:
        """A random generator keyed by (task, seed, name), so that arms meet the same world.

        `own=True` adds arm and rollout to the key, for randomness that belongs to the arm.
        """

    def log(self, step: int, **values: float) -> None:
        """Add to the run's per-step series."""

    def trajectory(self, step: Step) -> None:
        """Add a step to the run's trajectory."""


@runtime_checkable
class Workload(Protocol):
    """A kind of run that is executed inside a worker process."""

    kind: ClassVar[str]
    revision: ClassVar[str]
    """Goes into run ids: change it when the same parameters would give other results."""
    Params: ClassVar[type[BaseModel]]
    """One run's parameters, validated before anything starts. A class attribute `settings` names those that only say
    how to run: they are not columns of the results table. A class attribute `measured_by` names those that say how a
    run is measured: arms on one task that set them differently are refused. A class attribute `free_numbers = True` says
    that numbers of parameters that are not fields may have any value: then arms that differ in them only are validated
    once."""

    def run(self, params: Any, ctx: RunContext) -> Outcome:
        """Do one run. An exception makes it `failed`; `bakeoff.InfraError` makes it `infra_error`."""
        ...


@runtime_checkable
class CommandWorkload(Protocol):
    """A kind of run that is a command."""

    kind: ClassVar[str]
    revision: ClassVar[str]
    Params: ClassVar[type[BaseModel]]

    def command(self, params: Any, ctx: RunFacts) -> Command:
        """The command of a run. Called by the scheduler, so it should be quick."""
        ...

    def outcome(self, params: Any, ctx: RunFacts, exit: Exit) -> Outcome:
        """What came of it, from its exit code and the files that it left."""
        ...


@runtime_checkable
class Equivalent(Protocol):
    """An in-process workload that knows the command line for the same run: `meta.json` and `--dry-run` show it."""

    def equivalent(self, params: Any, ctx: RunFacts) -> Command: ...


@runtime_checkable
class Checked(Protocol):
    """A workload that can tell, before anything starts, that a run could not be tried here."""

    def check(self, params: Any, base: Path) -> Iterable[str] | None:
        """Notes for the user, if any.

        Raises UsageError that names the fix: a program that is not installed, a key that is not set.
        """


@runtime_checkable
class PlanChecked(Protocol):
    """A workload that can tell from the whole plan, before anything starts, that runs could not be started here.

    For what many cells share, such as a program: it is looked for once. Executors of other machines do not ask.
    """

    def check_plan(self, plan: Plan, env: Mapping[str, str]) -> Iterable[Problem]:
        """Everything that is wrong, each with its key in the experiment file. `env` is the environment of the runs."""


@runtime_checkable
class Reading(Protocol):
    """A workload that runs a user's own program, and can tell by reading it what the program takes notice of."""

    def reads(self, cells: Sequence[Cell], base: Path) -> list[frozenset[str] | None]:
        """Return for each cell the parameters that its runs may use, with `seed` and `arm` where they may use these.

        None where nobody can tell without running it.
        """

    def unused(self, name: str) -> str:
        """Say how it is seen that no run uses a parameter, or the seed."""


@runtime_checkable
class Logging(Protocol):
    """A workload whose runs write into files of their own and not to standard output."""

    log: ClassVar[str]
    """A pattern of their names, from the run's directory."""


@runtime_checkable
class Priced(Protocol):
    """A workload whose runs report what they cost."""

    cost_metric: ClassVar[str]
    """The metric that `budget.cost` sums up unless the experiment file names another one."""

    def check_price(self, params: Any, base: Path) -> None:
        """Raise UsageError if a run could not tell what it cost: a cost budget could not be kept."""


@runtime_checkable
class Judged(Protocol):
    """A workload that knows how its runs are judged, for experiments whose `[analysis]` names no metric."""

    analysis: ClassVar[Mapping[str, Any]]
    """Keys of `[analysis]`; those that an experiment sets win."""


@runtime_checkable
class Directed(Protocol):
    """A workload that knows which way is better of metrics whose names do not say it."""

    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]]
    """By metric, as in `analysis.directions`; what an experiment declares wins."""


@runtime_checkable
class Configurable(Protocol):
    """A workload with its own options for `bakeoff run`, declared in the entry-point group `bakeoff.run_options`."""

    def configure(self, options: Mapping[str, str], accept: Callable[[str], None]) -> None:
        """Called once before the runs start, in the scheduler's process. `options` are those that the user gave.

        `accept("risk in words")` returns if the user accepts the risk, and ends the command otherwise. Worker
        processes inherit the environment, so that is where settings for them go.
        """
