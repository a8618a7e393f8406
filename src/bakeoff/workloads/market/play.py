"""An episode: agents in the seats of a world, tick by tick, as fast as they answer.

Without a response timeout every agent acts on the episode's own thread. With one, agents that ship with bakeoff still
do (they are known to answer), and every other agent has a thread of its own: the episode waits for it until the
deadline and not longer. An agent that is late has done nothing more in that tick, whatever it still tries; it is asked
again when it has come back from the turn it missed. One that misses `PATIENCE` deadlines in a row is left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market.agents.face import Agent, Brief, Seat
from bakeoff.workloads.market.agents.load import shipped
from bakeoff.workloads.market.attendance import PATIENCE, Attendance
from bakeoff.workloads.market.journal import Conduct, Journal
from bakeoff.workloads.market.rules import rules
from bakeoff.workloads.market.session import ACTION_BUDGET, Session

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

RESET_TIMEOUT = 300.0
"""Seconds for an agent to get ready, unless its response timeout is longer."""
CLOSE_TIMEOUT = 30.0


@dataclass(slots=True, kw_only=True)
class Player(Attendance):
    """An agent in its seat."""

    agent: Agent
    seat: Seat
    thread: _Thread | None = None


class Episode:
    """`Episode(world, agents).run()` plays it to the end. Afterwards `players` says how everyone behaved."""

    def __init__(
        self,
        world: World,
        agents: Sequence[Agent],
        *,
        action_budget: int = ACTION_BUDGET,
        response_timeout: float | None = None,
        record: bool = False,
        seed: int = 0,
        stop: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`seed` drives the agents' own chance. `stop` is asked before each tick whether to end early."""
        if len(agents) != world.seats:
            raise ValueError(f"{len(agents)} agents for {world.seats} seats")
        self.world = world
        self.response_timeout = response_timeout
        self._seed, self._stop, self._clock = seed, stop, clock
        lock = threading.RLock()
        self.players = [self._player(agent, number, action_budget, record, lock) for number, agent in enumerate(agents)]

    def _player(self, agent: Agent, number: int, action_budget: int, record: bool, lock: Any) -> Player:
        session = Session(
            self.world,
            number,
            action_budget=action_budget,
            response_timeout=self.response_timeout,
            lock=lock,
            on_end=_leave_it_to_the_episode,
            clock=self._clock,
        )
        player = Player(session=session, journal=Journal(session) if record else None, agent=agent, seat=Seat(session))
        if self.response_timeout is not None and not shipped(agent):
            player.thread = _Thread(agent, player.seat)
        return player

    def run(self) -> Episode:
        try:
            for player in self.players:
                self._reset(player)
            while not self.world.done and not (self._stop and self._stop()):
                self._tick()
        finally:
            self._close()
        return self

    # -- the beginning and the end

    def _reset(self, player: Player) -> None:
        brief = self._brief(player)
        try:
            if player.thread:
                player.thread.do(lambda: player.agent.reset(brief), max(RESET_TIMEOUT, self.response_timeout or 0.0))
            else:
                player.agent.reset(brief)
        except (Exception, SystemExit) as error:
            player.missed_in_a_row = PATIENCE
            player.errors.append(f"reset: {_said(error)}")

    def _brief(self, player: Player) -> Brief:
        import numpy as np

        needs = getattr(player.agent, "needs", None) if shipped(player.agent) else None
        session = player.session
        return Brief(
            agent_id=session.agent_id,
            seat=session.seat,
            ticks=self.world.ticks,
            scenario=self.world.public_model(),
            action_budget=session.action_budget,
            response_timeout=self.response_timeout,
            rng=np.random.default_rng([self._seed, session.seat]),
            rules=rules(self.world.public_model(), session.action_budget, self.response_timeout, self.world.ticks),
            model=self.world.model() if needs in ("model", "truth") else None,
            truth=self.world.truth() if needs == "truth" else None,
        )

    def _close(self) -> None:
        for player in self.players:
            player.session.close_turn()
            if player.thread:
                player.thread.leave()
            try:
                self._part(player, getattr(player.agent, "close", None))
            except (Exception, SystemExit) as error:
                player.errors.append(f"close: {_said(error)}")

    def _part(self, player: Player, close: Callable[[], None] | None) -> None:
        """Its own thread may still be in a turn that the agent missed: closing it is for another one."""
        if close is not None and player.thread:
            apart = _Thread(player.agent, player.seat)
            apart.do(close, CLOSE_TIMEOUT)
            apart.leave()
        elif close is not None:
            close()

    # -- a tick

    def _tick(self) -> None:
        for player in self.players:
            if not player.gone and not (player.thread and player.thread.is_behind()):
                player.session.begin_turn()
            if player.journal:
                player.journal.begin()
        waited = [player for player in self.players if player.thread and self._started(player)]
        for player in self.players:
            if not player.thread:
                self._act(player)
        for player in waited:
            self._wait(player)
        self.world.advance()
        for player in self.players:
            if player.journal:
                player.journal.settle()

    def _act(self, player: Player) -> None:
        """A turn on this thread."""
        if player.gone:
            self._note(player, "absent", 0.0)
            return
        clock = self._clock
        began = clock()
        try:
            player.agent.act(player.seat)
        except (Exception, SystemExit) as error:
            self._note(player, "crashed", clock() - began, _said(error))
        else:
            self._note(player, "acted", clock() - began)
        player.session.ended = True

    def _note(self, player: Player, conduct: Conduct, think_s: float, error: str | None = None) -> None:
        llm = player.seat.llm_calls
        player.note(conduct, think_s, error, llm)
        if llm:
            llm.clear()

    def _started(self, player: Player) -> bool:
        """Whether the agent is waited for. Its turn begins at once, unless it is still in one that it missed."""
        thread, timeout = player.thread, self.response_timeout
        assert thread and timeout is not None
        if player.gone:
            self._note(player, "absent", 0.0)
            return False
        if thread.busy:
            thread.deadline = self._clock() + timeout
        else:
            self._ask(player)
        return True

    def _ask(self, player: Player) -> None:
        thread, timeout = player.thread, self.response_timeout
        assert thread and timeout is not None
        thread.began = self._clock()
        thread.deadline = thread.began + timeout
        thread.behind = False
        player.session.begin_turn(thread.deadline)
        thread.ask()

    def _wait(self, player: Player) -> None:
        """Until the agent has acted, or its time is up."""
        thread, clock = player.thread, self._clock
        assert thread
        answered = thread.answer(thread.deadline - clock())
        if answered and thread.behind:  # back from the turn that it missed: now it has this one
            self._ask(player)
            answered = thread.answer(thread.deadline - clock())
        player.session.close_turn()
        if not answered or clock() > thread.deadline:
            self._note(player, "late", self.response_timeout or 0.0, "missed the deadline")
        elif answered[0] is None:
            self._note(player, "acted", clock() - thread.began)
        else:
            self._note(player, "crashed", clock() - thread.began, answered[0])


def _leave_it_to_the_episode() -> None:
    """An agent that ends its turn has only ended its turn: the episode advances the world."""


class _Thread:
    """An agent's own thread. It is never joined without a timeout, and dies with the process."""

    def __init__(self, agent: Agent, seat: Seat) -> None:
        self.busy = False
        self.behind = False
        """It was still in a turn that it missed when this tick began."""
        self.deadline = self.began = 0.0
        self._agent, self._seat = agent, seat
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[str | None]] = SimpleQueue()
        threading.Thread(target=self._serve, name=f"agent {agent.name}", daemon=True).start()

    def do(self, task: Callable[[], None], timeout: float) -> None:
        self.busy = True
        self._asked.put(task)
        answered = self.answer(timeout)
        if not answered:
            raise TimeoutError(f"not done after {timeout:g} s")
        if answered[0] is not None:
            raise RuntimeError(answered[0])

    def ask(self) -> None:
        self.busy = True
        self._asked.put(lambda: self._agent.act(self._seat))

    def answer(self, timeout: float) -> tuple[str | None] | None:
        """What went wrong, or None, in a tuple; nothing when it has not come back in time."""
        try:
            found = self._answers.get(timeout=max(0.0, timeout))
        except Empty:
            return None
        self.busy = False
        return found

    def is_behind(self) -> bool:
        """Asked when a tick begins: whether it has not come back from an earlier one."""
        self.behind = self.busy and self.answer(0.0) is None
        return self.behind

    def leave(self) -> None:
        self._asked.put(None)

    def _serve(self) -> None:
        while (task := self._asked.get()) is not None:
            error = None
            try:
                task()
            except BaseException as raised:
                error = _said(raised)
            self._answers.put((error,))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
