"""One call of `run`: find or make the edition, take its lease, check that the code is the same, and schedule."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.engine.executors.base import Executor
from bakeoff.engine.executors.local import local
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import More, Observer, Scheduler, Summary, Switch
from bakeoff.errors import LeaseHeld, UsageError
from bakeoff.records import layout, provenance
from bakeoff.records.edition import Edition, Pending
from bakeoff.records.layout import EditionPaths
from bakeoff.records.lease import Lease
from bakeoff.spec import registry
from bakeoff.spec.plan import Plan, facts
from bakeoff.spec.select import Test

SETTLE_AFTER = 1.0


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
    switch: Switch = field(default_factory=Switch)

    @property
    def paths(self) -> EditionPaths:
        return self.edition.paths

    @property
    def jobs(self) -> int:
        return self.options.jobs or self.plan.experiment.jobs or os.cpu_count() or 1

    def run(self, observers: Sequence[Observer] = (), more: More | None = None) -> Summary:
        queue = Queue(self.plan, self.edition, only=self.selected(), retry_failed=self.options.retry_failed)
        executor = self._executor()
        how = "failed"
        try:
            scheduler = Scheduler(
                self.plan, self.edition, self.number, executor, queue,
                switch=self.switch, fail_fast=self.options.fail_fast, observers=observers, more=more,
            )  # fmt: skip
            summary = scheduler.run()
            how = summary.stopped or "done"
        finally:
            executor.close()
            for observer in observers:
                observer.close()
            complete = self.edition.end_session(self.number, how)
        summary.complete = complete
        return summary

    def _executor(self) -> Executor:
        settle = 0.0 if self.options.stream or self.plan.dialect == "sweep" else SETTLE_AFTER
        return local(self.plan, self.paths, jobs=self.jobs, mark=self._mark(), settle_after=settle)

    def _mark(self) -> str:
        created = self.edition.facts()["created_at"]
        return hashlib.sha256(f"{self.paths.experiment}/{self.paths.name}/{created}".encode()).hexdigest()[:16]

    def selected(self) -> Callable[[Pending], bool] | None:
        """Which runs `only` means; None for all."""
        tests, cells = self.options.only, {cell.index: cell for cell in self.plan.cells}
        if not tests:
            return None
        return lambda run: all(
            test({**facts(cells[run.cell], run.seed, run.rollout), "run_id": run.run_id}) for test in tests
        )

    def close(self) -> None:
        self.edition.close()
        self.lease.release()


def open_session(plan: Plan, options: Options) -> Session:
    """Resume the newest unfinished edition, or begin a new one."""
    registry.workload(plan.experiment.workload)
    if not plan.cells or len(plan) == 0:
        raise UsageError("the plan is empty: no run is left after include and exclude")
    directory = layout.experiment_directory(options.root, plan.experiment.name)
    known = layout.editions(directory)
    if known and not options.fresh:
        session = _resume(plan, options, known[-1])
        if session is not None:
            return session
    return _begin(plan, options, directory)


def _begin(plan: Plan, options: Options, directory: Path) -> Session:
    paths = layout.new_edition(directory)
    lease = Lease(paths.lease)
    edition = Edition.create(plan, paths)
    edition.lock()
    _freeze(options.source, paths)
    edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
    edition.add_runs(plan)
    number = edition.begin_session(_provenance(plan, options), edition.planned())
    layout.point_latest(paths)
    if plan.dialect == "sweep":
        layout.point_through_latest(paths)
    return Session(plan, options, edition, lease, number, new=True)


def _resume(plan: Plan, options: Options, paths: EditionPaths) -> Session | None:
    """The edition with its lease, or None when a new one is to be begun."""
    lease = _lease(paths, options.wait)
    try:
        try:
            edition = Edition.open(paths, readonly=False)
        except UsageError:
            lease.release()
            return None  # its scheduler died before it had recorded the plan
        edition.lock()
        if edition.complete and plan.experiment.editions == "repeat" and not options.retry_failed:
            edition.close()
            lease.release()
            return None
        grown = _reconcile(plan, edition)
        now = _provenance(plan, options)
        _check_code(edition, now, options)
        number = edition.begin_session(now, edition.planned())
        return Session(plan, options, edition, lease, number, new=False, grown=grown)
    except BaseException:
        lease.release()
        raise


def _lease(paths: EditionPaths, wait: bool) -> Lease:
    while True:
        try:
            return Lease(paths.lease)
        except LeaseHeld:
            if not wait:
                raise
            time.sleep(0.5)


def _reconcile(plan: Plan, edition: Edition) -> int:
    """A plan may have grown since; it may not have become another one. Returns how many runs are new."""
    known = edition.run_ids()
    wanted = {run.run_id for run in plan}
    gone, fresh = known - wanted, wanted - known
    if gone and known:
        raise UsageError(
            f"the file now describes other runs than {edition.paths.experiment}/{edition.paths.name}: "
            f"{len(gone)} of its {len(known)} are gone, {len(fresh)} are new. "
            "Start a new edition with --fresh, or restore the file"
        )
    if fresh:
        edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
        edition.add_runs(plan)
        edition.move_cells(plan)
    return len(fresh) if known else 0


def _check_code(edition: Edition, now: dict[str, Any], options: Options) -> None:
    sessions = edition.sessions()
    if not sessions or options.allow_code_change or edition.complete:
        return
    change = provenance.code_change(sessions[-1]["provenance"], now)
    if change is not None:
        raise UsageError(
            f"the code changed since {edition.paths.experiment}/{edition.paths.name} was begun: {change}. "
            "Results of two versions would be mixed. Start a new edition with --fresh, or mix them with --allow-code-change"
        )


def _provenance(plan: Plan, options: Options) -> dict[str, Any]:
    ignore = [options.source] if options.source is not None else []
    return provenance.collect(plan.base, sys.argv, ignore=ignore)


def _freeze(source: Path | None, paths: EditionPaths) -> None:
    if source is not None:
        paths.frozen(source.suffix).write_bytes(source.read_bytes())
