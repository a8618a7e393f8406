"""An edition at a glance: how many runs stand where, which ones failed, and plain means for each arm.

Three outcomes are kept apart: succeeded, failed because of the arm, and missing. Means are over succeeded runs only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, OPEN, RunRecord
from bakeoff.records.rundir import log_of

MOST_METRICS = 4
_LISTED = (
    "run_id", "arm", "task", "seed", "rollout", "status", "attempts", "started_at", "ended_at", "exit_code", "error",
)  # fmt: skip
"""What `list_runs` says about a run."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many runs succeeded, failed because of their arm, or are missing: not yet run, cancelled, infrastructure."""

    planned: int
    succeeded: int
    failed: int
    missing: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Tally:
        """From the number of runs by status."""
        return cls(
            planned=sum(counts.values()),
            succeeded=counts.get("succeeded", 0),
            failed=sum(counts.get(status, 0) for status in FAILED),
            missing=sum(counts.get(status, 0) for status in OPEN),
        )


@dataclass(slots=True)
class ArmMeans:
    """An arm's runs by status and, for each metric, the mean over succeeded runs that reported a finite number, and
    how many those are."""

    counts: dict[str, int] = field(default_factory=dict)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def tally(self) -> Tally:
        return Tally.of(self.counts)


def by_arm(edition: Edition, metrics: Sequence[str]) -> dict[str, ArmMeans]:
    """Every arm in plan order. Without `metrics`, the first few that runs reported."""
    arms: dict[str, ArmMeans] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for run in edition.runs():
        entry = arms.setdefault(run.arm, ArmMeans())
        entry.counts[run.status] = entry.counts.get(run.status, 0) + 1
        if run.status == "succeeded":
            for name, value in run.metrics.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    values.setdefault(name, {}).setdefault(run.arm, []).append(float(value))
    chosen = [name for name in metrics if name in values] or list(values)[:MOST_METRICS]
    for name in chosen:
        for arm, numbers in values[name].items():
            arms[arm].means[name] = (math.fsum(numbers) / len(numbers), len(numbers))
    return arms


def list_runs(edition: Edition, statuses: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Runs with one of these statuses (all by default) in plan order, as tables that can be printed as JSON."""
    return [_listed(run) for run in edition.runs(statuses)]


def failures(edition: Edition, limit: int) -> list[dict[str, Any]]:
    """The last runs that failed or could not be tried, newest first, each with the log that probably says why."""
    failed = sorted(edition.runs((*FAILED, "infra_error")), key=lambda run: (-(run.ended_at or 0.0), run.position))
    return [{**_listed(run), "log": log_of(edition.paths.run(run.run_id))} for run in failed[:limit]]


def _listed(run: RunRecord) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _LISTED}


def time_spent(edition: Edition) -> float:
    """Wall time over all sessions, in seconds."""
    return sum(float(session["seen_at"] - session["started_at"]) for session in edition.sessions())
