"""What looks like a mistake in a plan that could run: said before anything does, by reading and without executing.

Nothing here keeps a plan from running: an arm may be compared with itself on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from bakeoff.spec import registry
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.plan import Cell, Plan
from bakeoff.spec.workload import Reading

MAX_CELLS = 1_000
"""Cells that are looked at: what is wrong with arms is seen in the first ones."""
MAX_NAMES = 6


def advice(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each thing that a plan probably does not mean."""
    experiment = plan.experiment
    runs = len(experiment.seeds) * len(plan.tasks) * max((cell.rollouts for cell in plan.cells), default=1)
    if runs == 1 and len(plan.arms) > 1 and experiment.sequential is None:
        yield "every arm has a single run, and no verdict can come from that: set seeds = 8, for example, at the top level"
    cells = list(islice(plan.cells, MAX_CELLS))
    workload = registry.workload(experiment.workload)
    if isinstance(workload, Reading):
        reads = workload.reads(cells, plan.base)
        known = [names for names in reads if names is not None]
        if len(known) == len(cells):
            used = frozenset().union(*known)
            if len(experiment.seeds) > 1 and "seed" not in used:
                yield f"the seed is not used: {workload.unused('seed')}; {len(experiment.seeds)} seeds repeat the same run"
            settings = registry.settings(experiment.workload)
            unused = dict.fromkeys(name for cell in cells for name in cell.params if name not in settings | used)
            for name in list(unused)[:MAX_NAMES]:
                yield f"the parameter {name} is not used: {workload.unused(name)}"
        cells = [cell for cell, names in zip(cells, reads, strict=True) if names is not None and "arm" not in names]
    for arms in _identical(cells):
        same = "they have the same parameters and flags, so whatever differs between them is chance"
        yield f"arms {' and '.join(arms[:MAX_NAMES])} are identical: {same}"


def _identical(cells: Sequence[Cell]) -> list[list[str]]:
    """Return the groups of arms that are the same on the first task."""
    groups: dict[str, list[str]] = {}
    for cell in cells:
        if cell.task == cells[0].task:
            groups.setdefault(canonical_json([dict(cell.params), cell.arm.flags]), []).append(cell.arm.name)
    return [names for names in groups.values() if len(names) > 1]
