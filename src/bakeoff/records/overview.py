"""An edition at a glance: how many runs stand where, which ones failed, and plain means for each arm.

Three outcomes are kept apart: succeeded, failed by the arm's own doing, and missing. Means are over succeeded runs only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.records.edition import Edition
from bakeoff.records.results import FAILED, OPEN
from bakeoff.records.rundir import STDERR, STDOUT

MOST_METRICS = 4
_RUN = (
    "run_id",
    "arm",
    "task",
    "seed",
    "rollout",
    "status",
    "attempts",
    "started_at",
    "ended_at",
    "exit_code",
    "error",
)


@dataclass(frozen=True, slots=True)
class Tally:
    """Runs by what became of them. `missing` is everything without an outcome: not yet run, cancelled, infrastructure."""

    planned: int
    succeeded: int
    failed: int
    missing: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Tally:
        return cls(
            planned=sum(counts.values()),
            succeeded=counts.get("succeeded", 0),
            failed=sum(counts.get(status, 0) for status in FAILED),
            missing=sum(counts.get(status, 0) for status in OPEN),
        )


@dataclass(slots=True)
class ArmMeans:
    """An arm's tally and, for each metric, the mean over succeeded runs that reported a finite number, and how many."""

    counts: dict[str, int] = field(default_factory=dict)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def tally(self) -> Tally:
        return Tally.of(self.counts)


def by_arm(edition: Edition, metrics: Sequence[str]) -> dict[str, ArmMeans]:
    """Every arm in plan order. Without `metrics`, the first few that runs reported."""
    arms: dict[str, ArmMeans] = {}
    sums: dict[str, dict[str, list[float]]] = {}
    for run in edition.runs():
        entry = arms.setdefault(run.arm, ArmMeans())
        entry.counts[run.status] = entry.counts.get(run.status, 0) + 1
        if run.status == "succeeded":
            for name, value in run.metrics.items():
                if _is_number(value):
                    sums.setdefault(name, {}).setdefault(run.arm, []).append(float(value))  # type: ignore[arg-type]
    chosen = [name for name in metrics if name in sums] or list(sums)[:MOST_METRICS]
    for name in chosen:
        for arm, values in sums[name].items():
            arms[arm].means[name] = (math.fsum(values) / len(values), len(values))
    return arms


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def runs(edition: Edition, statuses: Sequence[str] = (), *, newest: int | None = None) -> list[dict[str, Any]]:
    """Runs in plan order, or the `newest` that ended last, newest first."""
    among = f"AND r.status IN ({', '.join('?' * len(statuses))})" if statuses else ""
    order = "r.ended_at DESC, r.position LIMIT ?" if newest is not None else "r.position"
    columns = ", ".join(f"{'c' if name in ('arm', 'task') else 'r'}.{name}" for name in _RUN)
    rows = edition.database.all(
        f"SELECT {columns} FROM runs r JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell "
        f"WHERE r.edition_id = ? {among} ORDER BY {order}",
        (edition.edition_id, *statuses, *(() if newest is None else (newest,))),
    )
    return [dict(zip(_RUN, row, strict=True)) for row in rows]


def failures(edition: Edition, limit: int) -> list[dict[str, Any]]:
    """The last runs that failed or could not be tried, each with the log that probably says why."""
    found = runs(edition, (*FAILED, "infra_error"), newest=limit)
    return [{**run, "log": log_of(edition.paths.run(run["run_id"]))} for run in found]


def log_of(directory: Path) -> Path | None:
    for name in (STDERR, STDOUT):
        path = directory / name
        if path.is_file() and path.stat().st_size:
            return path
    return None


def time_spent(edition: Edition) -> float:
    """Wall time over all sessions, in seconds."""
    return sum(float(session["seen_at"] - session["started_at"]) for session in edition.sessions())
