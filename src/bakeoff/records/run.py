"""The rows of an edition's database, with named fields: `RunRecord` for a run, `CellRecord` for one arm on one task.

for run in edition.runs():
    print(run.arm, run.task, run.seed, run.status, run.metrics.get("score"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.workload import Scalar, Status


class RunRecord(msgspec.Struct, frozen=True):
    """One run of the plan: what it is, its status, and the outcome that counts. `edition.runs()` yields these.

    A run that has not been tried has status `planned`, 0 attempts and None for what an attempt reports.
    Times are seconds since the epoch.
    """

    position: int
    """Its number in the plan, from 0; the key for `edition.series`, `edition.attempts` and so on."""
    run_id: str
    cell: int
    """The number of its `CellRecord`, which has the parameters."""
    arm: str
    task: str
    seed: int
    rollout: int
    status: Status
    attempts: int
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    """128 + signal when a signal ended it; None for runs inside a worker."""
    error: str | None
    command: str | None
    """The command line, quoted for a shell; None for runs inside a worker."""
    metrics: dict[str, Scalar]
    """What the run reported; empty when it reported nothing."""

    @property
    def wall_s(self) -> float | None:
        """Seconds from start to end; None when it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at


class CellRecord(msgspec.Struct, frozen=True):
    """One arm on one task: what all its seeds and rollouts share. `edition.cells()` returns these."""

    number: int
    arm: str
    task: str
    base: str
    """The arm without its ablation; the arm itself when it has none."""
    ablation: str
    """Empty for an arm without one."""
    flags: list[str]
    task_digest: str | None
    """Digest of the task's directory; None when it has none."""
    params: dict[str, Any]
    """Complete, nested."""
    columns: dict[str, Any]
    """Parameters as columns of a table: dotted names, without settings that only say how to run."""
