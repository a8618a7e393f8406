"""An episode: agents in the seats of a world, tick by tick, as fast as they answer.

Without a response timeout every agent acts on the episode's own thread. With one, agents that ship with bakeoff still
do (they are known to answer), and every other agent has its own thread: the episode waits for it until the deadline and
not longer. What a late agent tries after its deadline is refused, and it gets its next turn when it has come back from
the turn it missed. An agent that misses `PATIENCE` deadlines in a row is not waited for any more.

`roll_out` plays one agent in one world, records it, measures it and compares it with the Bayes player. Regret is the
Bayes player's profit in the same world less the agent's. Optimality is 100 * (agent - null) / (Bayes - null), where the
null agent earns exactly 0. In a single world the Bayes player's profit is partly luck and may be negative, so the
denominator is its mean over calibration worlds of the same scenario, in which nobody else plays. That is a constant, so
the mean of the score is the score of the mean.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.spec.workload import Step
from bakeoff.workloads.market import journal, metrics
from bakeoff.workloads.market.agents.base import Agent, Brief, Seat, shipped
from bakeoff.workloads.market.agents.bayes import KellyBayes
from bakeoff.workloads.market.agents.process import LinesAgent
from bakeoff.workloads.market.journal import PATIENCE, Attendance, Conduct
from bakeoff.workloads.market.metrics import MICRO, Number, Result, micro
from bakeoff.workloads.market.scenario import CALIBRATION_SECRET, Scenario, rules_text, world_key
from bakeoff.workloads.market.session import ACTION_BUDGET, Session
from bakeoff.workloads.market.world.world import World

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


FAULTS = (Exception, SystemExit, asyncio.CancelledError)
"""What an agent's own code may raise. A client library raises CancelledError, which is no Exception, when it gives up."""


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
        """Give an agent its brief. One that cannot be reset is absent for the whole episode.

        Raises InfraError when there is no box for a program, before it has run.
        """
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
            model=world.reliability() if needs in ("model", "truth") else None,
            truth=world.truth() if needs == "truth" else None,
        )
        try:
            if player.thread:
                player.thread.do(lambda: agent.reset(brief), max(RESET_TIMEOUT, self.response_timeout or 0.0))
            else:
                agent.reset(brief)
        except FAULTS as error:
            # Only of our own class: an agent that raises InfraError must not make its episode void.
            if type(agent) is LinesAgent and agent.broken is not None:
                raise agent.broken from error
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
        except FAULTS as error:
            player.errors.append(f"close: {_message(error)}")

    # -- a tick

    def _tick(self) -> None:
        """Begin a turn for everybody, let all act, and advance the world.

        Agents with threads start first, so that they think while the others act on this thread.
        """
        for player in self.players:
            thread = player.thread
            if thread and not player.gone:
                thread.behind = thread.busy and thread.wait(0.0) is None
            if not player.gone and not (thread and thread.behind):
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
        except FAULTS as error:
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

    def leave(self) -> None:
        """End the thread after its current task."""
        self._tasks.put(None)


def _message(error: BaseException) -> str:
    """Type and text of an exception, cut to what a table can hold. The text is the agent's own code, and may fail."""
    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text}"[:500]


# -- one agent, played and measured

FEWEST_WORLDS, WORLDS, TICKS = 2, 16, 1_000
"""Long scenarios vary less from world to world: fewer worlds, and about as many ticks in all."""
DOUBLINGS = 2
PRECISE, SIGNIFICANT = 4.0, 2.0
"""The mean in standard errors: above the first no more worlds are needed; below the second there is no score."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished episode of one agent."""

    agent: Agent
    scenario: Scenario
    world: World
    world_id: str
    """Names the world without revealing its key."""
    player: Attendance
    result: Result
    groups: metrics.Groups
    """The result's metrics, and the groups `reference` and `cost`."""

    @property
    def metrics(self) -> dict[str, Number]:
        """All metrics by name."""
        return {name: value for group in self.groups.values() for name, value in group.items()}

    @property
    def never_acted(self) -> bool:
        """True when every turn was lost (late, crashed or no longer waited for) before anything was done in it."""
        turns = self.player.turns
        return not any(turn.conduct == "acted" or any(call.error is None for call in turn.actions) for turn in turns)

    @property
    def trouble(self) -> str:
        """The first thing that went wrong."""
        return self.player.errors[0] if self.player.errors else "no turn was taken"

    def steps(self) -> Iterator[Step]:
        """The trajectory. Hidden facts are in `truth` of the last step and nowhere else.

        `info` of the first step has what training data needs: the world, since groups are rollouts of one world, and a
        language model's tools, to render its prompts.
        """
        version = getattr(self.agent, "policy_version", None)
        info = {"world": self.world_id}
        if tools := getattr(self.agent, "tool_definitions", None):
            info["tools"] = tools
        for step in journal.steps(self.player.turns, agent=self.agent.name, policy_version=version):
            hidden = truth(self.world) if step.done else None
            yield msgspec.structs.replace(step, info={**step.info, **info}, truth=hidden)
            info = {}


def roll_out(
    scenario: Scenario,
    key: bytes,
    agent: Agent,
    *,
    seed: int = 0,
    response_timeout: float | None = None,
    prices: Prices | None = None,
    stop: Callable[[], bool] | None = None,
) -> Rollout:
    """Play the world of `key` with one agent, from the first tick to the last.

    `seed` drives the agent's own randomness. `response_timeout` is seconds for a turn. `prices` turn the tokens that the
    agent reports into dollars. `stop` is asked between turns and ends the episode early.
    """
    world = World.from_key(scenario, key)
    episode = Episode(world, [agent], response_timeout=response_timeout, record=True, seed=seed, stop=stop).run()
    player = episode.players[0]
    result = metrics.measure(world, player)
    pnl, bayes = result.groups["money"]["total_pnl"] or 0.0, bayes_pnl(scenario, key)
    prices, used = prices or Prices(), result.groups["conduct"]
    cost = prices.prompt * (used["prompt_tokens"] or 0) + prices.completion * (used["completion_tokens"] or 0)
    groups: metrics.Groups = {
        **result.groups,
        "reference": {"bayes_pnl": bayes, "regret": bayes - pnl, "optimality": optimality(pnl, scenario)},
        "cost": {"cost_usd": cost / 1e6},
    }
    world_id = hashlib.sha256(scenario.digest.encode() + key).hexdigest()[:16]
    return Rollout(agent, scenario, world, world_id, player, result, groups)


def truth(world: World) -> dict[str, Any]:
    """Everything hidden, ready for JSON."""
    hidden: dict[str, Any] = msgspec.to_builtins(world.truth(), enc_hook=lambda number: number.item())
    return hidden


# -- the Bayes player


@lru_cache(maxsize=4096)
def bayes_pnl(scenario: Scenario, key: bytes) -> float:
    """Dollars that the Bayes player earns in the world of this key."""
    world = World.from_key(scenario, key)
    Episode(world, [KellyBayes()]).run()
    account = world.account(0)
    return (micro(account.equity) - micro(account.initial)) / MICRO


@lru_cache(maxsize=64)
def bayes_gain(scenario: Scenario) -> float | None:
    """The Bayes player's mean profit over the calibration worlds; None where it does not differ significantly from 0.

    A few ticks leave it nothing to earn, and dividing by noise would make any score.
    """
    count = max(FEWEST_WORLDS, min(WORLDS, TICKS // scenario.ticks))
    # Equal seeds are the same worlds, so each doubling only plays the new ones: `bayes_pnl` remembers the others.
    for worlds in (count << doubling for doubling in range(DOUBLINGS + 1)):
        earned = [bayes_pnl(scenario, world_key(scenario, seed, CALIBRATION_SECRET)) for seed in range(worlds)]
        mean, error = fmean(earned), stdev(earned) / math.sqrt(worlds)
        if mean > PRECISE * error:
            break
    return mean if mean > SIGNIFICANT * error else None


def optimality(pnl: float, scenario: Scenario) -> float | None:
    """A profit in percent of the Bayes player's; None where the Bayes player itself finds nothing to earn."""
    gain = bayes_gain(scenario)
    return None if gain is None else 100 * pnl / gain
