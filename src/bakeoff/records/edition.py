"""One edition of an experiment in the database: the plan goes in, results go in, rows come out.

Only the lease's holder writes. A batch of results is one transaction: `finish` returns when it is on disk.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.database import URL_VARIABLE, Database, Transaction, connect
from bakeoff.records.layout import EditionPaths
from bakeoff.records.trajectory import TrajectoryIndex

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.experiment import Experiment
    from bakeoff.spec.plan import Cell, Plan, RunSpec
    from bakeoff.spec.workload import Scalar, Status

_JSON = msgspec.json.Encoder()


@dataclass(slots=True)
class Result:
    """What came of one try of one run."""

    position: int
    run_id: str
    attempt: int
    status: Status
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    series: bytes | None = None
    trajectory: TrajectoryIndex | None = None
    command: str | None = None
    final: bool = True
    """False when the run is tried again: the attempt is kept, the run stays planned."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A run that is to be done, and how often it was tried before."""

    position: int
    run_id: str
    cell: int
    seed: int
    rollout: int
    attempts: int


OPEN = ("planned", "running", "cancelled", "infra_error")
FAILED = ("failed", "timeout")


class Edition:
    def __init__(self, database: Database, edition_id: int, paths: EditionPaths) -> None:
        self.database = database
        self.edition_id = edition_id
        self.paths = paths
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

    def add_runs(self, runs: Iterable[RunSpec]) -> int:
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

    def run_ids(self) -> set[str]:
        rows = self.database.stream("SELECT run_id FROM runs WHERE edition_id = ?", (self.edition_id,))
        return {row[0] for row in rows}

    def planned(self) -> int:
        return int(self._value("SELECT COUNT(*) FROM runs WHERE edition_id = ?"))

    def pending(
        self, after: int, limit: int, *, retry_failed: bool = False, cells: Sequence[int] | None = None
    ) -> list[Pending]:
        """Runs still to be done behind `after`, in plan order."""
        statuses = (*OPEN, *FAILED) if retry_failed else OPEN
        if cells is not None and not cells:
            return []
        among = f"AND cell IN ({', '.join(str(int(cell)) for cell in cells)})" if cells is not None else ""
        rows = self.database.all(
            "SELECT position, run_id, cell, seed, rollout, attempts FROM runs WHERE edition_id = ? AND position > ? "
            f"AND status IN ({', '.join('?' * len(statuses))}) {among} ORDER BY position LIMIT ?",
            (self.edition_id, after, *statuses, limit),
        )
        return [Pending(*row) for row in rows]

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

    def beat(self, session: int, running: Iterable[tuple[int, float]]) -> None:
        """Say that the session lives, and which runs have been going on for a while (position, start)."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ? WHERE edition_id = ? AND session = ?",
                (time.time(), self.edition_id, session),
            )
            transaction.many(
                "UPDATE runs SET status = 'running', started_at = ? WHERE edition_id = ? AND position = ? "
                "AND status IN ('planned', 'cancelled', 'infra_error', 'failed', 'timeout')",
                [(start, self.edition_id, position) for position, start in running],
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

    def finish(self, results: Sequence[Result], session: int) -> None:
        """Record results in one transaction. When this returns they are durable."""
        edition = self.edition_id
        attempts, updates, again, lost = [], [], [], []
        for r in results:
            error = storable(r.error)
            attempts.append(
                (edition, r.position, r.attempt, session, r.status, r.started_at, r.ended_at, r.exit_code, error)
            )
            if r.final:
                updates.append(
                    (r.status, r.attempt, r.started_at, r.ended_at, r.exit_code, error, encode_metrics(r.metrics),
                     storable(r.command), edition, r.position)
                )  # fmt: skip
            else:
                again.append((r.attempt, edition, r.position))
                if r.metrics:
                    lost.append((edition, r.position, encode_metrics(r.metrics)))
        blocks = [(edition, r.position, r.series) for r in results if r.final and r.series is not None]
        paths = [
            (edition, r.position, t.path, t.steps, t.reward, t.bytes)
            for r in results
            if r.final and (t := r.trajectory) is not None
        ]
        with self.database.transaction() as transaction:
            transaction.many("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", attempts)
            tried_before = [(edition, r.position) for r in results if r.final and r.attempt > 1]
            if tried_before:
                transaction.many(
                    "INSERT INTO superseded SELECT edition_id, position, metrics FROM runs "
                    "WHERE edition_id = ? AND position = ? AND metrics IS NOT NULL",
                    tried_before,
                )
                for table in ("series", "trajectories"):  # what an earlier try left is not this one's
                    transaction.many(f"DELETE FROM {table} WHERE edition_id = ? AND position = ?", tried_before)
            transaction.many(
                "UPDATE runs SET status = ?, attempts = ?, started_at = ?, ended_at = ?, exit_code = ?, error = ?, "
                "metrics = ?, command = ? WHERE edition_id = ? AND position = ?",
                updates,
            )
            if lost:
                transaction.many("INSERT INTO superseded VALUES (?, ?, ?)", lost)
            if again:
                transaction.many(
                    "UPDATE runs SET status = 'planned', attempts = ? WHERE edition_id = ? AND position = ?", again
                )
            if blocks:
                transaction.many(
                    "INSERT INTO series VALUES (?, ?, ?) ON CONFLICT (edition_id, position) DO UPDATE SET block = excluded.block",
                    blocks,
                )
            if paths:
                transaction.many(
                    "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (edition_id, position) DO UPDATE SET "
                    "path = excluded.path, steps = excluded.steps, reward = excluded.reward, bytes = excluded.bytes",
                    paths,
                )

    # -- reading

    def counts(self) -> dict[str, int]:
        rows = self.database.all(
            "SELECT status, COUNT(*) FROM runs WHERE edition_id = ? GROUP BY status", (self.edition_id,)
        )
        return {status: int(number) for status, number in rows}

    def statuses(self) -> Iterator[tuple[Pending, str]]:
        """Every run and its status, in plan order."""
        for *run, status in self.database.stream(
            "SELECT position, run_id, cell, seed, rollout, attempts, status FROM runs WHERE edition_id = ? ORDER BY position",
            (self.edition_id,),
        ):
            yield Pending(*run), status

    def counts_by_arm(self) -> dict[str, dict[str, int]]:
        rows = self.database.all(
            "SELECT c.arm, r.status, COUNT(*) FROM runs r JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell "
            "WHERE r.edition_id = ? GROUP BY c.arm, r.status, c.cell ORDER BY c.cell",
            (self.edition_id,),
        )
        found: dict[str, dict[str, int]] = {}
        for arm, status, number in rows:
            counts = found.setdefault(arm, {})
            counts[status] = counts.get(status, 0) + int(number)
        return found

    @property
    def complete(self) -> bool:
        return bool(self._value("SELECT complete FROM editions WHERE edition_id = ?"))

    def facts(self) -> dict[str, Any]:
        """The edition's own row."""
        row = self.database.one(
            "SELECT experiment, edition, workload, dialect, spec, created_at, complete FROM editions WHERE edition_id = ?",
            (self.edition_id,),
        )
        assert row is not None
        names = ("experiment", "edition", "workload", "dialect", "spec", "created_at", "complete")
        return {**dict(zip(names, row, strict=True)), "spec": json.loads(row[4]), "complete": bool(row[6])}

    def sessions(self) -> list[dict[str, Any]]:
        rows = self.database.all(
            "SELECT session, started_at, seen_at, ended, planned, provenance FROM sessions WHERE edition_id = ? ORDER BY session",
            (self.edition_id,),
        )
        names = ("session", "started_at", "seen_at", "ended", "planned", "provenance")
        return [{**dict(zip(names, row, strict=True)), "provenance": json.loads(row[5])} for row in rows]

    def last_productive_session(self) -> int | None:
        """The newest session that recorded anything; 0 stands for results that were imported."""
        found = self._value("SELECT MAX(session) FROM attempts WHERE edition_id = ?")
        return int(found) if found else None

    def spent(self, metric: str) -> float:
        """Sum of a metric over every try that reported it; a NaN would make every budget endless, so it counts nothing."""
        total = 0.0
        for table in ("runs", "superseded") if self.database.version > 1 else ("runs",):
            for (text,) in self.database.stream(
                f"SELECT metrics FROM {table} WHERE edition_id = ? AND metrics IS NOT NULL", (self.edition_id,)
            ):
                value = decode_metrics(text).get(metric)
                total += float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
        return total

    def cells(self, number: int | None = None) -> list[dict[str, Any]]:
        """All cells, or the one with this number."""
        rows = self.database.all(
            "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells "
            f"WHERE edition_id = ? {'' if number is None else 'AND cell = ?'} ORDER BY cell",
            (self.edition_id,) if number is None else (self.edition_id, number),
        )
        names = ("cell", "arm", "task", "base", "ablation", "flags", "task_digest", "params", "columns")
        as_json = {"flags", "params", "columns"}
        return [
            {name: json.loads(value) if name in as_json else value for name, value in zip(names, row, strict=True)}
            for row in rows
        ]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """position, run_id, cell, seed, rollout, status, attempts, started_at, ended_at, exit_code, error, metrics text."""
        return self.database.stream(
            "SELECT position, run_id, cell, seed, rollout, status, attempts, started_at, ended_at, exit_code, error, "
            "metrics FROM runs WHERE edition_id = ? ORDER BY position",
            (self.edition_id,),
        )

    def run(self, position: int) -> dict[str, Any]:
        """Everything about one run."""
        row = self.database.one(
            "SELECT position, run_id, cell, seed, rollout, status, attempts, started_at, ended_at, exit_code, error, "
            "metrics, command FROM runs WHERE edition_id = ? AND position = ?",
            (self.edition_id, position),
        )
        if row is None:
            raise UsageError(f"no run number {position}")
        names = ("position", "run_id", "cell", "seed", "rollout", "status", "attempts", "started_at", "ended_at",
                 "exit_code", "error", "metrics", "command")  # fmt: skip
        found = dict(zip(names, row, strict=True))
        found["metrics"] = decode_metrics(found["metrics"])
        (cell,) = self.cells(found["cell"])
        return {
            **found,
            **{key: cell[key] for key in ("arm", "task", "base", "ablation", "flags", "params", "columns")},
        }

    def attempts(self, position: int) -> list[dict[str, Any]]:
        names = ("attempt", "session", "status", "started_at", "ended_at", "exit_code", "error")
        rows = self.database.all(
            f"SELECT {', '.join(names)} FROM attempts WHERE edition_id = ? AND position = ? ORDER BY attempt",
            (self.edition_id, position),
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def series(self, position: int) -> bytes | None:
        row = self.database.one(
            "SELECT block FROM series WHERE edition_id = ? AND position = ?", (self.edition_id, position)
        )
        return bytes(row[0]) if row else None

    def all_series(self) -> Iterator[tuple[int, bytes]]:
        """(position, block) of every run that logged steps."""
        rows = self.database.stream(
            "SELECT position, block FROM series WHERE edition_id = ? ORDER BY position", (self.edition_id,), size=200
        )
        return ((int(position), bytes(block)) for position, block in rows)

    def trajectory(self, position: int) -> TrajectoryIndex | None:
        row = self.database.one(
            "SELECT path, steps, reward, bytes FROM trajectories WHERE edition_id = ? AND position = ?",
            (self.edition_id, position),
        )
        return TrajectoryIndex(*row) if row else None

    def trajectories(self) -> dict[int, TrajectoryIndex]:
        """Every trajectory that was recorded, by its run's position."""
        rows = self.database.all(
            "SELECT position, path, steps, reward, bytes FROM trajectories WHERE edition_id = ? ORDER BY position",
            (self.edition_id,),
        )
        return {int(position): TrajectoryIndex(*index) for position, *index in rows}

    def positions(self, pattern: str) -> list[tuple[int, str]]:
        """Runs whose id matches an SQL LIKE pattern, in small letters or large."""
        return [
            (int(position), run_id)
            for position, run_id in self.database.all(
                "SELECT position, run_id FROM runs WHERE edition_id = ? AND LOWER(run_id) LIKE LOWER(?) ESCAPE '!' ORDER BY position",
                (self.edition_id, pattern),
            )
        ]

    def latest_run(self) -> int | None:
        row = self.database.one(
            "SELECT position FROM runs WHERE edition_id = ? AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT 1",
            (self.edition_id,),
        )
        return int(row[0]) if row else None

    def _value(self, sql: str) -> Any:
        row = self.database.one(sql, (self.edition_id,))
        assert row is not None
        return row[0]


def _cell_row(cell: Cell, settings: frozenset[str]) -> tuple[Any, ...]:
    """arm, task, base, ablation, flags, task_digest, params, columns."""
    from bakeoff.spec.experiment import flatten

    params = dict(cell.params)
    columns = {name: value for name, value in flatten(params).items() if name.split(".")[0] not in settings}
    arm, task = cell.arm, cell.task
    flags = json.dumps(list(arm.flags))
    return arm.name, task.name, arm.base, arm.ablation, flags, task.digest, json.dumps(params), json.dumps(columns)


def encode_metrics(metrics: Mapping[str, Scalar]) -> str | None:
    """JSON text; NaN and infinities as Python's json writes them, since standard JSON would lose them."""
    if not metrics:
        return None
    for value in metrics.values():
        if isinstance(value, float) and not math.isfinite(value):
            return json.dumps(dict(metrics))
    try:
        return _JSON.encode(metrics).decode()
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a number of more than 64 bits
        storables = {name: storable(value) if isinstance(value, str) else value for name, value in metrics.items()}
        return json.dumps(storables)


def storable(text: str | None) -> str | None:
    """Text that both databases take: what a run says may hold anything."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def decode_metrics(text: str | None) -> dict[str, Scalar]:
    if not text:
        return {}
    try:
        found: dict[str, Scalar] = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = json.loads(text)
    return found
