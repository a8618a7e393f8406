"""The scheduler's side of pilots: an `Executor` that hands claimed attempts to pilots and takes in what comes back.

The scheduler calls `start` for a few attempts and then `wait`. `wait` records claims for all of them in one transaction,
sends them, reads what has arrived, and last of all looks for claims that have expired: what waits to be read always
counts before silence does.

A report counts only with the token of a current claim. Everything else that comes from a claim that is over is dropped,
counted for its node, and answered with `Abandon`, so that a pilot that was cut off for a while ends its old runs.
"""

from __future__ import annotations

import heapq
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.fleet import Fleet, KnownPilot
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
from bakeoff.records.claims import Claim, Claims
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt

_QUICKEST, _SLOWEST = 0.001, 0.05
"""Seconds between two looks at the transport: right after something came, and at rest."""
_GATHER = 0.004
"""Seconds for which `wait` looks for further results after the first one."""
_PAUSE = 2.0
"""`wait` is called several times a second; when it was not for so many seconds, the scheduler stood still."""
_TIME_TO_LEAVE = 15.0
"""Seconds that pilots get to say goodbye."""
_BALANCE_INTERVAL = 0.5
_DISCARD_INTERVAL = 1.0
_LOOKS = 20
"""How often claims are looked at during one expiry: there may be a hundred thousand."""


@dataclass(slots=True)
class _Held:
    """An attempt with its claim."""

    attempt: Attempt
    pilot: KnownPilot
    heard: float
    """`time.monotonic()` of the last beat that named it, or of when it was handed out."""


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
    ) -> None:
        self.claims = claims
        self._setup = setup
        self._transport = transport
        self._launcher = launcher
        self._fleet = Fleet(setup, claims, transport, launcher, wanted=pilots, expiry=expiry)
        self._wanted = pilots
        self._expiry = expiry
        self._arrivals = Arrivals(paths)
        self._arrivals.open()
        self._runs = paths.runs
        self._ready: list[Attempt] = []
        """Started by the scheduler and not yet claimed."""
        self._room: int | None = None
        """How many more attempts pilots may hold, those that are ready included; None when it has to be counted."""
        self._held: dict[str, _Held] = {}
        self._taken: dict[str, str] = {}
        """Token of attempts that were returned with a result and are not recorded yet, and the run id if it has files."""
        self._back: list[Attempt] = []
        self._over: set[str] = set()
        """Claims that ended and may have left files."""
        self._left = False
        """Another scheduler has taken over."""
        self._adopting = True
        """Until the first look: what arrives then was sent to earlier sessions, and old news is not late."""
        self._stopping: bool | None = None
        self._stop_at = 0.0
        self._looked_at = time.monotonic()
        self._balance_at = 0.0
        self._expire_at = 0.0
        self._discard_at = 0.0

    # -- what the scheduler calls

    def capacity(self) -> int:
        if self._setup.once:
            return self._wanted - len(self._held) - len(self._ready)
        if self._room is None:  # asked for each attempt, so it is counted once
            self._room = sum(pilot.most - len(pilot.tokens) for pilot in self._fleet.with_room())
        return self._room - len(self._ready)

    def start(self, attempt: Attempt) -> None:
        self._ready.append(attempt)

    def adopt(self, claim: Claim, attempt: Attempt) -> None:
        pilot = self._fleet.known(claim.pilot)
        attempt.token = claim.token
        attempt.number = claim.attempt
        pilot.tokens.add(claim.token)
        self._room = None
        self._held[claim.token] = _Held(attempt, pilot, time.monotonic())

    def wait(self, timeout: float) -> list[Attempt]:
        now = time.monotonic()
        deadline, interval, gathering = now + timeout, _QUICKEST, False
        paused = now - self._looked_at
        if paused > _PAUSE:  # we were stopped, suspended or held up: nobody could reach us
            # Everybody gets a third of the expiry to speak again. Not more: on a busy machine there are many pauses.
            since = now - self._expiry * 2 / 3
            heard: list[_Held | KnownPilot] = [*self._held.values(), *self._fleet.pilots.values()]
            for each in heard:
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
        self._expire(now)
        for pilot, why in self._fleet.never_began(now):
            for token in list(pilot.tokens):
                self._lose(token, f"its pilot never began ({why})", alone=False)
        replace = not self._setup.once and self._stopping is None
        self._fleet.keep(now, replace=replace, holding=bool(self._held))
        if idle:
            self._balance(now)
        self._fleet.record(now)
        self._arrivals.sync()
        if self._over and now >= self._discard_at:
            self._discard_at = now + _DISCARD_INTERVAL
            self._arrivals.discard(self._over)
            self._over.clear()
        self._room = None
        back, self._back = self._back, []
        return back

    def recorded(self, attempts: list[Attempt]) -> None:
        over = [attempt.token for attempt in attempts if attempt.token is not None]
        for token in over:
            if run_id := self._taken.pop(token, ""):
                self._arrivals.settled(run_id)
        self._transport.recorded(over)

    def stop(self, *, running: bool) -> None:
        self._back += self._ready
        self._ready = []
        if self._stopping is None or (running and not self._stopping):
            self._stopping, self._stop_at = running, time.monotonic()
            for pilot in self._fleet.pilots.values():
                if pilot.tokens:
                    self._transport.send(pilot.name, [Stop(running)])
        patience = self._setup.limits.get("grace", 5.0) + _TIME_TO_LEAVE
        if running and time.monotonic() - self._stop_at > patience:
            for token, held in list(self._held.items()):  # nobody answers: the user does not wait for an expiry
                self._release(token)
                attempt = held.attempt
                attempt.status, attempt.error = "cancelled", "stopped; its node did not answer"
                attempt.ended_at = time.time() if attempt.started_at is not None else None
                self._back.append(attempt)
            self._room = None

    def leave(self) -> None:
        self._fleet.pilots.clear()
        self._left = True

    def close(self) -> None:
        """Let every pilot leave, and remove what was only needed to talk to them."""
        if self._left:
            return
        living = [pilot for pilot in self._fleet.pilots.values() if pilot.state != "gone"]
        for pilot in living:
            self._transport.send(pilot.name, [Quit(now=True)])
        deadline = time.monotonic() + _TIME_TO_LEAVE
        while any(pilot.state in ("ready", "leaving") for pilot in living) and time.monotonic() < deadline:
            for name, message in self._transport.receive():
                if isinstance(message, Bye):
                    self._fleet.pilots[name].state = "gone"
            time.sleep(0.02)
        self._launcher.close()
        try:
            self.claims.drop(
                [held.attempt for held in self._held.values()]
            )  # when the scheduler leaves because of an error: they have ended
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
        if self._setup.once:
            able = self._fleet.open(len(self._ready))
        else:
            able = self._fleet.with_room()
        # A heap of (share of it that is taken, pilot): the one with the most room is first.
        rooms = [(len(pilot.tokens) / pilot.most, pilot.name) for pilot in able]
        heapq.heapify(rooms)
        claims: list[Claim] = []
        now = time.monotonic()
        for attempt in self._ready:
            if not rooms:
                break
            name = rooms[0][1]
            pilot = self._fleet.pilots[name]
            token = f"{self.claims.session}.{attempt.position}.{attempt.number}.{secrets.token_hex(8)}"
            attempt.token, attempt.node = token, name
            claims.append(
                Claim(token, attempt.position, attempt.number, self.claims.session, name, self.claims.executor)
            )
            self._held[token] = _Held(attempt, pilot, now)
            pilot.tokens.add(token)
            if len(pilot.tokens) < pilot.most:
                heapq.heapreplace(rooms, (len(pilot.tokens) / pilot.most, name))
            else:
                heapq.heappop(rooms)
            resumes = (self._runs / attempt.run_id).is_dir() if attempt.number > 1 else False
            batches.setdefault(name, []).append(Order(token, attempt, resumes))
        self._back += self._ready[len(claims) :]  # a pilot left meanwhile
        self._ready = []
        self.claims.add(claims)
        for name, orders in batches.items():
            self._transport.send(name, [Orders(orders), *([Quit()] if self._setup.once else ())])
        if self._setup.once:
            self._fleet.start(self._fleet.pilots[name] for name in batches)

    def _balance(self, now: float) -> None:
        """Call back what waits in one pilot behind long runs, while another has a free slot and there is nothing else."""
        if now < self._balance_at or self._stopping is not None or self._setup.once:
            return
        self._balance_at = now + _BALANCE_INTERVAL
        usable = self._fleet.usable()
        free = sum(max(0, pilot.slots - len(pilot.tokens)) for pilot in usable)
        crowded = [pilot for pilot in usable if len(pilot.tokens) > pilot.slots] if free else []
        for pilot in sorted(crowded, key=lambda pilot: -len(pilot.tokens)):
            waiting = sorted(token for token in pilot.tokens if self._held[token].attempt.started_at is None)
            chosen = waiting[: min(free, len(pilot.tokens) - pilot.slots)]
            if chosen:
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
                if message.most != pilot.most:
                    pilot.most = message.most
                    self._fleet.may_have_room(pilot)
                self._beat(pilot, message)
            case Report(token, attempt, directory):
                self._report(pilot, token, attempt, directory)
            case Returned(tokens):
                self._returned(tokens)
            case Bye():
                self._said_bye(pilot, message)

    def _beat(self, pilot: KnownPilot, beat: Beat) -> None:
        over = set()
        for token, began in beat.held:
            entry = self._held.get(token)
            if entry is None:
                if token not in self._taken:
                    over.add(token)
            else:
                entry.heard = pilot.heard
                entry.attempt.started_at = began
        if beat.whole and not self._adopting:
            # A beat may have been written before a report that was read first; the next one tells.
            if again := sorted(over & pilot.over):
                self._transport.send(pilot.name, [Abandon(again)])
            pilot.over = over

    def _report(self, pilot: KnownPilot, token: str, report: Attempt, directory: bool) -> None:
        held = self._release(token)
        if held is None:
            if token not in self._taken:
                self._transport.recorded([token])  # nobody waits for it any more
                if not self._adopting:
                    pilot.late += 1
                    pilot.changed = True
                    self._over.add(token)
            return
        attempt = held.attempt
        attempt.take_result(report)
        attempt.command, attempt.node = report.command, pilot.name
        if directory and not self._arrivals.install(token, attempt.run_id):
            attempt.status, attempt.error = "infra_error", "its directory was lost on its way home"
        if self._setup.checkpoints:
            self._over.add(token)  # copies that came while it ran
        self._taken[token] = attempt.run_id if directory else ""
        self._fleet.succeeded(pilot)
        self._back.append(attempt)

    def _returned(self, tokens: Sequence[str]) -> None:
        given = [held.attempt for token in tokens if (held := self._release(token)) is not None]
        self.claims.drop(given)
        for attempt in given:
            attempt.status, attempt.started_at, attempt.token = "planned", None, None
            self._back.append(attempt)

    def _said_bye(self, pilot: KnownPilot, bye: Bye) -> None:
        """Those of its attempts that it names are lost with it; others it had not begun."""
        self._fleet.left(pilot, "" if bye.expected else bye.why)
        self._returned([token for token in pilot.tokens if token not in bye.lost])
        for token in bye.lost:
            self._lose(token, f"{pilot.host}: {bye.why}", alone=False)

    def _release(self, token: str) -> _Held | None:
        """The claim is over; None when it already was."""
        held = self._held.pop(token, None)
        if held is not None:
            held.pilot.tokens.discard(token)
            self._fleet.may_have_room(held.pilot)
        return held

    # -- losses

    def _expire(self, now: float) -> None:
        """Take back what has not been heard of for too long. Only called after everything that waits has been read.

        A silent pilot loses all that it has at once, whenever it got it: that is one loss of its node. One that speaks
        loses what it has not named for that long: the order never reached it.
        """
        if now < self._expire_at:
            return
        self._expire_at = now + self._expiry / _LOOKS
        self._fleet.fell_silent(now)
        expired = {}
        for pilot in self._fleet.pilots.values():
            named_by = float("inf") if self._fleet.is_dead(pilot, now) else pilot.heard - self._expiry
            if tokens := [token for token in pilot.tokens if self._held[token].heard < named_by]:
                expired[pilot.name] = tokens
        for name, tokens in expired.items():
            pilot = self._fleet.pilots[name]
            why = self._launcher.ended().get(name, "")
            alone = self._fleet.survived(pilot) and not (why and self._launcher.explained(why))
            self._fleet.count_loss(pilot, now)
            text = f"node {pilot.host or name} was lost" + (f" ({why})" if why else f": silent for {self._expiry:g} s")
            for token in tokens:
                self._lose(token, text, alone=alone and self._held[token].attempt.started_at is not None)
            if not self._fleet.is_dead(pilot, now):  # it lives, and does not know these: an order was lost
                self._transport.send(name, [Abandon(tokens)])

    def _lose(self, token: str, why: str, *, alone: bool) -> None:
        held = self._release(token)
        if held is None:
            return
        attempt = held.attempt
        self._arrivals.rescue(token, attempt.run_id)
        attempt.lost = "alone" if alone else "yes"
        attempt.status, attempt.error = "infra_error", why
        attempt.ended_at = time.time() if attempt.started_at is not None else None
        self._back.append(attempt)
