"""Plug-ins by name: workloads, dialects and executors are found through entry points; and the interface of a dialect.

No package of the core imports a workload, and users add their own by declaring an entry point in their package.

A dialect is an experiment file of another tool's shape, and that tool's habits on disk. It turns such a file into a
`Plan`. Whoever wrote scripts around the other tool also expects its files: so a dialect may change what `meta.json`
shows, write files beside ours while runs finish, leave links where old scripts look, order the columns that `collect`
writes, and read directories that the other tool left behind. Values of the group are `Dialect` instances:

    [project.entry-points."bakeoff.dialects"]
    sweep = "bakeoff.workloads.schedsim.dialect:SWEEP"

`registry.dialect(name)` returns the instance. The engine, the records and the command line call its hooks and never
ask for its name. Every hook has a default that does nothing, so `NATIVE`, the dialect of our own files, is a plain
`Dialect()`. Every `run` imports all dialects to recognise its file: their modules import what they need for anything
else, such as models of their files, inside the hooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from bakeoff import plugins
from bakeoff.errors import UsageError, did_you_mean, install, missing_extra
from bakeoff.spec.identity import RunId
from bakeoff.spec.workload import CommandWorkload, Workload

if TYPE_CHECKING:  # `collect` reads an edition without the models of experiment files, whose import takes 0.3 s
    from bakeoff.errors import Problem
    from bakeoff.spec.experiment import Analysis, ExecutorEntry, ExperimentFile
    from bakeoff.spec.plan import Plan

WORKLOADS = "bakeoff.workloads"
DIALECTS = "bakeoff.dialects"
EXECUTORS = "bakeoff.executors"


class ExecutorKind(Protocol):
    """An executor as experiment files know it: the value of an entry point of the group `bakeoff.executors`."""

    Settings: type[ExecutorEntry]
    """What `[executor]` may hold; an unknown key is an error."""

    def check(self, experiment: ExperimentFile) -> Iterable[Problem]:
        """What is wrong with this experiment for this executor. `experiment.executor` is an instance of `Settings`."""

    def open(self, setup: Any) -> Any:
        """An `Executor` for an `ExecutorSetup` (engine/executors). Raises UsageError or BakeoffError."""


@runtime_checkable
class RunsHere(Protocol):
    """An `ExecutorKind` whose runs start on this machine: what they need is looked for here before they do."""

    def check_machine(self, experiment: ExperimentFile, jobs: int) -> None:
        """Raise UsageError when not a single run fits this machine."""


class IdentifiedRun(Protocol):
    """What the `meta` hook may know about a run."""

    run_id: RunId
    seed: int
    rollout: int


class Dialect:
    """Base class with defaults that change nothing. Subclasses override what their tool does differently.

    Hooks that get an edition, its paths or a session are typed `Any` here, because this package must not import the
    packages that define those types. Subclasses annotate the real types.
    """

    name: ClassVar[str] = "native"
    """Recorded with every edition, and the name of the entry point."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys at the top of a file that tell it apart from all others."""
    live_files: ClassVar[bool] = False
    """True: output goes straight into the run directory, and `meta.json` is written when a run starts, not only when
    it ends."""
    variables: ClassVar[bool] = True
    """True: `${VAR}` in the file is replaced before `plan` is called."""
    analysis: ClassVar[Analysis | None] = None
    """The analysis settings of editions that are imported from the other tool's directories; None for the defaults."""

    def recognises(self, tree: Mapping[str, Any]) -> bool:
        """Return whether the parsed file `tree` is written in this dialect: with the defaults, whether it has one of `keys`."""
        return not self.keys.isdisjoint(tree)

    def plan(self, tree: dict[str, Any], path: Path) -> Plan:
        """The plan of a file that `recognises` accepted. `path` is the file. Raises SpecError with every problem."""
        raise NotImplementedError(f"dialect {self.name!r} does not read files")

    def meta(self, params: dict[str, Any], run: IdentifiedRun) -> dict[str, Any]:
        """`params` as the run's `meta.json` shows them."""
        return params

    def observers(self, session: Any) -> Sequence[Any]:
        """Observers (`bakeoff.engine.scheduler.Observer`) that write files beside ours while `session` runs."""
        return ()

    def after_begin(self, paths: Any) -> None:
        """Called once with the `EditionPaths` of a new edition, for links that old scripts expect."""

    def table(self, edition: Any) -> Any | None:
        """The edition as a `results.columns.Sheet` with the columns that `collect` writes; None for the usual columns."""
        return None

    def importer(self) -> Any | None:
        """The `results.importers.foreign.Importer` of run directories and tables that the other tool writes, or None."""
        return None

    def table_of_directory(self, directory: Path) -> tuple[Any, list[str]] | None:
        """What `collect` writes for a directory that the other tool left, and the problems with its files.

        A `results.columns.Sheet` and one line for each problem; None when the directory is not of this kind. Raises UsageError
        when it is and nothing in it can be read.
        """
        return None


NATIVE = Dialect()


def load(group: str, name: str, noun: str) -> Any:
    """The object behind an entry point. Raises UsageError for an unknown name and for an import that fails."""
    entries = plugins.entry_points(group)
    if name not in entries:
        hint = did_you_mean(name, entries, f"known {noun}s: {', '.join(sorted(entries))}")
        raise UsageError(f"no {noun} called {name!r}; {hint}")
    try:
        return plugins.load(entries[name])
    except (ImportError, AttributeError) as error:
        extra = missing_extra(error) if isinstance(error, ImportError) else None
        fix = f"; {install(extra)}" if extra else ""
        raise UsageError(f"{noun} {name!r} ({entries[name]}) cannot be imported: {error}{fix}") from error


def executors() -> list[str]:
    """The names of all installed executors; `bakeoff.engine.session` opens them."""
    return sorted(plugins.entry_points(EXECUTORS))


def executor(kind: str) -> ExecutorKind:
    """The executor called `kind`. Raises UsageError when there is none or it cannot be imported."""
    entry: ExecutorKind = load(EXECUTORS, kind, "executor")
    return entry


def kinds() -> list[str]:
    """The names of all installed workloads."""
    return sorted(plugins.entry_points(WORKLOADS))


@cache
def workload(kind: str) -> Workload | CommandWorkload:
    """The workload of this kind, one instance per process. Raises UsageError when there is none or it is unusable."""
    instance = load(WORKLOADS, kind, "workload")()
    if not isinstance(instance, Workload | CommandWorkload):
        raise UsageError(
            f"{plugins.entry_points(WORKLOADS)[kind]} is not a workload: it needs `kind`, `revision`, `Params` and `run` or `command`"
        )
    return instance


def settings(kind: str) -> frozenset[str]:
    """Parameters of this workload that say how to run; they are not columns of the results table."""
    names: frozenset[str] = getattr(workload(kind).Params, "settings", frozenset())
    return names


@cache
def dialect(name: str) -> Dialect:
    """The dialect called `name`; `native` is that of our own files. Raises UsageError when it is not installed."""
    if name == NATIVE.name:
        return NATIVE
    instance = load(DIALECTS, name, "dialect")
    if not isinstance(instance, Dialect):
        raise UsageError(f"{plugins.entry_points(DIALECTS)[name]} is not an instance of bakeoff.spec.registry.Dialect")
    return instance


@cache
def dialects() -> tuple[Dialect, ...]:
    """Every installed dialect besides the native one, in the order of their names."""
    return tuple(dialect(name) for name in sorted(plugins.entry_points(DIALECTS)))


def dialect_of(tree: Mapping[str, Any]) -> Dialect:
    """The dialect in which an experiment file is written: the first that recognises it, or the native one."""
    return next((candidate for candidate in dialects() if candidate.recognises(tree)), NATIVE)
