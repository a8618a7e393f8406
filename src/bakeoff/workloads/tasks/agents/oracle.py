"""The reference solution as an agent: proves that a task can be solved and that its tests notice."""

from __future__ import annotations

from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.proxy.wire.face import WireName

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
    # From a directory below its repository's top, git applies only what lies there, and says nothing of the rest.
    top=$(git rev-parse --show-toplevel) && cd "$top"
    apply() { git apply --whitespace=nowarn "$@" "$solution/diff.patch"; }
    # Files that a sparse checkout leaves out are known to the index alone, which has to know its own files first.
    apply || { git update-index -q --refresh; apply --3way; }
    exit
fi
echo "no reference solution: neither $solution/solve.sh nor $solution/diff.patch" >&2
exit 2
"""


class Oracle:
    """Runs `solve.sh` (or `solution.sh`) or applies `diff.patch` from the solution's directory."""

    name = "oracle"
    wire: WireName | None = None
    needs_solution = True

    @property
    def version(self) -> str:
        return __version__

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return ()

    def invocation(self, assignment: Assignment) -> Invocation:
        # As Harbor runs it: packages that a solution installs must not ask questions.
        return Invocation(("sh", "-c", SOLVE, "oracle", assignment.solution), {"DEBIAN_FRONTEND": "noninteractive"})
