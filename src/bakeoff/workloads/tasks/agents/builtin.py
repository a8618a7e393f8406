"""The agents that need nothing on this machine: one does nothing, one applies the reference solution, one is small."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.agents.base import PROGRAMS, Assignment, Invocation, TaskAgent
from bakeoff.workloads.tasks.proxy.wire.base import WireName

PROGRAM = Path(__file__).parent / "box" / "agent.py"
TURNS = 50

SOLVE = """
solution=$1
for script in solve.sh solution.sh; do
    [ -f "$solution/$script" ] || continue
    case "$(head -n 1 "$solution/$script")" in
        "#!"*) exec "$solution/$script" ;;
    esac
    exec bash "$solution/$script"
done
if [ -f "$solution/diff.patch" ]; then
    [ -s "$solution/diff.patch" ] || exit 0
    git() { command git -c safe.directory='*' "$@"; }
    # In a directory below the top of the repository, git apply silently skips everything outside of it.
    top=$(git rev-parse --show-toplevel) && cd "$top"
    apply() { git apply --whitespace=nowarn "$@" "$solution/diff.patch"; }
    # Files that a sparse checkout leaves out are only in the index, which --3way uses once it is refreshed.
    apply || { git update-index -q --refresh; apply --3way; }
    exit
fi
echo "no reference solution: neither $solution/solve.sh nor $solution/diff.patch" >&2
exit 2
"""


class Nop(TaskAgent):
    """Does nothing. Its score is what a task gives away for free."""

    name = "nop"

    def invocation(self, assignment: Assignment) -> Invocation:
        return Invocation(("true",))


class Oracle(TaskAgent):
    """Runs `solve.sh` (or `solution.sh`) or applies `diff.patch` of the reference solution.

    It shows that a task can be solved and that its tests notice.
    """

    name = "oracle"
    needs_solution = True

    def invocation(self, assignment: Assignment) -> Invocation:
        # As Harbor runs it: packages that a solution installs must not ask questions.
        return Invocation(("sh", "-c", SOLVE, "oracle", assignment.solution), {"DEBIAN_FRONTEND": "noninteractive"})


class Builtin(TaskAgent):
    """A small agent with bash, read, write and edit over chat completions. Its program is `box/agent.py`."""

    name = "builtin"
    wire: WireName | None = "chat"

    @property
    def version(self) -> str:
        """With a digest of the program: an agent with another prompt is another agent."""
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
