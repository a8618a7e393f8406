"""The scheduling simulator's model in SimPy, written as a SimPy user would: processes, priority resources, timeouts.

Policy `fifo_cheapest` with routing: the oldest workflow first, its nodes by id, on the cheapest tier of each provider.
Random numbers and latency laws are the simulator's own, so that both sides meet the same world and do the same draws.
"""

from __future__ import annotations

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
    LOAD,
    PLAN,
    SEARCH,
    stops,
    threshold,
)  # fmt: skip

Process = Generator[Any, Any, Any]


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
        """Takes a token, which may be there only after the time returned."""
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


class SimpyModel:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.env = simpy.Environment()
        self.places = self._places()
        self.draws = model.service()
        self.finished: dict[int, float] = {}
        self.events = 0

    def _places(self) -> list[Place]:
        """In the order of the classes: cpu, io, embedding, llm."""
        tables, env = self.model.tables, self.env
        places = [Place(simpy.PriorityResource(env, n)) for n in (tables.pools.cpu, tables.pools.io)]
        for provider in ("embed_provider", "llm_provider"):
            tier = min((t for t in tables.tiers if t.provider == provider), key=lambda t: t.price)
            slots = simpy.PriorityResource(env, tier.concurrency)
            rate, burst = tier.rate / 1e6, tier.burst
            places.append(Place(slots, rate, burst, threshold(tier.p_fail), tier.timeout_ms * 1000, burst))
        return places

    def run(self) -> dict[int, float]:
        """When each workflow ended, in microseconds."""
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
        where, attempt, ok = self.places[CLASS[kind]], 0, False
        while not ok:
            attempt += 1
            self.events += 3
            with where.slots.request(priority=(world.workflow, world.first + place)) as slot:
                yield slot
                wait = where.wait_for_token(self.env.now)
                if wait:
                    yield self.env.timeout(wait)
                time, luck = world.times[place], world.luck[place]
                if attempt > 1:
                    time, luck = self.draws.again(world.state, world.first + place, kind, attempt)
                ok = time <= where.timeout and luck & 0xFFFFFFFF >= where.fails_below
                yield self.env.timeout(min(time, where.timeout))
