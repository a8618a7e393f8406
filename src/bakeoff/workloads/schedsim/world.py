"""A research workflow as a graph that grows: one iteration, the evidence that ends it, and the state of one workflow.

    Plan -> for each PDF: LoadPDF -> Chunk -> Embed -> for each subquery: SimilaritySearch -> ExtractEvidence
         -> Aggregate -> DecideNext -> stop, or the Plan of the next iteration

Nodes are numbers. Iteration i of a shape with n nodes has the nodes i*n to i*n + n-1; a node's id in outputs is its
number plus one. All iterations look alike, so dependencies are written down once, for the place within an iteration.

Evidence depends on nothing but seed, workflow, iteration, PDF and subquery, so every policy meets the same workload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

KINDS = (
    "Plan", "LoadPDF", "Chunk", "Embed", "SimilaritySearch", "ExtractEvidence", "Aggregate", "DecideNext",
)  # fmt: skip
PLAN, LOAD, CHUNK, EMBED, SEARCH, EXTRACT, AGGREGATE, DECIDE = range(8)
CPU, IO, EMBEDDING, LLM = range(4)
CLASS = (LLM, IO, CPU, EMBEDDING, CPU, LLM, CPU, LLM)
"""Where each kind of node runs."""
POOLS = ("cpu", "io")
PROVIDERS = ("embed_provider", "llm_provider")
NODE_BITS = 24
"""Bits that hold the number of a node, and those of a workflow."""

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
_DECIDE = 0xD1B54A32D192ED03
Words = npt.NDArray[np.uint64]


def mix(x: int) -> int:
    """The finalizer of SplitMix64 (Stafford's variant 13): every bit of the input flips about half of the output's."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix_array(x: Words) -> Words:
    """`mix` for many words at once, in place: numpy's unsigned arithmetic wraps at 64 bits on every machine."""
    x ^= x >> _SHIFTS[0]
    x *= _FACTORS[0]
    x ^= x >> _SHIFTS[1]
    x *= _FACTORS[1]
    x ^= x >> _SHIFTS[2]
    return x


@dataclass(frozen=True, slots=True)
class Shape:
    """One iteration: for each place its kind, which places depend on it, and on how many places it depends."""

    pdfs: int
    subqueries: int
    kinds: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.kinds)

    def plan_tokens(self, iteration: int) -> int:
        """The estimated length of a Plan's prompt."""
        if iteration == 0:
            return 200 + 10 * self.subqueries + 3 * self.pdfs
        return 220 + 15 * self.subqueries + 4 * self.pdfs


@cache
def shape(pdfs: int, subqueries: int) -> Shape:
    """The iteration of workflows with so many PDFs, and so many subqueries for each of them."""
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
    first, *others = extracts or [0]  # without subqueries Aggregate waits for the Plan alone
    aggregate = add(AGGREGATE, first)
    edges += [(extract, aggregate) for extract in others]
    add(DECIDE, aggregate)

    children: list[list[int]] = [[] for _ in kinds]
    waits = [0] * len(kinds)
    for before, after in sorted(edges):
        children[before].append(after)
        waits[after] += 1
    return Shape(pdfs, subqueries, tuple(kinds), tuple(map(tuple, children)), tuple(waits))


@cache
def _calls(pdfs: int, subqueries: int) -> Words:
    """What tells the ExtractEvidence calls of an iteration apart, before it is hashed; one row for each PDF."""
    places = [[pdf << 8 ^ subquery for subquery in range(subqueries)] for pdf in range(pdfs)]
    return np.array(places, dtype=np.uint64).reshape(pdfs, subqueries)


def evidence(seed: int, workflow: int, iteration: int, pdfs: int, subqueries: int) -> Words:
    """Pieces of evidence, 0 to 3, that each call of an iteration finds: one row for each PDF."""
    key = (seed ^ workflow << 32 ^ iteration * GOLDEN) & MASK
    return mix_array(_calls(pdfs, subqueries) ^ np.uint64(key)) & np.uint64(3)


def stops(seed: int, workflow: int, iteration: int, pdfs: int, subqueries: int) -> bool:
    """Whether the evidence of this iteration is enough, or nearly enough and the coin says so."""
    pieces = evidence(seed, workflow, iteration, pdfs, subqueries).sum(axis=1).tolist()
    coverage = sum(map(bool, pieces)) / max(1, pdfs)
    confidence = min(1.0, sum(pieces) / max(1, pdfs * max(1, subqueries) * 2))
    if coverage >= 0.60 and confidence >= 0.50:
        return True
    coin = (mix((seed ^ workflow << 1 ^ iteration * _DECIDE) & MASK) & 0xFFFF) / 65535
    return coverage >= 0.45 and confidence >= 0.35 and coin > 0.70


@dataclass(eq=False, slots=True)
class Workflow:
    """The state of one workflow. Times are microseconds, money is millionths.

    The engine keeps it up to date; policies may read it and must not change it.
    """

    number: int
    """Counted from 1."""
    stream: int
    """The state that its draws start from (draws.py)."""
    arrived: int
    key: int = field(init=False)
    """Its place in the list of workflows, above the bits of its nodes: decides between equal priorities."""
    started: int = -1
    """When its first attempt began."""
    finished: int = -1
    status: str = ""
    """Empty while it runs; then `succeeded`, `failed` (a node used up its retries) or `over_budget`."""
    waits: list[int] = field(default_factory=list)
    """For each node: how many dependencies it still waits for."""
    ready_at: list[int] = field(default_factory=list)
    """For each node: when it became ready."""
    times: list[int] = field(default_factory=list)
    """For each node: how long its first attempt takes."""
    luck: list[int] = field(default_factory=list)
    """For each node: 32 random bits that decide whether its first attempt fails."""
    tries: dict[int, int] = field(default_factory=dict)
    """Attempts so far, of nodes that needed or may need more than one."""
    failures: dict[int, int] = field(default_factory=dict)
    """Failed attempts, of nodes that had any."""
    left: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    """For each kind: nodes of this iteration (and of earlier ones) that have not succeeded yet. Kept up to date only
    for policies that override a method which could read it."""
    iterations: int = 0
    cost: int = 0
    retries: int = 0
    cancellations: int = 0
    hedges: int = 0
    restarts: int = 0
    wasted: int = 0

    def __post_init__(self) -> None:
        self.key = self.number - 1 << NODE_BITS

    @property
    def makespan(self) -> int:
        """From its first attempt to its end; 0 for a workflow that ended before any attempt began."""
        return self.finished - self.started if self.started >= 0 else 0
