"""`restart_stragglers`: as `dag_escalation`, and an attempt that looks stuck is given up and started over in its place.

A second attempt beside the first (`full`) holds two slots until one of them is done. With a heavy tail, what has
taken several times the median will most likely take much longer still, so its slot is worth more than its result.
How soon depends on what a new call costs: early on the cheapest tier, late on a dearer one, which also moves work to
the cheap tier. Local work cannot be given up; it costs nothing either, so it gets a second attempt beside the first.

The constants were chosen on seeds 1000 to 1039, with 10, 50 and 100 workflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim.policies.escalation import DagEscalation
from bakeoff.workloads.schedsim.policies.interface import Action, Hedge, Options, Restart
from bakeoff.workloads.schedsim.resources import Slots
from bakeoff.workloads.schedsim.workflow import CLASS, EMBED

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.attempt import Attempt

CHEAPEST, DEARER, EMBEDDING = 3.0, 8.0, 5.0
"""Given up after this many times the median of its kind on that tier. The median does not move when the longest are
cut short, so restarting does not bring on more restarting."""
LOCAL = 6.0
"""Local work gets its second attempt after this many times its expected time."""


class RestartStragglers(DagEscalation):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.watches_local = options.hedging and options.routing

    def patience(self, kind: int, where: Slots) -> int | None:
        if not (self.options.hedging and self.options.routing):
            return None
        if where.local:
            return round(LOCAL * self.expected[kind])
        times = CHEAPEST if where is self.sim.queues[CLASS[kind]].slots[0] else DEARER
        return round((EMBEDDING if kind == EMBED else times) * self.typical(where, kind))

    def straggler(self, attempt: Attempt) -> Action:
        return Hedge(attempt.where) if attempt.where.local else Restart(attempt.where)
