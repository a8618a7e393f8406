"""Plug-ins by name: workloads and dialects are found through entry points.

No package of the core imports a workload, and users add their own by declaring an entry point in their package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from bakeoff import plugins
from bakeoff.errors import UsageError, did_you_mean, missing_extra
from bakeoff.spec.dialect import NATIVE, Dialect
from bakeoff.spec.workload import CommandWorkload, Workload

WORKLOADS = "bakeoff.workloads"
DIALECTS = "bakeoff.dialects"
EXECUTORS = "bakeoff.executors"


def load(group: str, name: str, noun: str) -> Any:
    """The object behind an entry point. Raises UsageError for an unknown name and for an import that fails."""
    entries = plugins.entry_points(group)
    if name not in entries:
        hint = did_you_mean(name, entries, f"known {noun}s: {', '.join(sorted(entries))}")
        raise UsageError(f"no {noun} called {name!r}; {hint}")
    try:
        return plugins.load(entries[name])
    except (ImportError, AttributeError) as error:
        extra = missing_extra(error) if isinstance(error, ImportError) else None
        fix = f"; pip install 'bakeoff[{extra}]'" if extra else ""
        raise UsageError(f"{noun} {name!r} ({entries[name]}) cannot be imported: {error}{fix}") from error


def kinds() -> list[str]:
    """The names of all installed workloads."""
    return sorted(plugins.entry_points(WORKLOADS))


@cache
def workload(kind: str) -> Workload | CommandWorkload:
    """The workload of this kind, one instance per process. Raises UsageError when there is none or it is unusable."""
    instance = load(WORKLOADS, kind, "workload")()
    if not isinstance(instance, Workload | CommandWorkload):
        raise UsageError(
            f"{plugins.entry_points(WORKLOADS)[kind]} is not a workload: it needs `kind`, `revision`, `Params` and `run` or `command`"
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
        raise UsageError(f"{plugins.entry_points(DIALECTS)[name]} is not an instance of bakeoff.spec.dialect.Dialect")
    return instance


@cache
def dialects() -> tuple[Dialect, ...]:
    """Every installed dialect besides the native one, in the order of their names."""
    return tuple(dialect(name) for name in sorted(plugins.entry_points(DIALECTS)))


def dialect_of(tree: Mapping[str, Any]) -> Dialect:
    """The dialect in which an experiment file is written: the first that recognises it, or the native one."""
    return next((candidate for candidate in dialects() if candidate.recognises(tree)), NATIVE)
