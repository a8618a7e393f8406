"""The Python door: what the command line does, in three lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    from bakeoff.results.table import Results
    from bakeoff.verdicts.calibrate import CalibrateAnswer
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
        from bakeoff.results.frame import read_table

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
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> list[Verdict]:
    """Is B better than A: every arm against the control on every metric named, as one family.

    `sources` are what `bakeoff compare` takes (names, `A:arm`, files, directories; default: the newest experiment), an
    `Experiment`, or one table in memory: a Polars or pandas frame, or rows as dicts. `columns` names a table's columns
    by role: arm, task, seed, rollout, value. The other keywords are the fields of `bakeoff.verdicts.question.Compare`,
    which are the options of the command and the keys of `[analysis]`:

        bakeoff.compare("results.csv", metric="score", control="base", margin=0.01)
    """
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Compare

    asked = Compare.ask(**question)
    place = Path(root) if root is not None else default_root()
    with closing(_results(sources, place, dict(columns or {}), every=asked.editions == "all")) as results:
        verdict = answer(results, asked)
    if verdict.sequential is not None:
        raise UsageError(
            f"{verdict.source} is judged by a sequential test; `bakeoff.verdicts.sequential.report` reads an edition, and "
            "`bakeoff compare --json` prints everything"
        )
    return list(verdict.comparisons)


def calibrate(
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> CalibrateAnswer:
    """How often would these runs lead to a wrong verdict if the arms did not differ.

    Takes what `compare` takes; the keywords are the fields of `bakeoff.verdicts.question.Calibrate`.

        bakeoff.calibrate("results.csv", metric="score", seeds="crossed").sentence
    """
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Calibrate

    asked = Calibrate.ask(**question)
    place = Path(root) if root is not None else default_root()
    with closing(_results(sources, place, dict(columns or {}))) as results:
        return answer(results, asked)


def _results(sources: Sequence[Any], root: Path, columns: dict[str, Any], *, every: bool = False) -> Results:
    """`every`: all editions of the one experiment that is named."""
    from bakeoff.results.sources import open_results

    if every:
        from bakeoff.results.editions import open_all_editions

        names = [str(each.edition.directory) if isinstance(each, Experiment) else str(each) for each in sources]
        return open_all_editions(names, root)
    if len(sources) == 1 and isinstance(sources[0], Experiment):
        return open_results([str(sources[0].edition.directory)], root)
    if all(isinstance(source, str | Path) for source in sources):
        return open_results([str(source) for source in sources], root, columns)
    if len(sources) > 1:
        raise UsageError("give one table, or names of sources")
    from bakeoff.results.importers.tables import Columns, frame_results

    return frame_results(sources[0], columns=Columns(**columns))
