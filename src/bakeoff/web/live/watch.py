"""An edition that may still be running: its rows and counts, kept up to date by what changed.

    with Watch(paths) as watch:
        if watch.refresh(time.time()):
            print(watch.counts, watch.progress(time.time()).left)

The first reading costs as much as the edition has runs. After that `refresh` reads the runs that changed and nothing else
(`Recorded.changes`), and every count is changed by the difference. One thread at a time may use a `Watch`; `lock` is for
those that share one.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from bakeoff.records.claims import list_claims, list_nodes
from bakeoff.records.layout import EditionPaths, is_held
from bakeoff.records.recorded import CHANGES_SINCE, Changes, Recorded
from bakeoff.records.run import FAILED, MOST_METRICS, ArmMeans, RunRecord, Tally, failure_key
from bakeoff.spec.workload import FINISHED, is_self_reported
from bakeoff.text import flat
from bakeoff.web.live.rows import RunTable

LOST = (*FAILED, "infra_error", "cancelled")
"""Statuses of the runs that are listed as failures."""
_LEASE_EVERY = 1.0
"""Seconds between two looks at the lease: a reader shares its lock for a moment."""
_ALIVE = 30.0
"""Seconds after its last sign of life in which a scheduler on another machine counts as alive."""


@dataclass(slots=True)
class Failures:
    """Runs that ended with the same message."""

    status: str
    message: str
    runs: dict[int, str] = field(default_factory=dict)
    """Ids by position, in the order in which they ended."""
    arms: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an edition is, and how long the rest may take."""

    tally: Tally
    counts: Mapping[str, int]
    state: str
    """`running`, `complete` or `unfinished`."""
    ended: int
    """Runs with an outcome."""
    elapsed: float | None
    """Seconds since the newest session began, or that it took."""
    per_second: float | None
    """Runs that ended in this session for each second of it; None before the first."""
    left: float | None
    """Seconds until every run has an outcome at that rate; None where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Running:
    """One run that is running now."""

    run: RunRecord
    node: str
    """The host that runs it."""
    seconds: float | None


@dataclass(slots=True)
class _Arm:
    counts: Counter[str] = field(default_factory=Counter)
    sums: dict[str, list[float]] = field(default_factory=dict)
    """By metric: the sum over succeeded runs that reported a finite number, and how many these are."""
    self_reported: set[str] = field(default_factory=set)


class Watch:
    """The state of one edition, read through a read-only connection."""

    def __init__(self, paths: EditionPaths) -> None:
        """Read the whole edition. Raises what `Recorded.open` raises."""
        self.paths = paths
        self.lock = threading.Lock()
        self._data_version: Any = None
        self._lease = (0.0, False)
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.edition.close()

    def _open(self) -> None:
        self.edition = Recorded.open(self.paths)
        facts = self.edition.facts()
        self.spec: dict[str, Any] = facts["spec"]
        self.created_at: float = facts["created_at"]
        self.workload: str = facts["workload"]
        self._read_all()

    def _read_all(self) -> None:
        self.seen = self.edition.changes()
        self.table: RunTable[RunRecord] = RunTable()
        self._at: dict[int, int] = {}
        self.counts: Counter[str] = Counter()
        self.arms: dict[str, _Arm] = {}
        self.running: dict[int, RunRecord] = {}
        self.failures: dict[tuple[str, str], Failures] = {}
        self.session: tuple[int, float, float, str | None] | None = None
        self._read_sessions()
        for run in self.edition.runs():
            self._take(run)

    def _read_sessions(self) -> None:
        """Read when the newest session began and ended; count anew what ended in it when it is another one."""
        rows = self.edition.database.rows(
            "SELECT session, started_at, seen_at, ended FROM sessions WHERE edition_id = ? ORDER BY session DESC LIMIT 1",
            (self.edition.edition_id,),
        )
        before, self.session = self.session, next(iter(rows), None)
        if before is None or self.session is None or before[0] != self.session[0]:
            sessions = self.edition.sessions()
            self.host = str(sessions[-1]["provenance"].get("host", "")) if sessions else ""
            self._ended_now = sum(map(self._ended_in_session, self.table.rows))

    def _ended_in_session(self, run: RunRecord) -> bool:
        return (
            self.session is not None
            and run.status in FINISHED
            and run.ended_at is not None
            and run.ended_at >= self.session[1]
        )

    # -- what changed

    def refresh(self, now: float) -> bool:
        """Take over what was recorded since the last call. Returns whether anything was, or a scheduler came or went.

        Raises StorageError or Damaged for a database that cannot be read any more.
        """
        was_alive = self._lease[1]
        return self._read_changes() | (self.is_alive(now) != was_alive)

    def _read_changes(self) -> bool:
        database = self.edition.database
        if database.engine == "sqlite":
            # Another value says that another connection has committed (https://sqlite.org/pragma.html#pragma_data_version).
            data_version = database.value("PRAGMA data_version")
            if data_version == self._data_version:
                return False
            self._data_version = data_version
        now = self.edition.changes()
        before = self.session
        self._read_sessions()
        if database.version < CHANGES_SINCE:
            self.edition.close()  # whoever wrote to it has brought it up to date
            self._data_version = None
            self._open()
        elif now.removed > self.seen.number:
            self._read_all()
        elif now != self.seen:
            self._take_changes(now)
        elif before == self.session:
            return False
        return True

    def _take_changes(self, now: Changes) -> None:
        fresh = list(self.edition.runs(since=self.seen.number))
        self.seen = now
        for run in fresh:
            self._take(run)

    def _take(self, run: RunRecord) -> None:
        """Put a run in the place of what was known of it."""
        row = self._at.get(run.position)
        if row is None:
            self._at[run.position] = self.table.append(run)
        else:
            self._count(self.table.replace(row, run), -1)
        self._count(run, 1)

    def _count(self, run: RunRecord, sign: int) -> None:
        """Add a run to everything that is counted, or take it away."""
        self.counts[run.status] += sign
        arm = self.arms.setdefault(run.arm, _Arm())
        arm.counts[run.status] += sign
        self._ended_now += sign * self._ended_in_session(run)
        if run.status == "running":
            if sign > 0:
                self.running[run.position] = run
            else:
                self.running.pop(run.position, None)
        elif run.status == "succeeded":
            for name, value in run.metrics.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    total = arm.sums.setdefault(name, [0.0, 0])
                    total[0] += sign * float(value)
                    total[1] += sign
                    if is_self_reported(run.metrics, name):
                        arm.self_reported.add(name)
        elif run.status in LOST:
            key = failure_key(run)
            if sign > 0:
                group = self.failures.setdefault(
                    key, Failures(run.status, flat(run.error, 300) or f"exit code {run.exit_code}")
                )
                group.runs[run.position] = run.run_id
                group.arms[run.arm] += 1
            elif (known := self.failures.get(key)) is not None and known.runs.pop(run.position, None) is not None:
                known.arms[run.arm] -= 1
                if not known.runs:
                    del self.failures[key]

    # -- what is shown

    @property
    def is_sequential(self) -> bool:
        return self.spec.get("sequential") is not None

    @property
    def complete(self) -> bool:
        """Whether every run has an outcome and the last session has ended."""
        return self.edition.complete

    def is_alive(self, now: float) -> bool:
        """Whether a scheduler works on the edition, as far as one can see from here."""
        if self.session is None or self.session[3] is not None:
            return False
        if now - self._lease[0] >= _LEASE_EVERY:
            remote = self.edition.database.engine == "postgres" and now - self.session[2] < _ALIVE
            self._lease = now, is_held(self.paths.lease) or remote
        return self._lease[1]

    def progress(self, now: float) -> Progress:
        """Counts, state and the time left, at the time `now` in seconds since the epoch."""
        counts = {status: number for status, number in self.counts.items() if number}
        ended = sum(counts.get(status, 0) for status in FINISHED)
        planned = len(self.table.rows)
        alive = self.is_alive(now)
        elapsed = rate = left = None
        if self.session is not None:
            elapsed = max(0.0, (now if alive else self.session[2]) - self.session[1])
            if self._ended_now and elapsed > 0:
                rate = self._ended_now / elapsed
                left = (planned - ended) / rate if alive else None
        state = "running" if alive else "complete" if self.complete else "unfinished"
        return Progress(Tally.of(counts), counts, state, ended, elapsed, rate, left)

    def list_running(self, now: float, most: int) -> list[Running]:
        """The runs that have been running for the longest, with the hosts that run them."""
        first = sorted(self.running.values(), key=lambda run: (run.started_at or math.inf, run.position))[:most]
        if not first:
            return []
        pilots = {claim.position: claim.pilot for claim in list_claims(self.edition)}
        hosts = {node.node: node.host for node in list_nodes(self.edition)} if pilots else {}
        return [
            Running(
                run,
                hosts.get(pilots[run.position], pilots[run.position]) if run.position in pilots else self.host,
                None if run.started_at is None else max(0.0, now - run.started_at),
            )
            for run in first
        ]

    def means(self) -> dict[str, ArmMeans]:
        """Every arm in plan order with its counts, and plain means as `records.run.by_arm` has them."""
        analysis = self.spec["analysis"]
        declared = [analysis["metric"], *analysis["primary"]] if analysis["metric"] else []
        reported = dict.fromkeys(name for arm in self.arms.values() for name, (_, n) in arm.sums.items() if n)
        chosen = [name for name in declared if name in reported] or list(reported)[:MOST_METRICS]
        return {
            name: ArmMeans(
                dict(arm.counts),
                Tally.of(arm.counts),
                {
                    metric: (total / n, int(n))
                    for metric in chosen
                    if metric in arm.sums
                    for total, n in [arm.sums[metric]]
                    if n
                },
                frozenset(arm.self_reported & set(chosen)),
            )
            for name, arm in self.arms.items()
        }

    def list_failures(self, most: int) -> list[Failures]:
        """Failures by message, the most frequent first."""
        return sorted(self.failures.values(), key=lambda group: -len(group.runs))[:most]
