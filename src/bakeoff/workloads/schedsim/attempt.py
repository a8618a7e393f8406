"""One try of one node: how it can end, and the tries that can be looked at, raced and cancelled."""

from __future__ import annotations

from bakeoff.workloads.schedsim.resources import Slots
from bakeoff.workloads.schedsim.workflow import Workflow

OK, FAILED, TIMEOUT = range(3)
RUNNING, UNWANTED, ENDED = range(3)
Facts = tuple[Workflow, int, int, int, Slots, int, int, int]
"""(workflow, node, kind, number, where, began, ends, outcome)"""


class Attempt:
    """One try of a node that somebody watches or cancels. To the others the tuple of facts is enough."""

    __slots__ = ("event", "facts", "siblings", "state")

    def __init__(self, facts: Facts, event: int) -> None:
        self.facts = facts
        self.event = event
        """The sequence number of its end."""
        self.state = RUNNING
        self.siblings: list[Attempt] | None = None
        """All attempts that race for the same result, when there are several."""

    @property
    def workflow(self) -> Workflow:
        return self.facts[0]

    @property
    def node(self) -> int:
        return self.facts[1]

    @property
    def kind(self) -> int:
        return self.facts[2]

    @property
    def number(self) -> int:
        """Counted from 1."""
        return self.facts[3]

    @property
    def where(self) -> Slots:
        return self.facts[4]

    @property
    def began(self) -> int:
        return self.facts[5]

    def rivals(self) -> list[Attempt]:
        """Other attempts at the same node that still run."""
        return [other for other in self.siblings or () if other is not self and other.state == RUNNING]
