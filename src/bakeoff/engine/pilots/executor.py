"""The scheduler's side of pilots: an `Executor` that hands claimed attempts to pilots and takes in what comes back.

The scheduler calls `start` for a few attempts and then `wait`. `wait` records claims for all of them in one transaction,
sends them, reads what has arrived, and last of all looks for claims that have expired: what waits to be read always
counts before silence does.

A report counts only with the token of a current claim. Everything else that comes from a claim that is over is dropped,
counted for its node, and answered with `Abandon`, so that a pilot that was cut off for a while ends its old runs.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from bakeoff.engine.executors import Situation
from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.fleet import Fleet, KnownPilot, Loss
from bakeoff.engine.pilots.held import ClaimState, HeldClaims
from bakeoff.engine.pilots.messages import (
    Abandon,
    Beat,
    Bye,
    Hello,
    Order,
    Orders,
    Quit,
    Recall,
    Report,
    Returned,
    Stop,
    Upward,
)
from bakeoff.engine.pilots.transport import Launcher, PilotSetup, Transport
from bakeoff.errors import StorageError
from bakeoff.records.claims import Claim, Claims, new_token
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt

_QUICKEST, _SLOWEST = 0.001, 0.05
"""Seconds between two looks at the transport: right after something came, and at rest."""
_GATHER = 0.004
"""Seconds for which `wait` looks for further results after the first one."""
_PAUSE = 2.0
"""`wait` is called several times a second; when it was not for so many seconds, the scheduler stood still."""
_TIME_TO_STOP = 15.0
"""Seconds that pilots get besides the grace period to say what became of runs that are stopped."""
_BALANCE_INTERVAL = 0.5
_DISCARD_INTERVAL = 1.0


class PilotExecutor:
    """`Executor` and `Adopting` over any transport.

    `setup` is what every pilot gets; `expiry` the seconds after which a silent claim is lost; `pilots` how many are kept
    going. With `setup.once` there is one pilot for each attempt instead, and `pilots` is how many there may be at a time.
    """

    def __init__(
        self,
        setup: PilotSetup,
        paths: EditionPaths,
        claims: Claims,
        transport: Transport,
        launcher: Launcher,
        *,
        pilots: int,
        expiry: float,
        same_packages: bool = False,
    ) -> None:
        self.claims = claims
        self._setup = setup
        self._transport = transport
        self._held = HeldClaims()
        self._fleet = Fleet(
            setup, claims, self._held, transport, launcher, wanted=pilots, expiry=expiry, same_packages=same_packages
        )
        self._expiry = expiry
        self._arrivals = Arrivals(paths)
        self._arrivals.open()
        self._runs = paths.runs
        self._ready: list[Attempt] = []
        """Started by the scheduler and not yet claimed."""
        self._room = self._fleet.room()
        """How many more attempts pilots could hold when they were looked at last, those that are ready included."""
        self._back: list[Attempt] = []
        self._failed_on: dict[int, set[str]] = {}
        """By position: hosts on which the run could not be started. It is tried on others."""
        self._to_discard: set[str] = set()
        """Claims that ended and may have left files."""
        self._left = False
        """Another scheduler has taken over."""
        self._adopting = True
        """Until the first look: what arrives then was sent to earlier sessions, and old news is not late."""
        self._stopping: bool | None = None
        self._stop_at = 0.0
        self._looked_at = time.monotonic()
        self._balance_at = 0.0
        self._discard_at = 0.0

    # -- what the scheduler calls

    def capacity(self) -> int:
        return self._room - len(self._ready)  # asked for each attempt

    def start(self, attempt: Attempt) -> None:
        self._ready.append(attempt)

    def adopt(self, claim: Claim, attempt: Attempt) -> None:
        attempt.token, attempt.number = claim.token, claim.attempt
        self._held.hand_out(claim.token, attempt, self._fleet.known(claim.pilot).name, time.monotonic())
        self._room = self._fleet.room()

    def wait(self, timeout: float) -> list[Attempt]:
        now = time.monotonic()
        deadline, interval, gathering = now + timeout, _QUICKEST, False
        paused = now - self._looked_at
        if paused > _PAUSE:  # we were stopped, suspended or held up: nobody could reach us
            # Everybody gets a third of the expiry to speak again. Not more: on a busy machine there are many pauses.
            since = now - self._expiry * 2 / 3
            for each in (*self._held, *self._fleet.pilots.values()):
                each.heard = min(each.heard + paused, max(each.heard, since))
        idle = self.capacity() > 0  # the scheduler has nothing more to start
        self._hand_out()
        while True:
            received = self._transport.receive()
            for name, message in received:
                self._handle(name, message)
            self._adopting = False
            self._looked_at = now = time.monotonic()
            if self._back and not gathering:  # a claim and an order cost as much for one attempt as for many
                gathering, deadline = True, min(deadline, now + _GATHER)
            if now >= deadline:
                break
            interval = _QUICKEST if received else min(1.5 * interval, _SLOWEST)
            time.sleep(min(interval, deadline - now))
        self._fleet.show_presence(now)
        for find in (self._fleet.expired, self._fleet.never_began):
            self._lose(find(now))
        self._fleet.keep(now, replace=self._stopping is None)
        if idle:
            self._balance(now)
        self._fleet.record(now)
        self._arrivals.sync()
        if self._to_discard and now >= self._discard_at:
            self._discard_at = now + _DISCARD_INTERVAL
            self._arrivals.discard(self._to_discard)
            self._to_discard.clear()
        self._room = self._fleet.room()
        back, self._back = self._back, []
        return back

    def recorded(self, attempts: list[Attempt]) -> None:
        over = [attempt.token for attempt in attempts if attempt.token is not None]
        for token in over:
            claim = self._held.recorded(token)
            if claim is not None and claim.directory:
                self._arrivals.settled(claim.attempt.run_id)
        self._transport.recorded(over)

    def stop(self, *, running: bool) -> None:
        self._back += self._ready
        self._ready = []
        if self._stopping is None or (running and not self._stopping):
            self._stopping, self._stop_at = running, time.monotonic()
            for name in self._fleet.pilots:
                if self._held.count(name):
                    self._transport.send(name, [Stop(running)])
        patience = self._setup.limits.get("grace", 5.0) + _TIME_TO_STOP
        if running and time.monotonic() - self._stop_at > patience:
            for claim in list(self._held):  # nobody answers: the user does not wait for an expiry
                self._held.end(claim.token, ClaimState.CANCELLED)
                attempt = claim.attempt
                attempt.status, attempt.error = "cancelled", "stopped; its node did not answer"
                attempt.ended_at = time.time() if attempt.started_at is not None else None
                self._back.append(attempt)

    def situation(self) -> Situation:
        return self._fleet.situation()

    def leave(self) -> None:
        self._left = True

    def close(self) -> None:
        """Let every pilot leave, and remove what was only needed to talk to them."""
        if self._left:
            return
        self._fleet.close()
        try:
            # Some are held when the scheduler leaves because of an error: they have ended.
            self.claims.drop([claim.attempt for claim in self._held])
            self._fleet.record(float("inf"))
        except StorageError:
            pass  # the first error is the one to report; the next session finds the claims and lets them expire
        self._transport.close()
        self._arrivals.close()

    # -- handing out

    def _hand_out(self) -> None:
        """Claim what the scheduler started, durably, and then send it."""
        if not self._ready:
            return
        batches: dict[str, list[Order]] = {}
        # A heap of (share of it that is taken, pilot): the one with the most room is first.
        rooms = [(self._taken_share(pilot.name), pilot.name) for pilot in self._fleet.able(len(self._ready))]
        heapq.heapify(rooms)
        claims: list[Claim] = []
        waiting: list[Attempt] = []
        now = time.monotonic()
        for number, attempt in enumerate(self._ready):
            if not rooms:
                self._back += self._ready[number:]  # a pilot left meanwhile
                break
            name = self._choose(attempt, rooms)
            if name is None:
                waiting.append(attempt)
                continue
            token = new_token(self.claims.session, attempt.position, attempt.number)
            attempt.token, attempt.node = token, name
            claims.append(
                Claim(token, attempt.position, attempt.number, self.claims.session, name, self.claims.executor)
            )
            self._held.hand_out(token, attempt, name, now)
            if (share := self._taken_share(name)) < 1:
                heapq.heappush(rooms, (share, name))
            resumes = (self._runs / attempt.run_id).is_dir() if attempt.number > 1 else False
            batches.setdefault(name, []).append(Order(token, attempt, resumes))
        self._ready = waiting
        self.claims.add(claims)
        for name, orders in batches.items():
            self._transport.send(name, [Orders(orders), *([Quit()] if self._setup.once else ())])
        if self._setup.once:
            self._fleet.start(batches)

    def _choose(self, attempt: Attempt, rooms: list[tuple[float, str]]) -> str | None:
        """Take the pilot with the most room from the heap `rooms`; none on hosts that could not start the run.

        Returns None when only such hosts have room and others are busy. Where there are no others, any host will do.
        """
        avoided = self._failed_on.get(attempt.position, set())
        if avoided and not {pilot.host for pilot in self._fleet.usable()} - avoided:
            avoided = set()
        passed_over = []
        name = None
        while rooms and name is None:
            entry = heapq.heappop(rooms)
            if avoided and self._fleet.pilots[entry[1]].host in avoided:
                passed_over.append(entry)
            else:
                name = entry[1]
        for entry in passed_over:
            heapq.heappush(rooms, entry)
        return name

    def _taken_share(self, pilot: str) -> float:
        return self._held.count(pilot) / self._held.most(pilot)

    def _balance(self, now: float) -> None:
        """Call back what waits in one pilot behind long runs, while another has a free slot and there is nothing else."""
        if now < self._balance_at or self._stopping is not None or self._setup.once:
            return
        self._balance_at = now + _BALANCE_INTERVAL
        usable, count = self._fleet.usable(), self._held.count
        free = sum(max(0, pilot.slots - count(pilot.name)) for pilot in usable)
        crowded = [pilot for pilot in usable if count(pilot.name) > pilot.slots] if free else []
        for pilot in sorted(crowded, key=lambda pilot: -count(pilot.name)):
            claims = self._held.of(pilot.name)
            waiting: list[str] = sorted(claim.token for claim in claims if claim.attempt.started_at is None)
            if chosen := waiting[: min(free, len(claims) - pilot.slots)]:
                self._transport.send(pilot.name, [Recall(chosen)])
                free -= len(chosen)

    # -- what comes back

    def _handle(self, name: str, message: Upward) -> None:
        pilot = self._fleet.heard(name, adopting=self._adopting)
        if pilot is None:
            return
        match message:
            case Hello():
                self._fleet.said_hello(pilot, message, adopting=self._adopting)
            case Beat():
                self._beat(pilot, message)
            case Report(token, attempt, directory):
                self._report(pilot, token, attempt, directory)
            case Returned(tokens):
                self._returned(tokens)
            case Bye(why, lost, expected):
                self._fleet.left(pilot, "" if expected else why)
                claims = self._held.of(pilot.name)
                self._returned([claim.token for claim in claims if claim.token not in lost])  # it had not begun them
                left = [claim for claim in claims if claim.token in lost]
                self._lose([Loss(left, ClaimState.LOST, f"{pilot.host}: {why}")])

    def _beat(self, pilot: KnownPilot, beat: Beat) -> None:
        self._held.allow(pilot.name, beat.most)
        over = self._held.name(beat.held, pilot.heard)
        if beat.whole and not self._adopting:
            # A beat may have been written before a report that was read first; the next one tells.
            if again := sorted(over & pilot.over):
                self._transport.send(pilot.name, [Abandon(again)])
            pilot.over = over

    def _report(self, pilot: KnownPilot, token: str, report: Attempt, directory: bool) -> None:
        if self._held.is_over(token):
            self._transport.recorded([token])  # nobody waits for it any more
            if not self._adopting:
                pilot.late += 1
                pilot.changed = True
                self._to_discard.add(token)
        claim = self._held.end(token, ClaimState.REPORTED)
        if claim is None:
            return
        attempt = claim.attempt
        attempt.take_result(report)
        attempt.command, attempt.node = report.command, pilot.name
        if directory and not self._arrivals.install(claim.token, attempt.run_id):
            attempt.status, attempt.error = "infra_error", "its directory was lost on its way home"
        if self._setup.checkpoints:
            self._to_discard.add(token)  # copies that came while it ran
        claim.directory = directory
        started = attempt.status != "infra_error"
        self._fleet.reported(pilot, started=started)
        if started:
            self._failed_on.pop(attempt.position, None)
        else:
            self._failed_on.setdefault(attempt.position, set()).add(pilot.host)
        self._back.append(attempt)

    def _returned(self, tokens: Iterable[str]) -> None:
        ended = [claim for token in tokens if (claim := self._held.end(token, ClaimState.RETURNED)) is not None]
        self.claims.drop([claim.attempt for claim in ended])
        for claim in ended:
            attempt = claim.attempt
            attempt.status, attempt.started_at, attempt.token = "planned", None, None
            self._back.append(attempt)

    def _lose(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            for claim in loss.claims:
                self._held.end(claim.token, loss.state)
                attempt = claim.attempt
                self._arrivals.rescue(claim.token, attempt.run_id)
                attempt.lost = "alone" if loss.alone and attempt.started_at is not None else "yes"
                attempt.status, attempt.error = "infra_error", loss.why
                attempt.ended_at = time.time() if attempt.started_at is not None else None
                self._back.append(attempt)
