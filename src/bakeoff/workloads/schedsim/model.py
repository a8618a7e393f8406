"""What one simulation is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.workloads.schedsim.service import Service
from bakeoff.workloads.schedsim.tiers import Tables
from bakeoff.workloads.schedsim.workflow import Shape


@dataclass(frozen=True, slots=True)
class Model:
    """What is simulated; all but the policy."""

    shape: Shape
    tables: Tables
    workflows: int = 100
    iterations: int = 3
    seed: int = 1
    heavy_tail_prob: float = 0.02
    heavy_tail_mult: float = 50.0
    legacy_timeout: bool = False
    budget: int = 10_000_000
    """Of each workflow, in millionths."""
    max_in_flight: int = 200
    mixed_evidence: bool = False
    arrivals: Sequence[int] = ()
    """When workflows arrive; all at 0 when left out."""

    def service(self) -> Service:
        return Service(self.shape, self.tables, self.heavy_tail_prob, self.heavy_tail_mult)
