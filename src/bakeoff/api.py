"""The Python door: what the command line does, in three lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from bakeoff.errors import UsageError
from bakeoff.records.layout import EditionPaths, default_root, editions, experiment_directory, find_edition
from bakeoff.records.recorded import Recorded
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan
from bakeoff.spec.select import expression

if TYPE_CHECKING:
    import polars as pl

    from bakeoff.engine.scheduler import Observer, SessionSummary
    from bakeoff.engine.session import Options
    from bakeoff.results.table import Results
    from bakeoff.verdicts.comparison import Verdict
    from bakeoff.verdicts.questions.calibrate import CalibrateAnswer
    from bakeoff.verdicts.questions.compare import CompareAnswer
    from bakeoff.verdicts.questions.gate import GateAnswer
    from bakeoff.verdicts.questions.litmus import LitmusAnswer
    from bakeoff.verdicts.questions.power import PowerAnswer
    from bakeoff.verdicts.questions.rank import RankAnswer
    from bakeoff.verdicts.questions.variance import VarianceAnswer


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
        set_aside: Sequence[str] = (),
        allow_code_change: bool = False,
        only: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> SessionSummary:
        """Do what is missing and return when it is done. Runs that fail are in the summary, not raised.

        Raises UsageError on another system than Linux.
        """
        from bakeoff.engine.session import Options, open_session

        options = Options(
            root=self._root,
            jobs=jobs,
            fresh=fresh,
            fail_fast=fail_fast,
            retry_failed=retry_failed,
            set_aside=set_aside,
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

    def _run_until_decided(self, options: Options, observers: Sequence[Observer]) -> SessionSummary:
        from bakeoff.engine.session import open_session
        from bakeoff.verdicts.sequential.until_decided import UntilDecided, prepare

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
        """One row for each run of the newest edition. Raises UsageError without the extra `frames`."""
        from bakeoff.results.frame import read_table

        edition = Recorded.open(self.edition)
        try:
            return read_table(edition).frame
        finally:
            edition.close()

    def _repr_html_(self) -> str:
        """What a notebook shows: how far every arm is. No means: these would be a look."""
        from bakeoff.records.run import Tally
        from bakeoff.verdicts.answer import Table, Text, environment

        known = editions(experiment_directory(self._root, self.plan.experiment.name))
        name = self.plan.experiment.name
        if known:
            with closing(Recorded.open(known[-1])) as edition:
                tallies = {arm: Tally.of(counts) for arm, counts in edition.counts_by_arm().items()}
            name = f"{name}/{known[-1].name}"
        else:
            planned = Counter(run.cell.arm.name for run in self.plan)
            tallies = {arm: Tally(runs, 0, 0, runs) for arm, runs in planned.items()}
        headers = ("planned", "succeeded", "failed", "missing")
        rows = [[arm, *(str(getattr(tally, column)) for column in headers)] for arm, tally in tallies.items()]
        state = "" if known else ", not run yet"
        macros: Any = environment().get_template("answer.html.j2").module
        return str(macros.answer([Text(f"{name}{state}", strong=True), Table(["arm", *headers], rows, right=headers)]))


class Verdicts(Sequence["Verdict"]):
    """What `compare` returns: one verdict for each arm and metric. Printed, or in a notebook, it is the first screen."""

    def __init__(self, answer: CompareAnswer) -> None:
        self.answer = answer
        """Everything that `bakeoff compare` says, with its settings and its exit code."""

    @overload
    def __getitem__(self, place: int) -> Verdict: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, place: int | slice) -> Verdict | Sequence[Verdict]:
        return self.answer.comparisons[place]

    def __len__(self) -> int:
        return len(self.answer.comparisons)

    def __repr__(self) -> str:
        from bakeoff.verdicts.answer import as_text

        return as_text(self.answer, verbose=False)

    def _repr_html_(self) -> str:
        return self.answer._repr_html_()


def load(path: str | Path, *, root: str | Path | None = None, overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment file. `overrides` are `key.path=value`, as `--set` takes them."""
    plan = load_plan(Path(path), overrides)
    chosen = Path(root) if root is not None else plan.root or default_root()
    return Experiment(plan, Path(path), chosen)


def compare(
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> Verdicts:
    """Is B better than A: every arm against the control on every metric named, as one family.

    `sources` are what `bakeoff compare` takes (names, `A:arm`, files, directories; default: the newest experiment), an
    `Experiment`, or one table in memory: a Polars or pandas frame, columns as lists, or rows as dicts. `columns` names a
    table's columns by role: arm, task, seed, rollout, status, value. The other keywords are the fields of `bakeoff.verdicts.question.Compare`,
    which are the options of the command and the keys of `[analysis]`:

        bakeoff.compare("results.csv", metric="score", control="base", margin=0.01)

    An experiment that was run until it was decided is judged by its sequential test, and its verdicts have an
    `evidence_path`.
    """
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Compare

    asked = Compare.ask(**question)
    with _open(sources, columns, root, every_edition=asked.editions == "all") as results:
        return Verdicts(answer(results, asked))


def gate(
    *sources: Any,
    policy: Mapping[str, Any] | str | Path,
    columns: Mapping[str, str] | None = None,
    root: str | Path | None = None,
    **question: Any,
) -> GateAnswer:
    """Did any metric regress by more than it may, and did those improve that must.

    `policy` is a file of rules, or the same as a dict. The keywords are the fields of `bakeoff.verdicts.question.Gate`.

        bakeoff.gate("nightly", policy={"metrics": {"score": {"max_regression": 0.02}}}).exit_code
    """
    from bakeoff.spec.load import read_model
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Gate
    from bakeoff.verdicts.questions.gate import Policy
    from bakeoff.verdicts.questions.gate import policy as checked

    rules = checked(dict(policy)) if isinstance(policy, Mapping) else read_model(Path(policy), Policy)
    name = "flags" if isinstance(policy, Mapping) else str(policy)
    asked = Gate.ask(policy=rules, policy_name=name, **question)
    with _open(sources, columns, root) as results:
        return answer(results, asked)


def litmus(
    *sources: Any,
    rules: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    root: str | Path | None = None,
    **question: Any,
) -> LitmusAnswer:
    """Do the rules of a litmus file hold between a `candidate` and its `baseline`.

    `rules` is a file (default: the built-in profile for training campaigns). The keywords are the fields of
    `bakeoff.verdicts.question.Litmus`.

        bakeoff.litmus("campaign", baseline="old", candidate="new").exit_code
    """
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Litmus
    from bakeoff.verdicts.questions.litmus import built_in, load_rules

    known = built_in() if rules is None else load_rules(Path(rules))
    asked = Litmus.ask(rules=known, **question)
    with _open(sources, columns, root) as results:
        return answer(results, asked)


def rank(
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> RankAnswer:
    """In which order are many arms on many tasks. The keywords are the fields of `bakeoff.verdicts.question.Rank`."""
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Rank

    asked = Rank.ask(**question)
    with _open(sources, columns, root) as results:
        return answer(results, asked)


def variance(
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> VarianceAnswer:
    """How precise is an arm's mean at N runs. The keywords are the fields of `bakeoff.verdicts.question.Variance`."""
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Variance

    asked = Variance.ask(**question)
    with _open(sources, columns, root) as results:
        return answer(results, asked)


def power(
    *sources: Any, columns: Mapping[str, str] | None = None, root: str | Path | None = None, **question: Any
) -> PowerAnswer:
    """How many runs does an effect need, and what can the runs at hand detect.

    Without a source, numbers answer. The keywords are the fields of `bakeoff.verdicts.question.Power`.

        bakeoff.power(sd=1.0, effect=0.5)
    """
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.question import Power

    names = tuple(str(source) for source in sources if isinstance(source, str | Path))
    asked = Power.ask(names=names, **question)
    if not sources:
        return answer(None, asked)
    with _open(sources, columns, root) as results:
        return answer(results, asked)


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
    with _open(sources, columns, root) as results:
        return answer(results, asked)


def _open(
    sources: Sequence[Any],
    columns: Mapping[str, str] | None,
    root: str | Path | None,
    *,
    every_edition: bool = False,
) -> closing[Results]:
    """Open what a question is about. `every_edition`: all editions of the one experiment that is named."""
    from bakeoff.results.sources import open_results

    place, roles = Path(root) if root is not None else default_root(), dict[str, Any](columns or {})
    names = [str(each.edition.directory) if isinstance(each, Experiment) else each for each in sources]
    if every_edition:
        from bakeoff.results.editions import open_all_editions

        return closing(open_all_editions([str(name) for name in names], place))
    if all(isinstance(name, str | Path) for name in names):
        return closing(open_results([str(name) for name in names], place, roles))
    if len(sources) > 1:
        raise UsageError("give one table, or names of sources")
    from bakeoff.results.importers.table_roles import Columns
    from bakeoff.results.importers.tables import frame_results

    return closing(frame_results(sources[0], columns=Columns(**roles)))
