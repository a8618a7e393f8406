"""One edition of an experiment in the database: the plan goes in, results go in, records come out.

    edition = Edition.open(find_edition("sorting", root))
    for run in edition.runs():
        print(run.run_id, run.status, run.metrics)

Only the lease's holder writes runs; readers record that they looked (`records.looks`). A batch of results is one transaction: `finish` returns when it is on disk.
"""

from __future__ import annotations

import json
import math
import os
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.errors import Damaged, LeaseHeld, UsageError
from bakeoff.records.files import refuse_links
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import (
    OPEN,
    RUN_COLUMNS,
    Attempt,
    CellRecord,
    RunRecord,
    TrajectoryIndex,
    TryRecord,
    decode_json,
    encode_metrics,
    storable,
)  # fmt: skip
from bakeoff.records.schema import allow_missing_seeds
from bakeoff.records.secrets import hide, hide_json, hide_tree
from bakeoff.records.store import URL_VARIABLE, Database, Row, connect

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.experiment import Experiment
    from bakeoff.spec.plan import Cell, Plan, Run

_RUNS = f"SELECT {', '.join(RUN_COLUMNS)}, {{crc}} FROM runs WHERE edition_id = ?"
_OUTCOME = list(RUN_COLUMNS)[list(RUN_COLUMNS).index("status") :]
"""The columns of a run that its last attempt fills in."""
_CELLS = "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells WHERE edition_id = ?"
_pack = msgspec.msgpack.Encoder().encode
OPENED: deque[EditionPaths] = deque(maxlen=100)
"""Editions that this process opened last: where to look for damage when a verb fails (`records.damage`)."""
_UNCLAIM = "DELETE FROM claims WHERE edition_id = ? AND position = ? AND token = ?"
_NOTHING_RUNS = "UPDATE runs SET status = 'planned' WHERE edition_id = ? AND status = 'running'"


@dataclass(eq=False)
class Edition:
    """An edition through one database connection. Close it when done; `contextlib.closing` does."""

    database: Database
    edition_id: int
    paths: EditionPaths
    node: str | None = None
    """What runs attempts that name no node: the record of this machine (records/claims.py)."""
    _session: int | None = None
    _began: tuple[float, float] = (0.0, 0.0)
    """When the session began: seconds since the epoch, and `time.monotonic()`."""
    _names: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(arm, task) by the number of a cell, read when a run needs it."""

    # -- creating and opening

    @classmethod
    def create(cls, plan: Plan, paths: EditionPaths) -> Edition:
        """A new edition without cells and runs, in the database `place`.

        By default that is BAKEOFF_DATABASE_URL where it is set, else a SQLite file in the edition's directory.
        """
        database = connect(os.environ.get(URL_VARIABLE) or str(paths.database))
        experiment = plan.experiment
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

    @classmethod
    def open(cls, paths: EditionPaths, *, readonly: bool = True) -> Edition:
        """Raises UsageError when nothing was recorded for `paths`, or when it is in a database that is not named."""
        OPENED.append(paths)
        refuse_links(paths.directory)
        place = str(paths.database) if os.path.lexists(paths.database) else os.environ.get(URL_VARIABLE)
        if not place:
            # Nothing may be created here: an empty file would hide what PostgreSQL has.
            raise UsageError(
                f"{paths.directory}: no results are here; if they are in PostgreSQL, set {URL_VARIABLE} to its URL"
            )
        database = connect(place, readonly=readonly)
        # A mailed or renamed directory still holds its own edition: in a file there is only one.
        number = database.value(
            "SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?", (paths.experiment, paths.name)
        )
        if number is None and database.engine == "sqlite":
            number = database.value("SELECT edition_id FROM editions")
        if number is None:
            database.close()
            raise UsageError(f"{paths.directory}: no results were ever recorded here")
        return cls(database, number, paths)

    def lock(self, patience: float = 0.0) -> None:
        """Take the lease across machines too, where the database is PostgreSQL.

        Raises LeaseHeld when another scheduler still has it after `patience` seconds.
        """
        self.database.lock(self.edition_id, f"{self.paths.experiment}/{self.paths.name}", self._is_ours, patience)

    def _is_ours(self) -> bool:
        """Whether no other scheduler has begun a session since this one did."""
        newest = self.database.value("SELECT MAX(session) FROM sessions WHERE edition_id = ?", (self.edition_id,))
        return self._session in (None, newest)

    def close(self) -> None:
        self.database.close()

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
            f"{_CELLS} AND EXISTS (SELECT 1 FROM runs r WHERE r.edition_id = cells.edition_id AND r.cell = cells.cell) "
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
                    "UPDATE runs SET cell = (SELECT new FROM moves WHERE old = cell) "
                    "WHERE edition_id = ? AND cell IN (SELECT old FROM moves)",
                    (self.edition_id,),
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
        rows = ((self.edition_id, position + offset, *row) for offset, row in enumerate(fresh))
        counts = self.counts()
        waiting = counts.get("planned", 0) + counts.get("running", 0)
        with self.database.transaction() as transaction:
            transaction.many(
                "INSERT INTO runs (edition_id, position, run_id, cell, seed, rollout) VALUES (?, ?, ?, ?, ?, ?)", rows
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
            transaction.many(
                "DELETE FROM runs WHERE edition_id = ? AND position = ? AND status = 'planned' AND attempts = 0",
                [(self.edition_id, position) for position in positions],
            )

    def restate(self, experiment: Experiment) -> None:
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
                (self.edition_id, self.edition_id),
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
            transaction.many(
                "UPDATE runs SET status = 'running', started_at = ?, crc = NULL WHERE edition_id = ? AND position = ? "
                # not `succeeded`: a result that was recorded meanwhile must not be hidden
                "AND status IN ('planned', 'cancelled', 'infra_error', 'failed', 'timeout')",
                [(attempt.started_at, self.edition_id, attempt.position) for attempt in running],
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
            transaction.run(_NOTHING_RUNS, (self.edition_id,))  # a run that a worker gave back was shown as running
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
            transaction.many(
                f"UPDATE runs SET {' = ?, '.join(_OUTCOME)} = ?, crc = ? WHERE edition_id = ? AND position = ?",
                [_outcome_row(edition, a) for a in final],
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
                "UPDATE runs SET status = 'planned', attempts = ?, crc = NULL WHERE edition_id = ? AND position = ?",
                [(a.number, edition, a.position) for a in again],
            )
            transaction.many(
                "INSERT INTO superseded VALUES (?, ?, ?)",
                [(edition, a.position, encode_metrics(a.metrics)) for a in again if a.metrics],
            )

    # -- reading the edition and its sessions

    def facts(self) -> dict[str, Any]:
        """The edition's own row: experiment, edition, workload, dialect, spec, created_at, complete.

        `spec` is the experiment as a table, the form that `Experiment.model_validate` takes.
        """
        names = ("experiment", "edition", "workload", "dialect", "spec", "created_at", "complete")
        (row,) = self._named(names, "editions")
        return {**row, "spec": json.loads(row["spec"]), "complete": bool(row["complete"])}

    @property
    def complete(self) -> bool:
        """Whether every run had an outcome when the last session ended."""
        return bool(self.database.value("SELECT complete FROM editions WHERE edition_id = ?", (self.edition_id,)))

    def sessions(self) -> list[dict[str, Any]]:
        """Every session, oldest first: session, started_at, seen_at, ended, planned, provenance."""
        names = ("session", "started_at", "seen_at", "ended", "planned", "provenance")
        rows = self._named(names, "sessions", "ORDER BY session")
        return [{**row, "provenance": json.loads(row["provenance"])} for row in rows]

    def order_seed(self) -> int | None:
        """The seed that draws the order of arms in each block, as the newest session recorded it; None when imported."""
        seeds = (session["provenance"].get("order_seed") for session in reversed(self.sessions()))
        return next((int(seed) for seed in seeds if seed is not None), None)

    def last_productive_session(self) -> int | None:
        """The newest session that recorded anything; None when there is none, or the results were imported."""
        number = self.database.value("SELECT MAX(session) FROM attempts WHERE edition_id = ?", (self.edition_id,))
        return int(number) if number else None

    def time_spent(self) -> float:
        """Wall time over all sessions, in seconds."""
        return sum(float(session["seen_at"] - session["started_at"]) for session in self.sessions())

    def spent(self, metric: str) -> float:
        """Sum of a metric over all attempts that reported it; NaN and infinities count nothing."""
        total = 0.0
        # `superseded` came with version 2; an older database that is only read does not have it.
        for table in ("runs", "superseded") if self.database.version > 1 else ("runs",):
            for (text,) in self.database.rows(
                f"SELECT metrics FROM {table} WHERE edition_id = ? AND metrics IS NOT NULL", (self.edition_id,)
            ):
                value = decode_json(text).get(metric)
                total += float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
        return total

    # -- reading runs

    def runs(
        self,
        statuses: Sequence[str] = (),
        *,
        after: int = -1,
        limit: int | None = None,
        cells: Sequence[int] | None = None,
    ) -> Iterator[RunRecord]:
        """Runs in plan order; by default all of them, whatever became of them.

        `statuses` and `cells` ask for runs with one of these, `after` for runs behind this position, and `limit` for
        so many at most. Rows are fetched in pages, not all at once.
        """
        conditions = ["position > ?"]
        if statuses:
            conditions.append(f"status IN ({', '.join('?' * len(statuses))})")
        if cells is not None:  # an empty list matches nothing; numbers are no text that could carry SQL
            conditions.append(f"cell IN ({', '.join(str(int(cell)) for cell in cells) or 'NULL'})")
        most = "" if limit is None else f" LIMIT {int(limit)}"
        select, mine = _RUNS.format(crc="crc" if self.database.version > 2 else "NULL"), (self.edition_id,)
        for row in self.database.rows(
            f"{select} AND {' AND '.join(conditions)} ORDER BY position{most}", (self.edition_id, after, *statuses)
        ):
            run_id, cell, facts, crc = row[1], row[2], row[3:-1], row[-1]
            if cell not in self._names:  # the plan may have grown since cells were read last
                self._names = {number: (arm, task) for number, arm, task, *_ in self.database.rows(_CELLS, mine)}
                if cell not in self._names:
                    raise Damaged(self.paths.directory, f"run {run_id!r} belongs to cell {cell}, and there is none")
            names = self._names[cell]
            # What was recorded must be what is read: a flipped bit in a metric would be a wrong verdict.
            if crc is not None and crc != _crc(run_id, names, facts):
                raise Damaged(self.paths.directory, f"the record of run {run_id!r} does not match its checksum")
            try:
                metrics = decode_json(facts[-1])
            except ValueError as error:
                raise Damaged(
                    self.paths.directory, f"the metrics of run {run_id!r} are not a table: {error}"
                ) from error
            yield RunRecord(*row[:3], *names, *facts[:-1], metrics)  # type: ignore[call-arg]

    def run(self, position: int) -> RunRecord:
        """One run. Raises UsageError when the plan has no such position."""
        for run in self.runs(after=position - 1, limit=1):
            if run.position == position:
                return run
        raise UsageError(f"no run number {position}")

    def run_ids(self) -> set[str]:
        rows = self.database.rows("SELECT run_id FROM runs WHERE edition_id = ?", (self.edition_id,))
        return {run_id for (run_id,) in rows}

    def positions(self, pattern: str) -> list[tuple[int, str]]:
        """(position, run id) of runs whose id matches an SQL LIKE pattern with `!` as escape, in any case."""
        rows = self.database.rows(
            "SELECT position, run_id FROM runs WHERE edition_id = ? AND LOWER(run_id) LIKE LOWER(?) ESCAPE '!' "
            "ORDER BY position",
            (self.edition_id, pattern),
        )
        return [(int(position), run_id) for position, run_id in rows]

    def planned(self) -> int:
        """How many runs the plan has."""
        return int(self.database.value("SELECT COUNT(*) FROM runs WHERE edition_id = ?", (self.edition_id,)))

    def end_of_plan(self) -> int:
        """The position behind the last run; more than `planned` when runs were withdrawn."""
        last = self.database.value("SELECT MAX(position) FROM runs WHERE edition_id = ?", (self.edition_id,))
        return 0 if last is None else int(last) + 1

    def counts(self) -> dict[str, int]:
        """Number of runs by status."""
        rows = self.database.rows(
            "SELECT status, COUNT(*) FROM runs WHERE edition_id = ? GROUP BY status", (self.edition_id,)
        )
        return {status: int(number) for status, number in rows}

    def counts_by_arm(self) -> dict[str, dict[str, int]]:
        """Number of runs by status, for each arm in plan order."""
        rows = self.database.rows(
            "SELECT c.arm, r.status, COUNT(*) FROM runs r JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell "
            "WHERE r.edition_id = ? GROUP BY c.arm, r.status, c.cell ORDER BY c.cell",
            (self.edition_id,),
        )
        by_arm: dict[str, dict[str, int]] = {}
        for arm, status, number in rows:
            counts = by_arm.setdefault(arm, {})
            counts[status] = counts.get(status, 0) + int(number)
        return by_arm

    def cells(self, number: int | None = None) -> list[CellRecord]:
        """All cells by number, or only the one with this number, which `RunRecord.cell` names."""
        values = (self.edition_id,) if number is None else (self.edition_id, number)
        which = "ORDER BY cell" if number is None else "AND cell = ?"
        return [
            CellRecord(
                cell, arm, task, base, ablation, json.loads(flags), digest, json.loads(params), json.loads(columns)
            )
            for cell, arm, task, base, ablation, flags, digest, params, columns in self.database.rows(
                f"{_CELLS} {which}", values
            )
        ]

    def attempts(self, position: int, since: int = 1) -> list[dict[str, Any]]:
        """A run's attempts from number `since` on, oldest first: attempt, session, status, started_at, ended_at,
        exit_code, error, node, lost."""
        names: tuple[str, ...] = ("attempt", "session", "status", "started_at", "ended_at", "exit_code", "error")
        if self.database.version > 4:
            names = (*names, "node", "lost")
        return self._named(names, "attempts", "AND position = ? AND attempt >= ? ORDER BY attempt", position, since)

    def attempts_by_node(self) -> dict[str, int]:
        """How many attempts ended on each node; those of older databases, which name none, are left out."""
        if self.database.version < 5:
            return {}
        rows = self.database.rows(
            "SELECT node, COUNT(*) FROM attempts WHERE edition_id = ? AND node IS NOT NULL GROUP BY node",
            (self.edition_id,),
        )
        return {node: int(number) for node, number in rows}

    def losses_alone(self, position: int) -> int:
        """How many attempts of the run were lost while other attempts on their node survived."""
        return int(
            self.database.value(
                "SELECT COUNT(*) FROM attempts WHERE edition_id = ? AND position = ? AND lost = 'alone'",
                (self.edition_id, position),
            )
        )

    def tried(self) -> dict[str, int]:
        """How many runs of each arm were tried at all, in plan order."""
        rows = self.database.rows(
            "SELECT c.arm, SUM(CASE WHEN r.attempts > 0 THEN 1 ELSE 0 END) FROM runs r JOIN cells c "
            "ON c.edition_id = r.edition_id AND c.cell = r.cell WHERE r.edition_id = ? GROUP BY c.arm ORDER BY MIN(c.cell)",
            (self.edition_id,),
        )
        return {arm: int(number) for arm, number in rows}

    def tries(self) -> Iterator[TryRecord]:
        """Every attempt of each run that was tried more than once or has no outcome, in plan order, oldest first."""
        rows = self.database.rows(
            "SELECT c.arm, a.position, a.attempt, a.session, a.status, a.started_at, a.ended_at, r.status "
            "FROM attempts a JOIN runs r ON r.edition_id = a.edition_id AND r.position = a.position "
            "JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell WHERE a.edition_id = ? "
            f"AND (r.attempts > 1 OR r.status IN ({', '.join(repr(s) for s in OPEN)})) ORDER BY a.position, a.attempt",
            (self.edition_id,),
        )
        return (TryRecord(*row) for row in rows)

    def superseded(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(position, metrics) of attempts that no longer count and reported any."""
        if self.database.version < 2:  # the table came with version 2
            return
        rows = self.database.rows("SELECT position, metrics FROM superseded WHERE edition_id = ?", (self.edition_id,))
        for position, text in rows:
            yield int(position), decode_json(text)

    def series(self, position: int) -> bytes | None:
        """A run's series as a block, which `records.series.read_block` reads; None when it logged nothing."""
        block = self.database.value(
            "SELECT block FROM series WHERE edition_id = ? AND position = ?", (self.edition_id, position)
        )
        return None if block is None else bytes(block)

    def all_series(self) -> Iterator[tuple[int, bytes]]:
        """(position, block) of every run that logged steps."""
        rows = self.database.rows(
            "SELECT position, block FROM series WHERE edition_id = ? ORDER BY position", (self.edition_id,), size=200
        )
        return ((int(position), bytes(block)) for position, block in rows)

    def trajectories(self) -> dict[int, TrajectoryIndex]:
        """Every trajectory that was recorded, by its run's position."""
        rows = self.database.rows(
            "SELECT position, path, steps, reward, bytes FROM trajectories WHERE edition_id = ? ORDER BY position",
            (self.edition_id,),
        )
        return {int(position): TrajectoryIndex(*index) for position, *index in rows}

    def _named(self, names: Sequence[str], table: str, which: str = "", *values: int) -> list[dict[str, Any]]:
        """Rows of this edition as {column: value}."""
        rows = self.database.rows(
            f"SELECT {', '.join(names)} FROM {table} WHERE edition_id = ? {which}", (self.edition_id, *values)
        )
        return [dict(zip(names, row, strict=True)) for row in rows]


def _crc(run_id: str, names: tuple[str, str], facts: Row) -> int:
    """Return the checksum of a run: of its id, its arm and task, and its columns from seed to metrics.

    Arm and task stand for the cell, whose number changes when the plan grows. MessagePack has one encoding for each
    value and is quick: a hundred thousand runs take a tenth of a second.
    """
    return zlib.crc32(_pack((run_id, names, facts)))


def _hidden(text: str | None) -> str | None:
    """Text of a run as it is recorded: without secrets, and as both databases take it."""
    return None if text is None else storable(hide(text))


def _outcome_row(edition: int, a: Attempt) -> Row:
    """Return what `finish` writes into a run's row: `_OUTCOME` as both databases give it back, and the checksum."""
    # A column of numbers returns 1 as 1.0, and SQLite returns NaN as NULL.
    started, ended = (float(at) if at is not None and math.isfinite(at) else None for at in (a.started_at, a.ended_at))
    texts = _hidden(a.error), _hidden(a.command), encode_metrics(a.metrics)
    outcome = (a.status, a.number, started, ended, a.exit_code, *texts)
    return (*outcome, _crc(a.run_id, (a.arm, a.task), (a.seed, a.rollout, *outcome)), edition, a.position)
