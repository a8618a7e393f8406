"""The interface of a dialect: an experiment file of another tool's shape, and that tool's habits on disk.

A dialect turns such a file into a `Plan`. Whoever wrote scripts around the other tool also expects its files: so a
dialect may change what `meta.json` shows, write files beside ours while runs finish, leave links where old scripts
look, order the columns that `collect` writes, and read directories that the other tool left behind.

Dialects are found through the entry-point group `bakeoff.dialects`, whose values are `Dialect` instances:

    [project.entry-points."bakeoff.dialects"]
    sweep = "bakeoff.workloads.schedsim.dialect:SWEEP"

`bakeoff.spec.registry.dialect(name)` returns the instance. The engine, the records and the command line call its
hooks and never ask for its name. Every hook has a default that does nothing, so `NATIVE`, the dialect of our own
files, is a plain `Dialect()`.

Hooks that get an edition, its paths or a session are typed `Any` here, because this package must not import the
packages that define those types. Subclasses annotate the real types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bakeoff.spec.experiment import Analysis
from bakeoff.spec.plan import Plan


class IdentifiedRun(Protocol):
    """What the `meta` hook may know about a run."""

    run_id: str
    seed: int
    rollout: int


class Dialect:
    """Base class with defaults that change nothing. Subclasses override what their tool does differently."""

    name: ClassVar[str] = "native"
    """Recorded with every edition, and the name of the entry point."""
    live_files: ClassVar[bool] = False
    """True: output goes straight into the run directory, and `meta.json` is written when a run starts, not only when
    it ends."""
    variables: ClassVar[bool] = True
    """True: `${VAR}` in the file is replaced before `plan` is called."""
    analysis: ClassVar[Analysis] = Analysis()
    """The analysis settings of editions that are imported from the other tool's directories."""

    def recognises(self, tree: Mapping[str, Any]) -> bool:
        """Whether the parsed file `tree` is written in this dialect."""
        return False

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
        """The edition as a polars frame with the columns that `collect` writes; None for the usual columns."""
        return None

    def read_run(self, directory: Path, meta: Mapping[str, Any]) -> Any | None:
        """A run directory as a `results.table.Row`, given its `meta.json`; None when the other tool did not write it.

        Raises ValueError, KeyError or TypeError when the directory is of this kind and cannot be read.
        """
        return None

    def table_of_directory(self, directory: Path) -> tuple[Any, list[str]] | None:
        """What `collect` writes for a directory that the other tool left, and the problems with its files.

        A polars frame and one line for each problem; None when the directory is not of this kind. Raises UsageError
        when it is and nothing in it can be read.
        """
        return None

    def read_table(self, path: Path, directory: Path) -> Any | None:
        """The `results.table.Results` in a table that `table` or `table_of_directory` wrote, or None.

        `directory` is the experiment's, where a run's files are if the table does not say. Raises UsageError when the
        file cannot be read as such a table.
        """
        return None


NATIVE = Dialect()
