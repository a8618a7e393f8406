"""A plan becomes finished records.

One thread, one loop: start what may start, wait, record what ended, notify observers. Results are recorded in groups,
one synced transaction for what ended in the last few milliseconds, and only then shown, counted or charged.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bakeoff.engine.executors import Adopting, Executor
from bakeoff.engine.queue import Queue
from bakeoff.errors import BakeoffError, StorageError
from bakeoff.records.claims import Claim, Claims
from bakeoff.records.edition import Edition
from bakeoff.records.layout import BUDGET_FILE, BUDGET_USED_UP, atomic_write
from bakeoff.records.run import FAILED, Attempt
from bakeoff.spec.experiment import Budget, Retries
from bakeoff.spec.plan import Plan, Run
from bakeoff.spec.workload import FINISHED

_TICK = 0.1
"""Seconds between two ticks of the observers."""
_BEAT = 1.0
"""Seconds between two signs of life in the database."""
_GROUP = 0.005
"""Seconds that a result waits for others to share its transaction."""
_LONGEST_BACKOFF = 60.0
_RECORDING_TRIES = 5
_ENOUGH_ENDED = 20
"""Runs of a session that must have ended before `limits.failures` can stop it."""
_NO_FAILURE = ("succeeded", "cancelled")
"""Statuses that do not stop a session with fail-fast."""

More = Callable[[], Iterable[Run]]
"""A source of further runs, called when all that are planned have ended; nothing means that it is done."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a session ended before everything was done: programs read the reason, people the text."""

    reason: Literal["interrupted", "first failure", "failures", "budget"]
    text: str


INTERRUPTED = Stop("interrupted", "interrupted")


@dataclass(slots=True)
class Switch:
    """How to ask a scheduler to stop: once, nothing more is started; twice, what is running is ended."""

    state: Literal["", "drain", "now"] = ""
    stop: Stop | None = None

    def press(self, stop: Stop = INTERRUPTED, *, now: bool = False) -> None:
        """Ask to stop. The first press gives the reason; `now` ends what is running at the first press."""
        self.state = "drain" if self.state == "" and not now else "now"
        self.stop = self.stop or stop


class Observer(Protocol):
    """Called from the scheduler's loop, after results are durable. A display, or files beside ours."""

    def finished(self, attempt: Attempt) -> None:
        """An attempt ended and is recorded. `attempt.final` is False when the run is tried again."""

    def tick(self, running: Sequence[Attempt]) -> None:
        """Called about ten times a second with the attempts that are running."""

    def close(self) -> None:
        """The session is over, whatever the reason."""


@dataclass(slots=True)
class SessionSummary:
    """What a session did."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Final results of this session."""
    attempts: int = 0
    stopped: Stop | None = None
    """Why it ended before everything was done; None if it did everything."""
    left_out: int = 0
    """Runs that `--only` did not choose."""
    complete: bool = False


class Account:
    """What the budget has been charged, over all sessions of an edition; earlier ones are read from the database."""

    def __init__(self, budget: Budget, edition: Edition, session: int) -> None:
        self._budget = budget
        counts = edition.counts()
        self._runs = sum(counts.get(status, 0) for status in FINISHED)
        self._cost = edition.spent(budget.cost_metric) if budget.cost is not None else 0.0
        self._tokens = edition.spent("tokens") if budget.tokens is not None else 0.0
        self._seconds = edition.time_spent() if budget.time is not None else 0.0
        self._began = time.monotonic()
        self._used_up = edition.paths.directory / BUDGET_USED_UP
        self.metered = budget.cost is not None or budget.tokens is not None
        if self.metered:
            # For workloads that can stop in the middle of a run: the limits, and what earlier sessions used.
            table = {
                "session": session,
                "cost": budget.cost,
                "cost_metric": budget.cost_metric,
                "tokens": budget.tokens,
                "spent": {"cost": self._cost, "tokens": self._tokens},
            }
            atomic_write(edition.paths.directory / BUDGET_FILE, json.dumps(table))
            self._used_up.unlink(missing_ok=True)  # the limit may be higher now
        self.unmetered: str | None = None
        """The error when a run does not report its cost: such a budget would never be used up."""

    def exhausted(self) -> str | None:
        """Why nothing more may start, or None."""
        budget = self._budget
        if budget.runs is not None and self._runs >= budget.runs:
            return f"budget of {budget.runs} runs used up"
        elapsed = self._seconds + time.monotonic() - self._began
        if budget.time is not None and elapsed >= budget.time:
            return f"time budget of {budget.time:g} s used up"
        used_up = self._used_up.read_text() if self.metered and self._used_up.exists() else ""
        if budget.cost is not None and (self._cost >= budget.cost or used_up == "cost"):
            return f"budget of {budget.cost:g} {budget.cost_metric} used up ({self._cost:g})"
        if budget.tokens is not None and (self._tokens >= budget.tokens or used_up == "tokens"):
            return f"budget of {budget.tokens} tokens used up ({self._tokens:g})"
        return None

    def room(self, in_flight: int) -> bool:
        """Whether one more run fits beside those in flight."""
        return self._budget.runs is None or self._runs + in_flight < self._budget.runs

    def charge(self, attempt: Attempt) -> None:
        """Every attempt is charged: one that is tried again cost something too."""
        if attempt.final and attempt.status in FINISHED:
            self._runs += 1
        tokens = attempt.metrics.get("tokens")
        if isinstance(tokens, int | float) and math.isfinite(tokens):
            self._tokens += tokens
        if self._budget.cost is None:
            return
        value = attempt.metrics.get(self._budget.cost_metric)
        if isinstance(value, int | float) and math.isfinite(value):
            self._cost += value
        elif attempt.status == "succeeded":
            self.unmetered = (
                f"run {attempt.run_id} reports no {self._budget.cost_metric!r}, so the cost budget cannot be kept; "
                "let runs report it, name another metric in budget.cost_metric, or remove budget.cost"
            )


class Scheduler:
    """One session's loop. `run` returns when everything is done or the switch was pressed."""

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
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        """`renew` is called about once a second; what it raises ends the session."""
        self._renew = renew
        self._retries: Retries = plan.experiment.retries
        self._max_failures = plan.experiment.limits.failures
        self._edition = edition
        self._session = session
        self._executor = executor
        self._keeper = executor if isinstance(executor, Adopting) else None
        self._queue = queue
        self._switch = switch
        self._fail_fast = fail_fast
        self._observers = observers
        self._more = more
        self._account = Account(plan.experiment.budget, edition, session)
        self._in_flight: dict[int, Attempt] = {}
        """Attempts that were started and are not recorded yet, by position."""
        self._shown: set[int] = set()
        """Positions of those that are recorded as running."""
        self._failures: Counter[int] = Counter()
        """How often a run that may be tried again has failed in this session, by position."""
        self._losses: Counter[int] = Counter()
        """The same for losses of nodes, which have their own budget."""
        self._ended: list[Attempt] = []
        self._outcomes: Counter[str] = Counter()
        """Final results of this session by status, also those that are not recorded yet."""
        self._halt: Stop | None = None
        """Why failures end the session: nothing more is started, and the stop follows once they are recorded."""
        self._record_at = 0.0
        self._not_before = 0.0
        self._beat_at = 0.0
        self._tick_at = 0.0
        self.summary = SessionSummary()

    def adopt(self, claims: Sequence[Claim], ended: Mapping[str, Attempt] | None = None) -> None:
        """Take over attempts that an earlier session handed to other machines. Call it before `run`.

        An executor that cannot know them, because the earlier one was of another kind, leaves them to be done again,
        except those of which `ended` has the result, by token.
        """
        keeper = self._keeper
        given_up: list[Claim] = []
        for claim in claims:
            attempt = self._queue.adopt(claim.position)
            if attempt is not None and keeper is not None and claim.executor == keeper.claims.executor:
                self._in_flight[attempt.position] = attempt
                keeper.adopt(claim, attempt)
                continue
            if attempt is not None and ended is not None and (result := ended.get(claim.token)) is not None:
                attempt.take_result(result)
                attempt.token, attempt.number, attempt.node = claim.token, claim.attempt, claim.pilot
                attempt.command = result.command
                self._in_flight[attempt.position] = attempt
                self._note(attempt)
                continue
            given_up.append(claim)
            if attempt is not None:
                self._queue.give_back(attempt)
        Claims(self._edition, "", self._session).drop(given_up)

    def run(self) -> SessionSummary:
        """The loop: start, record, wait, until there is nothing left to do."""
        while True:
            if self._switch.state:
                self._executor.stop(running=self._switch.state == "now")
            if self._ended and self._account.metered:
                self._record()  # what the next run may cost depends on what the last one did
            self._fill()
            # When nothing else is in flight there is no group to wait for.
            if self._ended and (time.monotonic() >= self._record_at or len(self._ended) == len(self._in_flight)):
                self._record()
            if not self._in_flight and (self._switch.state or self._queue.empty()):
                runs = list(self._more()) if self._more is not None and not self._switch.state else []
                if not runs or not self._edition.add_runs(runs):
                    self.summary.stopped = self._switch.stop
                    return self.summary
                self._queue.reopen()
                continue
            patience = max(0.0, min(_TICK, self._record_at - time.monotonic())) if self._ended else _TICK
            for attempt in self._executor.wait(patience):
                if attempt.status == "planned":
                    del self._in_flight[attempt.position]
                    self._shown.discard(attempt.position)
                    self._queue.give_back(attempt)
                else:
                    self._note(attempt)
            self._tick()

    def _fill(self) -> None:
        """Start as many attempts as capacity, budget and switch allow."""
        while not self._switch.state and self._halt is None and self._executor.capacity() > 0:
            why = self._account.exhausted()
            if why is not None:
                if not self._queue.empty():
                    self._switch.press(Stop("budget", why))
                return
            if not self._account.room(len(self._in_flight)):
                return  # what is running may use up the rest; if it comes to nothing, there is room again
            attempt = self._queue.take()
            if attempt is None:
                return
            self._in_flight[attempt.position] = attempt
            self._executor.start(attempt)

    def _note(self, attempt: Attempt) -> None:
        """An attempt ended: decide whether it is retried, and record it with its group."""
        if not self._ended:
            self._record_at = max(self._not_before, time.monotonic() + _GROUP)
        retries, position = self._retries, attempt.position
        counter, allowed = self._failures, 0
        match attempt.status:
            case "infra_error" if attempt.lost:
                counter, allowed = self._losses, retries.lost
                if attempt.lost == "alone" and self._edition.losses_alone(position) > 0:
                    # Otherwise a run that crashes its node when it loses would be tried until it wins.
                    attempt.status, allowed = "failed", 0
                    attempt.error = f"lost twice while other runs on its node survived; the last time: {attempt.error}"
            case "infra_error":
                allowed = retries.infra
            case "failed" | "timeout":
                allowed = retries.failed
        # A session that is stopping retries nothing: an attempt that ended now is the last word until the next session.
        attempt.final = bool(self._switch.state) or counter[position] >= allowed
        if attempt.final:
            self._failures.pop(position, None)
            self._losses.pop(position, None)
            self._outcomes[attempt.status] += 1
            self._halt = self._halt or self._too_many_failures(attempt)
        else:
            counter[position] += 1
        self._ended.append(attempt)

    def _too_many_failures(self, last: Attempt) -> Stop | None:
        """Judge the failures so far. Called for each result, because a share counted by groups may hide a peak."""
        if self._fail_fast and last.status not in _NO_FAILURE:
            cause = last.error or last.status
            return Stop("first failure", f"stopped at the first failure: {last.run_id} ({cause})")
        failed, ended = (sum(self._outcomes[status] for status in kind) for kind in (FAILED, FINISHED))
        if self._max_failures is None or ended < _ENOUGH_ENDED or failed <= self._max_failures * ended:
            return None
        share = f"{failed} of {ended} runs failed, and limits.failures is {self._max_failures:g}"
        return Stop("failures", f"stopped: {share}; the same command goes on with the rest")

    def _record(self) -> None:
        """Make the group durable, then count, charge and show it."""
        began = time.monotonic()
        group, self._ended = self._ended, []
        self._persist(group)
        if self._keeper is not None:
            self._keeper.recorded(group)
        for attempt in group:
            del self._in_flight[attempt.position]
            self._shown.discard(attempt.position)
            self._queue.ended(attempt)
            self.summary.attempts += 1
            self._account.charge(attempt)
            if attempt.final:
                self.summary.statuses[attempt.status] += 1
            else:
                delay = self._retries.backoff * 2 ** (self._failures[attempt.position] - 1)
                # Not the run's node but another one takes it: there is nothing to wait for.
                self._queue.again(attempt, 0.0 if attempt.lost else min(delay, _LONGEST_BACKOFF))
            for observer in self._observers:
                observer.finished(attempt)
        if self._halt is not None and self._switch.stop is None:
            self._switch.press(self._halt, now=self._halt.reason == "first failure")
        if self._account.unmetered is not None:
            raise BakeoffError(self._account.unmetered)
        # On a slow disk groups grow, so that recording never takes most of the time.
        self._not_before = time.monotonic() + 2 * (time.monotonic() - began)

    def _persist(self, group: list[Attempt]) -> None:
        """Record the group. A full disk may be emptied meanwhile, so it is tried a few times."""
        for number in range(1, _RECORDING_TRIES + 1):
            try:
                self._edition.finish(group, self._session)
                return
            except StorageError as error:
                if number == _RECORDING_TRIES:
                    raise StorageError(
                        f"{len(group)} results could not be recorded: {error}. What was reported is safe; "
                        "the same command does the rest again when the cause is gone"
                    ) from error
                time.sleep(0.2 * 2**number)

    def _tick(self) -> None:
        """Let observers update their clocks, and from time to time leave a sign of life in the database."""
        now = time.monotonic()
        if now < self._tick_at:
            return
        running = [
            attempt
            for attempt in self._in_flight.values()
            if attempt.started_at is not None and attempt.ended_at is None
        ]
        for observer in self._observers:
            observer.tick(running)
        # A hundred thousand running attempts take a while to look at: that is done less often, not most of the time.
        self._tick_at = now + max(_TICK, 20 * (time.monotonic() - now))
        if now >= self._beat_at:
            self._beat_at = now + _BEAT
            self._renew()
            fresh = [attempt for attempt in running if attempt.position not in self._shown]
            try:
                self._edition.beat(self._session, fresh)
                self._shown.update(attempt.position for attempt in fresh)
            except StorageError:
                pass  # a sign of life is not a result; if the trouble lasts, recording reports it
