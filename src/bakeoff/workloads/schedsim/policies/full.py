"""`full`: as `dag_escalation`, and a call that takes far longer than most gets a rival on another tier.

A call is a straggler when it has been served for longer than `hedge_stretch` times the 95th percentile of its kind.
The rival starts on the tier where it is expected to end first, ahead of new work. Whichever succeeds first wins; the
other is cancelled at once, stays charged, and its time is counted as wasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakeoff.workloads.schedsim.policies.escalation import DagEscalation
from bakeoff.workloads.schedsim.policies.interface import Action, Hedge
from bakeoff.workloads.schedsim.resources import Slots
from bakeoff.workloads.schedsim.workflow import CLASS, EMBED

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.attempt import Attempt

_ENOUGH = 20
"""Observations before a 95th percentile means anything."""
_UNSEEN = 3
"""Until then: this many times the expected time."""


class Full(DagEscalation):
    def patience(self, kind: int, where: Slots) -> int | None:
        if not (self.options.hedging and self.options.routing) or kind == EMBED:
            return None
        seen = where.seen[kind]
        high = seen.quantile(0.95, 0) if len(seen) >= _ENOUGH else _UNSEEN * self.expected[kind]
        return round(self.options.hedge_stretch * high)

    def straggler(self, attempt: Attempt) -> Action:
        others = [slots for slots in self.sim.queues[CLASS[attempt.kind]].slots if slots is not attempt.where]
        if not others:
            return None
        return Hedge(min(others, key=lambda slots: self._done_after(slots, attempt.kind)))

    def _done_after(self, where: Slots, kind: int) -> tuple[float, int]:
        wait = 0.0 if where.free else self.wait(where, kind, len(where.urgent))
        return wait + self.typical(where, kind), where.price
