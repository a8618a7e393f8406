"""Looks and growths of the plan, in both databases."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.errors import Damaged
from bakeoff.records.damage import find_damage
from bakeoff.records.looks import Look, read_growths, read_looks, record_look
from support.editions import Begin, make_edition, make_plan

LOOK = Look(100.0, "compare", "verdict", 6, 6, "digest", {"large on score": "better"})


def test_a_look_is_kept_once_and_in_order_of_time(begin: Begin) -> None:
    edition = begin()
    later = replace(LOOK, at=200.0, verb="gate")
    for look in (later, LOOK, LOOK, replace(LOOK, at=300.0)):
        assert record_look(edition, look)
    assert read_looks(edition) == (LOOK, later)


def test_every_growth_of_the_plan_is_kept_and_planning_the_same_again_is_none(begin: Begin) -> None:
    edition = begin(runs=False)
    whole = make_plan()
    runs = list(whole)
    edition.add_cells(whole.cells, frozenset())
    for count in (2, 4, 4, len(runs)):
        edition.add_runs(runs[:count])
    assert [(growth.before, growth.after) for growth in read_growths(edition)] == [(2, 4), (4, len(runs))]


def test_withdrawn_runs_leave_the_plan_and_their_positions_are_not_given_away(begin: Begin) -> None:
    edition = begin(runs=False)
    whole = make_plan()
    runs = list(whole)
    edition.add_cells(whole.cells, frozenset())
    edition.add_runs(runs[:4])
    edition.withdraw_runs([1, 3])
    edition.add_runs(runs[4:])
    positions = [run.position for run in edition.runs()]
    assert positions == sorted(set(positions)) and edition.planned() == len(runs) - 2
    assert [run.run_id for run in edition.runs()] == [runs[0].run_id, runs[2].run_id, *(run.run_id for run in runs[4:])]


@pytest.mark.parametrize("text", ["nonsense", "[1]"])
def test_a_look_that_is_nonsense_is_damage(begin: Begin, text: str) -> None:
    edition = begin()
    record_look(edition, LOOK)
    with edition.database.transaction() as transaction:
        transaction.run("UPDATE looks SET verdicts = ?", (text,))
    with pytest.raises(Damaged, match="a look cannot be read"):
        read_looks(edition)
    found = find_damage(edition.paths)
    assert found is not None and "look" in str(found)


def test_a_database_that_another_program_locks_counts_nothing_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAKEOFF_DATABASE_URL", raising=False)
    edition = make_edition(tmp_path, files=False)
    connect = sqlite3.connect
    monkeypatch.setattr("bakeoff.records.store.sqlite3.connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.1}))
    other = connect(edition.paths.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        assert not record_look(edition, LOOK)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert record_look(edition, LOOK)
