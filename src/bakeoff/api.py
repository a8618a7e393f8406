"""The Python door: what the command line does, in three lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.engine.scheduler import Observer, Summary
from bakeoff.engine.session import Options, open_session
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, default_root, experiment_directory, find_edition
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan
from bakeoff.spec.select import expression

if TYPE_CHECKING:
    import polars as pl

    from bakeoff.interop.source import Source
    from bakeoff.verdicts.compare import Verdict


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
            only=[expression(only, self.plan.names | {"run_id"})] if only else [],
            source=self._source,
        )
        if self.plan.experiment.sequential is not None:
            return self._run_until_decided(options, observers)
        session = open_session(self.plan, options)
        try:
            return session.run(observers)
        finally:
            session.close()

    def _run_until_decided(self, options: Options, observers: Sequence[Observer]) -> Summary:
        from bakeoff.verdicts.until_decided import UntilDecided, prepare

        session = open_session(prepare(self.plan, options), options)
        try:
            return session.run(observers, UntilDecided(session))
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


def compare(
    *sources: Any,
    metric: str | Sequence[str] = (),
    control: str | None = None,
    arms: Sequence[str] = (),
    margin: float | None = None,
    relative_margin: float | None = None,
    alpha: float | None = None,
    direction: Literal["maximize", "minimize"] | None = None,
    summary: str | None = None,
    window: str | None = None,
    last: int | None = None,
    threshold: float | None = None,
    percentile: float | None = None,
    smoothing: float | None = None,
    failure_score: float | None = None,
    bounds: tuple[float, float] | None = None,
    tasks: Literal["sample", "fixed"] | None = None,
    seeds: Literal["nested", "crossed"] | None = None,
    unpaired: bool = False,
    intersect: bool = False,
    simultaneous: bool = False,
    methods: Sequence[str] = (),
    covariate: str | None = None,
    resamples: int = 9_999,
    columns: Mapping[str, str] | None = None,
    root: str | Path | None = None,
) -> list[Verdict]:
    """Is B better than A: every arm against the control on every metric named, as one family.

    `sources` are what `bakeoff compare` takes (names, `A:arm`, files, directories; the newest experiment when there are
    none), an `Experiment`, or one table in memory: a Polars or pandas frame, or rows as dicts. `columns` names a table's
    columns by role: arm, task, seed, rollout, value.
    """
    from bakeoff.interop.asking import Asked, answer
    from bakeoff.verdicts.compare import Options as CompareOptions

    shape = {"type": summary, "window": window, "last": last, "threshold": threshold, "percentile": percentile}
    changes: dict[str, Any] = {
        "margin": margin, "relative_margin": relative_margin, "alpha": alpha, "direction": direction,
        "failure_score": failure_score, "bounds": bounds, "tasks": tasks, "seeds": seeds,
        "summary": {key: value for key, value in {**shape, "smoothing": smoothing}.items() if value is not None},
    }  # fmt: skip
    options = CompareOptions(
        control=control,
        candidates=arms,
        tasks=tasks,
        unpaired=unpaired,
        intersect=intersect,
        simultaneous=simultaneous,
        methods=methods,
        resamples=resamples,
    )
    metrics = [metric] if isinstance(metric, str) else list(metric)
    place = Path(root) if root is not None else default_root()
    with closing(_source(sources, place, dict(columns or {}))) as source:
        found = answer(source, Asked(metrics=metrics, changes=changes, options=options, covariate=covariate))
    if found.sequential is not None:
        raise UsageError(f"{found.source} was run until it was decided; `bakeoff.verdicts.sequential.report` reads it")
    return list(found.comparisons)


def _source(given: Sequence[Any], root: Path, columns: dict[str, str | None]) -> Source:
    from bakeoff.interop.sources import open_source

    if len(given) == 1 and isinstance(given[0], Experiment):
        return open_source([str(given[0].edition.directory)], root)
    if all(isinstance(one, str | Path) for one in given):
        return open_source([str(one) for one in given], root, columns)
    if len(given) > 1:
        raise UsageError("give one table, or names of sources")
    from bakeoff.interop.tables import Columns, of_frame

    return of_frame(given[0], Columns(**columns))
