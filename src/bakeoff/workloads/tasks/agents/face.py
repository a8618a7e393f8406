"""An agent's face: which files it needs in the box, and how it is called there.

An agent never sees a real key. It gets the proxy's address inside the box and a token that is good for its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.proxy.wire.face import WireName

PROGRAMS = "/opt/bakeoff"
"""Where the files of agents are mounted in a box."""
HOME = "/home/agent"
"""The private home of the agent in a box; empty but for what `Invocation.files` puts there."""
SOLUTION = "/solution"
"""Where a task's reference solution is put for an agent that `needs_solution`."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one agent is told for one run. Paths are paths in the box."""

    instruction: str
    workdir: str
    model: str = ""
    """The provider's own name for it."""
    url: str = ""
    """The proxy, without `/v1`: `http://127.0.0.1:4000`."""
    token: str = field(default="", repr=False)
    home: str = HOME
    programs: str = PROGRAMS
    solution: str = SOLUTION
    effort: str | None = None
    """Reasoning effort, for agents and models that know one."""
    max_turns: int | None = None
    """Model calls at most, for agents that can count them."""


@dataclass(frozen=True, slots=True)
class Invocation:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Written into the box before it starts, by absolute path."""
    stdin: bytes = b""


class TaskAgent(Protocol):
    name: str
    wire: WireName | None
    """The API that it speaks; None when it calls no model."""
    needs_solution: bool
    """Whether the task's reference is put into the box, which only the oracle may ask for."""

    @property
    def version(self) -> str:
        """What goes into provenance. UsageError when the agent is not installed."""

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        """Read-only files that the box needs below `programs`; nothing of the user's home."""

    def invocation(self, assignment: Assignment) -> Invocation: ...
