"""The scheduling simulator's model in SimPy, written as a SimPy user would: processes, priority resources, timeouts.

Policy `fifo_cheapest` with routing: the oldest workflow first, its nodes by id, on the cheapest tier of each provider.
With `hedge_after`, an LLM call that runs for that long gets one duplicate on the provider's other tier, which serves
nothing else: the first that succeeds wins, and the other is cancelled.
Random numbers and latency distributions are the simulator's, so that both sides simulate the same world.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from bakeoff.workloads.schedsim.draws import stream
from bakeoff.workloads.schedsim.engine import Model
from bakeoff.workloads.schedsim.world import (
    AGGREGATE,
    CHUNK,
    CLASS,
    DECIDE,
    EMBED,
    EXTRACT,
    LLM,
    LOAD,
    PLAN,
    SEARCH,
    stops,
    threshold,
)  # fmt: skip

Process = Generator[Any, Any, Any]
PROVIDERS = ("cpu", "io", "embed_provider", "llm_provider")
"""In the order of the classes of nodes."""


@dataclass
class Place:
    """Slots, and for a provider's tier its rate, failures and timeout."""

    slots: simpy.PriorityResource
    rate: float = 0.0
    burst: float = 0.0
    fails_below: int = 0
    timeout: float = float("inf")
    level: float = 0.0
    at: float = 0.0

    def wait_for_token(self, now: float) -> float:
        """Take a token. Returns how long to wait until it is available."""
        if not self.rate:
            return 0.0
        self.level = min(self.burst, self.level + (now - self.at) * self.rate) - 1
        self.at = now
        return max(0.0, -self.level / self.rate)


@dataclass
class World:
    """One iteration of a workflow and its random numbers."""

    workflow: int
    state: int
    first: int
    times: list[int]
    luck: list[int]


@dataclass
class Race:
    """The attempts at one node."""

    tries: int = 0
    hedged: bool = False
    """Whether a duplicate was asked for, which happens once for a node."""
    duplicate_runs: bool = False


class SimpyModel:
    def __init__(self, model: Model, hedge_after: int | None = None) -> None:
        self.model = model
        self.hedge_after = hedge_after
        self.env = simpy.Environment()
        self.places = [self._place(provider, 0) for provider in PROVIDERS]
        self.other_llm = self._place("llm_provider", 1)
        self.asked = itertools.count()
        self.draws = model.service()
        self.finished: dict[int, float] = {}
        self.events = 0

    def _place(self, name: str, number: int) -> Place:
        """A pool, or the tier of a provider that is the cheapest but `number`."""
        tables, env = self.model.tables, self.env
        if name in ("cpu", "io"):
            return Place(simpy.PriorityResource(env, getattr(tables.pools, name)))
        tier = sorted((t for t in tables.tiers if t.provider == name), key=lambda t: t.price)[number]
        slots = simpy.PriorityResource(env, tier.concurrency)
        rate, burst = tier.rate / 1e6, tier.burst
        return Place(slots, rate, burst, threshold(tier.p_fail), tier.timeout_ms * 1000, burst)

    def run(self) -> dict[int, float]:
        """The time at which each workflow ended, in microseconds."""
        for number in range(1, self.model.workflows + 1):
            self.env.process(self.workflow(number))
        self.env.run()
        return self.finished

    def workflow(self, number: int) -> Process:
        state, shape = stream(self.model.seed, number), self.model.shape
        for iteration in range(self.model.iterations):
            first = iteration * shape.size
            times, luck = self.draws.iteration(state, first)
            world = World(number, state, first, times, luck)
            yield from self.node(world, 0, PLAN)
            pdfs = [self.env.process(self.pdf(world, 1 + p * (3 + 2 * shape.subqueries))) for p in range(shape.pdfs)]
            yield simpy.AllOf(self.env, pdfs)
            yield from self.node(world, shape.size - 2, AGGREGATE)
            yield from self.node(world, shape.size - 1, DECIDE)
            if stops(self.model.seed, number, iteration, shape.pdfs, shape.subqueries):
                break
        self.finished[number] = self.env.now

    def pdf(self, world: World, node: int) -> Process:
        yield from self.node(world, node, LOAD)
        yield from self.node(world, node + 1, CHUNK)
        yield from self.node(world, node + 2, EMBED)
        subqueries = range(self.model.shape.subqueries)
        yield simpy.AllOf(self.env, [self.env.process(self.subquery(world, node + 3 + 2 * q)) for q in subqueries])

    def subquery(self, world: World, node: int) -> Process:
        yield from self.node(world, node, SEARCH)
        yield from self.node(world, node + 1, EXTRACT)

    def node(self, world: World, place: int, kind: int) -> Process:
        """Attempts until one succeeds."""
        race = Race()
        while not (yield from self.attempt(world, place, kind, race)):
            pass

    def attempt(self, world: World, place: int, kind: int, race: Race) -> Process:
        """One attempt, and its duplicate if it gets one; whether one of them succeeded."""
        where = self.places[CLASS[kind]]
        with where.slots.request(priority=(world.workflow, world.first + place)) as slot:
            yield slot
            self.events += 3
            time, succeeds = yield from self.service(world, place, kind, race, where)
            end = self.env.timeout(time)
            if CLASS[kind] != LLM or self.hedge_after is None or race.hedged or time <= self.hedge_after:
                yield end
                return succeeds
            yield self.env.timeout(self.hedge_after)
            race.hedged = True
            duplicate = self.env.process(self.duplicate(world, place, kind, race))
            yield end | duplicate
            if not end.processed:
                if not duplicate.value:
                    yield end  # the duplicate failed, so the first attempt decides
                return duplicate.value or succeeds  # leaving the block cancels what still runs
        if duplicate.is_alive and (succeeds or not race.duplicate_runs):
            duplicate.interrupt()
            return succeeds
        return succeeds or (yield duplicate)

    def duplicate(self, world: World, place: int, kind: int, race: Race) -> Process:
        """A second attempt on the other tier, first come, first served; whether it succeeded."""
        try:
            with self.other_llm.slots.request(priority=next(self.asked)) as slot:
                yield slot
                self.events += 2
                race.duplicate_runs = True
                time, succeeds = yield from self.service(world, place, kind, race, self.other_llm)
                yield self.env.timeout(time)
                return succeeds
        except simpy.Interrupt:
            return False
        finally:
            race.duplicate_runs = False

    def service(self, world: World, place: int, kind: int, race: Race, where: Place) -> Process:
        """How long the next attempt takes, and whether it succeeds, once there is a token for it."""
        wait = where.wait_for_token(self.env.now)
        if wait:
            yield self.env.timeout(wait)
        race.tries += 1
        time, luck = world.times[place], world.luck[place]
        if race.tries > 1:
            time, luck = self.draws.again(world.state, world.first + place, kind, race.tries)
        succeeds = time <= where.timeout and luck & 0xFFFFFFFF >= where.fails_below
        return min(time, where.timeout), succeeds
