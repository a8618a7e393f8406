"""What a policy decides. Every method has a plain answer already; a policy is a small class that changes some of them.

The simulation calls `begin` once, then asks: which ready node first (`priority`), may this call go to this tier
(`admits`, only when `tiers` is "ask"), how long to wait before an attempt looks stuck (`patience`), and what to do
about it then (`straggler`). Times are integer microseconds of virtual time, prices integer millionths.

A policy must not use chance, clocks or anything else than what it is told: the same questions, the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bakeoff.workloads.schedsim.resources import Slots
from bakeoff.workloads.schedsim.workflow import Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.attempt import Attempt
    from bakeoff.workloads.schedsim.engine import Engine


@dataclass(frozen=True, slots=True)
class Hedge:
    """Start a second attempt there, ahead of new work; whichever succeeds first wins, and the other is cancelled."""

    where: Slots


@dataclass(frozen=True, slots=True)
class Restart:
    """Give the attempt up and start over there, ahead of new work. Local work cannot be given up."""

    where: Slots


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after so many microseconds."""

    time: int


Action = Hedge | Restart | Wait | None


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about policies."""

    routing: bool = True
    """False: the first tier that has room, as listed; no escalation, no hedging; every node counts as 100 ms."""
    hedging: bool = True
    escalation: bool = True
    dag_priority: bool = True
    spill: bool = False
    hedge_stretch: float = 1.5
    hedges_per_node: int = 1
    escalation_threshold: float = 0.5


class Policy:
    """First come, first served over workflows, on the cheapest tier only."""

    tiers: Literal["cheapest", "spill", "ask"] = "cheapest"
    """Which tiers of a provider serve its queue: the cheapest alone, any that has room (cheapest first), or the ones
    that `admits` says for each node."""
    watches_local = False
    """Whether local attempts are looked after too."""
    observes = False
    """Whether `sim.observed` is kept up to date."""

    def __init__(self, options: Options) -> None:
        self.options = options
        if options.spill and self.tiers == "cheapest":
            self.tiers = "spill"

    def begin(self, sim: Engine) -> None:
        """Before the first event. `sim` may be read at any time."""
        self.sim = sim

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        """Smaller goes first. Asked when a node becomes ready; ties go to the older workflow, then the lower node."""
        return 0

    def admits(self, workflow: Workflow, node: int, kind: int, where: Slots, ahead: int) -> bool:
        """Whether a ready call may start there now, although not on the cheapest tier. `ahead` calls go before it."""
        return True

    def patience(self, kind: int, where: Slots) -> int | None:
        """How long after its start an attempt there is to be looked at by `straggler`; None for never."""
        return None

    def straggler(self, attempt: Attempt) -> Action:
        """What to do about an attempt that still runs."""
        return None
