"""A plan becomes finished records.

One thread, one loop: start what may start, wait, record what ended, tell. Results are recorded in groups, one synced
transaction for what ended in the last few milliseconds, and only then shown, counted or charged.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bakeoff.engine.budget import Account
from bakeoff.engine.executors.base import Executor, Start
from bakeoff.engine.queue import Queue
from bakeoff.errors import BakeoffError, StorageError
from bakeoff.records.edition import Edition
from bakeoff.records.results import Result
from bakeoff.spec.experiment import Retries
from bakeoff.spec.plan import Plan, RunSpec

_TICK = 0.1
_BEAT = 1.0
_GROUP = 0.005
_LONGEST_BACKOFF = 60.0
_RECORDING_TRIES = 5

Stop = Literal["", "drain", "now"]


class Switch:
    """How to ask a scheduler to stop: once, nothing more is started; twice, what is going on is ended."""

    def __init__(self) -> None:
        self.state: Stop = ""
        self.why = ""

    def press(self, why: str = "interrupted") -> None:
        self.state = "drain" if self.state == "" else "now"
        self.why = self.why or why

    def stop_now(self, why: str) -> None:
        self.state = "now"
        self.why = self.why or why


class Observer(Protocol):
    """Somebody who looks on. Called from the scheduler's loop, after things are durable."""

    def finished(self, start: Start, result: Result) -> None: ...

    def tick(self, running: Sequence[tuple[Start, float]]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Summary:
    """What a session did."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Final results of this session."""
    attempts: int = 0
    stopped: str = ""
    """Why it ended before everything was done."""
    left_out: int = 0
    complete: bool = False


More = Callable[[], Iterable[RunSpec]]


def _is_failure(result: Result) -> bool:
    return result.status not in ("succeeded", "cancelled")


class Scheduler:
    def __init__(
        self,
        plan: Plan,
        edition: Edition,
        session: int,
        executor: Executor,
        queue: Queue,
        *,
        switch: Switch,
        fail_fast: bool = False,
        observers: Sequence[Observer] = (),
        more: More | None = None,
    ) -> None:
        self._retries: Retries = plan.experiment.retries
        self._edition = edition
        self._session = session
        self._executor = executor
        self._queue = queue
        self._switch = switch
        self._fail_fast = fail_fast
        self._observers = observers
        self._more = more
        self._account = Account(plan.experiment.budget, edition)
        self._in_flight: dict[int, Start] = {}
        self._failures: Counter[int] = Counter()
        self._ended: list[Result] = []
        self._failing = False
        """With fail-fast: a run has failed, so nothing more is started while that is being recorded."""
        self._record_at = 0.0
        self._not_before = 0.0
        self._beat_at = 0.0
        self._tick_at = 0.0
        self.summary = Summary()

    def run(self) -> Summary:
        while self._step():
            pass
        self.summary.stopped = self._switch.why
        return self.summary

    def _step(self) -> bool:
        """One turn of the loop. False when there is nothing left to do."""
        self._obey()
        if self._ended and self._account.metered:
            self._record()  # what the next run may cost depends on what the last one did
        self._fill()
        if self._ended and (time.monotonic() >= self._record_at or len(self._ended) == len(self._in_flight)):
            self._record()
        if not self._in_flight and (self._switch.state or self._queue.empty()):
            return not self._switch.state and self._plan_more()
        for result in self._executor.wait(self._patience()):
            self._note(result)
        for start in self._executor.returned():
            del self._in_flight[start.position]
            self._queue.give_back(start)
        self._tell_time()
        return True

    def _tell_time(self) -> None:
        """Let observers move their clocks, and now and then leave a sign of life."""
        now = time.monotonic()
        if now < self._tick_at:
            return
        self._tick_at = now + _TICK
        running = self._executor.running()
        for observer in self._observers:
            observer.tick(running)
        if now >= self._beat_at:
            self._beat_at = now + _BEAT
            self._beat(running)

    def _obey(self) -> None:
        if self._switch.state:
            self._executor.recall()
        if self._switch.state == "now":
            self._executor.stop()

    def _fill(self) -> None:
        while not self._switch.state and not self._failing and self._executor.capacity() > 0:
            why = self._account.exhausted()
            if why is not None:
                if not self._queue.empty():
                    self._switch.press(why)
                return
            if not self._account.room(len(self._in_flight)):
                return  # what is going on may use up the rest, and if it comes to nothing there is room again
            start = self._queue.take()
            if start is None:
                return
            self._in_flight[start.position] = start
            self._executor.start(start)

    def _patience(self) -> float:
        if not self._ended:
            return _TICK
        return max(0.0, min(_TICK, self._record_at - time.monotonic()))

    def _note(self, result: Result) -> None:
        """A try ended; it is recorded with its group."""
        if not self._ended:
            self._record_at = max(self._not_before, time.monotonic() + _GROUP)
        start = self._in_flight[result.position]
        result.final = not self._tried_again(start, result)
        self._failing |= self._fail_fast and result.final and _is_failure(result)
        self._ended.append(result)

    def _tried_again(self, start: Start, result: Result) -> bool:
        allowed = {"infra_error": self._retries.infra, "failed": self._retries.failed, "timeout": self._retries.failed}
        if self._switch.state or self._failures[start.position] >= allowed.get(result.status, 0):
            self._failures.pop(start.position, None)
            return False
        self._failures[start.position] += 1
        return True

    def _record(self) -> None:
        """Make the group durable, then let everybody know."""
        began = time.monotonic()
        group, self._ended = self._ended, []
        self._persist(group)
        for result in group:
            start = self._in_flight.pop(result.position)
            self._queue.ended(start)
            self.summary.attempts += 1
            self._account.charge(result)
            if result.final:
                self._conclude(start, result)
            else:
                delay = self._retries.backoff * 2 ** (self._failures[start.position] - 1)
                self._queue.again(start, min(delay, _LONGEST_BACKOFF))
            for observer in self._observers:
                observer.finished(start, result)
        if self._account.unmetered is not None:
            raise BakeoffError(self._account.unmetered)
        # On a slow disk groups grow, so that recording never takes most of the time.
        self._not_before = time.monotonic() + 2 * (time.monotonic() - began)

    def _conclude(self, start: Start, result: Result) -> None:
        self.summary.statuses[result.status] += 1
        if self._fail_fast and _is_failure(result):
            self._switch.stop_now(f"stopped at the first failure: {start.run_id} ({result.error or result.status})")

    def _persist(self, group: list[Result]) -> None:
        """A full disk may be emptied meanwhile: try a few times before giving up."""
        for attempt in range(1, _RECORDING_TRIES + 1):
            try:
                self._edition.finish(group, self._session)
                return
            except StorageError as error:
                if attempt == _RECORDING_TRIES:
                    raise StorageError(
                        f"{len(group)} results could not be recorded: {error}. What was reported is safe; "
                        "the same command does the rest again when the cause is gone"
                    ) from error
                time.sleep(0.2 * 2**attempt)

    def _beat(self, running: Sequence[tuple[Start, float]]) -> None:
        try:
            self._edition.beat(self._session, [(start.position, at) for start, at in running])
        except StorageError:
            pass  # a sign of life is not a result; recording will tell if it lasts

    def _plan_more(self) -> bool:
        """Ask the source of further runs, if there is one."""
        fresh = list(self._more()) if self._more is not None else []
        if not fresh or not self._edition.add_runs(fresh):
            return False
        self._queue.reopen()
        return True
