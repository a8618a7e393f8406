"""`dag_escalation`: as `dag_cheapest`, and a call that its workflow waits for may buy its way past the queue.

A ready call goes to a dearer tier that has room when the time its workflow gains, over what the call costs more,
reaches the threshold (milliseconds for each unit of price). Waiting for the cheap tier takes as long as the calls ahead
and this one take to be started, at the pace at which that tier completes calls or gets tokens now. Of that, what the
call has in hand is no gain: its slack, which is how much longer the longest path is that its workflow still has to go.
"""

from __future__ import annotations

from bakeoff.workloads.schedsim.policies.dag import DagCheapest
from bakeoff.workloads.schedsim.policies.interface import Options
from bakeoff.workloads.schedsim.resources import MILLION, Slots
from bakeoff.workloads.schedsim.workflow import CLASS, Workflow


class DagEscalation(DagCheapest):
    observes = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.escalation and self.tiers == "cheapest":
            self.tiers = "ask"

    def admits(self, workflow: Workflow, node: int, kind: int, where: Slots, ahead: int) -> bool:
        cheapest = self.sim.queues[CLASS[kind]].slots[0]
        extra = (where.price - cheapest.price) / MILLION
        sooner = self.wait(cheapest, kind, ahead) + self.typical(cheapest, kind) - self.typical(where, kind)
        gain = (sooner - self.slack(workflow, kind)) / 1000
        return gain > 0 and gain >= self.options.escalation_threshold * extra

    def slack(self, workflow: Workflow, kind: int) -> int:
        """How long a node of this kind can wait before it holds up its workflow, by what paths are expected to take."""
        return max(rank for rank, left in zip(self.ranks, workflow.left, strict=True) if left) - self.ranks[kind]

    def typical(self, where: Slots, kind: int) -> int:
        """The median of what was seen there lately; what the law expects before anything was."""
        return where.seen[kind].quantile(0.50, self.expected[kind])

    def wait(self, where: Slots, kind: int, ahead: int) -> float:
        """Until a call with so many ahead of it would start there."""
        assert where.bucket is not None
        for_slot = where.seen[kind].mean(self.expected[kind]) / where.capacity
        return (ahead + 1) * max(for_slot, where.bucket.full_after() if where.free else 0.0)
