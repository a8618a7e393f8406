"""What is simulated: workflows as graphs that grow, the slots that attempts run in, and the queues in front of them.

    Plan -> for each PDF: LoadPDF -> Chunk -> Embed -> for each subquery: SimilaritySearch -> ExtractEvidence
         -> Aggregate -> DecideNext -> stop, or the Plan of the next iteration

Nodes are numbers. Iteration i of a shape with n nodes has the nodes i*n to i*n + n-1; a node's id in outputs is its
number plus one. All iterations look alike, so dependencies are written down once, for the place within an iteration.

Evidence depends on nothing but seed, workflow, iteration, PDF and subquery, so every policy meets the same workload.

Nodes wait in one queue for each class (cpu, io, embedding, llm) and are bound to a tier only when it has a free slot
and a token, so a priority holds until service starts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.draws import Tables, TierTable
    from bakeoff.workloads.schedsim.engine import Attempt

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
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, made odd: the increment of SplitMix64
_DECIDE = 0xD1B54A32D192ED03
Words = npt.NDArray[np.uint64]


HALF = 1 << 32
MILLION = 1_000_000
TOKEN = 1_000_000_000
"""One token in a bucket's units: a rate of one per second is then 1000 units each microsecond."""
WINDOW = 1000
"""How many observations `Rolling` keeps."""


def mix(x: int) -> int:
    """The finalizer of SplitMix64: every bit of the input flips about half of the output's.

    It is Stafford's variant 13 of MurmurHash3's finalizer, as in Steele, Lea and Flood, "Fast splittable pseudorandom
    number generators", OOPSLA 2014. The multiplications are modulo 2**64, hence the masks.
    """
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


def threshold(probability: float) -> int:
    """Half of a word is below this number with that probability."""
    return round(min(1.0, max(0.0, probability)) * HALF)


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


# -- slots and queues


class Bucket:
    """A continuous token bucket in whole numbers: no drift, no burst above its size, the same on every machine.

    Nothing happens between calls: the level is brought up to date when a token is asked for.
    """

    __slots__ = ("_at", "_level", "rate", "size")

    def __init__(self, rate: float, size: int) -> None:
        """`rate` in tokens per second, to the thousandth. The bucket starts full."""
        self.rate = max(1, round(rate * 1000))
        self.size = size * TOKEN
        self._level = self.size
        self._at = 0

    def take(self, now: int) -> int:
        """Take a token and return 0; or take none and return the microseconds until there is one."""
        level = self._level + (now - self._at) * self.rate
        if level > self.size:
            level = self.size
        self._at = now
        if level < TOKEN:
            self._level = level
            return -((level - TOKEN) // self.rate)  # rounded up
        self._level = level - TOKEN
        return 0

    def period(self) -> float:
        """Microseconds from one token to the next."""
        return TOKEN / self.rate


class Rolling:
    """Quantiles and mean of the last `WINDOW` observations, kept sorted: reading is free and adding is cheap."""

    __slots__ = ("_recent", "_sorted", "_total")

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self._total = 0

    def add(self, value: int) -> None:
        """Add an observation; the oldest goes when there are more than `WINDOW`."""
        recent, ordered = self._recent, self._sorted
        if len(recent) == WINDOW:
            oldest = recent.popleft()
            del ordered[bisect_left(ordered, oldest)]
            self._total -= oldest
        recent.append(value)
        insort(ordered, value)
        self._total += value

    def __len__(self) -> int:
        return len(self._sorted)

    def quantile(self, share: float, default: int) -> int:
        """The value at place floor(share * n); `default` before there is any."""
        ordered = self._sorted
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else default

    def mean(self, default: float) -> float:
        """The mean; `default` before there is any observation."""
        return self._total / len(self._sorted) if self._sorted else default


@dataclass(frozen=True, slots=True)
class Urgent:
    """A duplicate or a restart that waits for a slot, ahead of new work."""

    workflow: Workflow
    node: int
    since: int
    primary: Attempt | None
    """The running attempt that a duplicate is meant to overtake; None for a restart."""


class Slots:
    """One tier of a provider, or a local pool. Policies may read everything here and change nothing."""

    __slots__ = (
        "bucket", "busy", "cancelled", "capacity", "fails_below", "failures", "free", "id", "label", "local", "name",
        "picky", "plain", "price", "retries", "seen", "speed", "takes_new", "timeout", "timeouts", "urgent", "waits",
        "wakes_at",
    )  # fmt: skip

    def __init__(self, name: str, number: int, capacity: int, table: TierTable | None = None) -> None:
        self.name = name
        """The provider's name, or the pool's."""
        self.id = number
        self.label = f"{name}_{number}" if table else "local"
        self.local = table is None
        self.capacity = capacity
        self.free = capacity
        self.bucket = Bucket(table.rate, table.burst) if table else None
        self.price = round(table.price * MILLION) if table else 0
        """Of one call, in millionths."""
        self.fails_below = threshold(table.p_fail) if table else 0
        self.timeout = round(table.timeout_ms * 1000) if table else 0
        self.retries = table.max_retries if table else 0
        self.speed = table.speed if table else 1.0
        self.takes_new = True
        """Whether ready calls may start here at all; the policy decides (Engine)."""
        self.picky = False
        """Whether the policy is asked about each call that could start here."""
        self.plain = True
        """Whether attempts that succeed need no more than their end as an event (Engine)."""
        self.urgent: deque[Urgent] = deque()
        self.wakes_at = -1
        """When a token is due that a call waits for."""
        self.busy = 0
        """Microseconds of slots in use, of attempts that ended."""
        self.failures = self.timeouts = self.cancelled = 0
        self.seen = [Rolling() for _ in KINDS]
        """How long recent attempts took, by kind of node; empty unless the policy `observes`."""
        self.waits: list[int] = []
        """From ready to start, of every attempt."""

    @property
    def calls(self) -> int:
        """Attempts that started here."""
        return len(self.waits)


class Queue:
    """Ready nodes of one class, and the slots that serve them, cheapest first (or as listed, when routing is off)."""

    __slots__ = ("heap", "local", "serving", "slots")

    def __init__(self, slots: list[Slots]) -> None:
        self.heap: list[int] = []
        """Priority, workflow and node of each ready node in one number (Engine); the smallest is served first."""
        self.slots = self.serving = tuple(slots)
        self.local = slots[0].local


def build(tables: Tables, by_price: bool) -> list[Queue]:
    """The queues, in the order of the classes in world.py."""
    pools = [[Slots(pool, 0, getattr(tables.pools, pool))] for pool in POOLS]
    tiers = [
        [Slots(name, tier.id, tier.concurrency, tier) for tier in tables.tiers if tier.provider == name]
        for name in PROVIDERS
    ]
    for provider in tiers:
        if by_price:
            provider.sort(key=lambda slots: slots.price)
    return [Queue(slots) for slots in (*pools, *tiers)]
