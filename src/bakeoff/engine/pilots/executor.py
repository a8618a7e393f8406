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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.messages import (
    Abandon,
    Beat,
    Bye,
    Hello,
    NodeFacts,
    Order,
    Orders,
    Presence,
    Quit,
    Recall,
    Report,
    Returned,
    Stop,
    Upward,
)
from bakeoff.engine.pilots.transport import Launcher, PilotSetup, Transport
from bakeoff.errors import BakeoffError, StorageError
from bakeoff.records.claims import Claim, Claims, NodeRecord
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt

_QUICKEST, _SLOWEST = 0.001, 0.05
"""Seconds between two looks at the transport: right after something came, and at rest."""
_GATHER = 0.004
"""Seconds for which `wait` looks for further results after the first one."""
_PAUSE = 2.0
"""`wait` is called several times a second; when it was not for so many seconds, the scheduler stood still."""
_SURVIVES = 2
"""A neighbour that is heard of so many heartbeats after a pilot's last word has survived it. Pilots of a node beat at
different moments, so one heartbeat would not tell a pilot that died alone from a node that was cut off."""
_LOST_IN_A_ROW = 3
_FAILED_STARTS = 3
_TIME_TO_LEAVE = 15.0
"""Seconds that pilots get to say goodbye."""
_NODES_INTERVAL = 5.0
_BALANCE_INTERVAL = 0.5
_DISCARD_INTERVAL = 1.0
_LOOKS = 20
"""How often claims are looked at during one expiry: there may be a hundred thousand."""


@dataclass(slots=True)
class _Pilot:
    """A pilot as the scheduler knows it."""

    name: str
    state: Literal["starting", "ready", "leaving", "silent", "gone"] = "starting"
    """`silent`: its claims expired; it may come back. `gone`: it said goodbye, or never will."""
    facts: NodeFacts | None = None
    slots: int = 0
    most: int = 0
    tokens: set[str] = field(default_factory=set)
    heard: float = 0.0
    """`time.monotonic()` of its last message."""
    began: float = float("inf")
    """`time.monotonic()` of its hello."""
    over: set[str] = field(default_factory=set)
    """Claims that its last beat named and that are over."""
    lost: int = 0
    late: int = 0
    changed: bool = False
    """There is something new about it to record."""

    @property
    def host(self) -> str:
        return self.facts.host if self.facts is not None else ""


@dataclass(slots=True)
class _Held:
    """An attempt with its claim."""

    attempt: Attempt
    pilot: _Pilot
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
        self._wanted = pilots
        self._expiry = expiry
        self._arrivals = Arrivals(paths)
        self._arrivals.open()
        self._runs = paths.runs
        self._ready: list[Attempt] = []
        """Started by the scheduler and not yet claimed."""
        self._room: int | None = None
        """How many more attempts pilots may hold, those that are ready included; None when it has to be counted."""
        self._unfilled: set[str] = set()
        """Pilots that may have room: something has changed since they were full."""
        self._held: dict[str, _Held] = {}
        self._taken: dict[str, str] = {}
        """Token of attempts that were returned with a result and are not recorded yet, and the run id if it has files."""
        self._back: list[Attempt] = []
        self._over: set[str] = set()
        """Claims that ended and may have left files."""
        now = time.monotonic()
        self._pilots = {name: _Pilot(name, "silent", heard=now) for name in transport.known()}
        self._left = False
        """Another scheduler has taken over."""
        self._adopting = True
        """Until the first look: what arrives then was sent to earlier sessions, and old news is not late."""
        self._number = 0
        self._failed_starts = 0
        self._refusal = ""
        self._in_a_row: Counter[str] = Counter()
        """Losses since the last success, by host."""
        self._lost_at: dict[str, float] = {}
        """When a host was counted as lost last: all its pilots that were silent by then were lost with it."""
        self._left_out: set[str] = set()
        self._stopping: bool | None = None
        self._stop_at = 0.0
        self._looked_at = now
        self._present_at = 0.0
        self._nodes_at = 0.0
        self._balance_at = 0.0
        self._expire_at = 0.0
        self._keep_at = 0.0
        self._discard_at = 0.0

    # -- what the scheduler calls

    def capacity(self) -> int:
        if self._setup.once:
            return self._wanted - len(self._held) - len(self._ready)
        if self._room is None:  # asked for each attempt, so it is counted once
            self._room = sum(pilot.most - len(pilot.tokens) for pilot in self._with_room())
        return self._room - len(self._ready)

    def start(self, attempt: Attempt) -> None:
        self._ready.append(attempt)

    def adopt(self, claim: Claim, attempt: Attempt) -> None:
        pilot = self._pilots.get(claim.pilot)
        if pilot is None:  # its place is gone: nothing can come from it any more, and it expires
            pilot = self._pilots[claim.pilot] = _Pilot(claim.pilot, "silent", heard=time.monotonic())
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
            heard: list[_Held | _Pilot] = [*self._held.values(), *self._pilots.values()]
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
            if self._back:  # a claim and an order cost as much for one attempt as for many
                deadline = min(deadline, now + _GATHER) if received and not gathering else deadline
                gathering = True
            if now >= deadline:
                break
            interval = _QUICKEST if received else min(1.5 * interval, _SLOWEST)
            time.sleep(min(interval, deadline - now))
        self._show_presence(now)
        self._expire(now)
        self._keep_pilots(now)
        if idle:
            self._balance(now)
        self._record_nodes(now)
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
            for pilot in self._pilots.values():
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
        self._pilots.clear()
        self._left = True

    def close(self) -> None:
        """Let every pilot leave, and remove what was only needed to talk to them."""
        if self._left:
            return
        living = [pilot for pilot in self._pilots.values() if pilot.state != "gone"]
        for pilot in living:
            self._transport.send(pilot.name, [Quit(now=True)])
        deadline = time.monotonic() + _TIME_TO_LEAVE
        while any(pilot.state in ("ready", "leaving") for pilot in living) and time.monotonic() < deadline:
            for name, message in self._transport.receive():
                if isinstance(message, Bye):
                    self._pilots[name].state = "gone"
            time.sleep(0.02)
        self._launcher.close()
        try:
            self.claims.drop(
                [held.attempt for held in self._held.values()]
            )  # when the scheduler leaves because of an error: they have ended
            self._record_nodes(float("inf"))
        except StorageError:
            pass  # the first error is the one to report; the next session finds the claims and lets them expire
        self._transport.close()
        self._arrivals.close()

    # -- handing out

    def _usable(self) -> list[_Pilot]:
        """Pilots that may get attempts. One that has missed several beats is probably lost, and gets nothing more."""
        since = time.monotonic() - self._expiry / 2
        return [
            pilot
            for pilot in self._pilots.values()
            if pilot.state == "ready" and pilot.heard >= since and pilot.host not in self._left_out
        ]

    def _with_room(self) -> list[_Pilot]:
        """Those of them that may take more. Looks only at pilots that have changed, not at a thousand that are full."""
        able, since = [], time.monotonic() - self._expiry / 2
        for name in list(self._unfilled):
            pilot = self._pilots.get(name)
            if (
                pilot is None
                or pilot.state != "ready"
                or len(pilot.tokens) >= pilot.most
                or pilot.host in self._left_out
            ):
                self._unfilled.discard(name)
            elif pilot.heard >= since:
                able.append(pilot)
        return able

    def _hand_out(self) -> None:
        """Claim what the scheduler started, durably, and then send it."""
        if not self._ready:
            return
        batches: dict[str, list[Order]] = {}
        if self._setup.once:
            able = [self._pilots[name] for name in self._open_pilots(len(self._ready))]
        else:
            able = self._with_room()
        # A heap of (share of it that is taken, pilot): the one with the most room is first.
        rooms = [(len(pilot.tokens) / pilot.most, pilot.name) for pilot in able]
        heapq.heapify(rooms)
        claims: list[Claim] = []
        now = time.monotonic()
        for attempt in self._ready:
            if not rooms:
                break
            name = rooms[0][1]
            pilot = self._pilots[name]
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
            self._launcher.start(list(batches), avoid=sorted(self._left_out))

    def _open_pilots(self, number: int) -> list[str]:
        """Places for so many further pilots, which are not started yet."""
        names = []
        for _ in range(number):
            self._number += 1
            names.append(f"{self.claims.session}-{self._number}")
        self._transport.open(dict.fromkeys(names, self._setup))
        now = time.monotonic()
        self._pilots |= {name: _Pilot(name, heard=now, most=1) for name in names}
        return names

    def _balance(self, now: float) -> None:
        """Call back what waits in one pilot behind long runs, while another has a free slot and there is nothing else."""
        if now < self._balance_at or self._stopping is not None or self._setup.once:
            return
        self._balance_at = now + _BALANCE_INTERVAL
        usable = self._usable()
        free = sum(max(0, pilot.slots - len(pilot.tokens)) for pilot in usable)
        crowded = [pilot for pilot in usable if len(pilot.tokens) > pilot.slots] if free else []
        for pilot in sorted(crowded, key=lambda pilot: -len(pilot.tokens)):
            waiting = sorted(token for token in pilot.tokens if self._held[token].attempt.started_at is None)
            chosen = waiting[: min(free, len(pilot.tokens) - pilot.slots)]
            if chosen:
                self._transport.send(pilot.name, [Recall(chosen)])
                free -= len(chosen)

    def _show_presence(self, now: float) -> None:
        if now < self._present_at:
            return
        self._present_at = now + self._setup.heartbeat
        presence = Presence(self.claims.session, time.time())
        for pilot in self._pilots.values():
            if pilot.state != "gone":
                self._transport.send(pilot.name, [presence])

    # -- what comes back

    def _handle(self, name: str, message: Upward) -> None:
        pilot = self._pilots.get(name)
        if pilot is None:
            return
        pilot.heard = time.monotonic()
        if pilot.state == "silent" and pilot.facts is not None and pilot.most and not self._adopting:
            pilot.state = "ready"  # it was cut off, and is back
            self._unfilled.add(name)
        match message:
            case Hello():
                self._said_hello(pilot, message)
            case Beat():
                if message.most != pilot.most:
                    pilot.most = message.most
                    self._unfilled.add(name)
                self._beat(pilot, message)
            case Report(token, attempt, directory):
                self._report(pilot, token, attempt, directory)
            case Returned(tokens):
                self._returned(pilot, tokens)
            case Bye():
                self._said_bye(pilot, message)

    def _said_hello(self, pilot: _Pilot, hello: Hello) -> None:
        pilot.facts, pilot.slots, pilot.most, pilot.changed = hello.node, hello.slots, hello.most, True
        self._unfilled.add(pilot.name)
        self._keep_at = 0.0
        pilot.began = pilot.heard
        if hello.refusal:
            pilot.state, self._refusal = "leaving", hello.refusal
            self._failed_starts += 1
        elif hello.node.code != self._setup.code:  # of an earlier session with other code: it may finish what it has
            pilot.state = "leaving"
            self._transport.send(pilot.name, [Quit()])
        elif not self._adopting:  # an old hello says nothing about now: the next beat does
            pilot.state = "ready"

    def _beat(self, pilot: _Pilot, beat: Beat) -> None:
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

    def _report(self, pilot: _Pilot, token: str, report: Attempt, directory: bool) -> None:
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
        self._in_a_row.pop(pilot.host, None)
        self._failed_starts = 0
        self._back.append(attempt)

    def _returned(self, pilot: _Pilot, tokens: Sequence[str]) -> None:
        given = [held.attempt for token in tokens if (held := self._release(token)) is not None]
        self.claims.drop(given)
        for attempt in given:
            attempt.status, attempt.started_at, attempt.token = "planned", None, None
            self._back.append(attempt)

    def _said_bye(self, pilot: _Pilot, bye: Bye) -> None:
        """Those of its attempts that it names are lost with it; others it had not begun."""
        unheard = pilot.state == "starting"
        pilot.state = "gone"
        self._keep_at = 0.0
        unread = [token for token in pilot.tokens if token not in bye.lost]
        self._returned(pilot, unread)
        for token in bye.lost:
            held = self._release(token)
            if held is not None:
                self._lose(token, held.attempt, f"{pilot.host}: {bye.why}", alone=False)
        if not bye.expected:
            self._refusal = bye.why
            self._failed_starts += unheard  # it could not even say what it is

    def _release(self, token: str) -> _Held | None:
        """The claim is over; None when it already was."""
        held = self._held.pop(token, None)
        if held is not None:
            held.pilot.tokens.discard(token)
            self._unfilled.add(held.pilot.name)
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
        expired: dict[str, list[str]] = {}
        for pilot in self._pilots.values():
            if pilot.state == "starting" and pilot.facts is None:
                continue  # it waits in the engine's queue
            dead = now - pilot.heard > self._expiry
            if dead and (pilot.tokens or pilot.state == "ready"):  # an idle one, too: it would lose what it is given
                pilot.state = "silent"
                self._keep_at = 0.0
            named_by = pilot.heard - self._expiry
            tokens = [token for token in pilot.tokens if dead or self._held[token].heard < named_by]
            if tokens:
                expired[pilot.name] = tokens
        for name, tokens in expired.items():
            pilot = self._pilots[name]
            dead = now - pilot.heard > self._expiry
            why = self._launcher.ended().get(name, "")
            explained = bool(why) and self._launcher.explained(why)
            # A neighbour that was there before and was heard of since shows that the machine is not what failed. One that
            # came later shows nothing: a machine that crashed may be back.
            since = pilot.heard + _SURVIVES * self._setup.heartbeat
            survived = any(
                other is not pilot
                and other.host == pilot.host
                and other.host
                and other.began < pilot.heard < since < other.heard
                for other in self._pilots.values()
            )
            self._count_loss(pilot, now)
            text = f"node {pilot.host or name} was lost" + (f" ({why})" if why else f": silent for {self._expiry:g} s")
            for token in tokens:
                entry = self._release(token)
                assert entry is not None
                began = entry.attempt.started_at is not None
                self._lose(token, entry.attempt, text, alone=began and survived and not explained)
            if not dead:  # it lives, and does not know these: an order was lost
                self._transport.send(name, [Abandon(tokens)])

    def _count_loss(self, pilot: _Pilot, now: float) -> None:
        pilot.lost += 1
        pilot.changed = True
        if pilot.host and pilot.heard > self._lost_at.get(pilot.host, 0.0):
            self._lost_at[pilot.host] = now
            self._in_a_row[pilot.host] += 1
            if self._in_a_row[pilot.host] >= _LOST_IN_A_ROW and pilot.host not in self._left_out:
                self._left_out.add(pilot.host)
                for other in self._pilots.values():
                    if other.host == pilot.host and other.state == "ready":
                        self._transport.send(other.name, [Quit()])

    def _lose(self, token: str, attempt: Attempt, why: str, *, alone: bool) -> None:
        self._arrivals.rescue(token, attempt.run_id)
        attempt.lost = "alone" if alone else "yes"
        attempt.status, attempt.error = "infra_error", why
        attempt.ended_at = time.time() if attempt.started_at is not None else None
        self._back.append(attempt)

    # -- pilots

    def _keep_pilots(self, now: float) -> None:
        """Start pilots in the place of those that are gone. Raises BakeoffError when they keep failing to start.

        Looks at all of them when one has come or gone, and otherwise a few times for each heartbeat.
        """
        if now < self._keep_at:
            return
        self._keep_at = now + self._setup.heartbeat / 10
        for name, why in self._launcher.ended().items():
            pilot = self._pilots.get(name)
            if pilot is None or pilot.state == "gone":
                continue
            if pilot.state == "starting" and now - pilot.heard > self._setup.heartbeat:
                # It ended without a word. A last one may still be on its way through the file system.
                pilot.state = "gone"
                if not self._launcher.explained(why):
                    self._failed_starts += 1
                    self._refusal = f"it ended without a word ({why})\n{self._launcher.log(name)}".rstrip()
                for token in list(pilot.tokens):
                    held = self._release(token)
                    if held is not None:
                        self._lose(token, held.attempt, f"its pilot never began ({why})", alone=False)
            elif pilot.state == "silent" and not pilot.tokens:
                pilot.state = "gone"
        if self._failed_starts >= max(_FAILED_STARTS, self._wanted) and not self._usable():
            raise BakeoffError(f"pilots of the executor {self.claims.executor} cannot start: {self._refusal}")
        if self._left_out and not self._held and not self._usable() and self._only_bad_nodes():
            raise BakeoffError(
                f"every node that the executor {self.claims.executor} gets was lost {_LOST_IN_A_ROW} times in a row: "
                f"{', '.join(sorted(self._left_out))}. The same command does the rest when they are well again"
            )
        alive, gone = 0, []
        for pilot in self._pilots.values():
            if pilot.state == "gone":
                gone.append(pilot)
            elif pilot.state != "leaving":
                # An adopted pilot that has not spoken yet may: it gets one expiry to do so.
                alive += pilot.state != "silent" or now - pilot.heard <= self._expiry
        for pilot in gone:
            if not pilot.tokens and not pilot.changed:
                del self._pilots[pilot.name]
                self._transport.forget(pilot.name)
        if self._setup.once or self._stopping is not None:
            return
        if alive < self._wanted:
            self._launcher.start(self._open_pilots(self._wanted - alive), avoid=sorted(self._left_out))

    def _only_bad_nodes(self) -> bool:
        """Whether all pilots that are there are on nodes that are left out, and none is still to come."""
        here = [pilot for pilot in self._pilots.values() if pilot.state in ("starting", "ready")]
        return bool(here) and all(pilot.state == "ready" and pilot.host in self._left_out for pilot in here)

    def _record_nodes(self, now: float) -> None:
        if now < self._nodes_at:
            return
        self._nodes_at = time.monotonic() + _NODES_INTERVAL
        changed = [pilot for pilot in self._pilots.values() if pilot.changed and pilot.facts is not None]
        records = []
        for pilot in changed:
            assert pilot.facts is not None
            pilot.changed = False
            facts = pilot.facts
            records.append(
                NodeRecord(
                    pilot.name, self.claims.session, self.claims.executor, facts.host, facts.kind, facts.code, time.time(),
                    pilot.lost, pilot.late,
                )
            )  # fmt: skip
        if records:
            self.claims.see(records)
