"""The interface of an agent: which files it needs in the sandbox, and how it is started there.

An agent never sees a real key. It gets the proxy's address inside the sandbox and a token that is valid for its run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.proxy.wire import WireName

PROGRAMS = "/opt/bakeoff"
"""Where agents' programs are mounted in a sandbox."""
HOME = "/home/agent"
"""The agent's private home in a sandbox, empty except for `Invocation.files`."""
SOLUTION = "/solution"
"""Where the reference solution of a task is put for an agent that `needs_solution`."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an agent gets for one run. All paths are paths inside the sandbox."""

    instruction: str
    workdir: str
    model: str = ""
    """The provider's name for the model."""
    url: str = ""
    """The proxy, without `/v1`: `http://127.0.0.1:4000`."""
    token: str = field(default="", repr=False)
    home: str = HOME
    programs: str = PROGRAMS
    solution: str = SOLUTION
    effort: str | None = None
    """Reasoning effort, for agents and models that have one."""
    max_turns: int | None = None
    """The most model calls, for agents that can count them."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How an agent is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files to write into the sandbox first, by absolute path."""
    stdin: bytes = b""


class TaskAgent(Protocol):
    """An agent. Classes may inherit from this one for its defaults, or just have the same members.

        class Mine(TaskAgent):
            name, wire = "mine", "chat"

            def invocation(self, assignment: Assignment) -> Invocation:
                env = {"OPENAI_BASE_URL": f"{assignment.url}/v1", "OPENAI_API_KEY": assignment.token}
                return Invocation(("my-agent", "--model", assignment.model, assignment.instruction), env)

    An experiment names it as `agent = "my_package.agents:Mine"`.
    """

    name: str
    wire: WireName | None = None
    """The API that it speaks; None when it calls no model."""
    needs_solution: bool = False
    """Whether it gets the task's reference solution, which only the oracle should."""

    @property
    def version(self) -> str:
        """What goes into the run's record. Raises UsageError when the agent is not installed."""
        return __version__

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        """The agent's read-only files below `programs`; nothing from the user's home."""
        return ()

    @abstractmethod
    def invocation(self, assignment: Assignment) -> Invocation:
        """The command for one run."""
