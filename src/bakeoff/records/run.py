"""A run in the records: `RunRecord` and `CellRecord` are rows of the database, `Attempt` is one try and its result.

    for run in edition.runs():
        print(run.arm, run.task, run.seed, run.status, run.metrics.get("score"))

Nothing here imports pydantic: importing it takes longer than reading a small edition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.spec.workload import Scalar, Status

if TYPE_CHECKING:
    from bakeoff.spec.plan import Run

OPEN = ("planned", "running", "cancelled", "infra_error")
"""Statuses of a run without an outcome: the next `run` tries it."""
FAILED = ("failed", "timeout")
"""Statuses of a run that failed because of its arm."""


class RunRecord(msgspec.Struct, frozen=True, gc=False):  # no cycles: a hundred thousand need no garbage collection
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

    def next_attempt(self, **fields: Any) -> Attempt:
        """The order for the next try of this run; `fields` are further ones of `Attempt`, such as those of a result."""
        return Attempt(
            self.position, self.run_id, self.cell, self.arm, self.task, self.seed, self.rollout, self.attempts + 1,
            **fields,
        )  # fmt: skip


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


class TrajectoryIndex(msgspec.Struct, frozen=True):
    """What the database knows about a trajectory file."""

    path: str
    """Relative to the run's directory."""
    steps: int
    reward: float | None
    """Sum over the steps that have a reward; None when none has."""
    bytes: int


class Attempt(msgspec.Struct, array_like=True):
    """One try of one run: the order and, once it has ended, the result.

    It is the same type on every transport. The queue makes it, executors and workers pass it on and fill in the
    result, the scheduler shows it to observers, and `Edition.finish` records it. MessagePack takes it as it is.
    """

    position: int
    run_id: str
    cell: int
    arm: str
    task: str
    seed: int
    rollout: int
    number: int = 1
    """Counted from 1 over all sessions."""
    flags: tuple[str, ...] = ()
    ablation: str = ""
    params: str = "{}"
    """All parameters as JSON text. It is the same object for all attempts of a cell."""

    status: Status = "planned"
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    metrics: Mapping[str, Scalar] = {}
    series: bytes | None = None
    """What it logged by step, as a block of `records.series`."""
    trajectory: TrajectoryIndex | None = None
    command: str | None = None
    has_files: bool = False
    """It has a run directory."""
    left_behind: bool = False
    """Threads or processes outlived it, so its worker is not used again."""
    final: bool = True
    """False when the scheduler tries the run again: the attempt is kept, and the run stays planned."""

    @classmethod
    def of(cls, run: Run, **fields: Any) -> Attempt:
        """The order for the first try of a planned run; `fields` as for `RunRecord.next_attempt`."""
        cell = run.cell
        return cls(
            run.position, run.run_id, cell.index, cell.arm.name, cell.task.name, run.seed, run.rollout,
            flags=cell.arm.flags, ablation=cell.arm.ablation, **fields,
        )  # fmt: skip

    def again(self) -> Attempt:
        """The order for one more try, without a result."""
        return Attempt(
            self.position, self.run_id, self.cell, self.arm, self.task, self.seed, self.rollout, self.number + 1,
            self.flags, self.ablation, self.params,
        )  # fmt: skip

    def take_result(self, report: Attempt) -> None:
        """Copy the result that a worker reported. The order stays ours: the worker ran code that we do not trust."""
        self.status = report.status
        self.started_at, self.ended_at = report.started_at, report.ended_at
        self.exit_code, self.error, self.metrics = report.exit_code, report.error, report.metrics
        self.series, self.trajectory = report.series, report.trajectory
        self.has_files, self.left_behind = report.has_files, report.left_behind


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_metrics(metrics: Mapping[str, Scalar]) -> str | None:
    """JSON text, or None for no metrics.

    NaN and infinities are written as Python's json writes them, because standard JSON (RFC 8259) has no words for
    them and they must not be lost.
    """
    if not metrics:
        return None
    for value in metrics.values():
        if isinstance(value, float) and not math.isfinite(value):
            return json.dumps(dict(metrics))
    try:
        return _encode(metrics).decode()
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(
            {name: storable(value) if isinstance(value, str) else value for name, value in metrics.items()}
        )


def decode_metrics(text: str | None) -> dict[str, Scalar]:
    """What `encode_metrics` wrote."""
    return decode_json(text) if text else {}


def decode_json(text: str) -> dict[str, Any]:
    """A JSON table as Python's json writes it: msgspec is several times faster, and does not know NaN."""
    try:
        table: dict[str, Any] = _decode(text)
    except msgspec.DecodeError:
        table = json.loads(text)
    return table


def storable(text: str | None) -> str | None:
    """Text that SQLite and PostgreSQL both accept: no lone surrogates and no NUL, which a run's output may contain."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
