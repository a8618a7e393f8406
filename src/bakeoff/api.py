"""The Python door: what the command line does, in three lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.engine.scheduler import Observer, Summary
from bakeoff.engine.session import Options, open_session
from bakeoff.records.edition import Edition
from bakeoff.records.find import find_edition
from bakeoff.records.layout import EditionPaths, default_root, experiment_directory
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan
from bakeoff.spec.select import expression

if TYPE_CHECKING:
    import polars as pl


class Experiment:
    """An experiment file, and what has been run of it under `root`."""

    def __init__(self, plan: Plan, source: Path, root: Path) -> None:
        self.plan = plan
        self._source = source
        self._root = root

    def run(
        self,
        *,
        jobs: int | None = None,
        fresh: bool = False,
        fail_fast: bool = False,
        retry_failed: bool = False,
        allow_code_change: bool = False,
        only: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> Summary:
        """Do what is missing and return when it is done. Runs that fail are in the summary, not raised."""
        options = Options(
            root=self._root,
            jobs=jobs,
            fresh=fresh,
            fail_fast=fail_fast,
            retry_failed=retry_failed,
            allow_code_change=allow_code_change,
            only=[expression(only)] if only else [],
            source=self._source,
        )
        session = open_session(self.plan, options)
        try:
            return session.run(observers)
        finally:
            session.close()

    @property
    def edition(self) -> EditionPaths:
        """The newest edition."""
        return find_edition(str(experiment_directory(self._root, self.plan.experiment.name)), self._root)

    def table(self) -> pl.DataFrame:
        """One row for each run of the newest edition."""
        from bakeoff.records.table import read_table

        edition = Edition.open(self.edition)
        try:
            return read_table(edition).frame
        finally:
            edition.close()


def load(path: str | Path, *, root: str | Path | None = None, overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment file. `overrides` are `key.path=value`, as `--set` takes them."""
    plan = load_plan(Path(path), overrides)
    chosen = Path(root) if root is not None else plan.root or default_root()
    return Experiment(plan, Path(path), chosen)
