"""`dag_cheapest`: the oldest workflow first, and within it the node with the longest way to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim import ranks
from bakeoff.workloads.schedsim.policies.interface import Policy
from bakeoff.workloads.schedsim.workflow import Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.engine import Engine

_AFTER = 1 << 44
"""Above every rank in microseconds: no rank outweighs the order of workflows."""


class DagCheapest(Policy):
    """A workflow-level order on top, since longest-path-first across workflows serves the early nodes of all of them
    before the late nodes of any, and everything ends late together."""

    def begin(self, sim: Engine) -> None:
        super().begin(sim)
        self.expected = ranks.expected(sim.model.tables, sim.shape)
        time = self.expected.__getitem__ if self.options.routing else lambda kind: ranks.UNIT
        self.ranks = ranks.by_kind(sim.shape, ranks.upward(sim.shape, time))
        self._order = [_AFTER - rank for rank in self.ranks] if self.options.dag_priority else None

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        if self._order is None:
            return 0
        return workflow.number * _AFTER + self._order[kind]
