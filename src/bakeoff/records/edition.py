"""Writing an edition of an experiment: the plan goes in, and what became of its runs.

Only the lease's holder writes runs; readers record that they looked (`records.looks`). A batch of results is one transaction:
`finish` returns when it is on disk. `Recorded` (recorded.py) has what is read.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.errors import LeaseHeld
from bakeoff.records.layout import EditionPaths
from bakeoff.records.recorded import CELLS, Recorded, checksum
from bakeoff.records.run import OPEN, RUN_COLUMNS, Attempt, encode_metrics, storable
from bakeoff.records.schema import allow_missing_seeds
from bakeoff.records.secrets import hide, hide_json, hide_tree
from bakeoff.records.store import URL_VARIABLE, Database, Row, connect

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.experiment import ExperimentFile
    from bakeoff.spec.plan import Cell, Plan, Run

_OUTCOME = list(RUN_COLUMNS)[list(RUN_COLUMNS).index("status") :]
"""The columns of a run that its last attempt fills in."""
_UNCLAIM = "DELETE FROM claims WHERE edition_id = ? AND position = ? AND token = ?"
_NOTHING_RUNS = "UPDATE runs SET status = 'planned', change = ? WHERE edition_id = ? AND status = 'running'"


@dataclass(eq=False)
class Edition(Recorded):
    """What is on record, and the right to add to it for the lease's holder."""

    node: str | None = None
    """What runs attempts that name no node: the record of this machine (records/claims.py)."""
    _session: int | None = None
    _began: tuple[float, float] = (0.0, 0.0)
    """When the session began: seconds since the epoch, and `time.monotonic()`."""

    # -- creating and opening

    @classmethod
    def create(cls, plan: Plan, paths: EditionPaths) -> Edition:
        """A new edition without cells and runs, in the database `place`.

        By default that is BAKEOFF_DATABASE_URL where it is set, else a SQLite file in the edition's directory.
        """
        database = connect(os.environ.get(URL_VARIABLE) or str(paths.database))
        experiment = plan.experiment
        if database.engine == "postgres":  # a new edition in SQLite is a new file, which allows that already
            allow_missing_seeds(database)
        with database.transaction() as transaction:
            transaction.run(
                "INSERT INTO editions (experiment, edition, workload, dialect, spec, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    paths.experiment, paths.name, experiment.workload, plan.dialect, hide_json(experiment.model_dump_json()),
                    time.time(),
                ),
            )  # fmt: skip
        database.close()
        return cls.open(paths, readonly=False)

    def lock(self, patience: float = 0.0) -> None:
        """Take the lease across machines too, where the database is PostgreSQL.

        Raises LeaseHeld when another scheduler still has it after `patience` seconds.
        """
        self.database.lock(self.edition_id, f"{self.paths.experiment}/{self.paths.name}", self._is_ours, patience)

    def _is_ours(self) -> bool:
        """Whether no other scheduler has begun a session since this one did."""
        newest = self.database.value("SELECT MAX(session) FROM sessions WHERE edition_id = ?", (self.edition_id,))
        return self._session in (None, newest)

    def _next_change(self, transaction: Database, *, removes: bool = False) -> int:
        """Return the number that every run which this transaction changes gets as its `change`.

        Viewers ask for runs with a higher number than the last one that they saw. `removes` says that runs are deleted.
        """
        transaction.run(
            "INSERT INTO changes (edition_id, number) VALUES (?, 1) "
            "ON CONFLICT (edition_id) DO UPDATE SET number = changes.number + 1",
            (self.edition_id,),
        )
        if removes:
            transaction.run("UPDATE changes SET removed = number WHERE edition_id = ?", (self.edition_id,))
        return int(transaction.value("SELECT number FROM changes WHERE edition_id = ?", (self.edition_id,)))

    # -- writing the plan

    def add_cells(self, cells: Sequence[Cell], settings: frozenset[str]) -> None:
        """Replace the recorded cells by those of the plan.

        Runs that are recorded follow their cell to its new number. A cell that the plan no longer has is kept behind
        the others as long as it has runs. `settings` are parameters that say how to run; they are not columns.
        """
        from bakeoff.spec.identity import flatten

        rows: list[Row] = []
        for cell in cells:
            arm, task, params = cell.arm, cell.task, dict(cell.params)
            columns = {name: value for name, value in flatten(params).items() if name.split(".")[0] not in settings}
            texts = json.dumps(hide_tree(params)), json.dumps(hide_tree(columns))
            flags = json.dumps(list(arm.flags))
            rows.append((cell.index, arm.name, task.name, arm.base, arm.ablation, flags, task.digest, *texts))
        before = self.database.rows(
            f"{CELLS} AND EXISTS (SELECT 1 FROM runs r WHERE r.edition_id = cells.edition_id AND r.cell = cells.cell) "
            "ORDER BY cell",
            (self.edition_id,),
        )
        number_of = {tuple(content): number for number, *content in rows}
        moves: dict[int, int] = {}
        for old, *content in before:
            new = number_of.setdefault(tuple(content), len(number_of))
            if new >= len(rows):
                rows.append((new, *content))
            if new != old:
                moves[old] = new
        self._names.clear()
        with self.database.transaction() as transaction:
            transaction.run("DELETE FROM cells WHERE edition_id = ?", (self.edition_id,))
            transaction.many(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(self.edition_id, *row) for row in rows]
            )
            if moves:  # all at once, since numbers may swap
                transaction.run("CREATE TEMPORARY TABLE moves (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
                transaction.many("INSERT INTO moves VALUES (?, ?)", list(moves.items()))
                transaction.run(
                    "UPDATE runs SET cell = (SELECT new FROM moves WHERE old = cell), change = ? "
                    "WHERE edition_id = ? AND cell IN (SELECT old FROM moves)",
                    (self._next_change(transaction), self.edition_id),
                )
                transaction.run("DROP TABLE moves")

    def add_runs(self, runs: Iterable[Run]) -> int:
        """Plan further runs, behind those that are there; a run that is there already is left alone.

        Returns how many were added.
        """
        known = self.run_ids()
        position = self.end_of_plan()
        fresh = (
            (run.run_id, run.cell.index, run.seed, run.rollout)
            for run in runs
            if run.run_id not in known and not known.add(run.run_id)  # type: ignore[func-returns-value]
        )
        counts = self.counts()
        waiting = counts.get("planned", 0) + counts.get("running", 0)
        with self.database.transaction() as transaction:
            change = self._next_change(transaction)
            transaction.many(
                "INSERT INTO runs (edition_id, position, change, run_id, cell, seed, rollout) VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((self.edition_id, position + offset, change, *row) for offset, row in enumerate(fresh)),
            )
            after = self.end_of_plan()  # inside the transaction, so the new rows are in it
            if after > position:
                transaction.run("UPDATE editions SET complete = 0 WHERE edition_id = ?", (self.edition_id,))
                if position:
                    transaction.run(
                        "INSERT INTO growths (edition_id, at, planned_before, planned_after, open) VALUES (?, ?, ?, ?, ?)",
                        (self.edition_id, time.time(), position, after, waiting),
                    )
        return after - position

    def withdraw_runs(self, positions: Iterable[int]) -> None:
        """Take runs that were never started out of the plan: their arm has left a sequential test."""
        with self.database.transaction() as transaction:
            self._next_change(transaction, removes=True)
            transaction.many(
                "DELETE FROM runs WHERE edition_id = ? AND position = ? AND status = 'planned' AND attempts = 0",
                [(self.edition_id, position) for position in positions],
            )

    def discard(self, runs: Sequence[tuple[int, int]]) -> None:
        """Plan runs again, given as (edition, position), as if they had no outcome. Their attempts stay on record."""
        with self.database.transaction() as transaction:
            transaction.many(
                "INSERT INTO superseded SELECT edition_id, position, metrics FROM runs "
                "WHERE edition_id = ? AND position = ? AND metrics IS NOT NULL",
                runs,
            )
            for table in ("series", "trajectories"):
                transaction.many(f"DELETE FROM {table} WHERE edition_id = ? AND position = ?", runs)
            change = self._next_change(transaction)
            emptied = ", ".join(f"{column} = NULL" for column in _OUTCOME if column not in ("status", "attempts"))
            transaction.many(
                f"UPDATE runs SET status = 'planned', {emptied}, crc = NULL, change = ? WHERE edition_id = ? AND position = ?",
                [(change, *run) for run in runs],
            )
            transaction.run("UPDATE editions SET complete = 0 WHERE edition_id = ?", (self.edition_id,))

    def restate(self, experiment: ExperimentFile) -> None:
        """Replace the recorded experiment by one that asks for more, such as further seeds."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE editions SET spec = ? WHERE edition_id = ?",
                (hide_json(experiment.model_dump_json()), self.edition_id),
            )

    # -- writing what happens

    def begin_session(self, provenance: Mapping[str, Any], planned: int) -> int:
        """Record that a scheduler starts. Returns the session's number, from 1."""
        number = int(self.database.value("SELECT COUNT(*) FROM sessions WHERE edition_id = ?", (self.edition_id,))) + 1
        self._began = now, _ = time.time(), time.monotonic()
        with self.database.transaction() as transaction:
            transaction.run(
                "INSERT INTO sessions (edition_id, session, started_at, seen_at, planned, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (self.edition_id, number, now, now, planned, json.dumps(provenance)),
            )
            # What a dead scheduler left as running was lost with it, except on machines that may go on without it.
            transaction.run(
                f"{_NOTHING_RUNS} AND position NOT IN (SELECT position FROM claims WHERE edition_id = ?)",
                (self._next_change(transaction), self.edition_id, self.edition_id),
            )
        self._session = number
        return number

    def _now(self) -> float:
        """Seconds since the epoch, counted on from the session's start by the monotonic clock: what a session took must
        not depend on a clock that is set meanwhile."""
        return self._began[0] + time.monotonic() - self._began[1]

    def beat(self, session: int, running: Iterable[Attempt]) -> None:
        """Record that the session is alive, and that these attempts are running."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ? WHERE edition_id = ? AND session = ?",
                (self._now(), self.edition_id, session),
            )
            change = self._next_change(transaction)
            transaction.many(
                "UPDATE runs SET status = 'running', started_at = ?, crc = NULL, change = ? "
                "WHERE edition_id = ? AND position = ? "
                # not `succeeded`: a result that was recorded meanwhile must not be hidden
                "AND status IN ('planned', 'cancelled', 'infra_error', 'failed', 'timeout')",
                [(attempt.started_at, change, self.edition_id, attempt.position) for attempt in running],
            )

    def end_session(self, session: int, how: str) -> bool:
        """Record how the session ended. Returns whether every run has an outcome now."""
        left = self.database.value(
            f"SELECT COUNT(*) FROM runs WHERE edition_id = ? AND status IN ({', '.join(repr(s) for s in OPEN)})",
            (self.edition_id,),
        )
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ?, ended = ? WHERE edition_id = ? AND session = ?",
                (self._now(), how, self.edition_id, session),
            )
            transaction.run(
                "UPDATE editions SET complete = ? WHERE edition_id = ?", (0 if left else 1, self.edition_id)
            )
            # A run that a worker gave back was shown as running.
            transaction.run(_NOTHING_RUNS, (self._next_change(transaction), self.edition_id))
        return not left

    def finish(self, attempts: Sequence[Attempt], session: int, *, same_work: bool = False) -> None:
        """Record attempts that ended, in one transaction. When this returns they are durable.

        `same_work` are attempts that score again what the last ones did: nothing was spent once more.

        An attempt with a token ends its claim in the same transaction. Raises LeaseHeld, and records nothing, when that
        claim is gone: then another scheduler has taken over.
        """
        edition = self.edition_id
        final = [a for a in attempts if a.final]
        again = [a for a in attempts if not a.final]
        retried = [(edition, a.position) for a in final if a.number > 1]
        claimed = [(edition, a.position, a.token) for a in attempts if a.token is not None]
        with self.database.transaction() as transaction:
            if transaction.uncertain and self.attempts(attempts[0].position, attempts[0].number):
                return  # the connection was lost after this very transaction had been committed
            if claimed and transaction.many(_UNCLAIM, claimed) != len(claimed):
                raise LeaseHeld(
                    f"{self.paths.experiment}/{self.paths.name} was taken over by another scheduler: claims of this one "
                    "are gone"
                )
            transaction.many(
                "INSERT INTO attempts (edition_id, position, attempt, session, status, started_at, ended_at, exit_code, "
                "error, node, lost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(edition, a.position, a.number, session, a.status, a.started_at, a.ended_at, a.exit_code,
                  _hidden(a.error), a.node or self.node, a.lost) for a in attempts],
            )  # fmt: skip
            # What an earlier attempt left is not this one's; what it reported is kept, since it was paid for.
            transaction.many(
                "INSERT INTO superseded SELECT edition_id, position, metrics FROM runs "
                "WHERE edition_id = ? AND position = ? AND metrics IS NOT NULL",
                () if same_work else retried,
            )
            for table in ("series", "trajectories"):
                transaction.many(f"DELETE FROM {table} WHERE edition_id = ? AND position = ?", retried)
            change = self._next_change(transaction)
            transaction.many(
                f"UPDATE runs SET change = ?, {' = ?, '.join(_OUTCOME)} = ?, crc = ? "
                "WHERE edition_id = ? AND position = ?",
                [(change, *_outcome_row(edition, a)) for a in final],
            )
            transaction.many(
                "INSERT INTO series VALUES (?, ?, ?)",
                [(edition, a.position, a.series) for a in final if a.series is not None],
            )
            transaction.many(
                "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?)",
                [(edition, a.position, t.path, t.steps, t.reward, t.bytes) for a in final if (t := a.trajectory)],
            )
            transaction.many(
                "UPDATE runs SET status = 'planned', attempts = ?, crc = NULL, change = ? WHERE edition_id = ? AND position = ?",
                [(a.number, change, edition, a.position) for a in again],
            )
            transaction.many(
                "INSERT INTO superseded VALUES (?, ?, ?)",
                [(edition, a.position, encode_metrics(a.metrics)) for a in again if a.metrics],
            )


def _hidden(text: str | None) -> str | None:
    """Text of a run as it is recorded: without secrets, and as both databases take it."""
    return None if text is None else storable(hide(text))


def _outcome_row(edition: int, a: Attempt) -> Row:
    """Return what `finish` writes into a run's row: `_OUTCOME` as both databases give it back, and the checksum."""
    # A column of numbers returns 1 as 1.0, and SQLite returns NaN as NULL.
    started, ended = (float(at) if at is not None and math.isfinite(at) else None for at in (a.started_at, a.ended_at))
    texts = _hidden(a.error), _hidden(a.command), encode_metrics(a.metrics)
    outcome = (a.status, a.number, started, ended, a.exit_code, *texts)
    return (*outcome, checksum(a.run_id, (a.arm, a.task), (a.seed, a.rollout, *outcome)), edition, a.position)
