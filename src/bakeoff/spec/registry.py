"""Plug-ins by name: workloads and dialects are found through entry points.

No package of the core imports a workload, and users add their own by declaring an entry point in their package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.spec.dialect import NATIVE, Dialect
from bakeoff.spec.workload import CommandWorkload, Workload

WORKLOADS = "bakeoff.workloads"
DIALECTS = "bakeoff.dialects"
EXECUTORS = "bakeoff.executors"


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def load(group: str, name: str, noun: str) -> Any:
    """The object behind an entry point. Raises UsageError for an unknown name and for an import that fails."""
    entries = _entries(group)
    if name not in entries:
        hint = did_you_mean(name, entries, f"known {noun}s: {', '.join(sorted(entries))}")
        raise UsageError(f"no {noun} called {name!r}; {hint}")
    try:
        return entries[name].load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{noun} {name!r} ({entries[name].value}) cannot be imported: {error}") from error


def executors() -> list[str]:
    """The names of all installed executors; `bakeoff.engine.executors` opens them."""
    return sorted(_entries(EXECUTORS))


def kinds() -> list[str]:
    """The names of all installed workloads."""
    return sorted(_entries(WORKLOADS))


@cache
def workload(kind: str) -> Workload | CommandWorkload:
    """The workload of this kind, one instance per process. Raises UsageError when there is none or it is unusable."""
    instance = load(WORKLOADS, kind, "workload")()
    if not isinstance(instance, Workload | CommandWorkload):
        raise UsageError(
            f"{_entries(WORKLOADS)[kind].value} is not a workload: it needs `kind`, `revision`, `Params` and `run` or `command`"
        )
    return instance


def settings(kind: str) -> frozenset[str]:
    """Parameters of this workload that say how to run; they are not columns of the results table."""
    names: frozenset[str] = getattr(workload(kind).Params, "settings", frozenset())
    return names


@cache
def dialect(name: str) -> Dialect:
    """The dialect called `name`; `native` is that of our own files. Raises UsageError when it is not installed."""
    if name == NATIVE.name:
        return NATIVE
    instance = load(DIALECTS, name, "dialect")
    if not isinstance(instance, Dialect):
        raise UsageError(f"{_entries(DIALECTS)[name].value} is not an instance of bakeoff.spec.dialect.Dialect")
    return instance


@cache
def dialects() -> tuple[Dialect, ...]:
    """Every installed dialect besides the native one, in the order of their names."""
    return tuple(dialect(name) for name in sorted(_entries(DIALECTS)))


def dialect_of(tree: Mapping[str, Any]) -> Dialect:
    """The dialect in which an experiment file is written: the first that recognises it, or the native one."""
    return next((candidate for candidate in dialects() if candidate.recognises(tree)), NATIVE)
