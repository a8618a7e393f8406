"""What is on record about one edition of an experiment: its facts, sessions, cells, runs, attempts and series.

    recorded = Recorded.open(find_edition("sorting", root))
    for run in recorded.runs():
        print(run.run_id, run.status, run.metrics)

`Edition` (edition.py) is this and what writes it.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import msgspec

from bakeoff.errors import Damaged, UsageError
from bakeoff.records.files import refuse_links
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import OPEN, RUN_COLUMNS, CellRecord, RunRecord, TrajectoryIndex, TryRecord, decode_json
from bakeoff.records.store import URL_VARIABLE, Database, Row, connect
from bakeoff.spec.identity import run_id_in

_RUNS = f"SELECT {', '.join(RUN_COLUMNS)}, {{crc}} FROM runs WHERE edition_id = ?"
CELLS = "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells WHERE edition_id = ?"
_pack = msgspec.msgpack.Encoder().encode
OPENED: deque[EditionPaths] = deque(maxlen=100)
"""Editions that this process opened last: where to look for damage when a verb fails (`records.damage`)."""


CHANGES_SINCE = 8
"""The version of the database whose runs say when they changed."""


class Changes(NamedTuple):
    """How often the runs of an edition have changed; 0 where no run has changed since it was written by version 8."""

    number: int
    removed: int
    """The number of the last change that took runs out of the plan: who has seen less reads all runs again."""


@dataclass(eq=False)
class Recorded:
    """An edition through one database connection. Close it when done; `contextlib.closing` does."""

    database: Database
    edition_id: int
    paths: EditionPaths
    _names: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(arm, task) by the number of a cell, read when a run needs it."""

    @classmethod
    def open(cls, paths: EditionPaths, *, readonly: bool = True) -> Self:
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
        edition = cls(database, number, paths)
        try:
            edition._check_rows()
        except BaseException:
            database.close()
            raise
        return edition

    def _check_rows(self) -> None:
        """Raise Damaged when there are fewer runs than sessions have planned: a damaged page may be valid, and empty."""
        # A column that is in no index: an index may be whole where the table is not.
        found = self.database.value("SELECT COUNT(attempts) FROM runs WHERE edition_id = ?", (self.edition_id,))
        planned = self.database.value("SELECT MAX(planned) FROM sessions WHERE edition_id = ?", (self.edition_id,))
        if planned is None or found >= planned:
            return
        if self.facts()["spec"].get("sequential") is not None:  # its test withdraws runs that were never started
            planned = self.database.value(
                "SELECT COUNT(DISTINCT position) FROM attempts WHERE edition_id = ?", (self.edition_id,)
            )
        if found < planned:
            raise Damaged(self.database.label, f"{found} runs are left of {planned}")

    def close(self) -> None:
        self.database.close()

    # -- the edition and its sessions

    def facts(self) -> dict[str, Any]:
        """The edition's own row: experiment, edition, workload, dialect, spec, created_at, complete.

        `spec` is the experiment as a table, the form that `ExperimentFile.model_validate` takes.
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

    # -- runs

    def runs(
        self,
        statuses: Sequence[str] = (),
        *,
        after: int = -1,
        limit: int | None = None,
        cells: Sequence[int] | None = None,
        since: int | None = None,
    ) -> Iterator[RunRecord]:
        """Runs in plan order; by default all of them, whatever became of them.

        `statuses` and `cells` ask for runs with one of these, `after` for runs behind this position, and `limit` for
        so many at most. Rows are fetched in pages, not all at once. With `since`, the runs that changed after that
        number of `changes`, in the order in which they changed; not for databases before version `CHANGES_SINCE`.
        """
        order, floor = ("position", after) if since is None else ("change", since)
        conditions = [f"{order} > ?"]
        if statuses:
            conditions.append(f"status IN ({', '.join('?' * len(statuses))})")
        if cells is not None:  # an empty list matches nothing; numbers are no text that could carry SQL
            conditions.append(f"cell IN ({', '.join(str(int(cell)) for cell in cells) or 'NULL'})")
        most = "" if limit is None else f" LIMIT {int(limit)}"
        select, mine = _RUNS.format(crc="crc" if self.database.version > 2 else "NULL"), (self.edition_id,)
        for row in self.database.rows(
            f"{select} AND {' AND '.join(conditions)} ORDER BY {order}{most}", (self.edition_id, floor, *statuses)
        ):
            run_id, cell, facts, crc = row[1], row[2], row[3:-1], row[-1]
            run_id_in(self.paths.directory, run_id)
            if cell not in self._names:  # the plan may have grown since cells were read last
                self._names = {number: (arm, task) for number, arm, task, *_ in self.database.rows(CELLS, mine)}
                if cell not in self._names:
                    raise Damaged(self.paths.directory, f"run {run_id!r} belongs to cell {cell}, and there is none")
            names = self._names[cell]
            # What was recorded must be what is read: a flipped bit in a metric would be a wrong verdict.
            if crc is not None and crc != checksum(run_id, names, facts):
                raise Damaged(self.paths.directory, f"the record of run {run_id!r} does not match its checksum")
            try:
                metrics = decode_json(facts[-1])
            except ValueError as error:
                raise Damaged(
                    self.paths.directory, f"the metrics of run {run_id!r} are not a table: {error}"
                ) from error
            yield RunRecord(*row[:3], *names, *facts[:-1], metrics)  # type: ignore[call-arg]

    def changes(self) -> Changes:
        """Where the edition stands. A viewer that has read `runs(since=...)` asks with `number` the next time."""
        if self.database.version < CHANGES_SINCE:
            return Changes(0, 0)
        rows = self.database.rows("SELECT number, removed FROM changes WHERE edition_id = ?", (self.edition_id,))
        return next((Changes(*row) for row in rows), Changes(0, 0))

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
                f"{CELLS} {which}", values
            )
        ]

    def attempts(self, position: int, since: int = 1) -> list[dict[str, Any]]:
        """A run's attempts from number `since` on, oldest first: attempt, session, status, started_at, ended_at,
        exit_code, error, node, lost."""
        names: tuple[str, ...] = ("attempt", "session", "status", "started_at", "ended_at", "exit_code", "error")
        if self.database.version > 4:
            names = (*names, "node", "lost")
        return self._named(names, "attempts", "AND position = ? AND attempt >= ? ORDER BY attempt", position, since)

    def attempts_by_node(self) -> dict[str, Counter[str]]:
        """Count the attempts that ended on each node by status; those of older databases, which name no node, are left out."""
        if self.database.version < 5:
            return {}
        rows = self.database.rows(
            "SELECT node, status, COUNT(*) FROM attempts WHERE edition_id = ? AND node IS NOT NULL GROUP BY node, status",
            (self.edition_id,),
        )
        counts: dict[str, Counter[str]] = {}
        for node, status, number in rows:
            counts.setdefault(node, Counter())[status] = int(number)
        return counts

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

    def trajectory(self, position: int) -> TrajectoryIndex | None:
        """The trajectory of one run, by the run's position; None where it recorded none."""
        rows = self.database.rows(
            "SELECT path, steps, reward, bytes FROM trajectories WHERE edition_id = ? AND position = ?",
            (self.edition_id, position),
        )
        return next((TrajectoryIndex(*index) for index in rows), None)

    def _named(self, names: Sequence[str], table: str, which: str = "", *values: int) -> list[dict[str, Any]]:
        """Rows of this edition as {column: value}."""
        rows = self.database.rows(
            f"SELECT {', '.join(names)} FROM {table} WHERE edition_id = ? {which}", (self.edition_id, *values)
        )
        return [dict(zip(names, row, strict=True)) for row in rows]


def checksum(run_id: str, names: tuple[str, str], facts: Row) -> int:
    """Return the checksum of a run: of its id, its arm and task, and its columns from seed to metrics.

    Arm and task stand for the cell, whose number changes when the plan grows. MessagePack has one encoding for each
    value and is quick: a hundred thousand runs take a tenth of a second.
    """
    return zlib.crc32(_pack((run_id, names, facts)))
