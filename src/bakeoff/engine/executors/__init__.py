"""Executors decide where attempts run. The scheduler knows only the interface below.

Executors are found through the entry-point group `bakeoff.executors`; an entry is an `ExecutorKind` (spec/registry.py):
the model of its settings, a check, and `open`, which takes an `ExecutorSetup` and returns an `Executor`.

    [project.entry-points."bakeoff.executors"]
    local = "bakeoff.engine.executors.local:LOCAL"
    slurm = "bakeoff.engine.executors.slurm:SLURM"
    ray = "bakeoff.engine.executors.ray:RAY"

`local` opens a node on this machine (engine/node). `slurm` and `ray` start pilots, which open nodes on other machines
(engine/pilots). Only an adapter imports its engine. `Session.run` (engine/session.py) opens the one that the experiment
file names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bakeoff.records.layout import RAY_FILE, SPOOL, EditionPaths
from bakeoff.records.run import Attempt
from bakeoff.spec.experiment import ExecutorEntry, Limits, Resources

if TYPE_CHECKING:  # workers import this module, and need no database
    from bakeoff.records.claims import Claim, Claims
    from bakeoff.records.edition import Edition
    from bakeoff.spec.plan import Plan


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """What a node has to know before its first attempt. It can be pickled and sent to another machine."""

    workload: str
    dialect: str
    paths: EditionPaths
    """Where the edition's run directories and scratch files are."""
    base: Path
    """The experiment file's directory, where relative paths start."""
    jobs: int
    """How many attempts may run at once."""
    limits: Limits
    resources: Resources
    """What one attempt needs."""
    fresh: bool
    """Each in-process run gets its own process."""
    checkpoints: bool
    """A run's `checkpoint/` outlives its attempts."""
    settle_after: float
    """Seconds after which a run's output is moved into its directory, where it can be followed."""
    edition_mark: str
    """Marks all processes of this edition, also those of earlier sessions."""
    session: int
    gpus: tuple[str, ...] = ()
    """The devices of the machine that attempts share. Whoever opens a node there fills it in, and `env`; `jobs` keeps to
    what the machine has then."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every run, with `${NAME}` filled in."""


@dataclass(frozen=True, slots=True)
class ExecutorSetup:
    """What an executor has to know. `node` is for nodes, on whatever machine they are."""

    node: NodeSetup
    plan: Plan
    jobs: int | None
    """What the user asked for (`--jobs`, `jobs`); None when nothing was asked for."""
    claims: Claims
    """Where an executor that hands attempts to other machines records that, before it does."""

    @property
    def settings(self) -> ExecutorEntry:
        """An instance of the kind's `Settings`."""
        return self.plan.experiment.executor or ExecutorEntry()

    @property
    def variables(self) -> Mapping[str, str]:
        """The experiment's `env` as written: an executor that sends it elsewhere lets `${NAME}` be filled in there."""
        return self.plan.experiment.env

    @property
    def tasks(self) -> list[Path]:
        """Paths of tasks, which an executor without a shared file system brings to nodes."""
        return [task.path for task in self.plan.tasks if task.path is not None]


class Executor(Protocol):
    """All methods are called from the scheduler's one thread.

    An attempt that is started and not yet ended is the executor's. It sets `started_at` when the attempt begins, so
    that the scheduler knows what is running, and the fields of the result when it ends.
    """

    def capacity(self) -> int:
        """How many more attempts may be started now."""

    def start(self, attempt: Attempt) -> None:
        """Take an order; called only while there is capacity.

        An attempt that cannot be started is not an error here: `wait` returns it with status `infra_error`.
        """

    def wait(self, timeout: float) -> list[Attempt]:
        """Attempts that came back, after at most `timeout` seconds.

        Those that ended have a result. One whose status is still `planned` had not begun and is given back.
        """

    def stop(self, *, running: bool) -> None:
        """Give back what has not begun. With `running`, end what is running: SIGTERM, then SIGKILL after the grace
        period. Called again and again until everything came back."""

    def close(self) -> None:
        """End whatever still runs and free all resources."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of the machines that runs are on, for people who watch."""

    warnings: tuple[str, ...] = ()
    """About nodes: one that gets nothing more, one that has other packages."""
    waits_for: str = ""
    """What has to come before the next run can start; empty while there is a node."""


@runtime_checkable
class Adopting(Protocol):
    """An executor whose attempts outlive the scheduler, besides `Executor`."""

    claims: Claims

    def adopt(self, claim: Claim, attempt: Attempt) -> None:
        """Take over an attempt that an earlier session handed out. It comes back through `wait` like any other.

        Called before the first `wait`.
        """

    def recorded(self, attempts: list[Attempt]) -> None:
        """These came back through `wait`, and are durable now."""

    def situation(self) -> Situation:
        """Return what users should know while they wait."""

    def leave(self) -> None:
        """Another scheduler has taken over: what still runs is its, and `close` must leave it alone."""


def take_in_results(edition: Edition, claims: Sequence[Claim]) -> dict[str, Attempt]:
    """Return what pilots of another executor have done for these claims and nobody has recorded, by token."""
    if not claims or not (edition.paths.directory / SPOOL).exists():
        return {}
    from bakeoff.engine.pilots import spool

    return spool.take_in(edition, claims)


def leave_pilots(paths: EditionPaths) -> None:
    """Let an edition go on without the pilots that it had: their claims are given up, so they may leave."""
    if (paths.directory / SPOOL).exists():
        from bakeoff.engine.pilots import spool

        spool.abandon(paths)
    if (paths.directory / RAY_FILE).exists() and find_spec("ray") is not None:
        from bakeoff.engine.executors.ray import cluster

        cluster.abandon(paths)
