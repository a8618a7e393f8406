"""An episode: agents in the seats of a world, tick by tick, as fast as they answer.

Without a response timeout every agent acts on the episode's own thread. With one, agents that ship with bakeoff still
do (they are known to answer), and every other agent has its own thread: the episode waits for it until the deadline and
not longer. What a late agent tries after its deadline is refused, and it gets its next turn when it has come back from
the turn it missed. An agent that misses `PATIENCE` deadlines in a row is not waited for any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from bakeoff.workloads.market.agents.base import Agent, Brief, Seat
from bakeoff.workloads.market.agents.load import shipped
from bakeoff.workloads.market.journal import PATIENCE, Attendance, Conduct
from bakeoff.workloads.market.scenario import rules_text
from bakeoff.workloads.market.session import ACTION_BUDGET, Session

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

RESET_TIMEOUT = 300.0
"""Seconds for `reset`, unless the response timeout is longer: agents load models there."""
CLOSE_TIMEOUT = 30.0
"""Seconds for `close`."""


@dataclass(slots=True, kw_only=True)
class Player(Attendance):
    """An agent in its seat."""

    agent: Agent
    seat: Seat
    thread: _AgentThread | None = None
    """None for an agent that acts on the episode's own thread."""


class Episode:
    """`Episode(world, agents).run()` plays to the end. Afterwards `players` says how everyone behaved."""

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
        """`seed` seeds the agents' own generators. `stop` is called before each tick; True ends the episode early."""
        if len(agents) != world.seats:
            raise ValueError(f"{len(agents)} agents for {world.seats} seats")
        self.world = world
        self.response_timeout = response_timeout
        self._seed, self._stop, self._clock = seed, stop, clock
        # One lock for all seats: agents on their own threads call at the same time, and a world is not thread-safe.
        self.players: list[Player] = []
        lock = threading.RLock()
        for number, agent in enumerate(agents):
            session = Session(
                world,
                number,
                action_budget=action_budget,
                response_timeout=response_timeout,
                lock=lock,
                on_end=lambda: None,  # ending a turn does not advance the world here; `_tick` does
                clock=clock,
            )
            player = Player(session=session, record=record, agent=agent, seat=Seat(session))
            if response_timeout is not None and not shipped(agent):
                player.thread = _AgentThread(agent.name)
            self.players.append(player)
        self._threaded = [(player, player.thread) for player in self.players if player.thread]

    def run(self) -> Episode:
        """Play all ticks. Faults of agents do not end the episode; they are noted in `players`."""
        try:
            for player in self.players:
                self._reset(player)
            while not self.world.done and not (self._stop and self._stop()):
                self._tick()
        finally:
            for player in self.players:
                self._close(player)
        return self

    def _reset(self, player: Player) -> None:
        """Give an agent its brief. One that cannot be reset is absent for the whole episode."""
        import numpy as np

        session, agent, world = player.session, player.agent, self.world
        # An agent of a user cannot ask for what is hidden, whatever its class says.
        needs = getattr(agent, "needs", None) if shipped(agent) else None
        brief = Brief(
            agent_id=session.agent_id,
            seat=session.seat,
            ticks=world.ticks,
            scenario=world.public_model(),
            action_budget=session.action_budget,
            response_timeout=self.response_timeout,
            rng=np.random.default_rng([self._seed, session.seat]),
            rules=rules_text(world.public_model(), session.action_budget, self.response_timeout),
            model=world.model() if needs in ("model", "truth") else None,
            truth=world.truth() if needs == "truth" else None,
        )
        try:
            if player.thread:
                player.thread.do(lambda: agent.reset(brief), max(RESET_TIMEOUT, self.response_timeout or 0.0))
            else:
                agent.reset(brief)
        except (Exception, SystemExit) as error:
            player.missed_in_a_row = PATIENCE
            player.errors.append(f"reset: {_message(error)}")

    def _close(self, player: Player) -> None:
        """Refuse further changes, end the agent's thread and close the agent."""
        player.session.close_turn()
        if player.thread:
            player.thread.leave()
        close = getattr(player.agent, "close", None)
        if close is None:
            return
        try:
            if player.thread:
                # The agent's own thread may still be in a turn that it missed, so another one closes the agent.
                closer = _AgentThread(player.agent.name)
                closer.do(close, CLOSE_TIMEOUT)
                closer.leave()
            else:
                close()
        except (Exception, SystemExit) as error:
            player.errors.append(f"close: {_message(error)}")

    # -- a tick

    def _tick(self) -> None:
        """Begin a turn for everybody, let all act, and advance the world.

        Agents with threads start first, so that they think while the others act on this thread.
        """
        for player in self.players:
            if not player.gone and not (player.thread and player.thread.is_behind()):
                player.session.begin_turn()
            player.begin()
        for player, thread in self._threaded:
            if player.gone:
                self._note(player, "absent", 0.0)
            elif thread.busy:  # still in a turn that it missed; it is waited for, and gets this turn if it comes back
                thread.deadline = self._clock() + (self.response_timeout or 0.0)
            else:
                self._ask(player, thread)
        waited = [(player, thread) for player, thread in self._threaded if not player.gone]
        for player in self.players:
            if not player.thread:
                self._act(player)
        for player, thread in waited:
            self._wait(player, thread)
        self.world.advance()
        for player in self.players:
            player.settle()

    def _act(self, player: Player) -> None:
        """Play a turn on this thread."""
        if player.gone:
            self._note(player, "absent", 0.0)
            return
        clock = self._clock
        began = clock()
        try:
            player.agent.act(player.seat)
        except (Exception, SystemExit) as error:
            self._note(player, "crashed", clock() - began, _message(error))
        else:
            self._note(player, "acted", clock() - began)
        player.session.ended = True

    def _ask(self, player: Player, thread: _AgentThread) -> None:
        """Begin a turn on the agent's thread."""
        thread.began = self._clock()
        thread.deadline = thread.began + (self.response_timeout or 0.0)
        thread.behind = False
        player.session.begin_turn(thread.deadline)
        thread.start(lambda: player.agent.act(player.seat))

    def _wait(self, player: Player, thread: _AgentThread) -> None:
        """Wait until the agent has acted or its time is up, and note which."""
        clock = self._clock
        finished = thread.wait(thread.deadline - clock())
        if finished and thread.behind:  # back from the turn that it missed: now it gets this one
            self._ask(player, thread)
            finished = thread.wait(thread.deadline - clock())
        # Closed before the verdict on the turn: what the agent does from here on is refused, so a turn that counts as
        # late cannot change anything any more.
        player.session.close_turn()
        if not finished or clock() > thread.deadline:
            self._note(player, "late", self.response_timeout or 0.0, "missed the deadline")
        elif finished.error is None:
            self._note(player, "acted", clock() - thread.began)
        else:
            self._note(player, "crashed", clock() - thread.began, finished.error)

    def _note(self, player: Player, conduct: Conduct, think_s: float, error: str | None = None) -> None:
        """Note how a turn went, with the LLM calls that the agent recorded in it."""
        llm_calls = player.seat.llm_calls
        player.note(conduct, think_s, error, llm_calls)
        if llm_calls:
            llm_calls.clear()


@dataclass(frozen=True, slots=True)
class _Finished:
    """A task came back, with the message of its exception if it raised one."""

    error: str | None


class _AgentThread:
    """A thread that runs one task at a time. It is never joined, and as a daemon it dies with the process."""

    def __init__(self, name: str) -> None:
        self.busy = False
        self.behind = False
        """Whether it was still in a turn that it missed when this tick began."""
        self.deadline = self.began = 0.0
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._finished: SimpleQueue[_Finished] = SimpleQueue()
        threading.Thread(target=self._serve, name=f"agent {name}", daemon=True).start()

    def _serve(self) -> None:
        """Run tasks until None comes. Every task that was started is answered exactly once."""
        while (task := self._tasks.get()) is not None:
            error = None
            try:
                task()
            except BaseException as raised:  # SystemExit too: an agent that exits must not leave the episode waiting
                error = _message(raised)
            self._finished.put(_Finished(error))

    def start(self, task: Callable[[], None]) -> None:
        """Begin a task; `wait` says how it ended."""
        self.busy = True
        self._tasks.put(task)

    def wait(self, timeout: float) -> _Finished | None:
        """Return how the task ended, or None when it has not after `timeout` seconds."""
        try:
            finished = self._finished.get(timeout=max(0.0, timeout))
        except Empty:
            return None
        self.busy = False
        return finished

    def do(self, task: Callable[[], None], timeout: float) -> None:
        """Run a task. Raises TimeoutError, or RuntimeError with the message of the task's exception."""
        self.start(task)
        finished = self.wait(timeout)
        if not finished:
            raise TimeoutError(f"not done after {timeout:g} s")
        if finished.error is not None:
            raise RuntimeError(finished.error)

    def is_behind(self) -> bool:
        """Called when a tick begins: whether it has not come back from an earlier turn."""
        self.behind = self.busy and self.wait(0.0) is None
        return self.behind

    def leave(self) -> None:
        """End the thread after its current task."""
        self._tasks.put(None)


def _message(error: BaseException) -> str:
    """Type and text of an exception, cut to what a table can hold."""
    return f"{type(error).__name__}: {error}"[:500]
