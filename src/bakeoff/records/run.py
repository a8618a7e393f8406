"""A run in the records: `RunRecord` and `CellRecord` are rows of the database, `Attempt` is one try and its result.

`by_arm`, `list_runs` and `failures` show an edition's runs at a glance. Three outcomes are kept apart: succeeded,
failed because of the arm, and missing. Means are over succeeded runs only.

    for run in edition.runs():
        print(run.arm, run.task, run.seed, run.status, run.metrics.get("score"))

Nothing here imports pydantic: importing it takes longer than reading a small edition.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, get_type_hints

import msgspec

from bakeoff.errors import did_you_mean
from bakeoff.records.rundir import log_of
from bakeoff.spec.identity import RunId
from bakeoff.spec.workload import Scalar, Status, is_self_reported
from bakeoff.text import flat

if TYPE_CHECKING:
    from bakeoff.records.recorded import Recorded
    from bakeoff.spec.plan import Run

OPEN = ("planned", "running", "cancelled", "infra_error")
"""Statuses of a run without an outcome: the next `run` tries it."""
FAILED = ("failed", "timeout")
"""Statuses of a run that failed because of its arm."""


Time = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
"""Seconds since the epoch, until the end of the year 9999: what the calendar can show."""


class Column(NamedTuple):
    """How a field of `RunRecord` is stored: the type of its column in the table `runs` (records/schema.py)."""

    sql: str


class RunRecord(msgspec.Struct, frozen=True, gc=False):  # no cycles: a hundred thousand need no garbage collection
    """One run of the plan: what it is, its status, and the outcome that counts. `edition.runs()` yields these.

    A run that has not been tried has status `planned`, 0 attempts and None for what an attempt reports.

    This is the one declaration of a run's columns: the table, its statements and checksums follow it, and
    `records.damage` checks rows against it. Fields without a `Column` come from the run's cell. The checksum covers the
    columns from `seed` on in this order, so a new one goes to the end and into the next version.
    """

    position: Annotated[int, Column("INTEGER NOT NULL")]
    """Its number in the plan, from 0; the key for `edition.series`, `edition.attempts` and so on."""
    run_id: Annotated[RunId, Column("TEXT NOT NULL")]
    cell: Annotated[int, Column("INTEGER NOT NULL")]
    """The number of its `CellRecord`, which has the parameters."""
    arm: str
    task: str
    seed: Annotated[int | None, Column("BIGINT")]
    """None only in a run that was imported from a table without seeds."""
    rollout: Annotated[int, Column("INTEGER NOT NULL")]
    status: Annotated[Status, Column("TEXT NOT NULL DEFAULT 'planned'")]
    attempts: Annotated[int, Column("INTEGER NOT NULL DEFAULT 0")]
    started_at: Annotated[Time | None, Column("{real}")]
    ended_at: Annotated[Time | None, Column("{real}")]
    exit_code: Annotated[int | None, Column("INTEGER")]
    """128 + signal when a signal ended it; None for runs inside a worker."""
    error: Annotated[str | None, Column("TEXT")]
    command: Annotated[str | None, Column("TEXT")]
    """The command line, quoted for a shell; None for runs inside a worker."""
    metrics: Annotated[dict[str, Scalar], Column("TEXT")]
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


RUN_COLUMNS: Mapping[str, str] = {
    name: column.sql
    for name, hint in get_type_hints(RunRecord, include_extras=True).items()
    for column in getattr(hint, "__metadata__", ())
}
"""The SQL types of the columns of `runs` that are fields of `RunRecord`, by name, in the order of the fields."""


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


class TryRecord(msgspec.Struct, frozen=True):
    """One attempt of a run that has several, or no outcome. `edition.tries()` yields these."""

    arm: str
    position: int
    attempt: int
    session: int
    status: Status
    started_at: float | None
    ended_at: float | None
    run_status: Status
    """The run's status now."""


class Attempt(msgspec.Struct, array_like=True):
    """One try of one run: the order and, once it has ended, the result.

    It is the same type on every transport. The queue makes it, executors and workers pass it on and fill in the
    result, the scheduler shows it to observers, and `Edition.finish` records it. MessagePack takes it as it is.
    """

    position: int
    run_id: RunId
    cell: int
    arm: str
    task: str
    seed: int | None
    """None only in a run that was imported from a table without seeds; such a run is never started."""
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
    """`started_at` plus how long it took by the monotonic clock, so that a clock that is set meanwhile changes nothing."""
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
    ended_clock: float = 0.0
    """`time.monotonic()` on the machine that ran it when it ended; times of day may jump."""
    final: bool = True
    """False when the scheduler tries the run again: the attempt is kept, and the run stays planned."""
    node: str | None = None
    """Where it ran; None: on the machine of its session."""
    token: str | None = None
    """The claim under which it was handed to another machine (records/claims.py)."""
    lost: Literal["yes", "alone"] | None = None
    """Its node was lost with it; `alone`: while other attempts on that node survived."""

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
        for name in _RESULT:
            setattr(self, name, getattr(report, name))


_RESULT = (
    "status", "started_at", "ended_at", "exit_code", "error", "metrics", "series", "trajectory", "has_files",
    "left_behind", "ended_clock",
)  # fmt: skip
"""The fields of an `Attempt` that a worker fills in."""
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


def decode_json(text: str | None) -> dict[str, Any]:
    """A JSON table as Python's json or `encode_metrics` writes it; empty for None.

    msgspec is several times faster than json, and does not know NaN.
    """
    if not text:
        return {}
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


# -- an edition at a glance

MOST_METRICS = 4
LISTED = tuple(name for name in RunRecord.__struct_fields__ if name not in ("position", "cell", "command", "metrics"))
"""What `list_runs` and tables say about a run."""


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


@dataclass(frozen=True, slots=True)
class ArmMeans:
    """An arm's runs by status and, for each metric, the mean over succeeded runs that reported a finite number, and
    how many those are."""

    counts: Mapping[str, int]
    tally: Tally
    means: Mapping[str, tuple[float, int]]
    self_reported: frozenset[str] = frozenset()
    """Metrics of `means` with a value that the work could have written itself."""


class Reported(Protocol):
    """What a glance at runs needs of each: a `RunRecord`, or a row of a results table."""

    @property
    def run_id(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def metrics(self) -> Mapping[str, Scalar]: ...


def by_arm(runs: Iterable[Reported], metrics: Sequence[str]) -> dict[str, ArmMeans]:
    """Every arm in plan order. Without `metrics`, the first few that runs reported."""
    counts: dict[str, dict[str, int]] = {}
    values: dict[str, dict[str, list[float]]] = {}
    self_reported: dict[str, set[str]] = {}
    for run in runs:
        of_arm = counts.setdefault(run.arm, {})
        of_arm[run.status] = of_arm.get(run.status, 0) + 1
        if run.status == "succeeded":
            for name, value in run.metrics.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    values.setdefault(name, {}).setdefault(run.arm, []).append(float(value))
                    if is_self_reported(run.metrics, name):
                        self_reported.setdefault(run.arm, set()).add(name)
    chosen = [name for name in metrics if name in values] or list(values)[:MOST_METRICS]
    arms = {}
    for arm, of_arm in counts.items():
        reported = {name: values[name][arm] for name in chosen if arm in values[name]}
        means = {name: (math.fsum(numbers) / len(numbers), len(numbers)) for name, numbers in reported.items()}
        arms[arm] = ArmMeans(of_arm, Tally.of(of_arm), means, frozenset(self_reported.get(arm, ())) & means.keys())
    return arms


RESCORED = "scored again"
"""How a session ended, and a key of its provenance, that only scored recorded work: its attempts do not count as tries."""


@dataclass(frozen=True, slots=True)
class Uncounted:
    """An arm's tries that do not count: repeated ones, and the last ones of runs without an outcome."""

    runs: int
    """Runs that were tried."""
    affected: int = 0
    """Runs with a try that does not count."""
    after_failure: int = 0
    """Runs whose outcome counts after tries that failed because of the arm."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Tries by how they ended: infra_error, cancelled, failed or timeout."""
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    """Sums of what those tries reported in SPENT."""


SPENT = ("tokens", "cost")
"""Metrics of what a run uses up."""


def rescored_sessions(sessions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return those of an edition's sessions whose attempts scored again what earlier ones had done."""
    # An older edition has only the end of such a session, which one that was killed lacks.
    return [row["session"] for row in sessions if row["ended"] == RESCORED or row["provenance"].get(RESCORED)]


def uncounted(edition: Recorded) -> dict[str, Uncounted]:
    """The tries that do not count of every arm, in plan order."""
    runs: dict[int, list[TryRecord]] = {}
    for each in edition.tries():
        runs.setdefault(each.position, []).append(each)
    rescored = rescored_sessions(edition.sessions()) if runs else ()
    lost: dict[str, list[list[TryRecord]]] = {}
    for tries in runs.values():
        tries = [each for each in tries if each.session not in rescored]
        # Without an outcome the last try does not count either.
        if tries and tries[-1].run_status not in OPEN:
            tries.pop()
        if tries:
            lost.setdefault(tries[0].arm, []).append(tries)
    spent: dict[str, dict[str, float]] = {}
    if lost:
        names = (*SPENT, edition.facts()["spec"]["budget"]["cost_metric"])
        spent = _spent_in_vain(edition, {tries[0].position: arm for arm, each in lost.items() for tries in each}, names)
    found = {}
    for arm, number in edition.tried().items():
        every = [each for tries in lost.get(arm, ()) for each in tries]
        reasons = Counter(each.status for each in every)
        found[arm] = Uncounted(
            number,
            len(lost.get(arm, ())),
            sum(
                tries[0].run_status not in OPEN and any(each.status in FAILED for each in tries)
                for tries in lost.get(arm, ())
            ),
            dict(sorted(reasons.items())),
            sum((each.ended_at or 0.0) - (each.started_at or 0.0) for each in every if each.started_at),
            spent.get(arm, {}),
        )
    return found


def _spent_in_vain(edition: Recorded, arms: Mapping[int, str], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """What tries that do not count reported in `names`, added up by arm. `arms` has the arm of each run by position."""
    reported = [(position, metrics) for position, metrics in edition.superseded() if position in arms]
    reported += [(run.position, run.metrics) for run in edition.runs(OPEN) if run.position in arms]
    spent: dict[str, dict[str, float]] = {}
    for position, metrics in reported:
        of_arm = spent.setdefault(arms[position], {})
        for name in dict.fromkeys(names):
            value = metrics.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                of_arm[name] = of_arm.get(name, 0.0) + value
    return spent


def list_runs(edition: Recorded, statuses: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Runs with one of these statuses (all by default) in plan order, as tables that can be printed as JSON."""
    return [{name: getattr(run, name) for name in LISTED} for run in edition.runs(statuses)]


def run_notes(runs: Iterable[tuple[str, str, str | None]]) -> list[str]:
    """What succeeded runs say about themselves, such as a metric that was not kept as it was written.

    `runs` are (run id, status, error). The same note of many runs is one line, with the first of them.
    """
    first: dict[str, str] = {}
    count: dict[str, int] = {}
    for run_id, status, error in runs:
        if status == "succeeded" and error:
            first.setdefault(error, run_id)
            count[error] = count.get(error, 0) + 1
    return [
        f"{error} ({count[error]} run{'s' if count[error] > 1 else ''}, first {run_id})"
        for error, run_id in first.items()
    ]


class Unscored(NamedTuple):
    """Why a run that succeeded has no value of the declared metric."""

    why: str
    by_step: bool = False
    """It logged the metric by step and no summary is declared: the run is whole, the analysis lacks a choice."""


def why_unscored(metric: str, summarised: bool, metrics: Mapping[str, Scalar], block: bytes | None) -> Unscored | None:
    """Say why a run that succeeded has no value of the declared metric; None when it has one.

    The run stays a success: a status is a fact about the run, whatever the analysis asks for. `compare` refuses a metric
    that is only known by step, and scores a run without the metric as failed (`verdicts.observations.state_of`).
    `summarised`: the value comes from the metric's series, which is in `block`.
    """
    from bakeoff.records.series import read_block

    value = metrics.get(metric)
    if not summarised:
        if isinstance(value, int | float):
            return Unscored(f"{metric!r} is NaN") if math.isnan(value) else None
        if value is not None:
            return Unscored(f"{metric!r} is text ({flat(str(value), 40)!r})")
    series = read_block(block).get(metric) if block is not None else None
    if summarised and series is not None:
        whole = all(map(math.isfinite, series[1]))
        return None if whole else Unscored(f"the series {metric!r} has values that are not numbers")
    if series is not None:
        return Unscored(f"it logged {metric!r} by step only; [analysis.summary] makes one number of it", by_step=True)
    if summarised:
        return Unscored(f"it logged no series {metric!r}")
    if not metrics:
        return Unscored(f"it reported no {metric!r}, and no other metric")
    others = ", ".join(list(metrics)[:8]) + (", ..." if len(metrics) > 8 else "")
    meant = did_you_mean(metric, metrics, "")
    return Unscored(f"it reported no {metric!r}, only {others}" + (f" ({meant})" if meant else ""))


def unscored(edition: Recorded) -> list[tuple[RunRecord, Unscored]]:
    """Runs that succeeded without a value of the declared metric, and why; empty when no metric is declared."""
    analysis = edition.facts()["spec"]["analysis"]
    metric, summarised = analysis["metric"], analysis["summary"] is not None
    if metric is None:
        return []
    runs = list(edition.runs(["succeeded"]))
    blocks = dict(edition.all_series()) if summarised or any(metric not in run.metrics for run in runs) else {}
    reasons = ((run, why_unscored(metric, summarised, run.metrics, blocks.get(run.position))) for run in runs)
    return [(run, reason) for run, reason in reasons if reason is not None]


def failures(edition: Recorded, limit: int) -> list[dict[str, Any]]:
    """The last runs that failed or could not be tried, newest first, each with the log that probably says why."""
    failed = list_runs(edition, (*FAILED, "infra_error"))
    failed.sort(key=lambda run: -(run["ended_at"] or 0.0))  # stable: runs that ended together stay in plan order
    return [{**run, "log": log_of(edition.paths.run(run["run_id"]))} for run in failed[:limit]]


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Runs that failed, or have no outcome, with the same message, apart from numbers other than exit codes."""

    status: str
    message: str
    """That of the first run."""
    runs: tuple[str, ...]
    """Ids, in plan order."""
    arms: Mapping[str, int]
    """How many runs of each arm."""


def failure_key(run: Reported) -> tuple[str, str]:
    """Return what runs that failed in the same way have in common: status, and message without its numbers."""
    return run.status, _NUMBERS.sub("#", (run.error or "").replace(run.run_id, "RUN"))


_NUMBERS = re.compile(r"0x[0-9a-f]+|(?<!exit code )\b\d+")


def failure_groups(runs: Iterable[Reported], statuses: Sequence[str] = (*FAILED, "infra_error")) -> list[FailureGroup]:
    """Group runs that ended in one of `statuses` by their message; the most frequent first."""
    groups: dict[tuple[str, str], list[Reported]] = {}
    for run in runs:
        if run.status in statuses:
            groups.setdefault(failure_key(run), []).append(run)
    return [
        FailureGroup(status, each[0].error or "", tuple(run.run_id for run in each), Counter(run.arm for run in each))
        for (status, _), each in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
