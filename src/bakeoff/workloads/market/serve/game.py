"""Worlds that agents join from outside: games, and the seats at a table."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.journal import Attendance
from bakeoff.workloads.market.methods import OBSERVE, PREFIX
from bakeoff.workloads.market.rpc import RpcError, refusal
from bakeoff.workloads.market.session import ACTION_BUDGET, READ_BUDGET, Session

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World


LOOK = "look"


class Clock:
    """Seconds of play, from 0. They stand still until `go_on`, and while the server of a game is down."""

    def __init__(self) -> None:
        self._offset = 0.0
        self._fixed: float | None = 0.0

    def __call__(self) -> float:
        """The time now, or that of the event which is being repeated."""
        return time.monotonic() + self._offset if self._fixed is None else self._fixed

    def fix(self, at: float) -> None:
        """Stand still at the time of an event that is going to be repeated."""
        self._fixed = at

    def go_on(self) -> None:
        """Go on from where it stands."""
        if self._fixed is not None:
            self._offset, self._fixed = self._fixed - time.monotonic(), None


class Game:
    """One world and the sessions of its seats. It advances when every seat has ended its turn, or is late.

    A game starts no timer: whoever drives it calls `expire` when the deadline of a tick has passed, and `work_off` while
    it is `unattended`. Everything that changes a game is one of five events: a call, `open`, `expire`, `work_off` and
    `rejoin`. Each has one time, and `on_event` gets what is needed to `repeat` it.
    """

    def __init__(
        self,
        world: World,
        *,
        action_budget: int = ACTION_BUDGET,
        read_budget: int | None = READ_BUDGET,
        tick_timeout: float | None = None,
        record: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world = world
        self.tick_timeout = tick_timeout
        # Reentrant: the last seat to end its turn advances the world inside its own call.
        self.lock = threading.RLock()
        self.on_advance: Callable[[], None] = lambda: None
        """Called after each tick, on the thread that ended it."""
        self.on_event: Callable[[list[Any]], None] = lambda event: None
        """Called after each event with `[name, time, digest, *arguments]`. A call that changed nothing is a `LOOK`."""
        self.opened = False
        self.clock = clock
        self._now = self._began = clock()
        self.seats: list[Attendance] = []
        for number in range(world.seats):
            session = Session(
                world,
                number,
                action_budget=action_budget,
                read_budget=read_budget,
                response_timeout=tick_timeout,
                lock=self.lock,
                on_end=lambda number=number: self._ended(number),  # type: ignore[misc]
                clock=lambda: self._now,
            )
            self.seats.append(Attendance(session, record))
        self._begin()

    @property
    def deadline(self) -> float | None:
        """When the current tick ends even if seats are missing; None while it may take any time."""
        return None if self.tick_timeout is None or not self.opened else self._began + self.tick_timeout

    @property
    def unattended(self) -> bool:
        """Whether all agents have left a game that is not over."""
        return not self.world.done and all(seat.gone for seat in self.seats)

    def digest(self) -> int:
        """Return a checksum of the world's state."""
        state = self.world.state
        return zlib.crc32(state.floats.tobytes(), zlib.crc32(state.ints.tobytes()))

    # -- events

    def call(
        self, number: int, method: str, params: Mapping[str, Any] | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Make a call for a seat. Raises RpcError. An agent that comes back is waited for again."""
        with self._event() as event:
            seat = self.seats[number]
            session, first = seat.session, not seat.called or seat.gone
            seat.called, changes = True, session.changes
            if seat.gone:
                seat.missed_in_a_row = 0
            if seat.record and session.calls is None and not session.ended and not self.world.done:
                seat.begin()
            recorded = session.calls
            calls = len(recorded or ())
            try:
                return session.call(method, params, idempotency_key=key)
            finally:
                # Observations are events too: what an agent has looked at may change what it is shown next.
                looked = method.removeprefix(PREFIX) == OBSERVE.removeprefix(PREFIX)
                changed = first or session.changes != changes or len(recorded or ()) != calls
                if changed or looked:
                    event += ["call" if changed else LOOK, number, method, dict(params or {}), key]

    def open(self) -> None:
        """Start the clock: from now on ticks have deadlines. Before that, the first tick waits for agents to join."""
        with self._event() as event:
            if not self.opened:
                self.opened = True
                self._began = self._now
                for seat in self.seats:
                    seat.session.deadline = self.deadline
                event += ["open"]

    def expire(self, tick: int) -> None:
        """End `tick` because its time is up; does nothing if it is over."""
        with self._event() as event:
            if self.world.tick == tick and not self.world.done:
                self._advance()
                event += ["expire", tick]

    def work_off(self, ticks: int | None = None, seconds: float = 0.0) -> None:
        """Play ticks of an unattended game: as many as are given, else as many as fit into `seconds`, at least one."""
        with self._event() as event:
            count, end = 0, time.perf_counter() + seconds
            while self.unattended and (count < ticks if ticks is not None else not count or time.perf_counter() < end):
                self._advance()
                count += 1
            if count:
                event += ["work_off", count]

    def rejoin(self) -> None:
        """Stop the clock until agents have connected again, or `open` is called: the server was down."""
        with self._event() as event:
            self.opened = False
            self._began = self._now
            for seat in self.seats:
                seat.session.deadline = None
            event += ["rejoin"]

    def repeat(self, event: Sequence[Any]) -> None:
        """Make an event again; the clock is fixed at its time. Raises ValueError if the world turns out another one."""
        name, _, digest, *arguments = event
        makers: dict[str, Callable[..., object]] = {
            "call": self.call,
            LOOK: self.call,
            "open": self.open,
            "expire": self.expire,
            "work_off": self.work_off,
            "rejoin": self.rejoin,
        }
        tick = self.world.tick
        with suppress(RpcError):  # a call that was refused
            makers[name](*arguments)
        if (digest is not None or self.world.tick != tick) and digest != self.digest():
            raise ValueError(f"tick {self.world.tick} is not as it was")

    @contextmanager
    def _event(self) -> Iterator[list[Any]]:
        """Give one event its time, and report it if the block has put its name and arguments into the list."""
        with self.lock:
            self._now = self.clock()
            tick, event = self.world.tick, list[Any]()
            try:
                yield event
            finally:
                if event:
                    name, *arguments = event
                    digest = None if self.world.tick == tick else self.digest()
                    self.on_event([name, self._now, digest, *arguments])

    # -- ticks

    def _ended(self, number: int) -> None:
        """A seat ended its turn."""
        seat = self.seats[number]
        seat.note("acted", self._now - self._began)
        if all(other.session.ended or other.gone for other in self.seats):
            self._advance()

    def _advance(self) -> None:
        """End the tick for everybody, advance the world and begin the next tick. The caller holds the lock."""
        for seat in self.seats:
            if not seat.session.ended:
                seat.session.ended = True  # its calls are refused from now on
                if seat.gone:
                    seat.note("absent", 0.0)
                else:
                    seat.note("late", self.tick_timeout or 0.0, "missed the deadline")
        self.world.advance()
        for seat in self.seats:
            seat.settle()
        if not self.world.done:
            self._begin()
        self.on_advance()

    def _begin(self) -> None:
        """Begin a turn for every seat; all of them have the same deadline.

        A turn is recorded from the seat's first call on. Observing for all seats at once would take too long, and nobody
        sees what an absent seat could see.
        """
        self._began = self._now
        for seat in self.seats:
            seat.session.begin_turn(self.deadline)


@dataclass(frozen=True, slots=True)
class Place:
    """One agent's seat in one game. `name` is unique at its table."""

    name: str
    game: Game
    attendance: Attendance

    @property
    def session(self) -> Session:
        """The seat's session. An agent's calls go through `call`."""
        return self.attendance.session

    def call(self, method: str, params: Mapping[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        """Make a call of the agent. Raises RpcError."""
        return self.game.call(self.session.seat, method, params, key)


class Seats:
    """All seats of one shared game, or of several separate ones. A token opens exactly one seat."""

    def __init__(self, games: Sequence[Game], tokens: Mapping[str, str] | None = None) -> None:
        """`tokens` maps names of places (`player-1`, ...) to tokens; missing ones are drawn."""
        self.games = list(games)
        seats = [(game, seat) for game in games for seat in game.seats]
        self.places = [Place(f"player-{number}", game, seat) for number, (game, seat) in enumerate(seats, 1)]
        known = tokens or {}
        self.tokens = {place.name: known.get(place.name) or secrets.token_urlsafe(24) for place in self.places}
        # Looked up by digest, so that the time of the lookup says nothing about the tokens.
        self._by_token = {_digest(self.tokens[place.name]): place for place in self.places}
        if len(self._by_token) != len(self.places):
            raise ValueError("two agents have the same token")

    def place(self, token: str | None, agent_id: str | None = None) -> Place:
        """Return the place that a token opens. An `agent_id`, if given, must be the one of that place.

        Raises RpcError `not_authenticated` or `authentication_failed`.
        """
        if not token:
            raise refusal("not_authenticated", "send your token: Authorization: Bearer TOKEN")
        place = self._by_token.get(_digest(token))
        if place is None:
            raise refusal("authentication_failed", "this token opens no seat")
        if agent_id and agent_id not in (place.name, place.session.agent_id):
            raise refusal("authentication_failed", "this token belongs to another agent than x-agent-id says")
        return place

    @property
    def done(self) -> bool:
        """Whether all games are over."""
        return all(game.world.done for game in self.games)


def _digest(token: str) -> bytes:
    # Headers may hold any bytes; surrogates that stand for them must not raise here.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
