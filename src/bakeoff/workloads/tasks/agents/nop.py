"""The agent that does nothing: what it scores is what a task gives away."""

from __future__ import annotations

from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.proxy.wire.face import WireName


class Nop:
    name = "nop"
    wire: WireName | None = None
    needs_solution = False

    @property
    def version(self) -> str:
        return __version__

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return ()

    def invocation(self, assignment: Assignment) -> Invocation:
        return Invocation(("true",))
