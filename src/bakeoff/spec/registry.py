"""Workloads are found by entry point, so that no room above them imports them and users can add their own."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.spec.workload import CommandWorkload, Workload

GROUP = "bakeoff.workloads"


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def kinds() -> list[str]:
    return sorted(_entries())


@cache
def workload(kind: str) -> Workload | CommandWorkload:
    """The workload of this kind; one instance for the process."""
    entry = _entries().get(kind)
    if entry is None:
        hint = did_you_mean(kind, kinds(), f"known workloads: {', '.join(kinds())}")
        raise UsageError(f"no workload called {kind!r}; {hint}")
    try:
        found = entry.load()()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"workload {kind!r} ({entry.value}) cannot be imported: {error}") from error
    if not isinstance(found, Workload | CommandWorkload):
        raise UsageError(
            f"{entry.value} is not a workload: it needs `kind`, `revision`, `Params` and `run` or `command`"
        )
    return found


def settings(kind: str) -> frozenset[str]:
    """Parameters of this workload that say how to run and are no column of the table."""
    found: frozenset[str] = getattr(workload(kind).Params, "settings", frozenset())
    return found
