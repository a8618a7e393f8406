"""Our own small agent: bash, read, write and edit over chat completions. The program is `box/agent.py`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.proxy.wire.face import WireName

PROGRAM = Path(__file__).parent / "box" / "agent.py"
TURNS = 50


class Builtin:
    name = "builtin"
    wire: WireName | None = "chat"
    needs_solution = False

    @property
    def version(self) -> str:
        """With a digest: a prompt that changed is another agent."""
        return f"{__version__}+{hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:8]}"

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(PROGRAM, f"{programs}/agent.py"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        instruction = f"{assignment.home}/instruction.md"
        extra = {"reasoning_effort": assignment.effort} if assignment.effort else {}
        argv = (
            "python3",
            "-I",
            f"{assignment.programs}/agent.py",
            instruction,
            *("--url", f"{assignment.url}/v1"),
            *("--model", assignment.model),
            *("--turns", str(assignment.max_turns or TURNS)),
            *("--extra", json.dumps(extra)),
        )
        env = {"HOME": assignment.home, "MODEL_PROXY_KEY": assignment.token}
        return Invocation(argv, env, {instruction: assignment.instruction.encode()})
