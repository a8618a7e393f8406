"""`fifo_cheapest`: the oldest workflow first, its nodes in the order of their ids, on the cheapest tier only."""

from __future__ import annotations

from bakeoff.workloads.schedsim.policies.interface import Policy


class FifoCheapest(Policy):
    """What every policy does that changes nothing."""
