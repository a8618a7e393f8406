"""A research workflow as a graph that grows: what one iteration consists of, and the state of one workflow.

    Plan -> for each PDF: LoadPDF -> Chunk -> Embed -> for each subquery: SimilaritySearch -> ExtractEvidence
         -> Aggregate -> DecideNext -> stop, or the Plan of the next iteration

Nodes are numbers. Iteration i of a shape with n nodes has the nodes i*n to i*n + n-1; a node's id in outputs is its
number plus one. All iterations look alike, so dependencies are written down once, for the place within an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

KINDS = (
    "Plan", "LoadPDF", "Chunk", "Embed", "SimilaritySearch", "ExtractEvidence", "Aggregate", "DecideNext",
)  # fmt: skip
PLAN, LOAD, CHUNK, EMBED, SEARCH, EXTRACT, AGGREGATE, DECIDE = range(8)
NODES = 24
"""Bits that hold the number of a node."""
CPU, IO, EMBEDDING, LLM = range(4)
CLASS = (LLM, IO, CPU, EMBEDDING, CPU, LLM, CPU, LLM)
"""Where each kind of node runs."""
POOLS = ("cpu", "io")
PROVIDERS = ("embed_provider", "llm_provider")


@dataclass(frozen=True, slots=True)
class Shape:
    """One iteration: for each place its kind, what waits for it, and how many it waits for."""

    pdfs: int
    subqueries: int
    kinds: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.kinds)

    @property
    def counts(self) -> list[int]:
        """How many nodes of each kind."""
        return [self.kinds.count(kind) for kind in range(len(KINDS))]

    def plan_tokens(self, iteration: int) -> int:
        """The estimated length of a Plan's prompt."""
        if iteration == 0:
            return 200 + 10 * self.subqueries + 3 * self.pdfs
        return 220 + 15 * self.subqueries + 4 * self.pdfs


@cache
def shape(pdfs: int, subqueries: int) -> Shape:
    kinds = [PLAN]
    edges: list[tuple[int, int]] = []

    def add(kind: int, after: int) -> int:
        kinds.append(kind)
        edges.append((after, len(kinds) - 1))
        return len(kinds) - 1

    extracts = []
    for _ in range(pdfs):
        embed = add(EMBED, add(CHUNK, add(LOAD, 0)))
        extracts += [add(EXTRACT, add(SEARCH, embed)) for _ in range(subqueries)]
    first, *others = extracts or [0]
    aggregate = add(AGGREGATE, first)
    edges += [(extract, aggregate) for extract in others]
    add(DECIDE, aggregate)

    children: list[list[int]] = [[] for _ in kinds]
    waits = [0] * len(kinds)
    for before, after in sorted(edges):
        children[before].append(after)
        waits[after] += 1
    return Shape(pdfs, subqueries, tuple(kinds), tuple(map(tuple, children)), tuple(waits))


class Workflow:
    """What is known about one workflow while it runs. Times are microseconds, money is millionths."""

    __slots__ = (
        "arrived", "cancellations", "cost", "failures", "finished", "hedges", "iterations", "key", "left", "luck", "number", "ready_at",
        "restarts", "retries", "started", "status", "stream", "times", "tries", "waits", "wasted",
    )  # fmt: skip

    def __init__(self, number: int, stream: int, arrived: int) -> None:
        self.number = number
        """Counted from 1."""
        self.key = number << NODES
        """Its number, above the numbers of its nodes: what decides between equal priorities."""
        self.stream = stream
        self.arrived = arrived
        self.started = -1
        """When its first attempt began."""
        self.finished = -1
        self.status = ""
        """Empty while it runs; then `succeeded`, `failed` (a node used up its retries) or `over_budget`."""
        self.waits: list[int] = []
        """For each node: how many dependencies it still waits for."""
        self.tries: list[int] = []
        """For each node: attempts so far."""
        self.ready_at: list[int] = []
        self.failures: dict[int, int] = {}
        """Failed attempts of nodes that had any."""
        self.times: list[int] = []
        self.luck: list[int] = []
        """For each node: how long its first attempt will take, and its other random number (draws.py)."""
        self.left = [0] * len(KINDS)
        """For each kind: nodes of this iteration (and of earlier ones) that have not succeeded yet."""
        self.iterations = 0
        self.cost = 0
        self.retries = self.cancellations = self.hedges = self.restarts = self.wasted = 0

    def grow(self, waits: Sequence[int], times: list[int], luck: list[int]) -> None:
        """Add an iteration: for each of its nodes how many dependencies it waits for, and its draws."""
        self.waits += waits
        self.tries += [0] * len(waits)
        self.ready_at += [0] * len(waits)
        self.times += times
        self.luck += luck

    def close(self, status: str, now: int) -> None:
        """The end. What only the running workflow needs is let go."""
        self.status = status
        self.finished = now
        self.waits, self.tries, self.ready_at, self.times, self.luck = [], [], [], [], []
