"""Agents by name: those that ship, those of an experiment file's `[agents]`, and classes as `module:Class`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.tasks.agents.builtin import Builtin
from bakeoff.workloads.tasks.agents.claude import Claude
from bakeoff.workloads.tasks.agents.codex import Codex
from bakeoff.workloads.tasks.agents.command import AgentEntry, CommandAgent
from bakeoff.workloads.tasks.agents.face import TaskAgent
from bakeoff.workloads.tasks.agents.mini import Mini
from bakeoff.workloads.tasks.agents.nop import Nop
from bakeoff.workloads.tasks.agents.opencode import Opencode
from bakeoff.workloads.tasks.agents.oracle import Oracle

SHIPPED: dict[str, Callable[[], TaskAgent]] = {
    "oracle": Oracle,
    "nop": Nop,
    "builtin": Builtin,
    "codex": Codex,
    "claude": Claude,
    "opencode": Opencode,
    "mini": Mini,
}


def agent(name: str, tables: Mapping[str, Any] | None = None, base: Path | None = None) -> TaskAgent:
    """The agent of this name. `tables` is a file's `[agents]`, `base` the directory that its paths start from."""
    tables = tables or {}
    if name in tables:
        return CommandAgent(name, _entry(name, tables[name]), base)
    if name in SHIPPED:
        return SHIPPED[name]()
    if ":" in name:
        return _class(name)
    known = [*tables, *SHIPPED]
    hint = did_you_mean(name, known, f"known agents: {', '.join(known)}")
    raise UsageError(
        f"no agent called {name!r}; {hint}\n  fix: add [agents.{name}] command = ..., or give module:Class"
    )


def _entry(name: str, table: Any) -> AgentEntry:
    try:
        return AgentEntry.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"agents.{name}.{key}: {first['msg']}") from error


def _class(name: str) -> TaskAgent:
    module, _, attribute = name.partition(":")
    try:
        made: TaskAgent = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(f"agent {name!r} cannot be made: {error}") from error
    missing = [part for part in ("name", "wire", "version", "install", "invocation") if not hasattr(made, part)]
    if missing:
        raise UsageError(f"agent {name!r} lacks {', '.join(missing)}; its face is bakeoff.workloads.tasks.agents.face")
    return made
