"""One call of `run`: find or make the edition, take its lease, check that the code is the same, and schedule."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from bakeoff.engine.executors.base import Executor
from bakeoff.engine.executors.local import environment, local
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import More, Observer, Scheduler, Summary, Switch
from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records import layout, provenance
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.lease import Lease
from bakeoff.records.run import RunRecord
from bakeoff.spec import registry
from bakeoff.spec.plan import Plan, facts
from bakeoff.spec.select import Test
from bakeoff.spec.workload import Checked

SETTLE_AFTER = 1.0
_SERVER_NOTICES = 3.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, as opposed to what."""

    root: Path
    jobs: int | None = None
    fresh: bool = False
    fail_fast: bool = False
    retry_failed: bool = False
    allow_code_change: bool = False
    wait: bool = False
    stream: bool = False
    only: Sequence[Test] = ()
    source: Path | None = None
    """The experiment file, kept with the results as it was given."""


@dataclass(slots=True)
class Session:
    """An edition with its lease held. Close it when done."""

    plan: Plan
    options: Options
    edition: Edition
    lease: Lease
    number: int
    new: bool
    grown: int = 0
    """How many runs the plan gained since the edition was begun."""
    notes: tuple[str, ...] = ()
    """What the workload says about these runs before they start."""
    switch: Switch = field(default_factory=Switch)

    @property
    def paths(self) -> EditionPaths:
        return self.edition.paths

    @property
    def jobs(self) -> int:
        return self.options.jobs or self.plan.experiment.jobs or os.cpu_count() or 1

    def run(self, observers: Sequence[Observer] = (), more: More | None = None) -> Summary:
        """Do what is missing. The observers are closed in any case."""
        how = "failed"
        try:
            queue = Queue(self.plan, self.edition, only=self.selected(), retry_failed=self.options.retry_failed)
            summary = self._scheduled(queue, observers, more) if more or not queue.empty() else Summary()
            summary.left_out = queue.left_out
            how = summary.stopped or "done"
        finally:
            for observer in observers:
                observer.close()
            if how == "failed":
                self._end(how)
        summary.complete = self.edition.end_session(self.number, how)
        return summary

    def _scheduled(self, queue: Queue, observers: Sequence[Observer], more: More | None) -> Summary:
        executor = self._executor()
        try:
            return Scheduler(
                self.plan, self.edition, self.number, executor, queue,
                switch=self.switch, fail_fast=self.options.fail_fast, observers=observers, more=more,
            ).run()  # fmt: skip
        finally:
            executor.close()

    def _end(self, how: str) -> None:
        """Something went wrong, and that is what the user must hear of, not that this cannot be written down either."""
        try:
            self.edition.end_session(self.number, how)
        except StorageError:
            pass

    def _executor(self) -> Executor:
        settle = 0.0 if self.options.stream or registry.dialect(self.plan.dialect).live_files else SETTLE_AFTER
        return local(self.plan, self.paths, jobs=self.jobs, mark=self._mark(), session=self.number, settle_after=settle)

    def _mark(self) -> str:
        created = self.edition.facts()["created_at"]
        return hashlib.sha256(f"{self.paths.experiment}/{self.paths.name}/{created}".encode()).hexdigest()[:16]

    def selected(self) -> Callable[[RunRecord], bool] | None:
        """Which runs `only` means; None for all."""
        tests, cells = self.options.only, {cell.index: cell for cell in self.plan.cells}
        if not tests:
            return None
        return lambda run: all(
            test({**facts(cells[run.cell], run.seed, run.rollout), "run_id": run.run_id}) for test in tests
        )

    def close(self) -> None:
        try:
            self.edition.close()
        finally:
            self.lease.release()


def open_session(plan: Plan, options: Options) -> Session:
    """Resume the newest unfinished edition, or begin a new one. What can be refused is refused before anything is made."""
    environment(plan)
    if not plan.cells or len(plan) == 0:
        raise UsageError("the plan is empty: no run is left after include and exclude")
    notes = tuple(dict.fromkeys(_checked(plan, options)))
    directory = layout.experiment_directory(options.root, plan.experiment.name)
    known = layout.editions(directory)
    session = _resume(plan, options, known[-1]) if known and not options.fresh else None
    if session is None:
        session = _begin(plan, options, directory)
    session.notes = notes
    return session


def _checked(plan: Plan, options: Options) -> Iterator[str]:
    """What the workload has to say about its runs before they start."""
    workload = registry.workload(plan.experiment.workload)
    if not isinstance(workload, Checked):
        return
    for cell in plan.cells:
        try:
            yield from workload.check(workload.Params.model_validate(cell.params), plan.base) or ()
        except UsageError as error:
            raise UsageError(f"{options.source}: {error}" if options.source else str(error)) from error


def _begin(plan: Plan, options: Options, directory: Path) -> Session:
    paths = layout.new_edition(directory)
    with ExitStack() as undo:
        # Nothing is recorded yet: what stayed behind here would hide the editions before it.
        undo.callback(shutil.rmtree, paths.directory, ignore_errors=True)
        lease = undo.enter_context(Lease(paths.lease))
        edition = undo.enter_context(closing(Edition.create(plan, paths)))
        edition.lock()
        _freeze(options.source, paths)
        edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
        edition.add_runs(plan)
        number = edition.begin_session(_provenance(plan, options), edition.planned())
        layout.point_latest(paths)
        registry.dialect(plan.dialect).after_begin(paths)
        undo.pop_all()
    return Session(plan, options, edition, lease, number, new=True)


def _resume(plan: Plan, options: Options, paths: EditionPaths) -> Session | None:
    """The edition with its lease, or None when a new one is to be begun."""
    with ExitStack() as undo:
        lease = undo.enter_context(_patiently(lambda: Lease(paths.lease), inf if options.wait else 0.0))
        try:
            edition = undo.enter_context(closing(Edition.open(paths, readonly=False)))
        except UsageError:
            if options.source is not None and paths.frozen(options.source.suffix).exists():
                raise  # its results are somewhere else
            return None  # its scheduler died before it had recorded the plan
        # A server needs a moment to see that the scheduler before us was killed.
        _patiently(edition.lock, inf if options.wait else _SERVER_NOTICES)
        if edition.complete and plan.experiment.editions == "repeat" and not options.retry_failed:
            return None
        _check_kind(plan, edition)
        fresh = _new_runs(plan, edition)
        now = _provenance(plan, options)
        if fresh or options.retry_failed or not edition.complete:
            _check_code(edition, now, options)
        if fresh:
            edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
            edition.add_runs(plan)
        number = edition.begin_session(now, edition.planned())
        undo.pop_all()
        grown = len(fresh) if len(fresh) < len(plan) else 0
        return Session(plan, options, edition, lease, number, new=False, grown=grown)


def _patiently(take: Callable[[], T], patience: float) -> T:
    """What `take` returns, as soon as nobody else holds it."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return take()
        except LeaseHeld:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


def _check_kind(plan: Plan, edition: Edition) -> None:
    """What runs until it is decided may have stopped early: filled up to a fixed number it would be neither."""
    if edition.facts()["spec"].get("sequential") is not None and plan.experiment.sequential is None:
        raise UsageError(
            f"{edition.paths.experiment}/{edition.paths.name} runs until it is decided: go on with --until-decided, "
            "or start a new edition with --fresh"
        )


def _new_runs(plan: Plan, edition: Edition) -> set[str]:
    """A plan may have grown since; it may not have become another one."""
    known = edition.run_ids()
    wanted = {run.run_id for run in plan}
    gone, fresh = known - wanted, wanted - known
    if gone:
        raise UsageError(
            f"the file now describes other runs than {edition.paths.experiment}/{edition.paths.name}: "
            f"{len(gone)} of its {len(known)} are gone, {len(fresh)} are new. "
            "Start a new edition with --fresh, or restore the file"
        )
    return fresh


def _check_code(edition: Edition, now: dict[str, Any], options: Options) -> None:
    """Against the session that recorded the newest results; one that found nothing to do says nothing about them."""
    number = edition.last_productive_session()
    if number is None or options.allow_code_change:
        return
    before = next(session for session in edition.sessions() if session["session"] == number)
    change = provenance.code_change(before["provenance"], now)
    if change is not None:
        raise UsageError(
            f"the code changed since {edition.paths.experiment}/{edition.paths.name} was begun: {change}. "
            "Results of two versions would be mixed. Start a new edition with --fresh, or mix them with --allow-code-change"
        )


def _provenance(plan: Plan, options: Options) -> dict[str, Any]:
    source = options.source
    ignore = [source, layout.registration_of(source)] if source is not None else []
    return {
        **provenance.collect(plan.base, sys.argv, ignore=ignore),
        "experiment": str(source.absolute()) if source is not None else None,
        "set": provenance.redact_argv(plan.overrides),
    }


def _freeze(source: Path | None, paths: EditionPaths) -> None:
    """The file as it was given, and the registration beside it, if `bakeoff prereg` made one."""
    if source is not None:
        paths.frozen(source.suffix).write_bytes(source.read_bytes())
        if layout.registration_of(source).exists():
            paths.registration.write_bytes(layout.registration_of(source).read_bytes())
