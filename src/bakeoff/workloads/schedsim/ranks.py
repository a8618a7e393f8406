"""Upward rank: the expected time from the start of a node to the end of its iteration, along the longest path.

Computed once for every place of an iteration, children before parents. A Plan counts with all that it will grow, so
a workflow that has not been expanded yet does not look nearly done.
"""

from __future__ import annotations

from collections.abc import Callable

from bakeoff.workloads.schedsim.service import mean_ms
from bakeoff.workloads.schedsim.tiers import Tables
from bakeoff.workloads.schedsim.workflow import KINDS, PLAN, Shape

UNIT = 100_000
"""Every node counts as 100 ms when routing is off."""


def expected(tables: Tables, shape: Shape) -> list[int]:
    """The expected service time of each kind of node, without the heavy tail, in microseconds."""
    tokens = shape.plan_tokens(0)
    return [
        round(1000 * mean_ms(tables.latency[kind], tokens if number == PLAN else 0))
        for number, kind in enumerate(KINDS)
    ]


def upward(shape: Shape, time: Callable[[int], int]) -> list[int]:
    """For each place of an iteration its rank in microseconds; `time` gives the estimate for a kind of node."""
    ranks = [0] * shape.size
    for place in reversed(range(shape.size)):
        ranks[place] = time(shape.kinds[place]) + max((ranks[child] for child in shape.children[place]), default=0)
    return ranks


def by_kind(shape: Shape, ranks: list[int]) -> list[int]:
    """The rank of each kind of node: the same at all its places."""
    found = [0] * len(KINDS)
    for kind, rank in zip(shape.kinds, ranks, strict=True):
        found[kind] = max(found[kind], rank)
    return found
