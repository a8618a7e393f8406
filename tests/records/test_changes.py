"""Every statement that changes a run says so: a viewer that asks for what changed misses nothing and reads nothing twice."""

from __future__ import annotations

from collections.abc import Callable

from bakeoff.records.edition import Edition
from bakeoff.records.run import Attempt
from support.editions import SETTINGS, Begin, make_plan


def ended(edition: Edition, position: int, status: str, **more: object) -> Attempt:
    return edition.run(position).next_attempt(status=status, started_at=1.0, ended_at=2.0, **more)


def beat(edition: Edition) -> None:
    edition.beat(1, [ended(edition, 0, "running"), ended(edition, 2, "running")])


def finish(edition: Edition) -> None:
    edition.finish([ended(edition, 2, "succeeded", metrics={"score": 1.0}), ended(edition, 1, "failed")], 1)


def retry(edition: Edition) -> None:
    edition.finish([ended(edition, 0, "infra_error", final=False)], 1)


def discard(edition: Edition) -> None:
    edition.discard([(edition.edition_id, 2)])


def grow(edition: Edition) -> None:
    plan = make_plan(seeds=9)
    edition.add_cells(plan.cells, SETTINGS)
    edition.add_runs(plan)


def withdraw(edition: Edition) -> None:
    edition.withdraw_runs([edition.end_of_plan() - 1])


STEPS: tuple[Callable[[Edition], object], ...] = (
    lambda edition: edition.begin_session({}, edition.planned()), beat, finish, retry, beat, discard, grow, beat, withdraw,
    lambda edition: edition.end_session(1, "interrupted"),
)  # fmt: skip


def test_a_viewer_that_reads_what_changed_has_what_is_on_record_after_every_step(begin: Begin) -> None:
    edition = begin()
    seen = edition.changes()
    known = {run.position: run for run in edition.runs()}
    for step in STEPS:
        step(edition)
        now = edition.changes()
        read = {} if now.removed > seen.number else dict(known)
        fresh = list(edition.runs(since=seen.number) if read else edition.runs())
        known = read | {run.position: run for run in fresh}
        before, seen = seen, now
        assert known == {run.position: run for run in edition.runs()}
        assert list(edition.runs(since=seen.number)) == []
        assert now.number > before.number
    assert seen.removed, "the step that takes a run out of the plan says so"


def test_only_what_a_transaction_changed_is_read(begin: Begin) -> None:
    edition = begin()
    edition.begin_session({}, edition.planned())
    for step, positions in ((beat, [0, 2]), (finish, [1, 2]), (retry, [0]), (discard, [2])):
        before = edition.changes().number
        step(edition)
        assert sorted(run.position for run in edition.runs(since=before)) == positions
