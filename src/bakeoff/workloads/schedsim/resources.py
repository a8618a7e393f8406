"""Where attempts run: the slots of a local pool or of one tier of a provider, and the queues in front of them.

Nodes wait in one queue for each class (cpu, io, embedding, llm) and are bound to a tier only when it has a free slot
and a token, so a priority holds until service starts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim.draws import threshold
from bakeoff.workloads.schedsim.tiers import Tables, TierTable
from bakeoff.workloads.schedsim.world import KINDS, POOLS, PROVIDERS, Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.engine import Attempt

MILLION = 1_000_000
TOKEN = 1_000_000_000
"""One token in a bucket's units: a rate of one per second is then 1000 units each microsecond."""
WINDOW = 1000
"""How many observations `Rolling` keeps."""


class Bucket:
    """A continuous token bucket in whole numbers: no drift, no burst above its size, the same on every machine."""

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
