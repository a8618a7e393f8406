"""The pilots as the scheduler knows them: which are there and have room, and who takes the place of one that is gone.

A machine whose pilots were lost several times in a row is left out. Pilots that fall silent together count as one loss
of their machine; a pilot that falls silent while its neighbours on the same machine go on was lost alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.engine.pilots.messages import Hello, NodeFacts, Presence, Quit
from bakeoff.engine.pilots.transport import Launcher, PilotSetup, Transport
from bakeoff.errors import BakeoffError
from bakeoff.records.claims import Claims, NodeRecord

_SURVIVES = 2
"""A neighbour that is heard of so many heartbeats after a pilot's last word has survived it. Pilots of a node beat at
different moments, so one heartbeat would not tell a pilot that died alone from a node that was cut off."""
_LOST_IN_A_ROW = 3
_FAILED_STARTS = 3
_RECORD_INTERVAL = 5.0


@dataclass(slots=True)
class KnownPilot:
    """A pilot, from the order to start it until it is gone."""

    name: str
    state: Literal["starting", "ready", "leaving", "silent", "gone"] = "starting"
    """`silent`: its claims expired; it may come back. `gone`: it said goodbye, or never will."""
    facts: NodeFacts | None = None
    slots: int = 0
    most: int = 0
    """How many attempts it holds at most."""
    tokens: set[str] = field(default_factory=set)
    """Its claims."""
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


class Fleet:
    """`wanted` pilots are kept going; with `setup.once` they are opened by whoever needs them."""

    def __init__(
        self, setup: PilotSetup, claims: Claims, transport: Transport, launcher: Launcher, *, wanted: int, expiry: float
    ) -> None:
        self._setup = setup
        self._claims = claims
        self._transport = transport
        self._launcher = launcher
        self._wanted = wanted
        self._expiry = expiry
        now = time.monotonic()
        self.pilots = {name: KnownPilot(name, "silent", heard=now) for name in transport.known()}
        self.left_out: set[str] = set()
        """Hosts that get nothing more."""
        self._unfilled: set[str] = set()
        """Pilots that may have room: something has changed since they were full."""
        self._in_a_row: Counter[str] = Counter()
        """Losses since the last success, by host."""
        self._lost_at: dict[str, float] = {}
        """When a host was counted as lost last: all its pilots that were silent by then were lost with it."""
        self._number = 0
        self._failed_starts = 0
        self._refusal = ""
        self._present_at = 0.0
        self._keep_at = 0.0
        self._record_at = 0.0

    # -- which there are, and which have room

    def known(self, name: str) -> KnownPilot:
        """The pilot of a claim that an earlier session made. If its place is gone, nothing can come from it any more."""
        return self.pilots.setdefault(name, KnownPilot(name, "silent", heard=time.monotonic()))

    def usable(self) -> list[KnownPilot]:
        """Pilots that may get attempts. One that has missed several beats is probably lost, and gets nothing more."""
        since = time.monotonic() - self._expiry / 2
        return [
            pilot
            for pilot in self.pilots.values()
            if pilot.state == "ready" and pilot.heard >= since and pilot.host not in self.left_out
        ]

    def with_room(self) -> list[KnownPilot]:
        """Those of them that may take more. Looks only at pilots that have changed, not at a thousand that are full."""
        able, since = [], time.monotonic() - self._expiry / 2
        for name in list(self._unfilled):
            pilot = self.pilots.get(name)
            if (
                pilot is None
                or pilot.state != "ready"
                or len(pilot.tokens) >= pilot.most
                or pilot.host in self.left_out
            ):
                self._unfilled.discard(name)
            elif pilot.heard >= since:
                able.append(pilot)
        return able

    def may_have_room(self, pilot: KnownPilot) -> None:
        self._unfilled.add(pilot.name)

    def open(self, number: int) -> list[KnownPilot]:
        """Places for so many further pilots, which are not started yet."""
        names = []
        for _ in range(number):
            self._number += 1
            names.append(f"{self._claims.session}-{self._number}")
        self._transport.open(dict.fromkeys(names, self._setup))
        now = time.monotonic()
        opened = [KnownPilot(name, heard=now, most=1) for name in names]
        self.pilots |= {pilot.name: pilot for pilot in opened}
        return opened

    def start(self, pilots: Iterable[KnownPilot]) -> None:
        self._launcher.start([pilot.name for pilot in pilots], avoid=sorted(self.left_out))

    # -- what is heard of them

    def heard(self, name: str, *, adopting: bool) -> KnownPilot | None:
        """A message came from this pilot; None when it is forgotten."""
        pilot = self.pilots.get(name)
        if pilot is not None:
            pilot.heard = time.monotonic()
            if pilot.state == "silent" and pilot.facts is not None and pilot.most and not adopting:
                pilot.state = "ready"  # it was cut off, and is back
                self.may_have_room(pilot)
        return pilot

    def said_hello(self, pilot: KnownPilot, hello: Hello, *, adopting: bool) -> None:
        pilot.facts, pilot.slots, pilot.most, pilot.changed = hello.node, hello.slots, hello.most, True
        self.may_have_room(pilot)
        self._keep_at = 0.0
        pilot.began = pilot.heard
        if hello.refusal:
            pilot.state, self._refusal = "leaving", hello.refusal
            self._failed_starts += 1
        elif hello.node.code != self._setup.code:  # of an earlier session with other code: it may finish what it has
            pilot.state = "leaving"
            self._transport.send(pilot.name, [Quit()])
        elif not adopting:  # an old hello says nothing about now: the next beat does
            pilot.state = "ready"

    def left(self, pilot: KnownPilot, failure: str) -> None:
        """The pilot is gone. `failure` is what went wrong, if something did."""
        if failure:
            self._refusal = failure
            self._failed_starts += pilot.state == "starting"  # it could not even say what it is
        pilot.state = "gone"
        self._keep_at = 0.0

    def succeeded(self, pilot: KnownPilot) -> None:
        """An attempt came back from it."""
        self._in_a_row.pop(pilot.host, None)
        self._failed_starts = 0

    # -- losses

    def fell_silent(self, now: float) -> None:
        """Notes which pilots have not been heard of for too long."""
        for pilot in self.pilots.values():
            if self.is_dead(pilot, now) and (pilot.tokens or pilot.state == "ready"):
                pilot.state = "silent"  # an idle one, too: it would lose what it is given
                self._keep_at = 0.0

    def is_dead(self, pilot: KnownPilot, now: float) -> bool:
        waits = pilot.state == "starting" and pilot.facts is None  # in the engine's queue
        return not waits and now - pilot.heard > self._expiry

    def survived(self, pilot: KnownPilot) -> bool:
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

    def count_loss(self, pilot: KnownPilot, now: float) -> None:
        pilot.lost += 1
        pilot.changed = True
        if pilot.host and pilot.heard > self._lost_at.get(pilot.host, 0.0):
            self._lost_at[pilot.host] = now
            self._in_a_row[pilot.host] += 1
            if self._in_a_row[pilot.host] >= _LOST_IN_A_ROW and pilot.host not in self.left_out:
                self.left_out.add(pilot.host)
                for other in self.pilots.values():
                    if other.host == pilot.host and other.state == "ready":
                        self._transport.send(other.name, [Quit()])

    # -- from time to time

    def show_presence(self, now: float) -> None:
        if now < self._present_at:
            return
        self._present_at = now + self._setup.heartbeat
        presence = Presence(self._claims.session, time.time())
        for pilot in self.pilots.values():
            if pilot.state != "gone":
                self._transport.send(pilot.name, [presence])

    def never_began(self, now: float) -> list[tuple[KnownPilot, str]]:
        """Pilots that are over without a word, and the engine's word for why. Only looks when `keep` is due."""
        silent = []
        for name, why in self._launcher.ended().items() if now >= self._keep_at else ():
            pilot = self.pilots.get(name)
            if pilot is None or pilot.state == "gone":
                continue
            if pilot.state == "starting" and now - pilot.heard > self._setup.heartbeat:
                # A last word may still be on its way through the file system.
                pilot.state = "gone"
                if not self._launcher.explained(why):
                    self._failed_starts += 1
                    self._refusal = f"it ended without a word ({why})\n{self._launcher.log(name)}".rstrip()
                silent.append((pilot, why))
            elif pilot.state == "silent" and not pilot.tokens:
                pilot.state = "gone"
        return silent

    def keep(self, now: float, *, replace: bool, holding: bool) -> None:
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
        if self.left_out and not holding and not self.usable() and self._only_bad_hosts():
            raise BakeoffError(
                f"every node that the executor {engine} gets was lost {_LOST_IN_A_ROW} times in a row: "
                f"{', '.join(sorted(self.left_out))}. The same command does the rest when they are well again"
            )
        alive, gone = 0, []
        for pilot in self.pilots.values():
            if pilot.state == "gone":
                gone.append(pilot)
            elif pilot.state != "leaving":
                # An adopted pilot that has not spoken yet may: it gets one expiry to do so.
                alive += pilot.state != "silent" or now - pilot.heard <= self._expiry
        for pilot in gone:
            if not pilot.tokens and not pilot.changed:
                del self.pilots[pilot.name]
                self._transport.forget(pilot.name)
        if replace and alive < self._wanted:
            self.start(self.open(self._wanted - alive))

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
                records.append(
                    NodeRecord(
                        pilot.name, self._claims.session, self._claims.executor, facts.host, facts.kind, facts.code,
                        time.time(), pilot.lost, pilot.late,
                    )
                )  # fmt: skip
        if records:
            self._claims.see(records)
