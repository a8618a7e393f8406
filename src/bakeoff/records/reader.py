"""What an edition in the database holds: its plan, its runs, what they measured. Nothing here writes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.database import Database, Row
from bakeoff.records.layout import EditionPaths
from bakeoff.records.results import FAILED, OPEN, decode_metrics
from bakeoff.records.run import CellRecord, RunRecord
from bakeoff.records.trajectory import TrajectoryIndex

_RUNS = (
    "SELECT r.position, r.run_id, r.cell, c.arm, c.task, r.seed, r.rollout, r.status, r.attempts, r.started_at, "
    "r.ended_at, r.exit_code, r.error, r.command, r.metrics "
    "FROM runs r JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell WHERE r.edition_id = ?"
)
"""The columns of a `RunRecord`, in the order of its fields."""
_CELLS = "SELECT cell, arm, task, base, ablation, flags, task_digest, params, columns FROM cells WHERE edition_id = ?"


class EditionReader:
    def __init__(self, database: Database, edition_id: int, paths: EditionPaths) -> None:
        self.database = database
        self.edition_id = edition_id
        self.paths = paths

    # -- the plan

    def run_ids(self) -> set[str]:
        rows = self.database.stream("SELECT run_id FROM runs WHERE edition_id = ?", (self.edition_id,))
        return {row[0] for row in rows}

    def planned(self) -> int:
        return int(self._value("SELECT COUNT(*) FROM runs WHERE edition_id = ?"))

    def pending(
        self, after: int, limit: int, *, retry_failed: bool = False, cells: Sequence[int] | None = None
    ) -> list[RunRecord]:
        """Runs still to be done behind `after`, in plan order."""
        statuses = (*OPEN, *FAILED) if retry_failed else OPEN
        if cells is not None and not cells:
            return []
        among = f"AND r.cell IN ({', '.join(str(int(cell)) for cell in cells)})" if cells is not None else ""
        rows = self.database.all(
            f"{_RUNS} AND r.position > ? AND r.status IN ({', '.join('?' * len(statuses))}) {among} "
            "ORDER BY r.position LIMIT ?",
            (self.edition_id, after, *statuses, limit),
        )
        return [_run(row) for row in rows]

    # -- the edition and its sessions

    def counts(self) -> dict[str, int]:
        rows = self.database.all(
            "SELECT status, COUNT(*) FROM runs WHERE edition_id = ? GROUP BY status", (self.edition_id,)
        )
        return {status: int(number) for status, number in rows}

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
        names = ("experiment", "edition", "workload", "dialect", "spec", "created_at", "complete")
        (found,) = self._named(names, "editions")
        return {**found, "spec": json.loads(found["spec"]), "complete": bool(found["complete"])}

    def sessions(self) -> list[dict[str, Any]]:
        names = ("session", "started_at", "seen_at", "ended", "planned", "provenance")
        rows = self._named(names, "sessions", "ORDER BY session")
        return [{**row, "provenance": json.loads(row["provenance"])} for row in rows]

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

    def cells(self) -> list[CellRecord]:
        """All cells, by number."""
        return [_cell(row) for row in self.database.all(f"{_CELLS} ORDER BY cell", (self.edition_id,))]

    def cell(self, number: int) -> CellRecord:
        (row,) = self.database.all(f"{_CELLS} AND cell = ?", (self.edition_id, number))
        return _cell(row)

    def runs(self) -> Iterator[RunRecord]:
        """Every run in plan order, whatever became of it. Rows are fetched in pages, not all at once."""
        for row in self.database.stream(f"{_RUNS} ORDER BY r.position", (self.edition_id,)):
            yield _run(row)

    def run(self, position: int) -> dict[str, Any]:
        """Everything about one run."""
        names = ("position", "run_id", "cell", "seed", "rollout", "status", "attempts", "started_at", "ended_at",
                 "exit_code", "error", "metrics", "command")  # fmt: skip
        rows = self._named(names, "runs", "AND position = ?", position)
        if not rows:
            raise UsageError(f"no run number {position}")
        found = {**rows[0], "metrics": decode_metrics(rows[0]["metrics"])}
        cell = self.cell(found["cell"])
        return found | {
            key: getattr(cell, key) for key in ("arm", "task", "base", "ablation", "flags", "params", "columns")
        }

    def attempts(self, position: int) -> list[dict[str, Any]]:
        names = ("attempt", "session", "status", "started_at", "ended_at", "exit_code", "error")
        return self._named(names, "attempts", "AND position = ? ORDER BY attempt", position)

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

    def _named(self, names: Sequence[str], table: str, which: str = "", *values: int) -> list[dict[str, Any]]:
        """Rows of this edition as {column: value}."""
        rows = self.database.all(
            f"SELECT {', '.join(names)} FROM {table} WHERE edition_id = ? {which}", (self.edition_id, *values)
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _value(self, sql: str) -> Any:
        row = self.database.one(sql, (self.edition_id,))
        assert row is not None
        return row[0]


def _run(row: Row) -> RunRecord:
    fields = list(row)
    fields[-1] = decode_metrics(fields[-1])
    return RunRecord(*fields)


def _cell(row: Row) -> CellRecord:
    number, arm, task, base, ablation, flags, digest, params, columns = row
    return CellRecord(
        number, arm, task, base, ablation, json.loads(flags), digest, json.loads(params), json.loads(columns)
    )
