"""One edition of an experiment in the database: the plan goes in, results go in, records come out.

    edition = Edition.open(find_edition("sorting", root))
    for run in edition.runs():
        print(run.run_id, run.status, run.metrics)

Only the lease's holder writes. A batch of results is one transaction: `finish` returns when it is on disk.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import BakeoffError, LeaseHeld, StorageError, UsageError
from bakeoff.records.database import LOCK, TABLE_NAMES, URL_VARIABLE, Database, Row, connect
from bakeoff.records.layout import (
    DATABASE,
    LATEST,
    EditionPaths,
    all_editions,
    editions,
    find_edition,
    point_latest,
)  # fmt: skip
from bakeoff.records.lease import Lease, is_held
from bakeoff.records.run import (
    OPEN,
    Attempt,
    CellRecord,
    RunRecord,
    TrajectoryIndex,
    decode_metrics,
    encode_metrics,
    storable,
)  # fmt: skip

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.experiment import Experiment
    from bakeoff.spec.plan import Cell, Plan, Run

_RUNS = (
    "SELECT r.position, r.run_id, r.cell, c.arm, c.task, r.seed, r.rollout, r.status, r.attempts, r.started_at, "
    "r.ended_at, r.exit_code, r.error, r.command, r.metrics "
    "FROM runs r JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell WHERE r.edition_id = ?"
)
"""The columns of a `RunRecord`, in the order of its fields."""
_CELLS = "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells WHERE edition_id = ?"
_NOTHING_RUNS = "UPDATE runs SET status = 'planned' WHERE edition_id = ? AND status = 'running'"


class Edition:
    """An edition through one database connection. Close it when done; `contextlib.closing` does."""

    def __init__(self, database: Database, edition_id: int, paths: EditionPaths) -> None:
        self.database = database
        self.edition_id = edition_id
        self.paths = paths
        self._locked = False

    # -- creating and opening

    @classmethod
    def create(cls, plan: Plan, paths: EditionPaths, place: str | None = None) -> Edition:
        """A new edition without cells and runs, in the database `place`.

        By default that is BAKEOFF_DATABASE_URL where it is set, else a SQLite file in the edition's directory.
        """
        database = connect(place or os.environ.get(URL_VARIABLE) or str(paths.database))
        experiment = plan.experiment
        with database.transaction() as transaction:
            transaction.run(
                "INSERT INTO editions (experiment, edition, workload, dialect, spec, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    paths.experiment, paths.name, experiment.workload, plan.dialect, experiment.model_dump_json(),
                    time.time(),
                ),
            )  # fmt: skip
        database.close()
        return cls.open(paths, readonly=False)

    @classmethod
    def open(cls, paths: EditionPaths, *, readonly: bool = True) -> Edition:
        """Raises UsageError when nothing was recorded for `paths`, or when it is in a database that is not named."""
        place = str(paths.database) if paths.database.exists() else os.environ.get(URL_VARIABLE)
        if not place:
            # Nothing may be created here: an empty file would hide what PostgreSQL has.
            raise UsageError(
                f"{paths.directory}: no results are here; if they are in PostgreSQL, set {URL_VARIABLE} to its URL"
            )
        database = connect(place, readonly=readonly)
        # A mailed or renamed directory still holds its own edition: in a file there is only one.
        row = database.one(
            "SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?", (paths.experiment, paths.name)
        ) or (database.one("SELECT edition_id FROM editions") if database.engine == "sqlite" else None)
        if row is None:
            database.close()
            raise UsageError(f"{paths.directory}: no results were ever recorded here")
        return cls(database, row[0], paths)

    def lock(self) -> None:
        """In PostgreSQL the lease also holds across machines: a session-level advisory lock.

        Raises LeaseHeld when another scheduler has it.
        """
        if self.database.engine == "postgres":
            row = self.database.one(f"SELECT pg_try_advisory_lock({LOCK}, ?)", (self.edition_id,))
            if not (row and row[0]):
                raise LeaseHeld(f"{self.paths.experiment}/{self.paths.name} is being run from another machine")
            self._locked = True

    def close(self) -> None:
        if self._locked:  # a server notices a closed connection only after a moment
            try:
                self.database.one(f"SELECT pg_advisory_unlock({LOCK}, ?)", (self.edition_id,))
            except StorageError:
                pass  # the connection is lost, and the lock with it
        self.database.close()

    # -- writing the plan

    def add_cells(self, cells: Sequence[Cell], settings: frozenset[str]) -> None:
        """Replace the recorded cells by those of the plan.

        Runs that are recorded follow their cell to its new number. A cell that the plan no longer has is kept behind
        the others as long as it has runs. `settings` are parameters that say how to run; they are not columns.
        """
        from bakeoff.spec.experiment import flatten

        rows: list[Row] = []
        for cell in cells:
            arm, task, params = cell.arm, cell.task, dict(cell.params)
            columns = {name: value for name, value in flatten(params).items() if name.split(".")[0] not in settings}
            texts = json.dumps(params), json.dumps(columns)
            flags = json.dumps(list(arm.flags))
            rows.append((cell.index, arm.name, task.name, arm.base, arm.ablation, flags, task.digest, *texts))
        before = self.database.all(
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
            if self.planned() > position:  # counted inside the transaction, so the new rows are in it
                transaction.run("UPDATE editions SET complete = 0 WHERE edition_id = ?", (self.edition_id,))
        return self.planned() - position

    def restate(self, experiment: Experiment) -> None:
        """Replace the recorded experiment by one that asks for more, such as further seeds."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE editions SET spec = ? WHERE edition_id = ?", (experiment.model_dump_json(), self.edition_id)
            )

    # -- writing what happens

    def begin_session(self, provenance: Mapping[str, Any], planned: int) -> int:
        """Record that a scheduler starts. Returns the session's number, from 1."""
        number = int(self._value("SELECT COUNT(*) FROM sessions WHERE edition_id = ?")) + 1
        now = time.time()
        with self.database.transaction() as transaction:
            transaction.run(
                "INSERT INTO sessions (edition_id, session, started_at, seen_at, planned, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (self.edition_id, number, now, now, planned, json.dumps(provenance)),
            )
            transaction.run(_NOTHING_RUNS, (self.edition_id,))  # what a dead scheduler left as running was lost with it
        return number

    def beat(self, session: int, running: Iterable[Attempt]) -> None:
        """Record that the session is alive, and which attempts are running."""
        with self.database.transaction() as transaction:
            transaction.run(
                "UPDATE sessions SET seen_at = ? WHERE edition_id = ? AND session = ?",
                (time.time(), self.edition_id, session),
            )
            transaction.many(
                "UPDATE runs SET status = 'running', started_at = ? WHERE edition_id = ? AND position = ? "
                # not `succeeded`: a result that was recorded meanwhile must not be hidden
                "AND status IN ('planned', 'cancelled', 'infra_error', 'failed', 'timeout')",
                [(attempt.started_at, self.edition_id, attempt.position) for attempt in running],
            )

    def end_session(self, session: int, how: str) -> bool:
        """Record how the session ended. Returns whether every run has an outcome now."""
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
            transaction.run(_NOTHING_RUNS, (self.edition_id,))  # a run that a worker gave back was shown as running
        return not left

    def finish(self, attempts: Sequence[Attempt], session: int) -> None:
        """Record attempts that ended, in one transaction. When this returns they are durable."""
        edition = self.edition_id
        final = [a for a in attempts if a.final]
        again = [a for a in attempts if not a.final]
        retried = [(edition, a.position) for a in final if a.number > 1]
        with self.database.transaction() as transaction:
            transaction.many(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(edition, a.position, a.number, session, a.status, a.started_at, a.ended_at, a.exit_code,
                  storable(a.error)) for a in attempts],
            )  # fmt: skip
            # What an earlier attempt left is not this one's; what it reported is kept, since it was paid for.
            transaction.many(
                "INSERT INTO superseded SELECT edition_id, position, metrics FROM runs "
                "WHERE edition_id = ? AND position = ? AND metrics IS NOT NULL",
                retried,
            )
            for table in ("series", "trajectories"):
                transaction.many(f"DELETE FROM {table} WHERE edition_id = ? AND position = ?", retried)
            transaction.many(
                "UPDATE runs SET status = ?, attempts = ?, started_at = ?, ended_at = ?, exit_code = ?, error = ?, "
                "metrics = ?, command = ? WHERE edition_id = ? AND position = ?",
                [(a.status, a.number, a.started_at, a.ended_at, a.exit_code, storable(a.error),
                  encode_metrics(a.metrics), storable(a.command), edition, a.position) for a in final],
            )  # fmt: skip
            transaction.many(
                "INSERT INTO series VALUES (?, ?, ?)",
                [(edition, a.position, a.series) for a in final if a.series is not None],
            )
            transaction.many(
                "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?)",
                [(edition, a.position, t.path, t.steps, t.reward, t.bytes) for a in final if (t := a.trajectory)],
            )
            transaction.many(
                "UPDATE runs SET status = 'planned', attempts = ? WHERE edition_id = ? AND position = ?",
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
        return bool(self._value("SELECT complete FROM editions WHERE edition_id = ?"))

    def sessions(self) -> list[dict[str, Any]]:
        """Every session, oldest first: session, started_at, seen_at, ended, planned, provenance."""
        names = ("session", "started_at", "seen_at", "ended", "planned", "provenance")
        rows = self._named(names, "sessions", "ORDER BY session")
        return [{**row, "provenance": json.loads(row["provenance"])} for row in rows]

    def last_productive_session(self) -> int | None:
        """The newest session that recorded anything; None when there is none, or the results were imported."""
        number = self._value("SELECT MAX(session) FROM attempts WHERE edition_id = ?")
        return int(number) if number else None

    def spent(self, metric: str) -> float:
        """Sum of a metric over all attempts that reported it; NaN and infinities count nothing."""
        total = 0.0
        # `superseded` came with version 2; an older database that is only read does not have it.
        for table in ("runs", "superseded") if self.database.version > 1 else ("runs",):
            for (text,) in self.database.stream(
                f"SELECT metrics FROM {table} WHERE edition_id = ? AND metrics IS NOT NULL", (self.edition_id,)
            ):
                value = decode_metrics(text).get(metric)
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
        conditions = ["r.position > ?"]
        if statuses:
            conditions.append(f"r.status IN ({', '.join('?' * len(statuses))})")
        if cells is not None:  # an empty list matches nothing; numbers are no text that could carry SQL
            conditions.append(f"r.cell IN ({', '.join(str(int(cell)) for cell in cells) or 'NULL'})")
        most = "" if limit is None else f" LIMIT {int(limit)}"
        rows = self.database.stream(
            f"{_RUNS} AND {' AND '.join(conditions)} ORDER BY r.position{most}", (self.edition_id, after, *statuses)
        )
        for row in rows:
            *fields, metrics = row
            yield RunRecord(*fields, decode_metrics(metrics))  # type: ignore[call-arg]

    def run(self, position: int) -> RunRecord:
        """One run. Raises UsageError when the plan has no such position."""
        for run in self.runs(after=position - 1, limit=1):
            if run.position == position:
                return run
        raise UsageError(f"no run number {position}")

    def run_ids(self) -> set[str]:
        rows = self.database.stream("SELECT run_id FROM runs WHERE edition_id = ?", (self.edition_id,))
        return {run_id for (run_id,) in rows}

    def positions(self, pattern: str) -> list[tuple[int, str]]:
        """(position, run id) of runs whose id matches an SQL LIKE pattern with `!` as escape, in any case."""
        rows = self.database.all(
            "SELECT position, run_id FROM runs WHERE edition_id = ? AND LOWER(run_id) LIKE LOWER(?) ESCAPE '!' "
            "ORDER BY position",
            (self.edition_id, pattern),
        )
        return [(int(position), run_id) for position, run_id in rows]

    def planned(self) -> int:
        """How many runs the plan has."""
        return int(self._value("SELECT COUNT(*) FROM runs WHERE edition_id = ?"))

    def counts(self) -> dict[str, int]:
        """Number of runs by status."""
        rows = self.database.all(
            "SELECT status, COUNT(*) FROM runs WHERE edition_id = ? GROUP BY status", (self.edition_id,)
        )
        return {status: int(number) for status, number in rows}

    def counts_by_arm(self) -> dict[str, dict[str, int]]:
        """Number of runs by status, for each arm in plan order."""
        rows = self.database.all(
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
        """All cells by number, or only the one with this number."""
        values = (self.edition_id,) if number is None else (self.edition_id, number)
        which = "ORDER BY cell" if number is None else "AND cell = ?"
        return [
            CellRecord(
                cell, arm, task, base, ablation, json.loads(flags), digest, json.loads(params), json.loads(columns)
            )
            for cell, arm, task, base, ablation, flags, digest, params, columns in self.database.all(
                f"{_CELLS} {which}", values
            )
        ]

    def cell(self, number: int) -> CellRecord:
        """The cell that `RunRecord.cell` names."""
        (cell,) = self.cells(number)
        return cell

    def attempts(self, position: int) -> list[dict[str, Any]]:
        """A run's attempts, oldest first: attempt, session, status, started_at, ended_at, exit_code, error."""
        names = ("attempt", "session", "status", "started_at", "ended_at", "exit_code", "error")
        return self._named(names, "attempts", "AND position = ? ORDER BY attempt", position)

    def series(self, position: int) -> bytes | None:
        """A run's series as a block, which `records.series.read_block` reads; None when it logged nothing."""
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

    def trajectories(self) -> dict[int, TrajectoryIndex]:
        """Every trajectory that was recorded, by its run's position."""
        rows = self.database.all(
            "SELECT position, path, steps, reward, bytes FROM trajectories WHERE edition_id = ? ORDER BY position",
            (self.edition_id,),
        )
        return {int(position): TrajectoryIndex(*index) for position, *index in rows}

    def trajectory(self, position: int) -> TrajectoryIndex | None:
        return self.trajectories().get(position)

    def _named(self, names: Sequence[str], table: str, which: str = "", *values: int) -> list[dict[str, Any]]:
        """Rows of this edition as {column: value}."""
        rows = self.database.all(
            f"SELECT {', '.join(names)} FROM {table} WHERE edition_id = ? {which}", (self.edition_id, *values)
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _value(self, sql: str) -> Any:
        """The one value of a query about this edition."""
        row = self.database.one(sql, (self.edition_id,))
        assert row is not None
        return row[0]


def find_run(name: str, root: Path) -> tuple[Edition, int]:
    """The edition and position of the run that a user's `name` means. The caller closes the edition.

    `name` is `latest`, an id, a part of an id that only one run has, or a run's directory. `experiment/run` and
    `experiment/latest` narrow it to one experiment. Raises UsageError when no run or several match.
    """
    where, _, run = name.rstrip("/").rpartition("/")
    if run == LATEST:
        edition = Edition.open(find_edition(where or LATEST, root))
        row = edition.database.one(
            "SELECT position FROM runs WHERE edition_id = ? AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT 1",
            (edition.edition_id,),
        )
        if row is None:
            edition.close()
            raise UsageError(f"{edition.paths.experiment}/{edition.paths.name}: no run has started yet")
        return edition, int(row[0])
    if where:
        in_runs = Path(where).is_dir() and Path(where).name == "runs"
        searched = [find_edition(str(Path(where).parent) if in_runs else where, root)]
    else:
        searched = all_editions(root.absolute())
    part = run.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    unreadable = ""
    for paths in searched:
        try:
            edition = Edition.open(paths)
        except BakeoffError as error:
            if where:
                raise
            unreadable = f". Not searched: {error}"
            continue
        matches = edition.positions(part) or edition.positions(f"%{part}%")
        if len(matches) == 1:
            return edition, matches[0][0]
        edition.close()
        if matches:
            listed = ", ".join(run_id for _, run_id in matches[:5]) + (" ..." if len(matches) > 5 else "")
            raise UsageError(f"{run!r} could be {len(matches)} runs of {paths.experiment}/{paths.name}: {listed}")
    hint = "`bakeoff status EXPERIMENT --runs` lists them"
    raise UsageError(f"no run called {run!r} under {root.absolute()}; {hint}{unreadable}")


def remove(paths: EditionPaths) -> None:
    """Delete an edition for good. Raises LeaseHeld while it is being run.

    Rows go first and the database file last: what an interrupted deletion leaves can still be seen and deleted again.
    """
    if is_held(paths.lease):
        raise LeaseHeld(f"{paths.experiment}/{paths.name} is being run; stop it before deleting it")
    with Lease(paths.lease):
        url = os.environ.get(URL_VARIABLE)
        if url and not paths.database.exists():
            with closing(connect(url)) as database, database.transaction() as transaction:
                of_edition = "(SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?)"
                for table in TABLE_NAMES:
                    transaction.run(
                        f"DELETE FROM {table} WHERE edition_id IN {of_edition}", (paths.experiment, paths.name)
                    )
        for entry in paths.directory.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif not entry.name.startswith((DATABASE, paths.lease.name)):
                entry.unlink()
        shutil.rmtree(paths.directory)
    # `latest` names the newest edition that is left; an experiment without editions has no directory.
    directory = paths.directory.parent
    link = directory / LATEST
    left = editions(directory)
    if left:
        if link.is_symlink() and not link.exists():
            point_latest(left[-1])
        return
    link.unlink(missing_ok=True)
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.exists():  # links that a dialect made through `latest`
            entry.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()
