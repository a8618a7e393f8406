"""The pilots as the scheduler knows them: which are there and have room, and who takes the place of one that is gone.

The fleet starts pilots, watches them, and says which claims were lost with them and why. A machine whose pilots were lost
several times in a row is left out, and so is one that can start no run while others can, or, if the experiment asks for
it, one with other packages than the first. Pilots that fall silent together
count as one loss of their machine; a pilot that falls silent while its neighbours on the same machine go on was lost alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.engine.executors import Situation
from bakeoff.engine.pilots.held import ClaimState, HeldClaim, HeldClaims
from bakeoff.engine.pilots.messages import Abandon, Bye, Hello, NodeFacts, Presence, Quit
from bakeoff.engine.pilots.transport import Launcher, PilotSetup, Transport
from bakeoff.errors import BakeoffError
from bakeoff.records.claims import Claims, NodeRecord, list_nodes, pilot_name
from bakeoff.records.looks import SET_ASIDE
from bakeoff.records.packages import differing_packages

_SURVIVES = 2
"""A neighbour that is heard of so many heartbeats after a pilot's last message has survived it. Pilots of a node beat at
different moments, so one heartbeat would not tell a pilot that died alone from a node that was cut off."""
_LOST_IN_A_ROW = 3
_FAILED_IN_A_ROW = 3
"""Runs that a machine could not start, one after the other, before it is left out."""
_FAILED_STARTS = 3
_RECORD_INTERVAL = 5.0
_NAMED = 5
"""Packages that are named where several differ."""
_TIME_TO_LEAVE = 15.0
"""Seconds that pilots get to leave at the end."""
_LOOKS = 20
"""How often claims are looked at during one expiry: there may be a hundred thousand."""


@dataclass(slots=True)
class KnownPilot:
    """A pilot, from the order to start it until it is gone."""

    name: str
    state: Literal["starting", "ready", "leaving", "silent", "gone"] = "starting"
    """`silent`: its claims expired; it may come back. `gone`: it said goodbye, or never will."""
    facts: NodeFacts | None = None
    slots: int = 0
    heard: float = 0.0
    """`time.monotonic()` of its last message."""
    began: float = float("inf")
    """`time.monotonic()` of its hello."""
    over: set[str] = field(default_factory=set)
    """Claims that its last beat named and that are over."""
    lost: int = 0
    late: int = 0
    refused: str = ""
    """Why it gets nothing."""
    changed: bool = False
    """There is something new about it to record."""

    @property
    def host(self) -> str:
        return self.facts.host if self.facts is not None else ""


@dataclass(frozen=True, slots=True)
class Loss:
    """Claims that are lost together with their pilot, or by it."""

    claims: list[HeldClaim]
    state: ClaimState
    why: str
    alone: bool = False
    """Other pilots on the same machine go on, and the engine does not explain it: the runs may have caused it."""


class Fleet:
    """`wanted` pilots are kept going; with `setup.once` there is one for each attempt, and at most so many at a time."""

    def __init__(
        self,
        setup: PilotSetup,
        claims: Claims,
        held: HeldClaims,
        transport: Transport,
        launcher: Launcher,
        *,
        wanted: int,
        expiry: float,
        same_packages: bool,
    ) -> None:
        self._setup = setup
        self._claims = claims
        self._held = held
        self._transport = transport
        self._launcher = launcher
        self._wanted = wanted
        self._expiry = expiry
        now = time.monotonic()
        self.pilots = {name: KnownPilot(name, "silent", heard=now) for name in transport.known()}
        nodes = list_nodes(claims.edition)
        self.left_out = {node.host: node.refused for node in nodes if node.refused == SET_ASIDE}
        """Hosts that get nothing more, and why."""
        self.warnings: dict[str, str] = {}
        """What users should know about a host that is used, by host."""
        self._same_packages = same_packages
        self._model = next((node for node in nodes if node.packages and not node.refused), None)
        """The first node of the edition: others are compared with it."""
        self._in_a_row: Counter[str] = Counter()
        """Losses since the last success, by host."""
        self._not_started: Counter[str] = Counter()
        """Runs that could not be started, one after the other, by host."""
        self._good: set[str] = set()
        """Hosts that started a run in this session."""
        self._lost_at: dict[str, float] = {}
        """When a host was counted as lost last: all its pilots that were silent by then were lost with it."""
        self._number = 0
        self._failed_starts = 0
        self._refusal = ""
        self._present_at = 0.0
        self._expire_at = 0.0
        self._keep_at = 0.0
        self._record_at = 0.0

    # -- which there are, and which have room

    def known(self, name: str) -> KnownPilot:
        """The pilot of a claim that an earlier session made. If its place is gone, nothing can come from it any more."""
        return self.pilots.setdefault(name, KnownPilot(name, "silent", heard=time.monotonic()))

    def usable(self) -> list[KnownPilot]:
        """Return pilots that may get attempts."""
        return self._usable(self.pilots)

    def with_room(self) -> list[KnownPilot]:
        """Return those of them that may take more."""
        return self._usable(self._held.rooms())

    def _usable(self, names: Iterable[str]) -> list[KnownPilot]:
        """Leave out a pilot that has missed several beats: it is probably lost."""
        since, left_out = time.monotonic() - self._expiry / 2, self.left_out
        return [
            pilot
            for name in names
            if (pilot := self.pilots[name]).state == "ready"
            and pilot.heard >= since
            and not (left_out and pilot.host in left_out)
        ]

    def room(self) -> int:
        """Return how many more attempts may be handed out."""
        if self._setup.once:
            return self._wanted - len(self._held)
        rooms = self._held.rooms()
        return sum(rooms[pilot.name] for pilot in self.with_room())

    def able(self, number: int) -> list[KnownPilot]:
        """Return pilots to hand out attempts to; with `setup.once` so many new ones, to be started afterwards."""
        if not self._setup.once:
            return self.with_room()
        opened = self._open(number)
        for pilot in opened:
            self._held.allow(pilot.name, 1)
        return opened

    def _open(self, number: int) -> list[KnownPilot]:
        """Make places for so many further pilots, which are not started yet."""
        first, self._number = self._number + 1, self._number + number
        names = [pilot_name(self._claims.session, each) for each in range(first, self._number + 1)]
        self._transport.open(dict.fromkeys(names, self._setup))
        now = time.monotonic()
        opened = [KnownPilot(name, heard=now) for name in names]
        self.pilots |= {pilot.name: pilot for pilot in opened}
        return opened

    def start(self, pilots: Iterable[str]) -> None:
        """Ask the engine for these pilots, on hosts that are not left out."""
        self._launcher.start(list(pilots), avoid=sorted(self.left_out))

    def situation(self) -> Situation:
        """Return what users should know about nodes, and what runs wait for when no pilot is there to take them."""
        warnings = [f"{host} gets no runs: {why}" for host, why in self.left_out.items()]
        warnings += [f"{host}: {why}" for host, why in self.warnings.items() if host not in self.left_out]
        if self._setup.once or self.usable():
            return Situation(tuple(warnings))
        states = Counter(pilot.state for pilot in self.pilots.values())
        engine = self._claims.executor
        waits = [f"{states['starting']} pilots that {engine} has not started yet"] if states["starting"] else []
        waits += [f"{states['silent']} pilots that are silent"] if states["silent"] else []
        return Situation(tuple(warnings), " and ".join(waits))

    # -- what is heard of them

    def heard(self, name: str, *, adopting: bool) -> KnownPilot | None:
        """Note that a message came from this pilot; None when it is forgotten."""
        pilot = self.pilots.get(name)
        if pilot is not None:
            pilot.heard = time.monotonic()
            if pilot.state == "silent" and pilot.facts is not None and self._held.most(name) and not adopting:
                pilot.state = "ready"  # it was cut off, and is back
        return pilot

    def said_hello(self, pilot: KnownPilot, hello: Hello, *, adopting: bool) -> None:
        """Take in what the pilot says about itself."""
        pilot.facts, pilot.slots, pilot.changed = hello.node, hello.slots, True
        self._held.allow(pilot.name, hello.most)
        self._keep_at = 0.0
        pilot.began = pilot.heard
        if hello.refusal:
            pilot.state, self._refusal, pilot.refused = "leaving", hello.refusal, hello.refusal
            self._failed_starts += 1
            if {other.host for other in self.usable()} - {pilot.host}:
                self._leave_out(pilot.host, hello.refusal)
        elif hello.node.code != self._setup.code:  # of an earlier session with other code: it may finish what it has
            pilot.state = "leaving"
            self._transport.send(pilot.name, [Quit()])
        elif self._has_other_packages(pilot, hello.node) and pilot.host not in self.left_out:
            self._leave_out(pilot.host, self.warnings[pilot.host])
            pilot.state = "leaving"  # one that comes there later only waits: asking for others again would not end
            self._transport.send(pilot.name, [Quit()])
        elif not adopting:  # an old hello says nothing about now: the next beat does
            pilot.state = "ready"

    def _has_other_packages(self, pilot: KnownPilot, facts: NodeFacts) -> bool:
        """Whether the pilot is refused for its packages. Warns where they differ from those of the first node."""
        if not facts.packages:
            return False
        if self._model is None:
            self._model = self._node_record(pilot, facts)
        differing = differing_packages(self._model.packages, facts.packages)
        if facts.host == self._model.host:  # what was installed there since then was not there to be imported
            differing = {name: pair for name, pair in differing.items() if None not in pair}
        if not differing:
            return False
        listed = [f"{name} {here or 'missing'} ({there or 'missing'})" for name, (there, here) in differing.items()]
        more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
        self.warnings[facts.host] = f"other packages than on {self._model.host}: {', '.join(listed[:_NAMED])}{more}"
        return self._same_packages

    def left(self, pilot: KnownPilot, failure: str) -> None:
        """Note that the pilot is gone. `failure` is what went wrong, if something did."""
        if failure:
            self._refusal = failure
            self._failed_starts += pilot.state == "starting"  # it could not even say what it is
        pilot.state = "gone"
        self._keep_at = 0.0

    def reported(self, pilot: KnownPilot, *, started: bool) -> None:
        """Note that an attempt came back from it, and whether its run could be started there.

        A host that could start none so far is left out after a few, if there is another one to go on with: what cannot
        start anywhere is the experiment's fault.
        """
        self._in_a_row.pop(pilot.host, None)
        self._failed_starts = 0
        if started:
            self._good.add(pilot.host)
            return
        self._not_started[pilot.host] += 1
        others = {other.host for other in self.usable()} - {pilot.host}
        if self._not_started[pilot.host] >= _FAILED_IN_A_ROW and pilot.host not in self._good and others:
            self._leave_out(pilot.host, f"could not start {_FAILED_IN_A_ROW} runs in a row")

    # -- losses

    def expired(self, now: float) -> list[Loss]:
        """Find claims that have not been heard of for too long, a few times in each expiry.

        A silent pilot loses all that it holds at once, whenever it got it: that is one loss of its node. One that speaks
        loses what it has not named for so long: the order never reached it.
        """
        if now < self._expire_at:
            return []
        self._expire_at = now + self._expiry / _LOOKS
        for pilot in self.pilots.values():
            if self._is_silent(pilot, now) and (pilot.state == "ready" or self._held.count(pilot.name)):
                pilot.state = "silent"  # an idle one, too: it would lose what it is given
                self._keep_at = 0.0
        losses = []
        for pilot in self.pilots.values():
            silent = self._is_silent(pilot, now)
            named_by = float("inf") if silent else pilot.heard - self._expiry
            if claims := [claim for claim in self._held.of(pilot.name) if claim.heard < named_by]:
                losses.append(self._explain(pilot, claims))
                self._count_loss(pilot, now)
                if not silent:
                    self._transport.send(pilot.name, [Abandon([claim.token for claim in claims])])
        return losses

    def _is_silent(self, pilot: KnownPilot, now: float) -> bool:
        queued = pilot.state == "starting" and pilot.facts is None  # by the engine
        return not queued and now - pilot.heard > self._expiry

    def _explain(self, pilot: KnownPilot, claims: list[HeldClaim]) -> Loss:
        ended = self._launcher.ended().get(pilot.name, "")
        why = f" ({ended})" if ended else f": silent for {self._expiry:g} s"
        alone = self._survived(pilot) and not (ended and self._launcher.explained(ended))
        return Loss(claims, ClaimState.EXPIRED, f"node {pilot.host or pilot.name} was lost{why}", alone)

    def _survived(self, pilot: KnownPilot) -> bool:
        """Whether a neighbour shows that the machine is not what failed: it was there before, and was heard of since.

        One that came later shows nothing: a machine that crashed may be back.
        """
        since = pilot.heard + _SURVIVES * self._setup.heartbeat
        return any(
            other is not pilot
            and other.host == pilot.host
            and other.host
            and other.began < pilot.heard < since < other.heard
            for other in self.pilots.values()
        )

    def _count_loss(self, pilot: KnownPilot, now: float) -> None:
        pilot.lost += 1
        pilot.changed = True
        if pilot.host and pilot.heard > self._lost_at.get(pilot.host, 0.0):
            self._lost_at[pilot.host] = now
            self._in_a_row[pilot.host] += 1
            if self._in_a_row[pilot.host] >= _LOST_IN_A_ROW:
                self._leave_out(pilot.host, f"was lost {_LOST_IN_A_ROW} times in a row")

    def _leave_out(self, host: str, why: str) -> None:
        """Give the host nothing more, and let its pilots leave when they have finished."""
        if host in self.left_out:
            return
        self.left_out[host] = why
        for pilot in self.pilots.values():
            if pilot.host == host:
                pilot.refused, pilot.changed = why, True
            if pilot.host == host and pilot.state == "ready":
                self._transport.send(pilot.name, [Quit()])

    # -- from time to time

    def show_presence(self, now: float) -> None:
        if now < self._present_at:
            return
        self._present_at = now + self._setup.heartbeat
        presence = Presence(self._claims.session, time.time())
        for pilot in self.pilots.values():
            if pilot.state != "gone":
                self._transport.send(pilot.name, [presence])

    def never_began(self, now: float) -> list[Loss]:
        """Find pilots that ended before their first message, as the engine says. Only looks when `keep` is due."""
        losses = []
        for name, why in self._launcher.ended().items() if now >= self._keep_at else ():
            pilot = self.pilots.get(name)
            if pilot is None or pilot.state == "gone":
                continue
            # A message may still be on its way through the file system.
            if pilot.state == "starting" and now - pilot.heard > self._setup.heartbeat:
                pilot.state = "gone"
                if not self._launcher.explained(why):
                    self._failed_starts += 1
                    self._refusal = f"it ended without a word ({why})\n{self._launcher.log(name)}".rstrip()
                losses.append(Loss(self._held.of(name), ClaimState.LOST, f"its pilot never began ({why})"))
            elif pilot.state == "silent" and not self._held.count(name):
                pilot.state = "gone"
        return losses

    def keep(self, now: float, *, replace: bool) -> None:
        """Forget pilots that are gone, and with `replace` start others in their place.

        Looks at all of them when one has come or gone, and otherwise a few times for each heartbeat. Raises BakeoffError
        when pilots keep failing to start, and when nothing is held and only hosts that are left out are to be had.
        """
        if now < self._keep_at:
            return
        self._keep_at = now + self._setup.heartbeat / 10
        engine = self._claims.executor
        if self._failed_starts >= max(_FAILED_STARTS, self._wanted) and not self.usable():
            raise BakeoffError(f"pilots of the executor {engine} cannot start: {self._refusal}")
        if self.left_out and not len(self._held) and not self.usable() and self._only_bad_hosts():
            reasons = "; ".join(f"{host}: {why}" for host, why in sorted(self.left_out.items()))
            raise BakeoffError(
                f"every node that the executor {engine} gets is left out ({reasons}). "
                "The same command does the rest when they are well again"
            )
        alive, gone = 0, []
        for pilot in self.pilots.values():
            if pilot.state == "gone":
                gone.append(pilot)
            elif pilot.state != "leaving":
                # An adopted pilot that has not spoken yet may: it gets one expiry to do so.
                alive += pilot.state != "silent" or now - pilot.heard <= self._expiry
        for pilot in gone:
            if not pilot.changed and not self._held.count(pilot.name):
                del self.pilots[pilot.name]
                self._held.forget(pilot.name)
                self._transport.forget(pilot.name)
        if replace and not self._setup.once and alive < self._wanted:
            self.start(pilot.name for pilot in self._open(self._wanted - alive))

    def _only_bad_hosts(self) -> bool:
        """Whether all pilots that are there are on hosts that are left out, and none is still to come."""
        here = [pilot for pilot in self.pilots.values() if pilot.state in ("starting", "ready")]
        return bool(here) and all(pilot.state == "ready" and pilot.host in self.left_out for pilot in here)

    def record(self, now: float) -> None:
        """Write what is new about pilots to the database, every few seconds."""
        if now < self._record_at:
            return
        self._record_at = time.monotonic() + _RECORD_INTERVAL
        records = []
        for pilot in self.pilots.values():
            if pilot.changed and (facts := pilot.facts) is not None:
                pilot.changed = False
                records.append(self._node_record(pilot, facts))
        if records:
            self._claims.see(records)

    def _node_record(self, pilot: KnownPilot, facts: NodeFacts) -> NodeRecord:
        return NodeRecord(
            pilot.name, self._claims.session, self._claims.executor, facts.host, facts.kind, facts.code,
            time.time(), pilot.lost, pilot.late, facts.packages, pilot.refused,
        )  # fmt: skip

    def close(self) -> None:
        """Let every pilot leave, and end those that do not."""
        living = [pilot for pilot in self.pilots.values() if pilot.state != "gone"]
        for pilot in living:
            self._transport.send(pilot.name, [Quit(now=True)])
        deadline = time.monotonic() + _TIME_TO_LEAVE
        while any(pilot.state in ("ready", "leaving") for pilot in living) and time.monotonic() < deadline:
            for name, message in self._transport.receive():
                if isinstance(message, Bye):
                    self.pilots[name].state = "gone"
            time.sleep(0.02)
        self._launcher.close()
