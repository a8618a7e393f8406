"""Any command line as an agent, by template.

```toml
[agents.mine]
command = "my-agent --model {model} --base-url {base_url} --prompt-file {instruction_file}"
wire = "chat"                                   # the API that it speaks; "none" when it calls no model
version = "1.2"
env = { MY_KEY = "{api_key}" }
files = { "{home}/.mine.json" = '{{"url": "{base_url}"}}' }
mounts = { "my-agent" = "/usr/local/lib/my-agent" }            # seen at {programs}/my-agent
```
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.proxy.wire.face import WireName
from bakeoff.workloads.template import Argument, fill, fill_argv, fill_shell, placeholders

VALUES = {
    "instruction": "what the agent is told",
    "instruction_file": "a file with that text",
    "model": "the model's name",
    "base_url": "the proxy with /v1, as most clients want it",
    "url": "the proxy without /v1",
    "api_key": "the run's token",
    "workdir": "where the agent works",
    "home": "its private home",
    "programs": "where mounts appear",
    "effort": "reasoning effort, or nothing",
}


class AgentEntry(BaseModel):
    """`[agents.NAME]` of an experiment file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    command: Annotated[str | tuple[Argument, ...], Field(min_length=1)]
    """Text is a shell command; a list is an argv."""
    wire: WireName | Literal["none"] = "chat"
    version: str = "unknown"
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    """By absolute path in the box."""
    mounts: dict[str, Path] = {}
    """Name below {programs} -> file or directory of this machine, read-only."""
    stdin: str = ""

    @field_validator("mounts")
    @classmethod
    def _plain_names(cls, value: dict[str, Path]) -> dict[str, Path]:
        for name in value:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"{name!r} must be a name below {{programs}}")
        return value

    @property
    def texts(self) -> list[str]:
        command = [self.command] if isinstance(self.command, str) else [str(part) for part in self.command]
        return [*command, *self.env.values(), *self.files, *self.files.values(), self.stdin]


class CommandAgent:
    needs_solution = False

    def __init__(self, name: str, entry: AgentEntry, base: Path | None = None) -> None:
        self.name = name
        self.entry = entry
        self.wire: WireName | None = None if entry.wire == "none" else entry.wire
        self._base = base or Path.cwd()
        unknown = {found for text in entry.texts for found in placeholders(text)} - set(VALUES)
        if unknown:
            raise UsageError(
                f"agents.{name}: unknown {{{'}, {'.join(sorted(unknown))}}}\n  fix: use {', '.join(VALUES)}; "
                "a brace that is meant is written twice"
            )

    @property
    def version(self) -> str:
        return self.entry.version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        mounts = []
        for name, source in self.entry.mounts.items():
            place = (self._base / source).resolve()
            if not place.exists():
                raise UsageError(f"agents.{self.name}.mounts.{name}: {place} is not there")
            mounts.append(Mount(place, posixpath.join(programs, name)))
        return tuple(mounts)

    def invocation(self, assignment: Assignment) -> Invocation:
        entry, values = self.entry, _values(assignment)
        files = {values["instruction_file"]: assignment.instruction}
        files |= {fill(path, values): fill(content, values) for path, content in entry.files.items()}
        env = {"HOME": assignment.home} | {name: fill(value, values) for name, value in entry.env.items()}
        if isinstance(entry.command, str):
            names = {name: f"BAKEOFF_{name.upper()}" for name in values}
            script, needed = fill_shell(entry.command, values, (), names)
            argv: tuple[str, ...] = ("/bin/sh", "-c", script)
            env |= needed
        else:
            argv = tuple(fill_argv(entry.command, values, ()))
        written = {path: content.encode() for path, content in files.items()}
        return Invocation(argv, env, written, fill(entry.stdin, values).encode())


def _values(assignment: Assignment) -> dict[str, Any]:
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
