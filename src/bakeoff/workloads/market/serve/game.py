"""A world that agents come to from outside: it advances when every seat has ended its turn, or is late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bakeoff.workloads.market.attendance import Attendance
from bakeoff.workloads.market.journal import Journal
from bakeoff.workloads.market.session import ACTION_BUDGET, Session

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World


class Game:
    """One world and the sessions of its seats. It never waits by itself: `expire` is told when time is up."""

    def __init__(
        self,
        world: World,
        *,
        action_budget: int = ACTION_BUDGET,
        tick_timeout: float | None = None,
        record: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world = world
        self.tick_timeout = tick_timeout
        self.lock = threading.RLock()
        self.on_advance: Callable[[], None] = lambda: None
        """Told after each tick, on the thread that ended it."""
        self.opened = False
        self._clock = clock
        self._began = clock()
        self.seats = [self._seat(number, action_budget, record) for number in range(world.seats)]
        self._begin()

    def _seat(self, number: int, action_budget: int, record: bool) -> Attendance:
        session = Session(
            self.world,
            number,
            action_budget=action_budget,
            response_timeout=self.tick_timeout,
            lock=self.lock,
            on_end=lambda: self._ended(number),
            clock=self._clock,
        )
        return Attendance(session, Journal(session) if record else None)

    @property
    def deadline(self) -> float | None:
        """When the tick ends whoever is missing; None when it may take for ever."""
        return None if self.tick_timeout is None or not self.opened else self._began + self.tick_timeout

    def open(self) -> None:
        """Agents have come: from now on ticks have deadlines. Before, the first tick may take as long as it likes."""
        with self.lock:
            if not self.opened:
                self.opened = True
                self._began = self._clock()
                for seat in self.seats:
                    seat.session.deadline = self.deadline

    def expire(self, tick: int) -> None:
        """Time is up for `tick`; nothing happens if it is over already. A world that all have left plays itself out."""
        with self.lock:
            if self.world.tick == tick and not self.world.done:
                self._advance()
                while not self.world.done and all(seat.gone for seat in self.seats):
                    self._advance()

    def _ended(self, number: int) -> None:
        """A seat ended its turn; one that was given up and comes back is waited for again."""
        seat = self.seats[number]
        seat.missed_in_a_row = 0
        seat.note("acted", self._clock() - self._began)
        if all(other.session.ended or other.gone for other in self.seats):
            self._advance()

    def _advance(self) -> None:
        for seat in self.seats:
            if not seat.session.ended:
                seat.session.ended = True
                if seat.gone:
                    seat.note("absent", 0.0)
                else:
                    seat.note("late", self.tick_timeout or 0.0, "missed the deadline")
        self.world.advance()
        for seat in self.seats:
            if seat.journal:
                seat.journal.settle()
        if not self.world.done:
            self._begin()
        self.on_advance()

    def _begin(self) -> None:
        self._began = self._clock()
        for seat in self.seats:
            seat.session.begin_turn(self.deadline)
            if seat.journal:
                seat.journal.begin()
