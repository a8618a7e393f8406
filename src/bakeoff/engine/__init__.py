"""A plan becomes finished records: what to start next, where, under which limits, and what came of it.

| module | what it does |
|---|---|
| `session` | one call of `run`: the edition, its lease, a check that the code is the same |
| `scheduler`, `queue` | the loop and the budget; which attempt comes next, and the drawn order of arms in a block |
| `executors` | where attempts run: the interface, and the registry |
| `hardware` | cores, memory and GPU devices of a machine, and how runs share them |
| `pilots` | runs on other machines: pilots, claims, messages, run directories that come home |
| `node` | what runs attempts on one machine: commands, warm workers, limits, captured output |
| `launch` | jobs of SkyPilot, KubeRay and Slurm that run a whole experiment elsewhere |
| `processes` | process trees, marks and cgroups; the supervisor that ends all runs when the node dies |

Data flows in one type: the queue makes an `Attempt` (records/run.py), an executor runs it and fills in the result, the
scheduler records it.
"""

from __future__ import annotations

import sys

from bakeoff.errors import UsageError


def require_linux(caller: str) -> None:
    """Raise UsageError on another system: runs are started, watched and ended by calls that only Linux has."""
    if sys.platform != "linux":
        raise UsageError(
            f"{caller} needs Linux, and this system is {sys.platform}. "
            "Reading results (compare, rank, gate, plot, report, validate) works here."
        )
