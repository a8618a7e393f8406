"""Policies by name, or a user's own as `module:Class`."""

from __future__ import annotations

import pkgutil
from functools import cache

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.schedsim.policies.interface import Policy

POLICIES = {
    "fifo_cheapest": "bakeoff.workloads.schedsim.policies.fifo:FifoCheapest",
    "dag_cheapest": "bakeoff.workloads.schedsim.policies.dag:DagCheapest",
    "dag_escalation": "bakeoff.workloads.schedsim.policies.escalation:DagEscalation",
    "full": "bakeoff.workloads.schedsim.policies.full:Full",
    "critical_path": "bakeoff.workloads.schedsim.policies.critical_path:CriticalPath",
    "restart_stragglers": "bakeoff.workloads.schedsim.policies.restart_stragglers:RestartStragglers",
}


def check_name(name: str) -> str:
    """The name itself, if it can be one; whether a user's module is there is seen when it is imported."""
    module, colon, cls = name.partition(":")
    if name in POLICIES or (colon and all(part.isidentifier() for part in (*module.split("."), *cls.split(".")))):
        return name
    hint = did_you_mean(name, POLICIES, f"one of {', '.join(POLICIES)}, or module:Class")
    raise ValueError(f"unknown policy {name!r}; {hint}")


@cache
def policy_class(name: str) -> type[Policy]:
    try:
        found = pkgutil.resolve_name(POLICIES.get(name, name))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"policy {name!r} cannot be imported: {error}") from error
    if not isinstance(found, type) or not issubclass(found, Policy):
        where = "bakeoff.workloads.schedsim.policies.interface"
        raise UsageError(f"policy {name!r} is no class derived from {where}.Policy")
    return found
