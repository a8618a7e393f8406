"""Where attempts run: the slots of a local pool or of one tier of a provider, and the queues in front of them.

Nodes wait in one queue for each class (cpu, io, embedding, llm) and are bound to a tier only when it has a free slot
and a token, so a priority holds until service starts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim.buckets import Bucket
from bakeoff.workloads.schedsim.draws import threshold
from bakeoff.workloads.schedsim.rolling import Rolling
from bakeoff.workloads.schedsim.tiers import Tables, TierTable
from bakeoff.workloads.schedsim.workflow import KINDS, POOLS, PROVIDERS, Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.attempt import Attempt

MILLION = 1_000_000
Entry = tuple[int, int, Workflow]
"""(key, node, workflow): the smallest key is served first, and no two are equal."""


class Slots:
    """One tier of a provider, or a local pool. Free to read for policies."""

    __slots__ = (
        "bucket", "busy", "cancelled", "capacity", "fails_below", "failures", "free", "id", "label", "local",
        "name", "price", "retries", "seen", "speed", "timeout", "timeouts", "urgent", "waits", "wakes_at",
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
        self.urgent: deque[tuple[Workflow, int, int, Attempt | None]] = deque()
        """Duplicates and restarts that wait for a slot here, ahead of new work: (workflow, node, since, primary)."""
        self.wakes_at = -1
        """When a token is due that somebody waits for."""
        self.busy = 0
        """Microseconds of slots in use, of attempts that ended."""
        self.failures = self.timeouts = self.cancelled = 0
        self.seen = [Rolling() for _ in KINDS]
        """How long attempts took lately, by kind of node; empty unless the policy `observes`."""
        self.waits: list[int] = []
        """From ready to start, of every attempt."""

    @property
    def calls(self) -> int:
        """Attempts that started here."""
        return len(self.waits)


class Queue:
    """Ready nodes of one class, and the slots that serve them, cheapest first (or as listed, when routing is off)."""

    __slots__ = ("heap", "local", "slots")

    def __init__(self, slots: list[Slots]) -> None:
        self.heap: list[Entry] = []
        self.slots = tuple(slots)
        self.local = slots[0].local


def build(tables: Tables, by_price: bool) -> list[Queue]:
    """The queues in the order of the classes in workflow.py."""
    pools = [[Slots(pool, 0, getattr(tables.pools, pool))] for pool in POOLS]
    tiers = [
        [Slots(name, tier.id, tier.concurrency, tier) for tier in tables.tiers if tier.provider == name]
        for name in PROVIDERS
    ]
    for provider in tiers:
        if by_price:
            provider.sort(key=lambda slots: slots.price)
    return [Queue(slots) for slots in (*pools, *tiers)]
