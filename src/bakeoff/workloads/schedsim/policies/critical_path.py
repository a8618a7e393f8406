"""`critical_path`: the longest remaining path first across all workflows, with nothing on top.

The order that looks right on paper and serves workflows breadth-first; kept to measure what that costs. Estimates
are coarse on purpose: the median for provider calls, 100 ms for local work, and an unexpanded Plan counts only itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim import ranks
from bakeoff.workloads.schedsim.policies.interface import Policy
from bakeoff.workloads.schedsim.service import median_ms
from bakeoff.workloads.schedsim.workflow import CLASS, EMBEDDING, KINDS, LLM, PLAN, Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.engine import Engine

_AGE = 10
"""Ten microseconds of age weigh as much as one of path."""


class CriticalPath(Policy):
    def begin(self, sim: Engine) -> None:
        super().begin(sim)
        laws, tokens = sim.model.tables.latency, sim.shape.plan_tokens(0)

        def time(kind: int) -> int:
            if not self.options.routing or CLASS[kind] not in (EMBEDDING, LLM):
                return ranks.UNIT
            return round(1000 * median_ms(laws[KINDS[kind]], tokens if kind == PLAN else 0))

        self.ranks = ranks.by_kind(sim.shape, ranks.upward(sim.shape, time))
        self.ranks[PLAN] = time(PLAN)

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        """Age grows alike for all, so that only its beginning counts: the score need not be computed again."""
        if not self.options.dag_priority:
            return 0
        return workflow.started // _AGE - self.ranks[kind]
