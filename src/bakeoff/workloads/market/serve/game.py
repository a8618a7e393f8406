"""Worlds that agents join from outside: games, the seats at a table, and the results that a table leaves behind."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import TrajectoryWriter
from bakeoff.workloads.market.journal import Attendance, steps
from bakeoff.workloads.market.rpc import refusal
from bakeoff.workloads.market.session import ACTION_BUDGET, Session

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World


class Game:
    """One world and the sessions of its seats. It advances when every seat has ended its turn, or is late.

    A game starts no timer: whoever drives it calls `expire` when the deadline of a tick has passed.
    """

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
        # Reentrant: the last seat to end its turn advances the world inside its own call.
        self.lock = threading.RLock()
        self.on_advance: Callable[[], None] = lambda: None
        """Called after each tick, on the thread that ended it."""
        self.opened = False
        self._clock = clock
        self._began = clock()
        self.seats: list[Attendance] = []
        for number in range(world.seats):
            session = Session(
                world,
                number,
                action_budget=action_budget,
                response_timeout=tick_timeout,
                lock=self.lock,
                on_end=lambda number=number: self._ended(number),  # type: ignore[misc]
                clock=clock,
            )
            self.seats.append(Attendance(session, record))
        self._begin()

    @property
    def deadline(self) -> float | None:
        """When the current tick ends even if seats are missing; None while it may take any time."""
        return None if self.tick_timeout is None or not self.opened else self._began + self.tick_timeout

    def open(self) -> None:
        """Start the clock: from now on ticks have deadlines. Before that, the first tick waits for agents to join."""
        with self.lock:
            if not self.opened:
                self.opened = True
                self._began = self._clock()
                for seat in self.seats:
                    seat.session.deadline = self.deadline

    def expire(self, tick: int) -> None:
        """End `tick` because its time is up; does nothing if it is over. A world that all have left plays to its end."""
        with self.lock:
            if self.world.tick == tick and not self.world.done:
                self._advance()
                while not self.world.done and all(seat.gone for seat in self.seats):
                    self._advance()

    def _ended(self, number: int) -> None:
        """A seat ended its turn. A seat that was given up and comes back is waited for again."""
        seat = self.seats[number]
        seat.missed_in_a_row = 0
        seat.note("acted", self._clock() - self._began)
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
        """Begin a turn for every seat; all of them have the same deadline."""
        self._began = self._clock()
        for seat in self.seats:
            seat.session.begin_turn(self.deadline)
            seat.begin()


@dataclass(frozen=True, slots=True)
class Place:
    """One agent's seat in one game. `name` is unique at its table."""

    name: str
    game: Game
    attendance: Attendance

    @property
    def session(self) -> Session:
        """Where the agent's calls go."""
        return self.attendance.session


class Table:
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


# -- results


def summary(place: Place) -> dict[str, Any]:
    """Return one agent's result, as `result.json` has it."""
    session, attendance = place.session, place.attendance
    world, account = session.world, session.world.account(session.seat)
    return {
        "agent": place.name,
        "agentId": session.agent_id,
        "ticksProcessed": world.tick,
        "ticks": world.ticks,
        "done": world.done,
        "equity": account.equity,
        "totalPnl": account.equity - account.initial,
        "balance": account.cash,
        "fees": account.fees,
        "funding": account.funding,
        "liquidations": account.liquidations,
        "trades": account.trades,
        "reputation": account.reputation,
        "actions": session.actions_taken,
        "lateTurns": attendance.late,
        "absentTurns": attendance.absent,
        "avgResponseTime": attendance.think_s / max(1, world.tick),
        "maxResponseTime": attendance.longest_think_s,
        "errors": attendance.errors,
    }


def write_results(table: Table, directory: Path) -> None:
    """Write `comparison.json`, and for each agent `result.json` and, if turns were recorded, its trajectory."""
    summaries = []
    for place in table.places:
        folder = directory / place.name
        folder.mkdir(parents=True, exist_ok=True)
        summaries.append(summary(place))
        (folder / "result.json").write_text(json.dumps(summaries[-1], indent=2) + "\n", encoding="utf-8")
        if place.attendance.turns:
            trajectory = TrajectoryWriter(folder / FILE)
            for step in steps(place.attendance.turns, agent=place.name):
                trajectory.add(step)
            trajectory.close()
    ranked = sorted(summaries, key=lambda row: (-row["totalPnl"], row["agent"]))
    comparison = {"agents": ranked, "best": ranked[0]["agent"]}
    (directory / "comparison.json").write_text(json.dumps(comparison, indent=2) + "\n", encoding="utf-8")
