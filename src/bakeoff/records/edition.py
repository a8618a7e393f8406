"""One edition of an experiment in the database: the plan goes in, results go in, rows come out (`reader.py`).

Only the lease's holder writes. A batch of results is one transaction: `finish` returns when it is on disk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.database import URL_VARIABLE, Database, Transaction, connect
from bakeoff.records.layout import EditionPaths
from bakeoff.records.reader import EditionReader
from bakeoff.records.run import OPEN, Attempt, encode_metrics, storable

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.experiment import Experiment
    from bakeoff.spec.plan import Cell, Plan, Run


class Edition(EditionReader):
    def __init__(self, database: Database, edition_id: int, paths: EditionPaths) -> None:
        super().__init__(database, edition_id, paths)
        self._locked = False

    # -- making and opening

    @classmethod
    def create(cls, plan: Plan, paths: EditionPaths, place: str | None = None) -> Edition:
        """In `place`, or where the environment says, or in a file of its own."""
        database = connect(place or os.environ.get(URL_VARIABLE) or str(paths.database))
        experiment = plan.experiment
        with database.transaction() as transaction:
            transaction.run(
                "INSERT INTO editions (experiment, edition, workload, dialect, spec, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    paths.experiment,
                    paths.name,
                    experiment.workload,
                    plan.dialect,
                    experiment.model_dump_json(),
                    time.time(),
                ),
            )
        database.close()
        return cls.open(paths, readonly=False)

    @classmethod
    def open(cls, paths: EditionPaths, *, readonly: bool = True) -> Edition:
        place = str(paths.database)
        if not paths.database.exists():
            place = os.environ.get(URL_VARIABLE) or ""
        if not place:
            # Nothing may be created here: an empty file would hide what PostgreSQL has.
            raise UsageError(
                f"{paths.directory}: no results are here; if they are in PostgreSQL, set {URL_VARIABLE} to its URL"
            )
        database = connect(place, readonly=readonly)
        # A mailed or renamed directory still holds its own edition: in a file of its own there is only one.
        row = database.one(
            "SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?", (paths.experiment, paths.name)
        ) or (database.one("SELECT edition_id FROM editions") if database.engine == "sqlite" else None)
        if row is None:
            database.close()
            raise UsageError(f"{paths.directory}: no results were ever recorded here")
        return cls(database, row[0], paths)

    def another(self) -> Edition:
        """The same edition through a connection of its own, for another thread."""
        return Edition(self.database.another(), self.edition_id, self.paths)

    def close(self) -> None:
        if self._locked:  # a server notices a closed connection only after a moment
            try:
                self.database.one("SELECT pg_advisory_unlock(7246112, ?)", (self.edition_id,))
            except StorageError:
                pass  # the connection is lost, and the lock with it
        self.database.close()

    def lock(self) -> None:
        """In PostgreSQL the lease also holds across machines."""
        if self.database.engine == "postgres":
            row = self.database.one("SELECT pg_try_advisory_lock(7246112, ?)", (self.edition_id,))
            if not (row and row[0]):
                raise LeaseHeld(f"{self.paths.experiment}/{self.paths.name} is being run from another machine")
            self._locked = True

    # -- the plan

    def add_cells(self, cells: Sequence[Cell], settings: frozenset[str]) -> None:
        """The plan's cells in place of those that are there. Runs that are there follow their cell to its new number,
        and a cell that the plan no longer has is kept behind the others as long as it has runs.

        `settings` are parameters that say how to run and are no column of the table.
        """
        rows = [(cell.index, *_cell_row(cell, settings)) for cell in cells]
        before = self.database.all(
            "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells c WHERE edition_id = ? "
            "AND EXISTS (SELECT 1 FROM runs r WHERE r.edition_id = c.edition_id AND r.cell = c.cell) ORDER BY cell",
            (self.edition_id,),
        )
        index_of = {row[1:]: row[0] for row in rows}
        moves: dict[int, int] = {}
        for index, *content in before:
            moves[index] = index_of.setdefault(tuple(content), len(index_of))
            if moves[index] >= len(rows):
                rows.append((moves[index], *content))
        with self.database.transaction() as transaction:
            transaction.run("DELETE FROM cells WHERE edition_id = ?", (self.edition_id,))
            transaction.many(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(self.edition_id, *row) for row in rows]
            )
            self._move(transaction, {old: new for old, new in moves.items() if old != new})

    def _move(self, transaction: Transaction, moves: Mapping[int, int]) -> None:
        """Runs of cell `old` become runs of cell `new`, all at once."""
        if not moves:
            return
        transaction.run("CREATE TEMPORARY TABLE moves (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
        transaction.many("INSERT INTO moves VALUES (?, ?)", list(moves.items()))
        transaction.run(
            "UPDATE runs SET cell = (SELECT new FROM moves WHERE old = cell) "
            "WHERE edition_id = ? AND cell IN (SELECT old FROM moves)",
            (self.edition_id,),
        )
        transaction.run("DROP TABLE moves")

    def add_runs(self, runs: Iterable[Run]) -> int:
        """Plan further runs, behind those that are there; a run that is there already is left alone."""
        known = self.run_ids()
        position = self.planned()
        fresh = (
            (run.run_id, run.cell.index, run.seed, run.rollout)
            for run in runs
            if run.run_id not in known and not known.add(run.run_id)  # type: ignore[func-returns-value]
        )
        rows = ((self.edition_id, position + offset, *row) for offset, row in enumerate(fresh))
        with self.database.transaction() as transaction:
            transaction.many(
                "INSERT INTO runs (edition_id, position, run_id, cell, seed, rollout) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
            if self.planned() > position:
                transaction.run("UPDATE editions SET complete = 0 WHERE edition_id = ?", (self.edition_id,))
        return self.planned() - position

    def restate(self, experiment: Experiment) -> None:
        """The same experiment with more to do, as it is asked for now."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE editions SET spec = ? WHERE edition_id = ?", (experiment.model_dump_json(), self.edition_id)
            )

    # -- what happens

    def begin_session(self, provenance: Mapping[str, Any], planned: int) -> int:
        number = int(self._value("SELECT COUNT(*) FROM sessions WHERE edition_id = ?")) + 1
        now = time.time()
        with self.database.transaction() as transaction:
            transaction.run(
                "INSERT INTO sessions (edition_id, session, started_at, seen_at, planned, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (self.edition_id, number, now, now, planned, json.dumps(provenance)),
            )
            self._nothing_is_running(transaction)  # what a dead scheduler left as running was lost with it
        return number

    def _nothing_is_running(self, transaction: Transaction) -> None:
        transaction.run(
            "UPDATE runs SET status = 'planned' WHERE edition_id = ? AND status = 'running'", (self.edition_id,)
        )

    def beat(self, session: int, running: Iterable[Attempt]) -> None:
        """Record that the session is alive and which attempts are running."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ? WHERE edition_id = ? AND session = ?",
                (time.time(), self.edition_id, session),
            )
            transaction.many(
                "UPDATE runs SET status = 'running', started_at = ? WHERE edition_id = ? AND position = ? "
                "AND status IN ('planned', 'cancelled', 'infra_error', 'failed', 'timeout')",
                [(attempt.started_at, self.edition_id, attempt.position) for attempt in running],
            )

    def end_session(self, session: int, how: str) -> bool:
        """True when every run has had its try."""
        left = self._value(
            f"SELECT COUNT(*) FROM runs WHERE edition_id = ? AND status IN ({', '.join(repr(s) for s in OPEN)})"
        )
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ?, ended = ? WHERE edition_id = ? AND session = ?",
                (time.time(), how, self.edition_id, session),
            )
            transaction.run(
                "UPDATE editions SET complete = ? WHERE edition_id = ?", (0 if left else 1, self.edition_id)
            )
            self._nothing_is_running(transaction)  # what was taken back from a worker had been shown as running
        return not left

    def finish(self, attempts: Sequence[Attempt], session: int) -> None:
        """Record results in one transaction. When this returns they are durable."""
        edition = self.edition_id
        final = [r for r in attempts if r.final]
        again = [r for r in attempts if not r.final]
        with self.database.transaction() as transaction:
            transaction.many(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(edition, r.position, r.number, session, r.status, r.started_at, r.ended_at, r.exit_code,
                  storable(r.error)) for r in attempts],
            )  # fmt: skip
            self._set_aside(transaction, [(edition, r.position) for r in final if r.number > 1])
            transaction.many(
                "UPDATE runs SET status = ?, attempts = ?, started_at = ?, ended_at = ?, exit_code = ?, error = ?, "
                "metrics = ?, command = ? WHERE edition_id = ? AND position = ?",
                [(r.status, r.number, r.started_at, r.ended_at, r.exit_code, storable(r.error),
                  encode_metrics(r.metrics), storable(r.command), edition, r.position) for r in final],
            )  # fmt: skip
            transaction.many(
                "INSERT INTO series VALUES (?, ?, ?)",
                [(edition, r.position, r.series) for r in final if r.series is not None],
            )
            transaction.many(
                "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?)",
                [(edition, r.position, t.path, t.steps, t.reward, t.bytes) for r in final if (t := r.trajectory)],
            )
            transaction.many(
                "UPDATE runs SET status = 'planned', attempts = ? WHERE edition_id = ? AND position = ?",
                [(r.number, edition, r.position) for r in again],
            )
            transaction.many(
                "INSERT INTO superseded VALUES (?, ?, ?)",
                [(edition, r.position, encode_metrics(r.metrics)) for r in again if r.metrics],
            )

    def _set_aside(self, transaction: Transaction, runs: list[tuple[int, int]]) -> None:
        """What an earlier try left is not this one's; what it reported is kept, since it was paid for."""
        transaction.many(
            "INSERT INTO superseded SELECT edition_id, position, metrics FROM runs "
            "WHERE edition_id = ? AND position = ? AND metrics IS NOT NULL",
            runs,
        )
        for table in ("series", "trajectories"):
            transaction.many(f"DELETE FROM {table} WHERE edition_id = ? AND position = ?", runs)


def _cell_row(cell: Cell, settings: frozenset[str]) -> tuple[Any, ...]:
    """arm, task, base, ablation, flags, task_digest, params, columns."""
    from bakeoff.spec.experiment import flatten

    params = dict(cell.params)
    columns = {name: value for name, value in flatten(params).items() if name.split(".")[0] not in settings}
    arm, task = cell.arm, cell.task
    flags = json.dumps(list(arm.flags))
    return arm.name, task.name, arm.base, arm.ablation, flags, task.digest, json.dumps(params), json.dumps(columns)
