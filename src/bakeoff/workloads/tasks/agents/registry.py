"""Agents by name: those that ship, those of an experiment file's `[agents]`, and classes as `module:Class`.

`Nop`, `Oracle` and `Builtin` need nothing on this machine; `clients.py` has the published clients. Any command line is
an agent, by template:

```toml
[agents.mine]
command = "my-agent --model {model} --base-url {base_url} --prompt-file {instruction_file}"
wire = "chat"                                   # the API that it speaks; "none" when it calls no model
version = "1.2"
env = { MY_KEY = "{api_key}" }
files = { "{home}/.mine.json" = '{{"url": "{base_url}"}}' }
mounts = { "my-agent" = "/usr/local/lib/my-agent" }            # appears at {programs}/my-agent
```
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.sandbox.base import Mount
from bakeoff.version import __version__
from bakeoff.workloads.tasks.agents.base import PROGRAMS, Assignment, Invocation, TaskAgent
from bakeoff.workloads.tasks.agents.clients import Claude, Codex, Mini, Opencode
from bakeoff.workloads.tasks.proxy.wire import WireName
from bakeoff.workloads.template import Argument, fill, fill_argv, fill_shell, placeholders

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


SHIPPED: dict[str, Callable[[], TaskAgent]] = {
    agent.name: agent for agent in (Oracle, Nop, Builtin, Codex, Claude, Opencode, Mini)
}


def agent(name: str, tables: Mapping[str, AgentEntry] | None = None, base: Path | None = None) -> TaskAgent:
    """The agent with this name. Raises UsageError, with the names that exist.

    `tables` is a file's `[agents]`, which may replace an agent that ships. Relative paths in it start from `base`
    (default: the working directory).
    """
    tables = tables or {}
    if name in tables:
        return CommandAgent(name, tables[name], base)
    if name in SHIPPED:
        return SHIPPED[name]()
    if ":" not in name:
        known = [*tables, *SHIPPED]
        hint = did_you_mean(name, known, f"known agents: {', '.join(known)}")
        raise UsageError(
            f"no agent called {name!r}; {hint}\n  fix: add [agents.{name}] command = ..., or give module:Class"
        )
    module, _, attribute = name.partition(":")
    try:
        custom: TaskAgent = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(f"agent {name!r} cannot be created: {error}") from error
    missing = [part for part in ("name", "wire", "version", "install", "invocation") if not hasattr(custom, part)]
    if missing:
        raise UsageError(
            f"agent {name!r} lacks {', '.join(missing)}\n"
            "  fix: inherit from bakeoff.workloads.tasks.agents.base.TaskAgent"
        )
    return custom


class AgentEntry(BaseModel):
    """`[agents.NAME]` of an experiment file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    command: Annotated[str | tuple[Argument, ...], Field(min_length=1)]
    """Text is a shell command; a list is an argv."""
    wire: WireName | Literal["none"] = "chat"
    version: str = "unknown"
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    """By absolute path in the sandbox."""
    mounts: dict[str, Path] = {}
    """Name below {programs} -> file or directory of this machine, read-only."""
    stdin: str = ""

    @field_validator("mounts")
    @classmethod
    def _check_names(cls, value: dict[str, Path]) -> dict[str, Path]:
        for name in value:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"{name!r} must be a name below {{programs}}")
        return value


class CommandAgent(TaskAgent):
    """A command line as an agent. Raises UsageError for a placeholder that does not exist."""

    def __init__(self, name: str, entry: AgentEntry, base: Path | None = None) -> None:
        self.name = name
        self.entry = entry
        self.wire = None if entry.wire == "none" else entry.wire
        self._base = base or Path.cwd()
        command = [entry.command] if isinstance(entry.command, str) else [str(part) for part in entry.command]
        texts = [*command, *entry.env.values(), *entry.files, *entry.files.values(), entry.stdin]
        values = self._values(Assignment("", ""))
        unknown = {placeholder for text in texts for placeholder in placeholders(text)} - set(values)
        if unknown:
            raise UsageError(
                f"agents.{name}: unknown {{{'}, {'.join(sorted(unknown))}}}\n  fix: use {', '.join(values)}; "
                "write a literal brace twice"
            )

    @property
    def version(self) -> str:
        return self.entry.version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        mounts = []
        for name, source in self.entry.mounts.items():
            place = (self._base / source).resolve()
            if not place.exists():
                raise UsageError(f"agents.{self.name}.mounts.{name}: {place} does not exist")
            mounts.append(Mount(place, posixpath.join(programs, name)))
        return tuple(mounts)

    def invocation(self, assignment: Assignment) -> Invocation:
        entry, values = self.entry, self._values(assignment)
        files = {values["instruction_file"]: assignment.instruction}
        files |= {fill(path, values): fill(content, values) for path, content in entry.files.items()}
        env = {"HOME": assignment.home} | {name: fill(value, values) for name, value in entry.env.items()}
        if isinstance(entry.command, str):
            # Values are quoted, or come from variables, so that the shell never takes one for code.
            names = {name: f"BAKEOFF_{name.upper()}" for name in values}
            script, needed = fill_shell(entry.command, values, (), names)
            argv: tuple[str, ...] = ("/bin/sh", "-c", script)
            env |= needed
        else:
            argv = tuple(fill_argv(entry.command, values, ()))
        written = {path: content.encode() for path, content in files.items()}
        return Invocation(argv, env, written, fill(entry.stdin, values).encode())

    def _values(self, assignment: Assignment) -> dict[str, str]:
        """The placeholders of a command. docs/agents.md explains them."""
        return {
            "instruction": assignment.instruction,
            "instruction_file": f"{assignment.home}/instruction.md",
            "model": assignment.model,
            "base_url": f"{assignment.url}/v1" if assignment.url else "",
            "url": assignment.url,
            "api_key": assignment.token,
            "workdir": assignment.workdir,
            "home": assignment.home,
            "programs": assignment.programs,
            "effort": assignment.effort or "",
        }
