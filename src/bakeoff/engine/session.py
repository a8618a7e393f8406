"""One call of `run`: find or make the edition, take its lease, check that the code is the same, and schedule.

session = open_session(plan, Options(root))
try:
    summary = session.run()
finally:
    session.close()
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bakeoff.engine import processes, require_linux
from bakeoff.engine.executors import (
    Adopting,
    Executor,
    ExecutorSetup,
    NodeSetup,
    Situation,
    leave_pilots,
    take_in_results,
)
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import More, Observer, Scheduler, SessionSummary, Switch
from bakeoff.errors import LeaseHeld, Problem, SpecError, StorageError, UsageError
from bakeoff.records import codefiles, layout, provenance
from bakeoff.records.claims import Claim, Claims, list_claims, list_nodes, set_aside
from bakeoff.records.edition import Edition
from bakeoff.records.files import read_inside
from bakeoff.records.layout import PLACE, RAY_FILE, EditionPaths, Lease, atomic_write
from bakeoff.records.looks import read_looks
from bakeoff.records.run import RunRecord
from bakeoff.records.secrets import frozen_copy, hide_argv
from bakeoff.records.store import beginning
from bakeoff.spec import registry
from bakeoff.spec.advice import advice
from bakeoff.spec.experiment import Analysis, ExecutorEntry, ExperimentFile
from bakeoff.spec.load import located
from bakeoff.spec.plan import Cell, Plan, Run, facts
from bakeoff.spec.select import Test
from bakeoff.spec.workload import Checked, PlanChecked, Priced

_MOST_PROBLEMS = 5
"""Problems of one kind that are listed, such as programs that are not there."""
_SETTLE_AFTER = 1.0
"""Seconds after which a run's output appears in its directory."""
_SERVER_NOTICES = 3.0
"""Seconds that PostgreSQL needs to see that a scheduler was killed, and to free its lock."""
_UNSEEN = 2.0
"""Seconds for which a session that was killed may have run after it was last seen."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, as opposed to what."""

    root: Path
    jobs: int | None = None
    fresh: bool = False
    fail_fast: bool = False
    retry_failed: bool = False
    allow_code_change: bool = False
    verdict_follows: bool = False
    """A verdict is shown right after the runs, so other code is refused even where nothing is left to do."""
    set_aside: Sequence[str] = ()
    """Hosts whose results are discarded first, of all arms."""
    wait: bool = False
    stream: bool = False
    only: Sequence[Test] = ()
    source: Path | None = None
    """The experiment file; a copy is kept with the results."""


def check_plan(plan: Plan, options: Options) -> tuple[str, ...]:
    """Raise UsageError for what keeps runs from starting: an empty plan, a variable that is not set, what the workload
    finds. Returns the notes of the workload. Creates nothing, so `validate` and `--dry-run` call it too.

    On a system that cannot run anything, what the machine has is not checked, and a note says so.
    """
    notes: dict[str, None] = {}
    experiment = plan.experiment
    workload, budget = registry.workload(experiment.workload), experiment.budget
    try:
        if not plan.cells or len(plan) == 0:
            raise UsageError("the plan is empty: no run is left after include and exclude")
        env = {**os.environ, **experiment.environment()}
        if options.only:
            chosen = {run.cell.index for run in plan if _matches(run, run.cell, options.only)}
            if not chosen:
                arms, tasks = (", ".join(each.name for each in entries[:8]) for entries in (plan.arms, plan.tasks))
                raise UsageError(f"no run matches --only; arms are {arms}, tasks are {tasks}, seeds are numbers")
            plan = replace(plan, cells=[cell for cell in plan.cells if cell.index in chosen])
        executor = registry.executor((experiment.executor or ExecutorEntry()).kind)
        if sys.platform != "linux":
            notes["this system is not Linux, so whether runs could start here was not checked"] = None
        elif isinstance(executor, registry.RunsHere):
            executor.check_machine(experiment, options.jobs or experiment.jobs or 1)
            if isinstance(workload, PlanChecked) and (wrong := list(workload.check_plan(plan, env))):
                more = len(wrong) - _MOST_PROBLEMS
                raise SpecError([*wrong[:_MOST_PROBLEMS], *([Problem("", f"... and {more} more")] if more > 0 else [])])
        if isinstance(workload, Checked):
            for cell in plan.cells:
                params = workload.Params.model_validate(cell.params)
                notes |= dict.fromkeys(workload.check(params, plan.base) or ())
                if isinstance(workload, Priced) and budget.cost and budget.cost_metric == workload.cost_metric:
                    workload.check_price(params, plan.base)
    except SpecError as error:
        raise (located(error, options.source) if options.source else error) from error
    except UsageError as error:
        raise UsageError(f"{options.source}: {error}" if options.source else str(error)) from error
    return (*notes, *advice(plan))


def _matches(run: Run | RunRecord, cell: Cell, only: Sequence[Test]) -> bool:
    """Return whether `--only` chooses a run of this cell."""
    return all(test({**facts(cell, run.seed, run.rollout), "run_id": run.run_id}) for test in only)


def open_session(plan: Plan, options: Options) -> Session:
    """Resume the newest unfinished edition, or begin a new one.

    What can be refused is refused before anything is created: an empty plan, a variable that is not set, and what the
    workload's `check` finds are UsageErrors. Raises LeaseHeld while another scheduler runs the edition.
    """
    require_linux("a run")
    notes = check_plan(plan, options)
    directory = layout.experiment_directory(options.root, plan.experiment.name)
    while True:
        try:
            with _beginning(directory) as elsewhere:
                known = [] if options.fresh else layout.editions(directory)
                if not known and not options.fresh and elsewhere is not None:
                    session = _adopt(plan, options, EditionPaths(directory / elsewhere))
                else:
                    session = _resume(plan, options, known[-1]) if known else None
                session = session or _begin(plan, options, directory, elsewhere)
            break
        except LeaseHeld:
            if not options.wait:
                raise
            time.sleep(0.2)  # outside: whoever does not want to wait must get in, and see the message
    if session.edition.sessions()[-1]["provenance"].get("files", {}).get("incomplete"):
        notes = (*notes, f"{plan.base} has so many files that a change of code is noticed in the first ones only")
    session.notes = (*session.notes, *notes)
    return session


def resumed(plan: Plan, options: Options) -> Edition | None:
    """Return the edition that `open_session` would resume, open for reading; None when it would begin a new one.

    Creates nothing. Raises UsageError, LeaseHeld or StorageError where `open_session` would.
    """
    directory = layout.experiment_directory(options.root, plan.experiment.name)
    place = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        reason = errno.EACCES if place.is_dir() else errno.EEXIST if place == directory else errno.ENOTDIR
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            reason = errno.EROFS
        raise StorageError(f"{directory}: cannot make a directory for results: {os.strerror(reason)}")
    known = [] if options.fresh else layout.editions(directory)
    if not known:
        return None
    if layout.is_held(known[-1].lease) and not options.wait:
        raise LeaseHeld(f"{directory.name}/{known[-1].name} is being run by another process; --wait waits for it")
    try:
        edition = Edition.open(known[-1])
    except UsageError:
        if options.source is not None and known[-1].frozen(options.source.suffix).exists():
            raise  # its results are in another database
        return None
    with ExitStack() as undo:
        undo.enter_context(closing(edition))
        fresh = _growth(edition, plan, options)
        if fresh is None:
            return None
        _check_code(edition, _provenance(plan, options), options, grown=bool(fresh))
        undo.pop_all()
    return edition


@contextmanager
def _beginning(directory: Path) -> Iterator[str | None]:
    """Let one scheduler at a time look for the newest edition of the experiment, and begin one if there is none.

    Yields the newest edition in PostgreSQL, which may have been begun from another root.
    """
    import fcntl  # only here: `validate` imports this module on systems that have none

    path = directory / ".beginning"
    while True:
        try:
            layout.make_root(directory.parent)
            directory.mkdir(exist_ok=True)
            file = open(path, "a")  # noqa: SIM115 - its error is ours
        except OSError as error:
            raise StorageError(f"{directory}: cannot make a directory for results: {error.strerror}") from error
        fcntl.flock(file, fcntl.LOCK_EX)
        # The scheduler that held the lock has removed the file, and another one may have made a new one.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()
    with file:
        try:
            with beginning(directory.name) as newest:
                yield newest
        finally:
            path.unlink(missing_ok=True)


def _adopt(plan: Plan, options: Options, paths: EditionPaths) -> Session | None:
    """Resume an edition that was begun from another root. None when it has other runs: then it only has the name."""
    paths.directory.mkdir(exist_ok=True, mode=0o700)
    session = None
    try:
        session = _resume(plan, options, paths, adopted=True)
    finally:
        if session is None:
            shutil.rmtree(paths.directory, ignore_errors=True)  # nothing is in it but the lease
    return session


def _begin(plan: Plan, options: Options, directory: Path, newest: str | None) -> Session:
    """Make a new edition after `newest`, with the plan recorded and the experiment file copied."""
    if options.set_aside:
        raise UsageError(f"--set-aside: {plan.experiment.name} has no edition with results to set aside")
    paths = layout.new_edition(directory, after=newest)
    with ExitStack() as undo:
        # Nothing is recorded yet: what stayed behind here would hide the editions before it.
        undo.callback(shutil.rmtree, paths.directory, ignore_errors=True)
        lease = undo.enter_context(closing(Lease(paths.lease)))
        edition = undo.enter_context(closing(Edition.create(plan, paths)))
        edition.lock()
        if options.source is not None:
            paths.frozen(options.source.suffix).write_bytes(frozen_copy(options.source))
            registration = layout.registration_of(options.source)  # `bakeoff prereg` made one, perhaps
            if registration.exists():
                paths.registration.write_bytes(registration.read_bytes())
        edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
        edition.add_runs(plan)
        order_seed = plan.experiment.order_seed
        order_seed = secrets.randbits(31) if order_seed is None else order_seed
        number = edition.begin_session({**_provenance(plan, options), "order_seed": order_seed}, edition.planned())
        layout.point_latest(paths)
        registry.dialect(plan.dialect).after_begin(paths)
        undo.pop_all()  # all went well: the session owns the lease and the edition now
    return Session(plan, options, edition, lease, number, order_seed, new=True)


def _resume(plan: Plan, options: Options, paths: EditionPaths, *, adopted: bool = False) -> Session | None:
    """Take the lease of an edition and go on with it; None when a new one is to be begun."""
    with ExitStack() as undo:
        lease = undo.enter_context(closing(Lease(paths.lease)))
        try:
            edition = undo.enter_context(closing(Edition.open(paths, readonly=False)))
        except UsageError:
            if options.source is not None and paths.frozen(options.source.suffix).exists():
                raise  # its results are in another database
            return None  # its scheduler died before it had recorded the plan
        edition.lock(patience=_SERVER_NOTICES)
        fresh = _growth(edition, plan, options, adopted=adopted)
        if fresh is None:
            return None
        now = _provenance(plan, options)
        _check_code(edition, now, options, grown=bool(fresh))
        notes = _restate_analysis(edition, plan.experiment)
        if fresh:  # cells first: a scheduler that is killed in between leaves every run with the right arm
            edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
            edition.add_runs(plan)
        for host in options.set_aside:
            discarded = set_aside(edition, host)
            notes = (*notes, f"{discarded} results of {host} were set aside; verdicts count that as a look")
        # The file's order seed, else the one that the edition has been run with, else a new one.
        seeds = (plan.experiment.order_seed, edition.order_seed())
        order_seed = next((seed for seed in seeds if seed is not None), secrets.randbits(31))
        number = edition.begin_session({**now, "order_seed": order_seed}, edition.planned())
        undo.pop_all()
        grown = len(fresh) if len(fresh) < len(plan) else 0
        return Session(plan, options, edition, lease, number, order_seed, new=False, grown=grown, notes=notes)


def _restate_analysis(edition: Edition, experiment: ExperimentFile) -> tuple[str, ...]:
    """Take over a changed `[analysis]` as long as no result was shown, and return a note about what was changed."""
    recorded = Analysis.model_validate(edition.facts()["spec"]["analysis"])
    changes = recorded.changes(experiment.analysis)
    if not changes:
        return ()
    what = f"[analysis] was changed ({'; '.join(changes)})"
    if not any(look.kind != "too few" for look in read_looks(edition)):
        edition.restate(experiment)
        return (f"{what}. No result was shown before, so verdicts use the file as it is now",)
    return (
        f"{what}. Results were shown before, so `bakeoff compare {experiment.name}` goes on with the analysis on record; "
        "`bakeoff compare FILE` uses the file's at a lower alpha",
    )


def _growth(edition: Edition, plan: Plan, options: Options, *, adopted: bool = False) -> Collection[str] | None:
    """Return the ids of runs that the plan has and the edition lacks; None when a new edition is to be begun.

    Raises UsageError when the plan cannot go on with this edition.
    """
    again = options.retry_failed or options.set_aside
    if edition.complete and plan.experiment.editions == "repeat" and not again:
        return None
    # A sequential experiment may have stopped early: filled up to a fixed number of runs it would be neither.
    if edition.facts()["spec"].get("sequential") is not None and plan.experiment.sequential is None:
        raise UsageError(
            f"{edition.paths.experiment}/{edition.paths.name} runs until it is decided: go on with "
            "--until-decided, or start a new edition with --fresh"
        )
    before, now = edition.facts()["spec"]["analysis"].get("final"), plan.experiment.analysis.final
    if before != now and any(status not in ("planned", "running") for status in edition.counts()):
        raise UsageError(
            f"analysis.final: {before} became {now}, and {edition.paths.experiment}/{edition.paths.name} has results "
            "already. Restore the file, or start a new edition with --fresh"
        )
    known, wanted = edition.run_ids(), {run.run_id for run in plan}
    gone, fresh = known - wanted, wanted - known
    if gone and adopted:
        return None
    if gone:
        raise UsageError(
            f"the file now describes other runs than {edition.paths.experiment}/{edition.paths.name}: "
            f"{len(gone)} of its {len(known)} are gone, {len(fresh)} are new. "
            "Start a new edition with --fresh, or restore the file"
        )
    return fresh


def _check_code(edition: Edition, now: dict[str, Any], options: Options, *, grown: bool) -> None:
    """Raise UsageError when the code differs from that of the session that recorded the newest results.

    A session that found nothing to do says nothing about them, so it is not asked; nor is it asked when nothing is to
    be done now, unless a verdict follows.
    """
    number = edition.last_productive_session()
    again = options.retry_failed or options.set_aside
    idle = edition.complete and not grown and not again and not options.verdict_follows
    if idle or number is None or options.allow_code_change:
        return
    before = next(session for session in edition.sessions() if session["session"] == number)
    # A session that was killed was last seen up to a beat before that.
    running = [
        (session["started_at"], session["seen_at"] + (0.0 if session["ended"] else _UNSEEN))
        for session in edition.sessions()
    ]
    change = provenance.code_change(before["provenance"], now, running)
    if change is not None:
        raise UsageError(
            f"the code changed since {edition.paths.experiment}/{edition.paths.name} was begun: {change}. "
            "Results of two versions would be mixed. Start a new edition with --fresh, or mix them with --allow-code-change"
        )


def _provenance(plan: Plan, options: Options) -> dict[str, Any]:
    source = options.source
    ignore = [source, layout.registration_of(source)] if source is not None else []
    return {
        **provenance.collect(
            plan.base, sys.argv, ignore=ignore, results=options.root.absolute(), named=codefiles.named_files(plan)
        ),
        "experiment": str(source.absolute()) if source is not None else None,
        "set": hide_argv(plan.overrides),
    }


@dataclass(slots=True)
class Session:
    """An edition with its lease held. Close it when done."""

    plan: Plan
    options: Options
    edition: Edition
    lease: Lease
    number: int
    order_seed: int
    """Draws the order of arms in each block (`engine.queue.Order`); recorded in the session's provenance."""
    new: bool
    grown: int = 0
    """How many runs the plan gained since the edition was begun."""
    notes: tuple[str, ...] = ()
    """What the workload says about these runs before they start."""
    switch: Switch = field(default_factory=Switch)
    executor: Executor | None = None
    """Where runs are executed, while they are."""

    @property
    def situation(self) -> Situation:
        """The state of the machines that runs are on."""
        return self.executor.situation() if isinstance(self.executor, Adopting) else Situation()

    @property
    def jobs(self) -> int:
        return self.options.jobs or self.plan.experiment.jobs or os.cpu_count() or 1

    def run(self, observers: Sequence[Observer] = (), more: More | None = None) -> SessionSummary:
        """Do what is missing, and what `more` adds. The observers are closed in any case."""
        how = "failed"
        try:
            claims = self._own_claims()
            queue = Queue(
                self.plan,
                self.edition,
                order_seed=self.order_seed,
                only=self.selected(),
                retry_failed=self.options.retry_failed,
                claimed={claim.position for claim in claims},
            )
            summary = SessionSummary()
            if more or claims or not queue.empty():
                kind = (self.plan.experiment.executor or ExecutorEntry()).kind
                ended = take_in_results(self.edition, [claim for claim in claims if claim.executor != kind])
                executor = self.executor = self._open_executor()
                try:
                    scheduler = Scheduler(
                        self.plan, self.edition, self.number, executor, queue,
                        switch=self.switch, fail_fast=self.options.fail_fast, observers=observers, more=more,
                        renew=self.lease.renew,
                    )  # fmt: skip
                    scheduler.adopt(claims, ended)
                    summary = scheduler.run()
                except LeaseHeld:
                    if isinstance(executor, Adopting):
                        executor.leave()
                    raise
                finally:
                    executor.close()
            summary.left_out = queue.left_out
            how = summary.stopped.text if summary.stopped else "done"
        finally:
            for observer in observers:
                observer.close()
            if how == "failed":
                try:
                    self.edition.end_session(self.number, how)
                except (StorageError, LeaseHeld):
                    pass  # the user must see the first error, not that this cannot be recorded either
        summary.complete = self.edition.end_session(self.number, how)
        return summary

    def _open_executor(self) -> Executor:
        """Open the executor that the experiment file names. Raises UsageError."""
        experiment, paths = self.plan.experiment, self.edition.paths
        live = self.options.stream or registry.dialect(self.plan.dialect).live_files
        kind = (experiment.executor or ExecutorEntry()).kind
        setup = NodeSetup(
            workload=experiment.workload,
            dialect=self.plan.dialect,
            paths=paths,
            base=self.plan.base,
            jobs=self.jobs,
            limits=experiment.limits,
            resources=experiment.resources,
            fresh=experiment.isolation == "fresh",
            checkpoints=experiment.resume.checkpoints,
            settle_after=0.0 if live else _SETTLE_AFTER,
            edition_mark=self._mark(),
            session=self.number,
        )
        if any(node.executor != kind for node in list_nodes(self.edition)[-1:]):
            leave_pilots(paths)
        claims = Claims(self.edition, kind, self.number)
        asked = self.options.jobs or experiment.jobs
        executor: Executor = registry.executor(kind).open(ExecutorSetup(setup, self.plan, asked, claims))
        if isinstance(executor, Adopting):
            atomic_write(paths.directory / PLACE, self._place())
        return executor

    def _own_claims(self) -> list[Claim]:
        """Return the claims that sessions in this directory have left.

        A copy of an edition, or one that came by mail, brings claims and pilots of another place. Nobody here waits for
        these: they are dropped with all that was to come for them, and their runs are planned.
        """
        claims, directory = list_claims(self.edition), self.edition.paths.directory
        try:
            if read_inside(directory, PLACE).decode(errors="replace") == self._place():
                return claims
        except OSError:
            pass
        Claims(self.edition, "", self.number).drop(claims)
        (directory / RAY_FILE).unlink(missing_ok=True)
        leave_pilots(self.edition.paths)
        return []

    def _place(self) -> str:
        """Return what names this directory on whatever machine it is mounted; a copy of it has another name."""
        inode = os.stat(self.edition.paths.directory).st_ino
        return hashlib.sha256(f"{self.edition.facts()['created_at']}/{inode}".encode()).hexdigest()[:16]

    def _mark(self) -> str:
        """Return what tells processes of this edition from all others, also from those of a copy of its directory.

        The directory's inode stays the same when it is renamed, and a copy gets another. Inodes are only unique on one
        machine, so the mark names that too, by its boot: no process outlives it (random(4), boot_id).
        """
        place = os.stat(self.edition.paths.directory)
        boot = processes.text("/proc/sys/kernel/random/boot_id").strip()
        name = f"{self.edition.facts()['created_at']}/{boot}/{place.st_dev}/{place.st_ino}"
        return hashlib.sha256(name.encode()).hexdigest()[:16]

    def selected(self) -> Callable[[RunRecord], bool] | None:
        """Return the test for runs that `--only` chooses; None when it chooses all."""
        only, cells = self.options.only, {cell.index: cell for cell in self.plan.cells}
        return (lambda run: _matches(run, cells[run.cell], only)) if only else None

    def close(self) -> None:
        try:
            self.edition.close()
        finally:
            self.lease.close()
